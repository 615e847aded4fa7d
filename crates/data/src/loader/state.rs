//! Who works on what, within the pool. The rules, by which every pipeline that fits comes to its end:
//!
//! 1. Work is let in by the largest needs seen so far, counting what work under way has yet to draw. Before anything
//!    was seen, one task runs at a time.
//! 2. Who finds no room lets go of what it has. If its element is not the oldest, it waits for room.
//! 3. If it is the oldest, nothing else begins; when all else is still, it is tried alone. If it fails alone, caches
//!    (those of other loaders of the pool too) give their memory back and younger elements are dropped, youngest first,
//!    to be made again later.
//! 4. If there is nothing left to drop, it waits for others (the consumer above all) to return bytes. A consumer who
//!    asks for the element in that state would wait for itself, and gets an error that says what is needed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::epochs::{Epochs, Position};
use super::job::{Job, Slot, Subtask, Work};
use super::needs::{Needs, PrefetchDepth};
use crate::error::{BadSample, DataError, Result};
use crate::memory::{BytePool, Meter, NoRoom};
use crate::pipeline::Pipeline;
use crate::recipe::Recipe;
use crate::tensor::Example;

pub(super) struct State {
    /// Oldest first.
    pub queue: VecDeque<Slot>,
    /// None while somebody pulls from it.
    epochs: Option<Epochs>,
    /// Tasks under way, each with what it may draw and what it drew.
    running: Vec<RunningTask>,
    next_task: u64,
    needs: Needs,
    pub depth: PrefetchDepth,
    /// The consumer waits for the oldest.
    pub asked: bool,
    /// It fell asleep in the belief that the oldest can go on: who finds otherwise wakes it.
    pub expects_progress: bool,
    /// Nothing is made until the consumer asks.
    pub paused: bool,
    shortage: Option<Shortage>,
    /// The pool had no room for what a generator gave: how many bytes it takes.
    generator_wants: u64,
    threads: usize,
}

struct RunningTask {
    number: u64,
    expected: u64,
    meter: Arc<Meter>,
}

/// The oldest element (or, with an empty queue, pulling it) found no room.
struct Shortage {
    /// What failed when it was tried alone with nothing left to drop, and what was then held by others.
    blocked: Option<(NoRoom, u64)>,
}

pub(super) struct Task {
    /// Draws through it are measured.
    pub pool: BytePool,
    pub ticket: Ticket,
    pub what: TaskKind,
}

/// What stays of a task at its end.
pub(super) struct Ticket {
    number: u64,
    meter: Arc<Meter>,
    /// Nothing else runs; what others held at the beginning.
    exclusive: Option<u64>,
}

pub(super) enum TaskKind {
    Pull(Epochs),
    Subtask(Arc<Job>, Subtask),
}

pub(super) enum Outcome {
    /// The epochs come back with their next recipe, if there is one here.
    Pulled(Epochs, Position, Result<Option<Recipe>>),
    Samples(Arc<Job>, SamplesOutcome),
    Made(Arc<Job>, Result<Example>, Vec<BadSample>),
}

/// How it went with a few samples.
#[derive(Default)]
pub(super) struct SamplesOutcome {
    /// How many are there or bad.
    pub done: usize,
    pub bad: Vec<(usize, BadSample)>,
    /// Those that are still to be made.
    pub retry: Vec<usize>,
    pub no_room: Option<NoRoom>,
    /// What the batches take of the pool, where that was seen.
    pub batch_bytes: u64,
    /// One is wrong, or not like the others.
    pub faulty: bool,
}

pub(super) enum NextTask {
    Task(Task),
    /// Nothing for now; with `wants_bytes` if bytes that come back would change that.
    Idle {
        wants_bytes: bool,
    },
    /// The oldest cannot go on, and the consumer does not know.
    Stuck,
}

impl State {
    pub(super) fn new(epochs: Epochs, depth: PrefetchDepth, threads: usize) -> State {
        State {
            queue: VecDeque::new(),
            epochs: Some(epochs),
            running: Vec::new(),
            next_task: 0,
            needs: Needs::default(),
            depth,
            asked: false,
            expects_progress: false,
            paused: false,
            shortage: None,
            generator_wants: 0,
            threads,
        }
    }

    pub(super) fn next_task(&mut self, pipeline: &Pipeline) -> NextTask {
        if self.paused {
            return NextTask::Idle { wants_bytes: false };
        }
        if self.shortage.is_some() {
            return self.next_exclusive_task(pipeline);
        }
        let available = self.available(&pipeline.pool);
        for age in 0..self.queue.len() {
            let Some(work) = self.queue[age].work() else { continue };
            let Some(samples) = work.todo() else { continue };
            let (begun, samples_waiting) = (work.begun(), work.waiting());
            let batches = if samples && !begun { self.needs.batches } else { 0 };
            let task = if samples { self.needs.sample } else { self.needs.complete.then_some(self.needs.rest) };
            let fits = task.is_some_and(|task| available >= task.saturating_add(batches));
            // The oldest is tried in any case, but not while the consumer may still return what it lacks.
            let try_it = age == 0 && self.running.is_empty() && (self.asked || task.is_none());
            if fits || try_it {
                let chunk = if task.is_some() { (samples_waiting / (2 * self.threads)).clamp(1, 16) } else { 1 };
                return self.begin_subtask(age, chunk, None, pipeline);
            }
            return NextTask::Idle { wants_bytes: true };
        }
        if !self.may_pull() {
            return NextTask::Idle { wants_bytes: false };
        }
        let oldest = self.queue.is_empty() && self.running.is_empty();
        let room = self.needs.complete && available >= self.needs.element().max(self.generator_wants);
        if oldest || room { self.begin_pull(oldest, pipeline) } else { NextTask::Idle { wants_bytes: true } }
    }

