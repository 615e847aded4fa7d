//! What recording costs: steps of a workload with and without a recorder, in turns.
//! `overhead [--device gpu] [--rounds N] [WORKLOAD]...`; without workloads the digits, which have many tiny kernels, and one with
//! large ones. Prints a table. A GPU needs the feature `gpu`.

use std::sync::Arc;
use std::time::Instant;

use memfit::exec::{Executor, Recorder};
use memfit::nn::Optimizer;
use memfit::plan::MicroBatch;
use memfit::synthetic::SyntheticBatch;
use memfit::*;
use memfit_bench::Failure;

/// Model, batch, and how many steps are timed together.
type Workload = (&'static str, usize, usize);
const ON_CPU: [Workload; 2] = [("digits", 32, 400), ("resnet50", 4, 2)];
/// Such as a GPU in software still runs.
const ON_GPU: [Workload; 2] = [("digits", 32, 10), ("mlp", 32, 3)];
const THREADS: usize = 2;

fn main() -> Result<(), Failure> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let device = option(&mut args, "--device")?.unwrap_or("cpu".into());
    let rounds = option(&mut args, "--rounds")?.map_or(Ok(15), |n| n.parse())?;
    println!("| model | batch | off ms | on ms | on ÷ off |\n|---|---|---|---|---|");
    for workload in if device == "cpu" { ON_CPU } else { ON_GPU } {
        if args.is_empty() || args.iter().any(|a| a == workload.0) {
            measure(&device, workload, rounds)?;
        }
    }
    Ok(())
}

/// Takes an option and its value from the front.
fn option(args: &mut Vec<String>, name: &str) -> Result<Option<String>, Failure> {
    if args.first().is_none_or(|a| a != name) {
        return Ok(None);
    }
    let value = args.get(1).cloned().ok_or(format!("{name} needs a value"))?;
    args.drain(..2);
    Ok(Some(value))
}

fn measure(device: &str, (name, batch, steps): Workload, rounds: usize) -> Result<(), Failure> {
    let model = ZooModel::from_name(name)?;
    let executor = AnyExecutor::open(device, THREADS)?;
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
    let plan = plan_model(&model, &Training::new(Optimizer::adam().update), executor.target(), &request)?;
    let kernels = plan.programs.iter().map(|p| p.launches.len()).sum::<usize>() * THREADS * steps;
    let numbers = SyntheticBatch::new(&plan, model.classes());
    let mut session = Session::new(executor, plan, 1)?;
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
