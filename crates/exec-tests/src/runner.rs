//! The one thing that the suite asks of an executor: run a graph once on given inputs and states.

use std::collections::HashMap;

use memfit_ir::Graph;
use memfit_transform::StepGraph;

use crate::error::Result;
use crate::reference;
use crate::tensor::Tensor;

pub trait Runner {
    /// Runs a step once. `inputs` and `states` are by the names in its graph.
    fn run_step(
        &mut self,
        step: &StepGraph,
        inputs: &HashMap<String, Tensor>,
        states: &HashMap<String, Tensor>,
    ) -> Result<RunResult>;

    /// The same of a graph that has no backward pass, or of which nothing is to be recomputed.
    fn run(
        &mut self,
        graph: &Graph,
        inputs: &HashMap<String, Tensor>,
        states: &HashMap<String, Tensor>,
    ) -> Result<RunResult> {
        self.run_step(&graph.clone().into(), inputs, states)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// The graph's outputs, by name.
    pub outputs: HashMap<String, Tensor>,
    /// All states as the run leaves them, by name.
    pub states: HashMap<String, Tensor>,
}

/// The reference executor as a runner.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Runner for Reference {
    fn run_step(
        &mut self,
        step: &StepGraph,
        inputs: &HashMap<String, Tensor>,
        states: &HashMap<String, Tensor>,
    ) -> Result<RunResult> {
        let graph = &step.graph;
        let values = reference::evaluate(graph, inputs, states)?;
        let outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), values[*v].clone())).collect();
        Ok(RunResult { outputs, states: reference::apply_donations(graph, &values, states) })
    }
}
