//! Every loss by its name, with weights and without: its gradient against the slopes of the f64 reference, the CPU against that
//! reference, and weights of 1 that change no bit.

use std::collections::HashMap;

use crate::common;

use common::sgd;
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Planned, Reference, Runner, Settings, Tensor};
use memfit_ir::op::Init;
use memfit_ir::{Builder, TensorType, philox};
use memfit_nn::Loss;
use memfit_transform::{StepGraph, step};

const ROWS: usize = 12;
const TARGETS: usize = 3;
const OUTPUT: &str = "output";

const LOSSES: [Loss; 7] = [
    Loss::SparseCrossEntropy { smoothing: 0.0 },
    Loss::MeanSquaredError,
    Loss::MeanAbsoluteError,
    Loss::Huber { delta: 0.5 },
    Loss::Huber { delta: 2.0 },
    Loss::LogCosh,
    Loss::Poisson,
];

/// What a model gives is a state here, so that a step of plain gradient descent at a rate of 1 takes the gradient off it.
fn step_of(loss: Loss, is_weighted: bool) -> StepGraph {
    let mut b = Builder::new();
    let output = b.param(OUTPUT, [ROWS, TARGETS], Init::Constant(0.0)).unwrap();
    let label = if loss.is_of_values() { TensorType::f32([ROWS, TARGETS]) } else { TensorType::i32([ROWS]) };
    let label = b.input("label", label).unwrap();
    let loss = if is_weighted {
        let weights = b.input("weights", TensorType::f32([ROWS])).unwrap();
        loss.append_weighted(&mut b, output, label, weights).unwrap()
    } else {
        loss.append(&mut b, output, label).unwrap()
    };
    step(&b.finish(), loss, &sgd(0.0)).unwrap()
}

fn tensor(ty: TensorType, data: Vec<f64>) -> Tensor {
    Tensor { ty, data }
}

fn random(name: &str, count: usize) -> Vec<f64> {
    philox::normal(7, name, count).map(f64::from).collect()
}

/// Inputs of a step, whose weights are these.
fn inputs(loss: Loss, weights: &[f64]) -> HashMap<String, Tensor> {
    let label = if loss.is_of_values() {
        let counts =
            random("label", ROWS * TARGETS).into_iter().map(|x| if loss == Loss::Poisson { x.abs() } else { x });
        tensor(TensorType::f32([ROWS, TARGETS]), counts.collect())
    } else {
        tensor(TensorType::i32([ROWS]), (0..ROWS).map(|row| (row * 5 % TARGETS) as f64).collect())
    };
    let number = |value: f64| tensor(TensorType::f32([]), vec![value]);
    let clock = tensor(TensorType::i32([4]), vec![0.0; 4]);
    let weights = tensor(TensorType::f32([ROWS]), weights.to_vec());
    let all = [("label", label), ("weights", weights), ("lr", number(1.0)), ("clock", clock)];
    all.into_iter().map(|(name, tensor)| (name.to_string(), tensor)).collect()
}

fn states(output: Vec<f64>) -> HashMap<String, Tensor> {
    HashMap::from([(OUTPUT.to_string(), tensor(TensorType::f32([ROWS, TARGETS]), output))])
}

/// The loss, and the output that a step leaves.
fn run(
    runner: &mut impl Runner,
    step: &StepGraph,
    inputs: &HashMap<String, Tensor>,
    output: &[f64],
) -> (f64, Vec<f64>) {
    let known = |name: &String| step.graph.input(name).is_some();
    let inputs = inputs.iter().filter(|(name, _)| known(name)).map(|(name, t)| (name.clone(), t.clone())).collect();
    let result = runner.run_step(step, &inputs, &states(output.to_vec())).unwrap();
    (result.outputs["loss"].data[0], result.states[OUTPUT].data.clone())
}

fn weights() -> Vec<f64> {
    (0..ROWS).map(|row| [0.0, 0.5, 1.0, 3.0][row % 4]).collect()
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    let output = random("output", ROWS * TARGETS);
    for loss in LOSSES {
        let (step, inputs) = (step_of(loss, true), inputs(loss, &weights()));
        let (_, after) = run(&mut Reference, &step, &inputs, &output);
        for i in 0..output.len() {
            let moved = |by: f64| {
                let mut output = output.clone();
                output[i] += by;
                run(&mut Reference, &step, &inputs, &output).0
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let gradient = output[i] - after[i];
            assert!((slope - gradient).abs() < 1e-7, "{loss:?}, element {i}: {slope} {gradient}");
        }
    }
}

#[test]
fn the_cpu_has_the_losses_of_the_reference() {
    let mut cpu = Planned::new(|| CpuExecutor::new(2), Settings::default());
    let output: Vec<f64> = random("output", ROWS * TARGETS).into_iter().map(|x| f64::from(x as f32)).collect();
    for loss in LOSSES {
        let (step, inputs) = (step_of(loss, true), inputs(loss, &weights()));
        let (expected, moved) = run(&mut Reference, &step, &inputs, &output);
        let (given, taken) = run(&mut cpu, &step, &inputs, &output);
        assert!((given - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{loss:?}: {given} {expected}");
        let close = taken.iter().zip(&moved).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0));
        assert!(close, "{loss:?}: {taken:?} {moved:?}");
    }
}

#[test]
fn weights_of_one_change_no_bit() {
    let mut cpu = Planned::new(|| CpuExecutor::new(2), Settings::default());
    let output: Vec<f64> = random("output", ROWS * TARGETS).into_iter().map(|x| f64::from(x as f32)).collect();
    for loss in LOSSES {
        let mut of = |weighted: bool, weight: f64| {
            run(&mut cpu, &step_of(loss, weighted), &inputs(loss, &[weight; ROWS]), &output)
        };
        assert_eq!(of(true, 1.0), of(false, 1.0), "{loss:?}");
        assert_ne!(of(true, 2.0), of(false, 1.0), "{loss:?}: weights count");
    }
}

/// Σ weight · loss ÷ rows: weights of 0 leave rows out of the sum and not out of the count.
#[test]
fn weights_are_divided_by_their_number() {
    let step = step_of(Loss::MeanAbsoluteError, true);
    let mut inputs = inputs(Loss::MeanAbsoluteError, &weights());
    inputs.insert("label".into(), tensor(TensorType::f32([ROWS, TARGETS]), vec![0.0; ROWS * TARGETS]));
    let (loss, _) = run(&mut Reference, &step, &inputs, &[2.0; ROWS * TARGETS]);
    assert!((loss - 2.0 * 4.5 / 4.0).abs() < 1e-12, "{loss}");
}
