//! All that is known about a model on a device, and the plan of it for a budget.

use std::collections::HashMap;

use memfit_transform::Fusion;

use crate::error::PlanError;
use crate::frontier::EfficientCandidate;
use crate::micro_programs::MicroPrograms;
use crate::place;
use crate::refuse::refuse;
use crate::target::Target;
use crate::types::{MadeFor, Place, Plan, Saving, Tool};
use crate::validate::validate;

/// All that is known about a model on a device, before a budget is given.
pub struct Survey<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) fusion: Fusion,
    pub(crate) batch: usize,
    pub(crate) cost_model_hash: u64,
    pub(crate) keep_all_bytes: u64,
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

    /// What a plan takes that keeps all the backward pass reads but uses every tool that costs no time.
    pub fn free_tools_bytes(&self) -> u64 {
        if let Some(option) = self.options.iter().find(|o| (o.size_index, o.candidate) == (0, 0)) {
            return option.arena;
        }
        let (micro, alignment) = (&self.sizes[0], self.target.alignment());
        let packing = micro.pack(0, [0, 0], alignment);
        micro.state_bytes + micro.transient(&micro.training[0].draft, packing.capacity, alignment)
    }

    /// Of parameters, optimizer and statistics: the same in every plan.
    pub fn state_bytes(&self) -> u64 {
        self.sizes.first().map_or(0, |m| m.state_bytes)
    }

    /// No plan of this model can take less.
    pub fn lower_bound_bytes(&self) -> u64 {
        self.sizes.iter().map(|m| m.bound.bytes).min().unwrap_or(0)
    }

    /// The fastest plan that fits into the budget, ties to the smaller.
    pub fn plan(&self, budget: Option<u64>) -> Result<Plan, PlanError> {
        let fits = |o: &&EfficientCandidate| budget.is_none_or(|b| o.arena <= b);
        match (self.options.iter().find(fits), budget, self.options.last()) {
            (Some(option), ..) => self.finish(option),
            (None, Some(budget), Some(smallest)) => {
                let micro = &self.sizes[smallest.size_index];
                let bound = self.sizes.iter().map(|m| &m.bound).min_by_key(|b| b.bytes);
                let bound = bound.unwrap_or(&micro.bound);
                let plan = self.finish(smallest)?;
                Err(PlanError::Refused(Box::new(refuse(&plan, budget, bound))))
            }
            (None, ..) => unreachable!("a survey without candidates"),
        }
    }

    /// The same among plans of one micro-batch, which all compute the same bits; none where none of them fits.
    pub(crate) fn plan_of_size(&self, budget: u64, micro_batch: usize) -> Result<Option<Plan>, PlanError> {
        let options = self.efficient(|m| m.size == micro_batch);
        let found = options.iter().find(|o| o.arena <= budget);
        found.map(|option| self.finish(option)).transpose()
    }

    fn finish(&self, option: &EfficientCandidate) -> Result<Plan, PlanError> {
        let micro = &self.sizes[option.size_index];
        let candidate = &micro.training[option.candidate];
        let by_name: HashMap<&str, Place> = micro.states.iter().map(|s| (s.name.as_str(), s.place)).collect();
        let pinned = micro.pinned(&candidate.draft);
        let mut programs =
            vec![place::program(&candidate.draft, &by_name, pinned, &option.packing, candidate.clones.clone())];
        let mut peak = candidate.draft.peak_with_accumulators();
        for (draft, packing) in &micro.others {
            peak = peak.max(draft.peak_with_accumulators());
            programs.push(place::program(draft, &by_name, micro.pinned(draft), packing, Vec::new()));
        }
        programs.sort_by_key(|p| p.phase);
        let plan = Plan {
            batch: self.batch,
            micro_batch: micro.size,
            programs,
            fusion: self.fusion,
            states: micro.states.clone(),
            state_bytes: micro.state_bytes,
            transient_bytes: option.transient,
            peak_bytes: micro.state_bytes + peak,
            keep_all_bytes: self.keep_all_bytes,
            lower_bound_bytes: self.lower_bound_bytes(),
            recomputed_ops: candidate.recomputed,
            savings: self.savings(option),
            predicted_step_seconds: option.seconds,
            fastest_step_seconds: self.options[0].seconds,
            cost_model_hash: self.cost_model_hash,
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
            (micro.pinned(&micro.training[c].draft) + micro.training[c].draft.peak()) as i64
        };
        savings.push(Saving { tool: Tool::MicroBatches, bytes: peak(0, 0) - peak(option.size_index, 0) });
        let bytes = peak(option.size_index, 0) - peak(option.size_index, option.candidate);
        savings.push(Saving { tool: Tool::Recompute, bytes });
        savings.retain(|s| s.bytes != 0);
        savings
    }
}
