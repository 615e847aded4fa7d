//! memfit's side of `cargo xtask bench-gpu`: training steps of small models on the first GPU, as its peer has them.
//! `gpu (mlp | convnet) STEPS` prints lines of `result KEY VALUE`, `gpu launches (mlp | convnet | ZOO MODEL) STEPS` the median and the least
//! time of each launch of a step, each waited for.
//!
//! A step is what a user has: a batch is sent to the device, forward, loss, backward, Adam; it ends when all of it has run and
//! its loss is read.

use std::time::Instant;

use memfit::gpu::GpuExecutor;
use memfit::ir::op::StateClass;
use memfit::ir::{Builder, TensorType};
use memfit::nn::layers::{Conv2d, Dense, Padding, Pool, conv2d, dense, flatten, max_pool};
use memfit::nn::zoo::Mlp;
use memfit::nn::{Forward, Head, Loss, Mode, Optimizer, from_fn};
use memfit::{Model, Training, ZooModel};
use memfit_bench::{Failure, Runner, median};

const BATCH: usize = 32;
const CLASSES: usize = 10;
/// As the peer has them, which tunes meanwhile.
const WARM_UP: usize = 20;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["launches", name, steps] => launches(model(name)?, steps.parse()?),
        [name, steps] => train(model(name)?, steps.parse()?),
        _ => {
            Err("usage: gpu (mlp | convnet) STEPS, or gpu launches (mlp | convnet | ZOO MODEL OF IMAGES) STEPS".into())
        }
    }
}

fn model(name: &str) -> Result<Box<dyn Model>, Failure> {
    match name {
        "mlp" => Ok(Box::new(Mlp::new(784, &[256, 256], CLASSES))),
        "convnet" => Ok(Box::new(from_fn("convnet", convnet))),
        // For its launches.
        other => Ok(Box::new(ZooModel::from_name(other)?.with_input(&[64, 64, 3])?.with_classes(CLASSES)?)),
    }
}

fn convnet(batch: usize, mode: Mode) -> memfit::nn::Result<Forward> {
    let mut b = Builder::new();
    let mut x = b.input("x", TensorType::f32([batch, 28, 28, 1]))?;
    let y = b.input("y", TensorType::i32([batch]))?;
    for (name, filters) in [("conv1", 16), ("conv2", 32)] {
        x = conv2d(&mut b, name, x, Conv2d { padding: Padding::Same, ..Conv2d::new(filters, 3) })?;
        x = b.relu(x)?;
        x = max_pool(&mut b, format!("pool of {name}"), x, Pool::new(2))?;
    }
    let x = flatten(&mut b, x)?;
    let logits = dense(&mut b, "fc", x, Dense::new(CLASSES))?;
    Forward::new(b, mode, &[Head::new("logits", logits, Loss::SparseCrossEntropy { smoothing: 0.0 }, y)])
}

fn runner(model: &dyn Model) -> Result<Runner<GpuExecutor>, Failure> {
    Runner::fastest_of(model, CLASSES, &Training::new(Optimizer::adam().update), BATCH, GpuExecutor::new(0)?)
}

fn train(model: Box<dyn Model>, steps: usize) -> Result<(), Failure> {
    let start = Instant::now();
    let mut runner = runner(&*model)?;
    let prepared = start.elapsed().as_secs_f64();
    let mut timed = || {
        let start = Instant::now();
        runner.step()?;
        let loss = runner.engine.loss()?;
        Ok::<_, Failure>((start.elapsed().as_secs_f64(), loss))
    };
    let warm_up: Vec<(f64, f32)> = (0..WARM_UP).map(|_| timed()).collect::<Result<_, _>>()?;
    let before = processor_seconds();
    let times: Vec<f64> = (0..steps).map(|_| Ok(timed()?.0)).collect::<Result<_, Failure>>()?;
    let processor = (processor_seconds() - before) / steps as f64;
    // Shaders are compiled before the first step; the peer does it in it.
    println!("result first {}", prepared + warm_up[0].0);
    println!("result warm_up {}", prepared + warm_up.iter().map(|(seconds, _)| seconds).sum::<f64>());
    println!("result seconds {}", median(times));
    println!("result processor {processor}");
    println!("result first_loss {}", warm_up[0].1);
    println!("result loss {}", warm_up[WARM_UP - 1].1);
    bytes(&runner);
    println!("result versions memfit {}", env!("CARGO_PKG_VERSION"));
    Ok(())
}

/// Of all threads of this process, in whole hundredths as Linux tells them; not a number elsewhere.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, may have spaces.
    let numbers = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> = numbers.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
    if ticks.len() == 2 { (ticks[0] + ticks[1]) / 100.0 } else { f64::NAN }
}

/// The transient segment counts as in use while a step runs, all of it; what copies go through counts as reserved.
fn bytes(runner: &Runner<GpuExecutor>) {
    let (plan, executor) = (runner.engine.plan(), runner.engine.executor());
    let (in_use, reserved) = (executor.in_use_bytes(), executor.reserved_bytes());
    let parameters = plan.states.iter().filter(|s| s.class == StateClass::Param).map(|s| s.ty.elements());
    println!("result parameters {}", parameters.sum::<usize>());
    println!("result in_use {}", in_use - plan.transient_bytes);
    println!("result peak {in_use}");
    println!("result reserved {}", reserved.all());
    println!("result arena {}", reserved.segments);
    println!("result copies {}", reserved.staging);
}

fn launches(model: Box<dyn Model>, steps: usize) -> Result<(), Failure> {
    let mut runner = runner(&*model)?;
    runner.step()?;
    let mut list: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..steps {
        let mut at = 0;
        runner.observed_step(|program, launch, time| {
            let node = |&n| {
                format!(
                    "{}{:?}",
                    program.graph.node(n).op.name(),
                    program.graph.shape(program.graph.node(n).outputs[0])
                )
            };
            let name = || launch.group.nodes.iter().map(node).collect::<Vec<_>>().join(" + ");
            if at == list.len() {
                list.push((name(), Vec::new()));
            }
            list[at].1.push(time.as_secs_f64());
            at += 1;
        })?;
    }
    for (name, times) in list {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{:8.3} ms, at least {:8.3}: {name}", 1e3 * median(times), 1e3 * least);
    }
    Ok(())
}
