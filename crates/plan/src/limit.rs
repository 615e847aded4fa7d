//! What a device can be given, against what a draft asks of it. These limits are of the device, not of the budget: no
//! packing gets around them, only another draft does.

#![deny(clippy::wildcard_enum_match_arm)]

use memfit_ir::{Graph, ValueId};

use crate::draft::Draft;
use crate::error::PlanError;
use crate::lifetime::Owner;
use crate::target::Target;
use crate::types::Segment;

/// The largest value, state or scratch of a draft that is too much for one operand of a kernel.
pub fn too_large_to_bind(draft: &Draft, target: &dyn Target) -> Option<PlanError> {
    let limit = target.largest_binding();
    let graph = &draft.graph;
    let states = graph.states().map(|(s, v)| (graph.ty(v).bytes(), format!("state \"{}\", {}", s.name, graph.ty(v))));
    // Of several, the first: a parameter stands before what is made for it.
    let largest_state = states.reduce(|most, s| if s.0 > most.0 { s } else { most });
    let largest_buffer = draft.buffers.iter().max_by_key(|b| b.size).map(|b| {
        let what = match &b.owner {
            Owner::Values(values) => values.last().map_or_else(String::new, |&v| value(graph, v)),
            Owner::Scratch(launch) => format!("the scratch of {}", layer(graph, draft.groups[*launch].root())),
        };
        (b.size, what)
    });
    let (bytes, what) = largest_state.into_iter().chain(largest_buffer).max_by_key(|(bytes, _)| *bytes)?;
    (bytes > limit).then_some(PlanError::Binding { what, bytes, limit })
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
        format!("{} in layer \"{}\"", node.op.name(), node.scope)
    }
}
