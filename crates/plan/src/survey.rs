//! All that is known about a model on a device, and the plan of it for a budget.

use std::collections::HashMap;

use memfit_ir::Replica;
use memfit_transform::group::Grouping;

use crate::cost_model::CostModel;
use crate::draft::{Draft, Optimizations, PlanContext};
use crate::error::PlanError;
use crate::frontier::EfficientCandidate;
use crate::micro_programs::MicroPrograms;
use crate::outline::Outline;
use crate::passes::save_masks;
use crate::place;
use crate::planner::programs;
use crate::refuse::refuse;
use crate::request::Source;
use crate::target::Target;
use crate::types::{MadeFor, Place, Plan, Program, Saving, Tool};
use crate::validate::validate;

/// All that is known about a model on a device, before a budget is given.
pub struct Survey<'a> {
    /// Makes the programs anew that are planned: here they would be many times what is known of them.
    pub(crate) source: Box<Source<'a>>,
    pub(crate) target: &'a dyn Target,
    pub(crate) grouping: Grouping,
    pub(crate) batch: usize,
    pub(crate) replica: Replica,
    pub(crate) cost_model: CostModel,
    pub(crate) keep_all_bytes: u64,
    /// Of states that other replicas keep for this one.
    pub(crate) sharded_bytes: u64,
    pub(crate) savings: Vec<Saving>,
    pub(crate) sizes: Vec<MicroPrograms>,
    /// The efficient candidates, fastest and largest first.
    pub(crate) options: Vec<EfficientCandidate>,
}

impl Survey<'_> {
    /// What its plans are made for.
    pub fn made_for(&self) -> MadeFor {
        self.target.describe()
    }

    /// The same, of a replica for which others keep so many bytes of states. Nothing else has all of them to be held against.
    pub fn with_sharded_bytes(self, bytes: u64) -> Self {
        Survey { keep_all_bytes: self.keep_all_bytes + bytes - self.sharded_bytes, sharded_bytes: bytes, ..self }
    }

    /// What a plan takes that keeps all the backward pass reads but uses every tool that costs no time.
    pub fn free_tools_bytes(&self) -> u64 {
        if let Some(option) = self.options.iter().find(|o| (o.size_index, o.candidate) == (0, 0)) {
            return option.arena;
        }
        let (micro, alignment) = (&self.sizes[0], self.target.alignment());
        let packing = micro.pack(0, [0, 0], alignment);
        micro.state_bytes + micro.transient(&micro.training[0].outline, packing.capacity, alignment)
    }

    /// Of parameters, optimizer and statistics: the same in every plan.
    pub fn state_bytes(&self) -> u64 {
        self.sizes.first().map_or(0, |m| m.state_bytes)
    }

    /// No plan of this model can take less of its device.
    pub fn lower_bound_bytes(&self) -> u64 {
        self.sizes.iter().map(MicroPrograms::least).min().unwrap_or(0)
    }

    /// The fastest plan of which all fits into the budget, arena and what stands beside it; ties to the smaller.
    pub fn plan(&self, budget: Option<u64>) -> Result<Plan, PlanError> {
        self.finish(self.choose(budget)?)
    }

    /// The candidate that it is a plan of.
    pub(crate) fn choose(&self, budget: Option<u64>) -> Result<&EfficientCandidate, PlanError> {
        let fits = |o: &&EfficientCandidate| budget.is_none_or(|b| o.bytes() <= b);
        match (self.options.iter().find(fits), budget, self.options.last()) {
            (Some(option), ..) => Ok(option),
            (None, Some(budget), Some(smallest)) => {
                let least = self.sizes.iter().min_by_key(|m| m.least()).unwrap_or(&self.sizes[smallest.size_index]);
                let plan = self.finish(smallest)?;
                Err(PlanError::Refused(Box::new(refuse(&plan, budget, &least.bound, least.staging_bound))))
            }
            (None, ..) => unreachable!("a survey without candidates"),
        }
    }

    /// What drafts are made with.
    pub(crate) fn context(&self) -> PlanContext<'_> {
        let Survey { target, grouping, ref cost_model, .. } = *self;
        PlanContext { target, grouping, cost_model, optimizations: Optimizations::ALL }
    }

    /// Drafts the programs of a candidate once more, and places all that is in them.
    fn programs(&self, option: &EfficientCandidate) -> Result<Vec<Program>, PlanError> {
        let micro = &self.sizes[option.size_index];
        let candidate = &micro.training[option.candidate];
        let by_name: HashMap<&str, Place> = micro.states.iter().map(|s| (s.name.as_str(), s.place)).collect();
        let cx = self.context();
        let mut placed = Vec::new();
        for (phase, step) in programs(&self.source, micro.size)? {
            let masked = save_masks(&step);
            drop(step);
            let (outline, packing, (draft, clones)) = if phase == candidate.outline.phase {
                (&candidate.outline, &option.packing, candidate.draft(masked, &cx)?)
            } else {
                let Some((outline, packing)) = micro.others.iter().find(|(o, _)| o.phase == phase) else { continue };
                (outline, packing, (Draft::again(masked, outline, &cx)?, Vec::new()))
            };
            placed.push(place::program(draft, &by_name, micro.pinned(outline), packing, clones));
        }
        placed.sort_by_key(|p| p.phase);
        Ok(placed)
    }

    pub(crate) fn finish(&self, option: &EfficientCandidate) -> Result<Plan, PlanError> {
        let micro = &self.sizes[option.size_index];
        let candidate = &micro.training[option.candidate];
        let programs = self.programs(option)?;
        let outlines = micro.others.iter().map(|(o, _)| o).chain([&candidate.outline]);
        let peak = outlines.map(Outline::peak_with_accumulators).max().unwrap_or(0);
        let plan = Plan {
            batch: self.batch,
            micro_batch: micro.size,
            replica: self.replica,
            programs,
            fusion: self.context().fusion(),
            states: micro.states.clone(),
            state_bytes: micro.state_bytes,
            transient_bytes: option.transient,
            staging_bytes: option.staging,
            peak_bytes: micro.state_bytes + peak,
            keep_all_bytes: self.keep_all_bytes,
            lower_bound_bytes: self.lower_bound_bytes(),
            recomputed_ops: candidate.recomputed,
            savings: self.savings(option),
            predicted_step_seconds: option.seconds,
            fastest_step_seconds: self.options[0].seconds,
            cost_model_hash: self.cost_model.hash(),
            made_for: Some(self.target.describe()),
        };
        for program in &plan.programs {
            validate(&plan, program, self.target)
                .map_err(|problem| PlanError::Invalid { phase: program.phase, problem })?;
        }
        Ok(plan)
    }

    /// The free tools, and what recompute and micro-batches save on top of them.
    fn savings(&self, option: &EfficientCandidate) -> Vec<Saving> {
        let mut savings = self.savings.clone();
        let peak = |b: usize, c: usize| {
            let micro = &self.sizes[b];
            let outline = &micro.training[c].outline;
            (micro.pinned(outline) + outline.peak) as i64
        };
        savings.push(Saving { tool: Tool::MicroBatches, bytes: peak(0, 0) - peak(option.size_index, 0) });
        let bytes = peak(option.size_index, 0) - peak(option.size_index, option.candidate);
        savings.push(Saving { tool: Tool::Recompute, bytes });
        savings.push(Saving { tool: Tool::Shard, bytes: self.sharded_bytes as i64 });
        savings.retain(|s| s.bytes != 0);
        savings
    }
}
