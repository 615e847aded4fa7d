//! Augmentations that draw one operation, or a few: functions for [`Dataset::map`](crate::Dataset::map).

use super::affine::Affine;
use super::field::image_shape;
use super::operation::Operation;
use super::{Map, stream};
use crate::context::{Context, Random};
use crate::image::Region;
use crate::tensor::Example;

/// What one of its numbers draws is done, on an image of this height and width.
fn draws(stream: u32, draw: impl Fn(&mut Random, [usize; 2]) -> Operation + Send + Sync + 'static) -> impl Map {
    move |mut example: Example, context: &Context| {
        let (size, _) = image_shape(example.get("x")?)?;
        draw(&mut context.random(stream), size).apply(&mut example, context.pool)?;
        Ok(example)
    }
}

/// An operation with a probability.
fn sometimes(stream: u32, probability: f32, operation: Operation) -> impl Map {
    draws(stream, move |random, _| if random.uniform() < probability { operation } else { Operation::Identity })
}

/// From 1 − `by` to 1 + `by`.
pub(super) fn factor(by: f32, random: &mut Random) -> f32 {
    random.range((1.0 - by).max(0.0), 1.0 + by)
}

/// Scales the distance of each pixel from its grey by a random factor from 1 − `by` to 1 + `by`. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = saturation(0.4)(colours([1, 1], &[10, 20, 30], &pool)?, &context)?;
/// let pixel = example.get("x")?.bytes();
/// assert!(pixel[0] < pixel[1] && pixel[1] < pixel[2]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ColorJitter")]
pub fn saturation(by: f32) -> impl Map {
    draws(stream::SATURATION, move |random, _| Operation::Saturation(factor(by, random)))
}

/// Turns the hue by a random share of the circle of colours from −`by` to `by`, of which a half is all. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = hue(0.5)(colours([1, 1], &[100, 50, 50], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes().iter().max(), Some(&100));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ColorJitter")]
pub fn hue(by: f32) -> impl Map {
    draws(stream::HUE, move |random, _| Operation::Hue(random.range(-by, by)))
}

/// How far [`colour_jitter`] goes: each as the function of its name has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColourJitter {
    /// Of the values.
    pub brightness: f32,
    /// Of their distance from the mean.
    pub contrast: f32,
    /// Of their distance from grey.
    pub saturation: f32,
    /// As a share of the circle.
    pub hue: f32,
}

impl ColourJitter {
    /// As far in brightness, contrast and saturation, and a quarter of that in hue.
    pub fn of(by: f32) -> ColourJitter {
        ColourJitter { brightness: by, contrast: by, saturation: by, hue: (by / 4.0).min(0.5) }
    }
}

/// Brightness, contrast, saturation and hue, in a random order. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let jitter = ColourJitter { saturation: 0.0, hue: 0.0, ..ColourJitter::of(0.4) };
/// let example = colour_jitter(jitter)(grey([1, 1], &[100], &pool)?, &context)?;
/// assert!((60..=140).contains(&example.get("x")?.bytes()[0]));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ColorJitter")]
pub fn colour_jitter(by: ColourJitter) -> impl Map {
    move |mut example: Example, context: &Context| {
        let mut random = context.random(stream::COLOUR_JITTER);
        let ColourJitter { brightness, contrast, saturation, hue } = by;
        let mut operations = [
            Operation::Brightness(factor(brightness, &mut random)),
            Operation::Contrast(factor(contrast, &mut random)),
            Operation::Saturation(factor(saturation, &mut random)),
            Operation::Hue(random.range(-hue, hue)),
        ];
        for last in (1..operations.len()).rev() {
            operations.swap(last, random.below(last as u32 + 1) as usize);
        }
        operations.iter().try_for_each(|operation| operation.apply(&mut example, context.pool))?;
        Ok(example)
    }
}

/// Makes all channels the grey of the image with this probability. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = grayscale(1.0)(colours([1, 1], &[0, 100, 0], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [59, 59, 59]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomGrayscale")]
pub fn grayscale(probability: f32) -> impl Map {
    sometimes(stream::GRAYSCALE, probability, Operation::Grayscale)
}

/// Inverts all values with this probability. `x` is u8.
#[doc(alias = "RandomInvert")]
pub fn invert(probability: f32) -> impl Map {
    sometimes(stream::INVERT, probability, Operation::Invert)
}

/// Stretches the values of each channel to 0 to 255 with this probability. `x` is u8.
#[doc(alias = "RandomAutocontrast")]
pub fn autocontrast(probability: f32) -> impl Map {
    sometimes(stream::AUTOCONTRAST, probability, Operation::Autocontrast)
}

/// Makes the values of each channel equally frequent with this probability. `x` is u8.
#[doc(alias = "RandomEqualize")]
pub fn equalize(probability: f32) -> impl Map {
    sometimes(stream::EQUALIZE, probability, Operation::Equalize)
}

