//! Prefetching: what is read next comes from far away while something else is computed. Nothing is read here, and no result
//! depends on it; addresses need not be valid.

use std::ops::Range;

/// Elements of a cache line.
pub(crate) const LINE: usize = 16;

/// The cache lines of a block of a matrix, row by row: a micro-kernel prefetches a few of them with each tile.
#[derive(Clone, Copy)]
pub(crate) struct BlockPrefetch {
    start: *const f32,
    stride: usize,
    /// Elements of a row.
    len: usize,
    /// Elements of the first row that were named.
    done: usize,
    /// Cache lines that were not.
    left: usize,
}

impl BlockPrefetch {
    pub(crate) const NOTHING: BlockPrefetch =
        BlockPrefetch { start: std::ptr::null(), stride: 0, len: 0, done: 0, left: 0 };

    /// Rows of `len` elements, `stride` apart.
    pub(crate) fn new(start: *const f32, stride: usize, rows: usize, len: usize) -> BlockPrefetch {
        BlockPrefetch { start, stride, len, done: 0, left: rows * len.div_ceil(LINE) }
    }

    /// Cache lines, about.
    pub(crate) fn lines(&self) -> usize {
        self.left
    }

    /// Splits off the next so many lines.
    #[inline]
    pub(crate) fn split_off(&mut self, lines: usize) -> BlockPrefetch {
        let taken = BlockPrefetch { left: lines.min(self.left), ..*self };
        let across = self.len.div_ceil(LINE).max(1);
        let passed = self.done / LINE + taken.left;
        self.start = self.start.wrapping_add(passed / across * self.stride);
        self.done = passed % across * LINE;
        self.left -= taken.left;
        taken
    }
}

impl Iterator for BlockPrefetch {
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

/// Rows of `len` elements, each `stride` elements from the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarRows {
    /// An address.
    pub(crate) start: usize,
    pub(crate) stride: usize,
    pub(crate) len: usize,
}

/// Up to [`LISTS`] lists of equally many short rows that lie far apart, which a processor does not foresee by itself, in the
/// order in which they will be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowPrefetch {
    lists: [Option<FarRows>; LISTS],
    rows: usize,
    /// The list and the row that are prefetched next.
    next: (usize, usize),
}

/// Queries, keys, values, outputs, and the gradients of each.
const LISTS: usize = 8;

/// Rows that are prefetched at a time. With a block of a product of 4 × 64 × 64, which takes about 200 ns, three rows of
/// 64 elements are as much as a core of the machine of the GEMM's tile sizes fetches meanwhile.
const AT_ONCE: usize = 3;

impl RowPrefetch {
    /// `rows` rows of each list.
    pub(crate) fn new(lists: impl IntoIterator<Item = FarRows>, rows: usize) -> RowPrefetch {
        let mut prefetch = RowPrefetch { rows, ..RowPrefetch::default() };
        prefetch.lists.iter_mut().zip(lists).for_each(|(to, list)| *to = Some(list));
        prefetch
    }

    /// Prefetches the next few rows.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        for _ in 0..AT_ONCE {
            let Some((address, len)) = self.next_row() else { return };
            (0..len).step_by(LINE).for_each(|at| prefetch_line(address + 4 * at));
        }
    }

    /// Address and elements of the next row.
    #[inline(always)]
    fn next_row(&mut self) -> Option<(usize, usize)> {
        let (list, row) = self.next;
        let far = (*self.lists.get(list)?)?;
        self.next = if row + 1 < self.rows { (list, row + 1) } else { (list + 1, 0) };
        Some((far.start + 4 * row * far.stride, far.len))
    }
}

/// Prefetches all lines of a range of addresses.
#[inline(always)]
pub(crate) fn prefetch_bytes(addresses: Range<usize>) {
    addresses.step_by(4 * LINE).for_each(prefetch_line);
}

#[inline(always)]
fn prefetch_line(_address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint reads nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(_address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_prefetched_once_and_in_order() {
        let far = |start: usize, stride: usize| FarRows { start, stride, len: 5 };
        let mut prefetch = RowPrefetch::new([far(1000, 8), far(5000, 100)], 3);
        let rows: Vec<_> = std::iter::from_fn(|| prefetch.next_row()).collect();
        assert_eq!(rows, [1000, 1032, 1064, 5000, 5400, 5800].map(|address| (address, 5)));
        assert_eq!(RowPrefetch::default().next_row(), None);
    }
}
