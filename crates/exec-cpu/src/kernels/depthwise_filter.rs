//! The gradient of a depthwise convolution by its filter: a sum over all pixels. Units of work are some rows and some
//! channels; rows are cut into chunks only where the channels alone do not give enough units.

use super::batch_norm::sum_parts;
use super::depthwise::Depthwise;
use super::{Chunks, Image};
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::math::LANES;
use crate::pool::Parts;
use std::ops::Range;

/// Channels of a unit of work.
const TILE: usize = 64;
/// Units of work that are worth a chunk of their own.
const UNITS: usize = 32;
/// Pixels of the smallest chunk.
const SMALLEST: usize = 256;
/// Sums under way at once.
const WAYS: usize = 4;

/// Elements of scratch that [`depthwise_filter_grad`] needs.
pub fn depthwise_filter_grad_scratch(d: &Depthwise, shape: Image) -> usize {
    let chunks = chunks(d.output(shape)).count;
    if chunks == 1 { 0 } else { chunks * d.filter[0] * d.filter[1] * shape.c }
}

/// dw ← the gradient of the convolution of x, an image of `shape`, by its filter.
pub fn depthwise_filter_grad(
    cpu: &Cpu,
    d: &Depthwise,
    shape: Image,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    scratch: &mut [f32],
) {
    let chunks = chunks(d.output(shape));
    let len = dw.len();
    if chunks.count == 1 {
        return sum_chunks(cpu, d, shape, chunks, [x, dy], dw);
    }
    let partial = &mut scratch[..chunks.count * len];
    sum_chunks(cpu, d, shape, chunks, [x, dy], partial);
    let dw = Parts::new(dw);
    cpu.pool.split(len, 1024, |r| {
        // SAFETY: split gives disjoint ranges.
        sum_parts(partial, chunks.count, len, r.clone(), unsafe { dw.range(r) });
    });
}

/// Chunks of the rows of all images.
fn chunks(to: Image) -> Chunks {
    Chunks::new(to.n * to.h, SMALLEST.div_ceil(to.w.max(1)), UNITS.div_ceil(to.c.div_ceil(TILE).max(1)))
}

/// One filter's gradient for each chunk, one after the other in `out`.
fn sum_chunks(cpu: &Cpu, d: &Depthwise, shape: Image, chunks: Chunks, x_dy: [&[f32]; 2], out: &mut [f32]) {
    let tiles = shape.c.div_ceil(TILE);
    let taps = d.filter[0] * d.filter[1];
    let out = Parts::new(out);
    cpu.pool.split(chunks.count * tiles, 1, |units| {
        for u in units {
            let (chunk, first) = (u / tiles, u % tiles * TILE);
            let channels = first..(first + TILE).min(shape.c);
            for tap in 0..taps {
                let at = (chunk * taps + tap) * shape.c;
                // SAFETY: each unit has its own channels of its own chunk.
                let sums = unsafe { out.range(at + channels.start..at + channels.end) };
                sums.fill(0.0);
            }
            for row in chunks.range(chunk) {
                let unit = Unit { d, shape, row, channels: channels.clone() };
                for kh in 0..d.filter[0] {
                    let Some((x, dy)) = unit.rows(kh, x_dy) else { continue };
                    for kw in 0..d.filter[1] {
                        let at = (chunk * taps + kh * d.filter[1] + kw) * shape.c;
                        // SAFETY: as above.
                        let sums = unsafe { out.range(at + channels.start..at + channels.end) };
                        add_tap(cpu.isa, &unit, kw, x, dy, sums);
                    }
                }
            }
        }
    });
}

/// One row of dy, some channels.
struct Unit<'a> {
    d: &'a Depthwise,
    shape: Image,
    row: usize,
    channels: Range<usize>,
}

