//! The models of the zoo, small enough that any executor trains them in a test, and their training, step by step.

use memfit_exec::{Clock, Engine, Executor, Options, TensorView};
use memfit_ir::op::Update;
use memfit_ir::{Graph, philox};
use memfit_nn::zoo::Gpt;
use memfit_nn::{Mode, Model, ZooModel};
use memfit_plan::{MicroBatch, Phase, Plan, Request, Survey, Target, survey};
use memfit_transform::{Precision, Training, step};

use crate::batch::Batch;
use crate::error::Result;

/// A test for each model of the zoo, which gives its name to a function.
#[macro_export]
macro_rules! each_zoo_model {
    ($check:path) => {
        $crate::each_zoo_model! {
            $check; mlp, digits, vgg16, resnet18, resnet34, resnet50, resnet101, mobilenet_v3_small,
            mobilenet_v3_large, efficientnet_b0, unet, vit_b16, gpt
        }
    };
    ($check:path; $($name:ident),*) => {
        $(#[test]
        fn $name() {
            $check(stringify!($name));
        })*

        #[test]
        fn no_model_is_forgotten() {
            $crate::zoo::check_names(&[$(stringify!($name)),*]);
        }
    };
}

/// That a list has all models.
pub fn check_names(names: &[&str]) {
    assert_eq!(ZooModel::names().collect::<Vec<_>>(), names);
}

/// The model with an input small enough for a test, and large enough that no statistics are those of two numbers only: there,
/// small differences of the input become large ones of the output.
pub fn small(name: &str) -> ZooModel {
    let model = ZooModel::from_name(name).expect("a model of the zoo");
    let sized = |side: usize| model.clone().with_input(&[side, side, 3]).expect("it takes images");
    let classes = |model: ZooModel| model.with_classes(10).expect("it has classes");
    match name {
        "mlp" | "digits" => model,
        "gpt" => ZooModel::from(Gpt { layers: 2, sequence: 24, vocabulary: 500, ..Gpt::default() }),
        "unet" => sized(32),
        "vit_b16" | "vgg16" => classes(sized(32)),
        _ => classes(sized(64)),
    }
}

/// With momentum, so that the gradients of a step are a state too.
pub fn training(precision: Precision) -> Training {
    Training { precision, ..Training::new(Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 }) }
}

/// The plans of a model's step in one piece.
pub fn plans<'a>(
    model: &'a ZooModel,
    training: &'a Training,
    target: &'a dyn Target,
    batch: usize,
) -> Result<Survey<'a>> {
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
    let source = move |batch: usize| {
        let forward = model.build(batch, Mode::Train)?;
        Ok(vec![(Phase::Step, step(&forward.graph, forward.loss, training)?)])
    };
    Ok(survey(source, target, &request)?)
}

/// A name and its bytes.
pub type State = (String, Vec<u8>);

/// A training: always the same batch, from the same initial states.
pub struct Trainee<E: Executor> {
    engine: Engine<E>,
    batch: Batch,
    step: u32,
}

impl<E: Executor> Trainee<E> {
    pub fn new(executor: E, plan: Plan, options: Options) -> Result<Trainee<E>> {
        let graph: &Graph = &plan.program(Phase::Step).expect("it was planned as a step").graph;
        let rows = graph.ty(graph.input("x").expect("models have x")).shape[0];
        let batch = Batch::of_zoo(graph, rows, 11);
        let mut engine = Engine::new(executor, plan, options)?;
        engine.init(5)?;
        Ok(Trainee { engine, batch, step: 0 })
    }

    pub fn engine(&self) -> &Engine<E> {
        &self.engine
    }

    pub fn step(&mut self) -> Result<()> {
        self.engine.step(&self.batch.views(), 0.001, Clock { step: self.step, seed: 1 })?;
        self.step += 1;
        let loss = self.engine.loss()?;
        assert!(loss.is_finite(), "the loss is {loss}");
        Ok(())
    }

    /// All states after three steps: a head that starts at 0 lets no gradient through in the first.
    pub fn train(mut self) -> Result<Vec<State>> {
        (0..3).try_for_each(|_| self.step())?;
        self.states()
    }

    pub fn states(&self) -> Result<Vec<State>> {
        let names = self.engine.plan().states.iter().map(|s| s.name.clone());
        names.map(|name| Ok((name.clone(), self.engine.read_state(&name)?))).collect()
    }

    /// Goes on from other states: those before this step.
    pub fn set_states(&mut self, step: u32, states: &[State]) -> Result<()> {
        self.step = step;
        for (name, bytes) in states {
            let ty = self.engine.state(name)?.ty.clone();
            self.engine.write_state(name, TensorView { dtype: ty.dtype, shape: &ty.shape, bytes })?;
        }
        Ok(())
    }
}

/// The residual branches of a resnet count for a fifth: initial states from which a step of a hundred layers says something. With
/// scales of 1, last bits of the states of resnet50 move a gradient by a thousandth, and of resnet101 by a hundredth of its
/// largest number (the medians of all); with these by 1e-5. Other models stay as they are.
pub fn calmed(mut states: Vec<State>) -> Vec<State> {
    let last_of_three = |name: &str| name.strip_suffix("/bn3/scale").map(String::from);
    let bottlenecks: Vec<String> = states.iter().filter_map(|(name, _)| last_of_three(name)).collect();
    for (name, bytes) in states.iter_mut().filter(|(name, _)| name.starts_with("layer")) {
        let last_of_two = name.strip_suffix("/bn2/scale").filter(|block| !bottlenecks.iter().any(|b| b == block));
        if last_of_two.is_some() || last_of_three(name).is_some() {
            *bytes = floats(bytes).flat_map(|x| (0.2 * x).to_ne_bytes()).collect();
        }
    }
    states
}

/// States that differ from these in their last bits.
pub fn moved(states: &[State], seed: u64) -> Vec<State> {
    let moved = |(name, bytes): &State| {
        let by = philox::uniform(seed, name, bytes.len() / 4);
        let numbers = floats(bytes).zip(by);
        (name.clone(), numbers.flat_map(|(x, u)| (x + x * u * 4.0 * f32::EPSILON).to_ne_bytes()).collect())
    };
    states.iter().map(moved).collect()
}

/// The numbers of a state.
pub fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_ne_bytes(b))
}

/// The largest difference of two states; NaN if there is one.
pub fn difference(a: &[u8], b: &[u8]) -> f32 {
    floats(a).zip(floats(b)).fold(0f32, |m, (a, b)| if (a - b).abs() <= m { m } else { (a - b).abs() })
}
