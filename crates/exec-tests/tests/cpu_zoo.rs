//! Every model of the zoo trains on the CPU, with poison: what is read after its planned death shows as a NaN.

mod common;

use std::hash::{DefaultHasher, Hasher};

use common::{engine, sgd, zoo_batch};
use memfit_exec::{Clock, Engine, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::op::StateClass;
use memfit_nn::zoo::Gpt;
use memfit_nn::{Mode, Model};
use memfit_plan::{Phase, Request};
use memfit_transform::{Half, Precision, Training};

const BATCH: usize = 2;

/// The model with an input small enough for a test.
fn small(name: &str) -> Model {
    let model = Model::from_name(name).unwrap();
    let classes = |m: Model| m.with_classes(10).unwrap();
    match name {
        "mlp" | "digits" => model,
        "gpt" => Model::Gpt(Gpt { layers: 2, sequence: 24, vocabulary: 500, ..Gpt::default() }),
        "unet" => model.with_input(&[32, 32, 3]).unwrap(),
        "vit_b16" | "vgg16" => classes(model.with_input(&[32, 32, 3]).unwrap()),
        "mobilenet_v3_small" | "mobilenet_v3_large" | "efficientnet_b0" => {
            classes(model.with_input(&[64, 64, 3]).unwrap())
        }
        _ => classes(model.with_input(&[32, 32, 3]).unwrap()),
    }
}

fn fingerprint(engine: &Engine<CpuExecutor>, state: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&engine.read_state(state).unwrap());
    hasher.finish()
}

fn trains(name: &str) {
    [Precision::F32, Precision::Mixed(Half::Bf16)].into_iter().for_each(|precision| trains_in(name, precision));
}

fn trains_in(name: &str, precision: Precision) {
    let model = small(name);
    let forward = |batch: usize| {
        let forward = model.build(batch, Mode::Train).unwrap();
        Ok((forward.graph, forward.loss))
    };
    let options = Options { poison: true, ..Options::default() };
    let mut engine = engine(2, &forward, &Training { precision, ..sgd(0.9) }, &Request::new(BATCH), options).unwrap();
    let params: Vec<String> =
        engine.plan().states.iter().filter(|s| s.class != StateClass::Accumulator).map(|s| s.name.clone()).collect();
    let before: Vec<u64> = params.iter().map(|p| fingerprint(&engine, p)).collect();

    let batch = zoo_batch(&engine.plan().program(Phase::Step).unwrap().graph, BATCH, 11);
    // Two steps, because a head that starts at 0 lets no gradient through in the first.
    for step in 0..2 {
        engine.step(&batch.views(), 0.01, Clock { step, seed: 1 }).unwrap();
    }

    assert!(engine.loss().unwrap().is_finite(), "the loss is {}", engine.loss().unwrap());
    for (state, before) in params.iter().zip(before) {
        let bytes = engine.read_state(state).unwrap();
        let finite = bytes.as_chunks::<4>().0.iter().all(|&b| f32::from_ne_bytes(b).is_finite());
        assert!(finite, "{state} is not finite");
        assert_ne!(fingerprint(&engine, state), before, "{state} has not changed");
    }
}

macro_rules! zoo {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            trains(stringify!($name));
        })*

        #[test]
        fn no_model_is_forgotten() {
            assert_eq!(Model::names().collect::<Vec<_>>(), [$(stringify!($name)),*]);
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
