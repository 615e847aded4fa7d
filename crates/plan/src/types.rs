//! The plan as plain data: programs, their launches in order, and a place for every value.

use std::fmt;
use std::ops::Range;

use memfit_ir::op::{Init, StateClass};
use memfit_ir::{Fold, Graph, NodeId, Replica, TensorType, ValueId};
use memfit_transform::{Fusion, Group};

use crate::target::Target;

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// As long as the model: parameters, optimizer slots, running statistics.
    State,
    /// Everything of a step; shared by the phases.
    Transient,
}

impl Segment {
    pub fn name(self) -> &'static str {
        match self {
            Segment::State => "state",
            Segment::Transient => "transient",
        }
    }
}

/// Bytes `offset .. offset + size` of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub segment: Segment,
    pub offset: u64,
    pub size: u64,
}

/// What a program is for. A training step is `Step` alone, or `Accumulate` for every micro-batch and then `Apply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    Step,
    Accumulate,
    /// Between the lanes of a replica that has several.
    Fold(Fold),
    Apply,
    Eval,
    /// Hands every state out.
    Export,
}

/// Names of folds, by the number of what is kept.
const KEEP: [&str; Replica::MOST_KEPT] = [
    "keep 0", "keep 1", "keep 2", "keep 3", "keep 4", "keep 5", "keep 6", "keep 7", "keep 8", "keep 9", "keep 10",
    "keep 11", "keep 12", "keep 13",
];
const ADD: [&str; Replica::MOST_KEPT] = [
    "add 0", "add 1", "add 2", "add 3", "add 4", "add 5", "add 6", "add 7", "add 8", "add 9", "add 10", "add 11",
    "add 12", "add 13",
];

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Step => "step",
            Phase::Accumulate => "accumulate",
            Phase::Fold(Fold::Keep(number)) => KEEP[usize::from(number) % KEEP.len()],
            Phase::Fold(Fold::Add(number)) => ADD[usize::from(number) % ADD.len()],
            Phase::Apply => "apply",
            Phase::Eval => "eval",
            Phase::Export => "checkpoint",
        }
    }

    pub fn from_name(name: &str) -> Option<Phase> {
        let folds = (0..Replica::MOST_KEPT as u8).flat_map(|n| [Fold::Keep(n), Fold::Add(n)]).map(Phase::Fold);
        let others = [Phase::Step, Phase::Accumulate, Phase::Apply, Phase::Eval, Phase::Export];
        others.into_iter().chain(folds).find(|phase| phase.name() == name)
    }

    /// Whether it has a backward pass.
    pub fn is_training(self) -> bool {
        matches!(self, Phase::Step | Phase::Accumulate)
    }
}

/// One kernel of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub group: Group,
    /// Temporary memory of the kernel, live during this launch only.
    pub scratch: Option<Place>,
    /// Values whose memory is free after this launch.
    pub dies: Vec<ValueId>,
    /// Bytes of the transient segment that are live during this launch.
    pub live_bytes: u64,
    /// Predicted.
    pub seconds: f64,
}

/// A graph with its order and the place of every value.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub phase: Phase,
    pub graph: Graph,
    /// The last node of the forward pass: see [`StepGraph`](memfit_transform::StepGraph).
    pub forward_end: Option<NodeId>,
    pub launches: Vec<Launch>,
    /// By value; none for values that never leave a kernel.
    pub places: Vec<Option<Place>>,
    /// Nodes that make a value again which was made in the forward pass and not kept.
    pub clones: Vec<NodeId>,
}

impl Program {
    pub fn place(&self, v: ValueId) -> Option<Place> {
        self.places[v.index()]
    }
}

/// A state and its place in the state segment (accumulators: in the transient segment).
#[derive(Clone, Debug, PartialEq)]
pub struct StateSlot {
    pub name: String,
    pub class: StateClass,
    pub ty: TensorType,
    pub init: Init,
    pub place: Place,
}

/// What a planner makes a plan smaller with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Several nodes in one kernel.
    Groups,
    /// Kernels write over what they read for the last time.
    InPlace,
    /// Bits instead of activations where only their sign is wanted.
    Masks,
    /// Another order than that of the graph.
    Order,
    MicroBatches,
    Recompute,
    /// States that other replicas keep.
    Shard,
}

impl Tool {
    /// In the order in which they are applied.
    pub const ALL: [Tool; 7] =
        [Tool::Groups, Tool::InPlace, Tool::Masks, Tool::Order, Tool::MicroBatches, Tool::Recompute, Tool::Shard];

