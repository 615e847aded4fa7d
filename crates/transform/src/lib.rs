//! Graph → Graph: gradients, precision, the training step, pruning; and grouping. [`passes`] lists what runs, in its order, and why.
//!
//! Every transform reads one graph and writes another. None allocates device memory, looks at a budget or runs
//! anything.

// A new op must be placed by whoever adds it: no match falls through.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod batch_dependence;
pub mod copy_state;
pub mod error;
pub mod export;
mod freeze;
pub mod grad;
pub mod group;
pub mod masks;
pub mod passes;
pub mod precision;
pub mod prune;
pub mod recompute;
pub mod scope;
pub mod step;
mod step_graph;

pub use batch_dependence::{BatchDependence, batch_dependence};
pub use copy_state::copy_state;
pub use error::{Error, Result};
pub use export::export;
pub use grad::{Cotangent, Gradients, gradients};
pub use group::{Fusion, Group, Grouping, ValueUses};
pub use masks::{save_masks, save_masks_before};
pub use precision::{Half, Precision, forward_in};
pub use prune::prune;
pub use recompute::{Policy, RecomputedStep, recompute};
pub use step::{
    BatchNorm, Clip, Exchange, Objective, Shard, Split, Training, exchanging_split, exchanging_step, parameter_owners,
    split_step, step,
};
pub use step_graph::StepGraph;
