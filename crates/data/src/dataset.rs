//! The verbs. A [`Dataset`] is a description: making one reads nothing and checks nothing; the
//! [`Loader`](crate::Loader) does both. It is cheap to clone, and a clone in two places of a pipeline is two
//! independent parts of it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::context::Context;
use crate::count::Count;
use crate::error::Result;
use crate::memory::BytePool;
use crate::plain::{FromFn, Tensors};
use crate::source::Source;
use crate::tensor::Example;

#[derive(Clone)]
pub struct Dataset {
    pub(crate) verb: Arc<Verb>,
}

pub(crate) type MapFn = dyn Fn(Example, &Context) -> Result<Example> + Send + Sync;
pub(crate) type Items = Box<dyn Iterator<Item = Result<Tensors>> + Send>;
pub(crate) type Generate = dyn Fn() -> Items + Send + Sync;

pub(crate) enum Verb {
    Rows(Arc<dyn Source>),
    Generator(Arc<Generate>),
    Map { input: Dataset, f: Arc<MapFn>, key: u64 },
    Shuffle { input: Dataset, buffer: usize },
    Batch { input: Dataset, size: usize, remainder: Remainder },
    Cache { input: Dataset, cache: Cache },
    Prefetch { input: Dataset, depth: Prefetch },
    Repeat { input: Dataset, times: Option<usize> },
    Take { input: Dataset, count: usize },
    Skip { input: Dataset, count: usize },
    Zip { inputs: [Dataset; 2] },
    Interleave { inputs: Vec<Dataset>, block: usize },
}

/// What becomes of the samples at the end that do not fill a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// A shorter batch.
    Keep,
    /// Nothing: all batches have the same shape.
    Drop,
}

/// How many finished elements may wait for the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// As many as are needed: more when the consumer finds nothing ready and the pool has room, fewer when it never
    /// does.
    Auto,
    /// This many, if the pool has room. With 0, work begins when the consumer asks.
    Depth(usize),
}

/// Where finished elements are kept for the next epoch.
#[derive(Clone, Debug)]
pub enum Cache {
    /// In what the pool has left beside the work in flight, and then in a temporary file of at most `spill` bytes,
    /// which is gone with the loader.
    Memory { spill: u64 },
    /// In a file of at most `limit` bytes that later runs read. It appears under this name when all elements are in it,
    /// and is used again if what can be told of the pipeline is the same: the verbs, their numbers, the fingerprints of
    /// the sources, and the seed where random numbers were drawn. A change inside of a map function cannot be told:
    /// give it another path.
    Disk { path: PathBuf, limit: u64 },
}

impl Cache {
    /// In memory, the rest in a temporary file without a limit.
    pub fn memory() -> Cache {
        Cache::Memory { spill: u64::MAX }
    }

    pub fn disk(path: impl Into<PathBuf>) -> Cache {
        Cache::Disk { path: path.into(), limit: u64::MAX }
    }

    /// Bounds what lies on disk. What fits nowhere is made again each time.
    pub fn limit(self, bytes: u64) -> Cache {
        match self {
            Cache::Memory { .. } => Cache::Memory { spill: bytes },
            Cache::Disk { path, .. } => Cache::Disk { path, limit: bytes },
        }
    }
}

impl Dataset {
    /// The rows of a source, in order.
    pub fn from_source(source: impl Source + 'static) -> Dataset {
        Dataset::new(Verb::Rows(Arc::new(source)))
    }

    /// The rows of a table: row i is the i-th slice of each tensor along its first axis, which all must share.
    pub fn from_tensors(tensors: Tensors) -> Result<Dataset> {
        Ok(Dataset::from_source(tensors.rows()?))
    }

    /// `len` elements that a function makes, each from its number. It draws what it holds from the pool.
    pub fn from_fn<F>(len: usize, f: F) -> Dataset
    where
        F: Fn(usize, &BytePool) -> Result<Example> + Send + Sync + 'static,
    {
        Dataset::from_source(FromFn { len, f })
    }

