//! A profile of a plan: what will happen, before anything does. Read off the plan alone.

use std::collections::{HashMap, HashSet};

use memfit_ir::op::StateClass;
use memfit_ir::{Donation, NodeId, Op, ValueId, cost};
use memfit_plan::report::{self, buffers};
use memfit_plan::{Phase, Plan, Point, Tool};

use crate::model::*;
use crate::peak;

/// What a plan does not say of itself.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// The name of the model.
    pub model: String,
    /// Of one sample.
    pub input: String,
    /// By name.
    pub precision: String,
    /// By name.
    pub optimizer: String,
    /// What the plan had to fit into.
    pub budget: Option<u64>,
    /// The frontier that it was chosen from.
    pub frontier: Vec<Point>,
}

/// The profile of a plan of which nothing ran yet.
pub fn from_plan(plan: &Plan, labels: &Labels) -> Profile {
    let run = Run {
        model: labels.model.clone(),
        input: labels.input.clone(),
        batch: plan.batch,
        micro_batch: plan.micro_batch,
        accumulate: plan.accumulate(),
        precision: labels.precision.clone(),
        optimizer: labels.optimizer.clone(),
        device: plan.made_for.as_ref().map(ToString::to_string).unwrap_or_default(),
        cost_model: format!("{:016x}", plan.cost_model_hash),
        memfit: env!("CARGO_PKG_VERSION").into(),
        path: None,
    };
    let indices: Vec<Index> = plan.programs.iter().map(Index::new).collect();
    let programs: Vec<Program> = plan.programs.iter().zip(&indices).map(|(p, index)| program(plan, p, index)).collect();
    let kernels = programs.iter().map(|p| p.repeats * p.launches.len()).sum();
    let mut profile = Profile {
        format: FORMAT.into(),
        version: VERSION,
        run,
        memory: memory(plan, labels.budget, kernels),
        states: states(plan),
        programs,
        peak: Peak::default(),
        tools: tools(plan, &indices),
        frontier: labels.frontier.iter().map(point).collect(),
        limits: None,
        measured: None,
        pipeline: None,
        curves: Vec::new(),
    };
    profile.peak = peak::at_peak(plan, &profile, &|p, launch| plan.programs[p].launches[launch].seconds);
    profile
}

fn memory(plan: &Plan, budget: Option<u64>, kernels: usize) -> Memory {
    Memory {
        budget_bytes: budget,
        arena_bytes: plan.arena_bytes(),
        staging_bytes: plan.staging_bytes,
        peak_bytes: plan.peak_bytes,
        state_bytes: plan.state_bytes,
        transient_bytes: plan.transient_bytes,
        input_bytes: plan.input_bytes(),
        keep_all_bytes: plan.keep_all_bytes,
        lower_bound_bytes: plan.lower_bound_bytes,
        predicted_step_ms: plan.predicted_step_seconds * 1e3,
        fastest_step_ms: plan.fastest_step_seconds * 1e3,
        recomputed_ops: plan.recomputed_ops,
        kernels,
    }
}

fn states(plan: &Plan) -> Vec<State> {
    let mut slots: Vec<_> = plan.states.iter().collect();
    slots.sort_by_key(|s| (s.place.segment, s.place.offset));
    let state = |s: &memfit_plan::StateSlot| State {
        name: s.name.clone(),
        class: Class::of_state(s.class),
        ty: s.ty.to_string(),
        offset: s.place.offset,
        bytes: s.place.size,
    };
    slots.into_iter().map(state).collect()
}

/// What is asked of a program for each of its launches and buffers.
struct Index<'a> {
    /// Nodes that make the next value of something that is trained.
    updates: HashSet<NodeId>,
    clones: HashSet<NodeId>,
    /// Names, by value.
    inputs: HashMap<ValueId, &'a str>,
}

