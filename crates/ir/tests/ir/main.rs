//! The tests of the crate from outside: one binary, so that the generator of graphs is shared.

mod cost;
mod fuzz;
mod generate;
mod rules;
mod text;
mod text_errors;
mod verify;
