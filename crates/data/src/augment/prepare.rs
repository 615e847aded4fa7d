//! From an image of any size to the model's input in one go: decode if need be, crop, resize, flip, normalise. Only the
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
    /// All of it.
    Whole,
    /// The largest in the middle that has the aspect ratio of the size wanted, with its sides shrunk.
    Centre {
        /// What is left of the sides; 7/8 is usual.
        fraction: f32,
    },
    /// A random part, as torchvision's `RandomResizedCrop` draws it.
    Random {
        /// The smallest and the largest share of the area (`scale` of torchvision).
        area: (f32, f32),
        /// The smallest and the largest ratio of width to height.
        ratio: (f32, f32),
    },
}

impl Crop {
    /// As usual for training on natural images: 8 % to all of the area, 3:4 to 4:3.
    pub const RANDOM: Crop = Crop::Random { area: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) };

    fn region(self, from: [usize; 2], to: [usize; 2], context: &Context) -> Region {
        match self {
            Crop::Whole => Region::whole(from),
            Crop::Centre { fraction } => centre_region(from, to[1] as f32 / to[0] as f32, fraction),
            Crop::Random { area, ratio } => random_region(from, area, ratio, &mut context.random(stream::CROP)),
        }
    }
}

/// The usual chain of augmentations in one map, in the order of its fields. Where `x` is a file's bytes
/// ([`ImageFolder::encoded`](crate::sources::ImageFolder::encoded)), they are decoded first, and of a JPEG only the crop.
///
/// ```
/// use memfit_data::augment::{Crop, Normalise, Prepare};
/// use memfit_data::sources::ImageFiles;
/// use memfit_data::{BytePool, Dataset, LoadOptions, Loader, Remainder};
///
/// # fn main() -> memfit_data::Result<()> {
/// let pool = BytePool::new(4 << 20);
/// let files = ImageFiles::list(&["tests/fixtures/grey.jpg", "tests/fixtures/rgb.png"], &pool)?.encoded();
/// let train = Prepare {
///     crop: Crop::RANDOM,
///     flip: true,
///     normalise: Some(Normalise::imagenet()),
///     ..Prepare::to([32, 32])
/// };
/// let dataset = Dataset::from_source(files).map(train.map()).batch(2, Remainder::Drop);
/// let mut loader = Loader::new(&dataset, LoadOptions::new(pool))?;
/// let batch = loader.next()?.expect("a batch");
/// assert_eq!(batch.get("x")?.ty().to_string(), "f32[2,32,32,3]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Prepare {
    /// What a file's bytes are decoded to.
    pub channels: Channels,
    /// Which part becomes the input.
    pub crop: Crop,
    /// Height and width of the result, to which the part is resized.
    pub size: [usize; 2],
    /// Whether to flip left to right with a probability of one half.
    pub flip: bool,
    /// u8 → f32; without it the result is u8.
    pub normalise: Option<Normalise>,
}

/// A random part of the image ([`Crop::RANDOM`]), resized to `size`: torchvision's `RandomResizedCrop`.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = random_crop_resize([4, 4])(grey([8, 6], &[7; 48], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [7; 16]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomResizedCrop")]
pub fn random_crop_resize(size: [usize; 2]) -> impl Map {
    Prepare { crop: Crop::RANDOM, ..Prepare::to(size) }.map()
}

/// The middle of the image ([`Crop::Centre`]), resized to `size`: what evaluation usually does.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = centre_crop_resize([1, 1], 1.0)(grey([1, 3], &[0, 50, 100], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [50]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "CenterCrop")]
pub fn centre_crop_resize(size: [usize; 2], fraction: f32) -> impl Map {
    Prepare { crop: Crop::Centre { fraction }, ..Prepare::to(size) }.map()
}

/// The whole image, resized to `size` whatever becomes of its aspect ratio. Interpolation is bilinear with antialiasing,
/// as PIL's; of class numbers (i32) it is nearest.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = resize([1, 1])(grey([2, 2], &[0, 50, 100, 150], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [75]);
/// # Ok(())
/// # }
/// ```
pub fn resize(size: [usize; 2]) -> impl Map {
    Prepare::to(size).map()
}

impl Prepare {
    /// The whole image resized to this height and width, as u8 in RGB.
    pub fn to(size: [usize; 2]) -> Prepare {
        Prepare { channels: Channels::Rgb, crop: Crop::Whole, size, flip: false, normalise: None }
    }

    /// The chain as a function for [`Dataset::map`](crate::Dataset::map).
    pub fn map(self) -> impl Map {
        move |example: Example, context: &Context| self.run(example, context)
    }

    /// Runs the chain on one example.
    ///
    /// # Errors
    /// [`DataError::Bad`] for an image that cannot be decoded, [`DataError::Pipeline`] where `x` is no image or the size
    /// is 0, [`DataError::NoRoom`] where the pool has no room now.
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
