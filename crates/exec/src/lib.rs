//! Running plans: segments, the step loop, weights by name. It knows no kernel: those are an [`Executor`]'s.

mod arena;
pub mod beside;
mod checksum;
mod engine;
mod error;
mod executor;
pub mod weights;

pub use arena::{Growth, HostArena};
pub use checksum::Checksum;
pub use engine::{Clock, Engine, Options, TensorView};
pub use error::{ExecError, KernelError};
pub use executor::Executor;
