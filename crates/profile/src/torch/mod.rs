//! Snapshots of PyTorch's CUDA allocator, as `torch.cuda.memory._dump_snapshot` writes them: which buffers lived when, how much
//! the allocator had reserved for them, and who asked for them. A snapshot is a pickle, of which only plain data is read; nothing
//! in it is run.
//!
//! `memfit_files::pickle` is the plain data of a pickle, `snapshot` the schema of a snapshot, `replay` what becomes of its events, `frames` who stands in a stack of calls.

mod error;
mod frames;
mod replay;
mod snapshot;

pub use error::TorchError;
pub use frames::Frame;
pub use replay::{Buffer, DeviceTrace, FreedAt, OutOfMemory, Peak, Reserved, SnapshotBlocks};
pub use snapshot::Snapshot;
