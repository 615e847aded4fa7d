//! The gradient of a depthwise convolution by its filter: a sum over all pixels. Units of work are some rows and some
//! channels; rows are cut into chunks only where the channels alone do not give enough units.
//!
//! The sums of many taps, or of all, are in registers at once: each pixel of dy is then loaded once for all of them.

use super::batch_norm::sum_parts;
use super::depthwise::Depthwise;
use super::depthwise_lines::tiles;
use super::{Chunks, Image};
use crate::Cpu;
use crate::isa::{Isa, simd};
use crate::pool::Parts;
use crate::vector::{Vector, load, store};
use std::ops::Range;

/// Units of work that are worth a chunk of their own.
const UNITS: usize = 32;
/// Pixels of the smallest chunk.
const SMALLEST: usize = 256;
/// Pixels that are summed up in registers before their sums go to memory.
const PIXELS: usize = 64;

/// Elements of scratch that [`depthwise_filter_grad`] needs.
pub(crate) fn depthwise_filter_grad_scratch(d: &Depthwise, shape: Image) -> usize {
    let chunks = chunks(d.output(shape)).count;
    if chunks == 1 { 0 } else { chunks * d.filter[0] * d.filter[1] * shape.c }
}

/// dw ← the gradient of the convolution of x, an image of `shape`, by its filter.
pub(crate) fn depthwise_filter_grad(
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
    Chunks::new(to.n * to.h, SMALLEST.div_ceil(to.w.max(1)), UNITS.div_ceil(tiles(to.c).count().max(1)))
}

/// One filter's gradient for each chunk, one after the other in `out`.
fn sum_chunks(cpu: &Cpu, d: &Depthwise, shape: Image, chunks: Chunks, [x, dy]: [&[f32]; 2], out: &mut [f32]) {
    let to = d.output(shape);
    assert!(x.len() == shape.len() && dy.len() == to.len(), "images of other shapes");
    let per_chunk = d.filter[0] * d.filter[1] * shape.c;
    let tile_count = tiles(shape.c).count();
    assert!(out.len() == chunks.count * per_chunk, "sums of another filter");
    let out = Sums(out.as_mut_ptr());
    cpu.pool.split(chunks.count * tile_count, 1, |units| {
        for u in units {
            let (chunk, tile) = (u / tile_count, u % tile_count);
            let Some(channels) = tiles(shape.c).nth(tile) else { continue };
            let (x, dy) = (x[channels.start..].as_ptr(), dy[channels.start..].as_ptr());
            let sums = out.at(chunk * per_chunk + channels.start);
            let unit = Unit { d, shape, to, x, dy, sums, channels: channels.len() };
            // SAFETY: images and sums have the lengths of their shapes, by the assertions; each unit has its own channels of its own
            // chunk.
            unsafe {
                unit.clear();
                sum_rows(cpu.isa, &unit, chunks.range(chunk), matches!(cpu.isa, Isa::Avx512 | Isa::Neon));
            }
        }
    });
}

/// Sums of which threads write different ones.
struct Sums(*mut f32);

// SAFETY: it gives nothing but addresses; each unit of work has its own sums behind them.
unsafe impl Sync for Sums {}

impl Sums {
    fn at(&self, i: usize) -> *mut f32 {
        self.0.wrapping_add(i)
    }
}

/// Some channels of one chunk; images and sums start at the first of them.
struct Unit<'a> {
    d: &'a Depthwise,
    shape: Image,
    to: Image,
    x: *const f32,
    dy: *const f32,
    sums: *mut f32,
    channels: usize,
}

simd! {
    /// Adds Σ x·dy over some rows of dy, in groups of taps that share the loads of dy.
    ///
    /// # Safety
    /// The images cover their shapes, and nobody else looks at the sums.
    unsafe fn sum_rows<V>(isa, unit: &Unit, rows: Range<usize>, many_registers: bool) {
        let each = (PIXELS / unit.to.w.max(1)).max(1);
        let [height, width] = unit.d.filter;
        for start in rows.clone().step_by(each) {
            let rows = start..rows.end.min(start + each);
            // SAFETY: the unit is as the caller promises, and these are taps of its filter.
            unsafe {
                match (height, width) {
                    (3, 3) => unit.add::<V, 3, 3>(&rows, 0, 0),
                    (5, 5) if many_registers => unit.add::<V, 5, 5>(&rows, 0, 0),
                    _ => unit.add_any::<V>(&rows),
                }
            }
        }
    }
}

