//! The loop. What is due follows from the step, the position in the data and what was saved with them, never from what
//! happened to be done before: so a run that is stopped anywhere and resumed does the rest as if nothing had been.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Instant;

use memfit_data::{Dataset, Loader, Position, SkippedSamples};
use memfit_exec::Executor;

use super::steps::Started;
use super::{Datasets, Event, FitOptions, Flow, Outcome, StopReason};
use crate::checkpoint::{Evaluation, Progress};
use crate::error::{BadValue, Result, TrainError};
use crate::evaluate::Evaluator;
use crate::history::{Failed, History};
use crate::metrics::Scores;
use crate::run_dir::CheckpointKind;
use crate::schedule::{Decay, Period, Span};
use crate::session::Session;

/// What replicas say to each other between steps, as bits of a word.
const STOP: u64 = 1;
const SAVE: u64 = 2;

pub(super) struct Fit<'a, E: Executor> {
    pub(super) session: &'a mut Session<E>,
    pub(super) options: &'a FitOptions,
    pub(super) observer: &'a mut dyn FnMut(&Event) -> Flow,
    pub(super) span: Span,
    pub(super) train: Loader,
    pub(super) test: Option<Test<'a>>,
    pub(super) progress: Progress,
    /// The observer wants an end.
    pub(super) stop: bool,
    /// Where others train with it: whether its own observer does, which all have to hear of first.
    asked: Option<&'a Cell<bool>>,
    /// Steps that were started and whose numbers nobody has seen, the oldest first.
    pub(super) started: VecDeque<Started>,
    pub(super) last_loss: f32,
    /// How many steps the session has skipped so far, and how many of them just now in a row.
    pub(super) skipped: Option<i32>,
    pub(super) skips: u32,
    pub(super) saved: LastSave,
    /// Whether the first replica writes checkpoints, for which it needs states that this one has.
    sends_states: bool,
    /// What the run keeps of its course, where it has a folder.
    history: Option<History>,
    /// The first thing of it that could not be written.
    not_written: Option<TrainError>,
}

/// The test set, opened when it is first needed.
pub(super) struct Test<'a> {
    data: &'a Dataset,
    evaluator: Evaluator,
    loader: Option<Loader>,
}

impl Test<'_> {
    /// Where the first number of an evaluation comes from that is not finite, and its field.
    fn first_not_finite(&mut self, epoch: u64) -> Option<(String, String)> {
        let loader = self.loader.as_mut()?;
        (0..self.data.len()? as u64).find_map(|element| loader.find_non_finite(Position { epoch, element }))
    }
}

/// The last checkpoint that was written.
pub(super) struct LastSave {
    /// None if it is not known to be of this run's present.
    step: Option<u32>,
    at: Instant,
    /// The end of an epoch wants one.
    pub(super) due: bool,
}

impl<'a, E: Executor> Fit<'a, E> {
    pub fn new(
        session: &'a mut Session<E>,
        data: &'a Datasets,
        options: &'a FitOptions,
        observer: &'a mut dyn FnMut(&Event) -> Flow,
        asked: Option<&'a Cell<bool>>,
    ) -> Result<Self> {
        options.schedule.check()?;
        let span = span(options, &data.train)?;
        let rank = session.plan().replica.rank;
        if options.run.is_some() && session.has_part_of_states() && rank > 0 {
            return Err(TrainError::PartOfStates { rank });
        }
        if data.test.is_none() && options.early_stop.is_some() {
            return Err(TrainError::NothingToWatch { monitor: options.monitor.clone() });
        }
        let test = match &data.test {
            Some(data) => {
                let evaluator = Evaluator::new(session, &options.heads, &options.feed.test_pool)?;
                evaluator.check(&options.monitor)?;
                Some(Test { data, evaluator, loader: None })
            }
            None => None,
        };
        // Steps before this run are none of its own.
        while session.look()? {}
        let progress = options.progress.clone();
        let start = Position { epoch: progress.epoch, element: progress.element };
        let train = Loader::new(&data.train, options.feed.loading(&options.feed.pool, session.seed(), start))?;
        let (skipped, saved) = (session.skipped_steps()?, LastSave { step: None, at: Instant::now(), due: false });
        let last_loss = 0.0;
        Ok(Fit {
            session,
            options,
            observer,
            span,
            train,
            test,
            progress,
            stop: false,
            asked,
            started: VecDeque::with_capacity(2),
            last_loss,
            skipped,
            skips: 0,
            saved,
            sends_states: false,
            history: None,
            not_written: None,
        })
    }

