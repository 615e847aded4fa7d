//! The loader: elements in order, made ahead on worker threads, out of one pool.

mod epochs;
mod job;
mod needs;
mod state;
mod worker;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use epochs::Position;

use crate::dataset::Dataset;
use crate::error::{BadSample, DataError, Result};
use crate::memory::{BytePool, Evictable, Lease, NoRoom};
use crate::pipeline::Pipeline;
use crate::produce::OnBad;
use crate::tensor::Example;
use epochs::Epochs;
use job::{Job, Slot};
use needs::PrefetchDepth;
use state::State;
use worker::Shared;

/// How a [`Loader`] runs. None of it but the seed and the start changes what comes out.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// All that the pipeline holds is drawn from here.
    pub pool: BytePool,
    /// Worker threads, at least 1.
    pub threads: usize,
    /// The seed of shuffles and of map functions that draw random numbers.
    pub seed: u64,
    /// What becomes of bad samples.
    pub bad: OnBad,
    /// Where to begin: the position of a checkpoint.
    pub start: Position,
}

impl LoadOptions {
    /// All cores, seed 0, from the beginning, bad samples are errors.
    pub fn new(pool: BytePool) -> LoadOptions {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        LoadOptions { pool, threads, seed: 0, bad: OnBad::Fail, start: Position::default() }
    }
}

/// The bad samples that were left out, each counted once however many epochs met it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedSamples {
    /// How many.
    pub count: u64,
    /// The first few of them.
    pub first: Vec<BadSample>,
}

/// Produces the elements of a dataset in order, epoch after epoch, ahead of the consumer on worker threads: the iterator
/// of tf.data, the `DataLoader` of PyTorch. The same dataset, seed and position give the same elements for every number
/// of threads and every size of the pool. Dropping it ends its threads.
///
/// All that the pipeline holds is drawn from one [`BytePool`]. What finds no room waits, caches give their memory back,
/// and what was produced ahead is dropped and produced again; a pool in which one element has room by itself is enough.
///
/// Not drawn from the pool: the stacks of the threads, the recipes of elements in flight (some tens of bytes a sample),
/// names and types of tensors, and what [`Tensors`](crate::Tensors) and functions of the pipeline hold by themselves.
///
/// ```
#[doc = include_str!("../doc/dataset.txt")]
/// let dataset = numbers(0..4)?.batch(2, Remainder::Drop);
/// let mut loader = Loader::new(&dataset, LoadOptions { threads: 2, ..LoadOptions::new(BytePool::new(4096)) })?;
/// for epoch in 0..3 {
///     assert_eq!(loader.position().epoch, epoch);
///     while let Some(batch) = loader.next()? {
///         assert_eq!(batch.get("x")?.ty().to_string(), "f32[2]");
///     }
/// }
/// assert!(loader.pool().high_water() <= 4096);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "DataLoader")]
pub struct Loader {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Of the element that the next call gives.
    position: Position,
    /// Elements given and left out since the epoch began; None if it began before this loader.
    epoch: Option<(u64, u64)>,
    waited: Duration,
    skipped: SkippedSamples,
    /// Which bad samples were counted.
    seen_bad: HashSet<u64>,
    shuffle_lease: Lease,
    /// Nobody waits for its threads.
    abandoned: bool,
}

/// What [`Loader::next_unless`] gives.
#[derive(Debug)]
pub enum Next {
    /// The next element.
    Element(Example),
    /// The end of an epoch, after which the next one begins.
    End,
    /// Neither came before it was told to stop waiting.
    Stopped,
}

/// So often who waits for an element is asked whether to go on.
const PATIENCE: Duration = Duration::from_millis(50);

/// So many bad samples are listed by name.
const MAX_LISTED: usize = 10;
/// So many bad elements in a row are taken for the whole dataset being bad.
const BAD_IN_A_ROW: u64 = 10_000;

