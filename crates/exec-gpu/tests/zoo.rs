//! Every model of the zoo trains on the GPU and stays close to the CPU; the tightest plan gives the same bits as the fastest,
//! and so does the same plan again.
//!
//! Some states are what rounding leaves (the gradient of a bias that a norm takes away again), and some turn on the sign of a
//! number near zero. How far rounding takes each is measured: the CPU trains again from inputs that differ in their last bits.
#![cfg(feature = "gpu")]

mod common;

use common::gpu;
use memfit_exec::{Clock, Engine, Executor, Options, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::{DType, Graph, TensorType, philox};
use memfit_nn::zoo::Gpt;
use memfit_nn::{Mode, Model, ZooModel};
use memfit_plan::{MicroBatch, Phase, Request, Survey, survey};
use memfit_test_effort::Effort;
use memfit_transform::{Precision, Training, step};

const BATCH: usize = 2;

/// The model with an input small enough for a driver in software, and large enough that no statistics are those of two
/// numbers only: there, small differences of the input become large ones of the output.
fn small(name: &str) -> ZooModel {
    let model = ZooModel::from_name(name).unwrap();
    let sized = |side: usize| model.clone().with_input(&[side, side, 3]).unwrap();
    match name {
        "mlp" | "digits" => model,
        "gpt" => ZooModel::from(Gpt { layers: 2, sequence: 24, vocabulary: 500, ..Gpt::default() }),
        "unet" => sized(32),
        "vit_b16" | "vgg16" => sized(32).with_classes(10).unwrap(),
        _ => sized(64).with_classes(10).unwrap(),
    }
}

/// Numbers for an input: images, masks and features are floats, classes and tokens integers below 10. Samples of them above 0
/// differ in their last bits.
fn numbers(name: &str, ty: &TensorType, sample: u64) -> Vec<u8> {
    let moves = philox::uniform(sample, "moves", ty.elements()).map(move |u| if sample > 0 { u } else { 0.0 });
    let drawn = philox::uniform(11, name, ty.elements());
    match ty.dtype {
        DType::I32 => drawn.flat_map(|u| ((u.abs() * 10.0) as i32).to_ne_bytes()).collect(),
        _ if name == "y" => drawn.flat_map(|u| f32::from(u8::from(u > 0.0)).to_ne_bytes()).collect(),
        _ => drawn.zip(moves).flat_map(|(x, u)| (x + x * u * 4.0 * f32::EPSILON).to_ne_bytes()).collect(),
    }
}

#[derive(Clone, Copy, Default)]
struct How {
    budget: Option<u64>,
    poison: bool,
    /// Of the inputs: see [`numbers`].
    sample: u64,
}

/// The states after three steps: a head that starts at 0 lets no gradient through in the first.
fn train<E: Executor>(executor: E, planned: &Survey, how: &How) -> Vec<(String, Vec<u8>)> {
    let How { budget, poison, sample } = *how;
    let plan = planned.plan(budget).unwrap();
    let graph: Graph = plan.program(Phase::Step).unwrap().graph.clone();
    let mut engine = Engine::new(executor, plan, Options { poison, ..Options::default() }).unwrap();
    engine.init(5).unwrap();
    let given = ["x", "y"].map(|name| {
        let ty = graph.ty(graph.input(name).unwrap());
        (name, ty, numbers(name, ty, sample))
    });
    let views =
        given.each_ref().map(|(name, ty, bytes)| (*name, TensorView { dtype: ty.dtype, shape: &ty.shape, bytes }));
    for step in 0..3 {
        engine.step(&views, 0.001, Clock { step, seed: 1 }).unwrap();
    }
    assert!(engine.loss().unwrap().is_finite(), "the loss is {}", engine.loss().unwrap());
    let names: Vec<String> = engine.plan().states.iter().map(|s| s.name.clone()).collect();
    names.into_iter().map(|n| (n.clone(), engine.read_state(&n).unwrap())).collect()
}

fn plans<'a, E: Executor>(executor: &'a E, model: &'a ZooModel, training: &'a Training) -> Survey<'a> {
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(BATCH) };
    let source = move |batch: usize| {
        let forward = model.build(batch, Mode::Train)?;
        Ok(vec![(Phase::Step, step(&forward.graph, forward.loss, training)?)])
    };
    survey(source, executor.target(), &request).unwrap()
}

