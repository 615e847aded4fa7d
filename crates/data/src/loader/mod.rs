//! The loader: elements in order, out of one pool.

mod feed;

use std::sync::Arc;
use std::time::Duration;

pub use feed::Position;

use crate::dataset::Dataset;
use crate::error::{DataError, Result};
use crate::loader::feed::Feed;
use crate::make::{Bad, Maker, OnBad};
use crate::memory::{BytePool, Lease};
use crate::program::Program;
use crate::tensor::Example;

#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// All that the pipeline holds is drawn from here.
    pub pool: BytePool,
    /// Worker threads.
    pub threads: usize,
    pub seed: u64,
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

/// What was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub count: u64,
    /// The first few.
    pub first: Vec<Bad>,
}

pub struct Loader {
    program: Arc<Program>,
    feed: Feed,
    bad: OnBad,
    skipped: Skipped,
    _buffers: Lease,
}

impl Loader {
    pub fn new(dataset: &Dataset, options: LoadOptions) -> Result<Loader> {
        if options.threads == 0 {
            return Err(DataError::Pipeline("a loader with 0 threads makes nothing: give it at least 1".into()));
        }
        let program = Arc::new(Program::new(dataset, options.seed, &options.pool)?);
        let buffers = options.pool.take(program.buffers)?;
        let feed = Feed::new(program.clone(), options.start)?;
        Ok(Loader { program, feed, bad: options.bad, skipped: Skipped::default(), _buffers: buffers })
    }

    /// The next element; None at the end of an epoch, after which the next one begins.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Example>> {
        loop {
            let Some(recipe) = self.feed.pull()? else { return Ok(None) };
            let mut maker = Maker {
                program: &self.program,
                pool: &self.program.pool,
                bad: self.bad,
                skipped: Vec::new(),
                ready: Vec::new().into_iter(),
            };
            let made = maker.make(&recipe);
            let mut bad = std::mem::take(&mut maker.skipped);
            let made = match made {
                Err(DataError::Bad { place, problem }) if self.bad == OnBad::Skip => {
                    bad.push(Bad { place, problem });
                    None
                }
                made => Some(made),
            };
            self.skipped.count += bad.len() as u64;
            self.skipped.first.extend(bad);
            self.skipped.first.truncate(10);
            if let Some(made) = made {
                return made.map(Some);
            }
        }
    }

    /// Of the element that the next call gives.
    pub fn position(&self) -> Position {
        self.feed.position
    }

    pub fn pool(&self) -> &BytePool {
        &self.program.pool
    }

    /// How long calls of `next` waited so far.
    pub fn waited(&self) -> Duration {
        Duration::ZERO
    }

    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }
}
