//! The pipeline: programs → groups → order → lifetimes → packing → validated plan, or a refusal.

use std::collections::HashMap;

use memfit_ir::op::StateClass;
use memfit_ir::{Graph, Op, ValueId, verify};
use memfit_transform::group::{Grouping, group, is_view};
use memfit_transform::{Group, Needed, copy_state};

use crate::error::{PlanError, Refusal, Resident};
use crate::lifetime::{Buffer, Owner, buffers, live_bytes};
use crate::order::{order, storage};
use crate::pack::{Item, pack};
use crate::profile::Profile;
use crate::target::Target;
use crate::types::{Phase, Place, Plan, Program, Segment, StateSlot, Step};
use crate::validate::validate;

/// Makes the programs for a micro-batch: `[Step]` where it is the whole batch, else `[Accumulate, Apply]`; and `Eval`
/// where it is wanted.
pub type Source<'a> = dyn Fn(usize) -> Result<Vec<(Phase, Graph)>, Box<dyn std::error::Error + Send + Sync>> + 'a;

/// What is asked of the planner besides the model and the device.
#[derive(Clone, Debug)]
pub struct Request {
    pub batch: usize,
    /// A divisor of the batch; the batch itself for a whole step.
    pub micro_batch: usize,
    /// Bytes for both segments; none for as much as it takes.
    pub budget: Option<u64>,
    pub grouping: Grouping,
    pub profile: Profile,
}

impl Request {
    pub fn new(batch: usize) -> Request {
        Request { batch, micro_batch: batch, budget: None, grouping: Grouping::Fused, profile: Profile::default() }
    }
}

/// Plans a model for a device under a budget. Pure: the same arguments give the same plan.
pub fn plan(source: &Source, target: &dyn Target, request: &Request) -> Result<Plan, PlanError> {
    let Request { batch, micro_batch, .. } = *request;
    if micro_batch == 0 || !batch.is_multiple_of(micro_batch) {
        return Err(PlanError::MicroBatch { micro_batch, batch });
    }
    let graphs = source(micro_batch).map_err(PlanError::Source)?;
    for (phase, graph) in &graphs {
        verify(graph).map_err(|e| PlanError::Graph { phase: *phase, problem: e.to_string() })?;
    }
    let total: u128 = graphs.iter().flat_map(|(_, g)| g.values()).map(|v| v.ty.bytes() as u128).sum();
    if total > i64::MAX as u128 / 4 {
        return Err(PlanError::TooLarge);
    }
    let (states, state_bytes, pinned_bytes) = place_states(&graphs, target.alignment())?;
    let by_name: HashMap<&str, Place> = states.iter().map(|s| (s.name.as_str(), s.place)).collect();
    let drafts: Vec<Draft> =
        graphs.into_iter().map(|(phase, graph)| Draft::new(phase, graph, target, request)).collect::<Result<_, _>>()?;
    let mut transient_bytes = pinned_bytes;
    let mut peak_transient = 0;
    let mut programs = Vec::with_capacity(drafts.len());
    let lower_bound = state_bytes + drafts.iter().map(|d| d.largest_working_set()).max().unwrap_or(0);
    let mut fullest: Option<(u64, usize, usize)> = None;
    for (i, draft) in drafts.iter().enumerate() {
        let pinned = if draft.has_accumulators() { pinned_bytes } else { 0 };
        let (program, bytes) = draft.place(&by_name, pinned, target.alignment());
        transient_bytes = transient_bytes.max(bytes);
        for (step, s) in program.steps.iter().enumerate() {
            if fullest.is_none_or(|(bytes, ..)| s.live_bytes > bytes) {
                fullest = Some((s.live_bytes, i, step));
            }
        }
        peak_transient = peak_transient.max(program.steps.iter().map(|s| s.live_bytes).max().unwrap_or(0));
        programs.push(program);
    }
    let plan = Plan {
        batch,
        micro_batch,
        programs,
        states,
        state_bytes,
        transient_bytes,
        peak_bytes: state_bytes + peak_transient,
        predicted_step_seconds: predict(&drafts, target, request),
        profile_hash: request.profile.hash(),
    };
    let largest = plan.state_bytes.max(plan.transient_bytes);
    if largest > target.largest_binding() {
        return Err(PlanError::Binding { segment: largest, limit: target.largest_binding() });
    }
    if let Some(budget) = request.budget
        && plan.arena_bytes() > budget
    {
        return Err(PlanError::Refused(Box::new(refuse(&plan, &drafts, budget, lower_bound, fullest))));
    }
    for program in &plan.programs {
        validate(&plan, program, target.alignment())
            .map_err(|problem| PlanError::Invalid { phase: program.phase, problem })?;
    }
    Ok(plan)
}

