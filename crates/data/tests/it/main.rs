//! The tests of this crate in one binary, so that they are linked once and run side by side.

mod augment;
mod cache;
mod common;
mod folders;
mod fuzz;
mod images;
mod loader;
mod masks;
mod oracle;
mod tables;
mod tfrecords;
mod verbs;
