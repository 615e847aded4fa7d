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

use super::feed::{Feed, Position};
use super::job::{Job, Part, Slot, Work};
use super::needs::{Depth, Needs};
use crate::error::{BadSample, DataError, Result};
use crate::memory::{BytePool, Meter, NoRoom};
use crate::program::Program;
use crate::recipe::Recipe;
use crate::tensor::Example;

pub(super) struct State {
    /// Oldest first.
    pub queue: VecDeque<Slot>,
    /// None while somebody pulls from it.
    feed: Option<Feed>,
    /// Tasks under way, each with what it may draw and what it drew.
    running: Vec<Underway>,
    next_task: u64,
    needs: Needs,
    pub depth: Depth,
    /// The consumer waits for the oldest.
    pub asked: bool,
    /// It fell asleep in the belief that the oldest can go on: who finds otherwise wakes it.
    pub hopeful: bool,
    /// Nothing is made until the consumer asks.
    pub paused: bool,
    hunger: Option<Hunger>,
    /// The pool had no room for what a generator gave: how many bytes it takes.
    feed_wants: u64,
    threads: usize,
}

struct Underway {
    number: u64,
    expected: u64,
    meter: Arc<Meter>,
}

/// The oldest element (or, with an empty queue, pulling it) found no room.
struct Hunger {
    /// What failed when it was tried alone with nothing left to drop, and what was then held by others.
    blocked: Option<(NoRoom, u64)>,
}

pub(super) struct Task {
    /// Draws through it are measured.
    pub pool: BytePool,
    pub ticket: Ticket,
    pub what: What,
}

/// What stays of a task at its end.
pub(super) struct Ticket {
    number: u64,
    meter: Arc<Meter>,
    /// Nothing else runs; what others held at the beginning.
    alone: Option<u64>,
}

pub(super) enum What {
    Pull(Feed),
    Part(Arc<Job>, Part),
}

pub(super) enum Outcome {
    /// The feed comes back with its next recipe, if it has one here.
    Pulled(Feed, Position, Result<Option<Recipe>>),
    Samples(Arc<Job>, Samples),
    Made(Arc<Job>, Result<Example>, Vec<BadSample>),
}

/// How it went with a few samples.
#[derive(Default)]
pub(super) struct Samples {
    /// How many are there or bad.
    pub done: usize,
    pub bad: Vec<(usize, BadSample)>,
    /// Those that are still to be made.
    pub again: Vec<usize>,
    pub no_room: Option<NoRoom>,
    /// What the batches take of the pool, where that was seen.
    pub stacks: u64,
    /// One is wrong, or not like the others.
    pub wrong: bool,
}

pub(super) enum Found {
    Task(Task),
    /// Nothing for now; hungry if bytes that come back would change that.
    Nothing {
        hungry: bool,
    },
    /// The oldest cannot go on, and the consumer does not know.
    Hopeless,
}

impl State {
    pub(super) fn new(feed: Feed, depth: Depth, threads: usize) -> State {
        State {
            queue: VecDeque::new(),
            feed: Some(feed),
            running: Vec::new(),
            next_task: 0,
            needs: Needs::default(),
            depth,
            asked: false,
            hopeful: false,
            paused: false,
            hunger: None,
            feed_wants: 0,
            threads,
        }
    }

    pub(super) fn find(&mut self, program: &Program) -> Found {
        if self.paused {
            return Found::Nothing { hungry: false };
        }
        if self.hunger.is_some() {
            return self.find_alone(program);
        }
        let available = self.available(&program.pool);
        for age in 0..self.queue.len() {
            let Some(work) = self.queue[age].work() else { continue };
            let Some(samples) = work.todo() else { continue };
            let (begun, samples_waiting) = (work.begun(), work.waiting());
            let stacks = if samples && !begun { self.needs.stacks } else { 0 };
            let task = if samples { self.needs.sample } else { self.needs.whole.then_some(self.needs.rest) };
            let fits = task.is_some_and(|task| available >= task.saturating_add(stacks));
            // The oldest is tried in any case, but not while the consumer may still return what it lacks.
            let try_it = age == 0 && self.running.is_empty() && (self.asked || task.is_none());
            if fits || try_it {
                let chunk = if task.is_some() { (samples_waiting / (2 * self.threads)).clamp(1, 16) } else { 1 };
                return self.begin_part(age, chunk, None, program);
            }
            return Found::Nothing { hungry: true };
        }
        if !self.may_pull() {
            return Found::Nothing { hungry: false };
        }
        let oldest = self.queue.is_empty() && self.running.is_empty();
        let room = self.needs.whole && available >= self.needs.element().max(self.feed_wants);
        if oldest || room { self.begin_pull(oldest, program) } else { Found::Nothing { hungry: true } }
    }

