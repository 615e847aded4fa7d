//! Runs that share a device: which ones do, what they are planned for, and what they take.

use std::time::Instant;

use memfit::exec::{Device, Executor};
use memfit::fixes::{plan_or_fixes_among, plan_together_or_fixes_among};
use memfit::plan::{Member, Target, plan_together};
use memfit::{AnyExecutor, Plan, PlanError, Subject};

use crate::error::{Result, RunError};
use crate::host_budget::give_way_to_arena;
use crate::planning::{self, OnProgress, Planned, Progress};
use crate::resources::RunResources;
use crate::room::Room;

/// The runs of each device, by their numbers.
pub fn groups(runs: &[RunResources]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        match groups.iter_mut().find(|g| runs[g[0]].device.name() == run.device.name()) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    groups
}

/// Whether another run computes on the device of this one.
pub fn is_shared(runs: &[RunResources], run: &RunResources) -> bool {
    runs.iter().filter(|r| r.device.name() == run.device.name()).count() > 1
}

/// Runs of one process share its threads.
pub fn threads(runs: &[RunResources]) -> Result<usize> {
    let Some(first) = runs.first() else { return Ok(1) };
    match runs.iter().find(|r| r.threads != first.threads) {
        None => Ok(first.threads),
        Some(other) => Err(RunError::ThreadsDiffer {
            first: (first.label.clone(), first.threads),
            other: (other.label.clone(), other.threads),
        }),
    }
}

/// What runs them: an executor for each whole device, whose parts share it.
pub struct Executors(Vec<(String, AnyExecutor)>);

impl Executors {
    pub fn new(runs: &[RunResources]) -> Result<Executors> {
        let threads = threads(runs)?;
        let mut executors: Vec<(String, AnyExecutor)> = Vec::new();
        for run in runs {
            let whole = whole(run);
            if executors.iter().all(|(name, _)| name != whole) {
                executors.push((whole.into(), AnyExecutor::for_device(&run.device, threads)?));
            }
        }
        Ok(Executors(executors))
    }

    /// On the run's own device, and within its limit.
    pub fn of(&self, run: &RunResources) -> Result<AnyExecutor> {
        match self.0.iter().find(|(name, _)| name == whole(run)) {
            Some((_, executor)) => Ok(executor.on(run.device.clone())),
            None => executor(run),
        }
    }
}

fn whole(run: &RunResources) -> &str {
    run.device.name().split('/').next().unwrap_or_default()
}

/// What runs one that is alone.
pub fn executor(run: &RunResources) -> Result<AnyExecutor> {
    Ok(AnyExecutor::for_device(&run.device, run.threads)?)
}

/// A plan for each run: each within its own budget, and those on one device within `budget` and what a logical device has
/// left; if they are to run here, also within what the machine has.
pub fn plan(
    runs: &mut [RunResources],
    budget: Option<u64>,
    is_here: bool,
    executors: &Executors,
    progress: OnProgress,
) -> Result<Vec<Planned>> {
    let groups = groups(runs);
    if budget.is_some() && groups.len() > 1 {
        return Err(RunError::BudgetForNone);
    }
    let mut planned: Vec<Option<Planned>> = runs.iter().map(|_| None).collect();
    for members in groups {
        let group: Vec<&RunResources> = members.iter().map(|&i| &runs[i]).collect();
        let whole = || Some(&group[0].device).filter(|device| is_here && device.has_known_limit()).map(Room::of_whole);
        let (room, executor) = (group[0].room.clone().or_else(whole), executors.of(group[0])?);
        let plans = plan_group(&group, budget, room.as_ref(), executor.target(), progress)?;
        for (i, plan) in members.into_iter().zip(plans) {
            planned[i] = Some(plan);
        }
    }
    runs.iter_mut().for_each(RunResources::look_at_room_again);
    Ok(planned.into_iter().flatten().collect())
}