    /// The oldest, with nothing beside it.
    fn next_exclusive_task(&mut self, pipeline: &Pipeline) -> NextTask {
        if !self.running.is_empty() {
            return NextTask::Idle { wants_bytes: false };
        }
        if self.blocked(pipeline).is_some() {
            let news = self.asked && std::mem::take(&mut self.expects_progress);
            return if news { NextTask::Stuck } else { NextTask::Idle { wants_bytes: true } };
        }
        if self.queue.is_empty() {
            return self.begin_pull(true, pipeline);
        }
        let others = self.others(pipeline);
        self.begin_subtask(0, 1, Some(others), pipeline)
    }

    /// Lets go of all that was made, if nobody is at work.
    pub(super) fn drop_finished(&mut self) -> bool {
        if self.running.is_empty() {
            self.queue.iter_mut().filter_map(Slot::work).for_each(Work::reset);
        }
        self.running.is_empty()
    }

    /// What the oldest lacks, if it cannot go on until somebody else returns bytes.
    pub(super) fn blocked(&self, pipeline: &Pipeline) -> Option<NoRoom> {
        let (no_room, others) = self.shortage.as_ref()?.blocked?;
        (self.running.is_empty() && self.others(pipeline) >= others).then_some(no_room)
    }

    /// What is held by others than the oldest element and the recipes: the consumer, for one.
    pub(super) fn others(&self, pipeline: &Pipeline) -> u64 {
        let collated_bytes = match self.queue.front() {
            Some(Slot::Element(work)) => work.job.collated_bytes.load(Ordering::Relaxed),
            Some(Slot::End(_) | Slot::Failed(..)) | None => 0,
        };
        pipeline.pool.used().saturating_sub(collated_bytes).saturating_sub(pipeline.generator_meter.held_bytes())
    }

    /// What the pool has left when all that is under way has drawn what it may need.
    fn available(&self, pool: &BytePool) -> u64 {
        let tasks: u64 = self.running.iter().map(|t| t.expected.saturating_sub(t.meter.held_bytes())).sum();
        let without_collators = |slot: &&Slot| match slot {
            Slot::Element(work) => {
                work.begun()
                    && work.made.is_none()
                    && work.job.samples > 0
                    && work.job.collated_bytes.load(Ordering::Relaxed) == 0
            }
            Slot::End(_) | Slot::Failed(..) => false,
        };
        let batches = self.needs.batches.saturating_mul(self.queue.iter().filter(without_collators).count() as u64);
        pool.free().saturating_sub(tasks).saturating_sub(batches)
    }

    /// Whether the pool has room for one more element.
    pub(super) fn has_room(&self, pool: &BytePool) -> bool {
        self.needs.complete && self.available(pool) >= self.needs.element()
    }

    fn may_pull(&self) -> bool {
        let ends = self.queue.iter().filter(|slot| !matches!(slot, Slot::Element(_))).count();
        let most = self.depth.now + self.asked as usize;
        self.epochs.is_some() && self.queue.len() - ends < most && ends <= most
    }

    fn begin_pull(&mut self, exclusive: bool, pipeline: &Pipeline) -> NextTask {
        let others = exclusive.then(|| self.others(pipeline));
        match self.epochs.take() {
            Some(epochs) => NextTask::Task(self.begin(TaskKind::Pull(epochs), 0, others, pipeline)),
            None => NextTask::Idle { wants_bytes: false },
        }
    }

    fn begin_subtask(&mut self, age: usize, chunk: usize, exclusive: Option<u64>, pipeline: &Pipeline) -> NextTask {
        let Some(work) = self.queue[age].work() else { unreachable!("only an element has parts") };
        let (job, part) = (work.job.clone(), work.claim(chunk));
        let expected = match part {
            Subtask::Samples(_) => self.needs.sample.unwrap_or(0),
            Subtask::Rest(_) | Subtask::Whole => self.needs.rest,
        };
        NextTask::Task(self.begin(TaskKind::Subtask(job, part), expected, exclusive, pipeline))
    }

    fn begin(&mut self, what: TaskKind, expected: u64, exclusive: Option<u64>, pipeline: &Pipeline) -> Task {
        let (pool, meter) = pipeline.pool.metered();
        let number = self.next_task;
        self.next_task += 1;
        self.running.push(RunningTask { number, expected, meter: meter.clone() });
        Task { pool, ticket: Ticket { number, meter, exclusive }, what }
    }

