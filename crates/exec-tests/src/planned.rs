//! Any executor as a runner: the graph is planned as one step, given its states and inputs, run once and read back. It
//! plans as a session does, so that whatever passes here went through grouping, packing, the validator and the engine.

use std::collections::HashMap;

use memfit_exec::{Clock, Engine, ExecError, Executor, Options, TensorView};
use memfit_ir::{Graph, TensorType};
use memfit_plan::{Phase, Plan, Request, survey};
use memfit_transform::{Grouping, StepGraph};

use crate::error::{Error, Result};
use crate::runner::{RunResult, Runner};
use crate::tensor::Tensor;

/// What may differ between two runs without changing one bit of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    pub grouping: Grouping,
    /// As in [`Options::poison`].
    pub poison: bool,
    /// Which plan of the frontier, in percent of the way from the fastest to the smallest.
    pub squeeze: usize,
}

/// Runs graphs on the executors that `make` gives, a new one for each graph.
pub struct Planned<E: Executor, F> {
    make: F,
    settings: Settings,
    /// The step that ran last. The same step runs again on the same engine, as in a training.
    last: Option<(StepGraph, Engine<E>)>,
}

impl<E: Executor, F: Fn() -> Result<E, ExecError>> Planned<E, F> {
    pub fn new(make: F, settings: Settings) -> Self {
        Planned { make, settings, last: None }
    }

    fn engine(&mut self, step: &StepGraph) -> Result<&mut Engine<E>> {
        if self.last.as_ref().is_none_or(|(known, _)| known != step) {
            let executor = (self.make)()?;
            let plan = plan_step(step, &executor, self.settings)?;
            let options = Options { poison: self.settings.poison, ..Options::default() };
            self.last = Some((step.clone(), Engine::new(executor, plan, options)?));
        }
        Ok(&mut self.last.as_mut().expect("it was made above").1)
    }
}

fn plan_step<E: Executor>(step: &StepGraph, executor: &E, settings: Settings) -> Result<Plan> {
    // A graph has one batch size already, so that there is nothing to divide.
    let request = Request { grouping: settings.grouping, ..Request::new(1) };
    let survey = survey(|_| Ok(vec![(Phase::Step, step.clone())]), executor.target(), &request)?;
    let points = survey.frontier();
    let point = points[(points.len() - 1) * settings.squeeze / 100];
    Ok(survey.plan(Some(point.device_bytes()))?)
}

impl<E: Executor, F: Fn() -> Result<E, ExecError>> Runner for Planned<E, F> {
    fn run_step(
        &mut self,
        step: &StepGraph,
        inputs: &HashMap<String, Tensor>,
        states: &HashMap<String, Tensor>,
    ) -> Result<RunResult> {
        let graph = &step.graph;
        let engine = self.engine(step)?;
        for (state, v) in graph.states() {
            let bytes = given("state", &state.name, graph.ty(v), states)?;
            engine.write_state(&state.name, view(graph.ty(v), &bytes))?;
        }
        let mut staged: Vec<(&str, &TensorType, Vec<u8>)> = Vec::new();
        for (name, v) in graph.inputs() {
            staged.push((name, graph.ty(v), given("input", name, graph.ty(v), inputs)?));
        }
        let views: Vec<(&str, TensorView)> = staged.iter().map(|(name, ty, bytes)| (*name, view(ty, bytes))).collect();
        // Learning rate and clock are among the inputs where the graph reads them.
        engine.run(Phase::Step, &views, 0.0, Clock::default())?;
        read_back(engine, graph, states)
    }
}

fn read_back<E: Executor>(engine: &Engine<E>, graph: &Graph, states: &HashMap<String, Tensor>) -> Result<RunResult> {
    let mut outputs = HashMap::new();
    for (name, v) in &graph.outputs {
        outputs.insert(name.clone(), Tensor::from_bytes(graph.ty(*v), &engine.output(Phase::Step, name)?)?);
    }
    // States that the graph does not know stay as they were.
    let mut after = states.clone();
    for (state, v) in graph.states() {
        after.insert(state.name.clone(), Tensor::from_bytes(graph.ty(v), &engine.read_state(&state.name)?)?);
    }
    Ok(RunResult { outputs, states: after })
}

fn given(kind: &'static str, name: &str, ty: &TensorType, from: &HashMap<String, Tensor>) -> Result<Vec<u8>> {
    match from.get(name) {
        None => Err(Error::NotGiven { kind, name: name.into(), ty: ty.clone() }),
        Some(t) if t.ty != *ty => {
            Err(Error::WrongType { kind, name: name.into(), expected: ty.clone(), given: t.ty.clone() })
        }
        Some(t) => Ok(t.to_bytes()),
    }
}

fn view<'a>(ty: &'a TensorType, bytes: &'a [u8]) -> TensorView<'a> {
    TensorView { dtype: ty.dtype, shape: &ty.shape, bytes }
}
