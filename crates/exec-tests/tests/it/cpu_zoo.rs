//! Every model of the zoo trains on the CPU, with poison: what is read after its planned death shows as a NaN. The
//! tightest plan, on one thread, gives the same bits as the fastest on two.

use crate::common;

use common::{engine, sgd, zoo_batch};
use memfit_exec::{Clock, Engine, Executor, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_nn::zoo::Gpt;
use memfit_nn::{Mode, Model, ZooModel};
use memfit_plan::{MicroBatch, Phase, Plan, PlanError, Request, survey};
use memfit_test_effort::Effort;
use memfit_transform::{Half, Precision, Training, step};

const BATCH: usize = 2;

/// The model with an input small enough for a test.
fn small(name: &str) -> ZooModel {
    let model = ZooModel::from_name(name).unwrap();
    let classes = |m: ZooModel| m.with_classes(10).unwrap();
    match name {
        "mlp" | "digits" => model,
        "gpt" => ZooModel::from(Gpt { layers: 2, sequence: 24, vocabulary: 500, ..Gpt::default() }),
        "unet" => model.with_input(&[32, 32, 3]).unwrap(),
        "vit_b16" | "vgg16" => classes(model.with_input(&[32, 32, 3]).unwrap()),
        "mobilenet_v3_small" | "mobilenet_v3_large" | "efficientnet_b0" => {
            classes(model.with_input(&[64, 64, 3]).unwrap())
        }
        _ => classes(model.with_input(&[32, 32, 3]).unwrap()),
    }
}

/// The states after three steps under poison, and the plan. Three, because a head that starts at 0 lets no gradient
/// through in the first.
fn train(name: &str, training: &Training, threads: usize, budget: Option<u64>) -> (Vec<(String, Vec<u8>)>, Plan) {
    let model = small(name);
    let forward = |batch: usize| {
        let forward = model.build(batch, Mode::Train).unwrap();
        Ok((forward.graph, forward.loss))
    };
    let options = Options { poison: true, ..Options::default() };
    let request = Request { budget, micro_batch: MicroBatch::Off, ..Request::new(BATCH) };
    let mut engine = engine(threads, &forward, training, &request, options).unwrap();
    let names: Vec<String> = engine.plan().states.iter().map(|s| s.name.clone()).collect();
    let states = |engine: &Engine<CpuExecutor>| -> Vec<(String, Vec<u8>)> {
        names.iter().map(|n| (n.clone(), engine.read_state(n).unwrap())).collect()
    };
    let before = states(&engine);
    let batch = zoo_batch(&engine.plan().program(Phase::Step).unwrap().graph, BATCH, 11);
    for step in 0..3 {
        engine.step(&batch.views(), 0.01, Clock { step, seed: 1 }).unwrap();
    }
    assert!(engine.loss().unwrap().is_finite(), "the loss is {}", engine.loss().unwrap());
    let after = states(&engine);
    for ((name, bytes), before) in after.iter().zip(before) {
        let finite = bytes.as_chunks::<4>().0.iter().all(|&b| f32::from_ne_bytes(b).is_finite());
        assert!(finite, "{name} is not finite");
        assert_ne!(bytes, &before.1, "{name} has not changed");
    }
    (after, engine.plan().clone())
}

/// The plans of a model for every budget: smaller ones are slower, the smallest gives the same bits as the fastest, and
/// below it there is a refusal that claims no more than is proved.
fn check(name: &str, precision: Precision) {
    let training = Training { precision, ..sgd(0.9) };
    let model = small(name);
    let executor = CpuExecutor::new(1).unwrap();
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(BATCH) };
    let source = |batch: usize| {
        let forward = model.build(batch, Mode::Train)?;
        Ok(vec![(Phase::Step, step(&forward.graph, forward.loss, &training)?)])
    };
    let survey = survey(source, executor.target(), &request).unwrap();
    let points = survey.frontier();
    for pair in points.windows(2) {
        assert!(pair[0].arena_bytes > pair[1].arena_bytes && pair[0].seconds < pair[1].seconds, "{pair:?}");
    }
    let smallest = points[points.len() - 1].arena_bytes;
    assert!(survey.lower_bound_bytes() <= smallest, "the bound is above a plan");
    for point in &points {
        let plan = survey.plan(Some(point.arena_bytes)).unwrap();
        assert_eq!(plan.arena_bytes(), point.arena_bytes);
        assert!(plan.peak_bytes <= plan.arena_bytes());
        assert!(
            plan.arena_bytes() as f64 <= 1.01 * plan.peak_bytes as f64,
            "{} of {}",
            plan.arena_bytes(),
            plan.peak_bytes
        );
        let between = survey.plan(Some(point.arena_bytes + 1)).unwrap();
        assert_eq!(between, plan, "a byte more changes nothing");
    }
    let refused = survey.plan(Some(smallest - 1)).unwrap_err();
    let PlanError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.needed, smallest);
    assert_eq!(refusal.is_proved(), smallest - 1 < survey.lower_bound_bytes());
    assert!(!refusal.largest.is_empty() && refusal.largest.len() <= 10);

    let (fastest, _) = train(name, &training, 2, None);
    let (tightest, plan) = train(name, &training, 1, Some(smallest));
    assert_eq!(plan.arena_bytes(), smallest, "planning is reproducible");
    for (a, b) in fastest.iter().zip(&tightest) {
        assert!(a == b, "{} differs under the tightest plan", a.0);
    }
}

macro_rules! zoo {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), Precision::F32);
            if Effort::from_env() != Effort::Short {
                check(stringify!($name), Precision::Mixed(Half::Bf16));
            }
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
