//! The graph of a program together with what its maker knew of it and its nodes do not say: where the forward pass ends.

use memfit_ir::{Graph, NodeId};

/// What [`step`](crate::step()) and [`split_step`](crate::split_step()) make and the planner plans.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StepGraph {
    pub graph: Graph,
    /// The node that makes the loss, of several the last: all nodes up to it are the forward pass, all after it the backward pass. None where
    /// there is no backward pass, as in evaluation or in the update after the last micro-batch.
    pub forward_end: Option<NodeId>,
}

impl From<Graph> for StepGraph {
    /// A graph without a backward pass.
    fn from(graph: Graph) -> StepGraph {
        StepGraph { graph, forward_end: None }
    }
}
