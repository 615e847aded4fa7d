//! Graph → graph: gradients, the training step, pruning, grouping. Pure functions; nothing here allocates device memory.

pub mod group;

pub use group::{Group, Grouping, Needed};
