//! `memfit train`: plan, take the memory, train, judge; and leave a folder from which it can go on. Several runs share a
//! device: their steps take turns. One run is a set of one.

mod prepare;
mod tell;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use memfit::data::OnBad;
use memfit::exec::Reservation;
use memfit::nn::Model;
use memfit::nn::zoo::Task;
use memfit::train::run_dir::{RunDir, WEIGHTS};
use memfit::train::{
    Datasets, Decay, EarlyStop, Feed, FitOptions, Flow, Metric, Outcome, Period, Progress, SaveEvery, Schedule, Share,
    Ticket, TrainError, Why, fit,
};
use memfit::{CpuExecutor, Session};

use crate::failure::{Interrupted, Stopped, usage};
use crate::runs::{Resume, TrainRun, TrainRuns, named};
use crate::signals::Signals;
use memfit_run::announce::announce;
use memfit_run::data;
use memfit_run::data::same_data;
use memfit_run::run_dir;
use memfit_run::text::count;
use memfit_run::together;
use memfit_run::weights;
use prepare::Start;
use tell::{Best, Board, Told};
pub use tell::{scores, tell_left_out, words};

pub fn train(all: &mut TrainRuns) -> Result<()> {
    let signals = Signals::listen().context("signals cannot be listened to")?;
    let started = Instant::now();
    for run in &all.runs {
        if let Some(Resume { folder, .. }) = &run.resume {
            let changed = named(&run.run.label, same_data::check(folder, &run.opened))?;
            changed.into_iter().for_each(|set| tell::data_changed(&run.run, set));
        }
        named(&run.run.label, check(run))?;
    }
    let executor = CpuExecutor::new(together::threads(&all.neighbours())?)?;
    let starts = prepare::start(all, &executor)?;
    let hosts: Vec<Option<Reservation>> = all.runs.iter_mut().map(|run| run.place.host.take()).collect();
    let mut trainings = Vec::new();
    for ((run, start), host) in all.runs.iter().zip(starts).zip(hosts) {
        trainings.push(named(&run.run.label, Training::new(run, start, host))?);
    }
    finish(run(all, trainings, &signals, started))
}

/// A run that is ready to go.
struct Training<'a> {
    run: &'a TrainRun,
    session: Session<CpuExecutor>,
    data: Datasets,
    options: FitOptions,
    folder: PathBuf,
    /// The step at which this process begins.
    first: u32,
    /// Its memory, with others.
    is_shared: bool,
    /// What its data may take.
    _host: Option<Reservation>,
}

