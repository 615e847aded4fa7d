//! Packing: copies of A and B in the order in which the micro-kernel reads them. A may be a matrix or the patches of an
//! image, which are never materialised: packing reads them straight from the image.

use std::ops::Range;

use super::micro::{KC, Micro, PackedA, ROW_STRIDE};
use super::panel::{Columns, pack_rows, pack_turned};
use crate::isa::simd;
use crate::prefetch::BlockPrefetch;

/// How the left side lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum A {
    /// Element (i, p) at `i·stride + p`.
    Rows { stride: usize },
    /// Element (i, p) at `i + p·stride`.
    Columns { stride: usize },
    /// Row i is the patch of pixel i; the depth runs over taps and channels.
    Patches(Patches),
    /// Row i is tap and channel i of a patch; the depth runs over pixels.
    PatchColumns(Patches),
}

/// How the right side lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum B {
    /// Element (p, j) at `p·stride + j`.
    Rows { stride: usize },
    /// Depth p is tap `p / per_tap`; element (p, j) at `tap_offset + p % per_tap + j·stride`.
    Taps { stride: usize, per_tap: usize, taps: Taps },
}

/// The order in which the taps of a filter appear along the depth: forwards, or backwards in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taps {
    /// Taps along width, of those that take part.
    pub(crate) across: usize,
    /// Index of the first one and distance of the next, in taps of the filter, for height and width.
    pub(crate) first: [usize; 2],
    pub(crate) step: [isize; 2],
    /// Width of the whole filter, and elements between two of its taps.
    pub(crate) filter_width: usize,
    pub(crate) tap_stride: usize,
}

impl Taps {
    /// A single tap.
    pub(crate) const ONE: Taps = Taps { across: 1, first: [0, 0], step: [0, 0], filter_width: 1, tap_stride: 0 };

    pub(super) fn offset(&self, t: usize) -> usize {
        let ky = self.first[0] as isize + self.step[0] * (t / self.across) as isize;
        let kx = self.first[1] as isize + self.step[1] * (t % self.across) as isize;
        (ky as usize * self.filter_width + kx as usize) * self.tap_stride
    }
}

/// The patches of an image: pixel (n, i, j) of a grid reads, for tap (ty, tx), the image at
/// `(i·stride + origin + ty·dilation, …)`, zero outside of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patches {
    /// Height, width and channels of the image.
    pub(crate) size: [usize; 2],
    pub(crate) channels: usize,
    /// The channels that take part: this many from where the operand starts.
    pub(crate) used_channels: usize,
    /// Height and width of the grid.
    pub(crate) grid: [usize; 2],
    pub(crate) taps: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) origin: [isize; 2],
    pub(crate) dilation: [usize; 2],
}

/// Walks over the pixels of images, line by line: the image, the line and the place in it.
pub(super) struct Walk {
    grid: [usize; 2],
    at: [usize; 3],
}

impl Walk {
    pub(crate) fn new(grid: [usize; 2], pixel: usize) -> Walk {
        let (j, rest) = (pixel % grid[1], pixel / grid[1]);
        Walk { grid, at: [rest / grid[0], rest % grid[0], j] }
    }
}

impl Iterator for Walk {
    type Item = [usize; 3];

    #[inline(always)]
    fn next(&mut self) -> Option<[usize; 3]> {
        let here = self.at;
        let [image, i, j] = &mut self.at;
        *j += 1;
        if *j == self.grid[1] {
            (*i, *j) = (*i + 1, 0);
            if *i == self.grid[0] {
                (*image, *i) = (*image + 1, 0);
            }
        }
        Some(here)
    }
}

/// Where a pixel's patch starts, before any tap.
#[derive(Clone, Copy, Default)]
pub(super) struct Corner {
    pub(crate) image: usize,
    pub(crate) y: isize,
    pub(crate) x: isize,
}

impl Patches {
    /// Of this pixel and all behind it.
    pub(super) fn corners(&self, pixel: usize) -> impl Iterator<Item = Corner> {
        let (stride, origin) = (self.stride, self.origin);
        Walk::new(self.grid, pixel).map(move |[image, i, j]| Corner {
            image,
            y: (i * stride[0]) as isize + origin[0],
            x: (j * stride[1]) as isize + origin[1],
        })
    }

    /// Whether patch i is pixel i as it stands.
    fn are_pixels(&self) -> bool {
        self.taps == [1, 1] && self.stride == [1, 1] && self.origin == [0, 0] && self.grid == self.size
    }