impl Loader {
    /// Checks the verbs of a dataset and starts the worker threads. Nothing is read before an element is asked for, or
    /// the pipeline prefetches.
    ///
    /// # Errors
    /// [`DataError::Pipeline`] for verbs with wrong numbers and for a start behind the end of its epoch,
    /// [`DataError::PoolTooSmall`] where shuffle buffers have no room, [`DataError::Source`] and [`DataError::Io`] for
    /// the file of a cache.
    pub fn new(dataset: &Dataset, options: LoadOptions) -> Result<Loader> {
        if options.threads == 0 {
            return Err(DataError::Pipeline("a loader with 0 threads makes nothing: give it at least 1".into()));
        }
        let pipeline = Pipeline::new(dataset, options.seed, &options.pool)?;
        let shuffle_lease = options.pool.reserve(pipeline.shuffle_bytes).map_err(|e| DataError::PoolTooSmall {
            limit: options.pool.limit(),
            needed: e.used.saturating_add(e.wanted),
            what: format!("a pipeline whose shuffle buffers hold {} bytes of recipes", pipeline.shuffle_bytes),
        })?;
        let epochs = Epochs::new(&pipeline, options.start)?;
        let state = State::new(epochs, PrefetchDepth::new(pipeline.prefetch), options.threads);
        let mut loader = Loader {
            shared: Arc::new(Shared::new(pipeline, options.bad, state)),
            workers: Vec::new(),
            position: options.start,
            epoch: (options.start.element == 0).then_some((0, 0)),
            waited: Duration::ZERO,
            skipped: SkippedSamples::default(),
            seen_bad: HashSet::new(),
            shuffle_lease,
            abandoned: false,
        };
        let shared: Arc<dyn Evictable> = loader.shared.clone();
        options.pool.add_evictable(Arc::downgrade(&shared));
        for index in 0..options.threads {
            let (shared, name) = (loader.shared.clone(), format!("memfit-data-{index}"));
            let worker = std::thread::Builder::new().name(name).spawn(move || shared.work());
            loader.workers.push(worker.map_err(|e| {
                DataError::Pipeline(format!("cannot start worker thread {index}: {e}; use fewer threads"))
            })?);
        }
        Ok(loader)
    }

    /// The next element; None at the end of an epoch, after which the next epoch begins.
    ///
    /// # Errors
    /// Whatever sources and map functions refuse, in the order of the elements. After an error the next call goes on
    /// behind it, but for [`DataError::PoolTooSmall`]: the element is tried again, for bytes may have come back.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end with the first epoch")]
    pub fn next(&mut self) -> Result<Option<Example>> {
        match self.next_unless(&mut || false)? {
            Next::Element(example) => Ok(Some(example)),
            Next::End => Ok(None),
            Next::Stopped => unreachable!("nobody stops it"),
        }
    }

    /// The same for somebody who does not want to wait for ever, as for a file on a disk that is gone: `stop` is asked
    /// from time to time while the element is not there.
    ///
    /// # Errors
    /// As [`Loader::next`].
    pub fn next_unless(&mut self, stop: &mut dyn FnMut() -> bool) -> Result<Next> {
        loop {
            let Some(slot) = self.wait(stop)? else { return Ok(Next::Stopped) };
            let (made, bad) = match slot {
                Slot::Element(work) => {
                    self.position = work.job.position.next();
                    work.made.unwrap_or_else(|| unreachable!("it is done"))
                }
                Slot::End(position) => {
                    self.position = position.next_epoch();
                    return self.end_epoch(position).map(|()| Next::End);
                }
                Slot::Failed(position, error) => {
                    self.position = position.next_epoch();
                    self.epoch = Some((0, 0));
                    return error.map_or(Ok(Next::End), Err);
                }
            };
            bad.into_iter().for_each(|bad| self.record_skipped(bad));
            match made {
                Err(DataError::Bad(bad)) if self.shared.on_bad == OnBad::Skip => self.skip_element(bad)?,
                made => {
                    self.epoch = self.epoch.map(|(given, _)| (given + 1, 0));
                    return made.map(Next::Element);
                }
            }
        }
    }

    /// Lets go of what was prefetched, and produces nothing until the next call of [`Loader::next`]: for a time in which
    /// others need the pool, such as an evaluation. Nothing is lost but work. Its caches keep what they have until another
    /// loader of the pool finds no room, as at any time.
    pub fn pause(&mut self) {
        self.pause_unless(&mut || false);
    }

    /// The same, unless `stop` says while a thread is still at work that it is not to be waited for; whether it is
    /// paused.
    pub fn pause_unless(&mut self, stop: &mut dyn FnMut() -> bool) -> bool {
        let pool = &self.shared.pipeline.pool;
        loop {
            let seen = pool.events();
            let mut state = self.shared.state();
            state.paused = true;
            if state.drop_finished() {
                return true;
            }
            drop(state);
            if pool.wait_at_most(seen, PATIENCE) && stop() {
                return false;
            }
        }
    }

    /// Ends it without waiting for its threads, of which one may never come back: each ends when it is done with the
    /// element it is at, and only then gives back what it holds of the pool.
    pub fn abandon(mut self) {
        self.abandoned = true;
    }

