//! From an image of any size to the model's input in one go: decode if need be, cut, scale, mirror, normalise. Only the
//! decoded image and the result are held.

use super::colour::Normalise;
use super::crop::{centre_region, check_not_empty, random_region};
use super::field::{PixelOp, channels, dispatch, geometric_fields, with_size};
use super::{Map, stream};
use crate::context::Context;
use crate::error::{DataError, Result};
use crate::image::{self, Channels, ImageView, PixelValue, Region};
use crate::memory::{BytePool, NoRoom};
use crate::tensor::{Example, Tensor};

/// Which part of an image becomes the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crop {
    Whole,
    /// The largest in the middle that has the ratio of the size wanted, shrunk to a part of its sides (7/8 is usual).
    Centre {
        fraction: f32,
    },
    /// A share of the area, and a ratio of width to height.
    Random {
        area: (f32, f32),
        ratio: (f32, f32),
    },
}

impl Crop {
    /// As usual for training on natural images.
    pub const RANDOM: Crop = Crop::Random { area: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) };

    fn region(self, from: [usize; 2], to: [usize; 2], context: &Context) -> Region {
        match self {
            Crop::Whole => Region::whole(from),
            Crop::Centre { fraction } => centre_region(from, to[1] as f32 / to[0] as f32, fraction),
            Crop::Random { area, ratio } => random_region(from, area, ratio, &mut context.random(stream::CROP)),
        }
    }
}

/// What is done to an image, in this order. Where `x` is a file's bytes, they are decoded first.
#[derive(Clone, Debug)]
pub struct Prepare {
    /// What a file's bytes are decoded to.
    pub channels: Channels,
    pub crop: Crop,
    /// Height and width of the result.
    pub size: [usize; 2],
    /// Mirror left to right every other time.
    pub flip: bool,
    pub normalise: Option<Normalise>,
}

/// A random part of the image, scaled to `size`: torchvision's `RandomResizedCrop`.
pub fn random_crop_resize(size: [usize; 2]) -> impl Map {
    Prepare { crop: Crop::RANDOM, ..Prepare::to(size) }.map()
}

/// The middle of the image, scaled to `size`.
pub fn centre_crop_resize(size: [usize; 2], fraction: f32) -> impl Map {
    Prepare { crop: Crop::Centre { fraction }, ..Prepare::to(size) }.map()
}

/// The whole image, scaled to `size`, whatever becomes of its ratio.
pub fn resize(size: [usize; 2]) -> impl Map {
    Prepare::to(size).map()
}

impl Prepare {
    /// The whole image in this size, as u8.
    pub fn to(size: [usize; 2]) -> Prepare {
        Prepare { channels: Channels::Rgb, crop: Crop::Whole, size, flip: false, normalise: None }
    }

    pub fn map(self) -> impl Map {
        move |example: Example, context: &Context| self.run(example, context)
    }

    pub fn run(&self, mut example: Example, context: &Context) -> Result<Example> {
        check_not_empty(self.size)?;
        let encoded = example.get("x")?.ty().shape.rank() == 1;
        let (names, region) =
            if encoded { self.decode(&mut example, context)? } else { self.choose_region(&example, context)? };
        let mirror = self.flip && context.random(stream::FLIP_HORIZONTAL).below(2) == 1;
        for name in names {
            let image = example.get_mut(name)?;
            *image = crop_and_resize(image, region, mirror, self.size, context.pool)?;
        }
        if let Some(normalise) = &self.normalise {
            let x = example.get_mut("x")?;
            *x = normalise.tensor(x, context.pool)?;
        }
        Ok(example)
    }

    fn choose_region(&self, example: &Example, context: &Context) -> Result<(&'static [&'static str], Region)> {
        let (size, names) = geometric_fields(example)?;
        Ok((names, self.crop.region(size, self.size, context)))
    }

    /// Decodes no more than the region, where the format allows. A mask has no encoded image beside it.
    fn decode(&self, example: &mut Example, context: &Context) -> Result<(&'static [&'static str], Region)> {
        let (x, location) = (example.get_mut("x")?, context.location());
        let size = image::dimensions(x.bytes(), &location)?;
        if size.contains(&0) {
            return Err(DataError::bad(location, format!("the image has {} rows and {} columns", size[0], size[1])));
        }
        let region = self.crop.region(size, self.size, context);
        let (image, region) = image::decode_region(x.bytes(), region, self.channels, &location, context.pool)?;
        *x = image;
        Ok((&["x"], region))
    }
}

fn crop_and_resize(image: &Tensor, region: Region, mirror: bool, size: [usize; 2], pool: &BytePool) -> Result<Tensor> {
    let mut out = Tensor::zeros(with_size(image.ty(), size), pool)?;
    dispatch(image, &mut out, CropAndResize { region, mirror, size, pool })??;
    Ok(out)
}

struct CropAndResize<'a> {
    region: Region,
    mirror: bool,
    size: [usize; 2],
    pool: &'a BytePool,
}

impl PixelOp for CropAndResize<'_> {
    type Output = Result<(), NoRoom>;

    fn run<S: PixelValue + bytemuck::Pod>(self, from: &Tensor, to: &mut Tensor) -> Result<(), NoRoom> {
        let shape = &from.ty().shape;
        let size = [shape[0], shape[1]];
        let view =
            ImageView { pixels: bytemuck::cast_slice::<u8, S>(from.bytes()), size, channels: channels(from.ty()) };
        let out = bytemuck::cast_slice_mut(to.bytes_mut());
        image::resize(
            view,
            self.region,
            image::interpolation_for(from.ty().dtype),
            self.mirror,
            out,
            self.size,
            self.pool,
        )
    }
}
