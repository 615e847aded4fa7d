//! One element on its way: what of it is made, being made, and left to make. The samples of its batches are made one by
//! one by whoever has time; what stands around the batches is made when these are there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::epochs::Position;
use crate::collate::Collator;
use crate::error::{BadSample, DataError, Result};
use crate::pipeline::{Node, Pipeline};
use crate::recipe::{BatchRecipe, Recipe};
use crate::tensor::Example;

/// What workers share of an element.
pub(super) struct Job {
    pub position: Position,
    pub recipe: Recipe,
    /// Samples of all its batches.
    pub samples: usize,
    collators: Mutex<Vec<Collator>>,
    /// What the collators hold of the pool.
    pub collated_bytes: AtomicU64,
}

impl Job {
    pub(super) fn new(position: Position, mut recipe: Recipe, pipeline: &Pipeline) -> Job {
        resolve_caches(&mut recipe, pipeline);
        let samples = batches(&recipe).iter().map(|b| b.items.len()).sum();
        Job { position, recipe, samples, collators: Mutex::new(Vec::new()), collated_bytes: AtomicU64::new(0) }
    }

    /// The batch that has this sample, by its number, and the row of the sample in it.
    pub(super) fn sample(&self, mut sample: usize) -> Option<(usize, &BatchRecipe, usize)> {
        for (number, batch) in batches(&self.recipe).into_iter().enumerate() {
            if sample < batch.items.len() {
                return Some((number, batch, sample));
            }
            sample -= batch.items.len();
        }
        None
    }

    pub(super) fn batches(&self) -> Vec<&BatchRecipe> {
        batches(&self.recipe)
    }

    /// One collator for each batch.
    pub(super) fn collators(&self) -> MutexGuard<'_, Vec<Collator>> {
        // A collator is as good as the rows that it says it has.
        let mut collators = self.collators.lock().unwrap_or_else(PoisonError::into_inner);
        if collators.is_empty() {
            *collators = self.batches().iter().map(|b| Collator::new(b.items.len())).collect();
        }
        collators
    }

    pub(super) fn take_collators(&self) -> Vec<Collator> {
        self.collated_bytes.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.collators())
    }
}

/// The batches of an element that are not inside of another one.
fn batches(recipe: &Recipe) -> Vec<&BatchRecipe> {
    match recipe {
        Recipe::Row { .. } | Recipe::Generated(_) => Vec::new(),
        Recipe::Map(map) => batches(&map.input),
        Recipe::Batch(batch) => vec![batch],
        Recipe::Zip(both) => both.iter().flat_map(batches).collect(),
        Recipe::Cached(cached) if cached.missing => batches(&cached.input),
        Recipe::Cached(_) => Vec::new(),
    }
}

/// Settles before the work begins which parts come from a cache, for all who work on it.
fn resolve_caches(recipe: &mut Recipe, pipeline: &Pipeline) {
    match recipe {
        Recipe::Row { .. } | Recipe::Generated(_) | Recipe::Batch(_) => {}
        Recipe::Map(map) => resolve_caches(&mut map.input, pipeline),
        Recipe::Zip(both) => both.iter_mut().for_each(|r| resolve_caches(r, pipeline)),
        Recipe::Cached(cached) => {
            let Node::Cache { store, .. } = pipeline.node(cached.cache) else { unreachable!("a cache made it") };
            cached.missing = !store.has(cached.index);
            if cached.missing {
                resolve_caches(&mut cached.input, pipeline);
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
    retry: Vec<usize>,
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
pub(super) enum Subtask {
    Samples(Vec<usize>),
    /// What stands around its batches, or all of an element without batches. With the bad samples of the batches.
    Rest(Vec<BadSample>),
    /// All of it, one after the other.
    Whole,
}

impl Work {
    pub(super) fn new(job: Arc<Job>) -> Work {
        let left = job.samples;
        Work { job, next: 0, retry: Vec::new(), left, running: 0, in_sequence: false, bad: Vec::new(), made: None }
    }

    pub(super) fn begun(&self) -> bool {
        self.next > 0 || self.running > 0
    }

    /// Whether there is something to do, and if so whether it is on samples.
    pub(super) fn todo(&self) -> Option<bool> {
        let samples = !self.in_sequence && (self.next < self.job.samples || !self.retry.is_empty());
        let rest = self.made.is_none() && self.running == 0 && (self.in_sequence || self.left == 0);
        (samples || rest).then_some(samples)
    }

    /// Takes the next part: at most this many samples.
    pub(super) fn claim(&mut self, at_most: usize) -> Subtask {
        self.running += 1;
        if self.in_sequence {
            // Others may have gone on stacking until now.
            drop(self.job.take_collators());
            return Subtask::Whole;
        }
        if let Some(sample) = self.retry.pop() {
            return Subtask::Samples(vec![sample]);
        }
        if self.next == self.job.samples {
            self.bad.sort_by_key(|(sample, _)| *sample);
            return Subtask::Rest(self.bad.drain(..).map(|(_, bad)| bad).collect());
        }
        let first = self.next;
        self.next = (first + at_most.max(1)).min(self.job.samples);
        Subtask::Samples((first..self.next).collect())
    }

    /// Samples that nobody began.
    pub(super) fn waiting(&self) -> usize {
        self.job.samples - self.next
    }

    pub(super) fn samples_done(&mut self, done: usize, bad: Vec<(usize, BadSample)>, retry: Vec<usize>) {
        self.left -= done;
        self.bad.extend(bad);
        self.retry.extend(retry);
    }

    pub(super) fn make_in_sequence(&mut self) {
        self.in_sequence = true;
        drop(self.job.take_collators());
    }

    /// Lets go of everything: it is to be made again.
    pub(super) fn reset(&mut self) {
        drop(self.job.take_collators());
        (self.next, self.left, self.made) = (0, self.job.samples, None);
        self.retry.clear();
        self.bad.clear();
    }
}
