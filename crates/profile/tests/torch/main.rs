//! Snapshots of PyTorch's memory: what is read of them, and what is refused.

mod damaged;
mod snapshot;
