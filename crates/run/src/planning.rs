//! From a run to its plan: made for a device, or read from a file.

mod instead;
mod saved;

use std::time::Instant;

use memfit::exec::Executor;
use memfit::fixes::plan_or_fixes_among;
use memfit::plan::{Change, MicroBatch, Point, Survey, Target};
use memfit::transform::BatchDependence;
use memfit::{AnyExecutor, Plan, PlanError, Request, Subject, Training};

use crate::error::{Result, RunError};
use crate::resources::RunResources;
use crate::room::Room;

pub(crate) use instead::ladders;
pub use saved::{DEVICE, INSTRUCTIONS, NOT_SET, labels, load, read, write};
pub(crate) use saved::{MadeFor, THREADS, check_resumed, is_of_other_replica, other_device};

/// A plan, and what is known with it.
pub struct Planned {
    pub plan: Plan,
    /// The rest is known only of a plan that was made just now.
    pub planning_ms: Option<f64>,
    /// What keeping everything takes with the tools that cost no time.
    pub free_tools_bytes: Option<u64>,
    /// What could have been chosen; nothing of a plan that was made before, for which nothing is surveyed again.
    pub frontier: Vec<Point>,
    /// What makes a sample's result depend on the rest of its batch.
    pub batch_dependence: Option<BatchDependence>,
    pub frozen: Option<Frozen>,
    /// Of a run that shares its device: the micro-batch that it would have alone.
    pub micro_batch_alone: Option<usize>,
    /// Of a run that goes on: the device that it was on before, where that is another one.
    pub moved_from: Option<String>,
    /// Where it is for a larger machine than this, or for a process with more than this one may have.
    pub too_large_here: Option<TooLargeHere>,
    pub file: Option<String>,
}

/// What training would do here with a plan that is for somewhere else.
#[derive(Clone, Debug)]
pub struct TooLargeHere {
    pub room: Room,
    /// Whether there is a slower plan that fits; else it would be refused.
    pub is_there_a_smaller_one: bool,
}

/// What it saves not to train some parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    pub parameters: usize,
    /// Of what the free tools need.
    pub saved_bytes: u64,
}