/// A name and its bytes.
type State = (String, Vec<u8>);

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_ne_bytes(b)).collect()
}

/// The largest difference of two states; NaN if there is one.
fn difference(a: &[u8], b: &[u8]) -> f32 {
    let pairs = floats(a).into_iter().zip(floats(b));
    pairs.fold(0f32, |m, (a, b)| if (a - b).abs() <= m { m } else { (a - b).abs() })
}

/// By state: its name, what it should be, and how far from that it may be.
fn expected(model: &ZooModel, training: &Training) -> Vec<(String, Vec<u8>, f32)> {
    let cpu = CpuExecutor::new(2).unwrap();
    let planned = plans(&cpu, model, training);
    let [exact, moved, moved_again] =
        [0, 1, 2].map(|sample| train(cpu.clone(), &planned, &How { sample, ..How::default() }));
    let states = exact.into_iter().zip(moved.into_iter().zip(moved_again));
    let allowed = |((name, exact), (a, b)): (State, (State, State))| {
        let largest = floats(&exact).iter().fold(0f32, |m, x| m.max(x.abs()));
        let rounding = difference(&exact, &a.1).max(difference(&exact, &b.1));
        (name, exact, 1e-3 * largest + 4.0 * rounding)
    };
    states.map(allowed).collect()
}

/// Trained without full effort too: one of each kind.
const CROSS_SECTION: [&str; 5] = ["mlp", "digits", "mobilenet_v3_small", "unet", "gpt"];

fn check(name: &str) {
    if !CROSS_SECTION.contains(&name) && Effort::from_env() != Effort::Full {
        return;
    }
    let Some(executor) = gpu() else { return };
    let update = memfit_ir::op::Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    let training = Training { precision: Precision::F32, ..Training::new(update) };
    let model = small(name);
    let expected = expected(&model, &training);
    let known = executor.gpu().compiled().len();
    let planned = plans(&executor, &model, &training);
    let points = planned.frontier();
    let smallest = points[points.len() - 1].arena_bytes;
    let fastest = train(executor.clone(), &planned, &How::default());
    let compiled = executor.gpu().compiled();
    let seconds: f64 = compiled[known..].iter().map(|(_, time)| time.as_secs_f64()).sum();
    println!("{name}: {} shaders more, compiled in {seconds:.1} s", compiled.len() - known);
    let mut worst = (0f32, "");
    for ((name, exact, allowed), (_, given)) in expected.iter().zip(&fastest) {
        let share = difference(exact, given) / allowed;
        assert!(share <= 1.0 || *allowed == 0.0 && exact == given, "{name} is {share} times as far off as it may be");
        worst = if share > worst.0 { (share, name) } else { worst };
    }
    println!("{name}: {} goes furthest, {:.2} of the way that it may", worst.1, worst.0);
    let poisoned = How { poison: true, ..How::default() };
    for (way, how) in [("again", poisoned), ("the tightest plan", How { budget: Some(smallest), ..poisoned })] {
        let again = train(executor.clone(), &planned, &how);
        for (a, b) in fastest.iter().zip(&again) {
            assert!(a == b, "{} has other bits: {way}", a.0);
        }
    }
}

macro_rules! zoo {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn no_model_is_forgotten() {
            assert_eq!(ZooModel::names().collect::<Vec<_>>(), [$(stringify!($name)),*]);
        }
    };
}

zoo!(
    mlp,
    digits,
    vgg16,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    mobilenet_v3_small,
    mobilenet_v3_large,
    efficientnet_b0,
    unet,
    vit_b16,
    gpt
);
