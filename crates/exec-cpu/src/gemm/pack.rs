//! Packing: copies of A and B in the order in which the micro-kernel reads them. A may be a matrix or the patches of an
//! image, which are never materialised: packing reads them straight from the image.

use std::ops::Range;

use super::micro::{KC, Micro, PackedA, ROW_STRIDE};
use super::vector::Vector;
use crate::isa::Isa;

/// The left side.
#[derive(Clone, Copy)]
pub enum A {
    /// Element (i, p) at `i·stride + p`.
    Rows { start: *const f32, stride: usize },
    /// Element (i, p) at `i + p·stride`.
    Columns { start: *const f32, stride: usize },
    /// Row i is the patch of pixel i; the depth runs over taps and channels.
    Patches(Patches),
    /// Row i is tap and channel i of a patch; the depth runs over pixels.
    PatchColumns(Patches),
}

/// The right side.
#[derive(Clone, Copy)]
pub enum B {
    /// Element (p, j) at `p·stride + j`.
    Rows { start: *const f32, stride: usize },
    /// Depth p is tap `p / per_tap`; element (p, j) at `tap_offset + p % per_tap + j·stride`.
    Taps { start: *const f32, stride: usize, per_tap: usize, taps: Taps },
}

/// The order in which the taps of a filter appear along the depth: forwards, or backwards in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taps {
    /// Taps along width, of those that take part.
    pub across: usize,
    /// Index of the first one and distance of the next, in taps of the filter, for height and width.
    pub first: [usize; 2],
    pub step: [isize; 2],
    /// Width of the whole filter, and elements between two of its taps.
    pub filter_width: usize,
    pub tap_stride: usize,
}

impl Taps {
    /// A single tap.
    pub const ONE: Taps = Taps { across: 1, first: [0, 0], step: [0, 0], filter_width: 1, tap_stride: 0 };

    pub(super) fn offset(&self, t: usize) -> usize {
        let ky = self.first[0] as isize + self.step[0] * (t / self.across) as isize;
        let kx = self.first[1] as isize + self.step[1] * (t % self.across) as isize;
        (ky as usize * self.filter_width + kx as usize) * self.tap_stride
    }
}

/// The patches of an image: pixel (n, i, j) of a grid reads, for tap (ty, tx), the image at
/// `(i·stride + origin + ty·dilation, …)`, zero outside of it.
#[derive(Clone, Copy, Debug)]
pub struct Patches {
    pub image: *const f32,
    /// Height, width and channels of the image.
    pub size: [usize; 2],
    pub channels: usize,
    /// The channels that take part: this many from the first that `image` points to.
    pub used_channels: usize,
    /// Height and width of the grid.
    pub grid: [usize; 2],
    pub taps: [usize; 2],
    pub stride: [usize; 2],
    pub origin: [isize; 2],
    pub dilation: [usize; 2],
}

/// Where a pixel's patch starts, before any tap.
#[derive(Clone, Copy)]
pub(super) struct Corner {
    pub image: usize,
    pub y: isize,
    pub x: isize,
}