    /// The position of the element which the next call gives: what a checkpoint keeps.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Where the first sample of an element comes from that has a NaN or an infinity, and in which field: for a message
    /// when a loss is not finite. The samples are produced again for it. None where that cannot be told: of a generator,
    /// or for want of room.
    pub fn find_non_finite(&mut self, element: Position) -> Option<(String, String)> {
        self.pause();
        let (shared, pipeline) = (&self.shared, &self.shared.pipeline);
        if pipeline.has_generator {
            return None;
        }
        let recipe = Epochs::new(pipeline, element).ok()?.next_recipe(pipeline).ok()??;
        let job = Job::new(element, recipe, pipeline);
        let mut items = job.batches().into_iter().flat_map(|batch| &batch.items);
        items.find_map(|item| {
            let example = shared.produce(item)?;
            let field = example.fields.into_iter().find(|(_, tensor)| !tensor.is_finite());
            field.map(|(name, _)| (pipeline.location(item), name))
        })
    }

    /// The pool from which everything is drawn.
    pub fn pool(&self) -> &BytePool {
        &self.shared.pipeline.pool
    }

    /// Whether it has a cache that is to be kept in a file and is not whole yet: it is when every element was made once.
    pub fn has_unfinished_file(&self) -> bool {
        self.shared.pipeline.has_unfinished_file()
    }

    /// How long calls of [`Loader::next`] waited so far: time in which the data were slower than the consumer.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long its threads waited so far, on average: time in which the consumer, or want of room, held them up.
    pub fn idle(&self) -> Duration {
        let threads = self.workers.len().max(1) as u64;
        Duration::from_nanos(self.shared.idle.load(Ordering::Relaxed) / threads)
    }

    /// Threads that produce elements.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// The bad samples that were left out of the elements given so far.
    pub fn skipped(&self) -> &SkippedSamples {
        &self.skipped
    }

    /// The oldest element, when it is there; none if nobody wants to wait for it.
    fn wait(&mut self, stop: &mut dyn FnMut() -> bool) -> Result<Option<Slot>> {
        let (shared, pool) = (&*self.shared, &self.shared.pipeline.pool);
        let mut since = None;
        loop {
            let seen = pool.events();
            let mut state = shared.state();
            if since.is_none() {
                let ready = state.queue.iter().take_while(|slot| slot.is_done()).count();
                let room = state.has_room(pool);
                state.depth.on_request(ready, room);
            }
            let done = state.queue.front().is_some_and(Slot::is_done).then(|| state.queue.pop_front()).flatten();
            let blocked = state.blocked(&shared.pipeline);
            let news = done.is_some() || !state.asked || state.paused;
            state.asked = done.is_none() && blocked.is_none();
            state.expects_progress = state.asked;
            state.paused = false;
            drop(state);
            if news {
                pool.notify();
            }
            if let Some(slot) = done {
                self.waited += since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                return Ok(Some(slot));
            }
            if let Some(no_room) = blocked {
                return Err(self.pool_too_small(no_room));
            }
            since.get_or_insert_with(Instant::now);
            if pool.wait_at_most(seen, PATIENCE) && stop() {
                return Ok(None);
            }
        }
    }

    fn pool_too_small(&self, no_room: NoRoom) -> DataError {
        let (Position { epoch, element }, pool) = (self.position, self.pool());
        let ours = self.shared.state().others(&self.shared.pipeline);
        let held = ours.saturating_sub(self.shuffle_lease.bytes()).saturating_sub(self.shared.pipeline.cache_bytes());
        let beside = match held {
            0 => String::new(),
            held => format!(", beside {held} bytes that others hold (elements given out before, for one),"),
        };
        DataError::PoolTooSmall {
            limit: pool.limit(),
            needed: no_room.used.saturating_add(no_room.wanted),
            what: format!("element {} of epoch {}{beside}", element + 1, epoch + 1),
        }
    }

    fn record_skipped(&mut self, bad: BadSample) {
        let mut hasher = DefaultHasher::new();
        bad.hash(&mut hasher);
        if self.seen_bad.insert(hasher.finish()) {
            self.skipped.count += 1;
            if self.skipped.first.len() < MAX_LISTED {
                self.skipped.first.push(bad);
            }
        }
    }

    fn skip_element(&mut self, bad: BadSample) -> Result<()> {
        self.record_skipped(bad.clone());
        let (given, missed) = self.epoch.unwrap_or((1, 0));
        self.epoch = Some((given, missed + 1));
        if missed + 1 < BAD_IN_A_ROW {
            return Ok(());
        }
        Err(DataError::TooManyBad { last: bad, before: missed })
    }

    /// An epoch of which every element was left out is an error, not a short epoch.
    fn end_epoch(&mut self, end: Position) -> Result<()> {
        match (self.epoch.replace((0, 0)), self.skipped.first.first()) {
            (Some((0, 1..)), Some(first)) => Err(DataError::NothingGood { epoch: end.epoch + 1, first: first.clone() }),
            _ => Ok(()),
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.pipeline.pool.notify();
        for worker in self.workers.drain(..).filter(|_| !self.abandoned) {
            // What a worker runs of others' code is guarded, so that joining cannot fail.
            let _ = worker.join();
        }
    }
}
