//! Which candidates are worth choosing from: of time and memory, no other has less of both.

use crate::error::PlanError;
use crate::limit::too_large_to_allocate;
use crate::micro_programs::MicroPrograms;
use crate::pack::{Packing, pack};
use crate::survey::Survey;
use crate::types::Segment;

/// A candidate that no other one beats in both time and memory.
pub struct EfficientCandidate {
    /// Of its micro-batch, among those of the survey.
    pub size_index: usize,
    pub candidate: usize,
    pub arena: u64,
    pub transient: u64,
    /// Beside both segments.
    pub staging: u64,
    pub seconds: f64,
    pub packing: Packing,
}

impl EfficientCandidate {
    /// All that it takes of its device.
    pub fn bytes(&self) -> u64 {
        self.arena + self.staging
    }
}

/// One point of the frontier of a survey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub arena_bytes: u64,
    pub transient_bytes: u64,
    /// Beside the arena.
    pub staging_bytes: u64,
    pub seconds: f64,
    pub micro_batch: usize,
    pub recomputed_ops: usize,
}

impl Point {
    /// The budget that it fits into.
    pub fn device_bytes(&self) -> u64 {
        self.arena_bytes + self.staging_bytes
    }
}

impl Survey<'_> {
    /// The efficient candidates of some micro-batches: sorted by predicted time, each smaller than all that are faster. Only
    /// what could be among them is packed.
    pub(crate) fn efficient(&self, is_meant: impl Fn(&MicroPrograms) -> bool) -> Vec<EfficientCandidate> {
        let alignment = self.target.alignment();
        let mut all: Vec<(f64, u64, u64, usize, usize)> = Vec::new();
        let mut ends: Vec<[usize; 2]> = Vec::new();
        for (b, micro) in self.sizes.iter().enumerate() {
            let worth = if is_meant(micro) { micro.worth_packing() } else { Vec::new() };
            ends.push(micro.ends(&worth));
            for c in worth {
                let outline = &micro.training[c].outline;
                // The live bytes are the least that a packing can take.
                let least = micro.state_bytes + micro.transient(outline, outline.peak, alignment);
                let staging = micro.staging(outline, self.target);
                all.push((micro.seconds(self.batch, self.replica, outline), least + staging, staging, b, c));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut found: Vec<EfficientCandidate> = Vec::new();
        for (seconds, least, staging, b, c) in all {
            let best = found.last().map_or(u64::MAX, EfficientCandidate::bytes);
            if least >= best {
                continue;
            }
            let micro = &self.sizes[b];
            let packing = micro.pack(c, ends[b], alignment);
            let transient = micro.transient(&micro.training[c].outline, packing.capacity, alignment);
            let arena = micro.state_bytes + transient;
            let can_be_had = too_large_to_allocate(micro.state_bytes, transient, self.target).is_none();
            if arena + staging < best && can_be_had {
                let size_index = b;
                found.push(EfficientCandidate {
                    size_index,
                    candidate: c,
                    arena,
                    transient,
                    staging,
                    seconds,
                    packing,
                });
            }
        }
        found
    }

    /// Why the device can run no candidate, however large the budget: what the smallest asks of it.
    pub(crate) fn too_large(&self) -> PlanError {
        let Some(micro) = self.sizes.last() else { return PlanError::TooLarge };
        let outlines = micro.training.iter().map(|c| &c.outline);
        let Some(least) = outlines.min_by_key(|o| micro.pinned(o) + o.peak) else { return PlanError::TooLarge };
        let alignment = self.target.alignment();
        let bytes = micro.transient(least, pack(&least.items(), alignment).capacity, alignment);
        let segment = || too_large_to_allocate(micro.state_bytes, bytes, self.target);
        let limit = self.target.largest_segment();
        let mut unbound = micro.others.iter().map(|(o, _)| o).chain([least]).filter_map(|o| o.unbound.clone());
        unbound.next().map(PlanError::from).or_else(segment).unwrap_or(PlanError::Segment {
            segment: Segment::Transient,
            bytes,
            limit,
        })
    }

    /// Time against memory, fastest and largest first.
    pub fn frontier(&self) -> Vec<Point> {
        let point = |o: &EfficientCandidate| Point {
            arena_bytes: o.arena,
            transient_bytes: o.transient,
            staging_bytes: o.staging,
            seconds: o.seconds,
            micro_batch: self.sizes[o.size_index].size,
            recomputed_ops: self.sizes[o.size_index].training[o.candidate].recomputed,
        };
        self.options.iter().map(point).collect()
    }
}
