//! Replicas in several processes, which MPI brings to each other. The only crate that names MPI, and all that does is behind the
//! feature `mpi`; without it the crate tells who was started by a launcher of MPI programs, so that a program can refuse that.
//!
//! No thread of the caller ever enters MPI. Each wire has a thread of its own, the courier, which moves what is given to it through
//! buffers that it owns; the caller waits for it, and no longer than it said. So an exchange that fails returns, though MPI may go
//! on to write for ever: the courier then stays with its buffers until the process ends, and nothing is freed that MPI may touch.
//! It never prints.

mod launched;

#[cfg(any(feature = "mpi", test))]
mod attendance;
#[cfg(feature = "mpi")]
mod courier;
#[cfg(any(feature = "mpi", test))]
mod cut;
#[cfg(any(feature = "mpi", test))]
mod desk;
#[cfg(feature = "mpi")]
mod ending;
#[cfg(feature = "mpi")]
mod line;
#[cfg(feature = "mpi")]
mod meeting;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "mpi")]
mod pace;
#[cfg(any(feature = "mpi", test))]
mod portion;
#[cfg(feature = "mpi")]
mod post;
#[cfg(any(feature = "mpi", test))]
mod roll;
#[cfg(any(feature = "mpi", test))]
mod siblings;
#[cfg(any(feature = "mpi", test))]
mod wire;
#[cfg(any(feature = "mpi", test))]
mod word;

#[cfg(feature = "mpi")]
pub use ending::Ending;
pub use launched::{Launched, launched};
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, NotBegun};
#[cfg(feature = "mpi")]
pub use roll::{Claim, End, Settled};
#[cfg(feature = "mpi")]
pub use wire::MpiWire;
