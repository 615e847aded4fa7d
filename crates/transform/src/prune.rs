//! Pruning: drops what no output and no donation needs. Order, names and scopes stay; values are numbered anew. It
//! never changes or merges a node.

use memfit_ir::{Donation, Graph, NodeId, ValueId};

use crate::step_graph::StepGraph;

/// The nodes that an output or a donation needs. An input or a state that nobody reads goes too, unless it is itself
/// an output or donated.
pub fn prune(graph: &Graph) -> Graph {
    needed_nodes(graph, needed_values(graph)).0
}

/// The same of a forward pass, whose inputs all stay: whoever feeds it gives what the model declares.
pub(crate) fn prune_forward(graph: &Graph) -> Graph {
    let mut needed = needed_values(graph);
    graph.inputs().for_each(|(_, v)| needed[v.index()] = true);
    needed_nodes(graph, needed).0
}

/// The same of a step. Where the node that ended its forward pass goes, the last one before it that stays is the end.
pub(crate) fn prune_step(graph: &Graph, forward_end: NodeId) -> StepGraph {
    let (kept, renamed) = needed_nodes(graph, needed_values(graph));
    let forward_end = renamed[..=forward_end.index()].iter().rev().find_map(|id| *id);
    StepGraph { graph: kept, forward_end }
}

/// The graph of the nodes that are needed, and by old node its new number.
fn needed_nodes(graph: &Graph, needed: Vec<bool>) -> (Graph, Vec<Option<NodeId>>) {
    let mut kept = Graph::new();
    let mut nodes: Vec<Option<NodeId>> = vec![None; graph.nodes().len()];
    let mut values: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    let renamed = |values: &[Option<ValueId>], v: ValueId| values[v.index()].expect("a needed value has been made");
    for old in graph.node_ids() {
        let node = graph.node(old);
        if !node.outputs.iter().any(|v| needed[v.index()]) {
            continue;
        }
        let inputs: Vec<ValueId> = node.inputs.iter().map(|&v| renamed(&values, v)).collect();
        let new = kept.push(node.op.clone(), &inputs, &node.scope).expect("the types of a graph's node are unchanged");
        nodes[old.index()] = Some(new);
        for (old, new) in node.outputs.iter().zip(&kept.node(new).outputs) {
            values[old.index()] = Some(*new);
        }
    }
    kept.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), renamed(&values, *v))).collect();
    let donation = |d: &Donation| Donation { old: renamed(&values, d.old), new: renamed(&values, d.new) };
    kept.donations = graph.donations.iter().map(donation).collect();
    (kept, nodes)
}

pub(crate) fn needed_values(graph: &Graph) -> Vec<bool> {
    let mut needed = vec![false; graph.values().len()];
    for (_, v) in &graph.outputs {
        needed[v.index()] = true;
    }
    for d in &graph.donations {
        needed[d.old.index()] = true;
        needed[d.new.index()] = true;
    }
    for node in graph.nodes().iter().rev() {
        if node.outputs.iter().any(|v| needed[v.index()]) {
            for v in &node.inputs {
                needed[v.index()] = true;
            }
        }
    }
    needed
}
