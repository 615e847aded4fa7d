//! How replicas reach each other: a few collective operations, which all of them call in the same order with the same sizes. What
//! they add up they add in the order of a tree and in no other, so it is the same bits on every wire.

mod sum;
mod threads;

pub use sum::{Numbers, Part, Sum, shares};
pub use threads::{ThreadWire, thread_wires};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One end of a connection between replicas. Every operation waits for all of them.
pub trait Wire: Send {
    /// Which replica this is, counted from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Adds up numbers of all replicas, piece by piece, and gives every replica the sum. `room` has [`Sum::rounds`] pieces, for
    /// wires that have no room of their own.
    fn sum(&mut self, sum: &Arc<Sum>, numbers: &mut dyn Numbers, room: &mut [u8]) -> Result<(), WireError>;

    /// What every replica sent, in the order of their ranks.
    fn all_gather(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), WireError>;

    /// The owner's bytes go to all others.
    fn broadcast(&mut self, owner: usize, bytes: &mut [u8]) -> Result<(), WireError>;

    /// Goes for good, and tells whoever waits for it, now or later, why: see [`WireError::Left`]. Waits for nobody.
    fn leave(&mut self, why: Farewell);
}

/// What a replica says that goes before the others do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// Of what kind it is, as a front end numbers that: so all can end alike.
    pub kind: u8,
    pub message: String,
}

/// Why an exchange did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("replica {rank} is gone")]
    Lost { rank: usize },
    /// It said so before.
    #[error("replica {rank}: {}", why.message)]
    Left { rank: usize, why: Farewell },
    #[error("{} did not come within {} s", Ranks(missing), waited.as_secs())]
    Stalled { missing: Vec<usize>, waited: Duration },
    /// The replicas do not do the same.
    #[error("replica {rank} exchanges {given} bytes where this one has {expected}")]
    Differs { rank: usize, expected: usize, given: usize },
    #[error("{0}")]
    Failed(String),
}

/// What every replica says, in the order of their ranks; of any length. All have to ask at the same time.
pub fn gather_words(wire: &mut dyn Wire, words: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
    let mut lengths = vec![0u64; wire.size()];
    wire.all_gather(&(words.len() as u64).to_ne_bytes(), bytemuck::cast_slice_mut(&mut lengths))?;
    let longest = lengths.iter().max().map_or(0, |&longest| longest as usize);
    if longest == 0 {
        return Ok(vec![Vec::new(); lengths.len()]);
    }
    let (mut own, mut all) = (words.to_vec(), vec![0; longest * lengths.len()]);
    own.resize(longest, 0);
    wire.all_gather(&own, &mut all)?;
    Ok(all.chunks(longest).zip(lengths).map(|(said, length)| said[..length as usize].to_vec()).collect())
}

/// Some replicas, in words.
struct Ranks<'a>(&'a [usize]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "replica{} {}", if self.0.len() == 1 { "" } else { "s" }, names.join(", "))
    }
}
