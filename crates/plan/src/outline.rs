//! What stays of a draft: as much as choosing and packing look at, in a hundredth of its bytes. A survey holds a hundred
//! drafts' outlines and makes a draft anew, of the same program, when a plan is asked for.

use crate::draft::Draft;
use crate::limit::{Unbound, too_large_to_bind};
use crate::pack::Item;
use crate::staging::StagedProgram;
use crate::target::Target;
use crate::types::Phase;

#[derive(Clone, Debug)]
pub struct Outline {
    pub phase: Phase,
    /// The most live bytes of the transient segment, without accumulators.
    pub peak: u64,
    /// Predicted, of the whole program.
    pub seconds: f64,
    pub has_accumulators: bool,
    pub accumulator_bytes: u64,
    /// What it takes beside the segments follows from this.
    pub staged: StagedProgram,
    /// What the device cannot be given at once.
    pub unbound: Option<Unbound>,
    /// The order that was searched for; empty where the quick one is it, which is found again in no time.
    pub order: Box<[u32]>,
    /// Of its buffers, in their order.
    spans: Box<[Span]>,
}

/// A buffer's lifetime and bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    lower: u32,
    upper: u32,
    size: u64,
}

/// Whether a draft's order was searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Searched,
    Quick,
}

impl Outline {
    pub fn new(draft: &Draft, order: Order, target: &dyn Target) -> Outline {
        let span = |b: &crate::lifetime::Buffer| Span { lower: b.lower as u32, upper: b.upper as u32, size: b.size };
        Outline {
            phase: draft.phase,
            peak: draft.peak(),
            seconds: draft.total_seconds(),
            has_accumulators: draft.has_accumulators(),
            accumulator_bytes: draft.accumulator_bytes(),
            staged: StagedProgram::new(draft.phase, &draft.graph, draft.groups.iter(), target),
            unbound: too_large_to_bind(draft, target),
            order: if order == Order::Searched { draft.order.as_slice().into() } else { Box::default() },
            spans: draft.buffers.iter().map(span).collect(),
        }
    }

    /// The most live bytes of the transient segment.
    pub fn peak_with_accumulators(&self) -> u64 {
        self.peak + self.accumulator_bytes
    }

    /// What is to be packed.
    pub fn items(&self) -> Vec<Item> {
        let item = |s: &Span| Item { lower: s.lower as usize, upper: s.upper as usize, size: s.size };
        self.spans.iter().map(item).collect()
    }
}
