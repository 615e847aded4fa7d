//! Pruning: drops what no output and no donation needs. Order, names and scopes stay; values are numbered anew. It
//! never changes or merges a node.

use memfit_ir::{Donation, Graph, ValueId};

/// The nodes that an output or a donation needs. An input or a state that nobody reads goes too, unless it is itself
/// an output or donated.
pub fn prune(graph: &Graph) -> Graph {
    let needed = needed_values(graph);
    let mut kept = Graph::new();
    let mut renamed: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    let of = |renamed: &[Option<ValueId>], v: ValueId| renamed[v.index()].expect("a needed value has been made");
    for node in graph.nodes() {
        if !node.outputs.iter().any(|v| needed[v.index()]) {
            continue;
        }
        let inputs: Vec<ValueId> = node.inputs.iter().map(|&v| of(&renamed, v)).collect();
        let id = kept.push(node.op.clone(), &inputs, &node.scope).expect("the types of a graph's node are unchanged");
        for (old, new) in node.outputs.iter().zip(&kept.node(id).outputs) {
            renamed[old.index()] = Some(*new);
        }
    }
    kept.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), of(&renamed, *v))).collect();
    kept.donations =
        graph.donations.iter().map(|d| Donation { old: of(&renamed, d.old), new: of(&renamed, d.new) }).collect();
    kept
}

fn needed_values(graph: &Graph) -> Vec<bool> {
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
