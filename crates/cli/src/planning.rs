//! From a run to its plan: what `plan` and `train` share.

use std::time::Instant;

use anyhow::Result;
use memfit::fixes::plan_or_fixes;
use memfit::plan::Target;
use memfit::{Plan, PlanError};

use crate::progress::Progress;
use crate::run::Run;

/// A plan, and what is told with it.
pub struct Planned {
    pub plan: Plan,
    pub planning_ms: f64,
    /// What keeping everything takes with the tools that cost no time.
    pub free_tools_bytes: u64,
}

/// The fastest plan that fits, or a refusal that says what would.
pub fn plan(run: &Run, target: &dyn Target) -> Result<Planned, PlanError> {
    let start = Instant::now();
    let subject = run.subject(target);
    let survey = subject.survey()?;
    let mut progress = Progress::new("looking for what would fit");
    let plan = plan_or_fixes(&subject, &survey, run.request.budget, &mut |what| progress.show(what))?;
    Ok(Planned { plan, planning_ms: start.elapsed().as_secs_f64() * 1e3, free_tools_bytes: survey.free_tools_bytes() })
}
