//! What a plan holds at which instant, by class: for tables, charts and refusals. Read off the plan alone.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::{HashMap, HashSet};
use std::fmt;

use memfit_ir::op::StateClass;
use memfit_ir::{NodeId, Op, ValueId};
use serde::{Deserialize, Serialize};

use crate::flow::{in_state, storage};
use crate::types::{Place, Plan, Program, Segment, StateSlot};

/// What bytes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Weights.
    Parameters,
    /// Slots of the optimizer.
    Optimizer,
    /// Running statistics of batch norms.
    Statistics,
    /// The staged batch.
    Input,
    /// Values of the forward pass, kept or recomputed.
    Activations,
    /// Gradients of activations, on their way back.
    ActivationGradients,
    /// Gradients of parameters.
    Gradients,
    /// Sums over micro-batches.
    Accumulators,
    /// Temporary memory of one kernel.
    Scratch,
}

impl Class {
    /// From what stays to what is there for an instant: as they are stacked in a timeline.
    pub const ALL: [Class; 9] = [
        Class::Parameters,
        Class::Optimizer,
        Class::Statistics,
        Class::Input,
        Class::Activations,
        Class::ActivationGradients,
        Class::Gradients,
        Class::Accumulators,
        Class::Scratch,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Class::Parameters => "parameters",
            Class::Optimizer => "optimizer",
            Class::Statistics => "statistics",
            Class::Input => "input",
            Class::Activations => "activations",
            Class::ActivationGradients => "activation gradients",
            Class::Gradients => "gradients",
            Class::Accumulators => "accumulators",
            Class::Scratch => "scratch",
        }
    }

    pub fn of_state(class: StateClass) -> Class {
        match class {
            StateClass::Param => Class::Parameters,
            StateClass::Slot => Class::Optimizer,
            StateClass::Statistic => Class::Statistics,
            StateClass::Accumulator => Class::Accumulators,
        }
    }
}

/// A value of the transient segment, where it lies and how long. Where a result takes over the place of an operand, the operand
/// ends with the launch before: so the buffers of a launch add up, with its scratch and the accumulators, to its live bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub value: ValueId,
    pub class: Class,
    pub place: Place,
    /// The launch that makes it, or the first for what is staged.
    pub first: usize,
    /// The first launch during which it is no longer there; the number of launches for what is there when the program ends.
    pub end: usize,
    /// The last launch that reads it, if any does.
    pub last_read: Option<usize>,
    /// Whether it lies where one of the operands of its launch lay.
    pub in_place: bool,
}

impl Buffer {
    pub fn is_live(&self, launch: usize) -> bool {
        (self.first..self.end).contains(&launch)
    }
}

/// The program and the launch at which the most bytes are live; none for a plan without launches.
pub fn peak_launch(plan: &Plan) -> Option<(&Program, usize)> {
    let launches =
        plan.programs.iter().flat_map(|p| p.launches.iter().enumerate().map(move |(i, s)| (s.live_bytes, p, i)));
    // The first of equals.
    launches
        .fold(None, |best: Option<(u64, &Program, usize)>, s| match best {
            Some(b) if b.0 >= s.0 => Some(b),
            _ => Some(s),
        })
        .map(|(_, p, i)| (p, i))
}

/// Bytes by class at the fullest instant, states included; classes without bytes are left out. They add up to the peak:
/// each state counts with the few bytes behind it that are left free because the next one is aligned.
pub fn classes_at_peak(plan: &Plan) -> Vec<(Class, u64)> {
    let mut sums = vec![0; Class::ALL.len()];
    let mut add = |class: Class, bytes: u64| sums[class as usize] += bytes;
    let mut states: Vec<&StateSlot> = plan.states.iter().filter(|s| s.place.segment == Segment::State).collect();
    states.sort_by_key(|s| s.place.offset);
    let ends = states.iter().skip(1).map(|s| s.place.offset).chain([plan.state_bytes]);
    for (s, end) in states.iter().zip(ends) {
        add(Class::of_state(s.class), end.saturating_sub(s.place.offset));
    }
    if let Some((program, launch)) = peak_launch(plan) {
        for live in live_at(program, launch) {
            add(live.class, live.place.size);
        }
        for (s, v) in program.graph.states().filter(|(s, _)| s.class == StateClass::Accumulator) {
            add(Class::of_state(s.class), program.graph.ty(v).bytes());
        }
        add(Class::Scratch, program.launches[launch].scratch.map_or(0, |p| p.size));
    }
    Class::ALL.into_iter().zip(sums).filter(|(_, bytes)| *bytes > 0).collect()
}

/// What the batch norms of a training normalise by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStatistics {
    /// Batch norms that are not frozen.
    pub layers: usize,
    /// Samples that the statistics of one are taken of: a leaf of the batch, or all of it.
    pub samples: usize,
    pub batch: usize,
    /// Whether replicas exchange them.
    pub is_synchronised: bool,
}