impl<'a> Training<'a> {
    fn new(run: &'a TrainRun, start: Start, host: Option<Reservation>) -> Result<Training<'a>> {
        let Start { session, run_dir, progress, is_shared } = start;
        let data = data::datasets(&run.opened, &run.run, &run.spec, session.plan().micro_batch)?;
        let (folder, first) = (run_dir.folder().to_path_buf(), session.steps());
        let options = options(run, run_dir, progress)?;
        Ok(Training { run, session, data, options, folder, first, is_shared, _host: host })
    }

    /// Of the whole run.
    fn steps(&self) -> u64 {
        length(self.run).steps(small(self.data.train.len().unwrap_or(0))).into()
    }
}

/// How a run ended.
enum End {
    Done,
    Stopped(Stopped),
    Failed { label: String, error: anyhow::Error },
}

/// Trains all, each on a thread of its own: on the device they take turns, but not in reading their data. One that ends gives
/// its memory back; one that fails is told, and the others go on.
fn run(all: &TrainRuns, trainings: Vec<Training>, signals: &Signals, started: Instant) -> Vec<End> {
    let share = |t: &Training| Share {
        weight: t.run.spec.train.share.map_or(1.0, f64::from),
        priority: t.run.spec.train.priority.unwrap_or(0).try_into().unwrap_or(i64::MAX),
    };
    let tickets = Ticket::issue(&trainings.iter().map(share).collect::<Vec<_>>());
    let board = Mutex::new(Board::new(&trainings));
    let groups = together::groups(&all.neighbours());
    let devices = || groups.iter().map(|g| &all.runs[g[0]].place.device);
    let announced = Mutex::new(announce(devices()));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (i, (mut training, ticket)) in trainings.into_iter().zip(tickets).enumerate() {
            let (board, announced, devices) = (&board, &announced, &devices);
            threads.push(scope.spawn(move || {
                let Training { session, data, options, .. } = &mut training;
                session.take_turns(ticket);
                let outcome = fit(session, data, options, &mut |event| {
                    locked(board).hear(i, event);
                    if signals.asked_to_stop() { Flow::Stop } else { Flow::Continue }
                });
                let end = conclude(training, outcome, board, started);
                // What it held is free.
                *locked(announced) = announce(devices());
                end
            }));
        }
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes down and tells how a run ended.
fn conclude(training: Training, outcome: Result<Outcome, TrainError>, board: &Mutex<Board>, started: Instant) -> End {
    let Training { run, mut session, options, folder, first, is_shared, .. } = training;
    let done = outcome.map_err(anyhow::Error::from).and_then(|outcome| {
        if outcome.why == Why::Interrupted {
            return Ok(End::Stopped(Stopped { folder, saved: outcome.saved }));
        }
        let step = run_dir::export(&folder, &mut session, &folder.join(WEIGHTS))?;
        let best = outcome.best.map(|value| Best { metric: options.monitor.metric, value, step });
        let (folder, plan, peak_host) = (&folder, session.plan(), run.place.pool.high_water());
        locked(board).end(&Told { run, folder, outcome: &outcome, first, best, plan, peak_host, is_shared, started });
        Ok(End::Done)
    });
    done.unwrap_or_else(|error| {
        locked(board).fail(run, &error);
        End::Failed { label: run.place.label.clone(), error }
    })
}

/// What is told of all at the end: what failed, or how to go on with what was stopped.
fn finish(ends: Vec<End>) -> Result<()> {
    let count = ends.len();
    let (mut stopped, mut failed) = (Vec::new(), Vec::new());
    for end in ends {
        match end {
            End::Done => {}
            End::Stopped(run) => stopped.push(run),
            End::Failed { label, error } => failed.push((label, error)),
        }
    }
    let labels: Vec<String> = failed.iter().map(|(label, _)| label.clone()).collect();
    let interrupted = (!stopped.is_empty()).then_some(Interrupted { runs: stopped });
    match (failed.into_iter().next(), interrupted) {
        (None, None) => Ok(()),
        (None, Some(interrupted)) => Err(interrupted.into()),
        (Some((_, error)), _) if count == 1 => Err(error),
        (Some((_, error)), interrupted) => {
            let others = interrupted.map_or(String::new(), |i| format!("; the others were {i}"));
            Err(error.context(format!("{} of {count} runs failed ({}){others}", labels.len(), labels.join(", "))))
        }
    }
}

fn options(run: &TrainRun, run_dir: RunDir, progress: Progress) -> Result<FitOptions> {
    let t = &run.spec.train;
    Ok(FitOptions {
        length: length(run),
        schedule: schedule(run),
        heads: run.run.model.heads()?,
        evaluate: Period::Epochs(1),
        monitor: metric(run)?.into(),
        early_stop: t.patience.map(|n| EarlyStop { patience: small(n), min_delta: 0.0 }),
        run: Some(run_dir),
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
        opened.facts.classes.filter(|n| run.run.model.task() == Task::Classes && *n > run.run.model.classes())
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
    if run.spec.data.skip_bad != Some(true) && run.run.model.task() == Task::Classes {
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

fn metric(run: &TrainRun) -> Result<Metric> {
    let usual = match run.run.model.task() {
        Task::Classes => Metric::Accuracy,
        Task::Tokens => Metric::Loss,
        Task::Masks => Metric::MeanIou,
    };
    let Some(said) = &run.spec.train.monitor else { return Ok(usual) };
    Metric::ALL.into_iter().find(|m| m.name() == said).ok_or_else(|| {
        let known: Vec<&str> = Metric::ALL.iter().map(|m| m.name()).collect();
        usage(format!("train.monitor \"{said}\" is not known; there are {}", known.join(", ")))
    })
}
