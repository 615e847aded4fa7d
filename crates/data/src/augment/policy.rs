//! RandAugment (Cubuk et al. 2019): a few operations out of a list, all of one magnitude.

use super::affine::Affine;
use super::field::image_shape;
use super::operation::Operation;
use super::{Map, stream};
use crate::context::{Context, Random};
use crate::tensor::Example;

/// How [`rand_augment`] augments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandAugment {
    /// How many operations, one after another; the same may come again.
    pub operations: usize,
    /// How strong each of them is, from 0 to [`RandAugment::STRONGEST`].
    pub magnitude: usize,
}

impl RandAugment {
    /// The largest magnitude.
    pub const STRONGEST: usize = 30;
}

/// The list, with what an operation does at magnitude m of 30. Signs are random where there is a ±.
pub const RAND_AUGMENT: [(&str, &str); 14] = [
    ("identity", "nothing"),
    ("shear-x", "±0.3 m/30 of the height, along the rows"),
    ("shear-y", "±0.3 m/30 of the width, along the columns"),
    ("translate-x", "±0.45 m/30 of the width"),
    ("translate-y", "±0.45 m/30 of the height"),
    ("rotate", "±30 m/30 degrees"),
    ("brightness", "a factor of 1 ± 0.9 m/30"),
    ("saturation", "a factor of 1 ± 0.9 m/30"),
    ("contrast", "a factor of 1 ± 0.9 m/30"),
    ("sharpness", "a factor of 1 ± 0.9 m/30"),
    ("posterize", "8 − 4 m/30 bits, to the nearest"),
    ("solarize", "from 255 − 255 m/30 on"),
    ("autocontrast", "whatever m is"),
    ("equalize", "whatever m is"),
];

/// Some operations out of [`RAND_AUGMENT`], each drawn anew: the list and the magnitudes of torchvision's `RandAugment`.
/// What moves pixels does so about the centre, moves a mask alike, and lets in zeroes. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let map = rand_augment(RandAugment { operations: 2, magnitude: 9 });
/// let example = map(grey([2, 2], &[1, 2, 3, 4], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.ty().to_string(), "u8[2,2,1]");
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandAugment")]
pub fn rand_augment(policy: RandAugment) -> impl Map {
    move |mut example: Example, context: &Context| {
        let (size, _) = image_shape(example.get("x")?)?;
        let mut random = context.random(stream::RAND_AUGMENT);
        for _ in 0..policy.operations {
            let number = random.below(RAND_AUGMENT.len() as u32) as usize;
            operation(number, policy.magnitude, size, &mut random).apply(&mut example, context.pool)?;
        }
        Ok(example)
    }
}

/// The one of this number.
pub(super) fn operation(
    number: usize,
    magnitude: usize,
    [height, width]: [usize; 2],
    random: &mut Random,
) -> Operation {
    let share = magnitude.min(RandAugment::STRONGEST) as f32 / RandAugment::STRONGEST as f32;
    // Drawn in any case, so that what follows does not depend on the operation.
    let sign = if random.below(2) == 1 { -1.0 } else { 1.0 };
    let affine = |change: fn(&mut Affine, f32), amount: f32| {
        let mut affine = Affine::NONE;
        change(&mut affine, sign * amount);
        Operation::Affine(affine)
    };
    let pixels = |extent: usize| (150.0 / 331.0 * share * extent as f32).trunc();
    let factor = 1.0 + sign * 0.9 * share;
    match number {
        1 => affine(|a, by| a.shear[0] = by, (0.3 * share).atan().to_degrees()),
        2 => affine(|a, by| a.shear[1] = by, (0.3 * share).atan().to_degrees()),
        3 => affine(|a, by| a.translate[0] = by, pixels(width)),
        4 => affine(|a, by| a.translate[1] = by, pixels(height)),
        5 => affine(|a, by| a.degrees = by, 30.0 * share),
        6 => Operation::Brightness(factor),
        7 => Operation::Saturation(factor),
        8 => Operation::Contrast(factor),
        9 => Operation::Sharpness(factor),
        10 => Operation::Posterize { bits: 8 - (4.0 * share).round() as u32 },
        11 => Operation::Solarize { from: (255.0 * (1.0 - share)).round() as u16 },
        12 => Operation::Autocontrast,
        13 => Operation::Equalize,
        _ => Operation::Identity,
    }
}
