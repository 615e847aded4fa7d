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
//! | `RandomAffine` | [`rotate`](rotate()), [`shear`], [`translate`], [`scale`] |
//! | `ColorJitter` | [`colour_jitter`], or [`brightness`], [`contrast`], [`saturation`], [`hue`](hue()) each by itself |
//! | `RandomGrayscale`, `RandomInvert`, `RandomAutocontrast`, `RandomEqualize` | [`grayscale`], [`invert`], [`autocontrast`], [`equalize`] |
//! | `RandomPosterize`, `RandomSolarize`, `RandomAdjustSharpness` | [`posterize`], [`solarize`], [`sharpness`] |
//! | `GaussianBlur` | [`blur`] |
//! | `RandomErasing` | [`erase`], and [`cutout`] of a square |
//! | `RandAugment` | [`rand_augment`] |
//! | `transforms.functional` | [`Operation`], with nothing random in it |
//! | `ToTensor`, `Normalize` | [`normalise`] |
//! | `v2.MixUp` | [`mixup`](mixup()), of a batch; [`mixup_lanes`], of its lanes |
//! | a `Compose` of the usual ones | [`Prepare`], which decodes no more than it needs |
//!
//! [`Augmentation`] reads them by the names that run files have for them ([`NAMED`]).
//!
//! The examples call the functions by hand: `grey([2, 2], &[0, 50, 100, 150], &pool)?` is an example whose `x` is such
//! an image with one channel, `colours` makes one with three, and `context` is [`Context::new`]`(&pool, 0, 0, 0)`.
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

mod affine;
mod colour;
mod crop;
mod field;
mod filter;
mod flip;
mod hue;
mod mixup;
mod named;
mod operation;
mod policy;
mod prepare;
mod random;
mod rotate;
#[cfg(test)]
mod tests;
mod tone;

pub use affine::Affine;
pub use colour::{Normalise, brightness, contrast, cutout, normalise};
pub use crop::random_crop_padded;
pub use flip::{flip_horizontal, flip_vertical};
pub use mixup::{mixup, mixup_lanes};
pub use named::{AugmentProblem, Augmentation, NAMED, Named, Number, Step};
pub use operation::Operation;
pub use policy::{RAND_AUGMENT, RandAugment, rand_augment};
pub use prepare::{Crop, Prepare, centre_crop_resize, random_crop_resize, resize};
pub use random::{
    ColourJitter, Erase, autocontrast, blur, colour_jitter, equalize, erase, grayscale, hue, invert, posterize,
    saturation, scale, sharpness, shear, solarize, translate,
};
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
    pub const SATURATION: u32 = 10;
    pub const HUE: u32 = 11;
    pub const COLOUR_JITTER: u32 = 12;
    pub const GRAYSCALE: u32 = 13;
    pub const INVERT: u32 = 14;
    pub const AUTOCONTRAST: u32 = 15;
    pub const EQUALIZE: u32 = 16;
    pub const POSTERIZE: u32 = 17;
    pub const SOLARIZE: u32 = 18;
    pub const SHARPNESS: u32 = 19;
    pub const BLUR: u32 = 20;
    pub const SHEAR: u32 = 21;
    pub const TRANSLATE: u32 = 22;
    pub const SCALE: u32 = 23;
    pub const ERASE: u32 = 24;
    pub const RAND_AUGMENT: u32 = 25;
}
