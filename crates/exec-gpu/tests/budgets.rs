//! What the device gives for a model is what was planned, in the fastest plan and in a tight one that computes again, and the same
//! after every step; and the weights are the same bits. Alone in its process, because the device counts for all.
#![cfg(feature = "gpu")]

mod common;

use common::gpu;
use memfit_exec::{Executor, Options};
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::zoo::{self, State, Trainee};
use memfit_nn::ZooModel;
use memfit_nn::zoo::{Gpt, Resnet, Unet};
use memfit_plan::Plan;
use memfit_test_effort::size;
use memfit_transform::Precision;

/// One after the other: they count the same device.
#[test]
fn planned_bytes_are_the_bytes_of_the_device_at_every_budget() {
    let Some(executor) = gpu() else { return };
    let gpt = Gpt { layers: 2, sequence: 24, vocabulary: 500, ..Gpt::default() };
    let side = size(32, 64);
    let models = [
        ("resnet18 for 32×32", size(4, 8), ZooModel::from(Resnet::resnet18().cifar())),
        ("unet", size(1, 2), ZooModel::from(Unet::default()).with_input(&[side, side, 3]).unwrap()),
        ("gpt", size(2, 4), ZooModel::from(size(gpt, Gpt { layers: 4, ..Gpt::default() }))),
    ];
    for (name, batch, model) in models {
        check(&executor, name, batch, &model);
    }
}

fn check(executor: &GpuExecutor, name: &str, batch: usize, model: &ZooModel) {
    let training = zoo::training(Precision::F32);
    let plans = zoo::plans(model, &training, executor.target(), batch).unwrap();
    let points = plans.frontier();
    let tight = plans.plan(Some(points[points.len() - 1].device_bytes())).unwrap();
    let fast = plans.plan(None).unwrap();
    assert!(fast.recomputed_ops < tight.recomputed_ops, "{name} computes nothing again");
    assert!(tight.arena_bytes() < fast.arena_bytes(), "{name} has one plan only");
    let [fast, tight] = [fast, tight].map(|plan| train(executor, name, plan));
    for (a, b) in fast.iter().zip(&tight) {
        assert!(a == b, "{} of {name} has other bits under the tight plan", a.0);
    }
}

/// The states after four steps: the second is captured, those after it are replayed.
fn train(executor: &GpuExecutor, name: &str, plan: Plan) -> Vec<State> {
    let before = executor.reserved_bytes();
    assert_eq!((before.segments, before.staging), (0, 0), "what came before {name} gave all back");
    let (arena, beside, recomputed) = (plan.arena_bytes(), plan.staging_bytes, plan.recomputed_ops);
    let mut trainee = Trainee::new(executor.clone(), plan, Options::default()).unwrap();
    let taken: Vec<_> = (0..4)
        .map(|_| {
            trainee.step().unwrap();
            executor.reserved_bytes()
        })
        .collect();
    for (step, taken) in taken.iter().enumerate() {
        assert_eq!((taken.segments, taken.other), (arena, 0), "step {step} of {name}");
        let held = taken.staging + taken.parameters - before.parameters;
        assert!(held <= beside, "step {step} of {name}: {taken:?} after {before:?}, but {beside} were said");
    }
    assert!(taken[2..].iter().all(|t| *t == taken[2]), "{name} takes more from step to step: {taken:?}");
    println!("{name}: {arena} bytes planned and taken, {recomputed} ops again, {:?}", taken[3]);
    trainee.states().unwrap()
}
