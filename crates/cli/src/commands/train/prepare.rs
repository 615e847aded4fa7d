//! From runs to sessions: plans, memory, folders. Runs on one device are planned together, and share its memory.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use memfit::exec::{Engine, Executor, HostMemory, Options, Transient};
use memfit::plan::save::Labels;
use memfit::plan::{Member, Plan, plan_together};
use memfit::train::run_dir::{RunDir, Saved};
use memfit::train::{Checkpoint, Period, Progress};
use memfit::{CpuExecutor, Session};

use super::length;
use super::tell;
use crate::device;
use crate::failure::usage;
use crate::planning::{self, Planned};
use crate::resident;
use crate::run::{Resume, TrainRun, TrainRuns};
use crate::run_dir;
use crate::say::{count, say};
use crate::weights;

/// A session at its first step, or at the one where it was left.
pub struct Start {
    pub session: Session<CpuExecutor>,
    pub run_dir: Option<RunDir>,
    pub folder: PathBuf,
    pub progress: Progress,
}

/// A run with its plan, before it has memory.
struct Prepared {
    planned: Planned,
    /// Where it goes on from.
    from: Option<(RunDir, Saved)>,
}

pub fn start(all: &mut TrainRuns, executor: &CpuExecutor) -> Result<Vec<Start>> {
    if let [run] = &mut all.runs[..]
        && run.budget_untold
    {
        run.run.request.budget = Some(planning::budget_to_plan_for(&run.run, executor)?);
    }
    for TrainRun { run, spec, device, .. } in &mut all.runs {
        run.keep_to(spec, device.free());
    }
    let prepared = match &all.runs[..] {
        [run] => vec![prepare(run, executor)?],
        _ => prepare_together(all, executor)?,
    };
    for (run, prepared) in all.runs.iter().zip(&prepared) {
        tell::plan(run, &prepared.planned, all.runs.len() > 1);
    }
    let mut starts = Vec::new();
    let shared = share(&all.runs, &prepared, executor)?;
    for ((run, prepared), shared) in all.runs.iter().zip(prepared).zip(shared) {
        starts.push(begin(run, executor, prepared, shared.as_ref())?);
    }
    Ok(starts)
}

fn prepare(run: &TrainRun, executor: &CpuExecutor) -> Result<Prepared> {
    if let Some(from) = &run.resume {
        return resumed(run, executor, from);
    }
    let planned = match &run.plan {
        Some(path) => planning::load(&run.run, executor, path)?,
        None => planning::plan(&run.run, executor)?,
    };
    Ok(Prepared { planned, from: None })
}

fn resumed(run: &TrainRun, executor: &CpuExecutor, Resume { folder, which }: &Resume) -> Result<Prepared> {
    let (run_dir, saved) = RunDir::resume(folder, *which)?;
    check_length(run, &saved.checkpoint)?;
    check_threads(run, &saved.plan.labels)?;
    let labels = planning::labels(&run.run, executor, saved.plan.plan.micro_batch)?;
    planning::check_labels(&run.run, &saved.plan, &labels, &folder.display().to_string())?;
    let planned = Planned::of_file(saved.plan_for(executor.target())?, folder.display().to_string());
    Ok(Prepared { planned, from: Some((run_dir, saved)) })
}

/// Runs of several files: those on one device are planned for what they take together.
fn prepare_together(all: &TrainRuns, executor: &CpuExecutor) -> Result<Vec<Prepared>> {
    let mut prepared: Vec<Option<Prepared>> = all.runs.iter().map(|_| None).collect();
    for (run, prepared) in all.runs.iter().zip(&mut prepared) {
        if let Some(from) = &run.resume {
            *prepared = Some(resumed(run, executor, from)?);
        }
    }
    for members in groups(&all.runs) {
        let new: Vec<usize> = members.iter().copied().filter(|&i| prepared[i].is_none()).collect();
        let runs: Vec<&TrainRun> = new.iter().map(|&i| &all.runs[i]).collect();
        let planned = plan_group(&runs, budget(all, &runs), executor)?;
        for (i, planned) in new.into_iter().zip(planned) {
            prepared[i] = Some(Prepared { planned, from: None });
        }
    }
    Ok(prepared.into_iter().flatten().collect())
}

/// The runs of each device, by their numbers.
fn groups(runs: &[TrainRun]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        match groups.iter_mut().find(|g| runs[g[0]].device.name() == run.device.name()) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    groups
}

/// What runs of one device may take together: what is said for all, or the sum of what each says; and no more than the
/// device has.
fn budget(all: &TrainRuns, runs: &[&TrainRun]) -> Option<u64> {
    let said = all.budget.or_else(|| runs.iter().map(|r| r.spec.memory.budget).sum());
    let room = runs.first().filter(|r| !r.spec.memory.logical.is_empty()).map(|r| r.device.free());
    [said, room].into_iter().flatten().min()
}

