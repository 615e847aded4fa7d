//! From runs to sessions: plans, memory, folders. Runs on one device are planned together, and share its memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use memfit::exec::process::is_in_memory;
use memfit::exec::{Engine, Executor, Growth, Options, Transient};
use memfit::plan::Plan;
use memfit::plan::save::SavedPlan;
use memfit::train::run_dir::{CheckpointKind, RunDir, SavedStates, plan_for};
use memfit::train::{Checkpoint, Period, Progress};
use memfit::{AnyExecutor, AnyMemory, Session};

use super::options::{check, fit_options, length};
use super::peers::{self, Fact};
use super::tensorboard::plan_summary;
use super::{OtherReplica, Planning, RunEvent, Training};
use crate::config::Origin;
use crate::data::{self, DataSources, same_data};
use crate::device;
use crate::error::{Result, RunError};
use crate::history;
use crate::planning::{self, OnProgress, Planned, THREADS};
use crate::resident;
use crate::resources::RunResources;
use crate::run_dir;
use crate::together::{self, Executors, SharedMemory};
use crate::weights;

/// Hears what happens before the first step.
type OnEvent<'a> = &'a mut dyn FnMut(RunEvent);

/// A run with its plan, before it has memory.
struct Prepared {
    planned: Planned,
    /// Where it goes on from.
    from: Option<Resumed>,
}

/// What a run goes on from.
struct Resumed {
    /// None for whoever only helps to train it.
    run_dir: Option<RunDir>,
    states: Box<SavedStates>,
}

/// The replicas of one number within the process, one of each run. What is on one device shares its memory.
struct Slot {
    runs: Vec<RunResources>,
    executors: Executors,
    prepared: Vec<Prepared>,
}

/// Plans the runs, makes or finds their folders, and takes their memory: all of them or none.
pub fn prepare(runs: Vec<RunResources>, planning: &Planning, on_event: OnEvent) -> Result<Vec<Training>> {
    for run in &runs {
        run.named(check_data(run, on_event))?;
        check_plan_file(run, planning)?;
    }
    let mut slots = Slot::all(runs)?;
    choose_budget(&mut slots, planning)?;
    for run in &slots[0].runs {
        run.named(tell_data(run, on_event))?;
    }
    for slot in &mut slots {
        slot.prepared = plan_all(&mut slot.runs, planning, &slot.executors, on_event)?;
        for (run, prepared) in slot.runs.iter_mut().zip(&slot.prepared) {
            run.keep_room_for_exchanges(&prepared.planned.plan)?;
        }
    }
    tell_plans(&slots, on_event);
    let groups: Vec<Vec<SharedMemory>> = slots.iter().map(|slot| slot.groups(planning.budget)).collect();
    // All or nothing, so that a limit is met before anything is begun.
    for group in groups.iter().flatten() {
        let bytes = group.arena_bytes().saturating_add(group.staging_bytes);
        group.device.check_room(&format!("the arena of {}", group.labels.join(", ")), bytes)?;
    }
    check_process(&slots, &groups)?;
    planning.peers.map_or(Ok(()), |peers| peers::meet(peers, &slots[0].facts()?))?;
    let mut trainings: Vec<Training> = Vec::new();
    for (slot, groups) in slots.into_iter().zip(groups) {
        let begun = slot.begin(&groups, on_event)?;
        if trainings.is_empty() {
            trainings = begun;
        } else {
            trainings.iter_mut().zip(begun).for_each(|(first, other)| first.others.push(other.into()));
        }
    }
    // What one of them could not begin, all hear of before they wait for each other.
    let stalls: Vec<Duration> = trainings.iter().map(|training| training.run.crew.stall).collect();
    let wires = planning.peers.map(|peers| peers::connect(peers, &stalls)).transpose()?;
    for (training, wire) in trainings.iter_mut().zip(wires.into_iter().flatten()) {
        training.session.connect(wire)?;
    }
    Ok(trainings)
}

impl Slot {
    /// Of all replicas in this process, the first ones first.
    fn all(runs: Vec<RunResources>) -> Result<Vec<Slot>> {
        let mut slots: Vec<Vec<RunResources>> = Vec::new();
        for mut run in runs {
            let others = std::mem::take(&mut run.others);
            for (index, replica) in std::iter::once(run).chain(others).enumerate() {
                if slots.len() <= index {
                    slots.push(Vec::new());
                }
                slots[index].push(replica);
            }
        }
        let slot = |runs: Vec<RunResources>| {
            let executors = Executors::new(&runs)?;
            check_growth(&runs, &executors)?;
            Ok(Slot { runs, executors, prepared: Vec::new() })
        };
        slots.into_iter().map(slot).collect()
    }

