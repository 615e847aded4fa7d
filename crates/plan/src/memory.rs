//! What planning itself takes, known from the programs before it begins: so that what cannot be planned in the room there is,
//! is refused.

use memfit_transform::StepGraph;

use crate::error::PlanError;
use crate::types::Phase;

/// Bytes of heap for each node of the programs at the fullest moment of a survey: the programs themselves, the outlines of all
/// candidates, and one that is drafted. Counted by an allocator on the models of the zoo: 1.0 to 1.6 KB; and an allocator
/// takes somewhat more of the system than it is asked for.
const PLANNING: u64 = 2048;
/// The same for each further size of micro-batch. Counted: 0.35 KB.
const FURTHER_SIZE: u64 = 512;
/// The search for a packing remembers who lives when: for n nodes about n² / 2 bytes, and never more than this.
const MOST_FOR_PACKING: u64 = 64 << 20;
/// Of a plan: its programs with clones, their launches and places. Counted: 0.5 KB, and as much for the kernels.
const PLAN: u64 = 1024;
/// What the smallest program takes.
const LEAST: u64 = 256 << 10;

/// Bytes of heap that stay when these programs are planned, whatever is recomputed.
pub fn plan_bytes(programs: &[(Phase, StepGraph)]) -> u64 {
    LEAST + PLAN * nodes(programs)
}

/// Bytes of heap that planning takes at most, with so many sizes of micro-batches.
fn planning_bytes(programs: &[(Phase, StepGraph)], sizes: u64) -> u64 {
    let nodes = nodes(programs);
    let packing = (nodes.saturating_mul(nodes) / 2).min(MOST_FOR_PACKING);
    LEAST + (PLANNING + FURTHER_SIZE * sizes.saturating_sub(1)) * nodes + packing
}

fn nodes(programs: &[(Phase, StepGraph)]) -> u64 {
    programs.iter().map(|(_, step)| step.graph.nodes().len() as u64).sum()
}

/// Whether programs can be planned, in so many sizes of micro-batches, in `room` bytes.
pub(crate) fn check_room(programs: &[(Phase, StepGraph)], sizes: usize, room: Option<u64>) -> Result<(), PlanError> {
    let needed = planning_bytes(programs, sizes as u64);
    match room.filter(|&room| room < needed) {
        Some(room) => Err(PlanError::PlanningRoom { needed, room }),
        None => Ok(()),
    }
}
