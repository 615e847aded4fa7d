//! Augmentation as map functions: `x` is an image `[height, width, channels]`, and where `y` is an image of the same
//! height and width (a mask `[height, width, 1]` or `[height, width]`), geometry moves it alike; class numbers are
//! never mixed. Every random number comes from the context, so the same seed gives the same images on every number of
//! threads. Each map function is a thin wrapper of a plain function over slices.

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
pub use mixup::mixup;
pub use prepare::{Crop, Prepare, centre_crop_resize, random_crop_resize, resize};
pub use rotate::rotate;

use crate::context::Context;
use crate::error::Result;
use crate::tensor::Example;

/// What a map verb takes.
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