    /// What is on one device.
    fn groups(&self, budget: Option<u64>) -> Vec<SharedMemory> {
        let plans: Vec<&Planned> = self.prepared.iter().map(|p| &p.planned).collect();
        let groups = together::groups(&self.runs).into_iter();
        groups.map(|members| SharedMemory::new(&self.runs, members, &plans, budget)).collect()
    }

    /// What all processes have to agree on, by run.
    fn facts(&self) -> Result<Vec<Vec<Fact>>> {
        let of_run = |(run, prepared): (&RunResources, &Prepared)| {
            let states = prepared.from.as_ref().map(|from| &*from.states);
            peers::facts(run, &self.executors.of(run)?, &prepared.planned.plan, states)
        };
        self.runs.iter().zip(&self.prepared).map(of_run).collect()
    }

    /// Takes the memory of all runs.
    fn begin(self, groups: &[SharedMemory], on_event: OnEvent) -> Result<Vec<Training>> {
        let Slot { runs, executors, prepared } = self;
        let mut homes = Vec::new();
        for (run, prepared) in runs.iter().zip(prepared) {
            let home = Home::new(run, &executors.of(run)?, &prepared.planned.plan, prepared.from);
            homes.push((prepared.planned.plan, run.named(home)?));
        }
        let segments = share(&runs, groups, &executors, on_event)?;
        let mut trainings = Vec::new();
        for ((run, (plan, home)), segment) in runs.into_iter().zip(homes).zip(segments) {
            let executor = executors.of(&run)?;
            trainings.push(begin(run, executor, plan, home, segment.as_ref(), on_event)?);
        }
        Ok(trainings)
    }
}

impl From<Training> for OtherReplica {
    fn from(Training { run, session, data, options, .. }: Training) -> OtherReplica {
        OtherReplica { run, session, data, options }
    }
}

/// Where nothing is said about memory, a budget with which there is something to plan.
fn choose_budget(slots: &mut [Slot], planning: &Planning) -> Result<()> {
    for Slot { runs, executors, .. } in slots {
        if let [run] = &mut runs[..]
            && run.may_choose_budget()
            && planning.plan_file.is_none()
        {
            run.choose_budget(planning::budget_to_plan_for(run, executors.of(run)?.target())?);
        }
    }
    Ok(())
}

/// A file has the plan of one replica.
fn check_plan_file(run: &RunResources, planning: &Planning) -> Result<()> {
    if planning.plan_file.is_some() && run.crew.size > 1 {
        return Err(RunError::conflict(
            "the plan of a file is that of one replica, and each of several has its own; leave it out",
        ));
    }
    Ok(())
}

fn tell_plans(slots: &[Slot], on_event: OnEvent) {
    let (first, rest) = slots.split_at(1);
    for (i, (run, prepared)) in first[0].runs.iter().zip(&first[0].prepared).enumerate() {
        let is_shared = together::is_shared(&first[0].runs, run);
        let others: Vec<&Planned> = rest.iter().map(|slot| &slot.prepared[i].planned).collect();
        on_event(RunEvent::Planned { run, planned: &prepared.planned, is_shared, others: &others });
    }
}

/// The plan that one run would be trained with if it began now.
pub(crate) fn plan_run(run: &mut RunResources, executor: &AnyExecutor, on_progress: OnProgress) -> Result<Planned> {
    let on_event = &mut |event: RunEvent| {
        if let RunEvent::Planning(at) = event {
            on_progress(at);
        }
    };
    Ok(plan_alone(run, &Planning::default(), executor, on_event)?.planned)
}

