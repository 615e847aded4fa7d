//! What less memory costs: training steps of zoo models under smaller and smaller budgets, timed in turns with the fastest
//! plan. `bench_plan [--rounds N] [WORKLOAD…]` prints a table in Markdown for each; `cargo xtask bench-plan` runs all and
//! writes BENCHMARKS.md.
//!
//! Transient memory is everything above parameters, optimizer state, running statistics and the input batch.

use std::time::{Duration, Instant};

use memfit::exec::Executor;
use memfit::ir::op::{CLOCK, LEARNING_RATE};
use memfit::ir::{DType, TensorType, philox};
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Stem;
use memfit::plan::{MicroBatch, Survey, survey};
use memfit::*;

type Error = Box<dyn std::error::Error>;

/// A model, its batch and its optimizer; and for how many MiB of transient memory it is measured besides the shares.
struct Workload {
    name: &'static str,
    batch: usize,
    optimizer: &'static str,
    sizes: &'static [u64],
}

const WORKLOADS: [Workload; 8] = [
    Workload { name: "mlp", batch: 256, optimizer: "adam", sizes: &[24] },
    Workload { name: "resnet18_cifar", batch: 128, optimizer: "momentum", sizes: &[420, 300, 200] },
    Workload { name: "resnet50", batch: 16, optimizer: "momentum", sizes: &[950, 700, 420] },
    Workload { name: "mobilenet_v3_large", batch: 16, optimizer: "adam", sizes: &[420, 300, 190] },
    Workload { name: "unet", batch: 4, optimizer: "adam", sizes: &[430, 360, 260] },
    Workload { name: "gpt", batch: 8, optimizer: "adamw", sizes: &[230, 150, 105] },
    Workload { name: "vit_b16", batch: 8, optimizer: "adamw", sizes: &[] },
    Workload { name: "resnet101", batch: 8, optimizer: "momentum", sizes: &[] },
];

const SHARES: [u64; 5] = [100, 75, 50, 35, 25];

fn main() -> Result<(), Error> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut rounds = 5;
    if args.first().is_some_and(|a| a == "--rounds") {
        rounds = args.get(1).ok_or("--rounds needs a number")?.parse()?;
        args.drain(..2);
    }
    if let Some(unknown) = args.iter().find(|a| !WORKLOADS.iter().any(|w| w.name == *a)) {
        return Err(format!("there is no workload \"{unknown}\"").into());
    }
    for workload in WORKLOADS.iter().filter(|w| args.is_empty() || args.iter().any(|a| a == w.name)) {
        bench(workload, rounds)?;
    }
    Ok(())
}

fn model(name: &str) -> Result<Model, Error> {
    Ok(match name {
        "resnet18_cifar" => {
            Model::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(10)?
        }
        other => Model::from_name(other)?,
    })
}

const MIB: f64 = 1048576.0;

/// Short steps take more rounds than were asked for, because whatever else the machine does for a moment hits more of them.
const LEAST_TIME: Duration = Duration::from_secs(60);

fn bench(workload: &Workload, rounds: usize) -> Result<(), Error> {
    let model = model(workload.name)?;
    let executor = CpuExecutor::new(2)?;
    let training = Training::new(Optimizer::from_name(workload.optimizer)?.update);
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(workload.batch) };
    let source = |micro_batch| programs(&model, &training, workload.batch, micro_batch);
    let start = Instant::now();
    let survey = survey(&source, executor.target(), &request)?;
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
    println!("| limit | transient MiB | arena ÷ live | ops made again | predicted | measured |");
    println!("|---|---|---|---|---|---|");
    let mut limits: Vec<(String, u64)> = SHARES.iter().map(|s| (format!("{s} %"), fixed + free * s / 100)).collect();
    limits.extend(workload.sizes.iter().map(|s| (format!("{s} MiB"), fixed + (s << 20))));
    measure(&survey, fixed, &limits, rounds)
}

/// Steps of every plan in turns; a plan's time is the median of its ratios to the fastest plan of the same round.
fn measure(survey: &Survey, fixed: u64, limits: &[(String, u64)], rounds: usize) -> Result<(), Error> {
    let mut reference = Runner::new(survey.plan(None)?)?;
    let mut runners: Vec<(usize, Runner)> = Vec::new();
    for (i, (_, limit)) in limits.iter().enumerate() {
        if let Ok(plan) = survey.plan(Some(*limit)) {
            runners.push((i, Runner::new(plan)?));
        }
    }
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); limits.len()];
    let mut start = Instant::now();
    for round in 0.. {
        let whole = reference.step()?;
        for (i, runner) in &mut runners {
            let ratio = runner.step()? / whole;
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

struct Runner {
    engine: Engine<CpuExecutor>,
    inputs: Vec<(String, TensorType, Vec<u8>)>,
    step: u32,
}

impl Runner {
    fn new(plan: Plan) -> Result<Runner, Error> {
        let graph = &plan.programs[0].graph;
        let mut inputs = Vec::new();
        for (name, v) in graph.inputs().filter(|(n, _)| *n != CLOCK && *n != LEARNING_RATE) {
            let ty = graph.ty(v).clone();
            let n = ty.elements();
            let bytes: Vec<u8> = match ty.dtype {
                DType::F32 => philox::normal(1, name, n).flat_map(|x| x.to_le_bytes()).collect(),
                _ => (0..n as i32).flat_map(|i| (i % 10).to_le_bytes()).collect(),
            };
            inputs.push((name.to_string(), ty, bytes));
        }
        let mut engine = Engine::new(CpuExecutor::new(2)?, plan, Options::default())?;
        engine.init(1)?;
        Ok(Runner { engine, inputs, step: 0 })
    }

    /// Seconds of one step.
    fn step(&mut self) -> Result<f64, Error> {
        let inputs: Vec<(&str, TensorView)> = self
            .inputs
            .iter()
            .map(|(n, t, b)| (n.as_str(), TensorView { dtype: t.dtype, shape: &t.shape, bytes: b }))
            .collect();
        let start = Instant::now();
        self.engine.step(&inputs, 0.001, Clock { step: self.step, seed: 1 })?;
        self.step += 1;
        Ok(start.elapsed().as_secs_f64())
    }
}
