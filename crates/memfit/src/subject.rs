//! What is to be planned: a zoo model by its name, how it is trained, on what, and what is asked.

use memfit_ir::{philox, text};
use memfit_nn::zoo::{Labels, Model};
use memfit_plan::{self as plan, Phase, PlanError, Request, Survey, Target};
use memfit_transform::samples::mixes_samples;
use memfit_transform::{StepGraph, Training};

use crate::SourceError;

#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The model's name in the zoo, by which its smaller siblings are found.
    pub name: &'a str,
    pub model: &'a Model,
    /// What the labels of a training step are.
    pub labels: Labels,
    pub training: &'a Training,
    pub target: &'a dyn Target,
    pub request: &'a Request,
}

impl<'a> Subject<'a> {
    pub fn survey(&self) -> Result<Survey<'a>, PlanError> {
        plan::survey(&|micro_batch| self.build(self.request.batch, micro_batch), self.target, self.request)
    }

    /// The programs that are planned, for a micro-batch.
    pub fn programs(&self, micro_batch: usize) -> Result<Vec<(Phase, StepGraph)>, PlanError> {
        self.build(self.request.batch, micro_batch).map_err(PlanError::Source)
    }

    /// The programs for any batch.
    pub fn build(&self, batch: usize, micro_batch: usize) -> Result<Vec<(Phase, StepGraph)>, SourceError> {
        let build = |rows: usize, mode| Ok(self.model.build_with(rows, mode, self.labels)?);
        memfit_train::programs(&build, self.training, batch, micro_batch)
    }

    /// What makes a sample's result depend on the rest of its batch, in words; none where nothing does.
    pub fn mixer(&self) -> Result<Option<String>, PlanError> {
        // Two samples, for one has no others.
        let graphs = self.build(2, 2).map_err(PlanError::Source)?;
        Ok(graphs.iter().find_map(|(_, g)| mixes_samples(&g.graph, g.forward_end?, 2)))
    }
}

/// FNV-1a of programs: the same for the same model, trained the same way, in the same version.
pub fn source_hash(programs: &[(Phase, StepGraph)]) -> u64 {
    let texts: Vec<String> =
        programs.iter().map(|(phase, g)| format!("{}\n{}", phase.name(), text::print(&g.graph))).collect();
    philox::name_key(&texts.join("\n"))
}
