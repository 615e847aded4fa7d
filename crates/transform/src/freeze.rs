//! Frozen layers: a batch norm whose parameters are not trained normalises by its running statistics, as in evaluation,
//! and leaves them as they are. So what stands before the first trained layer is a plain function of the input, of which
//! nothing is kept for a gradient.

use std::collections::HashSet;

use memfit_ir::{Graph, NodeId, Op, ValueId};

use crate::error::Result;
use crate::step::state_of;

/// The same nodes in the same order, so that values keep their numbers.
pub(crate) fn freeze(graph: &Graph, frozen: &HashSet<String>) -> Result<Graph> {
    let is_frozen =
        |v: ValueId| matches!(graph.producer_op(v), Op::State(_)) && frozen.contains(&state_of(graph, v).name);
    let mut out = Graph::new();
    let mut still: Vec<NodeId> = Vec::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        let mut inputs = node.inputs.clone();
        if let (Op::BatchApply(_), &[_, mean, var, scale, bias]) = (&node.op, &node.inputs[..])
            && is_frozen(scale)
            && is_frozen(bias)
            && let Some((update, running)) = update_of(graph, id, [mean, var])
        {
            inputs[1..3].copy_from_slice(&running);
            still.push(update);
        }
        out.push(node.op.clone(), &inputs, &node.scope)?;
    }
    out.outputs = graph.outputs.clone();
    out.donations = graph.donations.iter().filter(|d| !still.contains(&graph.producer(d.new))).copied().collect();
    Ok(out)
}

/// The update that takes these statistics of the batch, and the running ones that it changes; they must be there before
/// the node that is to read them.
fn update_of(graph: &Graph, reader: NodeId, batch: [ValueId; 2]) -> Option<(NodeId, [ValueId; 2])> {
    graph.node_ids().find_map(|id| {
        let node = graph.node(id);
        match (&node.op, &node.inputs[..]) {
            (Op::BatchUpdate(_), &[mean, var, of_mean, of_var, ..]) => {
                let is_there = graph.producer(mean) < reader && graph.producer(var) < reader;
                ([of_mean, of_var] == batch && is_there).then_some((id, [mean, var]))
            }
            (_, _) => None,
        }
    })
}
