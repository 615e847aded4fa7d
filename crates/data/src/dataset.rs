//! The verbs, which describe a pipeline and do nothing. `pipeline.rs` checks them, the loader runs them.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cardinality::Cardinality;
use crate::context::Context;
use crate::error::Result;
use crate::in_memory::{FromFn, Tensors};
use crate::memory::BytePool;
use crate::source::Source;
use crate::tensor::Example;

/// A pipeline of verbs over a source, after [`tf.data.Dataset`](https://www.tensorflow.org/api_docs/python/tf/data/Dataset).
///
/// A dataset is a description: making one reads nothing and checks nothing; the [`Loader`](crate::Loader) does both. It
/// is cheap to clone, and a clone in two branches of a pipeline is two independent parts of it. Elements are
/// [`Example`]s: tensors under names.
///
/// The examples of the verbs use two small functions: `numbers(0..4)?` is a dataset of the scalars 0, 1, 2 and 3 in the
/// field `x`, and `epoch(&dataset)?` collects `x` of each element of one epoch.
///
/// ```
/// use memfit_data::{BytePool, Dataset, LoadOptions, Loader, Result, Tensors};
/// use memfit_ir::TensorType;
///
/// fn numbers(values: std::ops::Range<i32>) -> Result<Dataset> {
///     let values: Vec<f32> = values.map(|value| value as f32).collect();
///     Dataset::from_tensors(Tensors::new().with("x", TensorType::f32([values.len()]), values)?)
/// }
///
/// fn epoch(dataset: &Dataset) -> Result<Vec<Vec<f32>>> {
///     let mut loader = Loader::new(dataset, LoadOptions::new(BytePool::new(1 << 16)))?;
///     let mut elements = Vec::new();
///     while let Some(element) = loader.next()? {
///         elements.push(element.get("x")?.f32s().to_vec());
///     }
///     Ok(elements)
/// }
///
/// assert_eq!(epoch(&numbers(0..4)?)?, [[0.0], [1.0], [2.0], [3.0]]);
/// # Ok::<(), memfit_data::DataError>(())
/// ```
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
    Map {
        input: Dataset,
        f: Arc<MapFn>,
        key: u64,
    },
    Shuffle {
        input: Dataset,
        buffer: usize,
    },
    /// Of each batch, only some rows are made. A bad sample is replaced by another one of its lane, of so many rows.
    Batch {
        input: Dataset,
        size: usize,
        remainder: Remainder,
        rows: Range<usize>,
        lane: usize,
    },
    Cache {
        input: Dataset,
        cache: Cache,
    },
    Prefetch {
        input: Dataset,
        depth: Prefetch,
    },
    Repeat {
        input: Dataset,
        times: Option<usize>,
    },
    Take {
        input: Dataset,
        count: usize,
    },
    Skip {
        input: Dataset,
        count: usize,
    },
    Shard {
        input: Dataset,
        count: usize,
        index: usize,
    },
    Zip {
        inputs: [Dataset; 2],
    },
    Interleave {
        inputs: Vec<Dataset>,
        block: usize,
    },
}

/// What becomes of the samples at the end of an epoch that do not fill a batch: `drop_remainder` of tf.data, `drop_last`
/// of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// They are a shorter batch.
    Keep,
    /// They are left out: all batches have the same shape.
    Drop,
}

/// How many finished elements may wait for the consumer: the size of the prefetch buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// As many as are needed (`tf.data.AUTOTUNE`): more when the consumer finds nothing ready and the pool has room,
    /// fewer when it never does.
    Auto,
    /// This many, if the pool has room. With 0, work begins when the consumer asks.
    Depth(usize),
}

/// Where finished elements are kept for the next epoch.
#[derive(Clone, Debug)]
pub enum Cache {
    /// In what the pool has left beside the work in flight, and then in a temporary file of at most `spill` bytes,
    /// which is gone with the loader.
    Memory {
        /// The most bytes of the temporary file; what fits neither there nor in memory is produced again each epoch.
        spill: u64,
    },
    /// In a file of at most `limit` bytes that later runs read. It appears under this name when all elements are in it,
    /// and is used again if what can be told of the pipeline is the same: the verbs, their numbers, the fingerprints of
    /// the sources, and the seed where random numbers were drawn. A change inside of a map function cannot be told:
    /// give it another path.
    Disk {
        /// The file.
        path: PathBuf,
        /// The most bytes of the file; what does not fit is produced again each epoch.
        limit: u64,
    },
}

impl Cache {
    /// In memory, the rest in a temporary file without a limit.
    pub fn memory() -> Cache {
        Cache::Memory { spill: u64::MAX }
    }

    /// In a file that later runs read too, without a limit.
    pub fn disk(path: impl Into<PathBuf>) -> Cache {
        Cache::Disk { path: path.into(), limit: u64::MAX }
    }

