//! Trainings side by side, each on a thread of its own: on the device they take turns, but not in reading their data. One that
//! ends gives its memory back; one that fails is told of, and the others go on.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use memfit::ExecError;
use memfit::exec::{Device, Farewell, thread_wires};
use memfit::train::run_dir::{CheckpointKind, WEIGHTS};
use memfit::train::{Event, Flow, Metric, Outcome, Share, StopReason, Ticket, TrainError, fit};

use super::tensorboard::Log;
use super::{OtherReplica, Training};
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

    /// What a replica that fails tells the others, so that all end alike.
    fn farewell(&self, error: &RunError) -> Farewell {
        Farewell { kind: 1, message: error.to_string() }
    }
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
pub fn run_all(mut trainings: Vec<Training>, observer: &dyn Observer) -> Vec<End> {
    share_turns(&mut trainings);
    let devices = devices(&trainings);
    let announced = Mutex::new(announce(devices.iter()));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (i, training) in trainings.into_iter().enumerate() {
            let (announced, devices) = (&announced, &devices);
            // Whoever has no thread is told of by its run.
            let waiting = Arc::new(Mutex::new(Some(training)));
            let mine = waiting.clone();
            let run = move || {
                let mut training = taken(&mine)?;
                let outcome = train(&mut training, i, observer);
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

/// Has trainings take turns on their devices: of replicas, all of a training at a time.
fn share_turns(trainings: &mut [Training]) {
    let share = |t: &Training| Share {
        weight: t.run.config.train.share.map_or(1.0, f64::from),
        priority: t.run.config.train.priority.unwrap_or(0).try_into().unwrap_or(i64::MAX),
    };
    let tickets = Ticket::issue(&trainings.iter().map(share).collect::<Vec<_>>());
    let is_alone = trainings.len() == 1;
    // Of each replica in this process.
    let devices: Vec<Arc<Mutex<()>>> =
        trainings.iter().take(1).flat_map(|t| (0..t.run.crew.here).map(|_| Arc::default())).collect();
    for (training, ticket) in trainings.iter_mut().zip(tickets) {
        if training.run.crew.size == 1 {
            training.session.take_turns(ticket);
        } else if !is_alone {
            let ticket = Some(ticket).filter(|_| training.is_first());
            training.session.take_turns_together(ticket, devices[0].clone());
            for (other, device) in training.others.iter_mut().zip(&devices[1..]) {
                other.session.take_turns_together(None, device.clone());
            }
        }
    }
}

/// How a training went, and whether TensorBoard could be told of it.
type Trained = (Outcome, Result<()>);

/// Trains to the end, with all replicas that this process has of it.
fn train(training: &mut Training, index: usize, observer: &dyn Observer) -> Result<Trained> {
    let first = |training: &mut Training| train_first(training, index, observer);
    among_replicas(training, first, &|other| train_other(other, observer))
}

/// Has the other replicas that this process has of a training do what they do beside what the first one does.
pub(super) fn among_replicas<T>(
    training: &mut Training,
    first: impl FnOnce(&mut Training) -> Result<T>,
    other: &(dyn Fn(&mut OtherReplica) -> Result<()> + Sync),
) -> Result<T> {
    if training.others.is_empty() {
        return first(training);
    }
    let mut others = std::mem::take(&mut training.others);
    let mut wires = thread_wires(1 + others.len(), training.run.crew.stall).into_iter();
    let connected = wires.next().map_or(Ok(()), |wire| training.session.connect(Box::new(wire)));
    let done = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (replica, wire) in others.iter_mut().zip(wires) {
            let rank = replica.run.rank();
            let work = move || {
                replica.session.connect(Box::new(wire))?;
                other(replica)
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, work);
            threads.push((rank, thread));
        }
        let first = connected.map_err(RunError::from).and_then(|()| first(training));
        let mut failed = None;
        for (rank, thread) in threads {
            let ended = match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(source) => Err(ExecError::Threads { threads: 1, source }.into()),
            };
            // The first cause, and not what others saw of it.
            if let Err(source) = ended
                && !source.is_of_wire()
                && failed.is_none()
            {
                failed = Some(RunError::OfReplica { rank, source: Box::new(source) });
            }
        }
        match (first, failed) {
            (Err(own), Some(failed)) if own.is_of_wire() => Err(saved_as(own, failed)),
            (Err(own), _) => Err(own),
            (Ok(_), Some(failed)) => Err(failed),
            (done, None) => done,
        }
    });
    training.others = others;
    done
}

