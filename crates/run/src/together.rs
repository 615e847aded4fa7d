//! Runs that share a device: which ones do, what they are planned for, and what they take.

use std::time::Instant;

use anyhow::{Context, Result};
use memfit::exec::{Device, Executor};
use memfit::fixes::{plan_or_fixes, plan_together_or_fixes};
use memfit::plan::Member;
use memfit::{CpuExecutor, Plan, Subject};

use crate::device::Room;
use crate::error::usage;
use crate::planning::{self, Planned, Progress};
use crate::resources::Run;

/// A run among others.
pub struct Neighbour<'a> {
    pub label: &'a str,
    pub run: &'a Run,
    pub device: &'a Device,
}

/// The runs of each device, by their numbers.
pub fn groups(runs: &[Neighbour]) -> Vec<Vec<usize>> {
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
pub fn is_shared(runs: &[Neighbour], run: &Neighbour) -> bool {
    runs.iter().filter(|r| r.device.name() == run.device.name()).count() > 1
}

/// Runs of one process share its threads.
pub fn threads(runs: &[Neighbour]) -> Result<usize> {
    let said = |r: &Neighbour| r.run.threads;
    let first = runs.first().map_or(1, said);
    match runs.iter().find(|r| said(r) != first) {
        None => Ok(first),
        Some(other) => Err(usage(format!(
            "runs of one process share its threads, but {} says {first} and {} says {}; say --threads, or go on with each by \
             itself",
            runs[0].label,
            other.label,
            said(other)
        ))),
    }
}

/// A plan for each run: each within its own budget, and those on one device within `budget` and what a logical device has
/// left; if they are to run here, also within what the machine has.
pub fn plan(
    runs: &[Neighbour],
    budget: Option<u64>,
    is_here: bool,
    executor: &CpuExecutor,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Planned>> {
    let groups = groups(runs);
    if budget.is_some() && groups.len() > 1 {
        return Err(usage(
            "--budget is for runs that share a device, and these have devices of their own, each with its limit; leave it out",
        ));
    }
    let mut planned: Vec<Option<Planned>> = runs.iter().map(|_| None).collect();
    for members in groups {
        let group: Vec<&Neighbour> = members.iter().map(|&i| &runs[i]).collect();
        let first = group[0];
        let room = first.run.room.clone().or(is_here.then(|| Room::of_whole(first.device)));
        for (i, plan) in members.into_iter().zip(plan_group(&group, budget, room.as_ref(), executor, progress)?) {
            planned[i] = Some(plan);
        }
    }
    Ok(planned.into_iter().flatten().collect())
}

fn plan_group(
    runs: &[&Neighbour],
    budget: Option<u64>,
    room: Option<&Room>,
    executor: &CpuExecutor,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Planned>> {
    let start = Instant::now();
    let subjects: Vec<Subject> = runs.iter().map(|r| r.run.subject(executor.target())).collect();
    let mut surveys = Vec::new();
    for (Neighbour { label, run, .. }, subject) in runs.iter().zip(&subjects) {
        progress(Progress::Survey(label));
        let survey = subject.survey().with_context(|| label.to_string())?;
        if run.request.budget.is_some() {
            // What does not even fit alone is refused with what would.
            let alone = plan_or_fixes(subject, &survey, run.request.budget, &mut |c| progress(Progress::Trying(c)));
            alone.map_err(|e| planning::explain(e, run.tight_room())).with_context(|| label.to_string())?;
        }
        surveys.push(survey);
    }
    let member = |(r, survey)| {
        let r: &&Neighbour = r;
        Member { name: r.label, survey, budget: r.run.request.budget }
    };
    let members: Vec<Member> = runs.iter().zip(&surveys).map(member).collect();
    let most = [budget, room.map(|room| room.bytes)].into_iter().flatten().min();
    let together = plan_together_or_fixes(&subjects, &members, most, &mut |c| progress(Progress::Trying(c)));
    // The smaller of both is what did not suffice.
    let together = together.map_err(|e| planning::explain(e, room.filter(|room| most == Some(room.bytes))))?;
    let mut planned = Vec::new();
    for (i, plan) in together.plans.into_iter().enumerate() {
        let made = planning::told(runs[i].run, executor, &surveys[i], plan, start)?;
        planned.push(Planned { micro_batch_alone: Some(together.micro_batches_alone[i]), ..made });
    }
    Ok(planned)
}

/// What the runs of one device take there.
pub struct Shared<'a> {
    pub labels: Vec<&'a str>,
    pub device: &'a Device,
    /// Side by side.
    pub states: u64,
    /// In turns.
    pub transient: u64,
    /// If each had its own.
    pub sum: u64,
    /// What all of them may take, where it was said.
    pub budget: Option<u64>,
}

impl<'a> Shared<'a> {
    /// Of some of the runs, and the plans of all.
    pub fn new(runs: &[Neighbour<'a>], members: &[usize], plans: &[&Plan], budget: Option<u64>) -> Shared<'a> {
        let own = || members.iter().map(|&i| plans[i]);
        Shared {
            labels: members.iter().map(|&i| runs[i].label).collect(),
            device: runs[members[0]].device,
            states: own().map(|p| p.state_bytes).sum(),
            transient: own().map(|p| p.transient_bytes).max().unwrap_or(0),
            sum: own().map(Plan::arena_bytes).sum(),
            budget,
        }
    }

    pub fn arena(&self) -> u64 {
        self.states + self.transient
    }
}