    /// Offset of channel 0 at tap (ty, tx), or none outside of the image.
    #[inline(always)]
    fn offset(&self, c: Corner, ty: usize, tx: usize) -> Option<usize> {
        let y = c.y + (ty * self.dilation[0]) as isize;
        let x = c.x + (tx * self.dilation[1]) as isize;
        let inside = y >= 0 && (y as usize) < self.size[0] && x >= 0 && (x as usize) < self.size[1];
        inside.then(|| ((c.image * self.size[0] + y as usize) * self.size[1] + x as usize) * self.channels)
    }
}

impl A {
    pub(crate) fn packed(&self) -> PackedA {
        match self {
            A::Rows { .. } | A::Patches(_) => PackedA::Rows,
            A::Columns { .. } | A::PatchColumns(_) => PackedA::Panels,
        }
    }

    /// The cache lines of a block. Patches of an image are read line by line, which processors foresee by themselves.
    pub(super) fn prefetch(&self, from: *const f32, rows: &Range<usize>, depths: &Range<usize>) -> BlockPrefetch {
        match *self {
            A::Rows { stride } => {
                let start = from.wrapping_add(rows.start * stride + depths.start);
                BlockPrefetch::new(start, stride, rows.len(), depths.len())
            }
            A::Columns { stride } => {
                let start = from.wrapping_add(depths.start * stride + rows.start);
                BlockPrefetch::new(start, stride, depths.len(), rows.len())
            }
            A::Patches(_) | A::PatchColumns(_) => BlockPrefetch::NOTHING,
        }
    }

    /// Packs some rows at some depths of the operand whose element 0 is, or would be, at `from`.
    ///
    /// # Safety
    /// The operand's elements for these rows and depths can be read, and `to` has room for the rows rounded up to MR, times
    /// `ROW_STRIDE`.
    pub(super) unsafe fn pack(
        &self,
        micro: &Micro,
        from: *const f32,
        rows: Range<usize>,
        depths: Range<usize>,
        to: *mut f32,
    ) {
        let (i0, m, p0, depth) = (rows.start, rows.len(), depths.start, depths.len());
        // SAFETY: each arm reads the elements of these rows and depths, at the places that its layout says, and writes `m` rows.
        unsafe {
            match *self {
                A::Rows { stride } => copy_rows(from.wrapping_add(i0 * stride + p0), stride, m, depth, to),
                A::Patches(ref p) if p.are_pixels() => {
                    copy_rows(from.wrapping_add(i0 * p.channels + p0), p.channels, m, depth, to);
                }
                A::Patches(ref p) => {
                    let copy = |at: usize, n: usize, to: *mut f32| {
                        std::ptr::copy_nonoverlapping(from.wrapping_add(at), to, n);
                    };
                    for (i, corner) in p.corners(i0).take(m).enumerate() {
                        pack_patch(p, corner, p0, depth, to.add(i * ROW_STRIDE), copy);
                    }
                }
                A::Columns { stride } => {
                    pack_columns(micro, from.wrapping_add(p0 * stride + i0), stride, m, depth, to);
                }
                A::PatchColumns(ref p) if p.are_pixels() => {
                    let source = from.wrapping_add(p0 * p.channels + i0);
                    pack_columns(micro, source, p.channels, m, depth, to);
                }
                A::PatchColumns(ref p) => pack_patch_columns(micro, p, from, rows, depths, to),
            }
        }
    }
}

/// # Safety
/// There are `m` rows of `depth` elements, `stride` apart, and `to` has room for as many, `ROW_STRIDE` apart.
unsafe fn copy_rows(from: *const f32, stride: usize, m: usize, depth: usize, to: *mut f32) {
    for i in 0..m {
        // SAFETY: row i is one of the m, on both sides.
        unsafe { std::ptr::copy_nonoverlapping(from.add(i * stride), to.add(i * ROW_STRIDE), depth) };
    }
}

