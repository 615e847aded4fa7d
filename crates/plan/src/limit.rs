//! What a device can be given, against what a draft asks of it. These limits are of the device, not of the budget: no
//! packing gets around them, only another draft does.

#![deny(clippy::wildcard_enum_match_arm)]

use memfit_ir::{Graph, ValueId};

use crate::draft::Draft;
use crate::error::PlanError;
use crate::lifetime::{Buffer, Owner};
use crate::target::Target;
use crate::types::Segment;

/// Something of a draft that is too much for one operand of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbound {
    what: String,
    bytes: u64,
    limit: u64,
}

impl From<Unbound> for PlanError {
    fn from(Unbound { what, bytes, limit }: Unbound) -> PlanError {
        PlanError::Binding { what, bytes, limit }
    }
}

/// The largest value, state or scratch of a draft that is too much for one operand of a kernel.
pub fn too_large_to_bind(draft: &Draft, target: &dyn Target) -> Option<Unbound> {
    let limit = target.largest_binding();
    let graph = &draft.graph;
    // Of several, the first: a parameter stands before what is made for it.
    let states = graph.states().map(|(s, v)| (graph.ty(v).bytes(), s, v));
    let largest_state = states.reduce(|most, s| if s.0 > most.0 { s } else { most });
    let largest_buffer = draft.buffers.iter().max_by_key(|b| b.size);
    let (of_states, of_buffers) = (largest_state.map_or(0, |s| s.0), largest_buffer.map_or(0, |b| b.size));
    if of_states.max(of_buffers) <= limit {
        return None;
    }
    let buffer = |b: &Buffer| match &b.owner {
        Owner::Values(values) => values.last().map_or_else(String::new, |&v| value(graph, v)),
        Owner::Scratch(launch) => format!("the scratch of {}", layer(graph, draft.groups[*launch].root())),
    };
    let what = match largest_state.filter(|_| of_states > of_buffers) {
        Some((_, s, v)) => format!("state \"{}\", {}", s.name, graph.ty(v)),
        None => largest_buffer.map_or_else(String::new, buffer),
    };
    Some(Unbound { what, bytes: of_states.max(of_buffers), limit })
}

/// A segment that is too much for one allocation.
pub fn too_large_to_allocate(state_bytes: u64, transient_bytes: u64, target: &dyn Target) -> Option<PlanError> {
    let limit = target.largest_segment();
    let segments = [(Segment::State, state_bytes), (Segment::Transient, transient_bytes)];
    let (segment, bytes) = segments.into_iter().find(|(_, bytes)| *bytes > limit)?;
    Some(PlanError::Segment { segment, bytes, limit })
}

fn value(graph: &Graph, v: ValueId) -> String {
    format!("the {} of {}", graph.ty(v), layer(graph, graph.producer(v)))
}

fn layer(graph: &Graph, id: memfit_ir::NodeId) -> String {
    let node = graph.node(id);
    if let memfit_ir::Op::Input(i) = &node.op {
        format!("input \"{}\"", i.name)
    } else {
        format!("{}{}", node.op.name(), memfit_ir::in_layer(&node.scope))
    }
}
