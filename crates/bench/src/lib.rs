//! What benchmarks share: the kernels of one op, planned and run as in any program, and steps of whole workloads.
//! Nothing here is part of memfit, and no test depends on a time.

mod case;
mod forks;
mod streams;
mod timed;
mod workload;

pub use case::{Case, Work, contractions, is_stream, kernels, sgemm, stream};
pub use forks::{ForkCost, Gap, StepForks, fork_cost, step_forks};
pub use streams::{Stream, streams};
pub use timed::Timed;
pub use workload::{Runner, WORKLOADS, Workload};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

pub fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list.get(list.len() / 2).copied().unwrap_or(f64::NAN)
}
