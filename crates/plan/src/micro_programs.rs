//! The programs of one size of micro-batch: drafts of the training program, and all others packed.

use memfit_ir::Replica;
use memfit_transform::StepGraph;

use crate::bound::{Bound, lower_bound};
use crate::draft::{Draft, PlanContext};
use crate::error::PlanError;
use crate::order::Effort;
use crate::outline::{Order, Outline};
use crate::pack::{Packing, pack, pack_briefly, pack_until};
use crate::passes::save_masks;
use crate::recompute::{Candidate, Depth, candidates};
use crate::staging::StagedProgram;
use crate::state_slots::place_states;
use crate::support::check_supported;
use crate::target::Target;
use crate::types::{Phase, StateSlot};

/// The programs of one size of micro-batch, of which no graph is kept: a source makes it again.
pub struct MicroPrograms {
    pub size: usize,
    pub states: Vec<StateSlot>,
    pub state_bytes: u64,
    /// Of accumulators, at the start of the transient segment.
    pub pinned_bytes: u64,
    /// Of the program that has a backward pass, or of the first where none has.
    pub training: Vec<Candidate>,
    /// The other programs, each in one draft and packed, in the order of the source.
    pub others: Vec<(Outline, Packing)>,
    /// Of both segments, ...
    pub bound: Bound,
    /// ... and of what stands beside them.
    pub staging_bound: u64,
}

impl MicroPrograms {
    pub fn new(
        size: usize,
        graphs: &[(Phase, StepGraph)],
        cx: &PlanContext,
        depth: Depth,
    ) -> Result<MicroPrograms, PlanError> {
        let graphs: Vec<(Phase, StepGraph)> = graphs.iter().map(|(phase, g)| (*phase, save_masks(g))).collect();
        check_supported(&graphs, cx)?;
        let (states, state_bytes, pinned_bytes) = place_states(&graphs, cx.target.alignment())?;
        let bound = lower_bound(&graphs, state_bytes, cx.target);
        let (mut training, mut others) = (Vec::new(), Vec::new());
        for (phase, graph) in graphs {
            if phase.is_training() {
                training = candidates(phase, &graph, cx, depth)?;
            } else {
                let draft = Draft::new(phase, graph, cx, Effort::Full)?;
                others.push(Outline::new(&draft, Order::Searched, cx.target));
            }
        }
        if training.is_empty() && !others.is_empty() {
            training.push(Candidate::as_given(others.remove(0)));
        }
        let packed = |outline: Outline| {
            let packing = pack(&outline.items(), cx.target.alignment());
            (outline, packing)
        };
        let others: Vec<(Outline, Packing)> = others.into_iter().map(packed).collect();
        let first = training.first().map(|c| &c.outline);
        let least = others.iter().map(|(o, _)| o).chain(first).map(|o| o.staged.without_kernels());
        let staging_bound = cx.target.staging_bytes(&least.collect::<Vec<_>>());
        Ok(MicroPrograms { size, states, state_bytes, pinned_bytes, training, others, bound, staging_bound })
    }

    pub fn pinned(&self, outline: &Outline) -> u64 {
        if outline.has_accumulators { self.pinned_bytes } else { 0 }
    }

    /// Bytes of the transient segment for all programs, with a draft of the training program that is packed into so many.
    pub fn transient(&self, outline: &Outline, capacity: u64, alignment: u64) -> u64 {
        (self.pinned(outline) + capacity).max(self.others_end()).next_multiple_of(alignment)
    }

    /// Bytes beside both segments, with a draft of the training program.
    pub fn staging(&self, outline: &Outline, target: &dyn Target) -> u64 {
        let programs = self.others.iter().map(|(o, _)| o.staged).chain([outline.staged]);
        target.staging_bytes(&programs.collect::<Vec<StagedProgram>>())
    }

    /// What no plan goes below, of all that it takes.
    pub fn least(&self) -> u64 {
        self.bound.bytes + self.staging_bound
    }

    /// The end of the largest of the other programs.
    pub fn others_end(&self) -> u64 {
        self.others.iter().map(|(d, p)| self.pinned(d) + p.capacity).max().unwrap_or(0).max(self.pinned_bytes)
    }

    /// The candidates that the device can bind, without those that save nothing: recomputing values, or reading them from
    /// other places, is for saving memory. A gain in time alone would be within the error of prediction.
    pub fn worth_packing(&self) -> Vec<usize> {
        if !self.others.iter().all(|(outline, _)| outline.unbound.is_none()) {
            return Vec::new();
        }
        let keeping_all = self.training[0].outline.peak;
        let is_vain = |c: usize| c > 0 && self.training[c].outline.peak >= keeping_all;
        (0..self.training.len()).filter(|&c| !is_vain(c) && self.training[c].outline.unbound.is_none()).collect()
    }

    /// Of some candidates, the fastest and the one with the fewest live bytes.
    pub fn ends(&self, candidates: &[usize]) -> [usize; 2] {
        let outline = |c: usize| &self.training[c].outline;
        let by_time = |a: usize, b: usize| self.seconds_once(outline(a)).total_cmp(&self.seconds_once(outline(b)));
        let by_peak = |a: usize, b: usize| outline(a).peak.cmp(&outline(b).peak);
        let fastest = candidates.iter().min_by(|a, b| by_time(**a, **b).then(by_peak(**a, **b)));
        let smallest = candidates.iter().min_by(|a, b| by_peak(**a, **b).then(by_time(**a, **b)));
        [fastest, smallest].map(|c| c.copied().unwrap_or(0))
    }

    /// Packs a candidate, and thoroughly those at the ends of the range: the fastest, and the one with the fewest live
    /// bytes. What it takes does not depend on the other sizes of micro-batches that are looked at.
    pub fn pack(&self, c: usize, ends: [usize; 2], alignment: u64) -> Packing {
        let outline = &self.training[c].outline;
        let enough = self.others_end().saturating_sub(self.pinned(outline));
        let pack = if ends.contains(&c) { pack_until } else { pack_briefly };
        pack(&outline.items(), alignment, enough)
    }

    /// Seconds of a step with a candidate that has but one micro-batch.
    fn seconds_once(&self, candidate: &Outline) -> f64 {
        self.seconds(self.size, Replica::ALONE, candidate)
    }

    /// Seconds of a whole step with a candidate.
    pub fn seconds(&self, batch: usize, replica: Replica, candidate: &Outline) -> f64 {
        let (lanes, folds) = (replica.own_lanes().len(), replica.schedule().concat());
        let times = |phase: Phase| match phase {
            Phase::Step | Phase::Apply => 1.0,
            Phase::Accumulate => (batch / self.size / replica.lanes * lanes) as f64,
            Phase::Fold(fold) => folds.iter().filter(|f| **f == fold).count() as f64,
            Phase::Eval | Phase::Export => 0.0,
        };
        let of = |o: &Outline| times(o.phase) * o.seconds;
        let seconds = of(candidate) + self.others.iter().map(|(o, _)| of(o)).sum::<f64>();
        // To the nanosecond: the order of a sum must not make one plan faster than another.
        (seconds * 1e9).round() / 1e9
    }
}
