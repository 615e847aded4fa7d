//! Asking for memory ahead of time: what is packed next comes from far away, bit by bit while something else is multiplied.

use std::ops::Range;

use super::pack::{A, B, Taps};

/// Elements of a cache line.
const LINE: usize = 16;

/// Rows of a matrix that will be wanted.
#[derive(Clone, Copy)]
pub struct Ahead {
    start: *const f32,
    stride: usize,
    /// Elements of a row.
    len: usize,
    /// Elements of the first row that were named.
    done: usize,
    /// Cache lines that were not.
    left: usize,
}

impl Ahead {
    pub const NOTHING: Ahead = Ahead { start: std::ptr::null(), stride: 0, len: 0, done: 0, left: 0 };

    fn new(start: *const f32, stride: usize, rows: usize, len: usize) -> Ahead {
        Ahead { start, stride, len, done: 0, left: rows * len.div_ceil(LINE) }
    }

    /// A block of the left side. Patches of an image are read line by line, which processors see by themselves.
    pub fn of_a(a: &A, rows: &Range<usize>, depths: &Range<usize>) -> Ahead {
        match *a {
            A::Rows { start, stride } => {
                let start = start.wrapping_add(rows.start * stride + depths.start);
                Ahead::new(start, stride, rows.len(), depths.len())
            }
            A::Columns { start, stride } => {
                let start = start.wrapping_add(depths.start * stride + rows.start);
                Ahead::new(start, stride, depths.len(), rows.len())
            }
            A::Patches(_) | A::PatchColumns(_) => Ahead::NOTHING,
        }
    }

    /// A block of the right side. One of several taps is packed whole.
    pub fn of_b(b: &B, columns: &Range<usize>, depths: &Range<usize>) -> Ahead {
        match *b {
            B::Rows { start, stride } => {
                let start = start.wrapping_add(depths.start * stride + columns.start);
                Ahead::new(start, stride, depths.len(), columns.len())
            }
            B::Taps { start, stride, taps: Taps::ONE, .. } => {
                let start = start.wrapping_add(columns.start * stride + depths.start);
                Ahead::new(start, stride, columns.len(), depths.len())
            }
            B::Taps { .. } => Ahead::NOTHING,
        }
    }

    /// Cache lines, about.
    pub fn lines(&self) -> usize {
        self.left
    }

    /// Names the next `lines`.
    #[inline]
    pub fn name(&mut self, lines: usize, to: &mut Lines) {
        for place in to.room(lines.min(self.left)) {
            *place = self.start.wrapping_add(self.done);
            self.left -= 1;
            self.done += LINE;
            if self.done >= self.len {
                self.start = self.start.wrapping_add(self.stride);
                self.done = 0;
            }
        }
    }
}

/// Cache lines that are asked for while a tile is made. Their addresses need not be valid.
pub struct Lines {
    list: [*const f32; Lines::MOST],
    len: usize,
}

impl Lines {
    /// More would come faster than memory gives them.
    const MOST: usize = 128;

    pub const fn new() -> Lines {
        Lines { list: [std::ptr::null(); Lines::MOST], len: 0 }
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Places for so many more, or for as many as there are.
    #[inline(always)]
    fn room(&mut self, lines: usize) -> &mut [*const f32] {
        let from = self.len;
        self.len = Lines::MOST.min(from + lines);
        &mut self.list[from..self.len]
    }

    /// Those of `columns` elements in each of some rows.
    #[inline(always)]
    pub fn push_rows(&mut self, start: *const f32, rows: &[usize], columns: usize) {
        let across = columns.div_ceil(LINE);
        for (places, &row) in self.room(rows.len() * across).chunks_exact_mut(across).zip(rows) {
            for (j, place) in places.iter_mut().enumerate() {
                *place = start.wrapping_add(row + j * LINE);
            }
        }
    }

    pub fn as_slice(&self) -> &[*const f32] {
        &self.list[..self.len]
    }
}
