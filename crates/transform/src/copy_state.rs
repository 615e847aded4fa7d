//! A copy of a state for its readers, where the state is overwritten while somebody still needs it. Only the update that
//! works in place keeps reading the state itself.

use memfit_ir::{Donation, Graph, Op, ValueId};

use crate::step_graph::StepGraph;

/// The step in which everything that reads `state`, but for an update of it, reads a copy made at the start. A broadcast
/// to its own shape is the copy: unlike an elementwise op it is never joined with its readers.
pub fn copy_state(step: &StepGraph, state: ValueId) -> memfit_ir::Result<StepGraph> {
    let graph = &step.graph;
    let mut forward_end = None;
    let mut out = Graph::new();
    let mut new_of: Vec<ValueId> = Vec::with_capacity(graph.values().len());
    let mut copy = None;
    for id in graph.node_ids() {
        let node = graph.node(id);
        let updates = node.op.is_update();
        let inputs: Vec<ValueId> = node
            .inputs
            .iter()
            .map(|&v| if v == state && !updates { copy.unwrap_or(new_of[v.index()]) } else { new_of[v.index()] })
            .collect();
        let made = out.push(node.op.clone(), &inputs, &node.scope)?;
        if step.forward_end == Some(id) {
            forward_end = Some(made);
        }
        new_of.extend(&out.node(made).outputs);
        if node.outputs.contains(&state) {
            let shape = graph.ty(state).shape.clone();
            let made = out.push(Op::Broadcast(shape), &[new_of[state.index()]], &node.scope)?;
            copy = Some(out.node(made).outputs[0]);
        }
    }
    let at = |v: ValueId| new_of[v.index()];
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), at(*v))).collect();
    out.donations = graph.donations.iter().map(|d| Donation { old: at(d.old), new: at(d.new) }).collect();
    Ok(StepGraph { graph: out, forward_end })
}
