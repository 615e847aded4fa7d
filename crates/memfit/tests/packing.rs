//! How much of the arena is lost between buffers: on every model of the zoo, next to nothing.

use memfit::exec::Executor;
use memfit::nn::optim::Optimizer;
use memfit::plan::bytes::Bytes;
use memfit::{Clip, CpuExecutor, Model, Request, Training, plan_model};

#[test]
fn every_training_step_of_the_zoo_is_packed_into_its_peak_and_a_hundredth() {
    let cpu = CpuExecutor::new(1).expect("one thread");
    let training = Training { update: Optimizer::adam().update, clip: Clip::None, frozen: Default::default() };
    for name in Model::names() {
        let model = Model::from_name(name).expect("a name of the zoo");
        // Small batches are the hard ones: weights and activations are of like size then.
        for (batch, micro_batch) in [(1, 1), (2, 2), (4, 4), (16, 16), (8, 2)] {
            let request = Request { micro_batch, ..Request::new(batch) };
            let plan = plan_model(&model, &training, cpu.target(), &request).expect("a plan without a budget");
            let live = plan.peak_bytes - plan.state_bytes;
            let ratio = plan.transient_bytes as f64 / live as f64;
            println!("{name}, {batch} in {micro_batch}: {} live, {ratio:.5} of it taken", Bytes(live));
            assert!(ratio <= 1.01, "{name}, batch {batch} in micro-batches of {micro_batch}: {ratio}");
        }
    }
}
