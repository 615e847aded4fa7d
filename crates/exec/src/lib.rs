//! Running plans: segments, the step loop, weights by name. It knows no kernel: those are an [`Executor`]'s.

mod arena;
pub mod beside;
mod checksum;
pub mod device;
mod engine;
mod error;
mod executor;
pub mod machine;
mod memory;
mod states;
pub mod weights;

pub use arena::{Growth, HostMemory};
pub use checksum::Checksum;
pub use device::{Device, DeviceFull, Held, Holder};
pub use engine::{Clock, Engine, Options, TensorView};
pub use error::{ExecError, KernelError};
pub use executor::Executor;
pub use memory::{Arena, Transient};