/// Gives every state of every program one place: kept ones side by side in the state segment, accumulators at the start
/// of the transient segment. Returns the slots and the bytes of both.
fn place_states(graphs: &[(Phase, Graph)], alignment: u64) -> Result<(Vec<StateSlot>, u64, u64), PlanError> {
    let mut slots: Vec<StateSlot> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let (mut state_end, mut pinned_end) = (0u64, 0u64);
    for (phase, graph) in graphs {
        for (state, v) in graph.states() {
            let ty = graph.ty(v).clone();
            if let Some(&i) = index.get(&state.name) {
                if slots[i].ty != ty {
                    let problem = format!("state \"{}\" is {ty} here and {} elsewhere", state.name, slots[i].ty);
                    return Err(PlanError::Graph { phase: *phase, problem });
                }
                continue;
            }
            let (segment, end) = match state.class {
                StateClass::Accumulator => (Segment::Transient, &mut pinned_end),
                StateClass::Param | StateClass::Slot | StateClass::Statistic => (Segment::State, &mut state_end),
            };
            let offset = end.next_multiple_of(alignment);
            let size = ty.bytes();
            *end = offset + size;
            index.insert(state.name.clone(), slots.len());
            let place = Place { segment, offset, size };
            slots.push(StateSlot { name: state.name.clone(), class: state.class, ty, init: state.init, place });
        }
    }
    Ok((slots, state_end, pinned_end.next_multiple_of(alignment)))
}

/// The groups in an order that respects the states; or a state that is overwritten while it is still needed.
fn ordered(graph: &Graph, target: &dyn Target, request: &Request) -> Result<Vec<Group>, ValueId> {
    let found = group(graph, request.grouping);
    let order = order(graph, &found)?;
    check_donations(graph, &found, target)?;
    Ok(order.into_iter().map(|i| found[i].clone()).collect())
}

/// A state may be overwritten by a kernel that still reads it only if that kernel can work in place.
fn check_donations(graph: &Graph, groups: &[Group], target: &dyn Target) -> Result<(), ValueId> {
    for d in &graph.donations {
        let writer = groups.iter().find(|g| g.writes.contains(&d.new));
        let Some(writer) = writer else { continue };
        let mut reads = writer.reads.iter().filter(|&&v| storage(graph, v) == d.old);
        if !reads.all(|&v| target.can_run_in_place(graph, writer, v, d.new)) {
            return Err(d.old);
        }
    }
    Ok(())
}

/// A program on its way: groups in order, scratch and lifetimes known, nothing placed.
struct Draft {
    phase: Phase,
    graph: Graph,
    groups: Vec<Group>,
    needed: Needed,
    buffers: Vec<Buffer>,
}

impl Draft {
    fn new(phase: Phase, mut graph: Graph, target: &dyn Target, request: &Request) -> Result<Draft, PlanError> {
        let mut copies = graph.donations.len();
        let groups = loop {
            match ordered(&graph, target, request) {
                Ok(groups) => break groups,
                Err(state) if copies > 0 => {
                    let problem = |e: memfit_ir::Error| PlanError::Graph { phase, problem: e.to_string() };
                    graph = copy_state(&graph, state).map_err(problem)?;
                    copies -= 1;
                }
                Err(state) => {
                    let problem = format!("the state %{} is overwritten while it is still needed", state.0);
                    return Err(PlanError::Graph { phase, problem });
                }
            }
        };
        let needed = Needed::new(&graph);
        let scratch: Vec<u64> = groups.iter().map(|g| target.scratch_bytes(&graph, g)).collect();
        let buffers = buffers(&graph, &groups, &needed, &scratch);
        Ok(Draft { phase, graph, groups, needed, buffers })
    }

    fn has_accumulators(&self) -> bool {
        self.graph.states().any(|(s, _)| s.class == StateClass::Accumulator)
    }

    fn accumulator_bytes(&self) -> u64 {
        let accumulators = self.graph.states().filter(|(s, _)| s.class == StateClass::Accumulator);
        accumulators.map(|(_, v)| self.graph.ty(v).bytes()).sum()
    }

    /// The most transient bytes that one kernel reads, writes and uses as scratch: no plan can do with less.
    fn largest_working_set(&self) -> u64 {
        let mut size_of: HashMap<ValueId, u64> = HashMap::new();
        let mut scratch_of = vec![0; self.groups.len()];
        for b in &self.buffers {
            match b.owner {
                Owner::Value(v) => drop(size_of.insert(v, b.size)),
                Owner::Scratch(step) => scratch_of[step] = b.size,
            }
        }
        let working_set = |(step, g): (usize, &Group)| {
            let mut values = g.writes.clone();
            values.extend(g.reads.iter().map(|&v| storage(&self.graph, v)));
            values.sort_unstable();
            values.dedup();
            scratch_of[step] + values.iter().filter_map(|v| size_of.get(v)).sum::<u64>()
        };
        self.groups.iter().enumerate().map(working_set).max().unwrap_or(0) + self.accumulator_bytes()
    }

