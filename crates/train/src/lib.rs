//! Training: a [`Session`] is a planned model with its state, one step at a time.
//!
//! Nothing here prints, and nothing here knows a device or a kernel.

pub mod checkpoint;
mod error;
pub mod metrics;
mod programs;
pub mod run_dir;
pub mod schedule;
mod session;

pub use checkpoint::{Checkpoint, Evaluation, Progress};
pub use error::{Result, TrainError};
pub use metrics::{Metric, Scores, Tally, Task};
pub use programs::{SourceError, programs};
pub use run_dir::{RunDir, Saved, Which};
pub use schedule::{Decay, Period, Schedule, Span};
pub use session::{Session, views};
