//! What a recorder is told of steps: every kernel of every micro-batch, in order; and that it changes no bit.

use std::sync::Arc;

use memfit::exec::recorder::KernelClock;
use memfit::exec::{Executor, Growth, Recorder};
use memfit::nn::Optimizer;
use memfit::plan::MicroBatch;
use memfit::profile::{Labels, StepFacts, add_measured, from_plan};
use memfit::synthetic::SyntheticBatch;
use memfit::{CpuExecutor, Options, Plan, Request, Session, Training, ZooModel, plan_model};
use memfit_exec_tests::check_recording;

const STEPS: usize = 3;

fn plan(cpu: &CpuExecutor, micro_batch: MicroBatch) -> Plan {
    let model = ZooModel::from_name("digits").unwrap();
    let request = Request { micro_batch, ..Request::new(32) };
    plan_model(&model, &Training::new(Optimizer::adam().update), cpu.target(), &request).unwrap()
}

/// Some steps; gives the weights.
fn train(cpu: &CpuExecutor, plan: &Plan, recorder: Option<Arc<Recorder>>) -> Vec<Vec<u8>> {
    let options = Options { growth: Growth::Lazy, ..Options::default() };
    let mut session = Session::with_options(cpu.clone(), plan.clone(), 1, options).unwrap();
    session.record(recorder);
    let batch = SyntheticBatch::new(plan, 10);
    (0..STEPS).for_each(|_| _ = session.step(&batch.views(), 1e-3).unwrap());
    session.weights().map(|s| session.weight(&s.name).unwrap()).collect()
}

#[test]
fn every_kernel_of_every_micro_batch_is_recorded_in_order_and_no_bit_changes() {
    let cpu = CpuExecutor::new(2).unwrap();
    for micro_batch in [MicroBatch::Off, MicroBatch::Exactly(8)] {
        let plan = plan(&cpu, micro_batch);
        let recorder = Arc::new(Recorder::new(10_000, 10));
        assert_eq!(train(&cpu, &plan, Some(recorder.clone())), train(&cpu, &plan, None));
        let recording = recorder.take();
        assert_eq!(recording.steps.iter().map(|s| s.step as usize).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(recording.clock, KernelClock::Threads);
        check_recording(&plan, &recording).unwrap();
    }
}

#[test]
fn the_pages_of_a_lazy_arena_are_those_that_were_planned() {
    let cpu = CpuExecutor::new(2).unwrap();
    let plan = plan(&cpu, MicroBatch::Off);
    let recorder = Arc::new(Recorder::new(10_000, 10));
    train(&cpu, &plan, Some(recorder.clone()));
    let recording = recorder.take();
    let mut profile = from_plan(&plan, &Labels::default());
    add_measured(&mut profile, &plan, &recording, &[StepFacts::default(); STEPS]);
    let measured = profile.measured.as_ref().unwrap();
    for step in &measured.steps {
        // Two segments, each rounded up to pages; what evaluation alone needs is not touched.
        if let Some(bytes) = step.arena_resident_bytes {
            assert!(bytes <= plan.arena_bytes() + (2 << 16), "{bytes} and not {}", plan.arena_bytes());
            assert!(bytes >= plan.peak_bytes / 2, "{bytes} of {}", plan.peak_bytes);
        }
    }
    let count: u64 = measured.kernels.iter().flatten().map(|k| k.count).sum();
    assert_eq!(count as usize, STEPS * profile.memory.kernels);
    assert!(!measured.slices.is_empty());
    assert_eq!(memfit::profile::Profile::from_json(&profile.to_json()).unwrap(), profile);
}
