//! The inner loops of a depthwise convolution: pixels of a line that use the same taps, a few of them at a time in registers.
//! Each column of the image that they read is loaded once for all of them. A pixel's sum goes over rows of the filter and
//! then over places from left to right, whatever else is made beside it.

use super::depthwise::{Axis, Pass, Taps, Tensors};
use crate::isa::simd;
use crate::vector::{Vector, load, store};
use std::ops::Range;

/// Pixels whose sums are in registers at once; the next pixels' sums are under way while these end.
const BLOCK: usize = 4;
/// Vectors of channels that are taken for all rows before the next ones: the taps of the filter for them, and the rows that
/// they read, stay in the first-level cache. With 16 lanes, five vectors are at least as fast as four or eight.
const TILE: usize = 80;

simd! {
    /// Makes some pixels, counted over all images.
    ///
    /// # Safety
    /// The tensors have the lengths that the shapes say, and nobody else writes these pixels.
    pub(crate) unsafe fn make_pixels<V>(isa, pass: &Pass, tensors: Tensors, pixels: Range<usize>) {
        let w = pass.to.w;
        for channels in tiles(pass.to.c) {
            let mut start = pixels.start;
            while start < pixels.end {
                let row = start / w;
                let end = pixels.end.min((row + 1) * w);
                // SAFETY: the pixels are of one row, and among those that the caller promises.
                unsafe { make_line::<V>(pass, tensors, row, start - row * w..end - row * w, channels.clone()) };
                start = end;
            }
        }
    }
}

/// Channels in tiles of about the same size, each a multiple of 16 but the last.
#[inline(always)]
pub(super) fn tiles(channels: usize) -> impl Iterator<Item = Range<usize>> {
    let each = channels.div_ceil(channels.div_ceil(TILE).max(1)).next_multiple_of(16);
    (0..channels).step_by(each).map(move |c| c..channels.min(c + each))
}

/// Pixels of a row that use the same taps. Pixel `i` is at `to + i·to_step` and reads from place `taps.place + i·advance` on.
#[derive(Clone, Copy)]
struct Line<'a> {
    image: *const f32,
    filter: *const f32,
    to: *mut f32,
    to_step: usize,
    vertical: Taps,
    taps: Taps,
    axis: Axis,
    pass: &'a Pass,
    channels: usize,
}

/// Some pixels and channels of a row.
///
/// # Safety
/// As for [`make_pixels`], of these pixels; the instruction set of `V` is available.
#[inline(always)]
unsafe fn make_line<V: Vector>(pass: &Pass, t: Tensors, row: usize, cols: Range<usize>, channels: Range<usize>) {
    let (c, axis) = (pass.to.c, pass.axes[1]);
    let first = channels.start;
    for o in cols.start..cols.end.min(cols.start + axis.phases()) {
        // SAFETY: the row is one of the result's, and its image one of those that are read.
        let line = unsafe {
            Line {
                image: t.from.add(pass.from.row(row / pass.to.h, 0) + first),
                filter: t.filter.add(first),
                to: t.to.add((row * pass.to.w + o) * c + first),
                to_step: axis.phases() * c,
                vertical: pass.axes[0].clip(pass.axes[0].taps(row % pass.to.h)),
                taps: axis.taps(o),
                axis,
                pass,
                channels: channels.len(),
            }
        };
        let pixels = (cols.end - o).div_ceil(axis.phases());
        let taps = line.taps;
        // SAFETY: the pixels end with `cols`; K and S are the taps and the advance of this line.
        unsafe {
            match (taps.count, if taps.count == 1 { 1 } else { taps.stride }, axis.advance()) {
                (1, 1, 1) => line.run::<V, 1, 1>(pixels),
                (2, 1, 1) => line.run::<V, 2, 1>(pixels),
                (3, 1, 1) => line.run::<V, 3, 1>(pixels),
                (5, 1, 1) => line.run::<V, 5, 1>(pixels),
                (3, 1, 2) => line.run::<V, 3, 2>(pixels),
                (5, 1, 2) => line.run::<V, 5, 2>(pixels),
                _ => line.run_any::<V>(pixels),
            }
        }
    }
}

