//! Image augmentation: functions for [`Dataset::map`](crate::Dataset::map), after torchvision's transforms.
//!
//! `x` is an image `[height, width, channels]`, and where `y` is an image of the same height and width (a mask
//! `[height, width, 1]` or `[height, width]`), geometry moves it alike; class numbers are never interpolated. Every random
//! number comes from the [`Context`], from a stream of its own for each augmentation, so that the same seed gives the
//! same images on every number of threads, and adding one augmentation leaves the others as they were.
//!
//! | torchvision | here |
//! |---|---|
//! | `RandomResizedCrop` | [`random_crop_resize`] |
//! | `Resize`, `CenterCrop` | [`resize`](resize()), [`centre_crop_resize`] |
//! | `RandomCrop(size, padding)` | [`random_crop_padded`] |
//! | `RandomHorizontalFlip`, `RandomVerticalFlip` | [`flip_horizontal`], [`flip_vertical`] |
//! | `RandomRotation` | [`rotate`](rotate()) |
//! | `ColorJitter` | [`brightness`], [`contrast`] |
//! | `RandomErasing` | [`cutout`] |
//! | `ToTensor`, `Normalize` | [`normalise`] |
//! | `v2.MixUp` | [`mixup`](mixup()), of a batch; [`mixup_lanes`], of its lanes |
//! | a `Compose` of the usual ones | [`Prepare`], which decodes no more than it needs |
//!
//! The examples call the functions by hand: `grey([2, 2], &[0, 50, 100, 150], &pool)?` is an example whose `x` is such
//! an image with one channel, and `context` is [`Context::new`]`(&pool, 0, 0, 0)`.
//!
//! ```
//! use memfit_data::augment::{Normalise, flip_horizontal, normalise, random_crop_padded};
//! use memfit_data::{BytePool, Dataset, LoadOptions, Loader, Remainder, Tensors};
//! use memfit_ir::{DType, TensorType};
//!
//! # fn main() -> memfit_data::Result<()> {
//! let images = Tensors::new().with("x", TensorType::new(DType::U8, [4, 8, 8, 3]), vec![128u8; 4 * 8 * 8 * 3])?;
//! let dataset = Dataset::from_tensors(images)?
//!     .map(random_crop_padded([8, 8], 1))
//!     .map(flip_horizontal())
//!     .batch(4, Remainder::Drop)
//!     .map(normalise(Normalise::imagenet()));
//! let mut loader = Loader::new(&dataset, LoadOptions::new(BytePool::new(1 << 20)))?;
//! let batch = loader.next()?.expect("a batch");
//! assert_eq!(batch.get("x")?.ty().to_string(), "f32[4,8,8,3]");
//! # Ok(())
//! # }
//! ```

mod colour;
mod crop;
mod field;
mod flip;
mod mixup;
mod prepare;
mod rotate;
#[cfg(test)]
mod tests;

pub use colour::{Normalise, brightness, contrast, cutout, normalise};
pub use crop::random_crop_padded;
pub use flip::{flip_horizontal, flip_vertical};
pub use mixup::{mixup, mixup_lanes};
pub use prepare::{Crop, Prepare, centre_crop_resize, random_crop_resize, resize};
pub use rotate::rotate;

use crate::context::Context;
use crate::error::Result;
use crate::tensor::Example;

/// What [`Dataset::map`](crate::Dataset::map) takes: every function of this form is one.
pub trait Map: Fn(Example, &Context) -> Result<Example> + Send + Sync + 'static {}

impl<F: Fn(Example, &Context) -> Result<Example> + Send + Sync + 'static> Map for F {}

/// Each augmentation draws from its own stream, so that adding one leaves the others as they were.
mod stream {
    pub const CROP: u32 = 1;
    pub const FLIP_HORIZONTAL: u32 = 2;
    pub const FLIP_VERTICAL: u32 = 3;
    pub const CROP_PADDED: u32 = 4;
    pub const ROTATE: u32 = 5;
    pub const BRIGHTNESS: u32 = 6;
    pub const CONTRAST: u32 = 7;
    pub const CUTOUT: u32 = 8;
    pub const MIXUP: u32 = 9;
}
