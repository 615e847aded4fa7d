//! Lifetimes: when each buffer of the transient segment is needed, as half-open intervals of steps.

use memfit_ir::{Graph, Op, ValueId};
use memfit_transform::group::is_view;
use memfit_transform::{Group, Needed};

use crate::order::storage;

/// A buffer of the transient segment: a value (with its views), or the scratch of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub owner: Owner,
    /// First step that needs it; inputs are staged before step 0.
    pub lower: usize,
    /// One past the last step that needs it.
    pub upper: usize,
    /// Bytes.
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Value(ValueId),
    /// Of the step with this number.
    Scratch(usize),
}

/// The buffers of a program whose groups run in the given order. States and what takes their place have none: they live
/// in the state segment.
pub fn buffers(graph: &Graph, groups: &[Group], needed: &Needed, scratch: &[u64]) -> Vec<Buffer> {
    // Even without a step, what is given and what is asked for lie beside each other.
    let end = groups.len().max(1);
    let mut lower = vec![None; graph.values().len()];
    let mut upper = vec![0; graph.values().len()];
    for (step, g) in groups.iter().enumerate() {
        for v in &g.writes {
            lower[v.index()] = Some(step);
            upper[v.index()] = upper[v.index()].max(step + 1);
        }
        for &v in &g.reads {
            let s = storage(graph, v);
            upper[s.index()] = upper[s.index()].max(step + 1);
        }
    }
    for (_, v) in graph.inputs() {
        lower[v.index()] = Some(0);
        upper[v.index()] = upper[v.index()].max(1);
    }
    for (i, at_end) in needed.at_end.iter().enumerate() {
        if *at_end {
            upper[storage(graph, ValueId(i as u32)).index()] = end;
        }
    }
    let in_state =
        |v: ValueId| matches!(graph.producer_op(v), Op::State(_)) || graph.donations.iter().any(|d| d.new == v);
    let mut buffers: Vec<Buffer> = Vec::new();
    for (i, value) in graph.values().iter().enumerate() {
        let v = ValueId(i as u32);
        if let Some(lower) = lower[i]
            && !in_state(v)
            && !is_view(graph, value.node)
        {
            buffers.push(Buffer { owner: Owner::Value(v), lower, upper: upper[i], size: value.ty.bytes() });
        }
    }
    for (step, &size) in scratch.iter().enumerate().filter(|(_, s)| **s > 0) {
        buffers.push(Buffer { owner: Owner::Scratch(step), lower: step, upper: step + 1, size });
    }
    buffers
}

/// Live bytes at every step.
pub fn live_bytes(buffers: &[Buffer], steps: usize) -> Vec<u64> {
    let mut live = vec![0; steps];
    for b in buffers {
        for l in &mut live[b.lower..b.upper.min(steps)] {
            *l += b.size;
        }
    }
    live
}
