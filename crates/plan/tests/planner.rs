//! The planner on small graphs, with a target that is not a device.

use memfit_ir::op::{Init, MatMul, ReduceKind, StateClass, Update};
use memfit_ir::{Builder, Graph, NodeId, TensorType, ValueId};
use memfit_plan::validate::validate;
use memfit_plan::{CostModel, MadeFor, MicroBatch, Phase, Place, Plan, PlanError, Request, Segment, Target, plan};
use memfit_transform::{Fusion, Group, StepGraph, Training, split_step, step};

/// Every kernel takes 100 bytes of scratch and a second.
struct Paper;

impl Target for Paper {
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
        100
    }
    fn seconds(&self, _: &Graph, _: &Group, _: u64, _: &CostModel) -> f64 {
        1.0
    }
    fn alignment(&self) -> u64 {
        64
    }
    fn largest_binding(&self) -> u64 {
        1 << 20
    }
    fn largest_segment(&self) -> u64 {
        1 << 20
    }
    fn can_run_in_place(&self, graph: &Graph, group: &Group, _: ValueId, output: ValueId) -> bool {
        let root = graph.node(group.root());
        root.op.is_elementwise() || !root.op.is_pure() || !root.outputs.contains(&output)
    }
}

/// The same, but nothing except an update works in place.
struct Apart;

impl Target for Apart {
    fn fusion(&self) -> Fusion {
        Paper.fusion()
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
    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64 {
        Paper.scratch_bytes(graph, group)
    }
    fn seconds(&self, graph: &Graph, group: &Group, fresh: u64, cost_model: &CostModel) -> f64 {
        Paper.seconds(graph, group, fresh, cost_model)
    }
    fn alignment(&self) -> u64 {
        Paper.alignment()
    }
    fn largest_binding(&self) -> u64 {
        Paper.largest_binding()
    }
    fn largest_segment(&self) -> u64 {
        Paper.largest_segment()
    }
    fn can_run_in_place(&self, graph: &Graph, group: &Group, _: ValueId, _: ValueId) -> bool {
        !graph.node(group.root()).op.is_pure()
    }
}

/// Two dense layers and a loss.
fn forward(batch: usize) -> (Graph, ValueId) {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([batch, 8])).unwrap();
    let y = b.input("y", TensorType::i32([batch])).unwrap();
    let mut h = x;
    for (name, inside, out) in [("fc1", 8, 16), ("fc2", 16, 4)] {
        h = b
            .scope(name, |b| {
                let w = b.param("weight", [inside, out], Init::Normal { std: 0.1 })?;
                let h = b.matmul(h, w)?;
                b.relu(h)
            })
            .unwrap();
    }
    let rows = b.cross_entropy(h, y, 0.0).unwrap();
    let loss = b.mean(rows).unwrap();
    b.output("loss", loss);
    (b.finish(), loss)
}

fn training() -> Training {
    let update = Update::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    Training::new(update)
}

fn source(batch: usize, micro: usize) -> Vec<(Phase, StepGraph)> {
    let (graph, loss) = forward(micro);
    let (eval, _) = forward(batch);
    let mut programs = if micro == batch {
        vec![(Phase::Step, step(&graph, loss, &training()).unwrap())]
    } else {
        let split = split_step(&graph, loss, &training(), micro as f32 / batch as f32).unwrap();
        vec![(Phase::Accumulate, split.accumulate), (Phase::Apply, split.apply.into())]
    };
    programs.push((Phase::Eval, eval.into()));
    programs
}

fn planned(request: &Request) -> Result<Plan, PlanError> {
    plan(&|micro| Ok(source(request.batch, micro)), &Paper, request)
}

#[test]
fn states_are_placed_once_for_all_programs() {
    let p = planned(&Request::new(4)).unwrap();
    let names: Vec<&str> = p.states.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["fc1/weight", "fc2/weight", "optimizer/fc1/weight/momentum", "optimizer/fc2/weight/momentum"]);
    assert_eq!(p.state_bytes, 4 * (8 * 16 + 16 * 4) * 2);
    assert_eq!(p.arena_bytes(), p.state_bytes + p.transient_bytes);
    for program in &p.programs {
        let v = program.graph.state("fc1/weight").unwrap();
        assert_eq!(program.place(v), Some(p.states[0].place), "{}", program.phase.name());
    }
}

#[test]
fn an_update_takes_the_place_of_its_state() {
    let p = planned(&Request::new(4)).unwrap();
    let program = p.program(Phase::Step).unwrap();
    assert_eq!(program.graph.donations.len(), 4);
    for d in &program.graph.donations {
        assert_eq!(program.place(d.old), program.place(d.new));
        assert_eq!(program.place(d.new).map(|p| p.segment), Some(Segment::State));
    }
}

