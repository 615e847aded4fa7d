//! Why there is no plan.

use std::fmt;

use memfit_ir::{TensorType, in_layer};

use crate::bytes::{Bytes, told_apart};
use crate::change::Fix;
use crate::together::TogetherRefusal;
use crate::types::{Phase, Segment};

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// A set of models that does not fit.
    #[error("{0}")]
    TogetherRefused(Box<TogetherRefusal>),
    /// The source could not make its graphs.
    #[error("the model cannot be built: {0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
    #[error("the {} graph is malformed: {problem}", phase.name())]
    Graph { phase: Phase, problem: String },
    /// A plan did not pass its own validator: a bug of the planner, never the user's.
    #[error("the {} plan does not hold, which is a bug in memfit: {problem}", phase.name())]
    Invalid { phase: Phase, problem: String },
    /// One value that no kernel of the device can be given, whatever the budget.
    #[error(
        "{what} takes {}, more than the {} that a kernel of this device can be given at once; use a smaller batch or \
         layer, or another device",
        told_apart(*bytes, *limit)[0],
        told_apart(*bytes, *limit)[1]
    )]
    Binding { what: String, bytes: u64, limit: u64 },
    #[error(
        "the {} segment takes {}, more than the {} that this device can give as one allocation; use a smaller batch or \
         model, or another device",
        segment.name(),
        told_apart(*bytes, *limit)[0],
        told_apart(*bytes, *limit)[1]
    )]
    Segment { segment: Segment, bytes: u64, limit: u64 },
    /// Planning itself would take more memory than there is.
    #[error(
        "planning this model takes up to {}, and {} are left for it; use a smaller model, or give the process more memory",
        told_apart(*needed, *room)[0],
        told_apart(*needed, *room)[1]
    )]
    PlanningRoom { needed: u64, room: u64 },
    #[error("the tensors of this model have more bytes than can be counted; use smaller sizes")]
    TooLarge,
    #[error("a micro-batch of {micro_batch} does not divide the batch of {batch}; use a divisor")]
    MicroBatch { micro_batch: usize, batch: usize },
    #[error(
        "{replicas} replicas with {lanes} lanes cannot share a batch of {batch} in micro-batches of {micro_batch}: there must be as \
         many lanes as replicas at least, and every lane must have as many micro-batches as another"
    )]
    Lanes { lanes: usize, replicas: usize, batch: usize, micro_batch: usize },
    #[error(
        "{replicas} replicas with {lanes} lanes cannot synchronise the batch norms of a batch of {batch} in micro-batches of \
         {micro_batch}: every replica must have one lane, and that must be one micro-batch"
    )]
    Synchronised { lanes: usize, replicas: usize, batch: usize, micro_batch: usize },
    /// Ops that the device has no kernel for, each kind once.
    #[error("{}", list_unsupported(device, ops))]
    Unsupported { device: String, ops: Vec<Unsupported> },
}

/// An op that a device cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    pub op: &'static str,
    /// Of the first of them.
    pub layer: String,
    pub reason: String,
    /// How many there are, of all programs.
    pub count: usize,
}

fn list_unsupported(device: &str, ops: &[Unsupported]) -> String {
    let line = |u: &Unsupported| {
        let others = if u.count > 1 { format!(" and {} more", u.count - 1) } else { String::new() };
        format!("\n    {}{}{others}: {}", u.op, in_layer(&u.layer), u.reason)
    };
    format!("{device} cannot run this model:{}", ops.iter().map(line).collect::<String>())
}

/// A tensor that is live at the peak.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveTensor {
    pub layer: String,
    pub op: &'static str,
    pub ty: TensorType,
    pub bytes: u64,
    /// What it is for: see [`crate::report::Class`].
    pub class: &'static str,
}

/// Why a budget is too small, with the instant and what is live then.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub budget: u64,
    /// What the smallest plan found takes.
    pub needed: u64,
    pub state_bytes: u64,
    /// What of it stands beside the arena.
    pub staging_bytes: u64,
    /// No plan can take less.
    pub lower_bound: u64,
    /// The op whose operands make the bound.
    pub bound_reason: String,
    /// Layer and op of the launch with the most live bytes.
    pub instant: String,
    /// The largest live tensors at that instant.
    pub largest: Vec<LiveTensor>,
    /// Fastest first.
    pub fixes: Vec<Fix>,
}

impl Refusal {
    /// Whether it is proved that no plan fits, and not only that none was found.
    pub fn is_proved(&self) -> bool {
        self.budget < self.lower_bound
    }
}

impl Refusal {
    /// What is needed, when and for what, in lines; not what would fit.
    pub fn facts(&self) -> String {
        let certainty = if self.is_proved() { "no plan can fit" } else { "no plan was found that fits" };
        let [budget, needed] = told_apart(self.budget, self.needed);
        let excess = Bytes(self.needed - self.budget);
        let mut text = format!("{certainty} into {budget}: {needed} are needed, {excess} too much");
        text += &format!("\n  states (parameters, optimizer, statistics): {}", Bytes(self.state_bytes));
        let mut least = "states, and what must be there".to_string();
        if self.staging_bytes > 0 {
            text += &format!("\n  beside the arena (copies, parameters of kernels): {}", Bytes(self.staging_bytes));
            least = "copies, states, and what must be there".into();
        }
        let proof = if self.is_proved() { "" } else { ", so this is not proved impossible" };
        let (bound, reason) = (Bytes(self.lower_bound), &self.bound_reason);
        text += &format!("\n  lower bound: {bound}: {least} during {reason}{proof}");
        text += &format!("\n  the smallest plan is fullest at {}; the largest tensors then:", self.instant);
        for r in &self.largest {
            let layer = if r.layer.is_empty() { "(model)" } else { &r.layer };
            text += &format!("\n    {:>10}  {layer} {} {}, {}", Bytes(r.bytes).to_string(), r.op, r.ty, r.class);
        }
        text
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.facts())?;
        if self.fixes.is_empty() {
            return write!(f, "\n  a budget of {} ({} bytes) fits", Bytes(self.needed), self.needed);
        }
        write!(f, "\n  what would fit, each planned, fastest for a sample first:")?;
        self.fixes.iter().try_for_each(|fix| write!(f, "\n    {fix}"))
    }
}