    /// The oldest, with nothing beside it.
    fn find_alone(&mut self, program: &Program) -> Found {
        if !self.running.is_empty() {
            return Found::Nothing { hungry: false };
        }
        if self.blocked(program).is_some() {
            let news = self.asked && std::mem::take(&mut self.hopeful);
            return if news { Found::Hopeless } else { Found::Nothing { hungry: true } };
        }
        if self.queue.is_empty() {
            return self.begin_pull(true, program);
        }
        let others = self.others(program);
        self.begin_part(0, 1, Some(others), program)
    }

    /// Lets go of all that was made, if nobody is at work.
    pub(super) fn drop_made(&mut self) -> bool {
        if self.running.is_empty() {
            self.queue.iter_mut().filter_map(Slot::work).for_each(Work::reset);
        }
        self.running.is_empty()
    }

    /// What the oldest lacks, if it cannot go on until somebody else returns bytes.
    pub(super) fn blocked(&self, program: &Program) -> Option<NoRoom> {
        let (no_room, others) = self.hunger.as_ref()?.blocked?;
        (self.running.is_empty() && self.others(program) >= others).then_some(no_room)
    }

    /// What is held by others than the oldest element and the recipes: the consumer, for one.
    pub(super) fn others(&self, program: &Program) -> u64 {
        let stacked = match self.queue.front() {
            Some(Slot::Element(work)) => work.job.stacked.load(Ordering::Relaxed),
            Some(Slot::End(_) | Slot::Failed(..)) | None => 0,
        };
        program.pool.used().saturating_sub(stacked).saturating_sub(program.generated.held())
    }

    /// What the pool has left when all that is under way has drawn what it may need.
    fn available(&self, pool: &BytePool) -> u64 {
        let tasks: u64 = self.running.iter().map(|t| t.expected.saturating_sub(t.meter.held())).sum();
        let unstacked = |slot: &&Slot| match slot {
            Slot::Element(work) => {
                work.begun()
                    && work.made.is_none()
                    && work.job.samples > 0
                    && work.job.stacked.load(Ordering::Relaxed) == 0
            }
            Slot::End(_) | Slot::Failed(..) => false,
        };
        let stacks = self.needs.stacks.saturating_mul(self.queue.iter().filter(unstacked).count() as u64);
        pool.free().saturating_sub(tasks).saturating_sub(stacks)
    }

    /// Whether the pool has room for one more element.
    pub(super) fn has_room(&self, pool: &BytePool) -> bool {
        self.needs.whole && self.available(pool) >= self.needs.element()
    }

    fn may_pull(&self) -> bool {
        let ends = self.queue.iter().filter(|slot| !matches!(slot, Slot::Element(_))).count();
        let most = self.depth.now + self.asked as usize;
        self.feed.is_some() && self.queue.len() - ends < most && ends <= most
    }

    fn begin_pull(&mut self, alone: bool, program: &Program) -> Found {
        let others = alone.then(|| self.others(program));
        match self.feed.take() {
            Some(feed) => Found::Task(self.begin(What::Pull(feed), 0, others, program)),
            None => Found::Nothing { hungry: false },
        }
    }

    fn begin_part(&mut self, age: usize, chunk: usize, alone: Option<u64>, program: &Program) -> Found {
        let Some(work) = self.queue[age].work() else { unreachable!("only an element has parts") };
        let (job, part) = (work.job.clone(), work.claim(chunk));
        let expected = match part {
            Part::Samples(_) => self.needs.sample.unwrap_or(0),
            Part::Rest(_) | Part::Whole => self.needs.rest,
        };
        Found::Task(self.begin(What::Part(job, part), expected, alone, program))
    }

