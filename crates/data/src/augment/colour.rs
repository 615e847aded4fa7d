//! What changes values and moves nothing.

use memfit_ir::{DType, TensorType};

use super::field::image_shape;
use super::{Map, stream};
use crate::context::Context;
use crate::error::{DataError, Result};
use crate::memory::BytePool;
use crate::simd::multiversion;
use crate::tensor::{Example, Tensor};

/// The mean and the standard deviation of each channel: (value ÷ 255 − mean) ÷ deviation, for pixels of u8.
#[doc(alias = "Normalize")]
#[derive(Clone, Debug, PartialEq)]
pub struct Normalise {
    channels: usize,
    /// For a whole number of pixels that fills whole registers.
    scale: Vec<f32>,
    shift: Vec<f32>,
}

impl Normalise {
    /// A mean and a standard deviation for each channel, of values from 0 to 1.
    ///
    /// # Errors
    /// [`DataError::Pipeline`] where there are not as many means as deviations, or a deviation is not positive.
    pub fn new(mean: &[f32], deviation: &[f32]) -> Result<Normalise> {
        if mean.is_empty() || mean.len() != deviation.len() || deviation.iter().any(|d| *d <= 0.0 || !d.is_finite()) {
            return Err(DataError::Pipeline(format!(
                "normalise needs a mean and a positive deviation for each channel; there are {mean:?} and {deviation:?}"
            )));
        }
        let (channels, period) = (mean.len(), mean.len() * 8);
        let scale = deviation.iter().map(|d| 1.0 / (255.0 * d)).cycle().take(period).collect();
        let shift = mean.iter().zip(deviation).map(|(m, d)| -m / d).cycle().take(period).collect();
        Ok(Normalise { channels, scale, shift })
    }

    /// Those of ImageNet, which are usual for natural images in RGB.
    pub fn imagenet() -> Normalise {
        Normalise::new(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]).expect("they are three and three, and positive")
    }

    /// Whole pixels.
    fn run(&self, pixels: &[u8], out: &mut [f32]) {
        scale_and_shift(pixels, &self.scale, &self.shift, out);
    }

    pub(super) fn tensor(&self, x: &Tensor, pool: &BytePool) -> Result<Tensor> {
        if x.ty().dtype != DType::U8 || x.ty().shape.last() != Some(&self.channels) {
            return Err(DataError::Pipeline(format!(
                "normalise expects u8 with {} channels, and field \"x\" is {}",
                self.channels,
                x.ty()
            )));
        }
        let mut out = Tensor::zeros(TensorType::new(DType::F32, x.ty().shape.clone()), pool)?;
        self.run(x.bytes(), out.f32s_mut());
        Ok(out)
    }
}

/// Normalises u8 to f32 by mean and standard deviation of each channel, of an image or of a batch of them. Behind
/// [`batch`](crate::Dataset::batch) it is quicker: u8 is a quarter of the bytes to collate.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let map = normalise(Normalise::new(&[0.5], &[0.5])?);
/// let example = map(grey([1, 2], &[0, 255], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.f32s(), [-1.0, 1.0]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "Normalize")]
pub fn normalise(statistics: Normalise) -> impl Map {
    move |mut example: Example, context: &Context| {
        let x = example.get_mut("x")?;
        *x = statistics.tensor(x, context.pool)?;
        Ok(example)
    }
}

/// Multiplies all values by a random factor from 1 − `by` to 1 + `by`. `x` is u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = brightness(0.4)(grey([1, 2], &[100, 200], &pool)?, &context)?;
/// let pixels = example.get("x")?.bytes();
/// assert!((60..=140).contains(&pixels[0]) && (120..=255).contains(&pixels[1]));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ColorJitter")]
pub fn brightness(by: f32) -> impl Map {
    move |mut example: Example, context: &Context| {
        let x = u8_pixels(&mut example, "brightness")?;
        let factor = factor(by, context, stream::BRIGHTNESS);
        apply_table(x, &brightness_table(factor));
        Ok(example)
    }
}

