//! `memfit train`: plan, take the memory, train, judge; and leave a folder from which it can go on. Several runs share a
//! device: their steps take turns. One run is a set of one.

mod prepare;
mod tell;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use memfit::CpuExecutor;
use memfit::data::OnBad;
use memfit::nn::zoo::Task as ModelTask;
use memfit::train::run_dir::{RunDir, WEIGHTS};
use memfit::train::{
    Datasets, Decay, EarlyStop, Feed, FitOptions, Flow, Metric, Outcome, Period, Progress, SaveEvery, Schedule, Seat,
    Share, Task, TrainError, Why, fit,
};

use crate::announce::announce;
use crate::data;
use crate::failure::{Interrupted, Stopped, usage};
use crate::run::{Resume, Run, TrainRun, TrainRuns};
use crate::run_dir;
use crate::same_data;
use crate::say::count;
use crate::signals::Signals;
use crate::together;
use crate::weights;
use prepare::Start;
use tell::{Best, Board, End};
pub use tell::{scores, tell_left_out, words};

pub fn train(all: &mut TrainRuns) -> Result<()> {
    let signals = Signals::listen().context("signals cannot be listened to")?;
    let started = Instant::now();
    for run in &all.runs {
        if let Some(Resume { folder, .. }) = &run.resume {
            same_data::check(folder, &run.opened, run.run.json)?;
        }
        check(run)?;
    }
    let executor = CpuExecutor::new(together::threads(&all.neighbours())?)?;
    let starts = prepare::start(all, &executor)?;
    let groups = together::groups(&all.neighbours());
    let _announced = announce(groups.iter().map(|g| &all.runs[g[0]].place.device));
    let mut trainings =
        all.runs.iter().zip(starts).map(|(run, s)| Training::new(run, s)).collect::<Result<Vec<_>>>()?;
    let outcomes = run(&mut trainings, &signals);
    finish(trainings, outcomes, started)
}

/// A run that is ready to go.
struct Training<'a> {
    run: &'a TrainRun,
    start: Start,
    data: Datasets,
    options: FitOptions,
    /// The step at which this process begins.
    first: u32,
}