/// Whether the process has room for what was planned, as the system counts it now that planning is over.
fn check_process(slots: &[Slot], groups: &[Vec<SharedMemory>]) -> Result<()> {
    let Some(process) = slots[0].runs.first().and_then(|run| run.process.as_ref()) else { return Ok(()) };
    let mut arenas: u64 = 0;
    for (slot, groups) in slots.iter().zip(groups) {
        for group in groups {
            if slot.executors.of(&slot.runs[group.members[0]])?.gives_process_memory() {
                arenas = arenas.saturating_add(group.arena_bytes()).saturating_add(group.staging_bytes);
            }
        }
    }
    arenas += slots.iter().flat_map(|slot| &slot.runs).map(RunResources::exchange_bytes_of_host).sum::<u64>();
    // The last checkpoint, the best, the one that is written, and the weights at the end.
    let of_run = |(run, prepared): (&RunResources, &Prepared)| {
        let folder = run.config.resumed_folder().or(run.config.train.out.as_deref()).unwrap_or(Path::new("."));
        if is_in_memory(folder) { 4 * prepared.planned.plan.state_bytes } else { 0 }
    };
    let files = slots[0].runs.iter().zip(&slots[0].prepared).map(of_run).sum();
    process.check_beside(&slots.iter().flat_map(|slot| &slot.runs).collect::<Vec<_>>(), arenas, files)
}

/// Runs in one memory take its pages in one way, and page by page only where a device gives single pages.
fn check_growth(runs: &[RunResources], executors: &Executors) -> Result<()> {
    for run in runs.iter().filter(|run| device::growth(&run.config.memory) == Growth::Lazy) {
        run.named(check_lazy(run, &executors.of(run)?))?;
    }
    let growth = |i: &usize| device::growth(&runs[*i].config.memory);
    let differ = |group: &Vec<usize>| group.iter().any(|i| growth(i) != growth(&group[0]));
    if together::groups(runs).iter().any(differ) { Err(RunError::GrowthDiffers) } else { Ok(()) }
}

/// Whether a run that wants its memory page by page can have it so.
pub(crate) fn check_lazy(run: &RunResources, executor: &AnyExecutor) -> Result<()> {
    let (is_lazy, device) = (device::growth(&run.config.memory) == Growth::Lazy, run.device.name().to_string());
    if is_lazy && !executor.gives_pages() { Err(RunError::NoPages { device }) } else { Ok(()) }
}

/// Of a run that goes on, its data must be those that it began with.
fn check_data(run: &RunResources, on_event: OnEvent) -> Result<()> {
    let sources = sources(run)?;
    if let Some(folder) = run.config.resumed_folder() {
        for set in same_data::check(folder, sources)? {
            on_event(RunEvent::DataChanged { run, set });
        }
    }
    check(run, sources)
}

fn tell_data(run: &RunResources, on_event: OnEvent) -> Result<()> {
    if let Some(summary) = data::summary(run)? {
        on_event(RunEvent::Data { run, summary: &summary });
    }
    Ok(())
}

fn sources(run: &RunResources) -> Result<&DataSources> {
    run.data.as_deref().ok_or_else(|| RunError::NoData { model: run.name.clone() })
}

fn plan_all(
    runs: &mut [RunResources],
    planning: &Planning,
    executors: &Executors,
    on_event: OnEvent,
) -> Result<Vec<Prepared>> {
    if let [run] = runs {
        return Ok(vec![plan_alone(run, planning, &executors.of(run)?, on_event)?]);
    }
    // Runs of several files are planned for what they take together; runs that go on have their plans.
    if runs.iter().any(|run| run.config.resumed_folder().is_some()) {
        let mut plan = |run: &mut RunResources| {
            let prepared = executors.of(run).and_then(|executor| plan_one(run, planning, &executor, on_event));
            run.named(prepared)
        };
        return runs.iter_mut().map(&mut plan).collect();
    }
    let on_progress = &mut |at: planning::Progress| on_event(RunEvent::Planning(at));
    let planned = together::plan(runs, planning.budget, true, executors, on_progress)?;
    Ok(planned.into_iter().map(|planned| Prepared { planned, from: None }).collect())
}

/// Where the fastest plan within the budget does not fit into the device, the fastest that does.
fn plan_alone(
    run: &mut RunResources,
    planning: &Planning,
    executor: &AnyExecutor,
    on_event: OnEvent,
) -> Result<Prepared> {
    let prepared = plan_one(run, planning, executor, on_event)?;
    let is_given = planning.plan_file.is_some() || prepared.from.is_some();
    if is_given || run.room.is_some() || prepared.planned.plan.device_bytes() <= run.device.free() {
        return Ok(prepared);
    }
    run.limit_to_whole();
    plan_one(run, planning, executor, on_event)
}

