//! Mixed precision on the CPU: training learns as in f32, evaluation sees what training sees, and with f16 a step that
//! overflows leaves no trace but in the scale and its counts.

use crate::common;

use common::{engine, sgd};
use memfit_exec::{Clock, Engine, ExecError, Options, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Batch, Result, Tensor};
use memfit_ir::op::{Init, StateClass, Update};
use memfit_ir::{Builder, TensorType, philox};
use memfit_nn::zoo::{Digits, Gpt};
use memfit_nn::{Mode, Model, ZooModel};
use memfit_plan::{MicroBatch, Phase, Request, plan};
use memfit_transform::{Half, Precision, Training, forward_in, step};

const BF16: Precision = Precision::Mixed(Half::Bf16);
const F16: Precision = Precision::Mixed(Half::F16);
const SCALE: &str = "optimizer/loss_scale";
const GOOD: &str = "optimizer/good_steps";
const SKIPPED: &str = "optimizer/skipped_steps";
const BATCH: usize = 8;

fn digits() -> ZooModel {
    ZooModel::from(Digits { dropout: 0.0, ..Digits::default() })
}

fn gpt() -> ZooModel {
    ZooModel::from(Gpt { layers: 2, width: 48, heads: 3, sequence: 33, vocabulary: 60 })
}

fn adam(precision: Precision) -> Training {
    let update = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
    Training { precision, ..Training::new(update) }
}

fn trainer(model: &ZooModel, training: &Training, micro_batch: usize) -> Engine<CpuExecutor> {
    let forward = |batch: usize| {
        let forward = model.build(batch, Mode::Train).unwrap();
        Ok((forward.graph, forward.loss))
    };
    let options = Options { poison: true, ..Options::default() };
    engine(
        2,
        &forward,
        training,
        &Request { micro_batch: MicroBatch::Exactly(micro_batch), ..Request::new(BATCH) },
        options,
    )
    .unwrap()
}

fn batch_for(engine: &Engine<CpuExecutor>, seed: u64) -> Batch {
    Batch::of_zoo(&engine.plan().programs[0].graph, BATCH, seed)
}

fn go(engine: &mut Engine<CpuExecutor>, batch: &Batch, number: u32, rate: f32) -> Result<f32, ExecError> {
    engine.step(&batch.views(), rate, Clock { step: number, seed: 3 })?;
    engine.loss()
}

fn scalar(engine: &Engine<CpuExecutor>, name: &str) -> f32 {
    f32::from_ne_bytes(engine.read_state(name).unwrap()[..4].try_into().unwrap())
}

fn set_scale(engine: &mut Engine<CpuExecutor>, scale: f32) {
    engine.write_state(SCALE, TensorView::f32(&[], &[scale])).unwrap();
}

fn skipped(engine: &Engine<CpuExecutor>) -> Vec<i32> {
    engine.read_state(SKIPPED).unwrap().as_chunks::<4>().0.iter().map(|&b| i32::from_ne_bytes(b)).collect()
}

/// The bits of every state that a skipped step may not touch.
fn kept(engine: &Engine<CpuExecutor>) -> Vec<(String, Vec<u8>)> {
    let own = |name: &str| [SCALE, GOOD, SKIPPED].contains(&name);
    let states = engine.plan().states.iter().filter(|s| s.class != StateClass::Accumulator && !own(&s.name));
    states.map(|s| (s.name.clone(), engine.read_state(&s.name).unwrap())).collect()
}

// ---- learning --------------------------------------------------------------------------------------------------------

/// Losses of a training on three batches in turn.
fn losses(model: &ZooModel, training: &Training, steps: u32) -> Vec<f32> {
    let mut engine = trainer(model, training, BATCH);
    let batches = [0, 1, 2].map(|seed| batch_for(&engine, seed));
    (0..steps).map(|i| go(&mut engine, &batches[i as usize % 3], i, 1e-3).unwrap()).collect()
}

