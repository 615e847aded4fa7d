//! What can be wrong with a snapshot.

use memfit_files::pickle::PickleError;

/// Why something is no snapshot that can be used here.
#[derive(Debug, thiserror::Error)]
pub enum TorchError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is no pickle of plain data.
    #[error("{0}")]
    Pickle(#[from] PickleError),
    /// It is plain data, and no snapshot.
    #[error("it is no memory snapshot of PyTorch: {place} {problem}")]
    Schema {
        /// Where, as Python would write it.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// Nothing was recorded.
    #[error("it has no events of {}: its history was not being recorded", device.map_or("any device".into(), |d| format!("device {d}")))]
    NoEvents {
        /// The device that was asked for.
        device: Option<usize>,
        /// Devices that have events.
        others: Vec<usize>,
    },
    /// There is no such device.
    #[error("it has no device {device}: there {}", match devices { 0 => "is none".into(), 1 => "is device 0 alone".into(), n => format!("are 0 to {}", n - 1) })]
    NoDevice {
        /// The device that was asked for.
        device: usize,
        /// How many there are.
        devices: usize,
    },
    /// Its sizes are none that a memory could have.
    #[error("its sizes add up to more than any memory")]
    TooManyBytes,
}
