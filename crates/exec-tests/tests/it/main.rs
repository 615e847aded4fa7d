//! The tests of this crate in one binary, so that they are linked once and run side by side. What counts the allocations of the
//! whole process is a binary of its own.

mod closing_sums;
mod common;
mod cpu_clones;
mod cpu_edges;
mod cpu_kernels;
mod cpu_large;
mod cpu_micro_batches;
mod cpu_mixed;
mod cpu_training;
mod cpu_zoo;
mod golden;
mod golden_cases;
mod golden_command;
mod gradients;
mod lazy_arena;
mod losses;
mod masks;
mod objectives;
mod planned;
mod prologues;
mod reference_behaviour;
mod reference_gradients;
mod state_conflicts;
mod states;
