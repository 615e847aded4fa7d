//! The tests of the program in one binary, so that they are linked once and run side by side.

mod bad_data;
mod cli;
mod common;
mod data;
mod devices;
#[path = "../../../../examples/pictures/draw.rs"]
mod draw;
mod examples;
mod files;
mod library_words;
mod old_run;
mod pack;
mod plan;
mod refusal;
mod resident;
mod together;
mod train;