impl Unit<'_> {
    /// The rows of x and dy that row `kh` of the filter brings together, if there is one in x.
    fn rows<'a>(&self, kh: usize, [x, dy]: [&'a [f32]; 2]) -> Option<(&'a [f32], &'a [f32])> {
        let (shape, to) = (self.shape, self.d.output(self.shape));
        let (n, oy) = (self.row / to.h, self.row % to.h);
        let conv = &self.d.conv;
        let y = (oy * conv.stride[0] + kh * conv.dilation[0]).checked_sub(conv.pad.top).filter(|&y| y < shape.h)?;
        let (from, at) = (shape.row(n, y), to.row(n, oy));
        Some((&x[from..from + shape.w * shape.c], &dy[at..at + to.w * to.c]))
    }

    /// The pixels of dy whose tap `kw` lies inside of x, and the pixel of x for the first of them.
    #[inline(always)]
    fn cols(&self, kw: usize, outs: usize) -> (Range<usize>, usize) {
        let (stride, pad) = (self.d.conv.stride[1], self.d.conv.pad.left);
        let reach = kw * self.d.conv.dilation[1];
        let first = pad.saturating_sub(reach).div_ceil(stride);
        let end = (self.shape.w + pad).saturating_sub(reach).div_ceil(stride).min(outs);
        (first.min(end)..end, (first * stride + reach).saturating_sub(pad))
    }
}

simd! {
    /// sums += Σ x·dy over one row, for tap `kw`.
    fn add_tap<FMA>(isa, unit: &Unit, kw: usize, x: &[f32], dy: &[f32], sums: &mut [f32]) {
        let c = unit.shape.c;
        let (cols, place) = unit.cols(kw, dy.len() / c);
        if cols.is_empty() {
            return;
        }
        let (dy, x) = (&dy[cols.start * c..cols.end * c], &x[place * c..]);
        let step = unit.d.conv.stride[1] * c;
        let mut next = unit.channels.start;
        while next < unit.channels.end {
            if c < LANES {
                sums[next - unit.channels.start] += row_sum::<FMA, 1>(dy, x, c, step, next)[0];
                next += 1;
                continue;
            }
            // The last vector may overlap the one before; only its new lanes are added.
            let end = (next + LANES).min(unit.channels.end);
            let first = (end - LANES.min(end)).min(next);
            let sum = row_sum::<FMA, LANES>(dy, x, c, step, first);
            for channel in next..end {
                sums[channel - unit.channels.start] += sum[channel - first];
            }
            next = end;
        }
    }
}

/// Σ x·dy of `L` channels from `first` on, over the pixels of dy.
#[inline(always)]
fn row_sum<const FMA: bool, const L: usize>(dy: &[f32], x: &[f32], c: usize, step: usize, first: usize) -> [f32; L] {
    let mut acc = [[0.0; L]; WAYS];
    let n = dy.len() / c;
    let mut i = 0;
    while i + WAYS <= n {
        for (way, acc) in acc.iter_mut().enumerate() {
            add_pixel::<FMA, L>(acc, &x[(i + way) * step + first..], &dy[(i + way) * c + first..]);
        }
        i += WAYS;
    }
    while i < n {
        add_pixel::<FMA, L>(&mut acc[0], &x[i * step + first..], &dy[i * c + first..]);
        i += 1;
    }
    let mut sum = [0.0; L];
    for l in 0..L {
        sum[l] = (acc[0][l] + acc[1][l]) + (acc[2][l] + acc[3][l]);
    }
    sum
}

#[inline(always)]
fn add_pixel<const FMA: bool, const L: usize>(acc: &mut [f32; L], x: &[f32], dy: &[f32]) {
    let (x, dy) = (&x[..L], &dy[..L]);
    for l in 0..L {
        acc[l] = fma::<FMA>(x[l], dy[l], acc[l]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};
    use crate::kernels::depthwise::tests::{cases, products};

    #[test]
    fn gradient_by_the_filter() {
        for (shape, d) in cases() {
            let to = d.output(shape);
            let (x, dy) = (random(shape.len(), 1), random(to.len(), 2));
            let mut dw = vec![0.0; d.filter[0] * d.filter[1] * shape.c];
            products(shape, &d).iter().for_each(|&[o, i, k]| dw[k] += x[i] as f64 * dy[o] as f64);
            check(&format!("{d:?} on {shape:?}"), 5e-6, std::slice::from_ref(&dw), |cpu| {
                let mut got = nans(dw.len());
                let mut scratch = nans(depthwise_filter_grad_scratch(&d, shape));
                depthwise_filter_grad(cpu, &d, shape, &x, &dy, &mut got, &mut scratch);
                vec![got]
            });
        }
    }
}