fn plan_group(
    runs: &[&RunResources],
    budget: Option<u64>,
    room: Option<&Room>,
    target: &dyn Target,
    progress: OnProgress,
) -> Result<Vec<Planned>> {
    let start = Instant::now();
    let subjects: Vec<Subject> = runs.iter().map(|run| run.subject(target)).collect();
    let mut surveys = Vec::new();
    for (run, subject) in runs.iter().zip(&subjects) {
        progress(Progress::Survey(&run.label));
        let survey = run.named(subject.survey().map_err(RunError::from))?;
        if run.room.is_some() {
            give_way_to_arena(runs, planning::smallest(&survey));
        }
        if let Some(budget) = run.budget_now() {
            // What does not even fit alone is refused with what would.
            let ladders = || planning::ladders(run);
            let trying = &mut |c: &_| progress(Progress::Trying(c));
            let alone = plan_or_fixes_among(subject, &survey, Some(budget), &ladders, trying);
            run.named(alone.map_err(|e| planning::explain(e, run.tight_room().as_ref())))?;
        }
        surveys.push(survey);
    }
    let members = || -> Vec<Member> {
        let member = |(run, survey)| {
            let run: &&RunResources = run;
            Member { name: &run.label, survey, budget: run.budget_now() }
        };
        runs.iter().zip(&surveys).map(member).collect()
    };
    let lack = || runs.iter().map(|run| run.lack_in_pool()).sum();
    let left = || room.map(|room| room.now(&runs[0].device));
    let most = |room: Option<&Room>| [budget, room.map(|room| room.bytes)].into_iter().flatten().min();
    if let Err(PlanError::TogetherRefused(refusal)) = plan_together(&members(), most(left().as_ref()))
        && room.is_some()
        && budget.is_none_or(|budget| refusal.needed <= budget)
    {
        give_way_to_arena(runs, refusal.needed);
    }
    let (members, room) = (members(), left());
    let most = most(room.as_ref());
    let ladders = |i: usize| planning::ladders(runs[i]);
    let trying = &mut |c: &_| progress(Progress::Trying(c));
    let together = plan_together_or_fixes_among(&subjects, &members, most, &ladders, trying);
    // The smaller of both is what did not suffice.
    let tight = || room.filter(|room| most == Some(room.bytes)).map(|room| room.with_lack(lack()));
    let together = together.map_err(|e| planning::explain(e, tight().as_ref()))?;
    let mut planned = Vec::new();
    for (i, plan) in together.plans.into_iter().enumerate() {
        let made = Planned::new(&subjects[i], &surveys[i], plan, start)?;
        planned.push(Planned { micro_batch_alone: Some(together.micro_batches_alone[i]), ..made });
    }
    Ok(planned)
}

/// What the runs of one device take there.
pub struct SharedMemory {
    /// Which runs they are.
    pub members: Vec<usize>,
    pub labels: Vec<String>,
    pub device: Device,
    /// Side by side.
    pub state_bytes: u64,
    /// In turns.
    pub transient_bytes: u64,
    /// If each had its own.
    pub sum_of_arenas: u64,
    /// Beside the arena, for all of them.
    pub staging_bytes: u64,
    /// What all of them may take, where it was said.
    pub budget: Option<u64>,
}

impl SharedMemory {
    /// Of some of the runs, and the plans of all.
    pub fn new(runs: &[RunResources], members: Vec<usize>, planned: &[&Planned], budget: Option<u64>) -> SharedMemory {
        let own = || members.iter().map(|&i| &planned[i].plan);
        SharedMemory {
            labels: members.iter().map(|&i| runs[i].label.clone()).collect(),
            device: runs[members[0]].device.clone(),
            state_bytes: own().map(|p| p.state_bytes).sum(),
            transient_bytes: own().map(|p| p.transient_bytes).max().unwrap_or(0),
            sum_of_arenas: own().map(Plan::arena_bytes).sum(),
            staging_bytes: members.iter().map(|&i| planned[i].plan.staging_bytes).sum(),
            budget,
            members,
        }
    }

    pub fn arena_bytes(&self) -> u64 {
        self.state_bytes + self.transient_bytes
    }

    /// Whether there is more than one run to share it.
    pub fn is_shared(&self) -> bool {
        self.members.len() > 1
    }
}