    pub fn run(mut self) -> Result<Outcome> {
        let first_saves = self.session.first_saves(self.options.run.is_some())?;
        self.sends_states = first_saves && self.options.run.is_none();
        self.save_at_start()?;
        self.open_history()?;
        let reason = loop {
            if let Some(reason) = self.end() {
                break reason;
            }
            if self.evaluation_is_due() {
                self.evaluate()?;
            } else if !self.step()? {
                self.end_epoch()?;
            }
            self.save_if_due()?;
        };
        self.see_all()?;
        let reason = self.end().unwrap_or(reason);
        let step = self.session.steps();
        if reason != StopReason::Interrupted && self.evaluated_at() != Some(step) {
            self.evaluate()?;
        }
        let unsaved = self.agree(self.is_unsaved())?;
        let reason = if self.stop { StopReason::Interrupted } else { reason };
        if unsaved {
            self.save(&[CheckpointKind::Last])?;
        }
        self.report(Event::Stopped(reason));
        self.flush_history()?;
        let (Progress { evaluation, best, .. }, saved) = (self.progress, self.saved.step);
        let left_out = ended(self.train, reason);
        let test = self.test.and_then(|test| test.loader);
        let test_left_out = test.map(|loader| ended(loader, reason)).unwrap_or_default();
        Ok(Outcome { reason, steps: step, evaluation, best, saved, left_out, test_left_out })
    }

    /// What all replicas do next: stop, if one of them is asked to; and save, if that is due for the one that has the folder, which
    /// alone knows what lies there and since when.
    fn agree(&mut self, save: bool) -> Result<bool> {
        let Some(asked) = self.asked else { return Ok(save) };
        let save = save && self.options.run.is_some();
        let said = self.session.agree((u64::from(asked.get()) * STOP) | (u64::from(save) * SAVE))?;
        self.stop |= said & STOP != 0;
        Ok(said & SAVE != 0)
    }

    pub(super) fn report(&mut self, event: Event) {
        self.report_after(self.session.steps(), event);
    }

    /// What happened after so many steps.
    pub(super) fn report_after(&mut self, steps: u32, event: Event) {
        if let Some(history) = &mut self.history
            && let Err(failed) = history.add(&event, steps, self.progress.epoch)
        {
            self.not_written.get_or_insert(not_written(failed));
        }
        self.stop |= (self.observer)(&event) == Flow::Stop;
    }

    /// After the first checkpoint is there, and the folder is known to be the run's.
    fn open_history(&mut self) -> Result<()> {
        let Some(run) = &self.options.run else { return Ok(()) };
        let plan = self.session.plan();
        let (batch, peak) = (plan.batch, plan.peak_bytes);
        let has_values = self.options.heads.iter().any(|head| head.loss.is_of_values());
        let history = History::open(run.folder(), has_values, self.session.steps(), &self.progress, batch, peak);
        self.history = Some(history.map_err(not_written)?);
        Ok(())
    }

    /// What a checkpoint has seen is written down before it.
    fn flush_history(&mut self) -> Result<()> {
        let flushed = self.history.as_mut().map_or(Ok(()), History::flush).map_err(not_written);
        self.not_written.take().map_or(flushed, Err)
    }

    fn end(&self) -> Option<StopReason> {
        let done = match self.options.length {
            Period::Steps(n) => self.session.steps() >= n,
            Period::Epochs(n) => self.progress.epoch >= u64::from(n),
        };
        let patience = self.options.early_stop.map(|e| e.patience);
        match (self.stop, done, patience) {
            (true, ..) => Some(StopReason::Interrupted),
            (_, true, _) => Some(StopReason::Done),
            (.., Some(patience)) if self.progress.stale >= patience.max(1) => Some(StopReason::NoBetter),
            (.., None | Some(_)) => None,
        }
    }

    // ---- evaluation -------------------------------------------------------------------------------------------------

    pub(super) fn evaluated_at(&self) -> Option<u32> {
        self.progress.evaluation.as_ref().map(|e| e.step)
    }

    fn evaluation_is_due(&self) -> bool {
        let step = self.session.steps();
        match self.options.evaluate {
            Period::Steps(n) if n > 0 && step > 0 && self.test.is_some() => {
                step.is_multiple_of(n) && self.evaluated_at() != Some(step)
            }
            Period::Steps(_) | Period::Epochs(_) => false,
        }
    }