impl Line<'_> {
    /// All pixels, with `K` neighbouring taps each; neighbours read `S` places apart.
    ///
    /// # Safety
    /// The line's pointers are inside of their tensors, it has as many pixels, and nobody else touches them; the instruction set of
    /// `V` is available.
    #[inline(always)]
    unsafe fn run<V: Vector, const K: usize, const S: usize>(&self, pixels: usize) {
        let mut next = 0;
        while next < pixels {
            // SAFETY: a block ends with the line's pixels, and those without an edge read inside of the row.
            unsafe {
                if pixels < BLOCK {
                    self.block::<V, 1, K, S, true>(next);
                    next += 1;
                    continue;
                }
                // The last block may make some pixels again, to the same bits.
                let i = next.min(pixels - BLOCK);
                let place = self.taps.place + (i * S) as isize;
                let end = place + ((BLOCK - 1) * S + K) as isize;
                if place >= 0 && end <= self.axis.extent as isize {
                    self.block::<V, BLOCK, K, S, false>(i);
                } else {
                    self.block::<V, BLOCK, K, S, true>(i);
                }
                next += BLOCK;
            }
        }
    }

    /// `N` pixels from pixel `i` on. `EDGE`: some of their taps may lie outside.
    ///
    /// # Safety
    /// As for [`Line::run`]; the line has these pixels, and without `EDGE` all their taps lie inside.
    #[inline(always)]
    unsafe fn block<V: Vector, const N: usize, const K: usize, const S: usize, const EDGE: bool>(&self, i: usize) {
        let mut c = 0;
        // SAFETY: registers of channels are taken of those that the line has, and the last ones by their number.
        unsafe {
            while c + V::WIDTH <= self.channels {
                self.sums::<V, N, K, S, EDGE, true>(i, c);
                c += V::WIDTH;
            }
            if c < self.channels {
                self.sums::<V, N, K, S, EDGE, false>(i, c);
            }
        }
    }

    /// The same for a vector of channels from `c` on, which is `WHOLE` or not.
    ///
    /// # Safety
    /// As for [`Line::block`]; the line has these channels.
    #[inline(always)]
    unsafe fn sums<V: Vector, const N: usize, const K: usize, const S: usize, const EDGE: bool, const WHOLE: bool>(
        &self,
        i: usize,
        c: usize,
    ) {
        let left = if WHOLE { V::WIDTH } else { self.channels - c };
        let (step, place) = (self.pass.to.c as isize, self.taps.place + (i * S) as isize);
        // SAFETY: vertical taps were clipped to the image; the others lie inside of the row, or else they are left out. Taps are of
        // the filter.
        unsafe {
            let mut sums = [V::zero(); N];
            for t in 0..self.vertical.count as isize {
                let row = (self.vertical.place + t * self.vertical.stride) * self.pass.from.w as isize + place;
                let x = self.image.add(c).wrapping_offset(row * step);
                let tap = (self.vertical.first + t * self.vertical.step) * self.pass.width as isize + self.taps.first;
                let mut w = [V::zero(); K];
                for (k, w) in w.iter_mut().enumerate() {
                    *w = load(self.filter.add(c).offset((tap + k as isize * self.taps.step) * step), left);
                }
                for column in 0..(N - 1) * S + K {
                    let there = place + column as isize;
                    if EDGE && (there < 0 || there >= self.axis.extent as isize) {
                        continue;
                    }
                    let x: V = load(x.wrapping_offset(column as isize * step), left);
                    for (k, w) in w.iter().enumerate() {
                        if column >= k && (column - k).is_multiple_of(S) && (column - k) / S < N {
                            let n = (column - k) / S;
                            sums[n] = sums[n].fma(x, *w);
                        }
                    }
                }
            }
            self.prefetch::<V, N, S>(i, c);
            for (n, sum) in sums.into_iter().enumerate() {
                store(sum, self.to.add((i + n) * self.to_step + c), left);
            }
        }
    }

    /// Prefetches what the same pixels of the next row write, and read for the first time: a row of a tile is too short for a
    /// processor to foresee the next one.
    #[inline(always)]
    fn prefetch<V: Vector, const N: usize, const S: usize>(&self, i: usize, c: usize) {
        let below = (self.vertical.place + self.vertical.count as isize * self.vertical.stride) as usize;
        let from = self.image.wrapping_add((below * self.pass.from.w + i * S) * self.pass.to.c + c);
        for n in 0..N {
            V::prefetch(self.to.wrapping_add((i + n) * self.to_step + self.pass.to.w * self.pass.to.c + c));
        }
        for row in 0..S {
            for column in 0..N * S {
                V::prefetch(from.wrapping_add((row * self.pass.from.w + column) * self.pass.to.c));
            }
        }
    }

    /// All pixels, whatever their taps are.
    ///
    /// # Safety
    /// As for [`Line::run`].
    #[inline(always)]
    unsafe fn run_any<V: Vector>(&self, pixels: usize) {
        let step = self.pass.to.c as isize;
        for i in 0..pixels {
            let place = self.taps.place + (i * self.axis.advance()) as isize;
            let taps = self.axis.clip(Taps { place, ..self.taps });
            for c in (0..self.channels).step_by(V::WIDTH) {
                let left = self.channels - c;
                // SAFETY: taps were clipped to the image on both axes; loads and stores end with the channels of the line.
                unsafe {
                    let mut sum = V::zero();
                    for t in 0..self.vertical.count as isize {
                        let y = self.vertical.place + t * self.vertical.stride;
                        let kh = self.vertical.first + t * self.vertical.step;
                        for k in 0..taps.count as isize {
                            let from = y * self.pass.from.w as isize + taps.place + k * taps.stride;
                            let tap = kh * self.pass.width as isize + taps.first + k * taps.step;
                            let x: V = load(self.image.add(c).offset(from * step), left);
                            sum = sum.fma(x, load(self.filter.add(c).offset(tap * step), left));
                        }
                    }
                    store(sum, self.to.add(i * self.to_step + c), left);
                }
            }
        }
    }
}
