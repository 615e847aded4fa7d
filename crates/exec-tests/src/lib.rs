//! What every executor is held against: a naive f64 reference executor, golden vectors of another framework, and the
//! comparison of the two. Any executor takes part by implementing [`Runner`]. Nothing here is fast, and nothing here
//! shares code with the executors it checks.

mod compare;
mod error;
pub mod golden;
pub mod reference;
mod runner;
mod tensor;

pub use compare::check_close;
pub use error::{Error, Result};
pub use runner::{Reference, RunResult, Runner};
pub use tensor::{Tensor, indices, round_to};
