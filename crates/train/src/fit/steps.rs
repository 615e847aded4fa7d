//! Steps of a run: each is started, and told of when its numbers are there.
//!
//! On a device that works on its own that is when the next step has been started, or before anything is evaluated, saved or
//! ended: so nobody waits for a number, and none is missed. What is told, written down and saved is the same as where every
//! step is over before the next begins, with one exception: a run that is stopped, or whose loss is not a number, has made one
//! step more by the time that this is seen. A loss that is not a number is seen before the next checkpoint is written.

use std::path::PathBuf;
use std::time::Instant;

use memfit_data::{Example, Next, Position};
use memfit_exec::{Executor, TensorView};

use super::run::{Fit, stops_waiting};
use super::{Event, Period};
use crate::checkpoint::Progress;
use crate::error::{BadValue, Result, TrainError};
use crate::run_dir::CheckpointKind;
use crate::session::views;

/// Skipped steps in a row. Each halves the loss's scale, and from the largest scale to the smallest it is 48 times:
/// after that no scale helps.
const MOST_SKIPS: u32 = 48;

/// A step, and what is told of it when its numbers are there.
pub(super) struct Started {
    step: u32,
    epoch: u64,
    lr: f32,
    seconds: f64,
    waited: f64,
    turn: f64,
    /// Of its batch; none where there is nothing before `next`.
    element: Option<Position>,
    /// Of the batch behind it.
    next: Position,
}

