//! A step in micro-batches on the CPU: the same dropout masks, the same loss and weights up to the rounding of a sum,
//! and running statistics that change once a batch.

use crate::common;

use std::collections::HashMap;

use common::{Forward, SEED, engine, programs, sgd, state};
use memfit_exec::{Clock, Engine, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::families::config;
use memfit_exec_tests::generate::{Recipe, Samples};
use memfit_exec_tests::reference::initial_states;
use memfit_exec_tests::{Batch, Reference, Result, Runner, Tensor, check_close, check_same};
use memfit_ir::op::*;
use memfit_ir::{Builder, Graph, Op, TensorType, ValueId, philox};
use memfit_plan::{MicroBatch, Phase, Request};
use memfit_transform::{Grouping, StepGraph, Training};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

type Tensors = HashMap<String, Tensor>;

const RATE: f32 = 0.125;
const CLOCK_OF_STEP: Clock = Clock { step: 3, seed: 0xffff_fff9_0000_004d };

/// One step on the CPU; the clock and the learning rate are the engine's own.
fn train(forward: Forward, training: &Training, request: &Request, inputs: &Tensors) -> Result<Engine<CpuExecutor>> {
    let mut engine = engine(2, forward, training, request, Options { poison: true, ..Options::default() })?;
    engine.step(&Batch::new(inputs.clone()).views(), RATE, CLOCK_OF_STEP)?;
    Ok(engine)
}

fn request(batch: usize, micro_batch: usize, grouping: Grouping) -> Request {
    Request { micro_batch: MicroBatch::Exactly(micro_batch), grouping, ..Request::new(batch) }
}

// ---- dropout ---------------------------------------------------------------------------------------------------------

const BATCH: usize = 8;
const FEATURES: usize = 32;

/// The mean of dropout(x · w), whose gradient by w is the sum over the samples of mask · x.
fn dropout(batch: usize) -> Result<(Graph, ValueId)> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([batch, FEATURES]))?;
    let w = b.param("w", [FEATURES], Init::Constant(0.0))?;
    let product = b.mul(x, w)?;
    let kept = b.dropout(product, 0.5)?;
    let loss = b.mean(kept)?;
    Ok((b.finish(), loss))
}

/// With sample s worth 2^s, everything is a power of two and nothing rounds: the new weight of a feature tells which
/// samples it was kept in.
fn masks(micro_batch: usize, grouping: Grouping) -> Vec<Vec<bool>> {
    let x = Tensor::from_index(&TensorType::f32([BATCH, FEATURES]), |i| f64::from(1 << i[0]));
    let inputs = Tensors::from([("x".into(), x)]);
    let engine = train(&dropout, &sgd(0.0), &request(BATCH, micro_batch, grouping), &inputs).unwrap();
    let unit = f64::from(RATE) * 2.0 / (BATCH * FEATURES) as f64;
    let codes: Vec<f64> = state(&engine, "w").unwrap().data.iter().map(|w| -w / unit).collect();
    assert!(codes.iter().all(|c| c.fract() == 0.0 && (0.0..256.0).contains(c)), "{codes:?}");
    (0..BATCH).map(|s| codes.iter().map(|&c| c as u32 >> s & 1 == 1).collect()).collect()
}

#[test]
fn a_dropout_mask_is_the_same_under_every_micro_batch_and_grouping() {
    let [low, high] = [CLOCK_OF_STEP.seed as u32, (CLOCK_OF_STEP.seed >> 32) as u32];
    let kept = |s: usize, i: usize| {
        philox::unit(philox::dropout_word([low, high], 0, CLOCK_OF_STEP.step, s as u32, i as u32)) >= 0.5
    };
    let expected: Vec<Vec<bool>> = (0..BATCH).map(|s| (0..FEATURES).map(|i| kept(s, i)).collect()).collect();
    for micro_batch in [8, 4, 2, 1] {
        for grouping in [Grouping::Fused, Grouping::Single] {
            assert_eq!(masks(micro_batch, grouping), expected, "{micro_batch} {grouping:?}");
        }
    }
}

