//! The tests of this crate in one binary, so that they are linked once and run side by side. What looks at the memory of the
//! whole process is a binary of its own.

#![allow(clippy::duplicate_mod, reason = "examples, which are modules here, share their data")]

mod common;
mod distill;
mod fixes;
mod packing;
mod samples;
mod save;
mod together;
mod two_inputs;
mod two_models;
mod weights;
mod zoo_plans;
