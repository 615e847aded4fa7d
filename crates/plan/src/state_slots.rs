//! The places of states, which are the same in every plan of a model.

use std::collections::HashMap;

use memfit_ir::op::StateClass;
use memfit_transform::StepGraph;

use crate::error::PlanError;
use crate::types::{Phase, Place, Segment, StateSlot};

/// Gives every state of every program one place: kept ones side by side in the state segment, accumulators at the start
/// of the transient segment. Returns the slots and the bytes of both, which are whole multiples of the alignment: so is
/// what a device takes for a segment.
pub fn place_states(graphs: &[(Phase, StepGraph)], alignment: u64) -> Result<(Vec<StateSlot>, u64, u64), PlanError> {
    let mut slots: Vec<StateSlot> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let (mut state_end, mut pinned_end) = (0u64, 0u64);
    for (phase, StepGraph { graph, .. }) in graphs {
        for (state, v) in graph.states() {
            let ty = graph.ty(v).clone();
            if let Some(&i) = index.get(&state.name) {
                if slots[i].ty != ty {
                    let problem = format!("state \"{}\" is {ty} here and {} elsewhere", state.name, slots[i].ty);
                    return Err(PlanError::Graph { phase: *phase, problem });
                }
                continue;
            }
            let (segment, end) = match state.class {
                StateClass::Accumulator => (Segment::Transient, &mut pinned_end),
                StateClass::Param | StateClass::Slot | StateClass::Statistic => (Segment::State, &mut state_end),
            };
            let offset = end.next_multiple_of(alignment);
            let size = ty.bytes();
            *end = offset + size;
            index.insert(state.name.clone(), slots.len());
            let place = Place { segment, offset, size };
            slots.push(StateSlot { name: state.name.clone(), class: state.class, ty, init: state.init, place });
        }
    }
    Ok((slots, state_end.next_multiple_of(alignment), pinned_end.next_multiple_of(alignment)))
}
