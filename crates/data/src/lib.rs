//! Input pipelines with the verbs of [tf.data](https://www.tensorflow.org/guide/data), within a number of bytes.
//!
//! A [`Dataset`] describes where elements come from and what is done to them; a [`Loader`] produces them on several
//! threads, in order, epoch after epoch, out of one [`BytePool`].
//!
//! ```
//! use memfit_data::{BytePool, Dataset, LoadOptions, Loader, Prefetch, Remainder, Tensors};
//! use memfit_ir::TensorType;
//!
//! # fn main() -> memfit_data::Result<()> {
//! let table = Tensors::new().with("x", TensorType::f32([6]), vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?;
//! let dataset = Dataset::from_tensors(table)?
//!     .shuffle(6)
//!     .map(|mut example, context| {
//!         let noise = context.random(0).range(-0.1, 0.1);
//!         example.get_mut("x")?.f32s_mut().iter_mut().for_each(|x| *x += noise);
//!         Ok(example)
//!     })
//!     .batch(2, Remainder::Drop)
//!     .prefetch(Prefetch::Auto);
//! let mut loader = Loader::new(&dataset, LoadOptions { seed: 7, ..LoadOptions::new(BytePool::new(4096)) })?;
//! let mut batches = 0;
//! while let Some(batch) = loader.next()? {
//!     assert_eq!(batch.get("x")?.ty().to_string(), "f32[2]");
//!     batches += 1;
//! }
//! assert_eq!((batches, loader.position().epoch), (3, 1));
//! assert!(loader.pool().high_water() <= 4096);
//! # Ok(())
//! # }
//! ```
//!
//! # The verbs
//!
//! | tf.data | here | |
//! |---|---|---|
//! | `from_tensor_slices` | [`Dataset::from_tensors`] | rows of tensors in memory |
//! | `from_generator` | [`Dataset::from_iter`] | the items of an iterator, made anew each epoch |
//! | | [`Dataset::from_fn`], [`Dataset::from_source`] | elements by their index; files of [`sources`] |
//! | `map` | [`Dataset::map`] | always parallel, always in order; [`augment`] has functions for images |
//! | `shuffle` | [`Dataset::shuffle`] | the buffer holds descriptions of elements, not their data |
//! | `batch` | [`Dataset::batch`] | with [`Remainder`] for `drop_remainder` |
//! | `shard` | [`Dataset::shard`], [`Dataset::batch_rows`] | of elements, as of a test set; of the rows of each batch |
//! | `cache` | [`Dataset::cache`] | in memory, on disk, or nowhere: see [`Cache`] |
//! | `prefetch` | [`Dataset::prefetch`] | with [`Prefetch`] for a depth or `AUTOTUNE` |
//! | `repeat`, `take`, `skip` | [`Dataset::repeat`], [`Dataset::take`], [`Dataset::skip`] | |
//! | `zip` | [`Dataset::zip`] | of two, whose elements are joined by field name |
//! | `interleave` | [`Dataset::interleave`] | of a list of datasets, in turns of a block |
//! | `cardinality` | [`Dataset::len`] | |
//! | `ignore_errors` | [`OnBad::Skip`] | for bad samples alone, which are counted and listed |
//!
//! There is no `filter`: whether an element is there would depend on its data, and positions could not be counted.
//!
//! # Memory
//!
//! Whatever a pipeline holds is drawn from its [`BytePool`], which never gives more than its limit: elements in flight,
//! working memory of decoders, caches, shuffle buffers, indices of files. What finds no room ([`NoRoom`]) lets go of all it
//! has and is run again later; a pool in which one element has room by itself is enough, and
//! [`DataError::PoolTooSmall`] says what is missing where it is not. [`Loader`] says what is not counted.
//!
//! # Determinism and positions
//!
//! What flows between verbs are recipes: small descriptions of how an element is produced. Verbs such as shuffle, take
//! and batch move recipes about and look at no data. So what comes out depends on the dataset, the seed and the
//! [`Position`] only, and neither on the number of threads nor on the size of the pool; a position in an epoch is two
//! numbers, which a checkpoint keeps; and going on from there produces nothing of what lies before.
//!
//! # Errors
//!
//! [`DataError`] carries facts: limits and sizes in bytes, locations, labels. A sample that cannot be used is
//! [`DataError::Bad`], and [`OnBad`] says what becomes of it.

#![warn(missing_docs)]

pub mod augment;
mod cache;
mod cardinality;
mod collate;
mod context;
mod dataset;
mod error;
pub mod image;
mod in_memory;
mod loader;
mod memory;
mod panics;
mod pipeline;
mod produce;
mod recipe;
mod simd;
mod source;
pub mod sources;
mod stream;
mod tensor;

pub use context::{Context, Random};
pub use dataset::{Cache, Dataset, Prefetch, Remainder};
pub use error::{BadSample, CsvProblem, DataError, Result, SampleProblem};
pub use in_memory::{TensorData, Tensors};
pub use loader::{LoadOptions, Loader, Next, Position, SkippedSamples};
pub use memory::{Buffer, BytePool, Lease, NoRoom};
pub use produce::OnBad;
pub use source::Source;
pub use tensor::{Example, Tensor};