#[test]
fn mixed_precision_learns_as_f32_does() {
    let steps = memfit_test_effort::size(40, 60);
    for model in [digits(), gpt()] {
        let mean = |l: &[f32]| l[l.len() - 3..].iter().sum::<f32>() / 3.0;
        let exact = losses(&model, &adam(Precision::F32), steps);
        assert!(mean(&exact) < 0.8 * exact[0], "f32 does not learn: {exact:?}");
        for precision in [BF16, F16] {
            let mixed = losses(&model, &adam(precision), steps);
            let name = precision.name();
            assert_ne!(mixed, exact, "{name} does not round");
            assert!((mixed[0] / exact[0] - 1.0).abs() < 0.01, "{name} starts at {} and not {}", mixed[0], exact[0]);
            let close = (mean(&mixed) - mean(&exact)).abs() < 0.05 * exact[0];
            assert!(close, "{name} ends at {} and f32 at {}", mean(&mixed), mean(&exact));
        }
    }
}

#[test]
fn evaluation_rounds_as_training_does() {
    // A GPT has neither batch norm nor dropout: its forward graph is the same in both modes.
    for precision in [BF16, F16] {
        let source = |batch: usize| {
            let (train, eval) = (gpt().build(batch, Mode::Train)?, gpt().build(batch, Mode::Eval)?);
            let step = step(&train.graph, train.loss, &adam(precision))?;
            Ok(vec![(Phase::Step, step), (Phase::Eval, forward_in(&eval.graph, precision)?.into())])
        };
        let executor = CpuExecutor::new(2).unwrap();
        let plan = plan(&source, &executor, &Request::new(BATCH)).unwrap();
        let mut engine = Engine::new(executor, plan, Options::default()).unwrap();
        engine.init(1).unwrap();
        let batch = batch_for(&engine, 1);
        engine.run(Phase::Eval, &batch.views(), 0.0, Clock::default()).unwrap();
        let eval = engine.output(Phase::Eval, "logits").unwrap();
        go(&mut engine, &batch, 0, 1e-3).unwrap();
        let train = engine.output(Phase::Step, "logits").unwrap();
        assert!(eval == train, "{}", precision.name());
        let unlike = eval.as_chunks::<4>().0.iter().filter(|b| f32::from_ne_bytes(**b) != 0.0).count();
        assert!(unlike > 0);
    }
}

#[test]
fn mixed_precision_takes_less_memory() {
    for model in [
        ZooModel::from_name("resnet18").unwrap().with_input(&[32, 32, 3]).unwrap(),
        ZooModel::from_name("gpt").unwrap(),
    ] {
        let plan = |precision| trainer(&model, &Training { precision, ..sgd(0.9) }, BATCH).plan().clone();
        let [exact, mixed, mixed_f16] = Precision::ALL.map(plan);
        assert!(mixed.transient_bytes < exact.transient_bytes);
        // No parameter is updated before it is known that no gradient has overflowed: all of them stand together.
        let params = mixed_f16.states.iter().filter(|s| s.class == StateClass::Param);
        let gradients: u64 = params.map(|s| s.place.size).sum();
        assert!(mixed_f16.transient_bytes < exact.transient_bytes + gradients);
    }
}

// ---- overflow --------------------------------------------------------------------------------------------------------

#[test]
fn steps_that_overflow_are_skipped_to_the_bit() {
    for (model, micro) in [(digits(), BATCH), (gpt(), BATCH), (digits(), 4), (gpt(), 2)] {
        let mut engine = trainer(&model, &adam(F16), micro);
        set_scale(&mut engine, 2f32.powi(40));
        let before = kept(&engine);
        let batch = batch_for(&engine, 1);
        let (mut number, mut scale, mut first) = (0, 2f32.powi(40), None);
        while kept(&engine) == before {
            let loss = go(&mut engine, &batch, number, 1e-3).unwrap();
            // The loss that a person sees is not scaled, and does not move while nothing is learnt.
            assert_eq!(*first.get_or_insert(loss), loss);
            assert!((0.1..10.0).contains(&loss), "{loss}");
            if kept(&engine) == before {
                scale /= 2.0;
                assert_eq!((scalar(&engine, SCALE), scalar(&engine, GOOD)), (scale, 0.0));
                assert_eq!(skipped(&engine), [number as i32 + 1, 0, 0, 0]);
            }
            number += 1;
            assert!(number < 40, "the scale is {scale}, and still every step is skipped");
        }
        assert!(number > 3, "too few steps overflowed to say anything");
        assert_eq!((scalar(&engine, SCALE), scalar(&engine, GOOD)), (scale, 1.0));
        // Whatever was skipped has not happened: a training that starts at this scale arrives at the same bits.
        let mut fresh = trainer(&model, &adam(F16), micro);
        set_scale(&mut fresh, scale);
        go(&mut fresh, &batch, 0, 1e-3).unwrap();
        assert!(kept(&fresh) == kept(&engine), "{number} skipped steps changed the next");
        // And it goes on.
        let last = (0..30).map(|i| go(&mut engine, &batch, number + i, 1e-3).unwrap()).last().unwrap();
        assert!(last < 0.9 * first.unwrap(), "the loss fell from {first:?} to {last} only");
    }
}