fn plan_one(
    run: &mut RunResources,
    planning: &Planning,
    executor: &AnyExecutor,
    on_event: OnEvent,
) -> Result<Prepared> {
    if let Origin::RunDir { checkpoint, .. } = *run.config.origin() {
        return plan_resumed(run, executor, checkpoint.unwrap_or(CheckpointKind::Last), on_event);
    }
    let planned = match &planning.plan_file {
        Some(path) => planning::load(run, executor, path)?,
        None => planning::plan(run, executor.target(), &mut |at| on_event(RunEvent::Planning(at)))?,
    };
    Ok(Prepared { planned, from: None })
}

fn plan_resumed(
    run: &mut RunResources,
    executor: &AnyExecutor,
    checkpoint: CheckpointKind,
    on_event: OnEvent,
) -> Result<Prepared> {
    let folder = run.config.resumed_folder().unwrap_or(Path::new(".")).to_path_buf();
    // Whoever only helps takes no lock.
    let (run_dir, saved) = if run.rank() == 0 {
        let (run_dir, saved) = RunDir::resume(&folder, checkpoint)?;
        (Some(run_dir), saved)
    } else {
        (None, run_dir::read_to_help(&folder, checkpoint)?)
    };
    let (states, plan) = saved.into_parts();
    check_length(run, &states.checkpoint)?;
    check_seed(run, &states.checkpoint)?;
    let planned = plan_saved(run, executor, plan, &folder, &mut |at| on_event(RunEvent::Planning(at)))?;
    Ok(Prepared { planned, from: Some(Resumed { run_dir, states: Box::new(states) }) })
}

/// The plan that a run goes on with: its own; or where it computes on another device or with another number of threads, one that
/// is for them.
pub(crate) fn plan_saved(
    run: &mut RunResources,
    executor: &AnyExecutor,
    saved: SavedPlan,
    folder: &Path,
    on_progress: OnProgress,
) -> Result<Planned> {
    let file = folder.display().to_string();
    planning::check_resumed(run, executor, &saved, &file)?;
    if let Some(moved_from) = planning::other_device(executor, &saved) {
        drop(saved);
        let planned = planning::plan(run, executor.target(), on_progress)?;
        return Ok(Planned { moved_from: Some(moved_from), ..planned });
    }
    let theirs = saved.labels.get(THREADS).filter(|theirs| **theirs != run.threads.to_string()).cloned();
    let has_other_budget = run.config.is_overridden("memory", "budget");
    if theirs.is_some() || has_other_budget || planning::is_of_other_replica(run, &saved.plan) {
        let micro_batch = saved.plan.micro_batch;
        drop(saved);
        return planning::plan_again(run, executor, micro_batch, theirs.as_deref());
    }
    let plan = plan_for(saved, executor.target())?;
    // Its file may have been changed since.
    let needed = plan.device_bytes();
    if let Some(budget) = run.config.memory.budget.filter(|b| *b < needed) {
        return Err(RunError::PlanTooLarge { file, needed, budget, room: None });
    }
    run.make_room(needed);
    if let Some(room) = run.room.as_ref().map(|_| run.device.free()).filter(|&room| room < needed) {
        return Err(RunError::PlanTooLarge { file, needed, budget: room, room: run.room_now().map(Box::new) });
    }
    run.look_at_room_again();
    Ok(Planned::from_file(plan, file))
}

/// For each run, the memory that it shares with others of its device; none for one that is alone there.
fn share(
    runs: &[RunResources],
    groups: &[SharedMemory],
    executors: &Executors,
    on_event: OnEvent,
) -> Result<Vec<Option<Transient<AnyMemory>>>> {
    let mut segments: Vec<Option<Transient<AnyMemory>>> = runs.iter().map(|_| None).collect();
    for shared in groups.iter().filter(|group| group.is_shared()) {
        resident::trim_heap();
        let holder = format!("activations of {}, in turns", shared.labels.join(", "));
        let growth = device::growth(&runs[shared.members[0]].config.memory);
        let executor = executors.of(&runs[shared.members[0]])?;
        let segment = Transient::new(&executor, &holder, shared.transient_bytes, growth)?;
        shared.members.iter().for_each(|&i| segments[i] = Some(segment.clone()));
        on_event(RunEvent::Shared(shared));
    }
    Ok(segments)
}

/// The folder of a run.
struct Home {
    /// None for whoever only helps to train it.
    run_dir: Option<RunDir>,
    /// Where it goes on from.
    from: Option<Box<SavedStates>>,
}