impl fmt::Display for BatchStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchStatistics { layers, samples, batch, is_synchronised } = *self;
        let norms = if layers == 1 { "1 batch norm".into() } else { format!("{layers} batch norms") };
        let by_whom = if is_synchronised { ", synchronised" } else { "" };
        if samples == batch {
            write!(f, "{norms}: statistics are those of the batch of {batch}{by_whom}")
        } else {
            let plural = if samples == 1 { "" } else { "s" };
            write!(f, "{norms}: statistics are those of a leaf of {samples} sample{plural}, of a batch of {batch}")
        }
    }
}

/// What the batch norms of a plan normalise by in training; none where it has none.
pub fn batch_statistics(plan: &Plan) -> Option<BatchStatistics> {
    let program = plan.programs.iter().find(|p| p.phase.is_training())?;
    let graph = &program.graph;
    let is_clone: HashSet<NodeId> = program.clones.iter().copied().collect();
    let layers = graph.node_ids().filter(|id| graph.node(*id).op == Op::BatchStats && !is_clone.contains(id)).count();
    // Nothing else is exchanged in a forward pass.
    let end = program.forward_end?;
    let is_synchronised = graph.node_ids().any(|id| id <= end && graph.node(id).op.is_exchange());
    let samples = if is_synchronised { plan.batch } else { plan.micro_batch };
    (layers > 0).then_some(BatchStatistics { layers, samples, batch: plan.batch, is_synchronised })
}

/// All buffers of a program, by the number of their value; accumulators, which are states, are not among them.
pub fn buffers(program: &Program) -> Vec<Buffer> {
    let graph = &program.graph;
    let (storage, classes, count) = (storage(graph), ValueClasses::new(program), program.launches.len());
    let mut at: Vec<Option<usize>> = vec![None; storage.len()];
    let mut found: Vec<Buffer> = Vec::new();
    // Who lies in a place at the moment.
    let mut tenants: HashMap<Place, usize> = HashMap::new();
    let mut reads: Vec<Option<usize>> = vec![None; storage.len()];
    for (i, launch) in program.launches.iter().enumerate() {
        launch.group.reads.iter().for_each(|v| reads[storage[v.index()].index()] = Some(i));
    }
    let staged = graph.inputs().map(|(_, v)| (v, 0));
    let made =
        program.launches.iter().enumerate().flat_map(|(i, launch)| launch.group.writes.iter().map(move |v| (*v, i)));
    for (v, first) in staged.chain(made) {
        let is_buffer = |p: &Place| p.segment == Segment::Transient && p.size > 0 && !classes.is_state(v);
        let Some(place) = program.place(v).filter(is_buffer) else { continue };
        let last_read = reads[v.index()];
        let end = last_read.unwrap_or(first).max(first) + 1;
        let before = tenants.insert(place, found.len()).filter(|&b| found[b].end > first);
        if let Some(before) = before {
            found[before].end = first;
        }
        at[v.index()] = Some(found.len());
        let class = classes.class_of(v);
        found.push(Buffer { value: v, class, place, first, end, last_read, in_place: before.is_some() });
    }
    for (_, v) in &graph.outputs {
        if let Some(i) = at[storage[v.index()].index()] {
            found[i].end = count;
        }
    }
    found.sort_by_key(|b| b.value);
    found
}

/// The buffers that are there during a launch.
pub(crate) fn live_at(program: &Program, launch: usize) -> Vec<Buffer> {
    buffers(program).into_iter().filter(|b| b.is_live(launch)).collect()
}

/// The class of every value of a program.
pub struct ValueClasses<'a> {
    program: &'a Program,
    is_state: Vec<bool>,
    is_gradient: Vec<bool>,
    is_clone: Vec<bool>,
    end: Option<memfit_ir::NodeId>,
}

impl<'a> ValueClasses<'a> {
    pub fn new(program: &'a Program) -> ValueClasses<'a> {
        let graph = &program.graph;
        let mut is_gradient = vec![false; graph.values().len()];
        let mut is_clone = vec![false; graph.nodes().len()];
        for d in graph.donations.iter().filter(|d| has_gradient(graph.producer_op(d.old))) {
            let writer = graph.node(graph.producer(d.new));
            for v in writer.inputs.iter().filter(|v| graph.shape(**v) == graph.shape(d.old)) {
                is_gradient[v.index()] = true;
            }
        }
        for id in &program.clones {
            is_clone[id.index()] = true;
        }
        ValueClasses { program, is_state: in_state(graph), is_gradient, is_clone, end: program.forward_end }
    }

    fn is_state(&self, v: ValueId) -> bool {
        self.is_state[v.index()]
    }

    pub fn class_of(&self, v: ValueId) -> Class {
        let graph = &self.program.graph;
        let id = graph.producer(v);
        if let Op::Input(_) = graph.node(id).op {
            Class::Input
        } else if let Op::State(s) = &graph.node(id).op {
            Class::of_state(s.class)
        } else if self.is_gradient[v.index()] {
            Class::Gradients
        } else if self.is_clone[id.index()] || self.end.is_none_or(|end| id <= end) {
            Class::Activations
        } else {
            Class::ActivationGradients
        }
    }
}

/// Whether what a state is updated from, in its own shape, is a gradient: statistics are updated from the forward pass.
fn has_gradient(state: &Op) -> bool {
    matches!(state, Op::State(s) if s.class != StateClass::Statistic)
}