    /// A task is over, and what it drew for itself was returned.
    pub(super) fn complete(&mut self, ticket: Ticket, outcome: Outcome, pipeline: &Pipeline) {
        self.running.retain(|t| t.number != ticket.number);
        let no_room = match outcome {
            Outcome::Pulled(epochs, position, pulled) => self.pulled(epochs, position, pulled, pipeline),
            Outcome::Samples(job, samples) => self.samples(&job, samples, ticket.meter.peak()),
            Outcome::Made(job, made, bad) => self.made(&job, made, bad, ticket.meter.peak()),
        };
        if let Some(no_room) = no_room {
            self.note_shortage(no_room, ticket.exclusive, pipeline);
        }
        let ahead = self.depth.now as u64 + 2;
        pipeline.in_flight_bytes.store(self.needs.element().saturating_mul(ahead), Ordering::Relaxed);
    }

    /// Says what was missing, if it was for the oldest; likewise below.
    fn pulled(
        &mut self,
        epochs: Epochs,
        position: Position,
        pulled: Result<Option<Recipe>>,
        pipeline: &Pipeline,
    ) -> Option<NoRoom> {
        self.epochs = Some(epochs);
        let slot = match pulled {
            Ok(Some(recipe)) => {
                self.needs.recipe = self.needs.recipe.max(recipe.held_bytes());
                Slot::Element(Work::new(Arc::new(Job::new(position, recipe, pipeline))))
            }
            Ok(None) => Slot::End(position),
            Err(DataError::NoRoom(e)) => {
                self.generator_wants = e.wanted;
                return self.queue.is_empty().then_some(e);
            }
            Err(e) => Slot::Failed(position, Some(e)),
        };
        self.generator_wants = 0;
        if self.queue.is_empty() {
            self.shortage = None;
        }
        self.queue.push_back(slot);
        None
    }

    fn samples(&mut self, job: &Arc<Job>, samples: SamplesOutcome, peak: u64) -> Option<NoRoom> {
        self.needs.batches = self.needs.batches.max(samples.batch_bytes);
        self.needs.sample = self.needs.sample.max(Some(peak));
        let (work, oldest) = self.work_on(job)?;
        work.running -= 1;
        work.samples_done(samples.done, samples.bad, samples.retry);
        if samples.faulty {
            work.make_in_sequence();
        }
        samples.no_room.filter(|_| oldest)
    }

    fn made(&mut self, job: &Arc<Job>, made: Result<Example>, bad: Vec<BadSample>, peak: u64) -> Option<NoRoom> {
        self.needs.rest = self.needs.rest.max(peak);
        let (work, oldest) = self.work_on(job)?;
        work.running -= 1;
        if let Err(DataError::NoRoom(e)) = made {
            work.reset();
            return oldest.then_some(e);
        }
        work.made = Some((made, bad));
        self.needs.complete = true;
        if oldest {
            self.shortage = None;
        }
        None
    }

    fn work_on(&mut self, job: &Arc<Job>) -> Option<(&mut Work, bool)> {
        let age = self.queue.iter_mut().position(|slot| slot.work().is_some_and(|w| Arc::ptr_eq(&w.job, job)))?;
        self.queue[age].work().map(|work| (work, age == 0))
    }

    /// The oldest found no room.
    fn note_shortage(&mut self, no_room: NoRoom, exclusive: Option<u64>, pipeline: &Pipeline) {
        let blocked = exclusive.filter(|_| !self.reclaim(no_room, pipeline)).map(|others| (no_room, others));
        self.shortage = Some(Shortage { blocked });
    }

    /// Makes room for the oldest at the expense of what is worth less, and says whether there is more now.
    fn reclaim(&mut self, no_room: NoRoom, pipeline: &Pipeline) -> bool {
        let pool = &pipeline.pool;
        let before = pool.used();
        let short = no_room.used.saturating_add(no_room.wanted).saturating_sub(pool.limit());
        let enough = || before.saturating_sub(pool.used()) >= short;
        pipeline.evict(short);
        for evictable in pool.evictables() {
            evictable.evict(short.saturating_sub(before.saturating_sub(pool.used())));
        }
        for slot in self.queue.iter_mut().skip(1).rev() {
            if enough() {
                break;
            }
            slot.work().into_iter().for_each(Work::reset);
        }
        // Recipes of a generator hold its items: they are let go too, and the generator is run again.
        if let (false, true, Some(Slot::Element(oldest)), Some(epochs)) =
            (enough(), pipeline.has_generator, self.queue.front(), &mut self.epochs)
        {
            epochs.rewind(oldest.job.position.next());
            self.queue.truncate(1);
        }
        if !enough() {
            pipeline.disable_caches();
        }
        for evictable in pool.evictables() {
            if !enough() {
                evictable.evict_all();
            }
        }
        pool.used() < before
    }
}