    /// What an iterator gives, one after the other. `make` is called for every epoch and must give the same items each
    /// time: resuming runs it up to the place, and so may a pool that has become too small for what was begun. An item
    /// is in the memory of its maker until the pool has room for it, so that one item at a time stands beside the pool.
    #[expect(clippy::should_implement_trait, reason = "the name says what it does; the trait could not make epochs")]
    pub fn from_iter<I>(make: impl Fn() -> I + Send + Sync + 'static) -> Dataset
    where
        I: Iterator<Item = Result<Tensors>> + Send + 'static,
    {
        Dataset::new(Verb::Generator(Arc::new(move || -> Items { Box::new(make()) })))
    }

    /// One element of each in turn (`block` of them), going on with the rest when one ends.
    pub fn interleave(inputs: Vec<Dataset>, block: usize) -> Dataset {
        Dataset::new(Verb::Interleave { inputs, block })
    }

    /// Applies a function to every element, on all threads, in order. It must be pure: the same example and context
    /// give the same result, for it may be run again. Random numbers come from [`Context::random`].
    pub fn map(self, f: impl Fn(Example, &Context) -> Result<Example> + Send + Sync + 'static) -> Dataset {
        self.map_keyed(0, f)
    }

    /// A [`map`](Dataset::map) that says what it does, for caches on disk behind it: they are made anew when the key is
    /// another one than that they were made with. Nothing else can be told of a function from outside, so that the key
    /// should be drawn from all the numbers that the function was made with.
    pub fn map_keyed(
        self,
        key: u64,
        f: impl Fn(Example, &Context) -> Result<Example> + Send + Sync + 'static,
    ) -> Dataset {
        Dataset::new(Verb::Map { input: self, f: Arc::new(f), key })
    }

    /// Draws each element from the next `buffer` ones: a buffer of that many is filled, one of it is drawn with equal
    /// chances, and the next takes its place. A buffer as long as the input gives every order with equal chances. It
    /// holds recipes, not data: 16 bytes for a row and about 50 more for each map before it. Every epoch has its own
    /// order.
    pub fn shuffle(self, buffer: usize) -> Dataset {
        Dataset::new(Verb::Shuffle { input: self, buffer })
    }

    /// `size` elements as one, stacked along a new first axis.
    pub fn batch(self, size: usize, remainder: Remainder) -> Dataset {
        Dataset::new(Verb::Batch { input: self, size, remainder })
    }

    /// Keeps what is made. What stands before a cache always runs as in epoch 0, cached or not: every epoch gets what
    /// the first one got.
    pub fn cache(self, cache: Cache) -> Dataset {
        Dataset::new(Verb::Cache { input: self, cache })
    }

    /// How many finished elements may wait. The last one in a pipeline counts, and only behind the last batch; one
    /// further inside changes nothing, for nothing is made before it is asked for. Without any it is 1.
    pub fn prefetch(self, depth: Prefetch) -> Dataset {
        Dataset::new(Verb::Prefetch { input: self, depth })
    }

    /// The input `times` over, or without end. Each time is an epoch of its own for what stands before.
    pub fn repeat(self, times: Option<usize>) -> Dataset {
        Dataset::new(Verb::Repeat { input: self, times })
    }

    /// The first `count` elements.
    pub fn take(self, count: usize) -> Dataset {
        Dataset::new(Verb::Take { input: self, count })
    }

    /// All but the first `count` elements.
    pub fn skip(self, count: usize) -> Dataset {
        Dataset::new(Verb::Skip { input: self, count })
    }

    /// Puts elements of two datasets together, up to the end of the shorter one. No field name may be in both.
    pub fn zip(self, other: Dataset) -> Dataset {
        Dataset::new(Verb::Zip { inputs: [self, other] })
    }

    /// How many elements an epoch has. None for one without end, and for what only running it tells.
    pub fn len(&self) -> Option<usize> {
        match self.count() {
            Count::Exact(n) => usize::try_from(n).ok(),
            Count::Unknown | Count::Endless => None,
        }
    }

    /// Whether an epoch has no elements, where that is known.
    pub fn is_empty(&self) -> Option<bool> {
        match self.count() {
            Count::Exact(n) => Some(n == 0),
            Count::Endless => Some(false),
            Count::Unknown => None,
        }
    }

    fn new(verb: Verb) -> Dataset {
        Dataset { verb: Arc::new(verb) }
    }
}
