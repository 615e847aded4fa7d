//! The tests of this crate in one binary, so that they are linked once and run side by side.

mod common;
mod group;
mod masks;
mod numeric;
mod precision;
mod samples;
mod step;
mod structure;
