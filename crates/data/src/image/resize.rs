//! Cuts a region out of an image and scales it, in one pass over the rows that it needs: each output row is a weighted
//! sum of input rows, and each output pixel a weighted sum of that row. The weights are a triangle's, as wide as the
//! step between input pixels or, where the image shrinks, between output pixels: PIL's `BILINEAR`, TensorFlow's with
//! `antialias=True`.

use crate::error::Result;
use crate::memory::{Buffer, BytePool, NoRoom};
use crate::simd::{Four, wide};

/// A rectangle of pixels, which lies inside of the image it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

impl Region {
    pub fn whole([height, width]: [usize; 2]) -> Region {
        Region { top: 0, left: 0, height, width }
    }

    pub(super) fn inside(&self, [height, width]: [usize; 2]) -> bool {
        let fits =
            |from: usize, extent: usize, of: usize| extent > 0 && from.checked_add(extent).is_some_and(|e| e <= of);
        fits(self.top, self.height, height) && fits(self.left, self.width, width)
    }
}

/// How pixels between pixels are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resample {
    Triangle,
    /// The pixel at the middle: for class numbers, which cannot be mixed.
    Nearest,
}

/// An element of an image.
pub trait Sample: Copy {
    fn to_f32(self) -> f32;
    /// To the nearest value there is.
    fn from_f32(value: f32) -> Self;
    /// Four at once, none of which is beyond what the type holds.
    #[inline(always)]
    fn from_four(values: [f32; 4]) -> [Self; 4] {
        values.map(Self::from_f32)
    }
}

impl Sample for u8 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn from_f32(value: f32) -> u8 {
        (value + 0.5) as u8
    }
    #[inline(always)]
    fn from_four(values: [f32; 4]) -> [u8; 4] {
        Four::new(&values).bytes()
    }
}

impl Sample for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Sample for i32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn from_f32(value: f32) -> i32 {
        value.round() as i32
    }
}

/// An image `[height, width, channels]` as a slice.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, S> {
    pub pixels: &'a [S],
    pub size: [usize; 2],
    pub channels: usize,
}

/// Scales `region` of `image` to `size` and mirrors it left to right if asked. `out` is written from its start.
pub fn resize<S: Sample>(
    image: View<S>,
    region: Region,
    how: Resample,
    mirror: bool,
    out: &mut [S],
    size: [usize; 2],
    pool: &BytePool,
) -> Result<(), NoRoom> {
    assert!(region.inside(image.size), "the caller cut the region out of the image");
    let down = Taps::new(region.height, size[0], how, pool)?;
    let across = Taps::new(region.width, size[1], how, pool)?;
    // One element more, so that the last pixel too can be read as four.
    let mut row = pool.buffer((region.width * image.channels + 1) * 4)?;
    let row = bytemuck::cast_slice_mut(row.bytes_mut());
    run(image, region, mirror, out, size, &down, &across, row);
    Ok(())
}

/// For each output along an axis: the first input and the weights of it and of those that follow.
struct Taps {
    count: usize,
    /// Firsts, then weights.
    data: Buffer,
    outputs: usize,
}

impl Taps {
    fn new(inputs: usize, outputs: usize, how: Resample, pool: &BytePool) -> Result<Taps, NoRoom> {
        let scale = inputs as f64 / outputs as f64;
        let reach = scale.max(1.0);
        let count = match how {
            // An open interval of this length has no more whole numbers in it.
            Resample::Triangle => ((2.0 * reach).ceil() as usize).min(inputs),
            Resample::Nearest => 1,
        };
        let mut data = pool.buffer(outputs * (1 + count) * 4)?;
        let (firsts, weights) = data.bytes_mut().split_at_mut(outputs * 4);
        let firsts: &mut [u32] = bytemuck::cast_slice_mut(firsts);
        let weights: &mut [f32] = bytemuck::cast_slice_mut(weights);
        for (i, (first, weights)) in firsts.iter_mut().zip(weights.chunks_exact_mut(count)).enumerate() {
            let centre = (i as f64 + 0.5) * scale;
            let wanted = match how {
                Resample::Triangle => (centre - reach + 0.5).floor().max(0.0) as usize,
                Resample::Nearest => centre as usize,
            };
            *first = wanted.min(inputs - count) as u32;
            triangle(*first as usize, centre, reach, weights);
        }
        Ok(Taps { count, data, outputs })
    }