impl<'a> Training<'a> {
    fn new(run: &'a TrainRun, mut start: Start) -> Result<Training<'a>> {
        let data = data::datasets(&run.opened, &run.run, &run.spec, start.session.plan().micro_batch)?;
        let options = options(run, start.run_dir.take(), std::mem::take(&mut start.progress))?;
        let first = start.session.steps();
        Ok(Training { run, start, data, options, first })
    }

    /// Of the whole run.
    fn steps(&self) -> u64 {
        length(self.run).steps(small(self.data.train.len().unwrap_or(0))).into()
    }
}

/// Trains all, each on a thread of its own: on the device they take turns, but not in reading their data. If one fails, the
/// others stop where they can go on.
fn run(trainings: &mut [Training], signals: &Signals) -> Vec<Result<Outcome, TrainError>> {
    let share = |t: &Training| Share {
        weight: t.run.spec.train.share.map_or(1.0, f64::from),
        priority: t.run.spec.train.priority.unwrap_or(0).try_into().unwrap_or(i64::MAX),
    };
    let seats = Seat::table(&trainings.iter().map(share).collect::<Vec<_>>());
    let board = Mutex::new(Board::new(trainings));
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (i, (training, seat)) in trainings.iter_mut().zip(seats).enumerate() {
            let (board, failed) = (&board, &failed);
            threads.push(scope.spawn(move || {
                let Training { start, data, options, .. } = training;
                start.session.take_turns(seat);
                let outcome = fit(&mut start.session, data, options, &mut |event| {
                    board.lock().unwrap_or_else(PoisonError::into_inner).hear(i, event);
                    let stop = signals.asked_to_stop() || failed.load(Ordering::Relaxed);
                    if stop { Flow::Stop } else { Flow::Continue }
                });
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            }));
        }
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Tells how each ended, and what went wrong if something did.
fn finish(trainings: Vec<Training>, outcomes: Vec<Result<Outcome, TrainError>>, started: Instant) -> Result<()> {
    let several = trainings.len() > 1;
    let (mut stopped, mut wrong) = (Vec::new(), None);
    for (mut training, outcome) in trainings.into_iter().zip(outcomes) {
        let folder = training.start.folder.clone();
        match outcome {
            Err(e) => wrong = wrong.or(Some(anyhow::Error::from(e))),
            Ok(outcome) if outcome.why == Why::Interrupted => stopped.push(Stopped { folder, saved: outcome.saved }),
            Ok(outcome) => {
                let session = &mut training.start.session;
                let step = run_dir::export(&folder, session, &folder.join(WEIGHTS))?;
                let best = outcome.best.map(|value| Best { metric: training.options.metric, value, step });
                let (run, first) = (training.run, training.first);
                let label = several.then_some(run.place.label.as_str());
                let (arena, peak_host) = (session.plan().arena_bytes(), run.place.pool.high_water());
                End { run, label, folder: &folder, outcome: &outcome, first, best, arena, peak_host }.tell(started);
            }
        }
    }
    match (wrong, stopped.is_empty()) {
        (Some(error), _) => Err(error),
        (None, false) => Err(Interrupted { runs: stopped }.into()),
        (None, true) => Ok(()),
    }
}

fn options(run: &TrainRun, run_dir: Option<RunDir>, progress: Progress) -> Result<FitOptions> {
    let t = &run.spec.train;
    Ok(FitOptions {
        length: length(run),
        schedule: schedule(run),
        task: task(&run.run),
        evaluate: Period::Epochs(1),
        metric: metric(run)?,
        early_stop: t.patience.map(|n| EarlyStop { patience: small(n), min_delta: 0.0 }),
        run: run_dir,
        save: SaveEvery { epoch: true, steps: t.save_every.map(small), time: None },
        progress,
        feed: Feed {
            pool: run.place.pool.clone(),
            test_pool: run.place.pool.clone(),
            threads: run.run.threads,
            bad: if run.spec.data.skip_bad == Some(true) { OnBad::Skip } else { OnBad::Fail },
        },
    })
}

/// More than anybody counts to is as good as the most.
fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What would only come out after the memory is taken, or after the training.
fn check(run: &TrainRun) -> Result<()> {
    let opened = &run.opened;
    let (batch, samples) = (run.run.request.batch, opened.train.len());
    if batch > samples {
        return Err(usage(format!(
            "--batch {batch} is larger than the training set, which has {}",
            count(samples, "sample")
        )));
    }
    if let Some(classes) =
        opened.facts.classes.filter(|n| run.run.model.task() == ModelTask::Classes && *n > run.run.model.classes())
    {
        let has = run.run.model.classes();
        return Err(usage(format!(
            "the data have {}, but the model is to have {has}; leave out --classes",
            count(classes, "class")
        )));
    }
    if let Some(path) = run.spec.model.weights.as_ref().filter(|_| run.resume.is_none()) {
        weights::check(path, &run.run)?;
    }
    if run.spec.data.skip_bad != Some(true) && run.run.model.task() == ModelTask::Classes {
        check_test_labels(run)?;
    }
    // It describes, and does nothing yet.
    data::datasets(opened, &run.run, &run.spec, run.run.request.batch)?;
    metric(run).map(|_| ())
}

/// A class that the model does not have would only show when the first epoch is over.
fn check_test_labels(run: &TrainRun) -> Result<()> {
    // What was held out of the training set was counted with it.
    let counted = run.spec.data.test.is_none() && run.opened.facts.classes.is_some();
    match run.opened.test.as_ref().filter(|_| !counted) {
        Some(test) => Ok(test.check_classes(run.run.model.classes(), &run.place.pool)?),
        None => Ok(()),
    }
}

fn length(run: &TrainRun) -> Period {
    match (run.spec.train.steps, run.spec.train.epochs) {
        (Some(steps), _) => Period::Steps(small(steps)),
        (None, epochs) => Period::Epochs(small(epochs.unwrap_or(EPOCHS))),
    }
}

/// Times through the data, where nothing was said.
const EPOCHS: usize = 20;

fn schedule(run: &TrainRun) -> Schedule {
    let t = &run.spec.train;
    let peak = run.run.learning_rate;
    let decay = match t.schedule.as_deref() {
        Some("cosine") => Decay::Cosine { floor: peak * t.decay.unwrap_or(0.0) },
        Some("step") => {
            Decay::Step { every: Period::Epochs(small(t.decay_every.unwrap_or(10))), factor: t.decay.unwrap_or(0.1) }
        }
        _ => Decay::Constant,
    };
    Schedule { peak, warm_up: Period::Steps(small(t.warm_up.unwrap_or(0))), decay }
}

pub fn task(run: &Run) -> Task {
    match run.model.task() {
        ModelTask::Classes | ModelTask::Tokens => Task::Classes,
        ModelTask::Masks => Task::Masks,
    }
}

fn metric(run: &TrainRun) -> Result<Metric> {
    let usual = match run.run.model.task() {
        ModelTask::Classes => Metric::Accuracy,
        ModelTask::Tokens => Metric::Loss,
        ModelTask::Masks => Metric::MeanIou,
    };
    let Some(said) = &run.spec.train.monitor else { return Ok(usual) };
    Metric::ALL.into_iter().find(|m| m.name() == said).ok_or_else(|| {
        let known: Vec<&str> = Metric::ALL.iter().map(|m| m.name()).collect();
        usage(format!("train.monitor \"{said}\" is not known; there are {}", known.join(", ")))
    })
}
