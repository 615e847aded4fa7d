//! Data pipelines with the verbs of tf.data, within a number of bytes.
//!
//! A pipeline is a program over recipes: small descriptions of how an element is made. Verbs such as shuffle, take,
//! repeat and batch move recipes about and look at no data; only the loader makes elements, on several threads, in
//! order, out of one [`BytePool`]. So a shuffle buffer holds no images, a position in an epoch is a number, and the same
//! seed gives the same epoch for every number of threads.

mod cache;
mod context;
mod count;
mod dataset;
mod error;
mod guard;
mod loader;
mod make;
mod memory;
mod plain;
mod program;
mod recipe;
mod source;
mod stack;
mod stream;
mod tensor;

pub use context::{Context, Random};
pub use dataset::{Cache, Dataset, Prefetch, Remainder};
pub use error::{DataError, Result};
pub use loader::{LoadOptions, Loader, Position, Skipped};
pub use make::{Bad, OnBad};
pub use memory::{Buffer, BytePool, Lease, NoRoom};
pub use plain::{Data, Tensors};
pub use source::Source;
pub use tensor::{Example, Tensor};
