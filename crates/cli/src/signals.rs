//! What the system tells a process: to stop, which a training does after saving; and that a file would become too large, which
//! is an error of writing and no reason to die.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::SigId;

/// What schedulers of clusters send some time before they end a job. It may come more than once.
#[cfg(unix)]
const SOON: [i32; 1] = [signal_hook::consts::SIGUSR1];
#[cfg(not(unix))]
const SOON: [i32; 0] = [];

/// Ctrl-C, a polite end, and a terminal that was closed.
#[cfg(unix)]
const STOP: [i32; 3] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const STOP: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// Handlers of those who ask a second time.
static IMPATIENT: Mutex<Vec<SigId>> = Mutex::new(Vec::new());

/// Whether somebody asked to stop.
#[derive(Clone)]
pub struct Signals {
    stop: Arc<AtomicBool>,
}

impl Signals {
    /// Listens from now on. Whoever asks a second time does not want to wait.
    pub fn listen() -> std::io::Result<Signals> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in STOP {
            let ends = signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))?;
            IMPATIENT.lock().unwrap_or_else(PoisonError::into_inner).push(ends);
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        for signal in SOON {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Signals { stop })
    }

    pub fn asked_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Has a write beyond `ulimit -f` fail as one to a full disk does. A handler, unlike a signal that is ignored, is not passed on
/// to programs that are started.
pub fn survive_file_limit() {
    // Where there is no such handler, the signal ends the process as it did.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// As soon as one process has ended with an error, a launcher asks the others to end: they are about to, and with the same code.
#[cfg(feature = "mpi")]
pub fn outlast_launcher() {
    // Where there is no such handler, they end with another one.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false)));
    for handler in IMPATIENT.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        signal_hook::low_level::unregister(handler);
    }
}

/// Ends this process now.
#[cfg(feature = "mpi")]
pub fn exit(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

/// The exit code of a run that was interrupted.
pub const INTERRUPTED: i32 = 130;
