//! Tiles of an image as the transforms walk over them: in runs of neighbours on one line, which share pixels.

use std::ops::Range;

use crate::gemm::Patches;
use crate::vector::{Vector, load, store};

/// Some tiles of an image whose element 0 is, or would be, at `image`.
#[derive(Clone, Debug)]
pub(crate) struct Tiles<'a> {
    pub(crate) patches: &'a Patches,
    pub(crate) image: *mut f32,
    pub(crate) tiles: Range<usize>,
}

impl<'a> Tiles<'a> {
    #[inline(always)]
    pub(crate) fn runs(&'a self) -> Runs<'a> {
        Runs { tiles: self, next: self.tiles.start }
    }
}

/// Walks over tiles, a run at a time.
pub(crate) struct Runs<'a> {
    tiles: &'a Tiles<'a>,
    next: usize,
}

/// Neighbouring tiles on one line: pixel (i, x) of theirs at `start + i·line + x·pixel`. Those in `rows` × `columns` are inside
/// of the image.
pub(crate) struct Run {
    /// The first tile's number among those that are walked over.
    pub(crate) first: usize,
    pub(crate) count: usize,
    start: *mut f32,
    line: usize,
    pixel: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline(always)]
    fn next(&mut self) -> Option<Run> {
        let Tiles { patches: p, image, ref tiles } = *self.tiles;
        if self.next >= tiles.end {
            return None;
        }
        let (first, [down, across]) = (self.next, p.grid);
        let (row, j) = (first / across, first % across);
        let count = (across - j).min(tiles.end - first);
        self.next += count;
        let corner = [0, 1].map(|i| ([row % down, j][i] * p.stride[i]) as isize + p.origin[i]);
        let line = (row / down * p.size[0]) as isize + corner[0];
        let inside = |i: usize, reach: usize| {
            let end = (p.size[i] as isize - corner[i]).clamp(0, reach as isize) as usize;
            ((-corner[i]).max(0) as usize).min(end)..end
        };
        Some(Run {
            first: first - tiles.start,
            count,
            start: image.wrapping_offset((line * p.size[1] as isize + corner[1]) * p.channels as isize),
            line: p.size[1] * p.channels,
            pixel: p.channels,
            rows: inside(0, p.taps[0]),
            columns: inside(1, (count - 1) * p.stride[1] + p.taps[1]),
        })
    }
}

impl Run {
    #[inline(always)]
    fn is_inside(&self, i: usize, x: usize) -> bool {
        self.rows.contains(&i) && self.columns.contains(&x)
    }

    /// `left` channels of pixel (i, x) from channel `at` on, or zeros outside of the image.
    ///
    /// # Safety
    /// The pixels of the run that are inside of the image have these channels, and they can be read; the instruction set of `V`
    /// is available.
    #[inline(always)]
    pub(crate) unsafe fn load<V: Vector>(&self, [i, x]: [usize; 2], at: usize, left: usize) -> V {
        // SAFETY: a pixel inside of the image lies at this place, with the channels that the caller promises.
        unsafe {
            if self.is_inside(i, x) {
                load(self.start.wrapping_add(i * self.line + x * self.pixel + at), left)
            } else {
                V::zero()
            }
        }
    }

    /// Writes them, or nothing outside of the image.
    ///
    /// # Safety
    /// The pixels of the run that are inside of the image have these channels, and nobody else touches them.
    #[inline(always)]
    pub(crate) unsafe fn store<V: Vector>(&self, v: V, [i, x]: [usize; 2], at: usize, left: usize) {
        if self.is_inside(i, x) {
            // SAFETY: a pixel inside of the image lies at this place, with the channels that the caller promises.
            unsafe { store(v, self.start.wrapping_add(i * self.line + x * self.pixel + at), left) };
        }
    }
}