/// Keeps so many upper bits of each value with this probability. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = posterize(2, 1.0)(grey([1, 2], &[100, 200], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [64, 192]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomPosterize")]
pub fn posterize(bits: u32, probability: f32) -> impl Map {
    sometimes(stream::POSTERIZE, probability, Operation::Posterize { bits })
}

/// Inverts the values from one on, with this probability. `x` is u8.
#[doc(alias = "RandomSolarize")]
pub fn solarize(from: u16, probability: f32) -> impl Map {
    sometimes(stream::SOLARIZE, probability, Operation::Solarize { from })
}

/// Sharpens or blurs a little: by a random factor from 1 − `by` to 1 + `by`, of which 0 is blurred and 1 as it is. `x` is
/// u8.
#[doc(alias = "RandomAdjustSharpness")]
pub fn sharpness(by: f32) -> impl Map {
    draws(stream::SHARPNESS, move |random, _| Operation::Sharpness(factor(by, random)))
}

/// Blurs by a Gauss bell whose standard deviation is random, from 0.1 to so many pixels. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = blur(2.0)(grey([2, 2], &[7, 7, 7, 7], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [7, 7, 7, 7]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "GaussianBlur")]
pub fn blur(most: f32) -> impl Map {
    // What lies further out than three deviations weighs nothing.
    let radius = (3.0 * most).ceil().clamp(1.0, 64.0) as usize;
    draws(stream::BLUR, move |random, _| Operation::Blur { sigma: random.range(0.1f32.min(most), most), radius })
}

/// Shears along rows and along columns, by random angles of at most so many degrees. A mask is sheared alike.
#[doc(alias = "RandomAffine")]
pub fn shear(degrees: [f32; 2]) -> impl Map {
    draws(stream::SHEAR, move |random, _| {
        let shear = degrees.map(|most| random.range(-most, most));
        Operation::Affine(Affine { shear, ..Affine::NONE })
    })
}

/// Moves by a random part of the width and of the height of at most this share, in whole pixels. A mask is moved alike.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = translate(0.0)(grey([1, 2], &[1, 2], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [1, 2]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomAffine")]
pub fn translate(share: f32) -> impl Map {
    draws(stream::TRANSLATE, move |random, [height, width]| {
        let mut pixels = |extent: usize| (random.range(-share, share) * extent as f32).round();
        Operation::Affine(Affine { translate: [pixels(width), pixels(height)], ..Affine::NONE })
    })
}

/// Enlarges or shrinks about the centre by a random factor between these. A mask is scaled alike.
#[doc(alias = "RandomAffine", alias = "RandomZoom")]
pub fn scale(least: f32, most: f32) -> impl Map {
    draws(stream::SCALE, move |random, _| {
        Operation::Affine(Affine { scale: random.range(least, most), ..Affine::NONE })
    })
}

/// What [`erase`] does to an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erase {
    /// How often.
    pub probability: f32,
    /// The smallest and the largest share of the area.
    pub area: (f32, f32),
    /// The smallest and the largest ratio of height to width.
    pub ratio: (f32, f32),
    /// What is there instead, in each channel.
    pub fill: [u8; 3],
}

impl Erase {
    /// As usual: 2 % to a third of the area, in black.
    pub const USUAL: Erase = Erase { probability: 0.5, area: (0.02, 0.33), ratio: (0.3, 3.3), fill: [0; 3] };
}

/// Erases a random rectangle with some probability, of the image alone. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let all = Erase { probability: 1.0, area: (0.25, 0.25), ratio: (1.0, 1.0), fill: [7; 3] };
/// let example = erase(all)(grey([4, 4], &[9; 16], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes().iter().filter(|pixel| **pixel == 7).count(), 4);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomErasing")]
pub fn erase(erase: Erase) -> impl Map {
    draws(stream::ERASE, move |random, size| {
        let is_erased = random.uniform() < erase.probability;
        match erased_region(size, erase, random).filter(|_| is_erased) {
            Some(region) => Operation::Erase { region, fill: erase.fill },
            None => Operation::Identity,
        }
    })
}

/// None where ten rectangles are as high or as wide as the image.
pub(super) fn erased_region([height, width]: [usize; 2], erase: Erase, random: &mut Random) -> Option<Region> {
    let ratios = (erase.ratio.0.ln(), erase.ratio.1.ln());
    (0..10).find_map(|_| {
        let area = height as f32 * width as f32 * random.range(erase.area.0, erase.area.1);
        let ratio = random.range(ratios.0, ratios.1).exp();
        let (h, w) = ((area * ratio).sqrt().round() as usize, (area / ratio).sqrt().round() as usize);
        let (top, left) = (random.uniform(), random.uniform());
        let place = |share: f32, room: usize| ((share * (room + 1) as f32) as usize).min(room);
        (h < height && w < width).then(|| Region {
            top: place(top, height - h),
            left: place(left, width - w),
            height: h,
            width: w,
        })
    })
}