/// Scales the distance of all values from the mean of the grey image by a random factor from 1 − `by` to 1 + `by`. `x` is
/// u8.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = contrast(0.4)(grey([1, 2], &[80, 120], &pool)?, &context)?;
/// let pixels = example.get("x")?.bytes();
/// assert_eq!(pixels[0] + pixels[1], 200, "the mean stays");
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ColorJitter")]
pub fn contrast(by: f32) -> impl Map {
    move |mut example: Example, context: &Context| {
        let (_, channels) = image_shape(example.get("x")?)?;
        let x = u8_pixels(&mut example, "contrast")?;
        let factor = factor(by, context, stream::CONTRAST);
        let table = contrast_table(factor, mean_grey(x, channels));
        apply_table(x, &table);
        Ok(example)
    }
}

/// Zeroes a square of `side` pixels about a random pixel, cut off at the borders. After normalising, zero is the mean.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = cutout(1)(grey([2, 2], &[9, 9, 9, 9], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes().iter().filter(|pixel| **pixel == 0).count(), 1);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomErasing")]
pub fn cutout(side: usize) -> impl Map {
    move |mut example: Example, context: &Context| {
        let x = example.get_mut("x")?;
        let ([height, width], channels) = image_shape(x)?;
        let mut random = context.random(stream::CUTOUT);
        let middle = [random.below(height as u32) as usize, random.below(width as u32) as usize];
        let pixel = x.ty().dtype.bytes(channels);
        zero_square(x.bytes_mut(), [height, width], pixel, middle, side);
        Ok(example)
    }
}

/// Zeroes in the square of `side` about `middle`, as far as it lies inside. A pixel has `pixel_bytes`.
pub(super) fn zero_square(
    image: &mut [u8],
    [height, width]: [usize; 2],
    pixel_bytes: usize,
    middle: [usize; 2],
    side: usize,
) {
    let from = |at: usize| at.saturating_sub(side / 2);
    let to = |at: usize, most: usize| (at + side).saturating_sub(side / 2).min(most);
    for y in from(middle[0])..to(middle[0], height) {
        let row = &mut image[y * width * pixel_bytes..][..width * pixel_bytes];
        row[from(middle[1]) * pixel_bytes..to(middle[1], width) * pixel_bytes].fill(0);
    }
}

/// What becomes of each value.
pub(super) fn brightness_table(factor: f32) -> [u8; 256] {
    std::array::from_fn(|v| (v as f32 * factor + 0.5) as u8)
}

/// What becomes of each value.
pub(super) fn contrast_table(factor: f32, mean: f32) -> [u8; 256] {
    std::array::from_fn(|v| (mean + (v as f32 - mean) * factor + 0.5) as u8)
}

/// 0.299 R + 0.587 G + 0.114 B on average, or the mean of other numbers of channels.
pub(super) fn mean_grey(pixels: &[u8], channels: usize) -> f32 {
    let mut sums = vec![0u64; channels];
    for pixel in pixels.chunks_exact(channels) {
        sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += *value as u64);
    }
    let mean = |sum: u64| sum as f64 * channels as f64 / pixels.len().max(1) as f64;
    match sums[..] {
        [r, g, b] => (0.299 * mean(r) + 0.587 * mean(g) + 0.114 * mean(b)) as f32,
        _ => (sums.iter().map(|sum| mean(*sum)).sum::<f64>() / channels as f64) as f32,
    }
}

fn apply_table(pixels: &mut [u8], table: &[u8; 256]) {
    pixels.iter_mut().for_each(|value| *value = table[*value as usize]);
}

fn factor(by: f32, context: &Context, stream: u32) -> f32 {
    context.random(stream).range((1.0 - by).max(0.0), 1.0 + by)
}

pub(super) fn u8_pixels<'a>(example: &'a mut Example, what: &str) -> Result<&'a mut [u8]> {
    let x = example.get_mut("x")?;
    if x.ty().dtype != DType::U8 {
        return Err(DataError::Pipeline(format!(
            "{what} needs field \"x\" as u8, and it is {}; put it before normalise",
            x.ty()
        )));
    }
    Ok(x.bytes_mut())
}

multiversion! {
    fn scale_and_shift(pixels: &[u8], scale: &[f32], shift: &[f32], out: &mut [f32]) {
        for (pixels, out) in pixels.chunks(scale.len()).zip(out.chunks_mut(scale.len())) {
            for (((out, pixel), scale), shift) in out.iter_mut().zip(pixels).zip(scale).zip(shift) {
                *out = *pixel as f32 * scale + shift;
            }
        }
    }
}
