//! From runs to sessions: plans, memory, folders. Runs on one device are planned together, and share its memory.

use std::path::{self, Path, PathBuf};
use std::time::Duration;

use memfit::exec::process::is_in_memory;
use memfit::exec::{Engine, Executor, Growth, Options, Transient};
use memfit::plan::Plan;
use memfit::plan::save::SavedPlan;
use memfit::train::run_dir::{RunDir, plan_for};
use memfit::train::{Checkpoint, Period, Progress};
use memfit::{AnyExecutor, AnyMemory, Session};

use super::cache;
use super::go_on::{self, Known, Resumed};
use super::options::{check, fit_options, length};
use super::peers::{self, Fact};
use super::tensorboard::plan_summary;
use super::{Keeps, OtherReplica, Planning, RunEvent, Training};
use crate::data::{self, DataSources, same_data};
use crate::device;
use crate::error::{Result, RunError};
use crate::from_first::from_first;
use crate::planning::{self, MadeFor, OnProgress, Planned, THREADS};
use crate::replicas::Peers;
use crate::resident;
use crate::resources::{RunResources, by_replica};
use crate::run_dir;
use crate::together::{self, Executors, SharedMemory};

/// Hears what happens before the first step.
type OnEvent<'a> = &'a mut dyn FnMut(RunEvent);

/// The replicas of one number within the process, one of each run. What is on one device shares its memory.
struct Slot {
    runs: Vec<RunResources>,
    executors: Executors,
    planned: Vec<Planned>,
}