    /// Packs the buffers above the `pinned` bytes and returns the program with the end of its transient memory.
    fn place(&self, states: &HashMap<&str, Place>, pinned: u64, alignment: u64) -> (Program, u64) {
        let items: Vec<Item> =
            self.buffers.iter().map(|b| Item { lower: b.lower, upper: b.upper, size: b.size }).collect();
        let packing = pack(&items, alignment);
        let mut places = vec![None; self.graph.values().len()];
        let mut scratch = vec![None; self.groups.len()];
        let mut dies = vec![Vec::new(); self.groups.len()];
        let mut kept = vec![false; places.len()];
        for v in (0..places.len() as u32).map(ValueId).filter(|v| self.needed.at_end[v.index()]) {
            // An output may be a view: then what it views is kept.
            kept[storage(&self.graph, v).index()] = true;
        }
        for (b, offset) in self.buffers.iter().zip(&packing.offsets) {
            let place = Some(Place { segment: Segment::Transient, offset: pinned + offset, size: b.size });
            match b.owner {
                Owner::Value(v) => {
                    places[v.index()] = place;
                    // An input that only views read dies with no step.
                    if !kept[v.index()]
                        && let Some(dead) = dies.get_mut(b.upper - 1)
                    {
                        dead.push(v);
                    }
                }
                Owner::Scratch(step) => scratch[step] = place,
            }
        }
        self.place_states_and_views(states, &mut places);
        let live = live_bytes(&self.buffers, self.groups.len());
        let accumulators = self.accumulator_bytes();
        let steps = (0..self.groups.len())
            .map(|i| Step {
                group: self.groups[i].clone(),
                scratch: scratch[i],
                dies: std::mem::take(&mut dies[i]),
                live_bytes: live[i] + accumulators,
            })
            .collect();
        let program = Program { phase: self.phase, graph: self.graph.clone(), steps, places };
        (program, pinned + packing.capacity)
    }

    fn place_states_and_views(&self, states: &HashMap<&str, Place>, places: &mut [Option<Place>]) {
        for (state, v) in self.graph.states() {
            places[v.index()] = states.get(state.name.as_str()).copied();
        }
        for d in &self.graph.donations {
            places[d.new.index()] = places[d.old.index()];
        }
        for id in self.graph.node_ids().filter(|&id| is_view(&self.graph, id)) {
            let v = self.graph.node(id).outputs[0];
            places[v.index()] = places[storage(&self.graph, v).index()];
        }
    }
}

fn predict(drafts: &[Draft], target: &dyn Target, request: &Request) -> f64 {
    let seconds = |d: &Draft| d.groups.iter().map(|g| target.seconds(&d.graph, g, &request.profile)).sum::<f64>();
    let times = |phase: Phase| match phase {
        Phase::Step | Phase::Apply => 1.0,
        Phase::Accumulate => (request.batch / request.micro_batch) as f64,
        Phase::Eval => 0.0,
    };
    drafts.iter().map(|d| times(d.phase) * seconds(d)).sum()
}

fn refuse(
    plan: &Plan,
    drafts: &[Draft],
    budget: u64,
    lower_bound: u64,
    fullest: Option<(u64, usize, usize)>,
) -> Refusal {
    let mut largest = Vec::new();
    let mut instant = "the start".to_string();
    if let Some((_, draft, step)) = fullest {
        let d = &drafts[draft];
        let root = d.graph.node(d.groups[step].root());
        instant = format!(
            "{} in layer \"{}\" (kernel {} of {} of the {} program)",
            root.op.name(),
            root.scope,
            step + 1,
            d.groups.len(),
            d.phase.name()
        );
        largest = d.buffers.iter().filter(|b| b.lower <= step && step < b.upper).map(|b| resident(d, b)).collect();
        largest.sort_by_key(|r| std::cmp::Reverse(r.bytes));
        largest.truncate(10);
    }
    Refusal { budget, needed: plan.arena_bytes(), state_bytes: plan.state_bytes, lower_bound, instant, largest }
}

fn resident(d: &Draft, b: &Buffer) -> Resident {
    let of = |v: ValueId| {
        let node = d.graph.node(d.graph.producer(v));
        let op = if let Op::Input(_) = node.op { "input" } else { node.op.name() };
        Resident { layer: node.scope.clone(), op, ty: d.graph.ty(v).clone(), bytes: b.size }
    };
    match b.owner {
        Owner::Value(v) => of(v),
        Owner::Scratch(step) => {
            let node = d.graph.node(d.groups[step].root());
            let ty = memfit_ir::TensorType::new(memfit_ir::DType::U8, [b.size as usize]);
            Resident { layer: node.scope.clone(), op: "scratch", ty, bytes: b.size }
        }
    }
}
