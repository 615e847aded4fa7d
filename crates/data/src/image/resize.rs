//! Cuts a region out of an image and scales it, in one pass over the rows that it needs: each output row is a weighted
//! sum of input rows, and each output pixel a weighted sum of that row. The weights are a triangle's, as wide as the
//! step between input pixels or, where the image shrinks, between output pixels: PIL's `BILINEAR`, TensorFlow's with
//! `antialias=True`.

use crate::error::Result;
use crate::memory::{Buffer, BytePool, NoRoom};
use crate::simd::{F32x4, multiversion};

/// A rectangle of pixels, which lies inside of the image that it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first row.
    pub top: usize,
    /// The first column.
    pub left: usize,
    /// Rows, at least 1.
    pub height: usize,
    /// Columns, at least 1.
    pub width: usize,
}

impl Region {
    /// All of an image of this height and width.
    pub fn whole([height, width]: [usize; 2]) -> Region {
        Region { top: 0, left: 0, height, width }
    }

    pub(super) fn lies_in(&self, [height, width]: [usize; 2]) -> bool {
        let fits =
            |from: usize, extent: usize, of: usize| extent > 0 && from.checked_add(extent).is_some_and(|e| e <= of);
        fits(self.top, self.height, height) && fits(self.left, self.width, width)
    }
}

/// How values between pixels are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interpolation {
    /// A triangle filter, which is as wide as an output pixel where the image shrinks (antialiasing).
    Bilinear,
    /// The pixel at the middle: for class numbers, which cannot be mixed.
    Nearest,
}

/// An element of an image.
pub(crate) trait PixelValue: Copy {
    fn to_f32(self) -> f32;
    /// To the nearest value there is.
    fn from_f32(value: f32) -> Self;
    /// Four at once, none of which is beyond what the type holds.
    #[inline(always)]
    fn from_f32x4(values: [f32; 4]) -> [Self; 4] {
        values.map(Self::from_f32)
    }
}

impl PixelValue for u8 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn from_f32(value: f32) -> u8 {
        (value + 0.5) as u8
    }
    #[inline(always)]
    fn from_f32x4(values: [f32; 4]) -> [u8; 4] {
        F32x4::load(&values).to_u8()
    }
}

impl PixelValue for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl PixelValue for i32 {
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
pub(crate) struct ImageView<'a, S> {
    pub pixels: &'a [S],
    pub size: [usize; 2],
    pub channels: usize,
}

/// Scales `region` of `image` to `size` and mirrors it left to right if asked. `out` is written from its start.
pub(crate) fn resize<S: PixelValue>(
    image: ImageView<S>,
    region: Region,
    interpolation: Interpolation,
    mirror: bool,
    out: &mut [S],
    size: [usize; 2],
    pool: &BytePool,
) -> Result<(), NoRoom> {
    assert!(region.lies_in(image.size), "the caller cut the region out of the image");
    let vertical = Taps::new(region.height, size[0], interpolation, pool)?;
    let horizontal = Taps::new(region.width, size[1], interpolation, pool)?;
    // One element more, so that the last pixel too can be read as four.
    let mut row = pool.buffer((region.width * image.channels + 1) * 4)?;
    let row = bytemuck::cast_slice_mut(row.bytes_mut());
    resize_rows(image, region, mirror, out, size, &vertical, &horizontal, row);
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
    fn new(inputs: usize, outputs: usize, interpolation: Interpolation, pool: &BytePool) -> Result<Taps, NoRoom> {
        let scale = inputs as f64 / outputs as f64;
        let reach = scale.max(1.0);
        let count = match interpolation {
            // An open interval of this length has no more whole numbers in it.
            Interpolation::Bilinear => ((2.0 * reach).ceil() as usize).min(inputs),
            Interpolation::Nearest => 1,
        };
        let mut data = pool.buffer(outputs * (1 + count) * 4)?;
        let (firsts, weights) = data.bytes_mut().split_at_mut(outputs * 4);
        let firsts: &mut [u32] = bytemuck::cast_slice_mut(firsts);
        let weights: &mut [f32] = bytemuck::cast_slice_mut(weights);
        for (i, (first, weights)) in firsts.iter_mut().zip(weights.chunks_exact_mut(count)).enumerate() {
            let centre = (i as f64 + 0.5) * scale;
            let wanted = match interpolation {
                Interpolation::Bilinear => (centre - reach + 0.5).floor().max(0.0) as usize,
                Interpolation::Nearest => centre as usize,
            };
            *first = wanted.min(inputs - count) as u32;
            triangle_weights(*first as usize, centre, reach, weights);
        }
        Ok(Taps { count, data, outputs })
    }

    /// The firsts, the weights, and how many of these each output has.
    fn tables(&self) -> (&[u32], &[f32], usize) {
        let (firsts, weights) = self.data.bytes().split_at(self.outputs * 4);
        (bytemuck::cast_slice(firsts), bytemuck::cast_slice(weights), self.count)
    }

    fn for_output(&self, output: usize) -> (usize, &[f32]) {
        let (firsts, weights, count) = self.tables();
        (firsts[output] as usize, &weights[output * count..][..count])
    }
}

