//! The CPU executor: kernels, a GEMM of its own, and a small thread pool with static partition.
//!
//! Nothing here allocates while a step runs: memory comes from the plan's segments, scratch included. Results are
//! bit-identical for every number of threads.

pub mod conv;
pub mod elementwise;
mod executor;
pub mod gemm;
pub mod isa;
pub mod kernels;
mod launch;
pub mod math;
pub mod memory;
pub mod pool;
mod subnormal;
pub mod winograd;

pub use executor::CpuExecutor;
use isa::Isa;
use pool::Pool;

/// What every kernel gets: the threads to run on and the instructions to use.
pub struct Cpu {
    pub(crate) pool: Pool,
    pub(crate) isa: Isa,
}

impl Cpu {
    /// The instruction set must be one of [`Isa::available`]: kernels rely on it.
    pub fn new(pool: Pool, isa: Isa) -> Cpu {
        assert!(Isa::available().contains(&isa), "{} is not available on this machine", isa.name());
        Cpu { pool, isa }
    }
}
