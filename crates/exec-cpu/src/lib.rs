//! The CPU executor: kernels, a GEMM of its own, and a small thread pool with static partition.
//!
//! Nothing here allocates while a step runs: memory comes from the plan's segments, scratch included. Results are
//! bit-identical for every number of threads.

#![deny(missing_docs, unreachable_pub)]
#![deny(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

mod compile;
mod conv;
mod elementwise;
mod executor;
mod gemm;
pub mod isa;
mod kernels;
mod math;
mod memory;
mod pool;
mod prefetch;
mod subnormal;
mod vector;
mod winograd;

pub use compile::CpuKernel;
pub use executor::CpuExecutor;
use isa::Isa;
use pool::Pool;

/// What every kernel gets: the threads to run on and the instructions to use.
pub(crate) struct Cpu {
    pub(crate) pool: Pool,
    pub(crate) isa: Isa,
}

impl Cpu {
    /// The instruction set must be one of [`Isa::available`]: kernels rely on it.
    pub(crate) fn new(pool: Pool, isa: Isa) -> Cpu {
        assert!(Isa::available().contains(&isa), "{} is not available on this machine", isa.name());
        Cpu { pool, isa }
    }
}
