//! Several losses in one step, and layers that are not trained: what follows which loss, and what stays.

use crate::common;

use common::{engine, sgd, state};
use memfit_exec::{Clock, Engine, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Batch, Result, Tensor};
use memfit_ir::op::StateClass;
use memfit_ir::{Builder, Graph, TensorType, ValueId, philox};
use memfit_nn::layers::{Dense, dense};
use memfit_nn::zoo::Digits;
use memfit_nn::{Mode, Model, ZooModel, loss};
use memfit_plan::{MicroBatch, Request};
use memfit_transform::{Objective, Training};

const BATCH: usize = 6;

/// A generator and its judge, who sees what is real and what is made in one go.
fn pair(batch: usize, main: &str) -> Result<(Graph, ValueId)> {
    let mut b = Builder::new();
    let real = b.input("real", TensorType::f32([batch, 4]))?;
    let noise = b.input("noise", TensorType::f32([batch, 3]))?;
    let made = b.scope("generator", |b| dense(b, "fc", noise, Dense::new(4)))?;
    let both = b.concat(&[real, made], 1)?;
    let both = b.reshape(both, [batch * 2, 4])?;
    let says = b.scope("judge", |b| {
        let hidden = dense(b, "fc1", both, Dense::new(5))?;
        let hidden = b.relu(hidden)?;
        dense(b, "fc2", hidden, Dense::new(1))
    })?;
    let says = b.reshape(says, [batch, 2])?;
    let ones = b.fill(1.0, TensorType::f32([batch, 1]))?;
    let zeros = b.fill(0.0, TensorType::f32([batch, 1]))?;
    let truth = b.concat(&[ones, zeros], 1)?;
    let judge = b.scope("judge", |b| loss::binary_cross_entropy(b, says, truth))?;
    let of_made = b.slice(says, &[0, 1], &[batch, 2])?;
    let generator = b.scope("generator", |b| loss::binary_cross_entropy(b, of_made, ones))?;
    b.output("judge_loss", judge);
    b.output("generator_loss", generator);
    Ok((b.finish(), if main == "judge_loss" { judge } else { generator }))
}

fn numbers(name: &str, shape: [usize; 2]) -> (String, Tensor) {
    let ty = TensorType::f32(shape);
    let data = philox::normal(3, name, ty.elements()).map(f64::from).collect();
    (name.to_string(), Tensor { ty, data })
}

/// The weights after a few steps.
fn weights(main: &'static str, training: &Training, micro: MicroBatch, names: &[&str]) -> Result<Vec<Tensor>> {
    let request = Request { micro_batch: micro, ..Request::new(BATCH) };
    let mut engine = engine(2, &|n| pair(n, main), training, &request, Options::default())?;
    let batch = Batch::new([numbers("real", [BATCH, 4]), numbers("noise", [BATCH, 3])]);
    engine.step(&batch.views(), 0.5, Clock { step: 0, seed: 1 })?;
    names.iter().map(|name| state(&engine, name)).collect()
}

const GENERATOR: [&str; 2] = ["generator/fc/weight", "generator/fc/bias"];
const JUDGE: [&str; 4] = ["judge/fc1/weight", "judge/fc1/bias", "judge/fc2/weight", "judge/fc2/bias"];

fn without(names: &[&str]) -> Training {
    Training { frozen: names.iter().map(|n| n.to_string()).collect(), ..sgd(0.9) }
}

fn both() -> Training {
    let objective = Objective { loss: "generator_loss".into(), trains: vec!["generator".into()] };
    Training { objectives: vec![objective], ..sgd(0.9) }
}

#[test]
fn each_part_follows_its_own_loss_as_if_the_other_stood_still() -> Result<()> {
    let together = |names: &[&str]| weights("judge_loss", &both(), MicroBatch::Off, names);
    assert_eq!(together(&JUDGE)?, weights("judge_loss", &without(&GENERATOR), MicroBatch::Off, &JUDGE)?);
    assert_eq!(together(&GENERATOR)?, weights("generator_loss", &without(&JUDGE), MicroBatch::Off, &GENERATOR)?);
    Ok(())
}

