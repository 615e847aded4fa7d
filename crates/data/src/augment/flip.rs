//! Mirroring.

use super::field::{channels, geometric_fields};
use super::{Map, stream};
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Example;

/// Flips left to right with a probability of one half.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = flip_horizontal()(grey([1, 2], &[1, 2], &pool)?, &context)?;
/// assert!([[1, 2], [2, 1]].contains(example.get("x")?.bytes().try_into().expect("two pixels")));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomHorizontalFlip")]
pub fn flip_horizontal() -> impl Map {
    |example: Example, context: &Context| flip(example, context, stream::FLIP_HORIZONTAL, mirror_columns)
}

/// Flips top to bottom with a probability of one half.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = flip_vertical()(grey([2, 1], &[1, 2], &pool)?, &context)?;
/// assert!([[1, 2], [2, 1]].contains(example.get("x")?.bytes().try_into().expect("two pixels")));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomVerticalFlip")]
pub fn flip_vertical() -> impl Map {
    |example: Example, context: &Context| flip(example, context, stream::FLIP_VERTICAL, mirror_rows)
}

fn flip(
    mut example: Example,
    context: &Context,
    stream: u32,
    mirror: fn(&mut [u8], [usize; 2], usize),
) -> Result<Example> {
    let (size, names) = geometric_fields(&example)?;
    if context.random(stream).below(2) == 1 {
        for name in names {
            let image = example.get_mut(name)?;
            let pixel = image.ty().dtype.bytes(channels(image.ty()));
            mirror(image.bytes_mut(), size, pixel);
        }
    }
    Ok(example)
}

/// Left to right, in place; a pixel has `pixel_bytes`.
pub(super) fn mirror_columns(image: &mut [u8], [_, width]: [usize; 2], pixel_bytes: usize) {
    for row in image.chunks_exact_mut(width * pixel_bytes) {
        let (left, right) = row.split_at_mut(width / 2 * pixel_bytes);
        let pairs = left.chunks_exact_mut(pixel_bytes).zip(right.rchunks_exact_mut(pixel_bytes));
        pairs.for_each(|(a, b)| a.swap_with_slice(b));
    }
}

/// Top to bottom, in place.
pub(super) fn mirror_rows(image: &mut [u8], [height, width]: [usize; 2], pixel_bytes: usize) {
    let row = width * pixel_bytes;
    let (upper, lower) = image.split_at_mut(height / 2 * row);
    upper.chunks_exact_mut(row).zip(lower.rchunks_exact_mut(row)).for_each(|(a, b)| a.swap_with_slice(b));
}