/// What planning is at.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Looks for plans of the run that is called so.
    Survey(&'a str),
    /// Plans what might fit where nothing else does.
    Trying(&'a Change),
}

pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

/// The fastest plan that fits, or a refusal that says what would.
pub fn plan(run: &mut RunResources, target: &dyn Target, progress: OnProgress) -> Result<Planned> {
    let start = Instant::now();
    let subject = run.subject(target);
    let survey = subject.survey()?;
    let budget = run.make_room(smallest(&survey));
    let plan = plan_or_fixes_among(&subject, &survey, budget, &|| ladders(run), &mut |c| progress(Progress::Trying(c)));
    let plan = plan.map_err(|e| explain(e, run.tight_room().as_ref()))?;
    let mut planned = Planned::new(&subject, &survey, plan, start)?;
    planned.too_large_here = run.room_here().filter(|room| room.bytes < planned.plan.device_bytes()).map(|room| {
        let is_there_a_smaller_one = smallest(&survey) <= room.bytes.saturating_add(run.spare_for_arena());
        TooLargeHere { room, is_there_a_smaller_one }
    });
    drop(survey);
    run.look_at_room_again();
    Ok(planned)
}

/// What the smallest plan takes of its device.
pub(crate) fn smallest(survey: &Survey) -> u64 {
    survey.frontier().last().map_or_else(|| survey.free_tools_bytes(), Point::device_bytes)
}

/// A refusal says who has the rest of the device, and how it would leave more.
pub(crate) fn explain(error: PlanError, room: Option<&Room>) -> RunError {
    let Some(room) = room else { return error.into() };
    let source = match error {
        PlanError::Refused(mut refusal) => {
            // A larger budget is none where the device is what is too small.
            for fix in refusal.fixes.iter_mut().filter(|f| matches!(f.changes[..], [Change::Budget(_)])) {
                fix.changes = room.cure(fix.device_bytes()).into_iter().collect();
            }
            refusal.fixes.retain(|f| !f.changes.is_empty());
            PlanError::Refused(refusal)
        }
        PlanError::TogetherRefused(mut refusal) => {
            refusal.cure = room.cure(refusal.needed);
            PlanError::TogetherRefused(refusal)
        }
        other => return other.into(),
    };
    RunError::Plan { source, room: Some(Box::new(room.clone())) }
}

impl Planned {
    /// A plan of a survey that was made since `start`.
    pub(crate) fn new(subject: &Subject, survey: &Survey, plan: Plan, start: Instant) -> Result<Planned, PlanError> {
        Ok(Planned {
            plan,
            planning_ms: Some(start.elapsed().as_secs_f64() * 1e3),
            free_tools_bytes: Some(survey.free_tools_bytes()),
            frontier: survey.frontier(),
            batch_dependence: subject.batch_dependence()?,
            frozen: Frozen::new(subject, survey)?,
            micro_batch_alone: None,
            moved_from: None,
            too_large_here: None,
            file: None,
        })
    }

    /// A plan that was made before.
    pub(crate) fn from_file(plan: Plan, file: String) -> Planned {
        Planned {
            plan,
            planning_ms: None,
            free_tools_bytes: None,
            frontier: Vec::new(),
            batch_dependence: None,
            frozen: None,
            micro_batch_alone: None,
            moved_from: None,
            too_large_here: None,
            file: Some(file),
        }
    }
}

impl Frozen {
    /// Against the same run with everything trained.
    fn new(subject: &Subject, survey: &Survey) -> Result<Option<Frozen>, PlanError> {
        let parameters = subject.training.frozen.len();
        if parameters == 0 {
            return Ok(None);
        }
        let training = Training { frozen: Default::default(), ..subject.training.clone() };
        let needed = Subject { training: &training, ..*subject }.survey()?.free_tools_bytes();
        Ok(Some(Frozen { parameters, saved_bytes: needed.saturating_sub(survey.free_tools_bytes()) }))
    }
}

/// The next round figure above the smallest plan, as long as that is less than what is taken where nothing is recomputed: so
/// the planner has something to do.
pub(crate) fn budget_to_plan_for(run: &RunResources, target: &dyn Target) -> Result<u64, PlanError> {
    let survey = run.subject(target).survey()?;
    let beside = survey.frontier().first().map_or(0, |p| p.staging_bytes);
    let (smallest, free) = (smallest(&survey), survey.free_tools_bytes() + beside);
    let round = round_up(smallest);
    Ok(if round < free { round } else { smallest })
}

/// To a tenth of a MiB, or to whole ones where there are ten and more.
fn round_up(bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    match bytes {
        0..10_485_760 => (bytes * 10).div_ceil(MIB) * MIB / 10,
        _ => bytes.div_ceil(MIB) * MIB,
    }
}

/// A plan for the threads and replicas that there are, which computes what the saved one does, to the bit. `theirs` is the number of
/// threads that it was made for, where that is another one.
pub(crate) fn plan_again(
    run: &mut RunResources,
    executor: &AnyExecutor,
    micro_batch: usize,
    theirs: Option<&str>,
) -> Result<Planned> {
    let start = Instant::now();
    let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), ..run.request.clone() };
    let subject = Subject { request: &request, ..run.subject(executor.target()) };
    let survey = subject.survey()?;
    let budget = run.make_room(smallest(&survey));
    let plan = survey.plan(budget).map_err(|e| match (e, theirs) {
        (PlanError::Refused(refusal), Some(theirs)) => RunError::PlanThreads {
            ours: run.threads,
            theirs: theirs.to_string(),
            needed: refusal.needed,
            budget: refusal.budget,
        },
        (other, _) => explain(other, run.tight_room().as_ref()),
    })?;
    let planned = Planned::new(&subject, &survey, plan, start)?;
    drop(survey);
    run.look_at_room_again();
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::round_up;

    #[test]
    fn budgets_are_round_and_no_smaller() {
        let mib = |tenths: u64| (tenths << 20) / 10;
        assert_eq!([round_up(1_892_736), round_up(mib(19)), round_up(1 << 20)], [mib(19), mib(19), 1 << 20]);
        assert_eq!([round_up((10 << 20) + 1), round_up(50 << 20)], [11 << 20, 50 << 20]);
    }
}