impl Home {
    fn new(run: &RunResources, executor: &AnyExecutor, plan: &Plan, from: Option<Resumed>) -> Result<Home> {
        if let Some(Resumed { run_dir, states }) = from {
            return Ok(Home { run_dir, from: Some(states) });
        }
        if run.rank() > 0 {
            return Ok(Home { run_dir: None, from: None });
        }
        let labels = planning::labels(run, executor, plan.micro_batch)?;
        let folder = match &run.config.train.out {
            Some(folder) => folder.clone(),
            None => run_dir::free(&run.name)?,
        };
        let text = run_dir::run_file(run, sources(run)?)?;
        let run_dir = RunDir::create_again(&folder, plan, &labels)?;
        run_dir::describe(&folder, &text, sources(run)?)?;
        Ok(Home { run_dir: Some(run_dir), from: None })
    }

    fn folder(&self) -> PathBuf {
        self.run_dir.as_ref().map_or_else(PathBuf::new, |run_dir| run_dir.folder().to_path_buf())
    }
}

/// Takes the memory, and sets the states.
fn begin(
    run: RunResources,
    executor: AnyExecutor,
    plan: Plan,
    home: Home,
    shared: Option<&Transient<AnyMemory>>,
    on_event: OnEvent,
) -> Result<Training> {
    let (label, is_one_of_several) = (run.label.clone(), run.is_one_of_several);
    let training = || {
        let growth = device::growth(&run.config.memory);
        let options = Options { name: run.label.clone(), growth, poison: false };
        let has_log = run.config.report.tensorboard != Some(false);
        let plan_summary = if has_log { plan_summary(&run, &plan) } else { String::new() };
        resident::trim_heap();
        let engine = match shared {
            Some(transient) => Engine::sharing(executor, plan, options, transient),
            None => Engine::new(executor, plan, options),
        };
        let folder = home.folder();
        let (session, progress) = match &home.from {
            None => (first_session(&run, engine?, on_event)?, Progress::default()),
            Some(saved) => {
                let session = Session::go_on(engine, saved)?;
                if run.rank() == 0 {
                    run_dir::describe_again(&folder, &run.config)?;
                    let (is_over, epoch) = (check_length(&run, &saved.checkpoint)?, saved.checkpoint.progress.epoch);
                    let history_ends = history::lost_after(&folder, session.steps())?;
                    on_event(RunEvent::Resumed { run: &run, step: session.steps(), epoch, is_over, history_ends });
                }
                (session, saved.checkpoint.progress.clone())
            }
        };
        let data = data::datasets(sources(&run)?, &run, session.plan().micro_batch)?;
        let (first_step, others) = (session.steps(), Vec::new());
        let options = fit_options(&run, home.run_dir, progress)?;
        let is_shared = shared.is_some();
        Ok(Training { run, session, data, options, others, folder, plan_summary, first_step, is_shared })
    };
    crate::error::named(&label, is_one_of_several, training())
}

/// At its first step, with the weights that it starts from.
fn first_session(run: &RunResources, engine: Engine<AnyExecutor>, on_event: OnEvent) -> Result<Session<AnyExecutor>> {
    let mut session = Session::start(engine, run.seed)?;
    if let Some(file) = &run.config.model.weights {
        let loaded = weights::load_into(&mut session, file, run)?;
        if run.rank() == 0 {
            on_event(RunEvent::Weights { run, file, loaded: &loaded });
        }
    }
    Ok(session)
}

/// Whether nothing is left to do. Less than was done cannot be.
fn check_length(run: &RunResources, checkpoint: &Checkpoint) -> Result<bool> {
    let (wanted, unit, done) = match length(&run.config) {
        Period::Steps(n) => (u64::from(n), "step", u64::from(checkpoint.step)),
        Period::Epochs(n) => (u64::from(n), "epoch", checkpoint.progress.epoch),
    };
    let is_overridden = run.config.is_overridden("train", if unit == "step" { "steps" } else { "epochs" });
    if wanted < done { Err(RunError::TooShort { unit, wanted, done, is_overridden }) } else { Ok(wanted == done) }
}

/// What a run drew before, it goes on drawing.
fn check_seed(run: &RunResources, checkpoint: &Checkpoint) -> Result<()> {
    if run.seed == checkpoint.seed {
        return Ok(());
    }
    let problem =
        format!("is {}, but the run began with {}, and goes on with that; set it back", run.seed, checkpoint.seed);
    Err(RunError::of_key("train", "seed", problem))
}