/// Weights that sum up to one.
fn triangle_weights(first: usize, centre: f64, reach: f64, weights: &mut [f32]) {
    let height = |k: usize| (1.0 - ((first + k) as f64 + 0.5 - centre).abs() / reach).max(0.0);
    let sum: f64 = (0..weights.len()).map(height).sum();
    for (k, weight) in weights.iter_mut().enumerate() {
        *weight = if sum > 0.0 { (height(k) / sum) as f32 } else { 1.0 };
    }
}

multiversion! {
    fn resize_rows<S: PixelValue>(
        image: ImageView<S>,
        region: Region,
        mirror: bool,
        out: &mut [S],
        size: [usize; 2],
        vertical: &Taps,
        horizontal: &Taps,
        row: &mut [f32],
    ) {
        let (channels, [height, width]) = (image.channels, size);
        let stride = image.size[1] * channels;
        let source = &image.pixels[region.top * stride + region.left * channels..];
        for (y, out) in out.chunks_exact_mut(width * channels).take(height).enumerate() {
            let (first, weights) = vertical.for_output(y);
            let elements = region.width * channels;
            weighted_row_sum(&source[first * stride..], stride, weights, &mut row[..elements]);
            match channels {
                // The usual numbers of weights as constants, so that their loops vanish.
                3 => match horizontal.count {
                    2 => weighted_rgb_sums(row, horizontal, 2, mirror, out),
                    3 => weighted_rgb_sums(row, horizontal, 3, mirror, out),
                    4 => weighted_rgb_sums(row, horizontal, 4, mirror, out),
                    count => weighted_rgb_sums(row, horizontal, count, mirror, out),
                },
                _ => weighted_pixel_sums(row, horizontal, channels, mirror, out),
            }
        }
    }
}

