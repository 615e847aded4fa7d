//! What a worker does: looks for a task, runs it with no lock held, tells how it went.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::job::{Job, Subtask};
use super::state::{NextTask, Outcome, SamplesOutcome, State, TaskKind};
use crate::collate::{CollateError, Collator, check_collatable};
use crate::error::{BadSample, DataError, Result};
use crate::memory::{BytePool, Evictable, NoRoom};
use crate::panics::catch_panic;
use crate::pipeline::Pipeline;
use crate::produce::{OnBad, Producer};
use crate::recipe::{BatchRecipe, Recipe};
use crate::tensor::Example;

/// What the consumer and the workers share.
pub(super) struct Shared {
    pub pipeline: Pipeline,
    pub on_bad: OnBad,
    pub stop: AtomicBool,
    /// Nanoseconds that workers had nothing to do, of all of them together.
    pub idle: AtomicU64,
    state: Mutex<State>,
}

impl Evictable for Shared {
    fn evict(&self, bytes: u64) {
        self.pipeline.evict(bytes);
    }

    fn evict_all(&self) {
        self.pipeline.disable_caches();
    }
}

impl Shared {
    pub(super) fn new(pipeline: Pipeline, on_bad: OnBad, state: State) -> Shared {
        Shared { pipeline, on_bad, stop: AtomicBool::new(false), idle: AtomicU64::new(0), state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing of another's code runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn work(&self) {
        loop {
            // Read before everything that is looked at, so that no change is missed.
            let seen = self.pipeline.pool.events();
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let found = self.state().next_task(&self.pipeline);
            match found {
                NextTask::Idle { wants_bytes } => {
                    let since = Instant::now();
                    self.pipeline.pool.wait(seen, wants_bytes);
                    self.idle.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
                }
                NextTask::Stuck => self.pipeline.pool.notify(),
                NextTask::Task(task) => {
                    let outcome = self.run(task.what, &task.pool);
                    self.state().complete(task.ticket, outcome, &self.pipeline);
                    self.pipeline.pool.notify();
                }
            }
        }
    }

    fn run(&self, what: TaskKind, pool: &BytePool) -> Outcome {
        match what {
            TaskKind::Pull(mut epochs) => {
                let position = epochs.position;
                let pulled = epochs.next_recipe(&self.pipeline);
                Outcome::Pulled(epochs, position, pulled)
            }
            TaskKind::Subtask(job, Subtask::Samples(samples)) => {
                let samples = self.samples(&job, &samples, pool);
                Outcome::Samples(job, samples)
            }
            TaskKind::Subtask(job, Subtask::Rest(bad)) => self.rest(job, bad, pool),
            TaskKind::Subtask(job, Subtask::Whole) => self.whole_element(job, Vec::new(), Vec::new(), pool),
        }
    }

    fn producer<'a>(&'a self, pool: &'a BytePool, batches: Vec<Example>) -> Producer<'a> {
        Producer {
            pipeline: &self.pipeline,
            pool,
            on_bad: self.on_bad,
            skipped: Vec::new(),
            finished_batches: batches.into_iter(),
        }
    }

    /// A part of an element by itself; none where it is bad, or has no room now.
    pub(super) fn produce(&self, item: &Recipe) -> Option<Example> {
        let mut producer = self.producer(&self.pipeline.pool, Vec::new());
        catch_panic(|| self.pipeline.location(item), || producer.produce(item)).ok()
    }

    fn samples(&self, job: &Job, samples: &[usize], pool: &BytePool) -> SamplesOutcome {
        let mut outcome = SamplesOutcome::default();
        for (i, &sample) in samples.iter().enumerate() {
            let stopped = self.stop.load(Ordering::SeqCst);
            let end = if stopped { Err(SampleFailure::Fault) } else { self.sample(job, sample, pool, &mut outcome) };
            match end {
                Ok(()) => outcome.done += 1,
                Err(SampleFailure::NoRoom(e)) => {
                    outcome.no_room = Some(e);
                    outcome.retry = samples[i..].to_vec();
                    break;
                }
                Err(SampleFailure::Fault) => {
                    outcome.faulty = true;
                    break;
                }
            }
        }
        outcome
    }

    fn sample(
        &self,
        job: &Job,
        sample: usize,
        pool: &BytePool,
        outcome: &mut SamplesOutcome,
    ) -> Result<(), SampleFailure> {
        let Some((number, batch, row)) = job.sample(sample) else { unreachable!("samples are counted") };
        let item = &batch.items[row];
        let mut producer = self.producer(pool, Vec::new());
        let made = catch_panic(|| self.pipeline.location(item), || producer.produce(item));
        let mut bad = std::mem::take(&mut producer.skipped);
        let made = match made {
            Ok(example) => Some(example),
            Err(DataError::NoRoom(e)) => return Err(SampleFailure::NoRoom(e)),
            Err(DataError::Bad(sample)) if self.on_bad == OnBad::Skip => {
                bad.push(sample);
                None
            }
            Err(_) => return Err(SampleFailure::Fault),
        };
        if let Some(example) = made {
            self.insert_sample(job, number, row, &example, outcome)?;
        }
        outcome.bad.extend(bad.into_iter().map(|bad| (sample, bad)));
        Ok(())
    }

    fn insert_sample(
        &self,
        job: &Job,
        number: usize,
        row: usize,
        example: &Example,
        outcome: &mut SamplesOutcome,
    ) -> Result<(), SampleFailure> {
        if check_collatable(String::new, example).is_err() {
            return Err(SampleFailure::Fault);
        }
        let mut collators = job.collators();
        let rows = collators[number].rows();
        let inserted = collators[number].insert(row, example, &self.pipeline.pool);
        let held: u64 = collators.iter().map(Collator::held_bytes).sum();
        job.collated_bytes.store(held, Ordering::Relaxed);
        outcome.batch_bytes = outcome.batch_bytes.max(held);
        match inserted {
            Ok(()) => Ok(()),
            Err(CollateError::Mismatch) => Err(SampleFailure::Fault),
            Err(CollateError::NoRoom(e)) => {
                outcome.batch_bytes =
                    outcome.batch_bytes.max(held.saturating_add(Collator::batch_bytes(rows, example)));
                Err(SampleFailure::NoRoom(e))
            }
        }
    }

    /// The samples are there: the batches, and what stands around them.
    fn rest(&self, job: Arc<Job>, bad: Vec<BadSample>, pool: &BytePool) -> Outcome {
        let finish = |(collator, batch): (Collator, &BatchRecipe)| collator.finish(self.pipeline.gaps(batch)).ok();
        let batches: Option<Vec<Example>> = job.take_collators().into_iter().zip(job.batches()).map(finish).collect();
        match batches {
            Some(batches) => self.whole_element(job, batches, bad, pool),
            // A batch, or a lane of one, has no good sample: made in order, the element shows whether that is the first thing wrong with it.
            None => self.whole_element(job, Vec::new(), Vec::new(), pool),
        }
    }

    fn whole_element(&self, job: Arc<Job>, batches: Vec<Example>, mut bad: Vec<BadSample>, pool: &BytePool) -> Outcome {
        let mut producer = self.producer(pool, batches);
        let made = catch_panic(|| self.pipeline.location(&job.recipe), || producer.produce(&job.recipe));
        bad.append(&mut producer.skipped);
        drop(producer);
        Outcome::Made(job, made, bad)
    }
}

/// Why a sample is not there.
enum SampleFailure {
    NoRoom(NoRoom),
    /// It cannot be used, or does not go with the others: the element is produced in sequence, to tell the first fault.
    Fault,
}
