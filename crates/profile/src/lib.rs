//! What a training step does with its memory and its time, as planned and as measured: one plain [`Profile`], and everything that
//! is made of it. A profile is made of a plan (`build`), and where something ran, of what was recorded; it never runs anything
//! and touches no device.
//!
//! `model` is the data itself and its schema, `check` whether one that was read holds together, `build` makes it of a plan, `peak` says what is live at the worst instant and what
//! recomputing it would cost, `measure` adds what an executor's recorder has seen. [`compare`](mod@compare) sets two profiles side by
//! side, [`html`] and [`markdown`] show one to people, [`export`] writes it in the forms that other tools read, and
//! [`torch`] reads what PyTorch kept of its memory.
#![deny(missing_docs)]

mod build;
mod check;
pub mod compare;
mod error;
pub mod export;
pub mod html;
mod markdown;
mod measure;
mod model;
mod peak;
pub mod table;
pub mod torch;

pub use build::{Labels, from_plan};
pub use error::ProfileError;
pub use markdown::markdown;
pub use measure::{StepFacts, add_measured};
pub use model::*;