/// A batch with one sample so large that its activations overflow.
fn poisoned(at: usize) -> Batch {
    let x = TensorType::f32([BATCH, 8, 8, 1]);
    let mut pixels: Vec<f64> = philox::uniform(1, "x", x.elements()).map(f64::from).collect();
    pixels[at * 64..][..64].iter_mut().for_each(|p| *p *= 1e6);
    let y = Tensor::i32([BATCH], &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    Batch::new([("x".to_string(), Tensor { ty: x, data: pixels }), ("y".to_string(), y)])
}

#[test]
fn one_micro_batch_that_overflows_skips_the_whole_step() {
    let mut engine = trainer(&digits(), &adam(F16), 2);
    let good = batch_for(&engine, 1);
    go(&mut engine, &good, 0, 1e-3).unwrap();
    for (i, at) in [0, 3, 7].into_iter().enumerate() {
        let before = kept(&engine);
        assert!(before.iter().any(|(name, _)| name.ends_with("bn/mean")), "running statistics are among the states");
        let number = 1 + 2 * i as u32;
        engine.step(&poisoned(at).views(), 1e-3, Clock { step: number, seed: 3 }).unwrap();
        assert!(kept(&engine) == before, "an overflow in sample {at} changed something");
        assert_eq!(skipped(&engine)[0], i as i32 + 1);
        let loss = go(&mut engine, &good, number + 1, 1e-3).unwrap();
        assert!(loss.is_finite() && kept(&engine) != before);
    }
    assert_eq!(scalar(&engine, SCALE), 65536.0 / 8.0);
}

#[test]
fn the_scale_grows_after_enough_good_steps() {
    let mut engine = trainer(&digits(), &adam(F16), BATCH);
    let batch = batch_for(&engine, 1);
    engine.write_state(GOOD, TensorView::f32(&[], &[1998.0])).unwrap();
    for (number, expected) in [(65536.0, 1999.0), (131072.0, 0.0), (131072.0, 1.0)].into_iter().enumerate() {
        go(&mut engine, &batch, number as u32, 1e-3).unwrap();
        assert_eq!((scalar(&engine, SCALE), scalar(&engine, GOOD)), expected);
    }
}

/// A scale that is infinite or 0 would never come back.
#[test]
fn the_scale_stays_in_its_bounds() {
    // A loss so small that nothing overflows.
    let forward = |batch: usize| {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([batch, 3]))?;
        let w = b.param("w", [3, 2], Init::Constant(1.0))?;
        let y = b.matmul(x, w)?;
        let mean = b.mean(y)?;
        let loss = b.scale(mean, 1e-6)?;
        Ok((b.finish(), loss))
    };
    let mut engine = engine(1, &forward, &adam(F16), &Request::new(2), Options::default()).unwrap();
    let batch = |x: f64| Batch::new([("x".to_string(), Tensor::filled(&TensorType::f32([2, 3]), x))]);
    for (x, scale, expected) in [(1.0, 2f32.powi(24), 2f32.powi(24)), (f64::INFINITY, 2f32.powi(-24), 2f32.powi(-24))] {
        set_scale(&mut engine, scale);
        engine.write_state(GOOD, TensorView::f32(&[], &[1999.0])).unwrap();
        engine.step(&batch(x).views(), 1e-3, Clock::default()).unwrap();
        assert_eq!((scalar(&engine, SCALE), scalar(&engine, GOOD)), (expected, 0.0));
    }
}
