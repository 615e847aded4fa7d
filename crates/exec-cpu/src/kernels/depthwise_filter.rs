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
            let unit = Unit { d, shape, base: chunk * taps * shape.c, channels: first..(first + TILE).min(shape.c) };
            for tap in 0..taps {
                // SAFETY: each unit has its own channels of its own chunk.
                unsafe { out.range(unit.sums(tap, unit.channels.clone())) }.fill(0.0);
            }
            for row in chunks.range(chunk) {
                for kh in 0..d.filter[0] {
                    if let Some((x, dy)) = unit.rows(row, kh, x_dy) {
                        add_row(cpu.isa, &unit, kh, x, dy, &out);
                    }
                }
            }
        }
    });
}

/// Some channels of one chunk.
struct Unit<'a> {
    d: &'a Depthwise,
    shape: Image,
    /// Where the chunk's sums start.
    base: usize,
    channels: Range<usize>,
}

impl Unit<'_> {
    /// Where the sums of a tap and some channels stand.
    #[inline(always)]
    fn sums(&self, tap: usize, channels: Range<usize>) -> Range<usize> {
        let at = self.base + tap * self.shape.c;
        at + channels.start..at + channels.end
    }

    /// The rows of x and dy that row `kh` of the filter brings together, if there is one in x.
    fn rows<'a>(&self, row: usize, kh: usize, [x, dy]: [&'a [f32]; 2]) -> Option<(&'a [f32], &'a [f32])> {
        let (shape, to) = (self.shape, self.d.output(self.shape));
        let (n, oy) = (row / to.h, row % to.h);
        let conv = &self.d.conv;
        let y = (oy * conv.stride[0] + kh * conv.dilation[0]).checked_sub(conv.pad.top).filter(|&y| y < shape.h)?;
        let (from, at) = (shape.row(n, y), to.row(n, oy));
        Some((&x[from..from + shape.w * shape.c], &dy[at..at + to.w * to.c]))
    }

    /// The pixels of dy whose tap `kw` lies inside of x.
    #[inline(always)]
    fn cols(&self, kw: usize, outs: usize) -> Range<usize> {
        let (stride, pad) = (self.d.conv.stride[1], self.d.conv.pad.left);
        let reach = kw * self.d.conv.dilation[1];
        let end = (self.shape.w + pad).saturating_sub(reach).div_ceil(stride).min(outs);
        pad.saturating_sub(reach).div_ceil(stride).min(end)..end
    }

    /// The pixel of x that tap `kw` reads for pixel `o` of dy.
    #[inline(always)]
    fn pixel(&self, kw: usize, o: usize) -> usize {
        o * self.d.conv.stride[1] + kw * self.d.conv.dilation[1] - self.d.conv.pad.left
    }
}

simd! {
    /// Adds Σ x·dy over one row to the sums of row `kh` of the filter. Taps go in groups that share the loads of dy.
    fn add_row<FMA>(isa, unit: &Unit, kh: usize, x: &[f32], dy: &[f32], out: &Parts<f32>) {
        let width = unit.d.filter[1];
        let mut kw = 0;
        while kw < width {
            let tap = kh * width + kw;
            kw += match width - kw {
                3 => add_taps::<FMA, 3>(unit, tap, kw, x, dy, out),
                5 => add_taps::<FMA, 5>(unit, tap, kw, x, dy, out),
                4.. => add_taps::<FMA, 4>(unit, tap, kw, x, dy, out),
                _ => add_taps::<FMA, 1>(unit, tap, kw, x, dy, out),
            };
        }
    }
}

/// `G` taps from `kw` on, all channels of the unit. Returns `G`.
#[inline(always)]
fn add_taps<const FMA: bool, const G: usize>(
    unit: &Unit,
    tap: usize,
    kw: usize,
    x: &[f32],
    dy: &[f32],
    out: &Parts<f32>,
) -> usize {
    let mut cols: [Range<usize>; G] = [const { 0..0 }; G];
    for (g, cols) in cols.iter_mut().enumerate() {
        *cols = unit.cols(kw + g, dy.len() / unit.shape.c);
    }
    let mut next = unit.channels.start;
    while next < unit.channels.end {
        let end = if unit.shape.c < LANES { next + 1 } else { (next + LANES).min(unit.channels.end) };
        if unit.shape.c < LANES {
            let sums = row_sums::<FMA, G, 1>(unit, kw, &cols, next, x, dy);
            add_channels(unit, tap, next..end, &sums, next, out);
        } else {
            // The last vector may overlap the one before; only its new lanes are added.
            let first = end.max(LANES) - LANES;
            let sums = row_sums::<FMA, G, LANES>(unit, kw, &cols, first, x, dy);
            add_channels(unit, tap, next..end, &sums, first, out);
        }
        next = end;
    }
    G
}

/// Adds the sums of taps from `tap` on, whose first lane is channel `first`, for some channels.
#[inline(always)]
fn add_channels<const L: usize>(
    unit: &Unit,
    tap: usize,
    channels: Range<usize>,
    sums: &[[f32; L]],
    first: usize,
    out: &Parts<f32>,
) {
    for (g, sums) in sums.iter().enumerate() {
        // SAFETY: each unit has its own channels of its own chunk.
        let to = unsafe { out.range(unit.sums(tap + g, channels.clone())) };
        for (to, &sum) in to.iter_mut().zip(&sums[channels.start - first..]) {
            *to += sum;
        }
    }
}

/// Σ x·dy over a row for `G` taps from `kw` on, each over its columns, and `L` channels from `c` on.
#[inline(always)]
fn row_sums<const FMA: bool, const G: usize, const L: usize>(
    unit: &Unit,
    kw: usize,
    cols: &[Range<usize>; G],
    c: usize,
    x: &[f32],
    dy: &[f32],
) -> [[f32; L]; G] {
    let (channels, step) = (unit.shape.c, unit.d.conv.dilation[1] * unit.shape.c);
    let mut sums = [[0.0; L]; G];
    // The first tap has the fewest pixels on the left, the last tap on the right.
    let whole = cols[0].start..cols[G - 1].end;
    for o in whole.clone() {
        let dy = &dy[o * channels + c..o * channels + c + L];
        let at = unit.pixel(kw, o) * channels + c;
        let x = &x[at..at + (G - 1) * step + L];
        for (g, sums) in sums.iter_mut().enumerate() {
            // SAFETY: g ≤ G − 1, so that the end is at most that of x.
            let x = unsafe { x.get_unchecked(g * step..g * step + L) };
            for l in 0..L {
                sums[l] = fma::<FMA>(x[l], dy[l], sums[l]);
            }
        }
    }
    for (g, (sums, cols)) in sums.iter_mut().zip(cols).enumerate() {
        for o in cols.clone() {
            if whole.contains(&o) {
                continue;
            }
            let (at, place) = (o * channels + c, unit.pixel(kw + g, o) * channels + c);
            let (x, dy) = (&x[place..place + L], &dy[at..at + L]);
            for l in 0..L {
                sums[l] = fma::<FMA>(x[l], dy[l], sums[l]);
            }
        }
    }
    sums
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
