//! Plans as files: a plan is written as JSON of plain data, read back to the identical plan, and checked as if it came
//! from a stranger. Strings only, never files.
//!
//! The form is made to be read and compared line by line. Graphs and states are in the text form of `memfit_ir`, a step
//! is the nodes that one kernel runs, a place is `[segment, offset, size]`. What a kernel reads and writes is not in the
//! file: it follows from the graph. `run` says what the plan was made for, in words that the planner does not interpret.

mod check;
mod read;
mod write;

use std::collections::BTreeMap;

use memfit_ir::fingerprint;
use memfit_transform::Fusion;

use crate::staging::staged_programs;
use crate::target::Target;
use crate::types::{MadeFor, Plan};
use crate::validate::validate;

/// Changes with every change of the form. Older ones can be read.
pub(crate) const FORMAT: u64 = 2;

/// What a plan was made for: "batch" → "32".
pub type Labels = BTreeMap<String, String>;

/// A plan from a file. It is sound by itself; whether a device can run it is for [`SavedPlan::for_target`] to say.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedPlan {
    /// The version of memfit that wrote it.
    pub version: String,
    pub labels: Labels,
    pub plan: Plan,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaveError {
    #[error("this is not a plan that memfit saved: {0}")]
    NotAPlan(String),
    #[error("this plan has format {found}, but this memfit reads formats up to {FORMAT}; plan anew")]
    Format { found: u64 },
    #[error("this plan was changed since it was written; plan anew")]
    Changed,
    #[error("this plan does not hold, plan anew: {0}")]
    Broken(String),
    /// It may hold elsewhere.
    #[error("this plan does not hold here, plan for this device: {difference}: {problem}")]
    Elsewhere { difference: String, problem: String },
}

pub fn save(plan: &Plan, labels: &Labels) -> String {
    let body = write::body(plan, labels, FORMAT);
    let head = format!("{{\n\"memfit\":\"{}\",\n\"format\":{FORMAT},\n", env!("CARGO_PKG_VERSION"));
    format!("{head}\"checksum\":\"{:016x}\",\n{body}\n}}\n", fingerprint(&body))
}

/// Reads a plan and checks all that can be checked without a device.
pub fn load(text: &str) -> Result<SavedPlan, SaveError> {
    let (saved, head) = read::parse_file(text)?;
    if head.checksum != format!("{:016x}", fingerprint(&write::body(&saved.plan, &saved.labels, head.format))) {
        return Err(SaveError::Changed);
    }
    check::check_plan(&saved.plan).map_err(SaveError::Broken)?;
    Ok(saved)
}

impl SavedPlan {
    /// The plan, if it holds on this device, with what it takes there beside its segments.
    pub fn for_target(mut self, target: &dyn Target) -> Result<Plan, SaveError> {
        if ![target.fusion(), Fusion::NONE].contains(&self.plan.fusion) {
            return Err(SaveError::Broken("its kernels are joined as for another device".into()));
        }
        let is_of_other_instructions =
            |made_for: &MadeFor| made_for.instruction_set != target.describe().instruction_set;
        if let (Some(difference), true) =
            (self.plan.made_elsewhere(target), self.plan.made_for.as_ref().is_some_and(is_of_other_instructions))
        {
            let problem = "with other instructions it computes other bits".into();
            return Err(SaveError::Elsewhere { difference, problem });
        }
        for program in &self.plan.programs {
            validate(&self.plan, program, target).map_err(|e| {
                let problem = format!("the {} program: {e}", program.phase.name());
                match self.plan.made_elsewhere(target) {
                    Some(difference) => SaveError::Elsewhere { difference, problem },
                    None => SaveError::Broken(problem),
                }
            })?;
        }
        self.plan.staging_bytes = target.staging_bytes(&staged_programs(&self.plan.programs, target));
        Ok(self.plan)
    }
}
