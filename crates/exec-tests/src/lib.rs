//! What every executor is held against: a naive f64 reference executor, golden vectors of another framework, and the
//! comparison of the two. Any executor takes part by implementing [`Runner`]. Nothing here is fast, and nothing here
//! shares code with the executors it checks.

mod batch;
mod compare;
pub mod edges;
mod error;
mod expected;
pub mod families;
pub mod folds;
pub mod generate;
pub mod golden;
mod planned;
mod recorded;
pub mod reference;
mod runner;
mod tensor;
mod watched;
pub mod zoo;

pub use batch::Batch;
pub use compare::{check_close, check_same};
pub use error::{Error, Result};
pub use expected::Expected;
pub use planned::{Planned, Settings};
pub use recorded::check_recording;
pub use runner::{Reference, RunResult, Runner};
pub use tensor::{Tensor, indices, round_to};
pub use watched::Watched;