    /// The firsts, the weights, and how many of these each output has.
    fn all(&self) -> (&[u32], &[f32], usize) {
        let (firsts, weights) = self.data.bytes().split_at(self.outputs * 4);
        (bytemuck::cast_slice(firsts), bytemuck::cast_slice(weights), self.count)
    }

    fn of(&self, output: usize) -> (usize, &[f32]) {
        let (firsts, weights, count) = self.all();
        (firsts[output] as usize, &weights[output * count..][..count])
    }
}

/// Weights that sum up to one.
fn triangle(first: usize, centre: f64, reach: f64, weights: &mut [f32]) {
    let height = |k: usize| (1.0 - ((first + k) as f64 + 0.5 - centre).abs() / reach).max(0.0);
    let sum: f64 = (0..weights.len()).map(height).sum();
    for (k, weight) in weights.iter_mut().enumerate() {
        *weight = if sum > 0.0 { (height(k) / sum) as f32 } else { 1.0 };
    }
}

wide! {
    fn run<S: Sample>(
        image: View<S>,
        region: Region,
        mirror: bool,
        out: &mut [S],
        size: [usize; 2],
        down: &Taps,
        across: &Taps,
        row: &mut [f32],
    ) {
        let (channels, [height, width]) = (image.channels, size);
        let stride = image.size[1] * channels;
        let source = &image.pixels[region.top * stride + region.left * channels..];
        for (y, out) in out.chunks_exact_mut(width * channels).take(height).enumerate() {
            let (first, weights) = down.of(y);
            let elements = region.width * channels;
            sum_rows(&source[first * stride..], stride, weights, &mut row[..elements]);
            match channels {
                // The usual numbers of weights as constants, so that their loops vanish.
                3 => match across.count {
                    2 => sum_pixels_of_three(row, across, 2, mirror, out),
                    3 => sum_pixels_of_three(row, across, 3, mirror, out),
                    4 => sum_pixels_of_three(row, across, 4, mirror, out),
                    count => sum_pixels_of_three(row, across, count, mirror, out),
                },
                _ => sum_pixels(row, across, channels, mirror, out),
            }
        }
    }
}

/// row ← Σ weight · source row, two rows at a time, since reading and writing `row` costs as much as a product.
#[inline(always)]
fn sum_rows<S: Sample>(source: &[S], stride: usize, weights: &[f32], row: &mut [f32]) {
    let pairs = weights.chunks_exact(2);
    let odd = pairs.remainder();
    match odd {
        [weight] => {
            let last = &source[(weights.len() - 1) * stride..][..row.len()];
            for (sum, a) in row.iter_mut().zip(last) {
                *sum = weight * a.to_f32();
            }
        }
        _ => row.fill(0.0),
    }
    for (k, pair) in pairs.enumerate() {
        let a = &source[2 * k * stride..][..row.len()];
        let b = &source[(2 * k + 1) * stride..][..row.len()];
        for ((sum, a), b) in row.iter_mut().zip(a).zip(b) {
            *sum += pair[0] * a.to_f32() + pair[1] * b.to_f32();
        }
    }
}

/// Four lanes for three channels: the last one is of the next pixel, and is overwritten by it.
#[inline(always)]
fn sum_pixels_of_three<S: Sample>(row: &[f32], across: &Taps, count: usize, mirror: bool, out: &mut [S]) {
    let width = out.len() / 3;
    let (firsts, weights, _) = across.all();
    for to in 0..width {
        let x = if mirror { width - 1 - to } else { to };
        let values = &row[firsts[x] as usize * 3..][..count * 3 + 1];
        let mut sum = Four::all(0.0);
        for (k, weight) in weights[x * count..][..count].iter().enumerate() {
            let pixel = values[k * 3..].first_chunk().expect("there is one element more");
            sum = sum.plus(Four::all(*weight).times(Four::new(pixel)));
        }
        let pixel = S::from_four(sum.values());
        match out.get_mut(to * 3..to * 3 + 4) {
            Some(four) => four.copy_from_slice(&pixel),
            None => out[to * 3..].copy_from_slice(&pixel[..3]),
        }
    }
}

#[inline(always)]
fn sum_pixels<S: Sample>(row: &[f32], across: &Taps, channels: usize, mirror: bool, out: &mut [S]) {
    let width = out.len() / channels;
    for x in 0..width {
        let (first, weights) = across.of(x);
        let to = if mirror { width - 1 - x } else { x };
        for channel in 0..channels {
            let values = row[first * channels + channel..].iter().step_by(channels);
            let sum: f32 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
            out[to * channels + channel] = S::from_f32(sum);
        }
    }
}
