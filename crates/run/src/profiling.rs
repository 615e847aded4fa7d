//! A run, looked at: its plan as a profile, and a few steps of it measured. It trains nothing that stays and writes nothing.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memfit::calibrate;
use memfit::data::{DataError, Example, Lease, LoadOptions, Loader};
use memfit::exec::recorder::{KernelEvent, StepEvent};
use memfit::exec::{Engine, Farewell, Growth, Options, Recorder, ThreadWire, thread_wires};
use memfit::plan::Point;
use memfit::plan::save::SavedPlan;
use memfit::profile::{FORMAT, Labels, MachineLimits, Pipeline, Profile, StepFacts, add_measured, from_plan};
use memfit::synthetic::SyntheticBatch;
use memfit::train::run_dir::{self, CheckpointKind, PLAN};
use memfit::train::views;
use memfit::{AnyExecutor, ExecError, Plan, Session};

use crate::config::{RunConfig, RunFolder};
use crate::data;
use crate::error::{Result, RunError};
use crate::history;
use crate::planning::{self, MadeFor, Planned};
use crate::resident;
use crate::resources::RunResources;
use crate::together;
use crate::train::{check, check_lazy, check_weights, plan_run, plan_saved, skip_bad};

/// Steps that are not recorded: the first one touches the memory, and the others fill caches.
const WARM_UP: usize = 3;
/// So long a run is at least looked at where nobody says for how many steps.
const LONG_ENOUGH: Duration = Duration::from_millis(1500);
/// And for so many steps.
const STEPS: std::ops::RangeInclusive<usize> = 3..=200;
/// So many kernels are recorded at most, each thread's part counted by itself; but a whole step always.
const MOST_KERNEL_EVENTS: usize = 1 << 20;
/// So many steps are recorded at most.
pub const MOST_STEPS: usize = 1 << 16;
/// The largest profile that is read.
const LARGEST_PROFILE: u64 = 1 << 30;
/// In the folder of a profile.
pub const PROFILE: &str = "profile.json";

