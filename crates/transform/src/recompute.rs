//! Recompute, or activation checkpointing: forward values that are not saved are recomputed, from what is saved, just before
//! the backward pass reads them. Which values to save is the planner's choice; this only carries it out.
//!
//! A clone runs the same op on the same bits, so it gives the same bits. Only pure ops are cloned, and a clone reads the
//! states themselves: no state may be overwritten before it has run, which the order of execution sees to.

use memfit_ir::{Donation, Graph, NodeId, ValueId};

use crate::step_graph::StepGraph;

/// What becomes of a forward value after the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Stays in memory until its last reader.
    Save,
    /// Is recomputed once, and then stays until its last reader.
    Once,
    /// Is recomputed for each node of the backward pass that reads it, and never held.
    PerUse,
    /// Is recomputed for the backward pass, and held; and besides, without being held, on the way to a value that is
    /// recomputed [`Policy::Once`].
    Nested,
}

/// A step with clones.
#[derive(Clone, Debug)]
pub struct RecomputedStep {
    pub step: StepGraph,
    /// For every node of the new graph, the node it came from.
    pub origin: Vec<NodeId>,
    /// For every node of the new graph, whether it is a clone.
    pub is_clone: Vec<bool>,
}

/// Rewrites a training step so that the backward pass reads clones of all forward values but the saved ones. `policies` are
/// by value; sources (inputs, states, constants) and results of impure ops are always saved.
pub fn recompute(graph: &Graph, end: NodeId, policies: &[Policy]) -> memfit_ir::Result<RecomputedStep> {
    let mut writer = Writer {
        from: graph,
        end,
        policies,
        // Clones stand behind the end of the forward pass, so that it keeps its number.
        out: RecomputedStep {
            step: StepGraph { graph: Graph::new(), forward_end: Some(end) },
            origin: Vec::new(),
            is_clone: Vec::new(),
        },
        first: vec![None; graph.values().len()],
        held: vec![None; graph.values().len()],
        last_clone: vec![None; graph.values().len()],
    };
    for id in graph.node_ids() {
        let node = graph.node(id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &v in &node.inputs {
            inputs.push(if id > end { writer.wanted(v, id)? } else { writer.original(v) });
        }
        let made = writer.push(id, &inputs, false)?;
        for (old, new) in node.outputs.iter().zip(made) {
            writer.first[old.index()] = Some(new);
        }
    }
    let at = |v: ValueId| writer.original(v);
    let outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), at(*v))).collect();
    let donations = graph.donations.iter().map(|d| Donation { old: at(d.old), new: at(d.new) }).collect();
    let mut out = writer.out;
    (out.step.graph.outputs, out.step.graph.donations) = (outputs, donations);
    Ok(out)
}

struct Writer<'a> {
    from: &'a Graph,
    end: NodeId,
    policies: &'a [Policy],
    out: RecomputedStep,
    /// By old value: the value of the forward pass, or of the backward pass.
    first: Vec<Option<ValueId>>,
    /// By old value: its clone, if that is held.
    held: Vec<Option<ValueId>>,
    /// By old value: the last clone that was not held, and the backward node that it was made for.
    last_clone: Vec<Option<(NodeId, ValueId)>>,
}

impl Writer<'_> {
    fn original(&self, v: ValueId) -> ValueId {
        self.first[v.index()].expect("a value is made before it is read")
    }

    fn push(&mut self, id: NodeId, inputs: &[ValueId], is_clone: bool) -> memfit_ir::Result<Vec<ValueId>> {
        let node = self.from.node(id);
        let made = self.out.step.graph.push(node.op.clone(), inputs, &node.scope)?;
        self.out.origin.push(id);
        self.out.is_clone.push(is_clone);
        Ok(self.out.step.graph.node(made).outputs.clone())
    }

    fn is_saved(&self, v: ValueId) -> bool {
        let id = self.from.producer(v);
        let op = &self.from.node(id).op;
        id > self.end || op.is_source() || !op.is_pure() || self.policies[v.index()] == Policy::Save
    }

    /// A value as a node of the backward pass reads it.
    fn wanted(&mut self, v: ValueId, by: NodeId) -> memfit_ir::Result<ValueId> {
        self.get(v, self.policies[v.index()] != Policy::PerUse, false, by)
    }

    /// A value, recomputed if it is not there. `hold`: for all who want it later; `on_the_way`: to a value that is held, so
    /// that what is passed need not be; `by`: the backward node that all this is for.
    fn get(&mut self, v: ValueId, hold: bool, on_the_way: bool, by: NodeId) -> memfit_ir::Result<ValueId> {
        if self.is_saved(v) {
            return Ok(self.original(v));
        }
        let just_made = self.last_clone[v.index()].filter(|(node, _)| *node == by).map(|(_, clone)| clone);
        if let Some(clone) = self.held[v.index()].or(just_made) {
            if hold {
                self.held[v.index()] = Some(clone);
            }
            return Ok(clone);
        }
        let on_the_way = on_the_way || self.policies[v.index()] == Policy::Once;
        let id = self.from.producer(v);
        let node = self.from.node(id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let hold = match self.policies[input.index()] {
                Policy::Save | Policy::Once => true,
                Policy::PerUse => false,
                Policy::Nested => !on_the_way,
            };
            inputs.push(self.get(input, hold, on_the_way, by)?);
        }
        let made = self.push(id, &inputs, true)?;
        for (old, new) in node.outputs.iter().zip(&made) {
            if hold {
                self.held[old.index()] = Some(*new);
            } else {
                self.last_clone[old.index()] = Some((by, *new));
            }
        }
        Ok(made[self.from.values()[v.index()].output])
    }
}
