//! How much of the arena is lost between buffers: on every model of the zoo, next to nothing.

use memfit::exec::Executor;
use memfit::nn::optim::Optimizer;
use memfit::plan::bytes::Bytes;
use memfit::plan::{MicroBatch, survey};
use memfit::{CpuExecutor, Plan, Request, Training, ZooModel, programs};
use memfit_test_effort::some;

/// The fastest plan and the smallest.
fn plans(model: &ZooModel, batch: usize, micro_batch: usize) -> [Plan; 2] {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let training = Training::new(Optimizer::adam().update);
    let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), ..Request::new(batch) };
    let source = |micro_batch| programs(model, &training, batch, micro_batch);
    let survey = survey(source, cpu.target(), &request).expect("a survey");
    let smallest = survey.frontier().last().map(|point| point.arena_bytes);
    [None, smallest].map(|budget| survey.plan(budget).expect("a plan of the frontier"))
}

#[test]
fn every_training_step_of_the_zoo_is_packed_into_its_peak_and_a_hundredth() {
    for name in some(ZooModel::names()) {
        let model = ZooModel::from_name(name).expect("a name of the zoo");
        // Small batches are the hard ones: weights and activations are of like size then.
        for (batch, micro_batch) in [(2, 2), (8, 2)] {
            for plan in plans(&model, batch, micro_batch) {
                let live = plan.peak_bytes - plan.state_bytes;
                let ratio = plan.transient_bytes as f64 / live as f64;
                println!("{name}, {batch} in {micro_batch}: {} live, {ratio:.5} of it taken", Bytes(live));
                assert!(ratio <= 1.01, "{name}, batch {batch} in micro-batches of {micro_batch}: {ratio}");
            }
        }
    }
}
