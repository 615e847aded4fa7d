//! Recompute: forward values that are not kept are made again, from what is kept, just before the backward pass reads
//! them. Which values to keep is the planner's choice; this only carries it out.
//!
//! A clone runs the same op on the same bits, so it gives the same bits. Only pure ops are cloned, and a clone reads the
//! states themselves: no state may be overwritten before it has run, which the order of execution sees to.

use memfit_ir::{Donation, Graph, NodeId, Op, ValueId};

/// What becomes of each forward value after the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Stays in memory until its last reader.
    Keep,
    /// Is made again once, and then stays until its last reader.
    Again,
    /// Is made again wherever it is wanted: for a backward node, and once more for each chain of clones that passes it.
    Fleeting,
}

/// A graph with clones.
#[derive(Clone, Debug)]
pub struct Recomputed {
    pub graph: Graph,
    /// For every node of the new graph, the node it came from.
    pub origin: Vec<NodeId>,
    /// For every node of the new graph, whether it is a clone.
    pub is_clone: Vec<bool>,
}

/// The node that makes the loss: all nodes up to it are the forward pass, all after it the backward pass. None where a
/// graph has no loss of its own, as evaluation or the end of a step in micro-batches.
pub fn end_of_forward(graph: &Graph) -> Option<NodeId> {
    if graph.donations.is_empty() {
        return None;
    }
    let loss = graph.output(crate::step::LOSS).map(|v| graph.producer(v));
    let node = loss.or_else(|| accumulated_loss(graph))?;
    (!matches!(graph.node(node).op, Op::State(_))).then_some(node)
}

/// Where the loss is only added to a sum: what is added.
fn accumulated_loss(graph: &Graph) -> Option<NodeId> {
    let sum = graph.state(&format!("{}{}", crate::step::ACCUMULATE, crate::step::LOSS))?;
    let new = graph.donations.iter().find(|d| d.old == sum)?.new;
    let part = *graph.node(graph.producer(new)).inputs.iter().find(|&&v| v != sum)?;
    let mut node = graph.producer(part);
    // Its share of the batch's loss.
    if let Op::Binary(_) = graph.node(node).op {
        node = graph.producer(graph.node(node).inputs[0]);
    }
    Some(node)
}

/// Rewrites a training step so that the backward pass reads clones of all forward values but the kept ones. `fate` is by
/// value; sources (inputs, states, constants) and results of impure ops are always kept.
pub fn recompute(graph: &Graph, end: NodeId, fate: &[Fate]) -> memfit_ir::Result<Recomputed> {
    let mut writer = Writer {
        from: graph,
        end,
        fate,
        out: Recomputed { graph: Graph::new(), origin: Vec::new(), is_clone: Vec::new() },
        first: vec![None; graph.values().len()],
        again: vec![None; graph.values().len()],
    };
    for id in graph.node_ids() {
        let node = graph.node(id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &v in &node.inputs {
            inputs.push(if id > end { writer.wanted(v)? } else { writer.original(v) });
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
    (out.graph.outputs, out.graph.donations) = (outputs, donations);
    Ok(out)
}

struct Writer<'a> {
    from: &'a Graph,
    end: NodeId,
    fate: &'a [Fate],
    out: Recomputed,
    /// By old value: the value of the forward pass, or of the backward pass.
    first: Vec<Option<ValueId>>,
    /// By old value: its clone.
    again: Vec<Option<ValueId>>,
}

impl Writer<'_> {
    fn original(&self, v: ValueId) -> ValueId {
        self.first[v.index()].expect("a value is made before it is read")
    }

    fn push(&mut self, id: NodeId, inputs: &[ValueId], is_clone: bool) -> memfit_ir::Result<Vec<ValueId>> {
        let node = self.from.node(id);
        let made = self.out.graph.push(node.op.clone(), inputs, &node.scope)?;
        self.out.origin.push(id);
        self.out.is_clone.push(is_clone);
        Ok(self.out.graph.node(made).outputs.clone())
    }

    fn is_kept(&self, v: ValueId) -> bool {
        let id = self.from.producer(v);
        let op = &self.from.node(id).op;
        id > self.end
            || matches!(op, Op::Input(_) | Op::State(_) | Op::Fill(_))
            || !op.is_pure()
            || self.fate[v.index()] == Fate::Keep
    }

    /// A value as the backward pass reads it.
    fn wanted(&mut self, v: ValueId) -> memfit_ir::Result<ValueId> {
        if self.is_kept(v) {
            return Ok(self.original(v));
        }
        match self.again[v.index()] {
            Some(clone) => Ok(clone),
            None => self.clone(v, false),
        }
    }

    /// A value as a clone reads it.
    fn passed(&mut self, v: ValueId, through: bool) -> memfit_ir::Result<ValueId> {
        if self.is_kept(v) {
            return Ok(self.original(v));
        }
        match (self.again[v.index()], self.fate[v.index()]) {
            (Some(clone), _) => Ok(clone),
            (None, Fate::Fleeting) => self.clone(v, through),
            (None, Fate::Again | Fate::Keep) => self.clone(v, false),
        }
    }

    /// Makes a value again. `fleeting` clones are not remembered: the next who wants the value makes it anew.
    fn clone(&mut self, v: ValueId, fleeting: bool) -> memfit_ir::Result<ValueId> {
        let id = self.from.producer(v);
        let node = self.from.node(id);
        // What a heavy node only passes through need not be held; what a fleeting one reads belongs to its own reader.
        let through = fleeting || self.fate[v.index()] == Fate::Again;
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            inputs.push(self.passed(input, through)?);
        }
        let made = self.push(id, &inputs, true)?;
        if !fleeting {
            for (old, new) in node.outputs.iter().zip(&made) {
                self.again[old.index()] = Some(*new);
            }
        }
        Ok(made[self.from.values()[v.index()].output])
    }
}
