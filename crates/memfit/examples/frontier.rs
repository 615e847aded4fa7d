//! Time against memory of a zoo model: `frontier MODEL BATCH [OPTIMIZER] [PRECISION]`.

use std::time::Instant;

use memfit::exec::Executor;
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Stem;
use memfit::plan::{MicroBatch, survey};
use memfit::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let name = args.first().map_or("resnet18_cifar", |s| s);
    let batch: usize = args.get(1).map_or(Ok(128), |s| s.parse())?;
    let model = match name {
        "resnet18_cifar" => {
            Model::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(10)?
        }
        other => Model::from_name(other)?,
    };
    let executor = CpuExecutor::new(2)?;
    let update = Optimizer::from_name(args.get(2).map_or("momentum", |s| s))?.update;
    let precision = Precision::from_name(args.get(3).map_or("f32", |s| s)).ok_or("f32, mixed or mixed-f16")?;
    let training = Training { update, clip: Clip::None, frozen: Default::default(), precision };
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
    let start = Instant::now();
    let source = |micro_batch| programs(&model, &training, batch, micro_batch);
    let survey = survey(&source, executor.target(), &request)?;
    let mib = |b: u64| b as f64 / 1048576.0;
    let plan = survey.plan(None)?;
    let input = plan.input_bytes();
    println!("surveyed in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    println!(
        "state {:.1}, keep-all {:.1}, free {:.1}, bound {:.1}, input {:.1} (transient without input, MiB)",
        mib(plan.state_bytes),
        mib(plan.keep_all_bytes - plan.state_bytes - input),
        mib(survey.free_tools_bytes() - plan.state_bytes - input),
        mib(survey.lower_bound_bytes() - plan.state_bytes - input),
        mib(input)
    );
    for s in &plan.savings {
        println!("  {} {:.1}", s.tool, s.bytes as f64 / 1048576.0);
    }
    let fastest = survey.frontier()[0].seconds;
    for p in survey.frontier() {
        println!(
            "{:8.1} MiB  {:6.3} x  {:7.1} ms  {:4} clones",
            mib(p.transient_bytes - input),
            p.seconds / fastest,
            p.seconds * 1e3,
            p.recomputed_ops
        );
    }
    let smallest = survey.frontier().last().unwrap().arena_bytes;
    println!("smallest / bound {:.2}", smallest as f64 / survey.lower_bound_bytes() as f64);
    let plan = survey.plan(Some(smallest))?;
    println!("arena / peak {:.4}", plan.arena_bytes() as f64 / plan.peak_bytes as f64);
    if let Some((program, step)) = memfit::plan::report::peak_step(&plan) {
        let names: Vec<_> = program.steps[step].group.nodes.iter().map(|&n| program.graph.node(n).op.name()).collect();
        let scope = &program.graph.node(program.steps[step].group.root()).scope;
        println!("fullest at step {step} of {}: {} in {scope}", program.steps.len(), names.join("+"));
        let mut live = memfit::plan::report::live_at(program, step);
        live.sort_by_key(|l| std::cmp::Reverse(l.bytes));
        for l in live.iter().take(16) {
            let node = program.graph.node(program.graph.producer(l.value));
            println!("  {:7.1} {} {} {}", mib(l.bytes), node.scope, node.op.name(), l.class.name());
        }
        println!("  scratch {:.1}", mib(program.steps[step].scratch.map_or(0, |p| p.size)));
    }
    Ok(())
}