/// One row: the patch of a pixel at depths `p0..p0+depth`. Neighbouring taps are one copy where they are neighbours in
/// the image too. `copy(at, n, to)` copies n elements of the image.
///
/// # Safety
/// `to` has room for `depth` elements, and `copy` may be called for any elements of the image and any part of `to`.
#[inline(always)]
pub(super) unsafe fn pack_patch(
    p: &Patches,
    corner: Corner,
    p0: usize,
    depth: usize,
    to: *mut f32,
    copy: impl Fn(usize, usize, *mut f32),
) {
    let c = p.used_channels;
    let merged = p.dilation[1] == 1 && c == p.channels;
    let line = p.taps[1] * c;
    let end = p0 + depth;
    let mut at = p0;
    // SAFETY: what is written lies in p0..end, for which there is room; what is copied lies inside of the image by the bounds
    // taken for each tap.
    unsafe {
        while at < end {
            let ty = at / line;
            let stop = ((ty + 1) * line).min(end);
            let y = corner.y + (ty * p.dilation[0]) as isize;
            if y < 0 || y as usize >= p.size[0] {
                std::ptr::write_bytes(to.add(at - p0), 0, stop - at);
                at = stop;
            } else if merged {
                // Depths of this line whose pixels are inside: between the left and the right edge.
                let row = ((corner.image * p.size[0] + y as usize) * p.size[1]) as isize;
                let left = ((-corner.x).max(0) as usize).min(p.taps[1]) * c + ty * line;
                let inside = (p.size[1] as isize - corner.x).clamp(0, p.taps[1] as isize) as usize * c + ty * line;
                let (a, b) = (left.clamp(at, stop), inside.clamp(at, stop));
                let b = b.max(a);
                std::ptr::write_bytes(to.add(at - p0), 0, a - at);
                let from = (row + corner.x) * c as isize + (a - ty * line) as isize;
                if b > a {
                    copy(from as usize, b - a, to.add(a - p0));
                }
                std::ptr::write_bytes(to.add(b - p0), 0, stop - b);
                at = stop;
            } else {
                let tx = (at - ty * line) / c;
                let channel = (at - ty * line) % c;
                let n = (c - channel).min(stop - at);
                match p.offset(corner, ty, tx) {
                    Some(o) => copy(o + channel, n, to.add(at - p0)),
                    None => std::ptr::write_bytes(to.add(at - p0), 0, n),
                }
                at += n;
            }
        }
    }
}

/// Depths that are packed for all panels before the next ones: their rows are read once, one after the other, and stay in
/// the first-level cache meanwhile.
const DEPTHS_AT_ONCE: usize = 32;

/// Rows of a transposed matrix, `mr` at a time.
///
/// # Safety
/// There are `depth` lines of `m` elements, `stride` apart, and `to` has room for `m` rounded up to MR, times the depth.
pub(super) unsafe fn pack_columns(
    micro: &Micro,
    from: *const f32,
    stride: usize,
    m: usize,
    depth: usize,
    to: *mut f32,
) {
    let mr = micro.mr;
    for d0 in (0..depth).step_by(DEPTHS_AT_ONCE) {
        let depths = d0..depth.min(d0 + DEPTHS_AT_ONCE);
        for at in (0..m).step_by(mr) {
            let segment = Segment { at: 0, rows: mr.min(m - at) };
            // SAFETY: the panel starts at `at·depth`; the rows of a segment are among the m elements of each line.
            unsafe {
                let (from, to) = (from.add(at), to.add(at * depth));
                copy_segment(micro.isa, mr, segment, depths.clone(), to, |d| Some(from.add(d * stride)));
            }
        }
    }
}

/// Rows that are taps and channels; the depth runs over pixels.
///
/// # Safety
/// The image's element 0 is, or would be, at `from`, and what these rows and depths read of it can be read; `to` has room for
/// the rows rounded up to MR, times the depth, which is at most KC.
unsafe fn pack_patch_columns(
    micro: &Micro,
    p: &Patches,
    from: *const f32,
    rows: Range<usize>,
    depths: Range<usize>,
    to: *mut f32,
) {
    let (m, p0, depth, mr) = (rows.len(), depths.start, depths.len(), micro.mr);
    let mut corners = [Corner::default(); KC];
    for (corner, found) in corners[..depth].iter_mut().zip(p.corners(p0)) {
        *corner = found;
    }
    let c = p.used_channels;
    for d0 in (0..depth).step_by(DEPTHS_AT_ONCE) {
        let depths = d0..depth.min(d0 + DEPTHS_AT_ONCE);
        let (mut tap, mut channel) = (rows.start / c, rows.start % c);
        let mut at = 0;
        while at < m {
            // To the end of the panel, of the tap's channels, or of the rows.
            let n = (mr - at % mr).min(c - channel).min(m - at);
            let (ty, tx) = (tap / p.taps[1], tap % p.taps[1]);
            let segment = Segment { at: at % mr, rows: n };
            // SAFETY: the segment's panel starts at a multiple of mr rows; an offset is that of a pixel inside of the image, whose
            // channels from `channel` on are at least the segment's rows.
            unsafe {
                let to = to.add((at - at % mr) * depth);
                copy_segment(micro.isa, mr, segment, depths.clone(), to, |d| {
                    p.offset(corners[d], ty, tx).map(|o| from.wrapping_add(o + channel))
                });
            }
            at += n;
            channel += n;
            if channel == c {
                (tap, channel) = (tap + 1, 0);
            }
        }
    }
}