impl<'a> Index<'a> {
    fn new(program: &'a memfit_plan::Program) -> Index<'a> {
        let graph = &program.graph;
        let is_trained =
            |op: &Op| matches!(op, Op::State(s) if matches!(s.class, StateClass::Param | StateClass::Slot));
        let is_update = |d: &&Donation| is_trained(graph.producer_op(d.old));
        Index {
            updates: graph.donations.iter().filter(is_update).map(|d| graph.producer(d.new)).collect(),
            clones: program.clones.iter().copied().collect(),
            inputs: graph.inputs().map(|(name, v)| (v, name)).collect(),
        }
    }
}

fn program(plan: &Plan, program: &memfit_plan::Program, index: &Index) -> Program {
    let graph = &program.graph;
    let accumulators = graph.states().filter(|(s, _)| s.class == StateClass::Accumulator);
    Program {
        phase: program.phase.name().into(),
        repeats: repeats(plan, program.phase),
        accumulator_bytes: accumulators.map(|(_, v)| graph.ty(v).bytes()).sum(),
        launches: program.launches.iter().map(|l| launch(program, l, index)).collect(),
        buffers: buffers(program).iter().filter(|b| b.first < b.end).map(|b| buffer(program, b, index)).collect(),
    }
}

/// How often a program runs in a step.
fn repeats(plan: &Plan, phase: Phase) -> usize {
    match phase {
        Phase::Step | Phase::Apply => 1,
        Phase::Accumulate => plan.accumulate(),
        Phase::Fold(fold) => plan.replica.schedule().concat().iter().filter(|f| **f == fold).count(),
        Phase::Eval | Phase::Export => 0,
    }
}

fn launch(program: &memfit_plan::Program, launch: &memfit_plan::Launch, index: &Index) -> Launch {
    let (graph, group) = (&program.graph, &launch.group);
    let root = graph.node(group.root());
    let flops = group.nodes.iter().fold(0u64, |sum, id| sum.saturating_add(cost(graph, *id).flops));
    let traffic = group.reads.iter().chain(&group.writes).map(|v| graph.ty(*v).bytes()).sum();
    let ops: Vec<&str> = group.nodes.iter().map(|id| graph.node(*id).op.name()).collect();
    Launch {
        op: root.op.name().into(),
        ops: ops.join("+"),
        layer: root.scope.clone(),
        part: part(program, launch, index),
        live_bytes: launch.live_bytes,
        scratch_bytes: launch.scratch.map_or(0, |p| p.size),
        scratch_offset: launch.scratch.map_or(0, |p| p.offset),
        flops,
        traffic_bytes: traffic,
        predicted_us: launch.seconds * 1e6,
    }
}

fn part(program: &memfit_plan::Program, launch: &memfit_plan::Launch, index: &Index) -> Part {
    let group = &launch.group;
    if program.phase == Phase::Apply || group.nodes.iter().any(|id| index.updates.contains(id)) {
        Part::Update
    } else if index.clones.contains(&group.root()) {
        Part::Recompute
    } else if program.forward_end.is_none_or(|end| group.root() <= end) {
        Part::Forward
    } else {
        Part::Backward
    }
}

fn buffer(program: &memfit_plan::Program, b: &report::Buffer, index: &Index) -> Buffer {
    let graph = &program.graph;
    let maker = graph.producer(b.value);
    let node = graph.node(maker);
    let (op, layer) = match index.inputs.get(&b.value) {
        Some(name) => ("input", *name),
        None => (node.op.name(), node.scope.as_str()),
    };
    Buffer {
        value: b.value.0,
        op: op.into(),
        layer: layer.into(),
        ty: graph.ty(b.value).to_string(),
        class: b.class,
        offset: b.place.offset,
        bytes: b.place.size,
        first: b.first,
        end: b.end,
        last_read: b.last_read,
        recomputed: index.clones.contains(&maker),
        in_place: b.in_place,
    }
}

/// What was paid is predicted: for ops that run a second time what these take, and for micro-batches what is left of the
/// difference to the fastest plan.
fn tools(plan: &Plan, indices: &[Index]) -> Vec<ToolUse> {
    let recompute_of = |(p, index): (&memfit_plan::Program, &Index)| {
        let clones = p.launches.iter().filter(|l| part(p, l, index) == Part::Recompute);
        repeats(plan, p.phase) as f64 * clones.map(|l| l.seconds).sum::<f64>()
    };
    let recompute: f64 = plan.programs.iter().zip(indices).map(recompute_of).sum();
    let rest = (plan.predicted_step_seconds - plan.fastest_step_seconds - recompute).max(0.0);
    let paid = |tool| match tool {
        Tool::Recompute => recompute,
        Tool::MicroBatches if plan.accumulate() > 1 => rest,
        Tool::MicroBatches | Tool::Groups | Tool::InPlace | Tool::Masks | Tool::Order | Tool::Shard => 0.0,
    };
    let tool = |s: &memfit_plan::Saving| ToolUse {
        tool: s.tool.name().into(),
        saved_bytes: s.bytes,
        paid_ms: paid(s.tool) * 1e3,
    };
    plan.savings.iter().map(tool).collect()
}

fn point(p: &Point) -> FrontierPoint {
    FrontierPoint {
        arena_bytes: p.arena_bytes,
        step_ms: p.seconds * 1e3,
        micro_batch: p.micro_batch,
        recomputed_ops: p.recomputed_ops,
    }
}
