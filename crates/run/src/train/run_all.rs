//! Trainings side by side, each on a thread of its own: on the device they take turns, but not in reading their data. One that
//! ends gives its memory back; one that fails is told of, and the others go on.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use memfit::ExecError;
use memfit::exec::Device;
use memfit::train::run_dir::{CheckpointKind, WEIGHTS};
use memfit::train::{Event, Flow, Metric, Outcome, Share, StopReason, Ticket, fit};

use super::Training;
use super::tensorboard::Log;
use crate::announce::announce;
use crate::error::{Result, RunError};
use crate::host_budget;
use crate::resources::{Purpose, RunResources};
use crate::run_dir;

/// Hears of trainings, each by its number, from several threads.
pub trait Observer: Sync {
    /// Something happened in a training, which may be asked to stop.
    fn on_event(&self, index: usize, event: &Event) -> Flow;

    /// A training came to its end, and its weights are written.
    fn on_finish(&self, finished: &Finished);

    fn on_failure(&self, run: &RunResources, error: &RunError);
}

/// A training that came to its end.
pub struct Finished<'a> {
    pub training: &'a Training,
    pub outcome: &'a Outcome,
    /// The score by which the best weights were found, where there is one: those weights are written.
    pub best: Option<(Metric, f64)>,
    /// The step of the weights that are written.
    pub weights_step: u32,
}

/// How a training ended.
pub enum End {
    Finished,
    /// Asked to stop, and saved up to a step.
    Interrupted {
        folder: PathBuf,
        saved: Option<u32>,
    },
    Failed {
        label: String,
        error: RunError,
    },
}

/// Trains all, and says how each ended.
pub fn run_all(trainings: Vec<Training>, observer: &dyn Observer) -> Vec<End> {
    let share = |t: &Training| Share {
        weight: t.run.config.train.share.map_or(1.0, f64::from),
        priority: t.run.config.train.priority.unwrap_or(0).try_into().unwrap_or(i64::MAX),
    };
    let tickets = Ticket::issue(&trainings.iter().map(share).collect::<Vec<_>>());
    let devices = devices(&trainings);
    let announced = Mutex::new(announce(devices.iter()));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (i, (training, ticket)) in trainings.into_iter().zip(tickets).enumerate() {
            let (announced, devices) = (&announced, &devices);
            // Whoever has no thread is told of by its run.
            let waiting = Arc::new(Mutex::new(Some(training)));
            let mine = waiting.clone();
            let run = move || {
                let mut training = taken(&mine)?;
                training.session.take_turns(ticket);
                let outcome = train(&mut training, &mut |event| observer.on_event(i, event));
                let end = conclude(training, outcome, observer);
                // What it held is free.
                *announced.lock().unwrap_or_else(PoisonError::into_inner) = announce(devices.iter());
                Some(end)
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, run);
            threads.push(thread.map_err(|source| {
                let training = taken(&waiting)?;
                let error = RunError::Exec(ExecError::Threads { threads: 1, source });
                observer.on_failure(&training.run, &error);
                Some(End::Failed { label: training.run.label, error })
            }));
        }
        let end = |thread: Result<ScopedJoinHandle<Option<End>>, Option<End>>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(failed) => failed,
        };
        threads.into_iter().filter_map(end).collect()
    })
}

/// How a training went, and whether TensorBoard could be told of it.
type Trained = (Outcome, Result<()>);

/// Trains to the end, and has TensorBoard told of it. Where that cannot be written, it stops at once and is saved.
fn train(training: &mut Training, observer: &mut dyn FnMut(&Event) -> Flow) -> Result<Trained> {
    let mut log = Log::open(training)?;
    let Training { session, data, options, .. } = training;
    let outcome = fit(session, data, options, &mut |event| {
        log.iter_mut().for_each(|log| log.on_event(event));
        let flow = observer(event);
        if log.as_ref().is_some_and(Log::has_failed) { Flow::Stop } else { flow }
    })?;
    Ok((outcome, log.map_or(Ok(()), Log::finish)))
}

/// The training that waits for a thread; once.
fn taken(waiting: &Mutex<Option<Training>>) -> Option<Training> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Each once.
fn devices(trainings: &[Training]) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for device in trainings.iter().flat_map(|t| [&t.run.device, &t.run.host]) {
        if !devices.iter().any(|d| d.name() == device.name()) {
            devices.push(device.clone());
        }
    }
    devices
}

fn conclude(mut training: Training, trained: Result<Trained>, observer: &dyn Observer) -> End {
    let end = trained.and_then(|(outcome, logged)| {
        let end = finish(&mut training, &outcome, observer)?;
        logged.map(|()| end)
    });
    match end {
        Ok(end) => end,
        Err(error) => {
            let error = host_budget::advise(error, &training.run.config, Purpose::Train, &training.run.placement());
            let error = if error.is_of_device() { with_checkpoint(error, &training.folder) } else { error };
            observer.on_failure(&training.run, &error);
            End::Failed { label: training.run.label.clone(), error }
        }
    }
}

/// With the checkpoint that a run can go on from, if it is whole.
fn with_checkpoint(error: RunError, folder: &Path) -> RunError {
    match memfit::train::run_dir::read(folder, CheckpointKind::Last) {
        Ok(saved) => {
            RunError::DeviceFailed { source: Box::new(error), folder: folder.into(), step: saved.checkpoint.step }
        }
        Err(_) => error,
    }
}

fn finish(training: &mut Training, outcome: &Outcome, observer: &dyn Observer) -> Result<End> {
    if outcome.reason == StopReason::Interrupted {
        return Ok(End::Interrupted { folder: training.folder.clone(), saved: outcome.saved });
    }
    let folder = &training.folder;
    let weights_step = run_dir::export(folder, &mut training.session, &folder.join(WEIGHTS))?;
    let best = outcome.best.map(|value| (training.options.monitor.metric, value));
    observer.on_finish(&Finished { training, outcome, best, weights_step });
    Ok(End::Finished)
}
