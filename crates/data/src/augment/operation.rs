//! What augmentations do once their random numbers are drawn: one operation with all its numbers, on an image and, where it
//! moves pixels, on its mask alike.

use super::affine::{Affine, move_pixels};
use super::colour::{brightness_table, contrast_table, mean_grey, u8_pixels};
use super::field::{channels, geometric_fields, image_shape};
use super::flip::{mirror_columns, mirror_rows};
use super::{filter, hue, tone};
use crate::error::Result;
use crate::image::Region;
use crate::memory::BytePool;
use crate::tensor::Example;

/// Something done to an image, with nothing random in it; after the functions of torchvision's `transforms.functional`,
/// from which values differ by rounding alone (here to the nearest, there mostly down).
///
/// What changes colours needs `x` as u8 `[height, width, channels]` with one channel or three, and leaves masks as they are.
/// What moves pixels takes every type that [`augment`](super) names, and moves a mask `y` alike.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let mut example = grey([1, 3], &[0, 100, 200], &pool)?;
/// Operation::Solarize { from: 128 }.apply(&mut example, &pool)?;
/// assert_eq!(example.get("x")?.bytes(), [0, 100, 55]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// Nothing.
    Identity,
    /// Left to right.
    FlipHorizontal,
    /// Top to bottom.
    FlipVertical,
    /// Rotates, shears, scales and moves, in one go.
    Affine(Affine),
    /// Multiplies all values by this.
    Brightness(f32),
    /// Multiplies the distance from the mean of the grey image by this.
    Contrast(f32),
    /// Multiplies the distance of a pixel from its own grey by this: 0 is a grey image.
    Saturation(f32),
    /// Turns the circle of colours by this share of it.
    Hue(f32),
    /// Every pixel as its grey, in all channels.
    Grayscale,
    /// Multiplies the distance from a slightly blurred image by this: 0 is that image, 2 is sharper.
    Sharpness(f32),
    /// The mean of the pixels around, by a Gauss bell.
    Blur {
        /// Its standard deviation in pixels.
        sigma: f32,
        /// As far as it is looked at; the kernel has twice as many pixels and one.
        radius: usize,
    },
    /// Stretches the values of each channel from their least and most to 0 and 255.
    Autocontrast,
    /// Spreads the values of each channel so that all are equally frequent, as far as can be.
    Equalize,
    /// Keeps so many of the upper bits of each value.
    Posterize {
        /// 0 to 8.
        bits: u32,
    },
    /// Inverts the values from this one on.
    Solarize {
        /// The first that is inverted; 256 is none.
        from: u16,
    },
    /// 255 − value.
    Invert,
    /// One colour all over a part.
    Erase {
        /// Which, as far as it lies in the image.
        region: Region,
        /// A value for each channel.
        fill: [u8; 3],
    },
}

impl Operation {
    /// Does it.
    ///
    /// # Errors
    /// [`DataError::Pipeline`](crate::DataError::Pipeline) where `x` is no image of the type that is needed,
    /// [`DataError::NoRoom`](crate::DataError::NoRoom) where the pool has no room now.
    pub fn apply(&self, example: &mut Example, pool: &BytePool) -> Result<()> {
        match *self {
            Operation::Identity => Ok(()),
            Operation::FlipHorizontal => mirror(example, mirror_columns),
            Operation::FlipVertical => mirror(example, mirror_rows),
            Operation::Affine(affine) => {
                let (_, names) = geometric_fields(example)?;
                names.iter().try_for_each(|name| {
                    let image = example.get_mut(name)?;
                    *image = move_pixels(image, affine, pool)?;
                    Ok(())
                })
            }
            _ => self.colour(example, pool),
        }
    }

    fn colour(&self, example: &mut Example, pool: &BytePool) -> Result<()> {
        let (size, channels) = image_shape(example.get("x")?)?;
        let pixels = u8_pixels(example, self.name())?;
        match *self {
            Operation::Identity | Operation::FlipHorizontal | Operation::FlipVertical | Operation::Affine(_) => {}
            Operation::Brightness(factor) => tone::each(pixels, &brightness_table(factor)),
            Operation::Contrast(factor) => tone::each(pixels, &contrast_table(factor, mean_grey(pixels, channels))),
            Operation::Saturation(factor) => hue::saturate(pixels, channels, factor),
            Operation::Hue(share) => hue::turn(pixels, channels, share),
            Operation::Grayscale => hue::saturate(pixels, channels, 0.0),
            Operation::Sharpness(factor) => filter::sharpen(pixels, size, channels, factor, pool)?,
            Operation::Blur { sigma, radius } => filter::blur(pixels, size, channels, sigma, radius, pool)?,
            Operation::Autocontrast => tone::of_channels(pixels, channels, tone::stretched),
            Operation::Equalize => tone::of_channels(pixels, channels, tone::equalized),
            Operation::Posterize { bits } => tone::each(pixels, &tone::posterized(bits)),
            Operation::Solarize { from } => tone::each(pixels, &tone::solarized(from)),
            Operation::Invert => tone::each(pixels, &tone::solarized(0)),
            Operation::Erase { region, fill } => erase(pixels, size, channels, region, fill),
        }
        Ok(())
    }

    /// As an error says it.
    fn name(&self) -> &'static str {
        match self {
            Operation::Identity => "nothing",
            Operation::FlipHorizontal => "flip",
            Operation::FlipVertical => "flip-vertical",
            Operation::Affine(_) => "an affine map",
            Operation::Brightness(_) => "brightness",
            Operation::Contrast(_) => "contrast",
            Operation::Saturation(_) => "saturation",
            Operation::Hue(_) => "hue",
            Operation::Grayscale => "grayscale",
            Operation::Sharpness(_) => "sharpness",
            Operation::Blur { .. } => "blur",
            Operation::Autocontrast => "autocontrast",
            Operation::Equalize => "equalize",
            Operation::Posterize { .. } => "posterize",
            Operation::Solarize { .. } => "solarize",
            Operation::Invert => "invert",
            Operation::Erase { .. } => "erase",
        }
    }
}

fn mirror(example: &mut Example, mirror: fn(&mut [u8], [usize; 2], usize)) -> Result<()> {
    let (size, names) = geometric_fields(example)?;
    for name in names {
        let image = example.get_mut(name)?;
        let pixel = image.ty().dtype.bytes(channels(image.ty()));
        mirror(image.bytes_mut(), size, pixel);
    }
    Ok(())
}

/// Of other numbers of channels than three, the first colour is that of all.
fn erase(pixels: &mut [u8], [height, width]: [usize; 2], channels: usize, region: Region, fill: [u8; 3]) {
    let columns = region.left.min(width)..(region.left.saturating_add(region.width)).min(width);
    for y in region.top.min(height)..(region.top.saturating_add(region.height)).min(height) {
        let row = &mut pixels[y * width * channels..][..width * channels];
        for pixel in row[columns.start * channels..columns.end * channels].chunks_exact_mut(channels) {
            match pixel {
                [r, g, b] => [*r, *g, *b] = fill,
                other => other.fill(fill[0]),
            }
        }
    }
}
