//! What a worker does: looks for a task, runs it with no lock held, tells how it went.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::job::{Job, Part};
use super::state::{Found, Outcome, Samples, State, What};
use crate::error::{BadSample, DataError, Result};
use crate::guard::guarded;
use crate::make::{Maker, OnBad};
use crate::memory::{BytePool, Lender, NoRoom};
use crate::program::Program;
use crate::recipe::{Batch, Recipe};
use crate::stack::{Misfit, Stack, stackable};
use crate::tensor::Example;

/// What the consumer and the workers share.
pub(super) struct Shared {
    pub program: Program,
    pub bad: OnBad,
    pub stop: AtomicBool,
    state: Mutex<State>,
}

impl Lender for Shared {
    fn lend(&self, bytes: u64) {
        self.program.release(bytes);
    }

    fn give_up(&self) {
        self.program.give_up_caches();
    }
}

impl Shared {
    pub(super) fn new(program: Program, bad: OnBad, state: State) -> Shared {
        Shared { program, bad, stop: AtomicBool::new(false), state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing of another's code runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn work(&self) {
        loop {
            // Read before everything that is looked at, so that no change is missed.
            let seen = self.program.pool.events();
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let found = self.state().find(&self.program);
            match found {
                Found::Nothing { hungry } => self.program.pool.wait(seen, hungry),
                Found::Hopeless => self.program.pool.ring(),
                Found::Task(task) => {
                    let outcome = self.run(task.what, &task.pool);
                    self.state().settle(task.ticket, outcome, &self.program);
                    self.program.pool.ring();
                }
            }
        }
    }

    fn run(&self, what: What, pool: &BytePool) -> Outcome {
        match what {
            What::Pull(mut feed) => {
                let position = feed.position;
                let pulled = feed.pull(&self.program);
                Outcome::Pulled(feed, position, pulled)
            }
            What::Part(job, Part::Samples(samples)) => {
                let samples = self.samples(&job, &samples, pool);
                Outcome::Samples(job, samples)
            }
            What::Part(job, Part::Rest(bad)) => self.rest(job, bad, pool),
            What::Part(job, Part::Whole) => self.whole(job, Vec::new(), Vec::new(), pool),
        }
    }

    fn maker<'a>(&'a self, pool: &'a BytePool, ready: Vec<Example>) -> Maker<'a> {
        Maker { program: &self.program, pool, bad: self.bad, skipped: Vec::new(), ready: ready.into_iter() }
    }

    /// A part of an element by itself; none where it is bad, or has no room now.
    pub(super) fn make(&self, item: &Recipe) -> Option<Example> {
        let mut maker = self.maker(&self.program.pool, Vec::new());
        guarded(|| self.program.place(item), || maker.make(item)).ok()
    }

    fn samples(&self, job: &Job, samples: &[usize], pool: &BytePool) -> Samples {
        let mut how = Samples::default();
        for (i, &sample) in samples.iter().enumerate() {
            let stopped = self.stop.load(Ordering::SeqCst);
            let end = if stopped { Err(End::Wrong) } else { self.sample(job, sample, pool, &mut how) };
            match end {
                Ok(()) => how.done += 1,
                Err(End::NoRoom(e)) => {
                    how.no_room = Some(e);
                    how.again = samples[i..].to_vec();
                    break;
                }
                Err(End::Wrong) => {
                    how.wrong = true;
                    break;
                }
            }
        }
        how
    }

    fn sample(&self, job: &Job, sample: usize, pool: &BytePool, how: &mut Samples) -> Result<(), End> {
        let Some((number, batch, row)) = job.sample(sample) else { unreachable!("samples are counted") };
        let item = &batch.items[row];
        let mut maker = self.maker(pool, Vec::new());
        let made = guarded(|| self.program.place(item), || maker.make(item));
        let mut bad = std::mem::take(&mut maker.skipped);
        let made = match made {
            Ok(example) => Some(example),
            Err(DataError::NoRoom(e)) => return Err(End::NoRoom(e)),
            Err(DataError::Bad(sample)) if self.bad == OnBad::Skip => {
                bad.push(sample);
                None
            }
            Err(_) => return Err(End::Wrong),
        };
        if let Some(example) = made {
            self.put(job, number, row, &example, how)?;
        }
        how.bad.extend(bad.into_iter().map(|bad| (sample, bad)));
        Ok(())
    }

    fn put(&self, job: &Job, number: usize, row: usize, example: &Example, how: &mut Samples) -> Result<(), End> {
        if stackable(String::new, example).is_err() {
            return Err(End::Wrong);
        }
        let mut stacks = job.stacks();
        let rows = stacks[number].rows();
        let put = stacks[number].put(row, example, &self.program.pool);
        let held: u64 = stacks.iter().map(Stack::held).sum();
        job.stacked.store(held, Ordering::Relaxed);
        how.stacks = how.stacks.max(held);
        match put {
            Ok(()) => Ok(()),
            Err(Misfit::Differs) => Err(End::Wrong),
            Err(Misfit::NoRoom(e)) => {
                how.stacks = how.stacks.max(held.saturating_add(Stack::bytes(rows, example)));
                Err(End::NoRoom(e))
            }
        }
    }

    /// The samples are there: the batches, and what stands around them.
    fn rest(&self, job: Arc<Job>, bad: Vec<BadSample>, pool: &BytePool) -> Outcome {
        let finish = |(stack, batch): (Stack, &Batch)| stack.finish(self.program.remainder(batch));
        let ready: Option<Vec<Example>> = job.take_stacks().into_iter().zip(job.batches()).map(finish).collect();
        match ready {
            Some(ready) => self.whole(job, ready, bad, pool),
            // A batch has no good sample: made in order, the element shows whether that is the first thing wrong with it.
            None => self.whole(job, Vec::new(), Vec::new(), pool),
        }
    }

    fn whole(&self, job: Arc<Job>, ready: Vec<Example>, mut bad: Vec<BadSample>, pool: &BytePool) -> Outcome {
        let mut maker = self.maker(pool, ready);
        let made = guarded(|| self.program.place(&job.recipe), || maker.make(&job.recipe));
        bad.append(&mut maker.skipped);
        drop(maker);
        Outcome::Made(job, made, bad)
    }
}

/// Why a sample is not there.
enum End {
    NoRoom(NoRoom),
    Wrong,
}