// ---- batch norm ------------------------------------------------------------------------------------------------------

/// The running mean and variance of x itself.
fn statistics(batch: usize) -> Result<(Graph, ValueId)> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([batch, 3]))?;
    let (scale, bias) = (b.param("scale", [3], Init::Constant(1.0))?, b.param("bias", [3], Init::Constant(0.0))?);
    let [y, mean, var] = b.batch_norm(x, scale, bias, 1e-3)?;
    let running_mean = b.state("mean", StateClass::Statistic, TensorType::f32([3]), Init::Constant(0.0))?;
    let running_var = b.state("var", StateClass::Statistic, TensorType::f32([3]), Init::Constant(1.0))?;
    let update = Op::BatchUpdate(BatchUpdate { momentum: 0.75 });
    let new = b.op_outputs(update, &[running_mean, running_var, mean, var])?;
    b.donate(running_mean, new[0]);
    b.donate(running_var, new[1]);
    let square = b.mul(y, y)?;
    let loss = b.mean(square)?;
    Ok((b.finish(), loss))
}

#[test]
fn running_statistics_change_once_a_batch_by_the_mean_over_the_micro_batches() {
    let x = Tensor::from_index(&TensorType::f32([4, 3]), |i| [1.0, 3.0, 10.0, 20.0][i[0]] * (i[1] + 1) as f64);
    let inputs = Tensors::from([("x".into(), x)]);
    // Of the first channel: means of the halves 2 and 15, variances 1 and 25; of the whole batch 8.5 and 55.25.
    for (micro_batch, mean, var) in [(4, 8.5, 55.25), (2, 8.5, 13.0), (1, 8.5, 0.0)] {
        let engine = train(&statistics, &sgd(0.0), &request(4, micro_batch, Grouping::Fused), &inputs).unwrap();
        let channels = |f: &dyn Fn(f64) -> f64| Tensor::f32([3], (1..4).map(|c| f(c as f64)).collect()).unwrap();
        let expected_mean = channels(&|c| 0.25 * mean * c);
        let expected_var = channels(&|c| 0.75 + 0.25 * var * c * c);
        check_close("mean", &expected_mean, &state(&engine, "mean").unwrap(), 1e-6).unwrap();
        check_close("var", &expected_var, &state(&engine, "var").unwrap(), 1e-6).unwrap();
    }
}

// ---- any model -------------------------------------------------------------------------------------------------------

/// What the reference makes of the same programs, run as the engine runs them: states and loss.
fn reference(forward: Forward, training: &Training, batch: usize, micro: usize, inputs: &Tensors) -> Result<Tensors> {
    let programs = programs(forward, training, batch, micro)?;
    let mut states: Tensors = programs.iter().flat_map(|(_, step)| initial_states(&step.graph, SEED)).collect();
    for (phase, StepGraph { graph, .. }) in &programs {
        for part in 0..if *phase == Phase::Accumulate { batch / micro } else { 1 } {
            let feeds =
                graph.inputs().map(|(name, v)| (name.to_string(), feed(name, graph.ty(v), inputs, part, micro)));
            let result = Reference.run(graph, &feeds.collect(), &states)?;
            states = result.states;
            states.extend(result.outputs.get("loss").map(|loss| ("loss".to_string(), loss.clone())));
        }
    }
    Ok(states)
}

fn feed(name: &str, ty: &TensorType, inputs: &Tensors, part: usize, micro: usize) -> Tensor {
    let Clock { step, seed } = CLOCK_OF_STEP;
    let words = [step as i32, (part * micro) as i32, seed as i32, (seed >> 32) as i32];
    let data = match name {
        CLOCK => words.iter().map(|&w| f64::from(w)).collect(),
        LEARNING_RATE => vec![f64::from(RATE)],
        _ => inputs[name].data[part * ty.elements()..][..ty.elements()].to_vec(),
    };
    Tensor { ty: ty.clone(), data }
}

