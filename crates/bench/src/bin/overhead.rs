//! What recording costs: steps of a workload with and without a recorder, in turns. `overhead [--rounds N] [WORKLOAD]...`; without
//! workloads the digits, which have many tiny kernels, and resnet50. Prints a table.

use std::sync::Arc;
use std::time::Instant;

use memfit::exec::{Executor, Recorder};
use memfit::nn::Optimizer;
use memfit::plan::MicroBatch;
use memfit::synthetic::SyntheticBatch;
use memfit::*;
use memfit_bench::Failure;

/// Model, batch, and how many steps are timed together.
const WORKLOADS: [(&str, usize, usize); 2] = [("digits", 32, 400), ("resnet50", 4, 2)];
const THREADS: usize = 2;

fn main() -> Result<(), Failure> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut rounds = 15;
    if args.first().is_some_and(|a| a == "--rounds") {
        rounds = args.get(1).ok_or("--rounds needs a number")?.parse()?;
        args.drain(..2);
    }
    println!("| model | batch | off ms | on ms | on ÷ off |\n|---|---|---|---|---|");
    for (name, batch, steps) in WORKLOADS {
        if args.is_empty() || args.iter().any(|a| a == name) {
            measure(name, batch, steps, rounds)?;
        }
    }
    Ok(())
}

fn measure(name: &str, batch: usize, steps: usize, rounds: usize) -> Result<(), Failure> {
    let model = ZooModel::from_name(name)?;
    let cpu = CpuExecutor::new(THREADS)?;
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
    let plan = plan_model(&model, &Training::new(Optimizer::adam().update), cpu.target(), &request)?;
    let kernels = plan.programs.iter().map(|p| p.launches.len()).sum::<usize>() * THREADS * steps;
    let numbers = SyntheticBatch::new(&plan, model.classes());
    let mut session = Session::new(cpu, plan, 1)?;
    let recorder = Arc::new(Recorder::new(kernels, steps));
    let mut time = |recorder: Option<Arc<Recorder>>| -> Result<f64, Failure> {
        session.record(recorder);
        let start = Instant::now();
        for _ in 0..steps {
            session.step(&numbers.views(), 1e-4)?;
        }
        Ok(start.elapsed().as_secs_f64() / steps as f64)
    };
    time(None)?;
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        off.push(time(None)?);
        on.push(time(Some(recorder.clone()))?);
        let recording = recorder.take();
        assert!(recording.dropped == 0 && recording.steps.len() == steps, "everything has room");
    }
    let (off, on) = (median(off), median(on));
    println!("| {name} | {batch} | {:.3} | {:.3} | {:.3} |", off * 1e3, on * 1e3, on / off);
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