/// Plans the runs, makes or finds their folders, and takes their memory: all of them or none.
pub fn prepare(runs: Vec<RunResources>, planning: &Planning, on_event: OnEvent) -> Result<Vec<Training>> {
    for run in &runs {
        run.named(check_data(run, on_event))?;
    }
    let mut resumed = Vec::new();
    for run in &runs {
        run.named(go_on::check_weights(run, planning.peers))?;
        resumed.push(run.named(go_on::open(run, planning.peers))?);
    }
    let mut slots = Slot::all(runs)?;
    choose_budget(&mut slots, planning)?;
    for run in &slots[0].runs {
        run.named(tell_data(run, on_event))?;
    }
    for slot in &mut slots {
        slot.planned = plan_all(&mut slot.runs, planning, &slot.executors, &mut resumed, on_event)?;
        for (run, planned) in slot.runs.iter_mut().zip(&slot.planned) {
            run.keep_room_for_exchanges(&planned.plan)?;
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
    let mut trainings = begin_all(slots, &groups, planning.keeps, &mut resumed, on_event)?;
    tell_folders(&mut trainings, planning.peers)?;
    for (training, resumed) in trainings.iter_mut().zip(&resumed) {
        let (label, is_one_of_several) = (training.run.label.clone(), training.run.is_one_of_several);
        let set = go_on::set_all(training, resumed.as_ref(), planning.peers, on_event);
        crate::error::named(&label, is_one_of_several, set)?;
    }
    // What one of them could not begin, all hear of here, before they wait for each other.
    cache::make_all(&trainings, planning.peers, on_event)?;
    let stalls: Vec<Duration> = trainings.iter().map(|training| training.run.crew.stall).collect();
    let wires = planning.peers.map(|peers| peers::connect(peers, &stalls)).transpose()?;
    for (training, wire) in trainings.iter_mut().zip(wires.into_iter().flatten()) {
        training.session.connect(wire)?;
    }
    Ok(trainings)
}

/// Has every process know where the first one keeps the runs: if that is lost, another one says how to go on.
fn tell_folders(trainings: &mut [Training], peers: Option<&dyn Peers>) -> Result<()> {
    let whole =
        |folder: &PathBuf| if folder.as_os_str().is_empty() { Ok(PathBuf::new()) } else { path::absolute(folder) };
    let own: Vec<PathBuf> = trainings.iter().map(|t| whole(&t.folder).unwrap_or_else(|_| t.folder.clone())).collect();
    let folders = from_first(peers, || Ok(own))?;
    trainings.iter_mut().zip(folders).for_each(|(training, folder)| training.first_folder = folder);
    Ok(())
}

/// Takes the memory of all runs, with the replicas that this process has of each.
fn begin_all(
    slots: Vec<Slot>,
    groups: &[Vec<SharedMemory>],
    keeps: Keeps,
    resumed: &mut [Option<Resumed>],
    on_event: OnEvent,
) -> Result<Vec<Training>> {
    let mut trainings: Vec<Training> = Vec::new();
    for (slot, groups) in slots.into_iter().zip(groups) {
        let begun = slot.begin(groups, keeps, resumed, on_event)?;
        if trainings.is_empty() {
            trainings = begun;
        } else {
            trainings.iter_mut().zip(begun).for_each(|(first, other)| first.others.push(other.into()));
        }
    }
    Ok(trainings)
}

impl Slot {
    /// Of all replicas in this process, the first ones first.
    fn all(runs: Vec<RunResources>) -> Result<Vec<Slot>> {
        let slot = |runs: Vec<RunResources>| {
            let executors = Executors::new(&runs)?;
            check_growth(&runs, &executors)?;
            Ok(Slot { runs, executors, planned: Vec::new() })
        };
        by_replica(runs).into_iter().map(slot).collect()
    }

    /// What is on one device.
    fn groups(&self, budget: Option<u64>) -> Vec<SharedMemory> {
        let plans: Vec<&Planned> = self.planned.iter().collect();
        let groups = together::groups(&self.runs).into_iter();
        groups.map(|members| SharedMemory::new(&self.runs, members, &plans, budget)).collect()
    }

    /// What all processes have to agree on, by run.
    fn facts(&self) -> Result<Vec<Vec<Fact>>> {
        let of_run =
            |(run, planned): (&RunResources, &Planned)| peers::facts(run, &self.executors.of(run)?, &planned.plan);
        self.runs.iter().zip(&self.planned).map(of_run).collect()
    }

    /// Takes the memory of all runs.
    fn begin(
        self,
        groups: &[SharedMemory],
        keeps: Keeps,
        resumed: &mut [Option<Resumed>],
        on_event: OnEvent,
    ) -> Result<Vec<Training>> {
        let Slot { runs, executors, planned } = self;
        let mut homes = Vec::new();
        for ((run, planned), resumed) in runs.iter().zip(planned).zip(resumed.iter_mut()) {
            let run_dir = home(run, &executors.of(run)?, &planned.plan, resumed.as_mut(), keeps);
            homes.push((planned.plan, run.named(run_dir)?));
        }
        let segments = share(&runs, groups, &executors, on_event)?;
        let mut trainings = Vec::new();
        for (((run, (plan, run_dir)), segment), resumed) in runs.into_iter().zip(homes).zip(segments).zip(resumed) {
            let executor = executors.of(&run)?;
            let from = resumed.as_ref().map(|resumed| &resumed.known.checkpoint);
            trainings.push(begin(run, executor, plan, run_dir, from, segment.as_ref())?);
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

fn tell_plans(slots: &[Slot], on_event: OnEvent) {
    let (first, rest) = slots.split_at(1);
    for (i, (run, planned)) in first[0].runs.iter().zip(&first[0].planned).enumerate() {
        let is_shared = together::is_shared(&first[0].runs, run);
        let others: Vec<&Planned> = rest.iter().map(|slot| &slot.planned[i]).collect();
        on_event(RunEvent::Planned { run, planned, is_shared, others: &others });
    }
}

/// The plan that one run would be trained with if it began now.
pub(crate) fn plan_run(run: &mut RunResources, executor: &AnyExecutor, on_progress: OnProgress) -> Result<Planned> {
    let on_event = &mut |event: RunEvent| {
        if let RunEvent::Planning(at) = event {
            on_progress(at);
        }
    };
    plan_alone(run, &Planning::default(), executor, None, on_event)
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
    // The last checkpoint, the best, the one that is written, those that are kept, and the weights at the end.
    let of_run = |(run, planned): (&RunResources, &Planned)| {
        let folder = run.config.resumed_folder().or(run.config.train.out.as_deref()).unwrap_or(Path::new("."));
        let kept = run.config.train.keep.unwrap_or(0) as u64;
        if run.crew.is_first() && is_in_memory(folder) { (4 + kept) * planned.plan.state_bytes } else { 0 }
    };
    let files = slots[0].runs.iter().zip(&slots[0].planned).map(of_run).sum();
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
    if let Some(folder) = run.config.run_folder() {
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
    resumed: &mut [Option<Resumed>],
    on_event: OnEvent,
) -> Result<Vec<Planned>> {
    if let [run] = runs {
        let resumed = resumed.first_mut().and_then(Option::as_mut);
        return Ok(vec![plan_alone(run, planning, &executors.of(run)?, resumed, on_event)?]);
    }
    // Runs of several files are planned for what they take together; runs that go on have their plans.
    if resumed.iter().any(Option::is_some) {
        let mut plan = |(run, resumed): (&mut RunResources, &mut Option<Resumed>)| {
            let planned =
                executors.of(run).and_then(|executor| plan_one(run, planning, &executor, resumed.as_mut(), on_event));
            run.named(planned)
        };
        return runs.iter_mut().zip(resumed).map(&mut plan).collect();
    }
    let on_progress = &mut |at: planning::Progress| on_event(RunEvent::Planning(at));
    together::plan(runs, planning.budget, true, executors, on_progress)
}

/// Where the fastest plan within the budget does not fit into the device, the fastest that does.
fn plan_alone(
    run: &mut RunResources,
    planning: &Planning,
    executor: &AnyExecutor,
    resumed: Option<&mut Resumed>,
    on_event: OnEvent,
) -> Result<Planned> {
    let is_resumed = resumed.is_some();
    let planned = plan_one(run, planning, executor, resumed, on_event)?;
    let is_given = is_resumed || planned.file.is_some();
    if is_given || run.room.is_some() || planned.plan.device_bytes() <= run.device.free() {
        return Ok(planned);
    }
    run.limit_to_whole();
    plan_one(run, planning, executor, None, on_event)
}

fn plan_one(
    run: &mut RunResources,
    planning: &Planning,
    executor: &AnyExecutor,
    resumed: Option<&mut Resumed>,
    on_event: OnEvent,
) -> Result<Planned> {
    let on_progress = &mut |at: planning::Progress| on_event(RunEvent::Planning(at));
    if let Some(Resumed { known: Known { checkpoint, made }, own }) = resumed {
        check_length(run, checkpoint)?;
        check_seed(run, checkpoint)?;
        let folder = run.config.resumed_folder().unwrap_or(Path::new(".")).to_path_buf();
        let plan = own.as_mut().and_then(|own| own.plan.take());
        return plan_saved(run, executor, made, plan, &folder, on_progress);
    }
    match &planning.plan_file {
        Some(path) => planning::load(run, executor, path, planning.peers),
        None => planning::plan(run, executor.target(), on_progress),
    }
}

/// The plan that a run goes on with: its own, which the first replica has; or where it computes on another device or with another
/// number of threads, one that is for them.
pub(crate) fn plan_saved(
    run: &mut RunResources,
    executor: &AnyExecutor,
    made: &MadeFor,
    saved: Option<SavedPlan>,
    folder: &Path,
    on_progress: OnProgress,
) -> Result<Planned> {
    let file = folder.display().to_string();
    planning::check_resumed(run, executor, made, saved.as_ref(), &file)?;
    if let Some(moved_from) = planning::other_device(executor, made) {
        drop(saved);
        let planned = planning::plan(run, executor.target(), on_progress)?;
        return Ok(Planned { moved_from: Some(moved_from), ..planned });
    }
    let theirs = made.labels.get(THREADS).filter(|theirs| **theirs != run.threads.to_string());
    let is_same = theirs.is_none() && !run.config.is_overridden("memory", "budget");
    let own = saved.filter(|saved| is_same && !planning::is_of_other_replica(run, &saved.plan));
    let Some(saved) = own else {
        return planning::plan_again(run, executor, made.micro_batch, theirs.map(String::as_str));
    };
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

/// The folder of a run, made where it is a new one; none for whoever only helps to train it.
fn home(
    run: &RunResources,
    executor: &AnyExecutor,
    plan: &Plan,
    resumed: Option<&mut Resumed>,
    keeps: Keeps,
) -> Result<Option<RunDir>> {
    if let Some(Resumed { own, .. }) = resumed {
        return Ok(own.as_mut().and_then(|own| own.run_dir.take()));
    }
    if run.rank() > 0 || keeps == Keeps::Nothing {
        return Ok(None);
    }
    let labels = planning::labels(run, executor, plan.micro_batch)?;
    let folder = match &run.config.train.out {
        Some(folder) => folder.clone(),
        None => run_dir::free(&run.name)?,
    };
    let text = run_dir::run_file(run, sources(run)?)?;
    let run_dir = RunDir::create_again(&folder, plan, &labels)?;
    run_dir::describe(&folder, &text, sources(run)?)?;
    Ok(Some(run_dir))
}

/// Takes the memory. Of a run that goes on, the states are still to be set.
fn begin(
    run: RunResources,
    executor: AnyExecutor,
    plan: Plan,
    run_dir: Option<RunDir>,
    from: Option<&Checkpoint>,
    shared: Option<&Transient<AnyMemory>>,
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
        let (session, progress) = match from {
            None => (Session::start(engine?, run.seed)?, Progress::default()),
            Some(checkpoint) => (Session::at_checkpoint(engine, checkpoint)?, checkpoint.progress.clone()),
        };
        let data = data::datasets(sources(&run)?, &run, session.plan().micro_batch)?;
        let (first_step, others) = (session.steps(), Vec::new());
        let folder = run_dir.as_ref().map_or_else(PathBuf::new, |run_dir| run_dir.folder().to_path_buf());
        let options = fit_options(&run, run_dir, progress)?;
        let is_shared = shared.is_some();
        let first_folder = PathBuf::new();
        Ok(Training { run, session, data, options, others, folder, first_folder, plan_summary, first_step, is_shared })
    };
    crate::error::named(&label, is_one_of_several, training())
}

/// Whether nothing is left to do. Less than was done cannot be.
pub(super) fn check_length(run: &RunResources, checkpoint: &Checkpoint) -> Result<bool> {
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