impl Patches {
    pub(super) fn corner(&self, pixel: usize) -> Corner {
        let (j, rest) = (pixel % self.grid[1], pixel / self.grid[1]);
        let (i, image) = (rest % self.grid[0], rest / self.grid[0]);
        Corner {
            image,
            y: (i * self.stride[0]) as isize + self.origin[0],
            x: (j * self.stride[1]) as isize + self.origin[1],
        }
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
    pub fn packed(&self) -> PackedA {
        match self {
            A::Rows { .. } | A::Patches(_) => PackedA::Rows,
            A::Columns { .. } | A::PatchColumns(_) => PackedA::Panels,
        }
    }

    /// Packs some rows at some depths.
    ///
    /// # Safety
    /// The source covers them, and `to` has room for the rows rounded up to MR, times `ROW_STRIDE`.
    pub unsafe fn pack(&self, micro: &Micro, rows: Range<usize>, depths: Range<usize>, to: *mut f32) {
        let (i0, m, p0, depth) = (rows.start, rows.len(), depths.start, depths.len());
        // SAFETY: passed on.
        unsafe {
            match *self {
                A::Rows { start, stride } => {
                    for i in 0..m {
                        let from = start.add((i0 + i) * stride + p0);
                        std::ptr::copy_nonoverlapping(from, to.add(i * ROW_STRIDE), depth);
                    }
                }
                A::Patches(ref p) => {
                    let copy = |at: usize, n: usize, to: *mut f32| {
                        std::ptr::copy_nonoverlapping(p.image.wrapping_add(at), to, n);
                    };
                    for i in 0..m {
                        pack_patch(p, i0 + i, p0, depth, to.add(i * ROW_STRIDE), copy);
                    }
                }
                A::Columns { start, stride } => {
                    let source = start.add(p0 * stride + i0);
                    pack_columns(micro, source, stride, m, depth, to);
                }
                A::PatchColumns(ref p) => pack_patch_columns(micro, p, rows, depths, to),
            }
        }
    }
}

/// One row: the patch of a pixel at depths `p0..p0+depth`. Neighbouring taps are one copy where they are neighbours in
/// the image too. `copy(at, n, to)` copies n elements of the image.
#[inline(always)]
pub(super) unsafe fn pack_patch(
    p: &Patches,
    pixel: usize,
    p0: usize,
    depth: usize,
    to: *mut f32,
    copy: impl Fn(usize, usize, *mut f32),
) {
    let corner = p.corner(pixel);
    let c = p.used_channels;
    let merged = p.dilation[1] == 1 && c == p.channels;
    let line = p.taps[1] * c;
    let end = p0 + depth;
    let mut at = p0;
    // SAFETY: `at` stays below `end`; sources are inside the image by the bounds taken for each tap.
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

/// Rows of a transposed matrix, `mr` at a time.
pub(super) unsafe fn pack_columns(
    micro: &Micro,
    from: *const f32,
    stride: usize,
    m: usize,
    depth: usize,
    to: *mut f32,
) {
    let mr = micro.mr;
    for panel in 0..m.div_ceil(mr) {
        let rows = (m - panel * mr).min(mr);
        let segment = Segment { at: 0, rows };
        // SAFETY: passed on; the panel starts at `panel·mr·depth`.
        unsafe {
            let from = from.add(panel * mr);
            let to = to.add(panel * mr * depth);
            copy_segment(micro.isa, mr, segment, depth, to, |p| Some(from.add(p * stride)));
        }
    }
}

/// Rows that are taps and channels; the depth runs over pixels.
unsafe fn pack_patch_columns(micro: &Micro, p: &Patches, rows: Range<usize>, depths: Range<usize>, to: *mut f32) {
    let (i0, m, p0, depth, mr) = (rows.start, rows.len(), depths.start, depths.len(), micro.mr);
    let mut corners = [Corner { image: 0, y: 0, x: 0 }; KC];
    for (d, corner) in corners[..depth].iter_mut().enumerate() {
        *corner = p.corner(p0 + d);
    }
    let c = p.used_channels;
    for panel in 0..m.div_ceil(mr) {
        let rows = (m - panel * mr).min(mr);
        let mut at = 0;
        while at < rows {
            let k = i0 + panel * mr + at;
            let (tap, channel) = (k / c, k % c);
            let n = (c - channel).min(rows - at);
            let (ty, tx) = (tap / p.taps[1], tap % p.taps[1]);
            let segment = Segment { at, rows: n };
            // SAFETY: passed on; offsets are inside the image.
            unsafe {
                let to = to.add(panel * mr * depth);
                copy_segment(micro.isa, mr, segment, depth, to, |d| {
                    p.offset(corners[d], ty, tx).map(|o| p.image.add(o + channel))
                });
            }
            at += n;
        }
    }
}

/// Rows `at .. at + rows` of a panel.
#[derive(Clone, Copy)]
struct Segment {
    at: usize,
    rows: usize,
}

/// Fills rows of a panel for every depth from the pointer that `source` gives, or with zeros.
unsafe fn copy_segment(
    isa: Isa,
    mr: usize,
    s: Segment,
    depth: usize,
    to: *mut f32,
    source: impl Fn(usize) -> Option<*const f32>,
) {
    #[inline(always)]
    unsafe fn body<V: Vector>(
        mr: usize,
        s: Segment,
        depth: usize,
        to: *mut f32,
        source: impl Fn(usize) -> Option<*const f32>,
    ) {
        for d in 0..depth {
            // SAFETY: the caller's promise covers `rows` elements at the source and the whole panel.
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
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn avx512(mr: usize, s: Segment, d: usize, to: *mut f32, f: impl Fn(usize) -> Option<*const f32>) {
        // SAFETY: passed on.
        unsafe { body::<super::vector::V512>(mr, s, d, to, f) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(mr: usize, s: Segment, d: usize, to: *mut f32, f: impl Fn(usize) -> Option<*const f32>) {
        // SAFETY: passed on.
        unsafe { body::<super::vector::V256>(mr, s, d, to, f) }
    }
    // SAFETY: passed on; an `Isa` is one that this machine has.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512(mr, s, depth, to, source),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2(mr, s, depth, to, source),
            _ => body::<super::vector::Plain<4>>(mr, s, depth, to, source),
        }
    }
}

impl B {
    /// Packs some columns at some depths into panels of NR columns.
    ///
    /// # Safety
    /// The source covers them, and `to` has room for the columns rounded up to NR, times the depth.
    pub unsafe fn pack(&self, micro: &Micro, columns: Range<usize>, depths: Range<usize>, to: *mut f32) {
        let (j0, n, p0, depth, nr) = (columns.start, columns.len(), depths.start, depths.len(), micro.nr);
        for panel in 0..n.div_ceil(nr) {
            let j = j0 + panel * nr;
            let columns = (n - panel * nr).min(nr);
            // SAFETY: passed on.
            unsafe {
                let to = to.add(panel * nr * depth);
                match *self {
                    B::Rows { start, stride } => pack_rows(nr, start.add(p0 * stride + j), stride, columns, depth, to),
                    B::Taps { start, stride, per_tap, ref taps } => {
                        let mut done = 0;
                        while done < depth {
                            let (tap, within) = ((p0 + done) / per_tap, (p0 + done) % per_tap);
                            let d = (per_tap - within).min(depth - done);
                            let from = start.add(taps.offset(tap) + within + j * stride);
                            pack_turned(nr, from, stride, columns, d, to.add(done * nr));
                            done += d;
                        }
                    }
                }
            }
        }
    }
}

pub(super) unsafe fn pack_rows(nr: usize, from: *const f32, stride: usize, columns: usize, depth: usize, to: *mut f32) {
    // SAFETY: passed on. The widths are constants, so that each copy is a few register moves.
    unsafe {
        match (columns == nr, nr) {
            (true, 32) => (0..depth).for_each(|p| copy::<32>(from.add(p * stride), to.add(p * 32))),
            (true, 16) => (0..depth).for_each(|p| copy::<16>(from.add(p * stride), to.add(p * 16))),
            (true, 8) => (0..depth).for_each(|p| copy::<8>(from.add(p * stride), to.add(p * 8))),
            (_, _) => {
                for p in 0..depth {
                    std::ptr::copy_nonoverlapping(from.add(p * stride), to.add(p * nr), columns);
                    std::ptr::write_bytes(to.add(p * nr + columns), 0, nr - columns);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn copy<const N: usize>(from: *const f32, to: *mut f32) {
    // SAFETY: passed on.
    unsafe { to.cast::<[f32; N]>().write_unaligned(from.cast::<[f32; N]>().read_unaligned()) }
}

/// Columns that are contiguous along the depth, turned in blocks that stay in the first-level cache.
pub(super) unsafe fn pack_turned(
    nr: usize,
    from: *const f32,
    stride: usize,
    columns: usize,
    depth: usize,
    to: *mut f32,
) {
    const BLOCK: usize = 16;
    // SAFETY: passed on.
    unsafe {
        let mut p = 0;
        while p < depth {
            let n = BLOCK.min(depth - p);
            for j in 0..columns {
                let source = from.add(j * stride + p);
                if n == BLOCK {
                    for i in 0..BLOCK {
                        *to.add((p + i) * nr + j) = *source.add(i);
                    }
                } else {
                    for i in 0..n {
                        *to.add((p + i) * nr + j) = *source.add(i);
                    }
                }
            }
            for i in 0..n {
                for j in columns..nr {
                    *to.add((p + i) * nr + j) = 0.0;
                }
            }
            p += n;
        }
    }
}
