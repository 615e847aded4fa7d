//! Holds an executor against a golden case.

use super::{Case, CaseKind, OpCase, OptimizerCase, RunCase};
use crate::compare::check_close;
use crate::error::{Error, Result};
use crate::runner::Runner;
use crate::tensor::Tensor;

/// Largest error allowed for one op or optimizer step, as a share of the largest expected magnitude.
const OP_TOLERANCE: f64 = 2e-5;
/// The same for a model: errors of many layers add up.
const RUN_TOLERANCE: f64 = 2e-4;

/// Runs what the case describes and compares: an op's output, a parameter after every optimizer step, a model's loss
/// on its first batch.
pub fn check(runner: &mut dyn Runner, case: &Case) -> Result<()> {
    match &case.kind {
        CaseKind::Op(op) => check_op(runner, op),
        CaseKind::Optimizer(optimizer) => check_optimizer(runner, optimizer),
        CaseKind::Run(run) => check_first_loss(runner, run),
    }
}

fn check_op(runner: &mut dyn Runner, case: &OpCase) -> Result<()> {
    let result = runner.run(&case.graph()?, &case.feeds(), &Default::default())?;
    check_close(&format!("{}/out", case.name), &case.out, named(&case.name, &result.outputs, "out")?, OP_TOLERANCE)
}

fn check_optimizer(runner: &mut dyn Runner, case: &OptimizerCase) -> Result<()> {
    let graph = case.graph()?;
    let mut states = case.states();
    for (step, expected) in case.after.iter().enumerate() {
        states = runner.run(&graph, &case.feeds(step), &states)?.states;
        let given = named(&case.name, &states, "p")?;
        check_close(&format!("{}/p{step}", case.name), expected, given, OP_TOLERANCE)?;
    }
    Ok(())
}

fn check_first_loss(runner: &mut dyn Runner, case: &RunCase) -> Result<()> {
    let graph = case.graph()?;
    let result = runner.run(&graph, &case.feeds(0), &case.states(&graph))?;
    let given = named(&case.name, &result.outputs, "loss")?;
    let expected = Tensor::f32([], vec![case.losses[0]])?;
    check_close(&format!("{}, loss of step 0", case.name), &expected, given, RUN_TOLERANCE)
}

fn named<'a>(case: &str, tensors: &'a std::collections::HashMap<String, Tensor>, name: &str) -> Result<&'a Tensor> {
    let missing = || Error::Case { case: case.into(), problem: format!("the executor gave no \"{name}\"") };
    tensors.get(name).ok_or_else(missing)
}
