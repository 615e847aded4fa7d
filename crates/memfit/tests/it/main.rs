//! The tests of this crate in one binary, so that they are linked once and run side by side. What looks at the memory of the
//! whole process is a binary of its own.

// Two examples draw the same glyphs, each as a program of its own.
#![allow(clippy::duplicate_mod)]

mod common;
mod distill;
mod fixes;
mod packing;
mod recorder;
mod replicas;
mod samples;
mod save;
mod staging;
mod together;
mod two_inputs;
mod two_models;
mod weights;
mod zoo_plans;
