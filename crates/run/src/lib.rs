//! A run of memfit: its file and the keys of it, its data sets, its devices, its plan, and the folder that it leaves. What a
//! front end needs to train by a run file; the command line is one.
//!
//! It never prints, reads arguments, or listens to signals.

pub mod announce;
pub mod config;
pub mod cost_model;
pub mod data;
pub mod device;
pub mod error;
pub mod file;
mod place;
pub mod planning;
mod resources;
pub mod run_dir;
pub mod text;
pub mod together;
pub mod weights;

pub use place::Place;
pub use resources::{DIGITS, Facts, Run, parse_size, read_file, threads};
