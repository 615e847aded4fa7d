//! What is to be planned: a model, how it is trained, on what, and what is asked.

use memfit_ir::{fingerprint, text};
use memfit_nn::Model;
use memfit_plan::{self as plan, Phase, PlanError, Request, Survey, Target};
use memfit_transform::{BatchDependence, Shard, StepGraph, Training, batch_dependence};

use crate::SourceError;

/// What is to be planned.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The model.
    pub model: &'a dyn Model,
    /// Optimizer, precision, what is frozen.
    pub training: &'a Training,
    /// The device.
    pub target: &'a dyn Target,
    /// Batch, micro-batch, budget.
    pub request: &'a Request,
}

impl<'a> Subject<'a> {
    /// Looks for plans of every size and speed.
    pub fn survey(&self) -> Result<Survey<'a>, PlanError> {
        let subject = *self;
        let source = move |micro_batch| subject.build(subject.request.batch, micro_batch);
        let survey = plan::survey(source, self.target, self.request)?;
        if self.request.exchange.shard == Shard::None {
            return Ok(survey);
        }
        let sharded = self.states()?.sharded_bytes(self.request.exchange.replica.rank);
        Ok(survey.with_sharded_bytes(sharded))
    }

    /// The programs that are planned, for a micro-batch.
    pub fn programs(&self, micro_batch: usize) -> Result<Vec<(Phase, StepGraph)>, PlanError> {
        self.build(self.request.batch, micro_batch).map_err(PlanError::Source)
    }

    /// The programs for any batch.
    pub fn build(&self, batch: usize, micro_batch: usize) -> Result<Vec<(Phase, StepGraph)>, SourceError> {
        memfit_train::replica_programs(self.model, self.training, batch, micro_batch, &self.request.exchange)
    }

    /// What makes a sample's result depend on the rest of its batch; none where nothing does.
    pub fn batch_dependence(&self) -> Result<Option<BatchDependence>, PlanError> {
        // Two samples, for one has no others.
        let graphs = memfit_train::programs(self.model, self.training, 2, 2);
        let graphs = graphs.map_err(PlanError::Source)?;
        Ok(graphs.iter().find_map(|(_, g)| batch_dependence(&g.graph, g.forward_end?, 2)))
    }
}

/// FNV-1a of programs: the same for the same model, trained the same way, in the same version.
pub fn source_hash(programs: &[(Phase, StepGraph)]) -> u64 {
    let texts: Vec<String> =
        programs.iter().map(|(phase, g)| format!("{}\n{}", phase.name(), text::print(&g.graph))).collect();
    fingerprint(&texts.join("\n"))
}