/// What one row of dy brings together with some rows of the filter.
struct Row<const G: usize> {
    dy: *const f32,
    /// The rows of x; null where there is none.
    x: [*const f32; G],
}

impl Unit<'_> {
    /// # Safety
    /// Nobody else looks at the sums.
    unsafe fn clear(&self) {
        for tap in 0..self.d.filter[0] * self.d.filter[1] {
            // SAFETY: a tap has sums for all channels, of which the unit's follow here.
            unsafe { self.sums.add(tap * self.shape.c).write_bytes(0, self.channels) };
        }
    }

    /// Taps of any filter, a row after the other.
    ///
    /// # Safety
    /// As for [`sum_rows`]; the instruction set of `V` is available.
    #[inline(always)]
    unsafe fn add_any<V: Vector>(&self, rows: &Range<usize>) {
        let [height, width] = self.d.filter;
        for kh in 0..height {
            let mut kw = 0;
            while kw < width {
                // SAFETY: as many taps are left in the row of the filter.
                unsafe {
                    match width - kw {
                        3 => self.add::<V, 1, 3>(rows, kh, kw),
                        5 => self.add::<V, 1, 5>(rows, kh, kw),
                        4.. => self.add::<V, 1, 4>(rows, kh, kw),
                        _ => self.add::<V, 1, 1>(rows, kh, kw),
                    }
                }
                kw += match width - kw {
                    left @ (3 | 5) => left,
                    4.. => 4,
                    _ => 1,
                };
            }
        }
    }

    /// The taps `kh..kh + G` × `kw..kw + K`, all channels.
    ///
    /// # Safety
    /// As for [`sum_rows`]; the filter has these taps, and the instruction set of `V` is available.
    #[inline(always)]
    unsafe fn add<V: Vector, const G: usize, const K: usize>(&self, rows: &Range<usize>, kh: usize, kw: usize) {
        let whole = self.whole_columns(kw, K);
        let mut c = 0;
        // SAFETY: registers of channels are taken of those that the unit has, and the last ones by their number.
        unsafe {
            while c + V::WIDTH <= self.channels {
                self.add_channels::<V, G, K, true>(rows, [kh, kw], &whole, c);
                c += V::WIDTH;
            }
            if c < self.channels {
                self.add_channels::<V, G, K, false>(rows, [kh, kw], &whole, c);
            }
        }
    }

    /// The pixels of a row of dy for which all of `taps` taps from `kw` on lie inside of x.
    #[inline(always)]
    fn whole_columns(&self, kw: usize, taps: usize) -> Range<usize> {
        let (stride, pad, dilation) = (self.d.conv.stride[1], self.d.conv.pad.left, self.d.conv.dilation[1]);
        let (first, last) = (kw * dilation, (kw + taps - 1) * dilation);
        let end = (self.shape.w + pad).saturating_sub(last).div_ceil(stride).min(self.to.w);
        pad.saturating_sub(first).div_ceil(stride).min(end)..end
    }

    /// A vector of channels from `c` on, which is whole or not.
    ///
    /// # Safety
    /// As for [`Unit::add`]; the unit has these channels.
    #[inline(always)]
    unsafe fn add_channels<V: Vector, const G: usize, const K: usize, const WHOLE: bool>(
        &self,
        rows: &Range<usize>,
        [kh, kw]: [usize; 2],
        whole: &Range<usize>,
        c: usize,
    ) {
        let left = if WHOLE { V::WIDTH } else { self.channels - c };
        // SAFETY: rows are of the image of dy, and `whole` are those pixels whose taps lie inside; the sums of a tap have these
        // channels.
        unsafe {
            let mut sums = [[V::zero(); K]; G];
            for row in rows.clone() {
                let row = self.row::<G>(row, kh, c);
                if row.x.iter().any(|x| x.is_null()) {
                    self.add_pixels::<V, G, K, true>(&row, kw, 0..self.to.w, left, &mut sums);
                } else {
                    self.add_pixels::<V, G, K, true>(&row, kw, 0..whole.start, left, &mut sums);
                    self.add_pixels::<V, G, K, false>(&row, kw, whole.clone(), left, &mut sums);
                    self.add_pixels::<V, G, K, true>(&row, kw, whole.end..self.to.w, left, &mut sums);
                }
            }
            for (g, sums) in sums.iter().enumerate() {
                for (k, sum) in sums.iter().enumerate() {
                    let at = self.sums.add(((kh + g) * self.d.filter[1] + kw + k) * self.shape.c + c);
                    store(load::<V>(at, left).add(*sum), at, left);
                }
            }
        }
    }

    /// A row of dy, and the rows of x that it meets.
    ///
    /// # Safety
    /// The images cover their shapes, the row is one of dy's and the unit has channel `c`.
    #[inline(always)]
    unsafe fn row<const G: usize>(&self, row: usize, kh: usize, c: usize) -> Row<G> {
        let (n, oy) = (row / self.to.h, row % self.to.h);
        let mut x = [std::ptr::null(); G];
        for (g, x) in x.iter_mut().enumerate() {
            let reach = oy * self.d.conv.stride[0] + (kh + g) * self.d.conv.dilation[0];
            let y = reach.wrapping_sub(self.d.conv.pad.top);
            if y < self.shape.h {
                // SAFETY: the row lies inside of the image.
                *x = unsafe { self.x.add(self.shape.row(n, y) + c) };
            }
        }
        // SAFETY: the row lies inside of dy.
        Row { dy: unsafe { self.dy.add(self.to.row(n, oy) + c) }, x }
    }

    /// Prefetches what the same pixel of the next row reads for the first time: a row of a tile is too short for a processor to
    /// foresee the next one.
    #[inline(always)]
    fn prefetch<V: Vector>(&self, dy: *const f32, x: *const f32) {
        V::prefetch(dy.wrapping_add(self.to.w * self.to.c));
        for row in 1..=self.d.conv.stride[0] {
            for column in 0..self.d.conv.stride[1] {
                V::prefetch(x.wrapping_add((row * self.shape.w + column) * self.shape.c));
            }
        }
    }

    /// Some pixels of a row. `EDGE`: some of their taps may lie outside.
    ///
    /// # Safety
    /// The row is of [`Unit::row`], has these pixels and `left` channels; without `EDGE` all taps of the pixels lie inside. The
    /// instruction set of `V` is available.
    #[inline(always)]
    unsafe fn add_pixels<V: Vector, const G: usize, const K: usize, const EDGE: bool>(
        &self,
        row: &Row<G>,
        kw: usize,
        pixels: Range<usize>,
        left: usize,
        sums: &mut [[V; K]; G],
    ) {
        let (channels, stride, dilation) = (self.shape.c, self.d.conv.stride[1], self.d.conv.dilation[1]);
        for o in pixels {
            let place = (o * stride + kw * dilation).wrapping_sub(self.d.conv.pad.left);
            if !EDGE {
                self.prefetch::<V>(row.dy.wrapping_add(o * channels), row.x[G - 1].wrapping_add(place * channels));
            }
            // SAFETY: pixel o is in the row of dy; taps lie inside of a row of x, or else they are left out.
            unsafe {
                let dy: V = load(row.dy.add(o * channels), left);
                for (sums, x) in sums.iter_mut().zip(row.x) {
                    if EDGE && x.is_null() {
                        continue;
                    }
                    for (k, sum) in sums.iter_mut().enumerate() {
                        let place = place.wrapping_add(k * dilation);
                        if EDGE && place >= self.shape.w {
                            continue;
                        }
                        *sum = sum.fma(load(x.add(place * channels), left), dy);
                    }
                }
            }
        }
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
