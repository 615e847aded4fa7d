//! Which part of an image is taken.

use super::field::{channels, geometric_fields, with_size};
use super::{Map, stream};
use crate::context::{Context, Random};
use crate::error::{DataError, Result};
use crate::image::Region;
use crate::tensor::{Example, Tensor};

/// A region of a share of the image's area, with a ratio of width to height that is uniform in its logarithm. After ten
/// regions that do not fit, the largest in the middle whose ratio is allowed: torchvision's `RandomResizedCrop`.
pub(super) fn random_region(
    [height, width]: [usize; 2],
    area: (f32, f32),
    ratio: (f32, f32),
    random: &mut Random,
) -> Region {
    for _ in 0..10 {
        let target = height as f32 * width as f32 * random.range(area.0, area.1);
        let ratio = random.range(ratio.0.ln(), ratio.1.ln()).exp();
        let w = (target * ratio).sqrt().round() as usize;
        let h = (target / ratio).sqrt().round() as usize;
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let top = random.below((height - h + 1) as u32) as usize;
            let left = random.below((width - w + 1) as u32) as usize;
            return Region { top, left, height: h, width: w };
        }
    }
    let whole = width as f32 / height as f32;
    centre_region([height, width], whole.clamp(ratio.0, ratio.1), 1.0)
}

/// The largest region in the middle with this ratio of width to height, shrunk to a part of its sides.
pub(super) fn centre_region([height, width]: [usize; 2], ratio: f32, fraction: f32) -> Region {
    let (h, w) = (height as f32, width as f32);
    let (h, w) = if w / h > ratio { (h, h * ratio) } else { (w / ratio, w) };
    let side = |side: f32, most: usize| ((side * fraction).round() as usize).clamp(1, most);
    let (h, w) = (side(h, height), side(w, width));
    Region { top: (height - h) / 2, left: (width - w) / 2, height: h, width: w }
}

/// A random crop of `size` out of the image with `padding` rows and columns of zeroes around it: what is usual for CIFAR.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let map = random_crop_padded([2, 2], 1);
/// let example = map(grey([2, 2], &[1, 2, 3, 4], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.ty().to_string(), "u8[2,2,1]");
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomCrop")]
pub fn random_crop_padded(size: [usize; 2], padding: usize) -> impl Map {
    move |mut example: Example, context: &Context| {
        let ([height, width], names) = geometric_fields(&example)?;
        let spare = |extent: usize, wanted: usize| (extent + 2 * padding).checked_sub(wanted).filter(|_| wanted > 0);
        let (Some(down), Some(across)) = (spare(height, size[0]), spare(width, size[1])) else {
            return Err(DataError::Pipeline(format!(
                "{}×{} pixels cannot be cut out of {height}×{width} with {padding} around them; pad more",
                size[0], size[1]
            )));
        };
        let mut random = context.random(stream::CROP_PADDED);
        let top = random.below(down as u32 + 1) as isize - padding as isize;
        let left = random.below(across as u32 + 1) as isize - padding as isize;
        for name in names {
            let image = example.get_mut(name)?;
            let mut out = Tensor::zeros(with_size(image.ty(), size), context.pool)?;
            let pixel = image.ty().dtype.bytes(channels(image.ty()));
            crop_padded(image.bytes(), [height, width], pixel, top, left, out.bytes_mut(), size);
            *image = out;
        }
        Ok(example)
    }
}

/// The window of `size` whose corner stands at `top` and `left`, which may be outside of the image. `out` is zeroes
/// before.
pub(super) fn crop_padded(
    image: &[u8],
    [height, width]: [usize; 2],
    pixel_bytes: usize,
    top: isize,
    left: isize,
    out: &mut [u8],
    size: [usize; 2],
) {
    // Output columns that lie inside of the image.
    let from = (-left).clamp(0, size[1] as isize) as usize;
    let to = (width as isize - left).clamp(from as isize, size[1] as isize) as usize;
    for (y, row) in out.chunks_exact_mut(size[1] * pixel_bytes).take(size[0]).enumerate() {
        let source = y as isize + top;
        if (0..height as isize).contains(&source) && to > from {
            let start = (source as usize * width + (from as isize + left) as usize) * pixel_bytes;
            let bytes = (to - from) * pixel_bytes;
            row[from * pixel_bytes..][..bytes].copy_from_slice(&image[start..][..bytes]);
        }
    }
}

/// A size that can be had, for the functions that are given one.
pub(super) fn check_not_empty(size: [usize; 2]) -> Result<()> {
    match size {
        [0, _] | [_, 0] => {
            Err(DataError::Pipeline(format!("an image of {}×{} has no pixels; give a size", size[0], size[1])))
        }
        _ => Ok(()),
    }
}