/// What failed in another replica, with what the first one says of the checkpoint that it wrote for that.
fn saved_as(own: RunError, failed: RunError) -> RunError {
    let RunError::Train(TrainError::Test { folder, step, .. }) = own else { return failed };
    match failed {
        RunError::OfReplica { rank, source } => match *source {
            RunError::Train(source) => {
                let source = RunError::Train(TrainError::Test { source: Box::new(source), folder, step });
                RunError::OfReplica { rank, source: Box::new(source) }
            }
            source => RunError::OfReplica { rank, source: Box::new(source) },
        },
        other => other,
    }
}

/// Trains a replica that tells of nothing. The others are told if it cannot go on.
fn train_other(other: &mut OtherReplica, observer: &dyn Observer) -> Result<()> {
    let OtherReplica { session, data, options, .. } = other;
    let ended = fit(session, data, options, &mut |_| Flow::Continue).map(drop).map_err(RunError::from);
    ended.inspect_err(|error| session.leave(observer.farewell(error)))
}

/// Trains to the end, and has TensorBoard told of it. Where that cannot be written, it stops at once and is saved.
fn train_first(training: &mut Training, index: usize, observer: &dyn Observer) -> Result<Trained> {
    let log = if training.is_first() { Log::open(training) } else { Ok(None) };
    let mut log = log.inspect_err(|error| training.session.leave(observer.farewell(error)))?;
    let Training { session, data, options, .. } = training;
    let outcome = fit(session, data, options, &mut |event| {
        log.iter_mut().for_each(|log| log.on_event(event));
        let flow = observer.on_event(index, event);
        if log.as_ref().is_some_and(Log::has_failed) { Flow::Stop } else { flow }
    });
    let outcome = outcome.map_err(RunError::from).inspect_err(|error| session.leave(observer.farewell(error)))?;
    Ok((outcome, log.map_or(Ok(()), Log::finish)))
}

/// The training that waits for a thread; once.
fn taken(waiting: &Mutex<Option<Training>>) -> Option<Training> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Each once.
fn devices(trainings: &[Training]) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    let runs = trainings.iter().flat_map(|t| std::iter::once(&t.run).chain(t.others.iter().map(|other| &other.run)));
    for device in runs.flat_map(|run| [&run.device, &run.host]) {
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
            let (config, here) = (&training.run.config, training.run.crew.here);
            let error = host_budget::advise(error, config, Purpose::Train, &training.run.placement(), here);
            let has_checkpoint = error.is_of_device() || error.is_lost_replica();
            let error = if has_checkpoint { with_checkpoint(error, &training) } else { error };
            observer.on_failure(&training.run, &error);
            End::Failed { label: training.run.label.clone(), error }
        }
    }
}

/// With the checkpoint that a run can go on from, if it is whole; or with the folder that has it, where that cannot be looked at.
fn with_checkpoint(error: RunError, training: &Training) -> RunError {
    let folder = if training.is_first() { &training.folder } else { &training.first_folder };
    if folder.as_os_str().is_empty() {
        return error;
    }
    if !training.run.crew.neighbours.have_first {
        return RunError::FolderElsewhere { source: Box::new(error), folder: folder.clone() };
    }
    match memfit::train::run_dir::read(folder, CheckpointKind::Last) {
        Ok(saved) => {
            RunError::DeviceFailed { source: Box::new(error), folder: folder.clone(), step: saved.checkpoint.step }
        }
        Err(_) => error,
    }
}

fn finish(training: &mut Training, outcome: &Outcome, observer: &dyn Observer) -> Result<End> {
    if outcome.reason == StopReason::Interrupted {
        return Ok(End::Interrupted { folder: training.folder.clone(), saved: outcome.saved });
    }
    if !training.is_first() {
        return Ok(End::Finished);
    }
    let folder = &training.folder;
    let weights_step = run_dir::export(folder, &mut training.session, &folder.join(WEIGHTS))?;
    let best = outcome.best.map(|value| (training.options.monitor.metric, value));
    observer.on_finish(&Finished { training, outcome, best, weights_step });
    Ok(End::Finished)
}
