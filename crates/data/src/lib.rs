//! Data pipelines with the verbs of tf.data, within a number of bytes.
//!
//! A pipeline is a program over recipes: small descriptions of how an element is made. Verbs such as shuffle, take,
//! repeat and batch move recipes about and look at no data; only the loader makes elements, on several threads, in
//! order, out of one [`BytePool`]. So a shuffle buffer holds no images, a position in an epoch is a number, and the
//! same seed gives the same epoch for every number of threads.
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
pub use loader::{LoadOptions, Loader, Position, SkippedSamples};
pub use memory::{Buffer, BytePool, Lease, NoRoom};
pub use produce::OnBad;
pub use source::Source;
pub use tensor::{Example, Tensor};
