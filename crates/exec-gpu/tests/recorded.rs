//! What is recorded of a GPU: every kernel by the clock of the device, without a bit that changes or a byte that is taken.
#![cfg(feature = "gpu")]

mod common;

use std::sync::Arc;

use common::gpu;
use memfit_exec::recorder::{KernelClock, Recording};
use memfit_exec::{Executor, Recorder, TensorView};
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::check_recording;
use memfit_nn::Optimizer;
use memfit_nn::zoo::Mlp;
use memfit_plan::{MicroBatch, Plan, Request, plan};
use memfit_train::{Session, programs};
use memfit_transform::Training;

const STEPS: usize = 3;

fn planned(executor: &GpuExecutor, batch: usize, micro_batch: MicroBatch) -> Plan {
    let (model, training) = (Mlp::new(20, &[33], 7), Training::new(Optimizer::adam().update));
    let request = Request { micro_batch, ..Request::new(batch) };
    plan(&|rows| programs(&model, &training, batch, rows), executor.target(), &request).unwrap()
}

/// Some steps; gives the weights.
fn train(executor: &GpuExecutor, plan: &Plan, recorder: Option<Arc<Recorder>>) -> Vec<Vec<u8>> {
    let mut session = Session::new(executor.clone(), plan.clone(), 1).unwrap();
    session.record(recorder.clone());
    let x: Vec<f32> = (0..plan.batch * 20).map(|i| (i % 13) as f32 / 6.0 - 1.0).collect();
    let y: Vec<i32> = (0..plan.batch as i32).map(|i| i % 7).collect();
    let (rows, samples) = ([plan.batch, 20], [plan.batch]);
    let batch = [("x", TensorView::f32(&rows, &x)), ("y", TensorView::i32(&samples, &y))];
    let mut reserved = Vec::new();
    for _ in 0..STEPS {
        session.step(&batch, 1e-2).unwrap();
        reserved.push(executor.reserved_bytes());
    }
    if recorder.is_some() {
        assert_eq!(reserved[0], reserved[STEPS - 1], "recording takes what was taken before");
    }
    session.weights().map(|s| session.weight(&s.name).unwrap()).collect()
}

fn recorded(executor: &GpuExecutor, plan: &Plan) -> Recording {
    let recorder = Arc::new(Recorder::new(10_000, 10));
    assert!(train(executor, plan, Some(recorder.clone())) == train(executor, plan, None), "a bit changed");
    let recording = recorder.take();
    assert_eq!(recording.steps.len(), STEPS);
    check_recording(plan, &recording).unwrap();
    for (i, step) in recording.steps.iter().enumerate() {
        let kernels: u64 = recording.kernels_of(i).iter().map(|k| k.end - k.begin).sum();
        assert!(0 < kernels && kernels <= step.end - step.begin, "{kernels} ns of {step:?}");
    }
    recording
}

/// One test: they count the same device.
#[test]
fn every_kernel_of_every_micro_batch_is_stamped_in_order_and_no_bit_changes() {
    let Some(executor) = gpu() else { return };
    let has_clock = executor.gpu().features.timestamps;
    let clock = if has_clock { KernelClock::Device } else { KernelClock::Waiting };
    for (batch, micro_batch) in [(8, MicroBatch::Off), (8, MicroBatch::Exactly(4))] {
        let plan = planned(&executor, batch, micro_batch);
        assert_eq!(recorded(&executor, &plan).clock, clock);
    }
    // A step with more kernels than stamps have room at once.
    let plan = planned(&executor, 64, MicroBatch::Exactly(1));
    let recording = recorded(&executor, &plan);
    assert!(recording.kernels_of(0).len() > 600, "{}", recording.kernels_of(0).len());
    println!("{}: {}", executor.gpu().name, if has_clock { "by its clock" } else { "by waiting" });
}