#[test]
fn accumulators_lie_in_the_transient_segment_and_survive_both_programs() {
    let p = planned(&Request { micro_batch: MicroBatch::Exactly(2), ..Request::new(4) }).unwrap();
    assert_eq!(p.accumulate(), 2);
    let accumulators: Vec<_> = p.states.iter().filter(|s| s.class == StateClass::Accumulator).collect();
    assert_eq!(accumulators.len(), 3, "two gradients and the loss");
    for a in accumulators {
        assert_eq!(a.place.segment, Segment::Transient);
        for phase in [Phase::Accumulate, Phase::Apply] {
            let program = p.program(phase).unwrap();
            let inside = |q: &memfit_plan::Place| {
                q.segment == Segment::Transient
                    && q.offset < a.place.offset + a.place.size
                    && a.place.offset < q.offset + q.size
            };
            let scratch = program.launches.iter().filter_map(|s| s.scratch);
            assert!(!scratch.into_iter().any(|q| inside(&q)), "scratch of {} over {}", phase.name(), a.name);
        }
    }
}

#[test]
fn a_micro_batch_must_divide_the_batch() {
    for micro_batch in [0, 3] {
        let error = planned(&Request { micro_batch: MicroBatch::Exactly(micro_batch), ..Request::new(4) }).unwrap_err();
        assert!(matches!(error, PlanError::MicroBatch { .. }), "{error}");
    }
}

#[test]
fn a_budget_is_refused_one_byte_below_what_is_needed() {
    let needed = planned(&Request::new(4)).unwrap().arena_bytes();
    let at = |budget| planned(&Request { budget: Some(budget), ..Request::new(4) });
    assert_eq!(at(needed).unwrap().arena_bytes(), needed);
    let Err(PlanError::Refused(r)) = at(needed - 1) else { panic!("not refused") };
    assert_eq!((r.budget, r.needed), (needed - 1, needed));
    assert!(r.state_bytes < r.lower_bound && r.lower_bound <= r.needed, "{r:?}");
    assert!(!r.to_string().contains("no plan can fit"), "that is not proved: {r}");
    let Err(PlanError::Refused(r)) = at(r.lower_bound - 1) else { panic!("not refused") };
    assert!(r.to_string().contains("no plan can fit"), "{r}");
}

#[test]
fn a_segment_larger_than_the_device_can_use_is_refused() {
    let error = plan(&|micro| Ok(source(40_000, micro)), &Paper, &Request::new(40_000)).unwrap_err();
    assert!(matches!(error, PlanError::Binding { .. } | PlanError::Segment { .. }), "{error}");
}

#[test]
fn a_state_that_its_own_writer_needs_whole_is_copied_first() {
    let mut b = Builder::new();
    let s = b.param("s", [4, 4], Init::Constant(1.0)).unwrap();
    let turned = MatMul { transpose_a: true, transpose_b: false };
    let new = b.matmul_with(s, s, turned).unwrap();
    b.donate(s, new);
    let graph = b.finish();
    let p = plan(&|_| Ok(vec![(Phase::Step, graph.clone().into())]), &Paper, &Request::new(1)).unwrap();
    let ops: Vec<_> = p.programs[0].graph.nodes().iter().map(|n| n.op.name()).collect();
    assert_eq!(ops, ["state", "broadcast", "matmul"]);
}

/// Of two states that are overwritten, one is read by whoever needs its new value: that one is copied, whichever comes
/// first.
#[test]
fn only_a_state_that_is_read_too_late_is_copied() {
    for first in [true, false] {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([4, 64])).unwrap();
        let large = b.param("large", [64, 64], Init::Constant(1.0)).unwrap();
        let small = b.param("small", [8], Init::Constant(1.0)).unwrap();
        let y = b.matmul(x, large).unwrap();
        b.output("y", y);
        let grad = b.matmul_with(x, y, MatMul { transpose_a: true, transpose_b: false }).unwrap();
        let new_large = b.sub(large, grad).unwrap();
        let new_small = b.scale(small, 0.5).unwrap();
        let total = b.reduce(ReduceKind::Sum, new_small, &[0], false).unwrap();
        let late = b.mul(small, total).unwrap();
        b.output("late", late);
        let mut donations = [(large, new_large), (small, new_small)];
        donations.sort_by_key(|&(old, _)| (old == large) != first);
        donations.into_iter().for_each(|(old, new)| b.donate(old, new));
        let graph = b.finish();
        let p = plan(&|_| Ok(vec![(Phase::Step, graph.clone().into())]), &Paper, &Request::new(4)).unwrap();
        let graph = &p.programs[0].graph;
        let copied =
            graph.nodes().iter().filter(|n| n.op.name() == "broadcast").map(|n| graph.ty(n.outputs[0]).bytes());
        assert_eq!(copied.collect::<Vec<_>>(), [32], "the large one is donated first: {first}");
    }
}

#[test]
fn the_same_question_gets_the_same_plan() {
    let request = Request { micro_batch: MicroBatch::Exactly(2), ..Request::new(8) };
    assert_eq!(planned(&request).unwrap(), planned(&request).unwrap());
}

