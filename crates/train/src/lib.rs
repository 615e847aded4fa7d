//! Training: a [`Session`] is a planned model with its state, one step at a time.
//!
//! Nothing here prints, and nothing here knows a device or a kernel.

mod error;
mod programs;
mod session;

pub use error::{Result, TrainError};
pub use programs::{SourceError, programs};
pub use session::{Session, views};
