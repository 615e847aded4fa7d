//! What less memory costs: training steps of zoo models under smaller and smaller budgets, timed in turns with the fastest
//! plan. `budgets [--rounds N] [WORKLOAD…]` prints a table in Markdown for each; `cargo xtask bench-plan` runs all and
//! writes BENCHMARKS.md.
//!
//! Transient memory is everything above parameters, optimizer state, running statistics and the input batch.

use std::time::{Duration, Instant};

use memfit::exec::Executor;
use memfit::plan::{MicroBatch, Survey, survey};
use memfit::*;
use memfit_bench::{Failure, Runner, WORKLOADS, Workload};

/// How many MiB of transient memory a workload is measured with besides the shares.
fn sizes(workload: &str) -> &'static [u64] {
    match workload {
        "mlp" => &[24],
        "resnet18_cifar" => &[420, 300, 200],
        "resnet50" => &[950, 700, 420],
        "mobilenet_v3_large" => &[420, 300, 190],
        "unet" => &[430, 360, 260],
        "gpt" => &[230, 150, 105],
        _ => &[],
    }
}

const SHARES: [u64; 5] = [100, 75, 50, 35, 25];

fn main() -> Result<(), Failure> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut rounds = 5;
    if args.first().is_some_and(|a| a == "--rounds") {
        rounds = args.get(1).ok_or("--rounds needs a number")?.parse()?;
        args.drain(..2);
    }
    for name in &args {
        Workload::from_name(name)?;
    }
    for workload in WORKLOADS.iter().filter(|w| args.is_empty() || args.iter().any(|a| a == w.name)) {
        bench(workload, rounds)?;
    }
    Ok(())
}

const MIB: f64 = 1048576.0;

/// Short steps take more rounds than were asked for, because whatever else the machine does for a moment hits more of them.
const LEAST_TIME: Duration = Duration::from_secs(60);

fn bench(workload: &Workload, rounds: usize) -> Result<(), Failure> {
    let model = workload.model()?;
    let executor = CpuExecutor::new(2)?;
    let training = workload.training()?;
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(workload.batch) };
    let source = |micro_batch| programs(&model, &training, workload.batch, micro_batch);
    let start = Instant::now();
    let survey = survey(source, executor.target(), &request)?;
    let planning = start.elapsed().as_secs_f64();
    let points = survey.frontier();
    let fastest = survey.plan(None)?;
    let fixed = fastest.state_bytes + fastest.input_bytes();
    let free = survey.free_tools_bytes() - fixed;
    let below = points.iter().filter(|p| p.arena_bytes < survey.free_tools_bytes()).count();
    let smallest = points[points.len() - 1].arena_bytes;
    println!("### {} b{} {}\n", workload.name, workload.batch, workload.optimizer);
    println!(
        "Keep everything {:.0} MiB, free tools {:.0} MiB, smallest plan {:.0} MiB; {below} plans below the free tools; \
         smallest arena ÷ proved lower bound {:.2}; all of it planned in {:.2} s.\n",
        (fastest.keep_all_bytes - fixed) as f64 / MIB,
        free as f64 / MIB,
        (smallest - fixed) as f64 / MIB,
        smallest as f64 / survey.lower_bound_bytes() as f64,
        planning
    );
    println!("| limit | transient MiB | arena ÷ live | recomputed ops | predicted | measured |");
    println!("|---|---|---|---|---|---|");
    let mut limits: Vec<(String, u64)> = SHARES.iter().map(|s| (format!("{s} %"), fixed + free * s / 100)).collect();
    limits.extend(sizes(workload.name).iter().map(|s| (format!("{s} MiB"), fixed + (s << 20))));
    measure(&survey, model.classes(), fixed, &limits, rounds)
}

/// Steps of every plan in turns; a plan's time is the median of its ratios to the fastest plan of the same round.
fn measure(
    survey: &Survey,
    classes: usize,
    fixed: u64,
    limits: &[(String, u64)],
    rounds: usize,
) -> Result<(), Failure> {
    let runner = |plan: Plan| Runner::new(CpuExecutor::new(2)?, plan, classes);
    let mut reference = runner(survey.plan(None)?)?;
    let mut runners: Vec<(usize, Runner)> = Vec::new();
    for (i, (_, limit)) in limits.iter().enumerate() {
        if let Ok(plan) = survey.plan(Some(*limit)) {
            runners.push((i, runner(plan)?));
        }
    }
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); limits.len()];
    let mut start = Instant::now();
    for round in 0.. {
        let whole = timed(&mut reference)?;
        for (i, runner) in &mut runners {
            let ratio = timed(runner)? / whole;
            // The first round warms up.
            if round > 0 {
                ratios[*i].push(ratio);
            }
        }
        if round == 0 {
            start = Instant::now();
        } else if round >= rounds && start.elapsed() >= LEAST_TIME {
            break;
        }
    }
    for (i, (name, _)) in limits.iter().enumerate() {
        let Some((_, runner)) = runners.iter().find(|(r, _)| *r == i) else {
            println!("| {name} | does not fit | | | | |");
            continue;
        };
        let plan = runner.engine.plan();
        ratios[i].sort_by(f64::total_cmp);
        println!(
            "| {name} | {:.1} | {:.4} | {} | {:.3} | {:.3} |",
            (plan.arena_bytes() - fixed) as f64 / MIB,
            plan.arena_bytes() as f64 / plan.peak_bytes as f64,
            plan.recomputed_ops,
            plan.predicted_step_seconds / plan.fastest_step_seconds,
            ratios[i][ratios[i].len() / 2]
        );
    }
    println!();
    Ok(())
}

/// Seconds of one step.
fn timed(runner: &mut Runner) -> Result<f64, Failure> {
    let start = Instant::now();
    runner.step()?;
    Ok(start.elapsed().as_secs_f64())
}
