//! One side of `cargo xtask bench-peers`: whole training steps of a workload on the fastest plan; and of `bench-kernels`:
//! products of square matrices. `steps (WORKLOAD | products) THREADS STEPS` prints lines of `result KEY VALUE`, as the scripts of the
//! peers do, and takes its times in the same way.

use std::time::Instant;

use memfit::exec::Executor;
use memfit::ir::op::{Init, StateClass};
use memfit::ir::{Builder, Op, ValueId, graph_cost};
use memfit::plan::storage;
use memfit::plan::{MicroBatch, Program};
use memfit::*;
use memfit_bench::{Failure, Runner, Workload};

/// The step after these is the first that is timed. Its loss is told, since every process gets so far, however fast it is.
const WARM_UP: usize = 2;
/// Short steps are repeated for so many seconds.
const LEAST_SECONDS: f64 = 2.0;
/// Of steps that take longer than so many seconds, a few are enough.
const SLOW: f64 = 5.0;
const FEW: usize = 3;

const SIDES: [usize; 3] = [1024, 2048, 4096];

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, threads, steps] = &args[..] else {
        return Err("usage: steps (WORKLOAD | products) THREADS STEPS".into());
    };
    let (threads, steps) = (threads.parse()?, steps.parse()?);
    if what == "products" {
        for side in SIDES {
            println!("result product_{side} {}", product(side, threads, steps)?);
        }
        return Ok(());
    }
    train(Workload::from_name(what)?, threads, steps)
}

fn train(workload: &Workload, threads: usize, steps: usize) -> Result<(), Failure> {
    let (model, training) = (workload.model()?, workload.training()?);
    let executor = CpuExecutor::new(threads)?;
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(workload.batch) };
    let plan = plan_model(&model, &training, executor.target(), &request)?;
    let source = programs(&model, &training, workload.batch, workload.batch)?;
    let flops: u64 = source.iter().filter(|(p, _)| *p == Phase::Step).map(|(_, g)| graph_cost(&g.graph).flops).sum();
    println!("result workload b{} {}", workload.batch, workload.optimizer);
    println!("result flops {flops}");
    println!("result bytes {}", compulsory_bytes(&plan)?);
    println!("result predicted {}", plan.predicted_step_seconds);
    let parameters = plan.states.iter().filter(|s| s.class == StateClass::Param).map(|s| s.ty.elements());
    println!("result parameters {}", parameters.sum::<usize>());
    let mut runner = Runner::new(executor, plan, model.classes())?;
    let mut losses = Vec::new();
    let seconds = median_seconds(steps, || {
        runner.step()?;
        losses.push(runner.engine.loss()?);
        Ok(())
    })?;
    println!("result seconds {seconds}");
    println!("result first_loss {}", losses[0]);
    println!("result loss {}", losses[WARM_UP]);
    println!("result versions memfit {}", env!("CARGO_PKG_VERSION"));
    if let Some(bytes) = resident() {
        println!("result resident {bytes}");
    }
    Ok(())
}

/// What a step moves however it is run, if caches held everything else: every parameter, optimizer slot and running
/// statistic is read and written once, every gradient of a parameter written and read once, every value that the forward
/// pass leaves in memory for the backward pass written and read once, and the batch read once.
fn compulsory_bytes(plan: &Plan) -> Result<u64, Failure> {
    let program = plan.program(Phase::Step).ok_or("the plan has no whole step")?;
    let states = plan.states.iter().map(|s| match s.class {
        StateClass::Param => 4 * s.ty.bytes(),
        StateClass::Slot | StateClass::Statistic => 2 * s.ty.bytes(),
        StateClass::Accumulator => 0,
    });
    Ok(states.sum::<u64>() + plan.input_bytes() + 2 * crossing_bytes(program)?)
}

/// Of values that a kernel of the forward pass writes and one of the backward pass reads.
fn crossing_bytes(program: &Program) -> Result<u64, Failure> {
    let graph = &program.graph;
    let end = program.forward_end.ok_or("the step has no loss")?;
    let storage = storage(graph);
    let mut crosses = vec![false; storage.len()];
    for step in program.launches.iter().filter(|s| s.group.nodes.iter().any(|n| *n > end)) {
        for v in &step.group.reads {
            let source = storage[v.index()];
            let producer = graph.producer(source);
            let is_there = matches!(graph.node(producer).op, Op::Input(_) | Op::State(_));
            crosses[source.index()] |= producer <= end && !is_there;
        }
    }
    let values = (0..storage.len() as u32).map(ValueId).filter(|v| crosses[v.index()]);
    Ok(values.map(|v| graph.ty(v).bytes()).sum())
}

/// The median of runs after the warm-up.
fn median_seconds(steps: usize, mut work: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut timed = || {
        let start = Instant::now();
        work()?;
        Ok::<f64, Failure>(start.elapsed().as_secs_f64())
    };
    let mut seconds = 0.0;
    for _ in 0..WARM_UP {
        seconds = timed()?;
    }
    let wanted = if seconds > SLOW { steps.min(FEW) } else { steps };
    let mut times: Vec<f64> = Vec::new();
    while times.len() < wanted || times.iter().sum::<f64>() < LEAST_SECONDS {
        times.push(timed()?);
    }
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    Ok(if times.len() % 2 == 1 { times[middle] } else { (times[middle - 1] + times[middle]) / 2.0 })
}

/// Seconds of a product of two square matrices.
fn product(side: usize, threads: usize, steps: usize) -> Result<f64, Failure> {
    let mut b = Builder::new();
    let init = Init::Normal { std: 1.0 };
    let (x, y) = (b.param("x", [side, side], init)?, b.param("y", [side, side], init)?);
    let product = b.matmul(x, y)?;
    b.output("y", product);
    let graph = b.finish();
    let executor = CpuExecutor::new(threads)?;
    let source = |_| Ok::<_, SourceError>(vec![(Phase::Eval, graph.clone().into())]);
    let plan = plan::plan(&source, executor.target(), &Request::new(1))?;
    let mut engine = Engine::new(executor, plan, Options::default())?;
    engine.init(1)?;
    median_seconds(steps, || Ok(engine.run(Phase::Eval, &[], 0.0, Clock::default())?))
}

/// The most memory that this process had at once; none where the system does not tell.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