    pub fn name(self) -> &'static str {
        match self {
            Tool::Groups => "groups",
            Tool::InPlace => "in place",
            Tool::Masks => "masks",
            Tool::Order => "order",
            Tool::MicroBatches => "micro-batches",
            Tool::Recompute => "recompute",
            Tool::Shard => "shard",
        }
    }

    pub fn from_name(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }
}

/// Bytes of the peak that a tool saved; negative where it cost some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saving {
    pub tool: Tool,
    pub bytes: i64,
}

/// What a plan was made for: scratch differs between instruction sets and numbers of threads, and so do places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeFor {
    /// The kind of device: "cpu", "gpu".
    pub device: String,
    /// What its kernels are compiled to: "avx2" on a CPU, "vulkan" on a GPU.
    pub instruction_set: String,
    /// Of the host, where it is what computes.
    pub threads: Option<usize>,
}

impl MadeFor {
    /// On a device whose own threads nobody counts.
    pub fn new(device: impl Into<String>, instruction_set: impl Into<String>) -> MadeFor {
        MadeFor { device: device.into(), instruction_set: instruction_set.into(), threads: None }
    }
}

impl fmt::Display for MadeFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.device, self.instruction_set)?;
        match self.threads {
            None => Ok(()),
            Some(1) => f.write_str(" with 1 thread"),
            Some(threads) => write!(f, " with {threads} threads"),
        }
    }
}

/// Everything that an executor needs. Sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Of all replicas together.
    pub batch: usize,
    pub micro_batch: usize,
    /// Which of the batch's lanes it is for.
    pub replica: Replica,
    pub programs: Vec<Program>,
    /// What its kernels were joined by.
    pub fusion: Fusion,
    /// Every state of every program, once.
    pub states: Vec<StateSlot>,
    pub state_bytes: u64,
    pub transient_bytes: u64,
    /// What it takes of its device beside both, at most: for copies from and to the host, and for what the device keeps of
    /// kernels. Nothing where the host's memory is the device's.
    pub staging_bytes: u64,
    /// Most bytes live at once, states included.
    pub peak_bytes: u64,
    /// What a plain eager framework would hold: see the planner's `keep_all`.
    pub keep_all_bytes: u64,
    /// No plan of this model can take less of its device.
    pub lower_bound_bytes: u64,
    pub recomputed_ops: usize,
    /// What each tool saved, in the order they were applied.
    pub savings: Vec<Saving>,
    pub predicted_step_seconds: f64,
    /// Of the fastest plan without a budget.
    pub fastest_step_seconds: f64,
    /// Of the cost model that times were predicted with.
    pub cost_model_hash: u64,
    /// None in plans of files that do not say it.
    pub made_for: Option<MadeFor>,
}

impl Plan {
    /// Both segments.
    pub fn arena_bytes(&self) -> u64 {
        self.state_bytes + self.transient_bytes
    }

    /// All that is taken of the device, which is what a budget is for: the arena, and what stands beside it.
    pub fn device_bytes(&self) -> u64 {
        self.arena_bytes() + self.staging_bytes
    }

    /// Bytes of the batch, or micro-batch, that is staged for a step.
    pub fn input_bytes(&self) -> u64 {
        let training = self.programs.iter().find(|p| p.phase.is_training()).or(self.programs.first());
        training.map_or(0, |p| p.graph.inputs().map(|(_, v)| p.graph.ty(v).bytes()).sum())
    }

    pub fn program(&self, phase: Phase) -> Option<&Program> {
        self.programs.iter().find(|p| p.phase == phase)
    }

    /// That it was made for something else than this device, in words; none where it was not, or where nobody knows. It may
    /// hold nevertheless; but where it does not, this is why.
    pub fn made_elsewhere(&self, target: &dyn Target) -> Option<String> {
        let (made_for, here) = (self.made_for.as_ref()?, target.describe());
        (*made_for != here).then(|| format!("it was made for {made_for}, and this is {here}"))
    }

    /// How often `Accumulate` runs in a step; 1 for a whole step.
    pub fn accumulate(&self) -> usize {
        self.replica.own_lanes().len() * self.leaves()
    }

    /// How many micro-batches a lane has.
    pub fn leaves(&self) -> usize {
        self.batch / self.micro_batch / self.replica.lanes
    }

    /// The rows of a batch that are this replica's.
    pub fn rows(&self) -> Range<usize> {
        let (lanes, of_lane) = (self.replica.own_lanes(), self.batch / self.replica.lanes);
        lanes.start * of_lane..lanes.end * of_lane
    }
}
