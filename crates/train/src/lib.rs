//! Training: a [`Session`] is a planned model with its state, one step at a time; [`fit`] takes it through the data,
//! evaluates it and keeps its checkpoints in a [`RunDir`]; [`evaluate`] gives its loss and metrics on other data.
//!
//! Nothing here prints, and nothing here knows a device or a kernel. A run that is stopped at any instant, or killed,
//! goes on from its last checkpoint and ends in the same bits.

#![warn(missing_docs)]

mod checkpoint;
mod error;
mod evaluate;
mod fit;
pub mod history;
mod metrics;
mod programs;
mod range_test;
mod row_sums;
pub mod run_dir;
mod schedule;
mod session;
mod turns;
mod value_errors;

pub use checkpoint::{Checkpoint, Evaluation, FileSum, Progress};
pub use error::{BadValue, Recovery, Result, TrainError};
pub use evaluate::{EvaluationResult, evaluate};
pub use fit::{Datasets, EarlyStop, Event, Feed, FitOptions, Flow, Outcome, SaveEvery, StopReason, fit};
pub use metrics::{LabelKind, Metric, Monitor, Scores};
pub use programs::{SourceError, programs, replica_programs};
pub use range_test::{RangeEnd, RangeTest, Trial, Tried, find_learning_rate, range_test};
pub use run_dir::{CheckpointKind, RunDir, SavedRun};
pub use schedule::{Decay, Period, Schedule, Span};
pub use session::{Prediction, Session, views};
pub use turns::{Share, Ticket, Turn};
