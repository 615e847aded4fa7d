//! What a device cannot run is refused by name before anything is planned, and a plan says what it was made for.

use memfit_ir::op::{Init, Update};
use memfit_ir::{Builder, Graph, NodeId, Op, TensorType, ValueId};
use memfit_plan::save::{Labels, SaveError, load, save};
use memfit_plan::{CostModel, MadeFor, Phase, Plan, PlanError, Request, Target, plan};
use memfit_transform::{Fusion, Group, StepGraph, Training, step};

/// A device without reductions, whose products take so much scratch.
struct Partial {
    isa: &'static str,
    has_reductions: bool,
    scratch: u64,
}

const WHOLE: Partial = Partial { isa: "wide", has_reductions: true, scratch: 64 };

impl Target for Partial {
    fn describe(&self) -> MadeFor {
        MadeFor { threads: Some(2), ..MadeFor::new("paper", self.isa) }
    }
    fn cost_model(&self) -> CostModel {
        CostModel::new("paper", 1.0, 1.0, 1.0)
    }
    fn supports(&self, graph: &Graph, node: NodeId) -> Result<(), String> {
        match graph.node(node).op {
            Op::Reduce(_) if !self.has_reductions => Err("it adds nothing up".into()),
            _ => Ok(()),
        }
    }
    fn fusion(&self) -> Fusion {
        Fusion::FULL
    }
    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64 {
        if matches!(graph.node(group.root()).op, Op::MatMul(_)) { self.scratch } else { 0 }
    }
    fn seconds(&self, _: &Graph, _: &Group, _: u64, cost_model: &CostModel) -> f64 {
        cost_model.launch_us
    }
    fn alignment(&self) -> u64 {
        64
    }
    fn largest_binding(&self) -> u64 {
        1 << 40
    }
    fn largest_segment(&self) -> u64 {
        1 << 40
    }
    fn can_run_in_place(&self, graph: &Graph, group: &Group, _: ValueId, _: ValueId) -> bool {
        !graph.node(group.root()).op.is_pure()
    }
}

fn training_step() -> Result<Vec<(Phase, StepGraph)>, Box<dyn std::error::Error + Send + Sync>> {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([8, 4]))?;
    let h = b.scope("layer", |b| {
        let w = b.param("weight", [4, 4], Init::Normal { std: 0.1 })?;
        b.matmul(x, w)
    })?;
    let loss = b.scope("loss", |b| b.mean(h))?;
    b.output("loss", loss);
    let update = Update::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    Ok(vec![(Phase::Step, step(&b.finish(), loss, &Training::new(update))?)])
}

fn planned(target: &Partial, cost_model: Option<CostModel>) -> Result<Plan, PlanError> {
    plan(&|_| training_step(), target, &Request { cost_model, ..Request::new(8) })
}

#[test]
fn what_has_no_kernel_is_named_with_its_layer() {
    let refused = planned(&Partial { has_reductions: false, ..WHOLE }, None).expect_err("it has no reductions");
    let PlanError::Unsupported { device, ops } = &refused else { panic!("{refused}") };
    assert_eq!((device.as_str(), ops.len()), ("paper (wide) with 2 threads", 1), "{refused}");
    assert_eq!((ops[0].op, ops[0].layer.as_str()), ("reduce_mean", "loss"), "{refused}");
    assert!(refused.to_string().contains("reduce_mean in layer \"loss\": it adds nothing up"), "{refused}");
}

#[test]
fn times_are_predicted_by_the_target_unless_another_model_is_named() {
    let (own, slow) = (WHOLE.cost_model(), CostModel::new("slow", 1.0, 1.0, 2.0));
    let [by_itself, by_name, slower] =
        [None, Some(own.clone()), Some(slow)].map(|model| planned(&WHOLE, model).expect("a plan"));
    assert_eq!((by_itself.cost_model_hash, &by_itself), (own.hash(), &by_name));
    assert_eq!(slower.predicted_step_seconds, 2.0 * by_itself.predicted_step_seconds);
}

#[test]
fn a_plan_that_does_not_hold_elsewhere_names_both() {
    let narrow = Partial { isa: "narrow", scratch: 128, ..WHOLE };
    let text = save(&planned(&WHOLE, None).expect("a plan"), &Labels::new());
    let saved = load(&text).expect("its own file");
    assert_eq!(saved.plan.made_for, Some(WHOLE.describe()));
    let problem = saved.clone().for_target(&narrow).expect_err("the instructions differ").to_string();
    for part in ["paper (wide) with 2 threads", "paper (narrow) with 2 threads", "other bits", "plan for this device"] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
    // A file of before does not say it, and holds where it held.
    let mut old = saved.plan.clone();
    old.made_for = None;
    let text = save(&old, &Labels::new());
    assert!(!text.contains("made_for"));
    let old = load(&text).expect("an older file");
    assert!(old.clone().for_target(&WHOLE).is_ok());
    assert!(matches!(old.for_target(&narrow), Err(SaveError::Broken(_))));
}
