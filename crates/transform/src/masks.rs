//! Bits instead of activations: where the backward pass reads the output of a ReLU and its kin only for the gradient of
//! that very op, one bit of each element is all that has to be kept until then. The result is the same to the bit.

use memfit_ir::{Donation, Graph, Node, NodeId, Op, ValueId};

use crate::group::ValueUses;
use crate::step_graph::StepGraph;

/// A training step, or the graph of one micro-batch, in which the masks of such activations are saved. A graph without a
/// backward pass stays as it is.
pub fn save_masks(step: &StepGraph) -> StepGraph {
    match step.forward_end {
        Some(end) => masked(&step.graph, end),
        None => step.clone(),
    }
}

/// The same, where the forward pass is all that `end` is computed from.
pub fn save_masks_before(graph: &Graph, end: ValueId) -> Graph {
    masked(graph, graph.producer(end)).graph
}

fn masked(graph: &Graph, end: NodeId) -> StepGraph {
    let saved = activations(graph, end);
    let mut forward_end = None;
    let mut out = Graph::new();
    let mut new_of: Vec<ValueId> = Vec::with_capacity(graph.values().len());
    // Of each value of the old graph, its mask in the new one.
    let mut mask_of: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    for id in graph.node_ids() {
        let node = graph.node(id);
        let mut inputs: Vec<ValueId> = node.inputs.iter().map(|v| new_of[v.index()]).collect();
        let mut op = node.op.clone();
        if let Op::UnaryGrad(u) = op
            && let Some(mask) = mask_of[node.inputs[0].index()]
        {
            (op, inputs[0]) = (Op::MaskGrad(u), mask);
        }
        let made = push(&mut out, op, &inputs, node);
        if id == end {
            forward_end = Some(made);
        }
        new_of.extend(&out.node(made).outputs);
        if let (true, Op::Unary(u)) = (saved[id.index()], &node.op) {
            let y = node.outputs[0];
            let mask = push(&mut out, Op::Mask(*u), &[new_of[y.index()]], node);
            mask_of[y.index()] = Some(out.node(mask).outputs[0]);
        }
    }
    let at = |v: ValueId| new_of[v.index()];
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), at(*v))).collect();
    out.donations = graph.donations.iter().map(|d| Donation { old: at(d.old), new: at(d.new) }).collect();
    StepGraph { graph: out, forward_end }
}

fn push(out: &mut Graph, op: Op, inputs: &[ValueId], like: &Node) -> NodeId {
    out.push(op, inputs, &like.scope).expect("a mask has the shape of its activation, and all else its types as before")
}

/// Of each node: whether it is an activation of which a mask is all that the backward pass reads.
fn activations(graph: &Graph, end: NodeId) -> Vec<bool> {
    let forward = forward(graph, end);
    let needed = ValueUses::new(graph);
    let worth = |id: NodeId| {
        let Op::Unary(u) = graph.node(id).op else { return false };
        let y = graph.node(id).outputs[0];
        let views = views(graph, &needed, y);
        if !(forward[id.index()] && u.masks()) || views.iter().any(|v| needed.at_end[v.index()]) {
            return false;
        }
        let gradient = |r: &NodeId| {
            let node = graph.node(*r);
            // Its own dy would be read as numbers.
            node.op == Op::UnaryGrad(u) && node.inputs[0] == y && node.inputs[1] != y
        };
        let readers = views.iter().flat_map(|v| &needed.users[v.index()]);
        let is_view = |r: &NodeId| matches!(graph.node(*r).op, Op::Reshape(_));
        let mut after = readers.filter(|r| !forward[r.index()] && !is_view(r)).peekable();
        after.peek().is_some() && after.all(gradient)
    };
    graph.node_ids().map(worth).collect()
}

/// Of each node: whether the end of the forward pass is computed from it.
fn forward(graph: &Graph, end: NodeId) -> Vec<bool> {
    let mut found = vec![false; graph.nodes().len()];
    found[end.index()] = true;
    for id in graph.node_ids().rev() {
        if found[id.index()] {
            graph.node(id).inputs.iter().for_each(|&v| found[graph.producer(v).index()] = true);
        }
    }
    found
}

/// A value and its other shapes, which are the same bytes.
fn views(graph: &Graph, needed: &ValueUses, v: ValueId) -> Vec<ValueId> {
    let mut found = vec![v];
    for &id in &needed.users[v.index()] {
        if let Op::Reshape(_) = graph.node(id).op {
            found.extend(views(graph, needed, graph.node(id).outputs[0]));
        }
    }
    found
}