    /// Nothing changes where there is no test set, or where it is stopped on the way.
    pub(super) fn evaluate(&mut self) -> Result<()> {
        self.see_all()?;
        let Some(test) = &mut self.test else { return Ok(()) };
        let (observer, stop) = (&mut *self.observer, &mut self.stop);
        // The pool may be the same: each gives back what it made ahead while the other works.
        if !self.train.pause_unless(&mut || stops_waiting(observer, stop)) {
            return Ok(());
        }
        let loader = match &mut test.loader {
            Some(loader) => loader,
            None => {
                let feed = &self.options.feed;
                let start = Position { epoch: self.progress.evaluations, element: 0 };
                let loading = feed.loading(&feed.test_pool, self.session.seed(), start);
                test.loader.insert(Loader::new(test.data, loading)?)
            }
        };
        let asked = self.asked;
        let scores = test.evaluator.run(self.session, loader, &mut |batches| {
            let flow = observer(&batches.map_or(Event::Waiting, |batches| Event::Evaluating { batches }));
            *stop |= flow == Flow::Stop;
            if asked.is_some_and(Cell::get) { Flow::Stop } else { flow }
        });
        loader.pause_unless(&mut || *stop || stops_waiting(observer, stop));
        match scores {
            Ok(Some(scores)) if !scores.loss.is_finite() => Err(self.test_diverged(scores.loss)),
            Ok(Some(scores)) => self.evaluated(scores),
            Ok(None) => {
                self.stop = true;
                Ok(())
            }
            Err(e @ (TrainError::Data(_) | TrainError::Label { .. } | TrainError::Replica { .. })) => {
                Err(self.saved_from(e))
            }
            Err(e) => Err(e),
        }
    }

    /// A test loss that is not a number comes of such data, or of weights that are lost.
    fn test_diverged(&mut self, loss: f64) -> TrainError {
        let step = self.session.steps();
        let epoch = self.progress.evaluations;
        let found = self.test.as_mut().and_then(|test| test.first_not_finite(epoch));
        // It may be in the part of another.
        let is_in_data = match self.session.agree(u64::from(found.is_some())) {
            Ok(found) => found != 0,
            Err(e) => return e,
        };
        if is_in_data {
            let place = found.map(|(place, field)| BadValue { field, place });
            let saved = self.last_good();
            return self.saved_from(TrainError::NotFinite { step, loss: loss as f32, place, saved });
        }
        let lr = self.options.schedule.rate(step.saturating_sub(1), self.span);
        let best = self.options.run.as_ref().map(|run| run.path(CheckpointKind::Best)).filter(|path| path.exists());
        TrainError::TestDiverged { step, loss, lr, saved: best.or_else(|| self.last_good()) }
    }

    /// What is wrong with the test set costs no training: it is saved, and evaluated when the run goes on.
    fn saved_from(&mut self, error: TrainError) -> TrainError {
        let step = self.session.steps();
        let saved = self.agree(self.is_unsaved()).and_then(|save| match save {
            true => self.save(&[CheckpointKind::Last]),
            false => Ok(()),
        });
        // Nobody leaves before it is saved: a launcher ends all when one does.
        if let Err(e) = saved.and_then(|()| self.agree(false)) {
            return e;
        }
        let error = self.told_by_another(error);
        match &self.options.run {
            Some(run) if self.saved.step == Some(step) => {
                TrainError::Test { source: Box::new(error), folder: run.folder().into(), step }
            }
            Some(_) | None => error,
        }
    }

    /// What another replica has met, it says when it leaves.
    fn told_by_another(&self, error: TrainError) -> TrainError {
        match &error {
            TrainError::Replica { .. } => self.session.agree(0).err().unwrap_or(error),
            _ => error,
        }
    }

    fn evaluated(&mut self, scores: Scores) -> Result<()> {
        let (monitor, step) = (&self.options.monitor, self.session.steps());
        // A metric that there is not was refused at the start.
        let value = scores.monitored(monitor).unwrap_or(f64::NAN);
        let evaluation = Evaluation { step, scores };
        self.progress.evaluation = Some(evaluation.clone());
        self.progress.evaluations += 1;
        let better = |old: Option<f64>, by: f64| {
            value.is_finite() && old.is_none_or(|old| monitor.metric.improves(value, old, by))
        };
        if better(self.progress.to_beat, self.options.early_stop.map_or(0.0, |e| e.min_delta)) {
            (self.progress.to_beat, self.progress.stale) = (Some(value), 0);
        } else {
            self.progress.stale += 1;
        }
        // What cannot be saved is not remembered as the best.
        let best = better(self.progress.best, 0.0) && self.last_loss.is_finite();
        if best {
            self.progress.best = Some(value);
        }
        self.report(Event::Evaluated(evaluation));
        if best { self.save(&[CheckpointKind::Best]) } else { Ok(()) }
    }