fn plan_group(runs: &[&TrainRun], budget: Option<u64>, executor: &CpuExecutor) -> Result<Vec<Planned>> {
    let start = Instant::now();
    let surveys = runs.iter().map(|r| r.run.subject(executor.target()).survey()).collect::<Result<Vec<_>, _>>()?;
    let members: Vec<Member> = runs.iter().zip(&surveys).map(|(r, survey)| Member { name: &r.label, survey }).collect();
    let together = plan_together(&members, budget)?;
    let each = runs.iter().zip(&surveys).zip(together.plans);
    Ok(each
        .map(|((r, survey), plan)| planning::told(&r.run, executor, survey, plan, start))
        .collect::<Result<_, _>>()?)
}

/// For each run, the memory that it shares with others of its device; none for one that is alone there.
fn share(
    runs: &[TrainRun],
    prepared: &[Prepared],
    executor: &CpuExecutor,
) -> Result<Vec<Option<Transient<HostMemory>>>> {
    let mut shared: Vec<Option<Transient<HostMemory>>> = runs.iter().map(|_| None).collect();
    for members in groups(runs).into_iter().filter(|g| g.len() > 1) {
        let plans = || members.iter().map(|&i| &prepared[i].planned.plan);
        let states: u64 = plans().map(|p| p.state_bytes).sum();
        let transient = plans().map(|p| p.transient_bytes).max().unwrap_or(0);
        let labels: Vec<&str> = members.iter().map(|&i| runs[i].label.as_str()).collect();
        let names = labels.join(", ");
        let device = &runs[members[0]].device;
        // All or nothing, so that a limit is met before anything is allocated.
        device.take(&format!("the arena of {names}"), states + transient)?;
        let growth = device::growth(&runs[members[0]].spec.memory);
        let executor = executor.on(device.clone());
        resident::give_back();
        let memory = Transient::new(&executor, &format!("activations of {names}, in turns"), transient, growth)?;
        members.iter().for_each(|&i| shared[i] = Some(memory.clone()));
        tell::together(runs, &members, states, transient, plans().map(Plan::arena_bytes).sum());
    }
    Ok(shared)
}

fn begin(
    run: &TrainRun,
    executor: &CpuExecutor,
    Prepared { planned, from }: Prepared,
    shared: Option<&Transient<HostMemory>>,
) -> Result<Start> {
    let on_device = executor.on(run.device.clone());
    let options = Options { name: run.label.clone(), growth: device::growth(&run.spec.memory), poison: false };
    let engine = |plan: Plan| match shared {
        Some(transient) => Engine::sharing(on_device, plan, options, transient),
        None => Engine::new(on_device, plan, options),
    };
    let plan = planned.plan;
    let Some((run_dir, saved)) = from else {
        let labels = planning::labels(&run.run, executor, plan.micro_batch)?;
        let folder = match &run.spec.train.out {
            Some(folder) => folder.clone(),
            None => run_dir::free(&run.run.name)?,
        };
        let text = run_dir::text(&run.said, &run.run, run.opened.kind)?;
        let run_dir = RunDir::create_again(&folder, &plan, &labels)?;
        run_dir::describe(&folder, &text, &run.opened)?;
        resident::give_back();
        let mut session = Session::start(engine(plan)?, run.run.seed)?;
        if let Some(path) = &run.spec.model.weights {
            weights::start_from(&mut session, path, &run.run)?;
        }
        return Ok(Start { session, run_dir: Some(run_dir), folder, progress: Progress::default() });
    };
    let folder = run_dir.folder().to_path_buf();
    let session = Session::go_on(engine(plan), &saved)?;
    run_dir::describe_again(&folder, &run.said)?;
    if !run.run.json {
        match check_length(run, &saved.checkpoint)? {
            false => say!("  resumed at step {}, epoch {}", session.steps(), saved.checkpoint.progress.epoch + 1),
            true => say!("  at its end, step {}: give more --epochs or --steps to go on", session.steps()),
        }
    }
    Ok(Start { session, run_dir: Some(run_dir), folder, progress: saved.checkpoint.progress })
}

/// Whether nothing is left to do. Less than was done cannot be.
fn check_length(run: &TrainRun, checkpoint: &Checkpoint) -> Result<bool> {
    let (option, wanted, unit, done) = match length(run) {
        Period::Steps(n) => ("--steps", u64::from(n), "step", u64::from(checkpoint.step)),
        Period::Epochs(n) => ("--epochs", u64::from(n), "epoch", checkpoint.progress.epoch),
    };
    match wanted < done {
        false => Ok(wanted == done),
        true => Err(usage(format!(
            "{option} {wanted} is less than the {} that the run has made; give more to go on, or leave it out",
            count(done, unit)
        ))),
    }
}

/// A run goes on with its own plan, which is made for a number of threads.
fn check_threads(run: &TrainRun, labels: &Labels) -> Result<()> {
    let (ours, theirs) = (run.run.threads.to_string(), labels.get("threads"));
    match theirs.filter(|theirs| **theirs != ours) {
        None => Ok(()),
        Some(theirs) => Err(usage(format!(
            "--threads {ours}: the run goes on with its own plan, which is made for {theirs}; leave out --threads \
             (the result is the same for every number of them)"
        ))),
    }
}
