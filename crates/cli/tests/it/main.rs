//! The tests of the program in one binary, so that they are linked once and run side by side.

mod bad_data;
mod cage;
mod cli;
mod common;
mod devices;
#[path = "../../../../examples/pictures/draw.rs"]
mod draw;
mod examples;
mod library_words;
mod limits;
mod old_run;
mod pack;
mod plan;
mod refusal;
mod resident;
mod together;
mod train;
