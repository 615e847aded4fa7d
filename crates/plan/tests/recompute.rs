//! Recompute on chains whose best plans are known.

use memfit_ir::op::{Init, Update};
use memfit_ir::{Builder, Graph, NodeId, Op, TensorType, ValueId};
use memfit_plan::{CostModel, MadeFor, MicroBatch, Phase, PlanError, Request, Survey, Target, survey};
use memfit_transform::{Fusion, Group, StepGraph, Training, step};

/// A product takes a second, all else next to nothing; no scratch.
struct Even;

impl Target for Even {
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
        let products = group.nodes.iter().filter(|&&n| matches!(graph.node(n).op, Op::MatMul(_))).count();
        products as f64 + 1e-3
    }
    fn alignment(&self) -> u64 {
        4
    }
    fn largest_binding(&self) -> u64 {
        1 << 40
    }
    fn largest_segment(&self) -> u64 {
        1 << 40
    }
    fn can_run_in_place(&self, graph: &Graph, group: &Group, input: ValueId, output: ValueId) -> bool {
        let root = graph.node(group.root());
        let elementwise = root.op.is_elementwise() && graph.ty(input) == graph.ty(output);
        elementwise || !root.op.is_pure()
    }
}

const BATCH: usize = 4096;
const WIDTH: usize = 4;
/// Bytes of what one layer gives.
const LAYER: u64 = (4 * BATCH * WIDTH) as u64;

fn chain(layers: usize) -> Result<Vec<(Phase, StepGraph)>, Box<dyn std::error::Error + Send + Sync>> {
    let mut b = Builder::new();
    let mut h = b.input("x", TensorType::f32([BATCH, WIDTH]))?;
    for i in 0..layers {
        h = b.scope(format!("layer{i}"), |b| {
            let w = b.param("weight", [WIDTH, WIDTH], Init::Normal { std: 0.1 })?;
            let h = b.matmul(h, w)?;
            b.relu(h)
        })?;
    }
    let loss = b.mean(h)?;
    b.output("loss", loss);
    let update = Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let training = Training::new(update);
    Ok(vec![(Phase::Step, step(&b.finish(), loss, &training)?)])
}

fn surveyed(layers: usize) -> Survey<'static> {
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(BATCH) };
    survey(move |_| chain(layers), &Even, &request).unwrap()
}

/// The memory of keeping all grows with the depth, that of the best plans with its root.
#[test]
fn memory_is_sublinear_in_the_depth_of_a_chain() {
    for (layers, most) in [(64, 24), (256, 40)] {
        let survey = surveyed(layers);
        let fastest = survey.frontier()[0];
        assert!(fastest.transient_bytes > (layers as u64) * LAYER, "a chain keeps every layer");
        let one_more_forward = fastest.seconds + layers as f64 * 1.01;
        let fitting = survey.frontier().into_iter().filter(|p| p.seconds <= one_more_forward);
        let smallest = fitting.map(|p| p.transient_bytes).min().unwrap();
        assert!(smallest <= most * LAYER, "{layers} layers: {:.1} outputs", smallest as f64 / LAYER as f64);
    }
}

#[test]
fn a_refusal_proves_no_more_than_the_bound() {
    let survey = surveyed(16);
    let bound = survey.lower_bound_bytes();
    let smallest = survey.frontier().last().unwrap().arena_bytes;
    assert!(bound <= smallest);
    for (budget, proved) in [(bound - 1, true), (bound, false), (smallest - 1, smallest - 1 < bound)] {
        match survey.plan(Some(budget)) {
            Err(PlanError::Refused(refusal)) => {
                assert_eq!(refusal.is_proved(), proved, "{budget} of {bound}");
                let certain = refusal.to_string().starts_with("no plan can fit");
                assert_eq!(certain, proved);
            }
            Err(other) => panic!("{other}"),
            Ok(plan) => assert!(!proved && plan.arena_bytes() <= budget),
        }
    }
}

#[test]
fn a_larger_budget_never_gives_a_slower_plan() {
    let survey = surveyed(32);
    let (low, high) = (survey.frontier().last().unwrap().arena_bytes, survey.frontier()[0].arena_bytes);
    let mut before = f64::INFINITY;
    for i in 0..=100 {
        let budget = low + (high - low) * i / 100;
        let plan = survey.plan(Some(budget)).unwrap();
        assert!(plan.predicted_step_seconds <= before);
        assert!(plan.arena_bytes() <= budget);
        before = plan.predicted_step_seconds;
    }
    assert_eq!(before, survey.frontier()[0].seconds);
}
