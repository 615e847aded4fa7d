//! What a training step does with its memory and its time, as planned and as measured: one plain [`Profile`], and everything that
//! is made of it. A profile is made of a plan (`build`), and where something ran, of what was recorded; it never runs anything
//! and touches no device.
//!
//! `model` is the data itself and its schema, `build` makes it of a plan, `peak` says what is live at the worst instant and what
//! recomputing it would cost; `torch` reads what another framework recorded of its memory.
#![deny(missing_docs)]

mod build;
mod error;
mod model;
mod peak;
pub mod torch;

pub use build::{Labels, from_plan};
pub use error::ProfileError;
pub use model::*;