    // ---- checkpoints ------------------------------------------------------------------------------------------------

    /// A run can be resumed from its first moment; and a folder that cannot be written to is found now, not in an hour.
    fn save_at_start(&mut self) -> Result<()> {
        let is_new = self.options.run.as_ref().is_some_and(|run| !run.path(CheckpointKind::Last).exists());
        if self.agree(is_new)? { self.save(&[CheckpointKind::Last]) } else { Ok(()) }
    }

    fn is_unsaved(&self) -> bool {
        self.saved.step != Some(self.session.steps()) || self.saved.due
    }

    fn save_if_due(&mut self) -> Result<()> {
        let (save, step) = (&self.options.save, self.session.steps());
        let by_steps = || save.steps.is_some_and(|n| n > 0 && step.is_multiple_of(n));
        let by_time = || save.time.is_some_and(|time| self.saved.at.elapsed() >= time);
        let moved = self.saved.step != Some(step);
        let is_due = self.saved.due || (moved && (by_steps() || by_time()));
        // Written again where the epoch ends after it: so it is the same wherever a run was stopped.
        let is_kept = if save.steps.is_some() { by_steps() } else { self.saved.due };
        let keeps = self.options.run.as_ref().is_some_and(|run| run.kept() > 0);
        let which = [CheckpointKind::Step(step), CheckpointKind::Last];
        let which = if keeps && is_kept { &which[..] } else { &which[1..] };
        if self.agree(is_due)? { self.save(which) } else { Ok(()) }
    }

    /// Never after a loss that is not a number, for which every step is looked at before: then what was saved before remains.
    fn save(&mut self, which: &[CheckpointKind]) -> Result<()> {
        self.see_all()?;
        let options = self.options;
        if !self.last_loss.is_finite() {
            return Ok(());
        }
        let Some(run) = &options.run else {
            if self.sends_states {
                self.session.send_states(Path::new(STATES))?;
            }
            return Ok(());
        };
        self.flush_history()?;
        run.save(self.session, &self.progress, which)?;
        let written: Vec<(CheckpointKind, PathBuf)> = which.iter().map(|w| (*w, run.path(*w))).collect();
        let step = self.session.steps();
        if which.contains(&CheckpointKind::Last) {
            self.saved = LastSave { step: Some(step), at: Instant::now(), due: false };
        }
        for (which, path) in written {
            self.report(Event::Checkpoint { which, path, step });
        }
        Ok(())
    }
}

/// What is sent to whoever writes a checkpoint.
const STATES: &str = "the states of all replicas";

fn not_written((path, source): Failed) -> TrainError {
    TrainError::Save { path, source }
}

/// Whether the observer wants no more of a run whose next batch is not there.
pub(super) fn stops_waiting(observer: &mut dyn FnMut(&Event) -> Flow, stop: &mut bool) -> bool {
    *stop |= observer(&Event::Waiting) == Flow::Stop;
    *stop
}

/// Ends a loader, and gives what it left out. Whoever interrupts a run may do so because its data do not come.
fn ended(loader: Loader, reason: StopReason) -> SkippedSamples {
    let left_out = loader.skipped().clone();
    if reason == StopReason::Interrupted {
        loader.abandon();
    }
    left_out
}

/// How long the run is, as far as its schedule needs to know.
fn span(options: &FitOptions, train: &Dataset) -> Result<Span> {
    let schedule = &options.schedule;
    let by_epochs = |period: Period| matches!(period, Period::Epochs(n) if n > 0);
    let needed = by_epochs(schedule.warm_up)
        || match schedule.decay {
            Decay::Constant => false,
            Decay::Step { every, .. } => by_epochs(every),
            Decay::Cosine { .. } => by_epochs(options.length),
        };
    let epoch = match train.len() {
        Some(n) => u32::try_from(n).map_err(|_| TrainError::TooManySteps)?,
        None if needed => return Err(TrainError::UnknownEpoch),
        None => 0,
    };
    Ok(Span { steps: options.length.steps(epoch), epoch })
}
