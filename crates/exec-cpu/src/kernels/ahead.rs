//! What a thread will read next, asked for while it computes: short rows that lie far apart, which a processor does not
//! foresee by itself. Nothing is read here, and no result depends on it.

/// Rows of `len` elements, each `stride` elements from the one before.
#[derive(Clone, Copy, Debug)]
pub struct FarRows {
    /// An address: nothing is read there.
    pub start: usize,
    pub stride: usize,
    pub len: usize,
}

/// Up to [`LISTS`] lists of equally many rows, in the order in which they will be read.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    lists: [Option<FarRows>; LISTS],
    rows: usize,
    /// The list and the row that are asked for next.
    next: (usize, usize),
}

/// Queries, keys, values, outputs, and the gradients of each.
const LISTS: usize = 8;

/// Rows that are asked for at a time. With a block of a product of 4 × 64 × 64, which takes about 200 ns, three rows of
/// 64 elements are as much as a core of the machine of the GEMM's tile sizes fetches meanwhile.
const AT_ONCE: usize = 3;

/// Elements of a cache line.
const LINE: usize = 16;

impl Ahead {
    /// `rows` rows of each list.
    pub fn new(lists: impl IntoIterator<Item = FarRows>, rows: usize) -> Ahead {
        let mut ahead = Ahead { rows, ..Ahead::default() };
        ahead.lists.iter_mut().zip(lists).for_each(|(to, list)| *to = Some(list));
        ahead
    }

    /// Asks for the next few rows.
    #[inline(always)]
    pub fn fetch(&mut self) {
        for _ in 0..AT_ONCE {
            let Some((address, len)) = self.next_row() else { return };
            (0..len).step_by(LINE).for_each(|at| fetch_line(address + 4 * at));
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

/// Asks for all lines of a range of addresses.
#[inline(always)]
pub fn fetch_bytes(addresses: std::ops::Range<usize>) {
    addresses.step_by(4 * LINE).for_each(fetch_line);
}

#[inline(always)]
fn fetch_line(_address: usize) {
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
    fn every_row_is_asked_for_once_and_in_order() {
        let far = |start: usize, stride: usize| FarRows { start, stride, len: 5 };
        let mut ahead = Ahead::new([far(1000, 8), far(5000, 100)], 3);
        let rows: Vec<_> = std::iter::from_fn(|| ahead.next_row()).collect();
        assert_eq!(rows, [1000, 1032, 1064, 5000, 5400, 5800].map(|address| (address, 5)));
        assert_eq!(Ahead::default().next_row(), None);
    }
}
