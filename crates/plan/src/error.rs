//! Why there is no plan.

use std::fmt;

use memfit_ir::TensorType;

use crate::bytes::Bytes;
use crate::types::Phase;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The source could not make its graphs.
    #[error("the model cannot be built: {0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
    #[error("the {} graph is malformed: {problem}", phase.name())]
    Graph { phase: Phase, problem: String },
    /// A plan did not pass its own validator: a bug of the planner, never the user's.
    #[error("the {} plan does not hold: {problem} (this is a bug in memfit)", phase.name())]
    Invalid { phase: Phase, problem: String },
    #[error("a segment of {} is more than the {} that this device can use at once", Bytes(*segment), Bytes(*limit))]
    Binding { segment: u64, limit: u64 },
    #[error("the tensors of this model have more bytes than can be counted; use smaller sizes")]
    TooLarge,
    #[error("a micro-batch of {micro_batch} does not divide the batch of {batch}; use a divisor")]
    MicroBatch { micro_batch: usize, batch: usize },
}

/// A tensor that is live at the peak.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    pub layer: String,
    pub op: &'static str,
    pub ty: TensorType,
    pub bytes: u64,
}

/// Why a budget is too small, with the instant and what is live then.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub budget: u64,
    /// What the smallest plan found takes.
    pub needed: u64,
    pub state_bytes: u64,
    /// No plan can take less: states, and the largest working set of one kernel.
    pub lower_bound: u64,
    /// Layer and op of the step with the most live bytes.
    pub instant: String,
    /// The largest live tensors at that instant.
    pub largest: Vec<Resident>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certainty = if self.budget < self.lower_bound { "no plan can fit" } else { "no plan was found that fits" };
        writeln!(
            f,
            "{certainty} into {}: {} are needed, {} too much",
            Bytes(self.budget),
            Bytes(self.needed),
            Bytes(self.needed - self.budget)
        )?;
        writeln!(f, "  states (parameters, optimizer, statistics): {}", Bytes(self.state_bytes))?;
        writeln!(f, "  lower bound (states and the largest working set of one kernel): {}", Bytes(self.lower_bound))?;
        writeln!(f, "  the fullest instant is {}; the largest tensors then:", self.instant)?;
        for r in &self.largest {
            let layer = if r.layer.is_empty() { "(model)" } else { &r.layer };
            writeln!(f, "    {:>10}  {layer} {} {}", Bytes(r.bytes).to_string(), r.op, r.ty)?;
        }
        write!(f, "  a budget of {} ({} bytes) fits", Bytes(self.needed), self.needed)
    }
}