/// Rows `at .. at + rows` of a panel.
#[derive(Clone, Copy)]
struct Segment {
    at: usize,
    rows: usize,
}

simd! {
    /// Fills rows of a panel for some depths from the pointer that `source` gives, or with zeros.
    ///
    /// # Safety
    /// From each of those pointers on, the segment's rows can be read; the panel has room for `mr` rows of these depths.
    unsafe fn copy_segment<V>(
        isa, mr: usize, s: Segment, depths: Range<usize>, to: *mut f32, source: impl Fn(usize) -> Option<*const f32>,
    ) {
        for d in depths {
            // SAFETY: loads and stores end with the segment's rows, which are at most mr.
            unsafe {
                let to = to.add(d * mr + s.at);
                let from = source(d);
                let mut i = 0;
                while i < s.rows {
                    let v = match from {
                        Some(p) => V::load_first(p.add(i), s.rows - i),
                        None => V::zero(),
                    };
                    v.store_first(to.add(i), s.rows - i);
                    i += V::WIDTH;
                }
            }
        }
    }
}

impl B {
    /// The cache lines of a block. One of several taps is packed whole.
    pub(super) fn prefetch(&self, from: *const f32, columns: &Range<usize>, depths: &Range<usize>) -> BlockPrefetch {
        match *self {
            B::Rows { stride } => {
                let start = from.wrapping_add(depths.start * stride + columns.start);
                BlockPrefetch::new(start, stride, depths.len(), columns.len())
            }
            B::Taps { stride, taps: Taps::ONE, .. } => {
                let start = from.wrapping_add(columns.start * stride + depths.start);
                BlockPrefetch::new(start, stride, columns.len(), depths.len())
            }
            B::Taps { .. } => BlockPrefetch::NOTHING,
        }
    }

    /// Packs some columns at some depths of the operand at `from` into panels of NR columns.
    ///
    /// # Safety
    /// The operand's elements for these columns and depths can be read, and `to` has room for the columns rounded up to NR,
    /// times the depth.
    pub(super) unsafe fn pack(
        &self,
        micro: &Micro,
        from: *const f32,
        columns: Range<usize>,
        depths: Range<usize>,
        to: *mut f32,
    ) {
        let (j0, n, p0, depth, nr) = (columns.start, columns.len(), depths.start, depths.len(), micro.nr);
        let panels = || (0..n).step_by(nr).map(|j| (j, nr.min(n - j)));
        // SAFETY: each arm reads the elements of these columns and depths, at the places that its layout says; the panel of
        // column j starts at `j·depth`, and has room for NR columns.
        unsafe {
            match *self {
                B::Rows { stride } => {
                    for d in (0..depth).step_by(DEPTHS_AT_ONCE) {
                        let rows = DEPTHS_AT_ONCE.min(depth - d);
                        for (j, columns) in panels() {
                            let start = from.add((p0 + d) * stride + j0 + j);
                            let columns = Columns { start, stride, count: columns };
                            pack_rows(micro, columns, rows, to.add(j * depth + d * nr));
                        }
                    }
                }
                B::Taps { stride, per_tap, ref taps } => {
                    for (j, columns) in panels() {
                        let mut done = 0;
                        while done < depth {
                            let (tap, within) = ((p0 + done) / per_tap, (p0 + done) % per_tap);
                            let d = (per_tap - within).min(depth - done);
                            let start = from.add(taps.offset(tap) + within + (j0 + j) * stride);
                            let columns = Columns { start, stride, count: columns };
                            pack_turned(micro, columns, d, to.add(j * depth + done * nr));
                            done += d;
                        }
                    }
                }
            }
        }
    }
}
