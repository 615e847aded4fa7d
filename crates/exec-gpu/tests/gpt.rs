//! A small GPT trains on the GPU as it does on the CPU; the tightest plan gives the same bits as the fastest.
#![cfg(feature = "gpu")]

mod common;

use common::gpu;
use memfit_exec::{Clock, Engine, Executor, Options, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Tensor, check_close};
use memfit_ir::op::Update;
use memfit_ir::philox;
use memfit_nn::zoo::Gpt;
use memfit_nn::{Mode, Model};
use memfit_plan::{MicroBatch, Phase, Programs, Request, plan, survey};
use memfit_transform::{Half, Precision, Training, step};

const BATCH: usize = 2;
const STEPS: u32 = 3;

/// Two tiles of positions, the second with little in it, and a head dim that fills no register tile.
fn model() -> Gpt {
    Gpt { layers: 2, width: 72, heads: 3, sequence: 70, vocabulary: 50 }
}

fn training(precision: Precision) -> Training {
    Training { precision, ..Training::new(Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 }) }
}

fn source(training: &Training) -> impl Fn(usize) -> Programs {
    move |batch| {
        let forward = model().build(batch, Mode::Train)?;
        Ok(vec![(Phase::Step, step(&forward.graph, forward.loss, training)?)])
    }
}

fn request(budget: Option<u64>) -> Request {
    Request { budget, micro_batch: MicroBatch::Off, ..Request::new(BATCH) }
}

/// The loss and all states after a few steps in poisoned memory.
fn train<E: Executor>(executor: E, precision: Precision, budget: Option<u64>) -> (f32, Vec<(String, Tensor)>) {
    let training = training(precision);
    let plan = plan(&source(&training), executor.target(), &request(budget)).unwrap();
    let mut engine = Engine::new(executor, plan, Options { poison: true, ..Options::default() }).unwrap();
    engine.init(5).unwrap();
    let tokens = |name: &str| -> Vec<u8> {
        let drawn = philox::uniform(11, name, BATCH * model().sequence);
        drawn.flat_map(|u| ((u.abs() * model().vocabulary as f32) as i32).to_ne_bytes()).collect()
    };
    let (x, y) = (tokens("x"), tokens("y"));
    let shape = [BATCH, model().sequence];
    let view = |bytes| TensorView { dtype: memfit_ir::DType::I32, shape: &shape, bytes };
    for step in 0..STEPS {
        engine.step(&[("x", view(&x)), ("y", view(&y))], 0.01, Clock { step, seed: 1 }).unwrap();
    }
    let states = engine.plan().states.iter().map(|s| {
        let bytes = engine.read_state(&s.name).unwrap();
        (s.name.clone(), Tensor::from_bytes(&engine.state(&s.name).unwrap().ty, &bytes).unwrap())
    });
    (engine.loss().unwrap(), states.collect())
}

fn check(precision: Precision, tolerance: f64) {
    let Some(gpu) = gpu() else { return };
    let (cpu_loss, expected) = train(CpuExecutor::new(2).unwrap(), precision, None);
    let (loss, fastest) = train(gpu.clone(), precision, None);
    assert!((loss - cpu_loss).abs() <= tolerance as f32 * cpu_loss, "{loss} and {cpu_loss}");
    for ((name, e), (_, g)) in expected.iter().zip(&fastest) {
        check_close(name, e, g, tolerance).unwrap();
    }
    let training = training(precision);
    let points = survey(source(&training), gpu.target(), &request(None)).unwrap().frontier();
    let smallest = points.last().expect("a plan").device_bytes();
    let (_, tightest) = train(gpu, precision, Some(smallest));
    assert!(fastest == tightest, "the tightest plan gives other bits");
}

#[test]
fn in_32_bits() {
    check(Precision::F32, 1e-3);
}

#[test]
fn mixed_with_bf16() {
    check(Precision::Mixed(Half::Bf16), 2e-2);
}

#[test]
fn mixed_with_f16() {
    check(Precision::Mixed(Half::F16), 2e-2);
}