    fn begin(&mut self, what: What, expected: u64, alone: Option<u64>, program: &Program) -> Task {
        let (pool, meter) = program.pool.metered();
        let number = self.next_task;
        self.next_task += 1;
        self.running.push(Underway { number, expected, meter: meter.clone() });
        Task { pool, ticket: Ticket { number, meter, alone }, what }
    }

    /// A task is over, and what it drew for itself was returned.
    pub(super) fn settle(&mut self, ticket: Ticket, outcome: Outcome, program: &Program) {
        self.running.retain(|t| t.number != ticket.number);
        let no_room = match outcome {
            Outcome::Pulled(feed, position, pulled) => self.pulled(feed, position, pulled, program),
            Outcome::Samples(job, samples) => self.samples(&job, samples, ticket.meter.peak()),
            Outcome::Made(job, made, bad) => self.made(&job, made, bad, ticket.meter.peak()),
        };
        if let Some(no_room) = no_room {
            self.starve(no_room, ticket.alone, program);
        }
        let ahead = self.depth.now as u64 + 2;
        program.work.store(self.needs.element().saturating_mul(ahead), Ordering::Relaxed);
    }

    /// Says what was missing, if it was for the oldest; likewise below.
    fn pulled(
        &mut self,
        feed: Feed,
        position: Position,
        pulled: Result<Option<Recipe>>,
        program: &Program,
    ) -> Option<NoRoom> {
        self.feed = Some(feed);
        let slot = match pulled {
            Ok(Some(recipe)) => {
                self.needs.recipe = self.needs.recipe.max(recipe.held());
                Slot::Element(Work::new(Arc::new(Job::new(position, recipe, program))))
            }
            Ok(None) => Slot::End(position),
            Err(DataError::NoRoom(e)) => {
                self.feed_wants = e.wanted;
                return self.queue.is_empty().then_some(e);
            }
            Err(e) => Slot::Failed(position, Some(e)),
        };
        self.feed_wants = 0;
        if self.queue.is_empty() {
            self.hunger = None;
        }
        self.queue.push_back(slot);
        None
    }

    fn samples(&mut self, job: &Arc<Job>, samples: Samples, peak: u64) -> Option<NoRoom> {
        self.needs.stacks = self.needs.stacks.max(samples.stacks);
        self.needs.sample = self.needs.sample.max(Some(peak));
        let (work, oldest) = self.work_on(job)?;
        work.running -= 1;
        work.samples_done(samples.done, samples.bad, samples.again);
        if samples.wrong {
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
        self.needs.whole = true;
        if oldest {
            self.hunger = None;
        }
        None
    }

    fn work_on(&mut self, job: &Arc<Job>) -> Option<(&mut Work, bool)> {
        let age = self.queue.iter_mut().position(|slot| slot.work().is_some_and(|w| Arc::ptr_eq(&w.job, job)))?;
        self.queue[age].work().map(|work| (work, age == 0))
    }

    /// The oldest found no room.
    fn starve(&mut self, no_room: NoRoom, alone: Option<u64>, program: &Program) {
        let blocked = alone.filter(|_| !self.reclaim(no_room, program)).map(|others| (no_room, others));
        self.hunger = Some(Hunger { blocked });
    }

    /// Makes room for the oldest at the expense of what is worth less, and says whether there is more now.
    fn reclaim(&mut self, no_room: NoRoom, program: &Program) -> bool {
        let pool = &program.pool;
        let before = pool.used();
        let short = no_room.used.saturating_add(no_room.wanted).saturating_sub(pool.limit());
        let enough = || before.saturating_sub(pool.used()) >= short;
        program.release(short);
        for lender in pool.lenders() {
            lender.lend(short.saturating_sub(before.saturating_sub(pool.used())));
        }
        for slot in self.queue.iter_mut().skip(1).rev() {
            if enough() {
                break;
            }
            slot.work().into_iter().for_each(Work::reset);
        }
        // Recipes of a generator hold its items: they are let go too, and the generator is run again.
        if let (false, true, Some(Slot::Element(oldest)), Some(feed)) =
            (enough(), program.holds, self.queue.front(), &mut self.feed)
        {
            feed.rewind(oldest.job.position.next());
            self.queue.truncate(1);
        }
        if !enough() {
            program.give_up_caches();
        }
        for lender in pool.lenders() {
            if !enough() {
                lender.give_up();
            }
        }
        pool.used() < before
    }
}