#[test]
fn in_micro_batches_the_losses_are_those_of_the_batch() -> Result<()> {
    let losses = |micro| -> Result<[f32; 3]> {
        let request = Request { micro_batch: micro, ..Request::new(BATCH) };
        let mut engine = engine(2, &|n| pair(n, "judge_loss"), &both(), &request, Options::default())?;
        let batch = Batch::new([numbers("real", [BATCH, 4]), numbers("noise", [BATCH, 3])]);
        engine.step(&batch.views(), 0.5, Clock { step: 0, seed: 1 })?;
        let phase = engine.loss_phase();
        let read = |name| engine.output(phase, name).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok([read("loss")?, read("judge_loss")?, read("generator_loss")?])
    };
    let (whole, split) = (losses(MicroBatch::Off)?, losses(MicroBatch::Exactly(2))?);
    assert_eq!(whole[0], whole[1]);
    assert!(whole[1] != whole[2]);
    for (a, b) in whole.iter().zip(split) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
    Ok(())
}

#[test]
fn an_objective_that_is_not_there_or_trains_nothing_is_named() {
    for (loss, trains, expected) in [
        ("no_loss", "generator", "the output \"no_loss\""),
        ("generator_loss", "generators", "\"generator_loss\" trains nothing"),
    ] {
        let objective = Objective { loss: loss.into(), trains: vec![trains.into()] };
        let training = Training { objectives: vec![objective], ..sgd(0.9) };
        let error = weights("judge_loss", &training, MicroBatch::Off, &[]).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Frozen layers are what they are in evaluation: their statistics neither move nor come from the batch.
#[test]
fn a_frozen_batch_norm_uses_its_running_statistics_and_keeps_them() -> Result<()> {
    let model = ZooModel::from(Digits { dropout: 0.0, ..Digits::default() });
    let build = |mode| {
        let model = model.clone();
        move |n| model.build(n, mode).map(|f| (f.graph, f.loss)).expect("the model can be built")
    };
    let (train, evaluated) = (build(Mode::Train), build(Mode::Eval));
    let (graph, _) = train(BATCH);
    let params = graph.states().filter(|(s, _)| s.class == StateClass::Param).map(|(s, _)| s.name.clone());
    let training = Training { frozen: params.filter(|n| n.starts_with("conv")).collect(), ..sgd(0.9) };
    let request = Request::new(BATCH);
    let mut frozen = engine(2, &|n| Ok(train(n)), &training, &request, Options::default())?;
    // Nothing but the last layer is differentiated, and it alone has slots.
    let count = |op: &str| frozen.plan().programs[0].graph.nodes().iter().filter(|n| n.op.name() == op).count();
    assert_eq!(
        (count("conv2d"), count("conv2d_filter"), count("conv2d_transpose"), count("batch_stats")),
        (3, 0, 0, 0)
    );
    assert_eq!(frozen.plan().states.iter().filter(|s| s.class == StateClass::Slot).count(), 2);
    let statistics = |e: &Engine<CpuExecutor>| -> Result<Vec<Tensor>> {
        ["conv1/bn/mean", "conv1/bn/var", "conv3/bn/mean", "conv3/bn/var"].map(|n| state(e, n)).into_iter().collect()
    };
    let before = statistics(&frozen)?;
    let batch = Batch::of_zoo(&graph, BATCH, 9);
    frozen.step(&batch.views(), 0.1, Clock::default())?;
    assert_eq!(statistics(&frozen)?, before);
    // In micro-batches too, which they no longer forbid.
    let micro = Request { micro_batch: MicroBatch::Exactly(2), ..Request::new(BATCH) };
    let mut split = engine(2, &|n| Ok(train(n)), &training, &micro, Options::default())?;
    split.step(&batch.views(), 0.1, Clock::default())?;
    assert_eq!(statistics(&split)?, before);
    // With all of it as in evaluation the loss is the same; with none of it, another.
    let loss_of = |forward: &dyn Fn(usize) -> (Graph, ValueId)| -> Result<f32> {
        let mut plain = engine(2, &|n| Ok(forward(n)), &sgd(0.9), &request, Options::default())?;
        plain.step(&batch.views(), 0.1, Clock::default())?;
        Ok(plain.loss()?)
    };
    assert_eq!(frozen.loss()?, loss_of(&evaluated)?);
    assert_ne!(frozen.loss()?, loss_of(&train)?);
    Ok(())
}