/// What profiling is at.
pub enum ProfileEvent<'a> {
    /// Looks for a plan.
    Planning(planning::Progress<'a>),
    /// Measures what the machine can do at most.
    Limits,
    /// They cannot be measured: there is no room for it, or something went wrong.
    NoLimits(Option<&'a calibrate::CalibrateError>),
    /// Runs steps.
    Step {
        /// So many were recorded.
        done: usize,
    },
}

type OnEvent<'a> = &'a mut dyn FnMut(ProfileEvent);

/// Plans a run as it would be trained, and measures so many steps of it: on its data, or where it has none on numbers that mean
/// nothing.
pub fn measure(mut run: RunResources, steps: Option<usize>, on_event: OnEvent) -> Result<(Profile, Planned)> {
    if let Some(sources) = &run.data {
        check(&run, sources)?;
        check_weights(&run, None)?;
    }
    let executor = together::executor(&run)?;
    check_lazy(&run, &executor)?;
    let before = limits(&executor, on_event);
    let planned = plan(&mut run, &executor, on_event)?;
    let mut profile = of_plan(&run, &planned)?;
    let mut others = Vec::new();
    for mut other in std::mem::take(&mut run.others) {
        let executor = together::executor(&other)?;
        let planned = plan(&mut other, &executor, on_event)?;
        others.push((other, executor, planned.plan));
    }
    among_replicas(&run, &executor, &planned.plan, others, |session, feed| {
        add_steps(&mut profile, &run, &executor, session, feed, steps, on_event)
    })?;
    // Whoever else computes at the time makes them look smaller than they are: the better ones are nearer to the truth.
    let after = before.and_then(|_| limits(&executor, on_event));
    profile.limits = before
        .into_iter()
        .chain(after)
        .reduce(|a, b| MachineLimits { gflops: a.gflops.max(b.gflops), gbytes: a.gbytes.max(b.gbytes) });
    if let Some(folder) = run.config.resumed_folder() {
        profile.curves = history::curves(folder)?;
    }
    Ok((profile, planned))
}

/// What the machine can do at most; none where that cannot be measured, which is told.
fn limits(executor: &AnyExecutor, on_event: OnEvent) -> Option<MachineLimits> {
    on_event(ProfileEvent::Limits);
    match calibrate::limits(|| Ok(executor.clone())) {
        Ok(Some([flops, bytes])) => Some(MachineLimits { gflops: flops * 1e-9, gbytes: bytes * 1e-9 }),
        Ok(None) => {
            on_event(ProfileEvent::NoLimits(None));
            None
        }
        Err(error) => {
            on_event(ProfileEvent::NoLimits(Some(&error)));
            None
        }
    }
}

/// The profile of a plan of a run, of which nothing runs.
pub fn of_plan(run: &RunResources, planned: &Planned) -> Result<Profile> {
    Ok(from_plan(&planned.plan, &labels(run, planned.frontier.clone())?))
}

/// The plan that a run would be trained with, or would go on with where it has a folder.
fn plan(run: &mut RunResources, executor: &AnyExecutor, on_event: OnEvent) -> Result<Planned> {
    let Some(RunFolder { path, checkpoint, .. }) = run.config.run_folder().cloned() else {
        return plan_run(run, executor, &mut |at| on_event(ProfileEvent::Planning(at)));
    };
    let saved = run_dir::read(&path, checkpoint.unwrap_or(CheckpointKind::Last))?.plan;
    let made = MadeFor::of(&saved);
    plan_saved(run, executor, &made, Some(saved), &path, &mut |at| on_event(ProfileEvent::Planning(at)))
}

fn labels(run: &RunResources, frontier: Vec<Point>) -> Result<Labels> {
    let sizes: Vec<String> = run.model.input()?.iter().map(usize::to_string).collect();
    Ok(Labels {
        model: run.name.clone(),
        input: sizes.join("x"),
        precision: run.training.precision.name().into(),
        optimizer: run.optimizer.clone(),
        budget: run.request.budget,
        frontier,
    })
}

/// Where batches come from.
enum Feed {
    Data(Box<Loader>),
    /// The memory of the batch is the pipeline's.
    Synthetic(SyntheticBatch, #[expect(dead_code, reason = "it is held")] Lease),
}

impl Feed {
    fn new(run: &RunResources, plan: &Plan) -> Result<Feed> {
        let Some(sources) = &run.data else {
            let lease = run.pool.reserve(SyntheticBatch::bytes(plan)).map_err(|e| DataError::PoolTooSmall {
                limit: run.pool.limit(),
                needed: e.used.saturating_add(e.wanted),
                what: "a batch of made-up numbers".into(),
            })?;
            return Ok(Feed::Synthetic(SyntheticBatch::new(plan, run.model.classes()), lease));
        };
        let data = data::datasets(sources, run, plan.micro_batch)?;
        let options = LoadOptions {
            threads: run.threads,
            seed: run.seed,
            bad: skip_bad(&run.config),
            ..LoadOptions::new(run.pool.clone())
        };
        Ok(Feed::Data(Box::new(Loader::new(&data.train, options)?)))
    }

    /// The next batch of the data, epoch after epoch; none where they mean nothing.
    fn next(&mut self) -> Result<Option<Example>> {
        let Feed::Data(loader) = self else { return Ok(None) };
        // An epoch has a batch, which was looked at before.
        let next = loader.next()?;
        Ok(if next.is_some() { next } else { loader.next()? })
    }

    /// A step on a batch that it gave; its loss.
    fn step(&self, session: &mut Session<AnyExecutor>, batch: Option<&Example>, run: &RunResources) -> Result<f32> {
        Ok(match (batch, self) {
            (Some(batch), _) => session.step(&views(batch), run.learning_rate)?,
            (None, Feed::Synthetic(batch, _)) => session.step(&batch.views(), run.learning_rate)?,
            (None, Feed::Data(_)) => return Err(RunError::NoData { model: run.name.clone() }),
        })
    }
}

/// Another replica of the process, with its plan.
type Other = (RunResources, AnyExecutor, Plan);

/// Makes the session of a run and has the other replicas of the process make steps with it, as long as `measure` does.
fn among_replicas(
    run: &RunResources,
    executor: &AnyExecutor,
    plan: &Plan,
    others: Vec<Other>,
    measure: impl FnOnce(&mut Session<AnyExecutor>, Feed) -> Result<()>,
) -> Result<()> {
    // Page by page, so that the pages which the system holds are those that were touched.
    let is_whole = run.config.memory.growth.as_deref() == Some("commit") || !executor.gives_pages();
    let growth = if is_whole { Growth::Commit } else { Growth::Lazy };
    let mut session = session(run, executor, plan, growth)?;
    let feed = Feed::new(run, plan)?;
    if others.is_empty() {
        return measure(&mut session, feed);
    }
    let mut wires = thread_wires(1 + others.len(), run.crew.stall).into_iter();
    wires.next().map_or(Ok(()), |wire| session.connect(Box::new(wire)))?;
    std::thread::scope(|scope| {
        // Whoever finds no thread has left: its wire is gone.
        let help = |(other, wire): (Other, ThreadWire)| {
            let rank = other.0.rank();
            (rank, std::thread::Builder::new().spawn_scoped(scope, move || help(&other, wire, growth)))
        };
        let threads: Vec<_> = others.into_iter().zip(wires).map(help).collect();
        let measured = measure(&mut session, feed);
        session.leave(Farewell { kind: 0, message: "all is measured".into() });
        let mut failed = None;
        for (rank, thread) in threads {
            let ended = match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(source) => Err(ExecError::Threads { threads: 1, source }.into()),
            };
            // All are waited for, and the first cause is told.
            let cause = ended.err().filter(|error| !error.is_of_wire());
            failed = failed.or(cause.map(|source| RunError::OfReplica { rank, source: Box::new(source) }));
        }
        failed.map_or(measured, Err)
    })
}

/// Makes steps until the others have gone.
fn help((run, executor, plan): &Other, wire: ThreadWire, growth: Growth) -> Result<()> {
    let mut session = session(run, executor, plan, growth)?;
    session.connect(Box::new(wire))?;
    let ended = Feed::new(run, plan).and_then(|mut feed| {
        loop {
            let batch = feed.next()?;
            feed.step(&mut session, batch.as_ref(), run)?;
        }
    });
    ended.inspect_err(|error| session.leave(Farewell { kind: 1, message: error.to_string() }))
}

fn session(run: &RunResources, executor: &AnyExecutor, plan: &Plan, growth: Growth) -> Result<Session<AnyExecutor>> {
    let options = Options { name: run.label.clone(), growth, poison: false };
    resident::trim_heap();
    let engine = Engine::new(executor.clone(), plan.clone(), options)?;
    Ok(Session::start(engine, run.seed)?)
}

fn add_steps(
    profile: &mut Profile,
    run: &RunResources,
    executor: &AnyExecutor,
    session: &mut Session<AnyExecutor>,
    mut feed: Feed,
    steps: Option<usize>,
    on_event: OnEvent,
) -> Result<()> {
    let most = steps.unwrap_or(*STEPS.end());
    let recorder = Arc::new(recorder(run, executor, session.plan(), profile.memory.kernels, most)?);
    let (mut facts, mut waits) = (Vec::new(), Waits::default());
    let mut begun = Instant::now();
    for n in 0..most.saturating_add(WARM_UP) {
        if n == WARM_UP {
            session.record(Some(recorder.clone()));
            waits = Waits::new(&feed);
            begun = Instant::now();
        }
        if n >= WARM_UP + *STEPS.start() && steps.is_none() && begun.elapsed() > LONG_ENOUGH {
            break;
        }
        let asked = Instant::now();
        let batch = feed.next()?;
        let waited = asked.elapsed();
        let loss = feed.step(session, batch.as_ref(), run)?;
        if n >= WARM_UP {
            facts.push(StepFacts {
                loss,
                waited_ms: waited.as_secs_f64() * 1e3,
                process_resident_bytes: resident::now(),
                pipeline_bytes: run.data.as_ref().map(|_| run.pool.used()),
            });
            on_event(ProfileEvent::Step { done: facts.len() });
        }
    }
    profile.pipeline = waits.since(&feed, run, &facts);
    add_measured(profile, session.plan(), &recorder.finish(), &facts);
    Ok(())
}

/// With room for so many steps, where the process has it beside arena and pipeline; else for one.
fn recorder(run: &RunResources, executor: &AnyExecutor, plan: &Plan, kernels: usize, steps: usize) -> Result<Recorder> {
    // A kernel has an event for each thread.
    let of_step = kernels.saturating_mul(run.threads);
    let (all, steps) = events_of(of_step, steps);
    let Some(process) = &run.process else { return Ok(Recorder::new(all, steps)) };
    let pipeline = run.pool.limit().saturating_sub(run.pool.used());
    let arena = if executor.gives_process_memory() { plan.device_bytes() } else { 0 };
    let needed = arena.saturating_add(pipeline);
    let bytes = (all * size_of::<KernelEvent>() + steps * size_of::<StepEvent>()) as u64;
    if process.check(needed.saturating_add(bytes), 0, &[run.threads]).is_ok() {
        return Ok(Recorder::new(all, steps));
    }
    process.check_beside(&[run], arena, 0)?;
    Ok(Recorder::new(of_step, steps.min(*STEPS.end())))
}

/// How many kernels and steps are recorded, of so many kernels a step and so many steps.
fn events_of(of_step: usize, steps: usize) -> (usize, usize) {
    let kernels = of_step.saturating_mul(steps).min(MOST_KERNEL_EVENTS.max(of_step));
    (kernels, steps.min(MOST_STEPS))
}

/// How long data waited for steps so far.
#[derive(Clone, Copy, Default)]
struct Waits {
    data: Duration,
}

impl Waits {
    fn new(feed: &Feed) -> Waits {
        match feed {
            Feed::Data(loader) => Waits { data: loader.idle() },
            Feed::Synthetic(..) => Waits::default(),
        }
    }

    /// The pipeline of the steps since then.
    fn since(self, feed: &Feed, run: &RunResources, steps: &[StepFacts]) -> Option<Pipeline> {
        let Feed::Data(loader) = feed else { return None };
        Some(Pipeline {
            limit_bytes: run.pool.limit(),
            peak_bytes: run.pool.high_water(),
            step_waited_ms: steps.iter().map(|s| s.waited_ms).sum(),
            data_waited_ms: Waits::new(feed).data.saturating_sub(self.data).as_secs_f64() * 1e3,
            threads: loader.threads(),
        })
    }
}

/// What somebody wants to look at or to compare.
pub struct Loaded {
    pub profile: Profile,
    /// Where it was made from one.
    pub plan: Option<Plan>,
}

/// What lies in a file or a folder: `profile.json`, a saved plan, the folder of a profile or of a run.
pub fn read(path: &Path) -> Result<Loaded> {
    if !path.is_dir() {
        return read_file(path);
    }
    let profile = path.join(PROFILE);
    if profile.exists() { read_file(&profile) } else { of_run_dir(path) }
}

fn read_file(path: &Path) -> Result<Loaded> {
    let bad = |problem: String| RunError::BadFile { path: path.into(), problem };
    let text = memfit_files::read_text(path, LARGEST_PROFILE).map_err(|e| bad(e.to_string()))?;
    // A plan has neither.
    if text.contains(&format!("\"{FORMAT}\"")) {
        let profile = Profile::from_json(&text).map_err(|e| bad(e.to_string()))?;
        return Ok(Loaded { profile, plan: None });
    }
    match memfit::plan::save::load(&text) {
        Ok(saved) => Ok(of_saved(saved, None)),
        Err(e) => Err(bad(format!("it is neither a profile nor a plan: {e}"))),
    }
}

/// What a run's folder says, without its data and on whatever machine it was trained.
pub fn of_run_dir(folder: &Path) -> Result<Loaded> {
    let config = RunConfig::resume(folder)?;
    let saved = planning::read(&folder.join(PLAN))?;
    let mut loaded = of_saved(saved, config.memory.budget);
    loaded.profile.curves = history::curves(folder)?;
    Ok(loaded)
}

fn of_saved(saved: SavedPlan, budget: Option<u64>) -> Loaded {
    let label = |name: &str| saved.labels.get(name).cloned().unwrap_or_default();
    let labels = Labels {
        model: label("model"),
        input: label("input"),
        precision: label("precision"),
        optimizer: label("optimizer"),
        budget,
        frontier: Vec::new(),
    };
    Loaded { profile: from_plan(&saved.plan, &labels), plan: Some(saved.plan) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_steps_as_anybody_asks_for_take_no_more_room_than_there_is() {
        assert_eq!(events_of(300, 20), (6000, 20));
        assert_eq!(events_of(300, usize::MAX), (MOST_KERNEL_EVENTS, MOST_STEPS));
        // A step in full is what a timeline is made of.
        assert_eq!(events_of(2 * MOST_KERNEL_EVENTS, 200), (2 * MOST_KERNEL_EVENTS, 200));
    }
}