/// Every buffer of a plan, moved onto every other that it must not touch: the validator sees it, or it does no harm
/// because the two never live together.
#[test]
fn the_validator_sees_what_overlaps() {
    let p = plan(&|micro| Ok(source(4, micro)), &Apart, &Request::new(4)).unwrap();
    let program = p.program(Phase::Step).unwrap();
    let live = |v: ValueId| {
        let made = program.launches.iter().position(|s| s.group.writes.contains(&v));
        let read = program.launches.iter().rposition(|s| s.group.reads.contains(&v));
        Some((made?, read?))
    };
    let mut caught = 0;
    let values = (0..program.graph.values().len() as u32).map(ValueId);
    let placed: Vec<ValueId> = values.filter(|&v| live(v).is_some()).collect();
    for &a in &placed {
        for &b in placed.iter().filter(|&&b| b != a) {
            let mut moved = program.clone();
            let (at, size) = (program.place(b).unwrap(), program.place(a).unwrap().size);
            moved.places[a.index()] = Some(memfit_plan::Place { size, ..at });
            let (Some(la), Some(lb)) = (live(a), live(b)) else { continue };
            let together = la.0 <= lb.1 && lb.0 <= la.1;
            if together && at.offset + size <= p.transient_bytes {
                assert!(validate(&p, &moved, &Apart).is_err(), "%{} on %{} was not seen", a.0, b.0);
                caught += 1;
            }
        }
    }
    assert!(caught > 10, "only {caught} overlaps were tried");
}

/// Checks that the validator sees a change of a program of a valid plan.
fn check_seen(what: &str, phase: Phase, change: impl Fn(&mut Plan, usize), expected: &str) {
    let mut p = plan(&|micro| Ok(source(4, micro)), &Paper, &Request::new(4)).unwrap();
    let at = p.programs.iter().position(|program| program.phase == phase).unwrap();
    assert_eq!(validate(&p, &p.programs[at], &Paper), Ok(()), "{what}: it is valid before");
    change(&mut p, at);
    let error = validate(&p, &p.programs[at], &Paper).expect_err(what);
    assert!(error.contains(expected), "{what}: {error}");
}

#[test]
fn an_error_shows_the_launches_around_it() {
    let mut p = plan(&|micro| Ok(source(4, micro)), &Paper, &Request::new(4)).unwrap();
    let at = p.programs.iter().position(|program| program.phase == Phase::Step).unwrap();
    p.programs[at].launches[3].live_bytes += 4;
    let error = validate(&p, &p.programs[at], &Paper).expect_err("it lies");
    let (problem, around) = error.split_once('\n').expect("lines");
    assert!(problem.starts_with("launch 3: ") && problem.contains("said to be live"), "{error}");
    assert_eq!(around.lines().count(), 5, "{error}");
    assert!(around.lines().nth(2).is_some_and(|l| l.starts_with("  >    3  ")), "{error}");
    assert!(around.lines().all(|l| l.contains(" = ") && l.contains("transient[") && l.contains(" in \"")), "{error}");
}

#[test]
fn the_validator_sees_wrong_numbers_and_missing_scratch() {
    check_seen("no scratch", Phase::Step, |p, at| p.programs[at].launches[1].scratch = None, "100 bytes of scratch");
    check_seen("a wrong peak", Phase::Eval, |p, _| p.peak_bytes -= 1, "the peak is said to be");
    check_seen("wrong live bytes", Phase::Eval, |p, at| p.programs[at].launches[1].live_bytes += 4, "launch 1: ");
    let forget = |p: &mut Plan, at: usize| p.programs[at].launches.iter_mut().for_each(|s| s.dies.clear());
    check_seen("no deaths", Phase::Step, forget, "none are said to die");
    let early = |p: &mut Plan, at: usize| {
        let steps = &mut p.programs[at].launches;
        let from = steps.iter().rposition(|s| !s.dies.is_empty()).unwrap();
        let dead = steps[from].dies.pop().unwrap();
        steps[from - 1].dies.push(dead);
    };
    check_seen("an early death", Phase::Step, early, "said to die");
}

#[test]
fn the_validator_sees_what_lies_on_a_state() {
    // The evaluation reads no momentum, so nobody there would miss it.
    let over_momentum = |p: &mut Plan, at: usize| {
        let slot = p.states.iter().filter(|s| s.class == StateClass::Slot).max_by_key(|s| s.place.size).unwrap().place;
        let program = &mut p.programs[at];
        let written: Vec<ValueId> = program.launches.iter().flat_map(|s| s.group.writes.clone()).collect();
        let fits = |v: &&ValueId| program.place(**v).is_some_and(|q| q.size <= slot.size);
        let v = *written.iter().find(fits).unwrap();
        let size = program.place(v).unwrap().size;
        program.places[v.index()] = Some(Place { size, ..slot });
    };
    check_seen("a value", Phase::Eval, over_momentum, "in the state segment, but is no state");
    let scratch_over = |p: &mut Plan, at: usize| {
        let slot = p.states.iter().find(|s| s.class == StateClass::Slot).unwrap().place;
        p.programs[at].launches[0].scratch = Some(Place { size: 100, ..slot });
    };
    check_seen("scratch", Phase::Eval, scratch_over, "the scratch lies in the state segment");
}
