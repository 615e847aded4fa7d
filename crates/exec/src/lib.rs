//! Running plans: segments, the step loop, weights by name. It knows no kernel: those are an [`Executor`]'s.

mod arena;
pub mod atomic_file;
mod checksum;
mod device;
mod engine;
mod error;
mod exchange;
mod executor;
mod hand_out;
mod host_memory;
mod indices;
mod inputs;
pub mod machine;
pub mod process;
pub mod recorder;
mod states;
pub mod weights;
mod whole_states;
mod wire;

pub use arena::{Arena, Transient};
pub use checksum::Checksum;
pub use device::{Device, DeviceFull, Holder, PROGRAM, Reservation};
pub use engine::{Clock, Engine, Options};
pub use error::{ExecError, KernelError};
pub use exchange::staging_bytes as exchange_staging_bytes;
pub use executor::Executor;
pub use hand_out::StatesFile;
pub use host_memory::{Growth, HostMemory};
pub use inputs::TensorView;
pub use recorder::Recorder;
pub use wire::{Farewell, Numbers, Part, Sum, ThreadWire, Wire, WireError, gather_words, shares, thread_wires};
