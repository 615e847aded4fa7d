//! The tests of this crate in one binary, so that they are linked once and run side by side. What is started and killed is a
//! binary of its own.

mod common;
mod counting;
mod damage;
mod fit;
mod fuzz;
mod given_states;
mod later;
mod memory;
mod replicas;
mod resume;
mod scores;
mod session;
