//! Several models in one memory: what they take, and what taking turns costs against training one after the other.
//! `together [--rounds N]` prints a table in Markdown; `cargo xtask bench-together` writes it into BENCHMARKS.md.

use std::time::Instant;

use memfit::exec::{Executor, Growth, Transient};
use memfit::plan::{Member, MicroBatch, Survey, Together, plan_together};
use memfit::train::{Share, Ticket};
use memfit::*;
use memfit_bench::{Failure, Runner, Workload, median};

const SETS: [&[&str]; 2] = [&["resnet18_cifar", "resnet18_cifar"], &["resnet18_cifar", "unet", "gpt"]];

/// Budgets, in percent of what the fastest plans of a set take side by side.
const BUDGETS: [u64; 3] = [58, 45, 38];

/// Of each model in a round.
const STEPS: usize = 5;

const MIB: f64 = 1048576.0;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = match &args[..] {
        [] => 5,
        [option, number] if option == "--rounds" => number.parse()?,
        _ => return Err("usage: together [--rounds N]".into()),
    };
    println!("| models | budget | arena MiB | ÷ sum of arenas | predicted | measured |");
    println!("|---|---|---|---|---|---|");
    SETS.iter().try_for_each(|names| bench(names, rounds))
}

fn bench(names: &[&str], rounds: usize) -> Result<(), Failure> {
    let workloads = names.iter().map(|n| Workload::from_name(n)).collect::<Result<Vec<_>, _>>()?;
    let mut subjects = Vec::new();
    for workload in workloads {
        let request = Request { micro_batch: MicroBatch::Off, ..Request::new(workload.batch) };
        subjects.push((workload.model()?, workload.training()?, request));
    }
    let executor = CpuExecutor::new(2)?;
    let mut surveys = Vec::new();
    for (model, training, request) in &subjects {
        surveys.push(survey_model(model, training, executor.target(), request)?);
    }
    let classes: Vec<usize> = subjects.iter().map(|(model, ..)| model.classes()).collect();
    let mut alone = Vec::new();
    for (survey, &classes) in surveys.iter().zip(&classes) {
        alone.push(Runner::new(executor.clone(), survey.plan(None)?, classes)?);
    }
    let sum: u64 = alone.iter().map(|r| r.engine.plan().arena_bytes()).sum();
    for share in BUDGETS {
        let together = planned(names, &surveys, sum * share / 100)?;
        let mut shared = in_one_memory(&together, &classes, &executor)?;
        let mut ratios = Vec::new();
        for round in 0..=rounds {
            let ratio = in_turns(&mut shared)? / one_after_the_other(&mut alone)?;
            // The first round warms up.
            if round > 0 {
                ratios.push(ratio);
            }
        }
        let time = |of: fn(&Plan) -> f64| together.plans.iter().map(of).sum::<f64>();
        println!(
            "| {} | {share} % | {:.0} of {:.0} | {:.3} | {:.3} | {:.3} |",
            names.join(", "),
            together.arena_bytes() as f64 / MIB,
            sum as f64 / MIB,
            together.arena_bytes() as f64 / sum as f64,
            time(|p| p.predicted_step_seconds) / time(|p| p.fastest_step_seconds),
            median(ratios)
        );
    }
    Ok(())
}

fn planned(names: &[&str], surveys: &[Survey], budget: u64) -> Result<Together, Failure> {
    let member = |(&name, survey)| Member { name, survey, budget: None };
    Ok(plan_together(&names.iter().zip(surveys).map(member).collect::<Vec<_>>(), Some(budget))?)
}

fn in_one_memory(together: &Together, classes: &[usize], executor: &CpuExecutor) -> Result<Vec<Runner>, Failure> {
    let transient = Transient::new(executor, "activations", together.transient_bytes(), Growth::Commit)?;
    let runner = |(plan, &classes): (&Plan, &usize)| {
        Runner::start(Engine::sharing(executor.clone(), plan.clone(), Options::default(), &transient)?, classes)
    };
    together.plans.iter().zip(classes).map(runner).collect()
}

/// Seconds in which each makes its steps, each on a thread of its own, as `memfit train` does it.
fn in_turns(runners: &mut [Runner]) -> Result<f64, Failure> {
    let tickets = Ticket::issue(&vec![Share::default(); runners.len()]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let run = |(runner, mut ticket): (&mut Runner, Ticket)| {
            for _ in 0..STEPS {
                let _turn = ticket.turn();
                runner.step()?;
            }
            Ok(())
        };
        let threads: Vec<_> = runners.iter_mut().zip(tickets).map(|r| scope.spawn(move || run(r))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err::<(), Failure>("a step panicked".into())))
    })?;
    Ok(start.elapsed().as_secs_f64())
}

fn one_after_the_other(runners: &mut [Runner]) -> Result<f64, Failure> {
    let start = Instant::now();
    for runner in runners {
        (0..STEPS).try_for_each(|_| runner.step())?;
    }
    Ok(start.elapsed().as_secs_f64())
}
