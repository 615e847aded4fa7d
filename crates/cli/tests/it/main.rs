//! The tests of the program in one binary, so that they are linked once and run side by side.

mod advice;
mod arrays;
mod bad_data;
mod bad_tables;
mod cage;
mod checkpoints;
mod cli;
mod common;
mod data;
mod devices;
#[path = "../../../../examples/pictures/draw.rs"]
mod draw;
mod examples;
mod files;
mod foreign_weights;
mod guards;
mod labels;
mod library_words;
mod limits;
mod old_run;
#[cfg(unix)]
mod own_files;
mod pack;
mod pages;
mod pictures;
mod plan;
mod predict;
mod profile;
mod refusal;
mod replicas;
mod replicas_planned;
mod resident;
mod resumed;
mod run_files;
mod sets;
mod sizes;
#[cfg(unix)]
mod special_files;
mod together;
mod train;
mod values;
mod weighted;
