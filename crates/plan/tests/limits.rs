//! Plans for a device that aligns widely and can be given only so much at once: what fits is placed, what cannot is
//! refused by name.

use memfit_ir::op::{Init, Update};
use memfit_ir::{Builder, Graph, NodeId, ValueId};
use memfit_plan::validate::validate;
use memfit_plan::{CostModel, MadeFor, MicroBatch, Phase, Plan, PlanError, Request, Segment, Target, plan};
use memfit_transform::{Fusion, Group, StepGraph, Training, split_step, step};

const ALIGNMENT: u64 = 256;

/// A device as GPUs are: 256 bytes between placements, and two limits.
#[derive(Clone, Copy)]
struct Device {
    binding: u64,
    segment: u64,
}

impl Target for Device {
    fn fusion(&self) -> Fusion {
        Fusion::FULL
    }
    fn describe(&self) -> MadeFor {
        MadeFor::new("paper", "none")
    }
    fn cost_model(&self) -> CostModel {
        CostModel::new("paper", 270.0, 28.0, 3.0)
    }
    fn supports(&self, _: &Graph, _: NodeId) -> Result<(), String> {
        Ok(())
    }
    fn scratch_bytes(&self, _: &Graph, _: &Group) -> u64 {
        0
    }
    fn seconds(&self, graph: &Graph, group: &Group, _: u64, _: &CostModel) -> f64 {
        group.writes.iter().map(|&v| graph.ty(v).bytes() as f64).sum::<f64>() + 1e6
    }
    fn alignment(&self) -> u64 {
        ALIGNMENT
    }
    fn largest_binding(&self) -> u64 {
        self.binding
    }
    fn largest_segment(&self) -> u64 {
        self.segment
    }
    fn can_run_in_place(&self, graph: &Graph, group: &Group, _: ValueId, _: ValueId) -> bool {
        !graph.node(group.root()).op.is_pure()
    }
}

const BATCH: usize = 32;
const WIDTH: usize = 50;

/// A step of two layers; no extent is a multiple of the alignment.
fn source(batch: usize, micro: usize) -> Vec<(Phase, StepGraph)> {
    let mut b = Builder::new();
    let x = b.input("x", memfit_ir::TensorType::f32([micro, 6])).unwrap();
    let y = b.input("y", memfit_ir::TensorType::i32([micro])).unwrap();
    let mut h = x;
    for (name, inside, out) in [("fc1", 6, WIDTH), ("fc2", WIDTH, 3)] {
        let layer = |b: &mut Builder| {
            let w = b.param("weight", [inside, out], Init::Normal { std: 0.1 })?;
            let h = b.matmul(h, w)?;
            b.relu(h)
        };
        h = b.scope(name, layer).unwrap();
    }
    let rows = b.cross_entropy(h, y, 0.0).unwrap();
    let loss = b.mean(rows).unwrap();
    b.output("loss", loss);
    let graph = b.finish();
    let update = Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let training = Training::new(update);
    if micro == batch {
        return vec![(Phase::Step, step(&graph, loss, &training).unwrap())];
    }
    let split = split_step(&graph, loss, &training, micro as f32 / batch as f32).unwrap();
    vec![(Phase::Accumulate, split.accumulate), (Phase::Apply, split.apply.into())]
}

fn planned(device: Device, micro_batch: MicroBatch) -> Result<Plan, PlanError> {
    let request = Request { micro_batch, ..Request::new(BATCH) };
    plan(&|micro| Ok(source(BATCH, micro)), &device, &request)
}

const ROOMY: Device = Device { binding: u64::MAX, segment: u64::MAX };
/// Of the hidden layer of the whole batch: the largest value of the step.
const HIDDEN: u64 = (4 * BATCH * WIDTH) as u64;

#[test]
fn every_placement_is_aligned() {
    let p = planned(ROOMY, MicroBatch::Exactly(4)).unwrap();
    let states = p.states.iter().map(|s| s.place);
    let values = p.programs.iter().flat_map(|q| q.places.iter().flatten().copied());
    let mut odd = 0;
    for place in states.chain(values) {
        assert_eq!(place.offset % ALIGNMENT, 0, "{place:?}");
        odd += u32::from(place.size % ALIGNMENT != 0);
    }
    assert!(odd > 10, "only {odd} sizes are no multiple of the alignment");
}

#[test]
fn a_value_may_be_as_large_as_a_binding_and_a_segment_larger() {
    let fits = Device { binding: HIDDEN, ..ROOMY };
    let p = planned(fits, MicroBatch::Off).unwrap();
    assert!(p.transient_bytes > HIDDEN, "the limit is of one value, not of all of them together");
    let error = planned(Device { binding: HIDDEN - 1, ..ROOMY }, MicroBatch::Off).unwrap_err();
    let PlanError::Binding { bytes, limit, .. } = error else { panic!("{error}") };
    assert_eq!((bytes, limit), (HIDDEN, HIDDEN - 1));
    assert!(error.to_string().contains("f32[32,50]") && error.to_string().contains("\"fc1\""), "{error}");
}

#[test]
fn micro_batches_make_values_small_enough_to_bind() {
    let device = Device { binding: HIDDEN / 2, ..ROOMY };
    let p = planned(device, MicroBatch::Auto).unwrap();
    assert_eq!(p.micro_batch, BATCH / 2, "the largest micro-batch of which the hidden layer fits");
    assert_eq!(planned(ROOMY, MicroBatch::Auto).unwrap().micro_batch, BATCH);
}

#[test]
fn a_state_that_cannot_be_bound_is_named() {
    let weight = 4 * (6 * WIDTH) as u64;
    let error = planned(Device { binding: weight - 1, ..ROOMY }, MicroBatch::Auto).unwrap_err();
    assert!(matches!(error, PlanError::Binding { bytes, .. } if bytes == weight), "{error}");
    assert!(error.to_string().contains("\"fc1/weight\""), "{error}");
}

#[test]
fn a_segment_that_cannot_be_allocated_is_refused() {
    let p = planned(ROOMY, MicroBatch::Off).unwrap();
    let whole = p.state_bytes.max(p.transient_bytes);
    assert_eq!(planned(Device { segment: whole, ..ROOMY }, MicroBatch::Off).unwrap(), p);
    let error = planned(Device { segment: p.state_bytes - 1, ..ROOMY }, MicroBatch::Auto).unwrap_err();
    assert!(matches!(error, PlanError::Segment { segment: Segment::State, .. }), "{error}");
    // What keeps the device's limit is found among the candidates that take less.
    let tight = Device { segment: p.transient_bytes - 1, ..ROOMY };
    assert!(planned(tight, MicroBatch::Auto).unwrap().transient_bytes < p.transient_bytes);
}

#[test]
fn the_validator_holds_a_plan_against_the_limits_of_the_device() {
    let p = planned(ROOMY, MicroBatch::Off).unwrap();
    let program = p.program(Phase::Step).unwrap();
    let segment = p.state_bytes.max(p.transient_bytes);
    let check = |device| validate(&p, program, &device);
    assert_eq!(check(Device { binding: HIDDEN, segment }), Ok(()));
    let error = check(Device { binding: HIDDEN - 1, segment }).unwrap_err();
    assert!(error.contains("more than the 6399"), "{error}");
    let error = check(Device { binding: HIDDEN, segment: segment - 1 }).unwrap_err();
    assert!(error.contains("a segment is larger"), "{error}");
}
