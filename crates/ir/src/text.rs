//! The text form of a graph.

use crate::graph::{Graph, NodeId};

/// One line for one node.
pub fn print_node(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    format!("{:?} = {:?} {:?} @{}", node.outputs, node.op, node.inputs, node.scope)
}