/// row ← Σ weight · source row, two rows at a time, since reading and writing `row` costs as much as a product.
#[inline(always)]
fn weighted_row_sum<S: PixelValue>(source: &[S], stride: usize, weights: &[f32], row: &mut [f32]) {
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
fn weighted_rgb_sums<S: PixelValue>(row: &[f32], horizontal: &Taps, count: usize, mirror: bool, out: &mut [S]) {
    let width = out.len() / 3;
    let (firsts, weights, _) = horizontal.tables();
    for to in 0..width {
        let x = if mirror { width - 1 - to } else { to };
        let values = &row[firsts[x] as usize * 3..][..count * 3 + 1];
        let mut sum = F32x4::splat(0.0);
        for (k, weight) in weights[x * count..][..count].iter().enumerate() {
            let pixel = values[k * 3..].first_chunk().expect("there is one element more");
            sum = sum.add(F32x4::splat(*weight).mul(F32x4::load(pixel)));
        }
        let pixel = S::from_f32x4(sum.to_array());
        match out.get_mut(to * 3..to * 3 + 4) {
            Some(four) => four.copy_from_slice(&pixel),
            None => out[to * 3..].copy_from_slice(&pixel[..3]),
        }
    }
}

#[inline(always)]
fn weighted_pixel_sums<S: PixelValue>(row: &[f32], horizontal: &Taps, channels: usize, mirror: bool, out: &mut [S]) {
    let width = out.len() / channels;
    for x in 0..width {
        let (first, weights) = horizontal.for_output(x);
        let to = if mirror { width - 1 - x } else { x };
        for channel in 0..channels {
            let values = row[first * channels + channel..].iter().step_by(channels);
            let sum: f32 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
            out[to * channels + channel] = S::from_f32(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
        std::fs::read(format!("{folder}/{name}")).expect("it is in the repository")
    }

    fn difference(a: &[u8], b: &[u8]) -> (u8, f64) {
        assert_eq!(a.len(), b.len());
        let each = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
        (each.clone().max().unwrap_or(0), each.map(f64::from).sum::<f64>() / a.len() as f64)
    }

    #[test]
    fn scaling_is_pils() {
        let picture = fixture("rgb.raw");
        let whole = Region::whole([38, 45]);
        let part = Region { top: 3, left: 7, height: 27, width: 33 };
        for (name, size, region) in [("down", [11, 17], whole), ("up", [61, 70], whole), ("part", [24, 20], part)] {
            let mut out = vec![0; size[0] * size[1] * 3];
            let view = ImageView { pixels: &picture[..], size: [38, 45], channels: 3 };
            resize(view, region, Interpolation::Bilinear, false, &mut out, size, &BytePool::new(16 << 20))
                .expect("there is room");
            let (largest, mean) = difference(&out, &fixture(&format!("resize_{name}.raw")));
            assert!(largest <= 1 && mean < 0.25, "{name}: at most {largest}, {mean} on average");
        }
    }

    #[test]
    fn every_kind_of_scaling_is_the_sum_it_says() {
        let pixels: Vec<f32> = (0..7 * 9 * 2).map(|i| ((i * 37) % 101) as f32).collect();
        let region = Region { top: 1, left: 2, height: 5, width: 6 };
        for (size, interpolation) in [[3, 4], [5, 6], [11, 13], [1, 1]]
            .into_iter()
            .flat_map(|s| [(s, Interpolation::Bilinear), (s, Interpolation::Nearest)])
        {
            for mirror in [false, true] {
                let mut out = vec![0f32; size[0] * size[1] * 2];
                let view = ImageView { pixels: &pixels[..], size: [7, 9], channels: 2 };
                resize(view, region, interpolation, mirror, &mut out, size, &BytePool::new(16 << 20))
                    .expect("there is room");
                for (i, got) in out.iter().enumerate() {
                    let (y, x, c) = (i / (size[1] * 2), i / 2 % size[1], i % 2);
                    let x = if mirror { size[1] - 1 - x } else { x };
                    let want = naive(&pixels, region, interpolation, [y, x, c], size);
                    assert!((got - want).abs() < 1e-3, "{interpolation:?} {size:?} at {y},{x},{c}: {got}, not {want}");
                }
            }
        }
    }

    /// One element, over all pixels of the region.
    fn naive(
        pixels: &[f32],
        region: Region,
        interpolation: Interpolation,
        [y, x, c]: [usize; 3],
        size: [usize; 2],
    ) -> f32 {
        let weight = |i: usize, at: usize, inputs: usize, outputs: usize| {
            let scale = inputs as f32 / outputs as f32;
            let centre = (at as f32 + 0.5) * scale;
            match interpolation {
                Interpolation::Bilinear => (1.0 - (i as f32 + 0.5 - centre).abs() / scale.max(1.0)).max(0.0),
                Interpolation::Nearest => (i == centre as usize) as u8 as f32,
            }
        };
        let (mut sum, mut weights) = (0.0, 0.0);
        for i in 0..region.height {
            for j in 0..region.width {
                let w = weight(i, y, region.height, size[0]) * weight(j, x, region.width, size[1]);
                sum += w * pixels[((region.top + i) * 9 + region.left + j) * 2 + c];
                weights += w;
            }
        }
        sum / weights
    }
}
