//! A step allocates nothing: a counting allocator sees steps 2 to 200 of a convnet, of the same in micro-batches, and of a
//! GPT. One test in a binary of its own, so that no other test's allocations are counted.

#[path = "it/common/mod.rs"]
mod common;

use common::engine;
use memfit_exec::{Clock, Engine, Options, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::{Batch, Result};
use memfit_ir::op::*;
use memfit_ir::{Builder, Graph, Op, TensorType, ValueId};
use memfit_nn::zoo::Gpt;
use memfit_nn::{Mode, Model, ZooModel};
use memfit_plan::{MicroBatch, Phase, Request};
use memfit_test_allocator::{Counting, Who, count};
use memfit_transform::{Clip, Training};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Convolutions with every kind of kernel beside them: batch norm, dropout, pooling, a dense layer.
fn convnet(batch: usize) -> Result<(Graph, ValueId)> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([batch, 12, 12, 3]))?;
    let y = b.input("y", TensorType::i32([batch]))?;
    let normal = Init::Normal { std: 0.1 };
    let conv = |groups| Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 1], groups };
    let w = b.param("conv1", [3, 3, 3, 16], normal)?;
    let mut h = b.conv(x, w, conv(1))?;
    let (scale, bias) = (b.param("scale", [16], Init::Constant(1.0))?, b.param("bias", [16], Init::Constant(0.0))?);
    let [normed, mean, var] = b.batch_norm(h, scale, bias, 1e-3)?;
    let running: Vec<ValueId> = ["mean", "var"]
        .iter()
        .map(|name| b.state(name, StateClass::Statistic, TensorType::f32([16]), Init::Constant(1.0)))
        .collect::<memfit_ir::Result<_>>()?;
    let update = Op::BatchUpdate(BatchUpdate { momentum: 0.9 });
    let new = b.op_outputs(update, &[running[0], running[1], mean, var])?;
    running.into_iter().zip(new).for_each(|(old, new)| b.donate(old, new));
    h = b.relu(normed)?;
    h = b.max_pool(h, Window { size: [2, 2], stride: [2, 2], pad: Pad2::NONE })?;
    let w = b.param("depthwise", [3, 3, 1, 16], normal)?;
    h = b.conv(h, w, conv(16))?;
    h = b.dropout(h, 0.25)?;
    h = b.global_avg_pool(h)?;
    let w = b.param("dense", [16, 10], normal)?;
    let logits = b.matmul(h, w)?;
    let each = b.cross_entropy(logits, y, 0.0)?;
    let loss = b.mean(each)?;
    Ok((b.finish(), loss))
}

fn gpt(batch: usize) -> Result<(Graph, ValueId)> {
    let model = Gpt { layers: 2, width: 32, heads: 4, sequence: 24, vocabulary: 10 };
    let forward = ZooModel::from(model).build(batch, Mode::Train).unwrap();
    Ok((forward.graph, forward.loss))
}

fn step(engine: &mut Engine<CpuExecutor>, views: &[(&str, TensorView)], step: u32) -> f32 {
    engine.step(views, 1e-3, Clock { step, seed: 9 }).unwrap();
    engine.loss().unwrap()
}

fn check(name: &str, forward: common::Forward, batch: usize, micro_batch: usize) {
    let update = Update::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false };
    let training = Training { clip: Clip::GlobalNorm(1.0), ..Training::new(update) };
    let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), ..Request::new(batch) };
    let ((mut engine, batch, first), planning) = count(Who::Process, || {
        let mut engine = engine(2, forward, &training, &request, Options::default()).unwrap();
        let phase = if micro_batch == batch { Phase::Step } else { Phase::Accumulate };
        let batch = Batch::of_zoo(&engine.plan().program(phase).unwrap().graph, batch, 3);
        let first = step(&mut engine, &batch.views(), 0);
        (engine, batch, first)
    });
    let views = batch.views();
    let (last, steps) = count(Who::Process, || (1..200).fold(first, |_, i| step(&mut engine, &views, i)));
    let (outside, planning) = (planning.kept + steps.peak, planning.peak);
    println!(
        "{name}: arena {} bytes; outside of it {outside} bytes in steps 2 to 200, at most {planning} before",
        engine.plan().arena_bytes()
    );
    assert_eq!(steps.calls, 0, "{name}: allocations in steps 2 to 200");
    assert!(last < first, "{name}: it learns nothing, the loss went from {first} to {last}");
}

#[test]
fn steps_allocate_nothing() {
    check("convnet", &convnet, 4, 4);
    check("convnet in micro-batches", &convnet, 4, 2);
    check("gpt", &gpt, 2, 2);
}