/// Any model of the given kind: (model, batch, micro-batch).
fn check_models(samples: Samples, check: impl Fn(&Recipe, usize, usize) -> Result<()>) {
    let recipes = prop::collection::vec(any::<u32>(), 1..120).prop_map(move |draws| Recipe { draws, samples });
    let sizes = prop::sample::select(vec![(2, 1), (4, 2), (4, 1), (6, 3)]);
    let outcome = TestRunner::new(config(30)).run(&(recipes, sizes), |(recipe, (batch, micro))| {
        check(&recipe, batch, micro).map_err(|e| TestCaseError::fail(e.to_string()))
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
}

/// What is kept between steps, without the optimizer's slots: a gradient that should be 0 is rounding there.
fn kept(engine: &Engine<CpuExecutor>) -> Vec<String> {
    let slots = engine.plan().states.iter().filter(|s| matches!(s.class, StateClass::Param | StateClass::Statistic));
    slots.map(|s| s.name.clone()).collect()
}

#[test]
fn micro_batches_on_the_cpu_give_what_they_give_on_the_reference() {
    check_models(Samples::Together, |recipe, batch, micro| {
        let forward = |n: usize| recipe.forward(n);
        let inputs = recipe.feeds(&recipe.forward(batch)?.0);
        let engine = train(&forward, &recipe.training(), &request(batch, micro, Grouping::Fused), &inputs)?;
        let expected = reference(&forward, &recipe.training(), batch, micro, &inputs)?;
        for name in kept(&engine) {
            check_close(&name, &expected[&name], &state(&engine, &name)?, 1e-4)?;
        }
        let loss = Tensor::f32([], vec![f64::from(engine.loss()?)])?;
        check_close("loss", &expected["loss"], &loss, 1e-5).map(drop)
    });
}

#[test]
fn the_loss_and_weights_of_a_split_step_are_those_of_the_whole() {
    check_models(Samples::Independent, |recipe, batch, micro| {
        let forward = |n: usize| recipe.forward(n);
        let inputs = recipe.feeds(&recipe.forward(batch)?.0);
        let run = |micro| train(&forward, &recipe.training(), &request(batch, micro, Grouping::Fused), &inputs);
        let (whole, split) = (run(batch)?, run(micro)?);
        for name in kept(&whole) {
            check_close(&name, &state(&whole, &name)?, &state(&split, &name)?, 1e-5)?;
        }
        let loss = |engine: &Engine<CpuExecutor>| Tensor::f32([], vec![f64::from(engine.loss()?)]);
        check_close("loss", &loss(&whole)?, &loss(&split)?, 1e-6).map(drop)
    });
}

#[test]
fn grouping_changes_no_bit_of_a_step_in_micro_batches() {
    check_models(Samples::Together, |recipe, batch, micro| {
        let forward = |n: usize| recipe.forward(n);
        let inputs = recipe.feeds(&recipe.forward(batch)?.0);
        let run = |grouping| train(&forward, &recipe.training(), &request(batch, micro, grouping), &inputs);
        let (fused, single) = (run(Grouping::Fused)?, run(Grouping::Single)?);
        fused
            .plan()
            .states
            .iter()
            .try_for_each(|s| check_same(&s.name, &state(&fused, &s.name)?, &state(&single, &s.name)?))
    });
}

#[test]
fn initial_states_are_those_of_the_reference() {
    let recipe = Recipe { draws: memfit_exec_tests::generate::numbered(1, "initial"), samples: Samples::Together };
    let forward = |n: usize| recipe.forward(n);
    let engine = engine(2, &forward, &recipe.training(), &Request::new(2), Options::default()).unwrap();
    let (_, StepGraph { graph, .. }) = &programs(&forward, &recipe.training(), 2, 2).unwrap()[0];
    for (name, expected) in initial_states(graph, SEED) {
        check_same(&name, &expected, &state(&engine, &name).unwrap()).unwrap();
    }
}
