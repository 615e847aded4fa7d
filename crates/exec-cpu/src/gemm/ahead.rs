//! Asking for memory ahead of time: what is packed next comes from far away, bit by bit while something else is multiplied.

use std::ops::Range;

use super::pack::{A, B, Taps};

/// Elements of a cache line.
pub const LINE: usize = 16;

/// Cache lines of a matrix that will be wanted, row by row. Their addresses need not be valid.
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

    /// Splits off the next so many lines.
    #[inline]
    pub fn split_off(&mut self, lines: usize) -> Ahead {
        let taken = Ahead { left: lines.min(self.left), ..*self };
        let across = self.len.div_ceil(LINE).max(1);
        let passed = self.done / LINE + taken.left;
        self.start = self.start.wrapping_add(passed / across * self.stride);
        self.done = passed % across * LINE;
        self.left -= taken.left;
        taken
    }
}

impl Iterator for Ahead {
    type Item = *const f32;

    #[inline(always)]
    fn next(&mut self) -> Option<*const f32> {
        self.left = self.left.checked_sub(1)?;
        let line = self.start.wrapping_add(self.done);
        self.done += LINE;
        if self.done >= self.len {
            self.start = self.start.wrapping_add(self.stride);
            self.done = 0;
        }
        Some(line)
    }
}
