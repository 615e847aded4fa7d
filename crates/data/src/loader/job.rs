//! One element on its way: what of it is made, being made, and left to make. The samples of its batches are made one by
//! one by whoever has time; what stands around the batches is made when these are there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::feed::Position;
use crate::error::{BadSample, DataError, Result};
use crate::program::{Node, Program};
use crate::recipe::{Batch, Recipe};
use crate::stack::Stack;
use crate::tensor::Example;

/// What workers share of an element.
pub(super) struct Job {
    pub position: Position,
    pub recipe: Recipe,
    /// Samples of all its batches.
    pub samples: usize,
    stacks: Mutex<Vec<Stack>>,
    /// What the stacks hold of the pool.
    pub stacked: AtomicU64,
}

impl Job {
    pub(super) fn new(position: Position, mut recipe: Recipe, program: &Program) -> Job {
        look_into_caches(&mut recipe, program);
        let samples = batches(&recipe).iter().map(|b| b.items.len()).sum();
        Job { position, recipe, samples, stacks: Mutex::new(Vec::new()), stacked: AtomicU64::new(0) }
    }

    /// The batch that has this sample, by its number, and the row of the sample in it.
    pub(super) fn sample(&self, mut sample: usize) -> Option<(usize, &Batch, usize)> {
        for (number, batch) in batches(&self.recipe).into_iter().enumerate() {
            if sample < batch.items.len() {
                return Some((number, batch, sample));
            }
            sample -= batch.items.len();
        }
        None
    }

    pub(super) fn batches(&self) -> Vec<&Batch> {
        batches(&self.recipe)
    }

    /// One stack for each batch.
    pub(super) fn stacks(&self) -> MutexGuard<'_, Vec<Stack>> {
        // A stack is as good as the rows that it says it has.
        let mut stacks = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        if stacks.is_empty() {
            *stacks = self.batches().iter().map(|b| Stack::new(b.items.len())).collect();
        }
        stacks
    }

    pub(super) fn take_stacks(&self) -> Vec<Stack> {
        self.stacked.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.stacks())
    }
}

/// The batches of an element that are not inside of another one.
fn batches(recipe: &Recipe) -> Vec<&Batch> {
    match recipe {
        Recipe::Row { .. } | Recipe::Held(_) => Vec::new(),
        Recipe::Map(map) => batches(&map.input),
        Recipe::Batch(batch) => vec![batch],
        Recipe::Zip(both) => both.iter().flat_map(batches).collect(),
        Recipe::Cached(cached) if cached.missing => batches(&cached.input),
        Recipe::Cached(_) => Vec::new(),
    }
}

/// Settles before the work begins which parts come from a cache, for all who work on it.
fn look_into_caches(recipe: &mut Recipe, program: &Program) {
    match recipe {
        Recipe::Row { .. } | Recipe::Held(_) | Recipe::Batch(_) => {}
        Recipe::Map(map) => look_into_caches(&mut map.input, program),
        Recipe::Zip(both) => both.iter_mut().for_each(|r| look_into_caches(r, program)),
        Recipe::Cached(cached) => {
            let Node::Cache { store, .. } = program.node(cached.cache) else { unreachable!("a cache made it") };
            cached.missing = !store.has(cached.index);
            if cached.missing {
                look_into_caches(&mut cached.input, program);
            }
        }
    }
}

/// A place in the queue of elements.
pub(super) enum Slot {
    Element(Work),
    /// The epoch that was under way is over.
    End(Position),
    /// The recipes ended in an error here.
    Failed(Position, Option<DataError>),
}

impl Slot {
    pub(super) fn work(&mut self) -> Option<&mut Work> {
        match self {
            Slot::Element(work) => Some(work),
            Slot::End(_) | Slot::Failed(..) => None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self {
            Slot::Element(work) => work.made.is_some(),
            Slot::End(_) | Slot::Failed(..) => true,
        }
    }
}

/// An element with what is known of its progress.
pub(super) struct Work {
    pub job: Arc<Job>,
    /// Samples from here on were not begun.
    next: usize,
    /// Samples that found no room.
    again: Vec<usize>,
    /// Samples that are not there yet.
    left: usize,
    /// Tasks that are at it.
    pub running: usize,
    /// Something is wrong with a sample: all is made one after the other, so that the first fault is the one that is
    /// told.
    in_sequence: bool,
    bad: Vec<(usize, BadSample)>,
    pub made: Option<(Result<Example>, Vec<BadSample>)>,
}

/// A part of the work on an element.
pub(super) enum Part {
    Samples(Vec<usize>),
    /// What stands around its batches, or all of an element without batches. With the bad samples of the batches.
    Rest(Vec<BadSample>),
    /// All of it, one after the other.
    Whole,
}

impl Work {
    pub(super) fn new(job: Arc<Job>) -> Work {
        let left = job.samples;
        Work { job, next: 0, again: Vec::new(), left, running: 0, in_sequence: false, bad: Vec::new(), made: None }
    }

    pub(super) fn begun(&self) -> bool {
        self.next > 0 || self.running > 0
    }

    /// Whether there is something to do, and if so whether it is on samples.
    pub(super) fn todo(&self) -> Option<bool> {
        let samples = !self.in_sequence && (self.next < self.job.samples || !self.again.is_empty());
        let rest = self.made.is_none() && self.running == 0 && (self.in_sequence || self.left == 0);
        (samples || rest).then_some(samples)
    }

    /// Takes the next part: at most this many samples.
    pub(super) fn claim(&mut self, at_most: usize) -> Part {
        self.running += 1;
        if self.in_sequence {
            // Others may have gone on stacking until now.
            drop(self.job.take_stacks());
            return Part::Whole;
        }
        if let Some(sample) = self.again.pop() {
            return Part::Samples(vec![sample]);
        }
        if self.next == self.job.samples {
            self.bad.sort_by_key(|(sample, _)| *sample);
            return Part::Rest(self.bad.drain(..).map(|(_, bad)| bad).collect());
        }
        let first = self.next;
        self.next = (first + at_most.max(1)).min(self.job.samples);
        Part::Samples((first..self.next).collect())
    }

    /// Samples that nobody began.
    pub(super) fn waiting(&self) -> usize {
        self.job.samples - self.next
    }

    pub(super) fn samples_done(&mut self, done: usize, bad: Vec<(usize, BadSample)>, again: Vec<usize>) {
        self.left -= done;
        self.bad.extend(bad);
        self.again.extend(again);
    }

    pub(super) fn make_in_sequence(&mut self) {
        self.in_sequence = true;
        drop(self.job.take_stacks());
    }

    /// Lets go of everything: it is to be made again.
    pub(super) fn reset(&mut self) {
        drop(self.job.take_stacks());
        (self.next, self.left, self.made) = (0, self.job.samples, None);
        self.again.clear();
        self.bad.clear();
    }
}
