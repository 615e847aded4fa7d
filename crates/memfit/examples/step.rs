//! Times training steps of a zoo model on synthetic data: `step MODEL BATCH [THREADS] [STEPS] [PRECISION] [OPTIMIZER]`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use memfit::exec::Executor;
use memfit::ir::op::{CLOCK, LEARNING_RATE};
use memfit::ir::{DType, philox};
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Stem;
use memfit::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let name = args.first().map_or("resnet18_cifar", |s| s);
    let batch: usize = args.get(1).map_or(Ok(128), |s| s.parse())?;
    let threads: usize = args.get(2).map_or(Ok(2), |s| s.parse())?;
    let steps: u32 = args.get(3).map_or(Ok(5), |s| s.parse())?;
    let precision = args.get(4).map_or(Some(Precision::F32), |s| Precision::from_name(s)).ok_or("no such precision")?;
    let model = match name {
        "resnet18_cifar" => {
            Model::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(10)?
        }
        other => Model::from_name(other)?,
    };
    let executor = CpuExecutor::new(threads)?;
    let update = Optimizer::from_name(args.get(5).map_or("momentum", |s| s))?.update;
    let training = Training { precision, ..Training::new(update) };
    let start = Instant::now();
    let plan = plan_model(&model, &training, executor.target(), &Request::new(batch))?;
    println!(
        "planned in {:.0} ms: state {:.1} MiB, transient {:.1} MiB, peak {:.1} MiB",
        start.elapsed().as_secs_f64() * 1e3,
        plan.state_bytes as f64 / 1048576.0,
        plan.transient_bytes as f64 / 1048576.0,
        plan.peak_bytes as f64 / 1048576.0
    );
    let mut engine = Engine::new(executor, plan, Options::default())?;
    engine.init(1)?;
    let graph = &engine.plan().programs[0].graph;
    let mut data = Vec::new();
    for (name, v) in graph.inputs().filter(|(n, _)| *n != CLOCK && *n != LEARNING_RATE) {
        let ty = graph.ty(v);
        let n = ty.elements();
        let bytes: Vec<u8> = match ty.dtype {
            DType::F32 => philox::normal(1, name, n).flat_map(|x| x.to_le_bytes()).collect(),
            _ => (0..n as i32).flat_map(|i| (i % 10).to_le_bytes()).collect(),
        };
        data.push((name.to_string(), ty.clone(), bytes));
    }
    let inputs: Vec<(&str, TensorView)> =
        data.iter().map(|(n, t, b)| (n.as_str(), TensorView { dtype: t.dtype, shape: &t.shape, bytes: b })).collect();
    let profile = std::env::var_os("PROFILE").is_some();
    for step in 0..steps {
        let start = Instant::now();
        engine.step(&inputs, 0.01, Clock { step, seed: 1 })?;
        println!("step {step}: {:.3} s, loss {:.4}", start.elapsed().as_secs_f64(), engine.loss()?);
    }
    if profile {
        let mut by_op: HashMap<String, (Duration, usize)> = HashMap::new();
        engine.run_observed(Phase::Step, &inputs, 0.01, Clock::default(), |program, step, time| {
            let names: Vec<_> = step.group.nodes.iter().map(|&n| program.graph.node(n).op.name()).collect();
            let e = by_op.entry(names.join("+")).or_default();
            e.0 += time;
            e.1 += 1;
        })?;
        let mut rows: Vec<_> = by_op.into_iter().collect();
        rows.sort_by_key(|r| std::cmp::Reverse(r.1.0));
        for (name, (time, count)) in rows {
            println!("{:8.1} ms {count:4} {name}", time.as_secs_f64() * 1e3);
        }
    }
    Ok(())
}
