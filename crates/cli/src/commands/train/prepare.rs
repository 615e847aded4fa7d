//! From runs to sessions: plans, memory, folders. Runs on one device are planned together, and share its memory.

use anyhow::Result;
use memfit::exec::{Engine, Executor, HostMemory, Options, Transient};
use memfit::plan::Plan;
use memfit::plan::save::Labels;
use memfit::train::run_dir::{RunDir, Saved};
use memfit::train::{Checkpoint, Period, Progress};
use memfit::{CpuExecutor, Session};

use super::length;
use super::tell;
use crate::commands::plan::searched;
use crate::cure;
use crate::failure::usage;
use crate::progress::Progress as Line;
use crate::resident;
use crate::runs::{Resume, TrainRun, TrainRuns, named};
use crate::show;
use memfit_run::device::{self, Room};
use memfit_run::planning::{self, Planned};
use memfit_run::run_dir;
use memfit_run::text::count;
use memfit_run::together::{self, Shared};
use memfit_run::weights;

/// A session at its first step, or at the one where it was left.
pub struct Start {
    pub session: Session<CpuExecutor>,
    pub run_dir: RunDir,
    pub progress: Progress,
    /// Its memory, with others.
    pub is_shared: bool,
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
    for TrainRun { run, spec, place, .. } in &mut all.runs {
        run.keep_to(spec, &place.device);
    }
    let mut prepared = match &mut all.runs[..] {
        [run] => vec![prepare_alone(run, executor)?],
        _ => prepare_together(all, executor)?,
    };
    let runs = all.neighbours();
    for ((run, neighbour), prepared) in all.runs.iter().zip(&runs).zip(&prepared) {
        tell::plan(run, &prepared.planned, together::is_shared(&runs, neighbour));
    }
    let plans: Vec<&Plan> = prepared.iter().map(|p| &p.planned.plan).collect();
    let mut groups = Vec::new();
    for members in together::groups(&runs) {
        let shared = Shared::new(&runs, &members, &plans, all.budget);
        groups.push((members, shared));
    }
    // All or nothing, so that a limit is met before anything is begun.
    for (_, shared) in &groups {
        shared.device.check_room(&format!("the arena of {}", shared.labels.join(", ")), shared.arena())?;
    }
    let mut homes = Vec::new();
    for (run, Prepared { planned, from }) in all.runs.iter().zip(&mut prepared) {
        homes.push(match from.take() {
            Some((run_dir, saved)) => Home::Old(run_dir, Box::new(saved)),
            None => named(&run.run.label, create(run, executor, &planned.plan))?,
        });
    }
    let segments = share(all, &groups, executor)?;
    let mut starts = Vec::new();
    for (((run, prepared), home), segment) in all.runs.iter().zip(prepared).zip(homes).zip(segments) {
        starts.push(named(&run.run.label, begin(run, executor, prepared.planned.plan, home, segment.as_ref()))?);
    }
    Ok(starts)
}

/// Where no budget is said and the fastest plan does not fit into the device, the fastest that does.
fn prepare_alone(run: &mut TrainRun, executor: &CpuExecutor) -> Result<Prepared> {
    let prepared = prepare(run, executor)?;
    let (needed, room) = (prepared.planned.plan.arena_bytes(), run.place.device.free());
    if needed <= room || run.run.request.budget.is_some() || run.plan.is_some() || run.resume.is_some() {
        return Ok(prepared);
    }
    run.run.request.budget = Some(room);
    run.run.room = Some(Room::of_whole(&run.place.device));
    prepare(run, executor)
}

fn prepare(run: &TrainRun, executor: &CpuExecutor) -> Result<Prepared> {
    if let Some(from) = &run.resume {
        return resumed(run, executor, from);
    }
    let planned = match &run.plan {
        Some(path) => planning::load(&run.run, executor, path)?,
        None => searched(&run.run, executor)?,
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

/// Runs of several files are planned for what they take together; runs that go on have their plans.
fn prepare_together(all: &TrainRuns, executor: &CpuExecutor) -> Result<Vec<Prepared>> {
    if all.runs.iter().any(|r| r.resume.is_some()) {
        return all.runs.iter().map(|run| named(&run.run.label, prepare(run, executor))).collect();
    }
    let mut progress = Line::new("planning");
    let planned =
        together::plan(&all.neighbours(), all.budget, true, executor, &mut |at| progress.show(&cure::progress(at)))?;
    drop(progress);
    Ok(planned.into_iter().map(|planned| Prepared { planned, from: None }).collect())
}

/// For each run, the memory that it shares with others of its device; none for one that is alone there.
fn share(
    all: &TrainRuns,
    groups: &[(Vec<usize>, Shared)],
    executor: &CpuExecutor,
) -> Result<Vec<Option<Transient<HostMemory>>>> {
    let mut segments: Vec<Option<Transient<HostMemory>>> = all.runs.iter().map(|_| None).collect();
    for (members, shared) in groups.iter().filter(|(members, _)| members.len() > 1) {
        let first = &all.runs[members[0]];
        resident::trim_heap();
        let holder = format!("activations of {}, in turns", shared.labels.join(", "));
        let growth = device::growth(&first.spec.memory);
        let segment = Transient::new(&executor.on(shared.device.clone()), &holder, shared.transient, growth)?;
        members.iter().for_each(|&i| segments[i] = Some(segment.clone()));
        show::together::print(shared, first.run.json);
    }
    Ok(segments)
}

/// The folder of a run.
enum Home {
    New(RunDir),
    /// With where it goes on from.
    Old(RunDir, Box<Saved>),
}

fn create(run: &TrainRun, executor: &CpuExecutor, plan: &Plan) -> Result<Home> {
    let labels = planning::labels(&run.run, executor, plan.micro_batch)?;
    let folder = match &run.spec.train.out {
        Some(folder) => folder.clone(),
        None => run_dir::free(&run.run.name)?,
    };
    let text = run_dir::text(&run.said, &run.run, run.opened.kind)?;
    let run_dir = RunDir::create_again(&folder, plan, &labels)?;
    run_dir::describe(&folder, &text, &run.opened)?;
    Ok(Home::New(run_dir))
}

/// Takes the memory, and sets the states.
fn begin(
    run: &TrainRun,
    executor: &CpuExecutor,
    plan: Plan,
    home: Home,
    shared: Option<&Transient<HostMemory>>,
) -> Result<Start> {
    let on_device = executor.on(run.place.device.clone());
    let options = Options { name: run.place.label.clone(), growth: device::growth(&run.spec.memory), poison: false };
    resident::trim_heap();
    let engine = match shared {
        Some(transient) => Engine::sharing(on_device, plan, options, transient),
        None => Engine::new(on_device, plan, options),
    };
    let (session, run_dir, progress) = match home {
        Home::New(run_dir) => {
            let mut session = Session::start(engine?, run.run.seed)?;
            if let Some(path) = &run.spec.model.weights {
                tell::weights(&run.run, path, &weights::start_from(&mut session, path, &run.run)?);
            }
            (session, run_dir, Progress::default())
        }
        Home::Old(run_dir, saved) => {
            let session = Session::go_on(engine, &saved)?;
            run_dir::describe_again(run_dir.folder(), &run.said)?;
            tell::resumed(run, &session, check_length(run, &saved.checkpoint)?, &saved.checkpoint);
            (session, run_dir, saved.checkpoint.progress)
        }
    };
    Ok(Start { session, run_dir, progress, is_shared: shared.is_some() })
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
