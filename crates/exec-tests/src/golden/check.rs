//! Holds an executor against a golden case.

use std::collections::HashMap;

use memfit_ir::{Graph, TensorType};

use super::slack::Slack;
use super::{Case, CaseKind, OpCase, OptimizerCase, RunCase};
use crate::compare::{check_close, check_close_beyond};
use crate::error::{Error, Result};
use crate::runner::Runner;
use crate::tensor::Tensor;

/// Largest error allowed for one op, its gradients or one optimizer step, as a share of the largest expected magnitude.
const OP_TOLERANCE: f64 = 2e-5;
/// The same for a model: errors of many layers and steps add up.
const RUN_TOLERANCE: f64 = 2e-4;

/// Runs what the case describes and compares: an op's output and gradients, a parameter after every optimizer step, a
/// model's losses and what its training leaves. Gives the largest error, relative as in [`check_close`].
pub fn check(runner: &mut dyn Runner, case: &Case) -> Result<f64> {
    match &case.kind {
        CaseKind::Op(op) => check_op(runner, op),
        CaseKind::Optimizer(optimizer) => check_optimizer(runner, optimizer),
        CaseKind::Run(run) => check_run(runner, run),
    }
}

fn check_op(runner: &mut dyn Runner, case: &OpCase) -> Result<f64> {
    let graph = case.graph_with_gradients()?;
    check_types(case, &graph)?;
    let outputs = runner.run(&graph, &case.feeds(), &HashMap::new())?.outputs;
    let mut worst = check_close("out", &case.out, named(&case.name, &outputs, "out")?, OP_TOLERANCE)?;
    for (name, expected) in &case.grads {
        let name = format!("grad/{name}");
        worst = worst.max(check_close(&name, expected, named(&case.name, &outputs, &name)?, OP_TOLERANCE)?);
    }
    Ok(worst)
}

/// Found before anything runs: a wrong attribute may describe an output that no memory holds.
fn check_types(case: &OpCase, graph: &Graph) -> Result<()> {
    let Some(out) = graph.output("out") else { return Ok(()) };
    let (expected, given) = (case.out.ty.shape.to_string(), graph.ty(out).shape.to_string());
    if expected != given {
        return Err(Error::WrongShape { what: "out".into(), expected, given });
    }
    Ok(())
}

fn check_optimizer(runner: &mut dyn Runner, case: &OptimizerCase) -> Result<f64> {
    let graph = case.graph()?;
    let mut states = case.states();
    let mut worst = 0.0f64;
    for (step, expected) in case.after.iter().enumerate() {
        states = runner.run(&graph, &case.feeds(step), &states)?.states;
        let given = named(&case.name, &states, "p")?;
        worst = worst.max(check_close(&format!("p{step}"), expected, given, OP_TOLERANCE)?);
    }
    Ok(worst)
}

fn check_run(runner: &mut dyn Runner, case: &RunCase) -> Result<f64> {
    let step_graph = case.step_graph()?;
    let mut states = case.states(&step_graph.graph);
    let mut slack = Slack::new(case, states.clone());
    let mut worst = 0.0f64;
    for (step, &loss) in case.losses.iter().enumerate() {
        let result = runner.run_step(&step_graph, &case.feeds(step), &states)?;
        let expected = Tensor::filled(&TensorType::f32([]), loss);
        let given = named(&case.name, &result.outputs, "loss")?;
        worst = worst.max(check_close(&format!("the loss of step {step}"), &expected, given, RUN_TOLERANCE)?);
        states = result.states;
        slack.step(&step_graph.graph, step)?;
    }
    for (name, expected) in &case.statistics_after {
        let given = named(&case.name, &states, name)?;
        worst = worst.max(check_close(&format!("state/{name}"), expected, given, RUN_TOLERANCE)?);
    }
    for (name, expected) in &case.weights_after {
        let (what, given) = (format!("final/{name}"), named(&case.name, &states, name)?);
        let error = check_close_beyond(&what, expected, given, RUN_TOLERANCE, |i| slack.of(name, i))?;
        worst = worst.max(error);
    }
    Ok(worst)
}

fn named<'a>(case: &str, tensors: &'a HashMap<String, Tensor>, name: &str) -> Result<&'a Tensor> {
    let missing = || Error::Case { case: case.into(), problem: format!("the executor gave no \"{name}\"") };
    tensors.get(name).ok_or_else(missing)
}
