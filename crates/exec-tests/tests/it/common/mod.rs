//! What the tests of the CPU share: one example in every way that must not matter, and whole trainings.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use memfit_exec::{Engine, Executor, Options, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_cpu::isa::{ISA_VARIABLE, Isa};
use memfit_exec_tests::generate::Example;
use memfit_exec_tests::{Expected, Planned, Result, RunResult, Runner, Settings, Tensor, Watched, check_same};
use memfit_ir::op::{CLOCK, LEARNING_RATE, Update};
use memfit_ir::{DType, Graph, TensorType, ValueId, philox};
use memfit_plan::{Phase, Request, plan};
use memfit_transform::{Grouping, StepGraph, Training, split_step, step};
use proptest::test_runner::{Config, RngSeed};

/// Reproducible, so that a change that breaks nothing fails nothing. `MEMFIT_TEST_EFFORT`, `PROPTEST_RNG_SEED` and
/// `PROPTEST_CASES` look further.
pub fn config(cases: u32) -> Config {
    let usual = Config::default();
    let seed = if usual.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { usual.rng_seed };
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { usual.cases } else { memfit_test_effort::cases(cases) };
    Config { rng_seed: seed, cases, failure_persistence: None, ..usual }
}

/// All that the machine has; where one was chosen, that one, because the others are tested without the choice.
pub fn isas() -> Vec<Isa> {
    if std::env::var_os(ISA_VARIABLE).is_some() { vec![Isa::chosen().unwrap()] } else { Isa::available() }
}

/// What is the same bits for the same instruction set.
const WAYS: [(usize, Settings); 5] = [
    (2, Settings { grouping: Grouping::Fused, poison: false, squeeze: 50 }),
    (3, Settings { grouping: Grouping::Fused, poison: true, squeeze: 0 }),
    (2, Settings { grouping: Grouping::Fused, poison: true, squeeze: 100 }),
    (1, Settings { grouping: Grouping::Single, poison: true, squeeze: 100 }),
    (2, Settings { grouping: Grouping::Single, poison: false, squeeze: 0 }),
];

pub fn cpu(threads: usize, isa: Isa, settings: Settings) -> impl Runner {
    Planned::new(move || CpuExecutor::with_isa(threads, isa), settings)
}

/// Close to the reference with every instruction set; the same bits again, on any number of threads, in groups or
/// alone, with poison, in the memory of the fastest plan or of the smallest, and whatever lay where the results go. No kernel writes anywhere else.
pub fn check_everywhere(example: &Example) -> Result<()> {
    let Example { graph, forward_end, inputs, states, .. } = example;
    let step = &StepGraph { graph: graph.clone(), forward_end: *forward_end };
    let expected = Expected::new(graph, inputs, states)?;
    for isa in isas() {
        let mut plain = cpu(1, isa, Settings::default());
        let first = plain.run_step(step, inputs, states)?;
        expected.check(&first)?;
        same("the second run", &first, &plain.run_step(step, inputs, states)?)?;
        let mut watched = Planned::new(|| Ok(Watched(CpuExecutor::with_isa(2, isa)?)), Settings::default());
        same("watched", &first, &watched.run_step(step, inputs, states)?)?;
        for (threads, settings) in WAYS {
            let way = format!("{} threads, {settings:?}, {}", threads, isa.name());
            same(&way, &first, &cpu(threads, isa, settings).run_step(step, inputs, states)?)?;
        }
    }
    Ok(())
}

pub fn same(way: &str, expected: &RunResult, given: &RunResult) -> Result<()> {
    for (a, b) in [(&expected.outputs, &given.outputs), (&expected.states, &given.states)] {
        assert_eq!(a.len(), b.len(), "{way}");
        a.iter().try_for_each(|(name, t)| check_same(&format!("{name} ({way})"), t, &b[name]))?;
    }
    Ok(())
}

/// A forward graph and its loss, for any batch size.
pub type Forward<'a> = &'a dyn Fn(usize) -> Result<(Graph, ValueId)>;

/// The programs of a training step: one, or two for micro-batches.
pub fn programs(
    forward: Forward,
    training: &Training,
    batch: usize,
    micro_batch: usize,
) -> Result<Vec<(Phase, StepGraph)>> {
    let (graph, loss) = forward(micro_batch)?;
    if micro_batch == batch {
        return Ok(vec![(Phase::Step, step(&graph, loss, training)?)]);
    }
    let split = split_step(&graph, loss, training, micro_batch as f32 / batch as f32)?;
    Ok(vec![(Phase::Accumulate, split.accumulate), (Phase::Apply, split.apply.into())])
}

/// A training on the CPU with initial states.
pub fn engine(
    threads: usize,
    forward: Forward,
    training: &Training,
    request: &Request,
    options: Options,
) -> Result<Engine<CpuExecutor>> {
    let executor = CpuExecutor::new(threads)?;
    let source = |micro: usize| programs(forward, training, request.batch, micro).map_err(|e| e.to_string().into());
    let plan = plan(&source, executor.target(), request)?;
    let mut engine = Engine::new(executor, plan, options)?;
    engine.init(SEED)?;
    Ok(engine)
}

pub const SEED: u64 = 5;

/// The inputs of a step, as an engine takes them.
pub struct Batch(Vec<(String, TensorType, Vec<u8>)>);

impl Batch {
    /// Without clock and learning rate, which are the engine's own.
    pub fn new(tensors: impl IntoIterator<Item = (String, Tensor)>) -> Batch {
        let own = |(name, _): &(String, Tensor)| [CLOCK, LEARNING_RATE].contains(&name.as_str());
        let others = tensors.into_iter().filter(|t| !own(t));
        Batch(others.map(|(name, t)| (name, t.ty.clone(), t.to_bytes())).collect())
    }

    pub fn views(&self) -> Vec<(&str, TensorView<'_>)> {
        self.0
            .iter()
            .map(|(name, ty, bytes)| (name.as_str(), TensorView { dtype: ty.dtype, shape: &ty.shape, bytes }))
            .collect()
    }
}

/// Numbers for `x` and `y` of a model of the zoo: images, masks and features are floats, classes and tokens are integers
/// below 10.
pub fn zoo_batch(graph: &Graph, batch: usize, seed: u64) -> Batch {
    let feed = |name: &str| {
        let given = graph.ty(graph.input(name).expect("models have x and y"));
        let ty = TensorType::new(given.dtype, [&[batch], &given.shape[1..]].concat());
        let numbers = philox::uniform(seed, name, ty.elements()).map(f64::from);
        let data = match ty.dtype {
            DType::I32 => numbers.map(|u| (u.abs() * 10.0).floor()).collect(),
            _ if name == "y" => numbers.map(|u| f64::from(u > 0.0)).collect(),
            _ => numbers.collect(),
        };
        (name.to_string(), Tensor { ty, data })
    };
    Batch::new([feed("x"), feed("y")])
}

pub fn sgd(momentum: f32) -> Training {
    let update = Update::Sgd { momentum, nesterov: false, weight_decay: 0.0 };
    Training::new(update)
}

/// A state of an engine.
pub fn state(engine: &Engine<CpuExecutor>, name: &str) -> Result<Tensor> {
    Tensor::from_bytes(&engine.state(name)?.ty.clone(), &engine.read_state(name)?)
}
