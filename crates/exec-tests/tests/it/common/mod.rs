//! What the tests of the CPU share: one example in every way that must not matter, and whole trainings.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use memfit_exec::{Engine, Executor, Options};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_cpu::isa::{ISA_VARIABLE, Isa};
use memfit_exec_tests::families::{Way, check_ways};
use memfit_exec_tests::generate::Example;
use memfit_exec_tests::{Expected, Planned, Result, Runner, Settings, Tensor, Watched};
use memfit_ir::op::Update;
use memfit_ir::{Graph, ValueId};
use memfit_plan::{Phase, Request, plan};
use memfit_transform::{Grouping, StepGraph, Training, split_step, step};

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
    let expected = Expected::new(&example.graph, &example.inputs, &example.states)?;
    for isa in isas() {
        let watched = Planned::new(move || Ok(Watched(CpuExecutor::with_isa(2, isa)?)), Settings::default());
        let watched: Way = ("watched".to_string(), Box::new(watched));
        let others = WAYS.iter().map(|&(threads, settings)| -> Way {
            (format!("{} threads, {settings:?}, {}", threads, isa.name()), Box::new(cpu(threads, isa, settings)))
        });
        check_ways(example, &expected, cpu(1, isa, Settings::default()), [watched].into_iter().chain(others))?;
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

pub fn sgd(momentum: f32) -> Training {
    let update = Update::Sgd { momentum, nesterov: false, weight_decay: 0.0 };
    Training::new(update)
}

/// A state of an engine.
pub fn state(engine: &Engine<CpuExecutor>, name: &str) -> Result<Tensor> {
    Tensor::from_bytes(&engine.state(name)?.ty.clone(), &engine.read_state(name)?)
}
