//! From a draft and a packing to a program: every value gets its place.

use std::collections::HashMap;

use memfit_ir::{NodeId, ValueId};

use crate::draft::Draft;
use crate::flow::storage;
use crate::lifetime::Owner;
use crate::pack::Packing;
use crate::types::{Launch, Place, Program, Segment};

/// The buffers lie above the `pinned` bytes of the transient segment.
pub fn program(
    draft: Draft,
    states: &HashMap<&str, Place>,
    pinned: u64,
    packing: &Packing,
    clones: Vec<NodeId>,
) -> Program {
    let launches = draft.groups.len();
    let mut places = vec![None; draft.graph.values().len()];
    let mut scratch = vec![None; launches];
    let mut dies = vec![Vec::new(); launches];
    let storage = storage(&draft.graph);
    let kept = at_end(&draft, &storage);
    for (b, offset) in draft.buffers.iter().zip(&packing.offsets) {
        let place = Some(Place { segment: Segment::Transient, offset: pinned + offset, size: b.size });
        match &b.owner {
            Owner::Values(values) => {
                for v in values {
                    places[v.index()] = place;
                }
                let Some(&last) = values.last() else { continue };
                // An input that only views read dies with no launch.
                if let (false, Some(dead)) = (kept[last.index()], dies.get_mut(b.upper - 1)) {
                    dead.push(last);
                }
            }
            Owner::Scratch(launch) => scratch[*launch] = place,
        }
    }
    place_states_and_views(&draft, states, &storage, &mut places);
    let accumulators = draft.accumulator_bytes();
    let Draft { phase, graph, forward_end, groups, live, seconds, .. } = draft;
    let launch = |(i, group)| Launch {
        group,
        scratch: scratch[i],
        dies: std::mem::take(&mut dies[i]),
        live_bytes: live[i] + accumulators,
        seconds: seconds[i],
    };
    let launches = groups.into_iter().enumerate().map(launch).collect();
    Program { phase, graph, forward_end, launches, places, clones }
}

/// By value: whether its bytes are wanted when the run ends, also as what an output views.
fn at_end(draft: &Draft, storage: &[ValueId]) -> Vec<bool> {
    let mut kept = vec![false; draft.graph.values().len()];
    for (_, v) in &draft.graph.outputs {
        kept[storage[v.index()].index()] = true;
    }
    kept
}

fn place_states_and_views(
    draft: &Draft,
    states: &HashMap<&str, Place>,
    storage: &[ValueId],
    places: &mut [Option<Place>],
) {
    let graph = &draft.graph;
    for (state, v) in graph.states() {
        places[v.index()] = states.get(state.name.as_str()).copied();
    }
    for d in &graph.donations {
        places[d.new.index()] = places[d.old.index()];
    }
    for (v, viewed) in storage.iter().enumerate() {
        // A view may be of a narrower type's bytes, never of other bytes.
        places[v] = places[viewed.index()];
    }
}