impl<E: Executor> Fit<'_, E> {
    /// One step, or none if it was stopped before its data came; false if the epoch is over.
    pub(super) fn step(&mut self) -> Result<bool> {
        match self.start_step() {
            Err(e) => {
                // Of those before it everything is told.
                self.see_all()?;
                Err(e)
            }
            more => more,
        }
    }

    fn start_step(&mut self) -> Result<bool> {
        let start = Instant::now();
        let (observer, stop) = (&mut *self.observer, &mut self.stop);
        let example = match self.train.next_unless(&mut || stops_waiting(observer, stop))? {
            Next::Element(example) => example,
            Next::End => return Ok(false),
            Next::Stopped => return Ok(true),
        };
        let waited = start.elapsed().as_secs_f64();
        let (step, epoch) = (self.session.steps(), self.progress.epoch);
        let lr = self.options.schedule.rate(step, self.span);
        let batch = views(&example);
        check_batch(&batch, self.session.plan().rows().len())?;
        let start = Instant::now();
        self.session.start_step(&batch, lr)?;
        let turn = self.session.waited();
        let seconds = start.elapsed().saturating_sub(turn).as_secs_f64();
        drop(batch);
        let next = self.train.position();
        let element = next.element.checked_sub(1).map(|element| Position { element, ..next });
        let turn = turn.as_secs_f64();
        self.started.push_back(Started { step, epoch, lr, seconds, waited, turn, element, next });
        let lag = self.session.lag();
        self.see(lag, Some(example).filter(|_| lag == 0))?;
        Ok(true)
    }

    /// Looks at every step that was started.
    pub(super) fn see_all(&mut self) -> Result<()> {
        self.see(0, None)
    }

    /// Looks at all but so many of the steps that were started, and tells of them. The batch is that of the last one, where it
    /// is still there.
    fn see(&mut self, unseen: usize, mut batch: Option<Example>) -> Result<()> {
        while self.started.len() > unseen
            && let Some(started) = self.started.pop_front()
        {
            let batch = if self.started.is_empty() { batch.take() } else { None };
            if let Err(e) = self.tell(&started, batch) {
                // What comes behind it is of no use.
                self.started.clear();
                return Err(e);
            }
        }
        Ok(())
    }

    fn tell(&mut self, started: &Started, batch: Option<Example>) -> Result<()> {
        self.session.look()?;
        let loss = self.session.output("loss")?;
        let skipped = self.guard(started, loss, batch.as_ref())?;
        drop(batch);
        (self.progress.epoch, self.progress.element) = (started.next.epoch, started.next.element);
        if loss.is_finite() {
            self.progress.loss_sum += f64::from(loss);
            self.progress.loss_count += 1;
        }
        self.last_loss = loss;
        let &Started { step, epoch, lr, seconds, waited, turn, .. } = started;
        self.report_after(step + 1, Event::Step { step, epoch, loss, lr, seconds, waited, turn, skipped });
        Ok(())
    }

    /// Whether the program skipped the step by itself. A loss that is not a number and was not skipped is the end.
    fn guard(&mut self, started: &Started, loss: f32, batch: Option<&Example>) -> Result<bool> {
        let &Started { step, lr, element, .. } = started;
        let count = self.session.skips_seen();
        let skipped = count != self.skipped;
        self.skipped = count;
        self.skips = if skipped { self.skips + 1 } else { 0 };
        let lost = self.skips > MOST_SKIPS || (!loss.is_finite() && !skipped);
        if lost && self.is_bad(element, batch) {
            let place = self.not_finite(element).map(|(place, field)| BadValue { field, place });
            return Err(TrainError::NotFinite { step, loss, place, saved: self.last_good() });
        }
        if self.skips > MOST_SKIPS {
            return Err(TrainError::Overflow { step, skips: self.skips, lr, saved: self.last_good() });
        }
        if lost {
            return Err(TrainError::Diverged { step, loss, lr, saved: self.last_good() });
        }
        Ok(skipped)
    }

    /// Whether a batch has numbers that are not finite. If it is gone, it is made once more.
    fn is_bad(&mut self, element: Option<Position>, batch: Option<&Example>) -> bool {
        match batch {
            Some(batch) => batch.fields.iter().any(|(_, tensor)| !tensor.is_finite()),
            None => self.not_finite(element).is_some(),
        }
    }

    /// Where in a batch.
    fn not_finite(&mut self, element: Option<Position>) -> Option<(String, String)> {
        self.train.find_non_finite(element?)
    }

    /// The last checkpoint: none is written after a loss that is not a number.
    pub(super) fn last_good(&self) -> Option<PathBuf> {
        self.options.run.as_ref().map(|run| run.path(CheckpointKind::Last)).filter(|path| path.exists())
    }

    pub(super) fn end_epoch(&mut self) -> Result<()> {
        self.see_all()?;
        let epoch = self.progress.epoch;
        if self.progress.element == 0 {
            return Err(TrainError::EmptyEpoch { batch: self.session.plan().batch });
        }
        let due = match self.options.evaluate {
            Period::Epochs(n) => n > 0 && (epoch + 1).is_multiple_of(u64::from(n)),
            Period::Steps(_) => false,
        };
        let step = Some(self.session.steps());
        if due && self.test.is_some() && self.evaluated_at() != step {
            self.evaluate()?;
            if self.evaluated_at() != step {
                // It was stopped on the way: the epoch ends when the run is resumed.
                return Ok(());
            }
        }
        let here = self.progress.evaluation.as_ref().filter(|e| Some(e.step) == step);
        let scores = here.map(|e| e.scores.clone());
        let loss = self.progress.loss_sum / f64::from(self.progress.loss_count);
        let (loss_sum, loss_count) = (0.0, 0);
        self.progress = Progress { epoch: epoch + 1, element: 0, loss_sum, loss_count, ..self.progress.clone() };
        self.saved.due |= self.options.save.epoch;
        self.report(Event::Epoch { epoch, loss, scores });
        Ok(())
    }
}

/// Every input has as many rows as the plan takes.
fn check_batch(batch: &[(&str, TensorView)], expected: usize) -> Result<()> {
    let other = batch.iter().find_map(|(name, t)| Some((name, *t.shape.first()?)).filter(|(_, n)| *n != expected));
    match other {
        Some((name, rows)) => Err(TrainError::Batch { name: name.to_string(), rows, expected }),
        None => Ok(()),
    }
}