    /// Bounds what lies on disk, in bytes. What fits nowhere is produced again each epoch.
    pub fn limit(self, bytes: u64) -> Cache {
        match self {
            Cache::Memory { .. } => Cache::Memory { spill: bytes },
            Cache::Disk { path, .. } => Cache::Disk { path, limit: bytes },
        }
    }
}

impl Dataset {
    /// The rows of a source, in order: a file format of [`sources`](crate::sources), or a [`Source`] of one's own.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let files = sources::ImageFiles::open("tests/fixtures", &BytePool::new(1 << 20))?;
    /// assert_eq!(Dataset::from_source(files).take(2).len(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_source(source: impl Source + 'static) -> Dataset {
        Dataset::new(Verb::Rows(Arc::new(source)))
    }

    /// The rows of tensors in memory: row i is the i-th slice of each tensor along its first axis, which all must share.
    /// `tf.data.Dataset.from_tensor_slices`.
    ///
    /// # Errors
    /// [`DataError::Pipeline`](crate::DataError::Pipeline) where the first extents differ, or a row is no whole number
    /// of bytes.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let table = Tensors::new()
    ///     .with("x", TensorType::f32([3, 2]), vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?
    ///     .with("y", TensorType::i32([3]), vec![0, 1, 0])?;
    /// let dataset = Dataset::from_tensors(table)?;
    /// assert_eq!(epoch(&dataset)?, [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "from_tensor_slices")]
    pub fn from_tensors(tensors: Tensors) -> Result<Dataset> {
        Ok(Dataset::from_source(tensors.rows()?))
    }

    /// `len` elements that a function produces, each from its index. It draws what it holds from the pool.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let squares = Dataset::from_fn(4, |index, pool| {
    ///     let mut x = Tensor::zeros(TensorType::f32([]), pool)?;
    ///     x.f32s_mut().fill((index * index) as f32);
    ///     Ok(Example::default().with("x", x))
    /// });
    /// assert_eq!(epoch(&squares)?, [[0.0], [1.0], [4.0], [9.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_fn<F>(len: usize, f: F) -> Dataset
    where
        F: Fn(usize, &BytePool) -> Result<Example> + Send + Sync + 'static,
    {
        Dataset::from_source(FromFn { len, f })
    }

    /// What an iterator gives, one after the other: `tf.data.Dataset.from_generator`. `make` is called for every epoch
    /// and must give the same items each time: resuming runs the iterator up to the position, and so may a pool that has
    /// become too small for what was begun. An item is in its own memory until the pool has room for it, so that one
    /// item at a time stands outside of the pool.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let halves = Dataset::from_iter(|| {
    ///     (0..3).map(|i| Tensors::new().with("x", TensorType::f32([]), vec![i as f32 / 2.0]))
    /// });
    /// assert_eq!(epoch(&halves)?, [[0.0], [0.5], [1.0]]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "from_generator")]
    #[expect(clippy::should_implement_trait, reason = "the name says what it does; the trait could not make epochs")]
    pub fn from_iter<I>(make: impl Fn() -> I + Send + Sync + 'static) -> Dataset
    where
        I: Iterator<Item = Result<Tensors>> + Send + 'static,
    {
        Dataset::new(Verb::Generator(Arc::new(move || -> Items { Box::new(make()) })))
    }

    /// `block` elements of each dataset in turn (`block_length` of tf.data), going on with the rest when one ends.
    /// Datasets are read in turn, not at random.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let both = Dataset::interleave(vec![numbers(0..4)?, numbers(10..12)?], 1);
    /// assert_eq!(epoch(&both)?.concat(), [0.0, 10.0, 1.0, 11.0, 2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn interleave(inputs: Vec<Dataset>, block: usize) -> Dataset {
        Dataset::new(Verb::Interleave { inputs, block })
    }

    /// Applies a function to every element, on all worker threads, keeping the order (`num_parallel_calls` of tf.data is
    /// the loader's [`threads`](crate::LoadOptions::threads)). The function must be pure: the same example and context
    /// give the same result, for it may be run again. Random numbers come from [`Context::random`], memory from
    /// [`Context::pool`]. [`augment`](crate::augment) has functions for images.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let doubled = numbers(0..3)?.map(|mut example, _context| {
    ///     example.get_mut("x")?.f32s_mut().iter_mut().for_each(|x| *x *= 2.0);
    ///     Ok(example)
    /// });
    /// assert_eq!(epoch(&doubled)?, [[0.0], [2.0], [4.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn map(self, f: impl Fn(Example, &Context) -> Result<Example> + Send + Sync + 'static) -> Dataset {
        self.map_keyed(0, f)
    }

    /// A [`map`](Dataset::map) with a key for the caches on disk behind it: a cache that was written under another key is
    /// written anew. Nothing else can be told of a function from outside, so the key should be a hash of all the numbers
    /// that the function was made with.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let scale = 3.0f32;
    /// let scaled = numbers(0..3)?.map_keyed(scale.to_bits().into(), move |mut example, _context| {
    ///     example.get_mut("x")?.f32s_mut().iter_mut().for_each(|x| *x *= scale);
    ///     Ok(example)
    /// });
    /// assert_eq!(epoch(&scaled)?, [[0.0], [3.0], [6.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn map_keyed(
        self,
        key: u64,
        f: impl Fn(Example, &Context) -> Result<Example> + Send + Sync + 'static,
    ) -> Dataset {
        Dataset::new(Verb::Map { input: self, f: Arc::new(f), key })
    }

    /// Shuffles with a buffer of `buffer` elements, as tf.data does: the buffer is filled, one element of it is drawn
    /// uniformly, and the next of the input takes its place. A buffer as long as the input is a uniform shuffle. Every
    /// epoch has its own order, which depends on the seed and the epoch alone (`reshuffle_each_iteration`).
    ///
    /// The buffer holds recipes, not data: 16 bytes for a row and about 50 more for each map before it, so that
    /// shuffling a million images takes no more than their names.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let shuffled = numbers(0..100)?.shuffle(100);
    /// let mut order = epoch(&shuffled)?.concat();
    /// assert_eq!(order, epoch(&shuffled)?.concat(), "the same seed and epoch");
    /// assert!(!order.is_sorted());
    /// order.sort_by(f32::total_cmp);
    /// assert_eq!(order, epoch(&numbers(0..100)?)?.concat());
    /// # Ok(())
    /// # }
    /// ```
    pub fn shuffle(self, buffer: usize) -> Dataset {
        Dataset::new(Verb::Shuffle { input: self, buffer })
    }

    /// Collates `size` elements into one, field by field along a new first axis. All must have the same fields with the
    /// same types. Bad samples that are left out ([`OnBad::Skip`](crate::OnBad::Skip)) make a batch shorter, or with
    /// [`Remainder::Drop`] are replaced by the next good sample of the batch.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let numbers = numbers(0..5)?;
    /// let kept = numbers.clone().batch(2, Remainder::Keep);
    /// assert_eq!(epoch(&kept)?, [vec![0.0, 1.0], vec![2.0, 3.0], vec![4.0]]);
    /// let dropped = numbers.batch(2, Remainder::Drop);
    /// assert_eq!(epoch(&dropped)?, [[0.0, 1.0], [2.0, 3.0]]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "collate")]
    pub fn batch(self, size: usize, remainder: Remainder) -> Dataset {
        Dataset::new(Verb::Batch { input: self, size, remainder, rows: 0..size, lane: size })
    }

    /// The same rows of every batch, as one of several replicas has them that share each batch: all see the same batches in the
    /// same order, and each makes only its own part. What does not fill a batch is dropped.
    ///
    /// A batch is lanes of `lane` rows each, and a replica has whole ones. A bad sample that is left out
    /// ([`OnBad::Skip`](crate::OnBad::Skip)) is replaced by the next good one of its lane, so that a row is the same for every
    /// number of replicas; a lane without a good one is an error. One lane, as long as the batch, is
    /// [`batch`](Dataset::batch).
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let numbers = numbers(0..13)?;
    /// let [first, second] = [0..2, 2..6].map(|rows| numbers.clone().batch_rows(6, rows, 2));
    /// assert_eq!(epoch(&first)?, [[0.0, 1.0], [6.0, 7.0]]);
    /// assert_eq!(epoch(&second)?, [[2.0, 3.0, 4.0, 5.0], [8.0, 9.0, 10.0, 11.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch_rows(self, size: usize, rows: Range<usize>, lane: usize) -> Dataset {
        Dataset::new(Verb::Batch { input: self, size, remainder: Remainder::Drop, rows, lane })
    }

    /// Keeps the elements of the first epoch for those that follow, in memory or on disk; see [`Cache`]. What stands
    /// before a cache always runs as in epoch 0, cached or not: every epoch gets what the first one got. So random
    /// augmentations and [`shuffle`](Dataset::shuffle) belong behind it.
    ///
    /// A cache never fails and is never in the way: its memory goes back to the pool when elements in flight need it, and
    /// what it lacks is produced again.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let calls = Arc::new(AtomicUsize::new(0));
    /// let counted = calls.clone();
    /// let dataset = numbers(0..3)?
    ///     .map(move |example, _context| {
    ///         counted.fetch_add(1, Ordering::Relaxed);
    ///         Ok(example)
    ///     })
    ///     .cache(Cache::memory());
    /// let mut loader = Loader::new(&dataset, LoadOptions::new(BytePool::new(1 << 16)))?;
    /// for _epoch in 0..4 {
    ///     while loader.next()?.is_some() {}
    /// }
    /// assert_eq!(calls.load(Ordering::Relaxed), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache(self, cache: Cache) -> Dataset {
        Dataset::new(Verb::Cache { input: self, cache })
    }

    /// How many finished elements may wait for the consumer. The last `prefetch` in a pipeline counts, and only behind
    /// the last batch; one further inside changes nothing, for nothing is produced before it is asked for. Without any it
    /// is [`Prefetch::Depth`]`(1)`.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let dataset = numbers(0..4)?.batch(2, Remainder::Keep).prefetch(Prefetch::Auto);
    /// assert_eq!(epoch(&dataset)?, [[0.0, 1.0], [2.0, 3.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefetch(self, depth: Prefetch) -> Dataset {
        Dataset::new(Verb::Prefetch { input: self, depth })
    }

    /// The input `times` over, or with None without end. Each repetition is an epoch of its own for what stands before: a
    /// shuffle has another order in each.
    ///
    /// A loader goes on with the next epoch by itself, so that `repeat` is not needed to train for several epochs.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// assert_eq!(epoch(&numbers(0..2)?.repeat(Some(2)))?.concat(), [0.0, 1.0, 0.0, 1.0]);
    /// assert_eq!(epoch(&numbers(0..2)?.repeat(None).take(3))?.concat(), [0.0, 1.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn repeat(self, times: Option<usize>) -> Dataset {
        Dataset::new(Verb::Repeat { input: self, times })
    }

    /// The first `count` elements of an epoch, or all where there are fewer.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// assert_eq!(epoch(&numbers(0..4)?.take(2))?, [[0.0], [1.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn take(self, count: usize) -> Dataset {
        Dataset::new(Verb::Take { input: self, count })
    }

    /// All but the first `count` elements of an epoch. They are passed over, not produced; only a generator has to be run
    /// for that.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// assert_eq!(epoch(&numbers(0..4)?.skip(2))?, [[2.0], [3.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn skip(self, count: usize) -> Dataset {
        Dataset::new(Verb::Skip { input: self, count })
    }

    /// Every `count`-th element of an epoch, from that of this index on: `tf.data.Dataset.shard`. The others are passed over, not
    /// produced; only a generator has to be run for that. Behind a [`batch`](Dataset::batch), elements are batches: so several
    /// replicas deal out a test set, and none of its rows is left out or seen twice.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let batches = numbers(0..5)?.batch(2, Remainder::Keep);
    /// assert_eq!(epoch(&batches.clone().shard(2, 0))?, [vec![0.0, 1.0], vec![4.0]]);
    /// assert_eq!(epoch(&batches.shard(2, 1))?, [[2.0, 3.0]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shard(self, count: usize, index: usize) -> Dataset {
        Dataset::new(Verb::Shard { input: self, count, index })
    }

    /// Joins the elements of two datasets, up to the end of the shorter one: an element has the fields of both. No field
    /// name may be in both, which is an error when the first element is produced.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// let labels = Tensors::new().with("y", TensorType::i32([2]), vec![7, 8])?;
    /// let pairs = numbers(0..3)?.zip(Dataset::from_tensors(labels)?);
    /// let mut loader = Loader::new(&pairs, LoadOptions::new(BytePool::new(1 << 16)))?;
    /// let first = loader.next()?.expect("there are two");
    /// assert_eq!((first.get("x")?.f32s(), first.get("y")?.bytes()), (&[0.0][..], &7i32.to_le_bytes()[..]));
    /// assert_eq!(pairs.len(), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn zip(self, other: Dataset) -> Dataset {
        Dataset::new(Verb::Zip { inputs: [self, other] })
    }

    /// How many elements an epoch has: `tf.data.Dataset.cardinality`. None for one without end, and for a generator, of
    /// which only running it tells.
    ///
    /// ```
    #[doc = include_str!("doc/dataset.txt")]
    /// assert_eq!(numbers(0..5)?.batch(2, Remainder::Keep).len(), Some(3));
    /// assert_eq!(numbers(0..5)?.repeat(None).len(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "cardinality")]
    pub fn len(&self) -> Option<usize> {
        match self.cardinality() {
            Cardinality::Exact(n) => usize::try_from(n).ok(),
            Cardinality::Unknown | Cardinality::Infinite => None,
        }
    }

    /// Whether an epoch has no elements, where that is known.
    pub fn is_empty(&self) -> Option<bool> {
        match self.cardinality() {
            Cardinality::Exact(n) => Some(n == 0),
            Cardinality::Infinite => Some(false),
            Cardinality::Unknown => None,
        }
    }

    fn new(verb: Verb) -> Dataset {
        Dataset { verb: Arc::new(verb) }
    }
}
