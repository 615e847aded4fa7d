//! Packing a panel of B: NR columns, depth after depth. Rows of a matrix are copied; rows of a transposed one are turned in
//! registers, a square at a time.

use super::micro::Micro;
use crate::isa::Isa;
use crate::vector::Vector;

/// How far ahead of what is turned the source is prefetched, in elements: its lines are far apart, and no processor foresees
/// by itself that the next ones are wanted.
const PREFETCH_DISTANCE: usize = 64;

/// Up to NR columns of a matrix in memory; zeros are packed for those that a panel has more.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) start: *const f32,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

/// Packs columns whose depths are `stride` apart.
///
/// # Safety
/// `depth` elements of each of the `count` columns can be read, and there is room for NR columns of them.
pub(crate) unsafe fn pack_rows(micro: &Micro, from: Columns, depth: usize, to: *mut f32) {
    // SAFETY: the caller's promise is that of `pack`.
    unsafe { pack::<false>(micro, from, depth, to) }
}

/// Packs columns that are contiguous along the depth, and `stride` apart.
///
/// # Safety
/// As for [`pack_rows`].
pub(crate) unsafe fn pack_turned(micro: &Micro, from: Columns, depth: usize, to: *mut f32) {
    // SAFETY: the caller's promise is that of `pack`.
    unsafe { pack::<true>(micro, from, depth, to) }
}

/// # Safety
/// As for [`pack_rows`].
unsafe fn pack<const TURNED: bool>(micro: &Micro, from: Columns, depth: usize, to: *mut f32) {
    /// # Safety
    /// As for [`pack_rows`]; the instruction set of `V` is available, whose width is N.
    #[inline(always)]
    unsafe fn body<V: Vector, const N: usize, const TURNED: bool>(nr: usize, f: Columns, depth: usize, to: *mut f32) {
        // SAFETY: the caller's promise about columns, room and instruction set.
        unsafe { if TURNED { turned::<V, N>(nr, f, depth, to) } else { rows::<V, N>(nr, f, depth, to) } }
    }
    /// # Safety
    /// As for [`pack_rows`]; AVX-512 is available.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn avx512<const TURNED: bool>(nr: usize, from: Columns, depth: usize, to: *mut f32) {
        // SAFETY: the caller's promise about columns, room and instruction set.
        unsafe { body::<crate::vector::V512, 16, TURNED>(nr, from, depth, to) }
    }
    /// # Safety
    /// As for [`pack_rows`]; AVX2 is available.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<const TURNED: bool>(nr: usize, from: Columns, depth: usize, to: *mut f32) {
        // SAFETY: the caller's promise about columns, room and instruction set.
        unsafe { body::<crate::vector::V256, 8, TURNED>(nr, from, depth, to) }
    }
    // SAFETY: the caller's promise about columns and room; a kernel's `Isa` is one that `Isa::available` found on this machine.
    unsafe {
        match micro.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::<TURNED>(micro.nr, from, depth, to),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::<TURNED>(micro.nr, from, depth, to),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => body::<crate::vector::V128, 4, TURNED>(micro.nr, from, depth, to),
            _ => body::<crate::vector::Plain<4>, 4, TURNED>(micro.nr, from, depth, to),
        }
    }
}

/// `N` is the width of a register, and divides `nr`.
///
/// # Safety
/// As for [`pack_rows`]; the instruction set of `V` is available.
#[inline(always)]
unsafe fn rows<V: Vector, const N: usize>(nr: usize, from: Columns, depth: usize, to: *mut f32) {
    for p in 0..depth {
        for j in (0..nr).step_by(N) {
            // SAFETY: only the first `count` columns are read, at depths below `depth`; a panel is nr columns wide.
            unsafe {
                let source = from.start.wrapping_add(p * from.stride + j);
                let whole = j + N <= from.count;
                let v = if whole { V::load(source) } else { V::load_first(source, from.count.saturating_sub(j)) };
                v.store(to.add(p * nr + j));
            }
        }
    }
}

/// `N` is the width of a register, and divides `nr`.
///
/// # Safety
/// As for [`pack_rows`]; the instruction set of `V` is available.
#[inline(always)]
unsafe fn turned<V: Vector, const N: usize>(nr: usize, from: Columns, depth: usize, to: *mut f32) {
    for p in (0..depth).step_by(N) {
        let n = N.min(depth - p);
        for j in (0..nr).step_by(N) {
            // SAFETY: only the first `count` columns are read, at depths below `depth`; a panel is nr columns wide.
            unsafe {
                let mut square = [V::zero(); N];
                for (c, v) in square.iter_mut().enumerate().take(from.count.saturating_sub(j)) {
                    let source = from.start.add((j + c) * from.stride + p);
                    V::prefetch(source.wrapping_add(PREFETCH_DISTANCE));
                    *v = if n == N { V::load(source) } else { V::load_first(source, n) };
                }
                for (i, v) in turn::<V, N>(square).into_iter().enumerate().take(n) {
                    v.store(to.add((p + i) * nr + j));
                }
            }
        }
    }
}

/// Rows become columns: each round interleaves one half of the rows with the other.
#[inline(always)]
fn turn<V: Vector, const N: usize>(mut rows: [V; N]) -> [V; N] {
    for _ in 0..N.ilog2() {
        let mut next = rows;
        for i in 0..N / 2 {
            [next[2 * i], next[2 * i + 1]] = rows[i].interleave(rows[i + N / 2]);
        }
        rows = next;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::KC;

    #[test]
    fn panels_of_every_size() {
        let stride = KC + 5;
        let source: Vec<f32> = (0..stride * stride).map(|i| i as f32).collect();
        for isa in Isa::available() {
            let micro = Micro::new(isa);
            for count in [1, 3, micro.nr / 2, micro.nr - 1, micro.nr] {
                for depth in [1, 2, 15, 16, 17, 31, 64, 100, KC] {
                    let from = Columns { start: source.as_ptr(), stride, count };
                    let [mut straight, mut turned] =
                        [vec![f32::NAN; micro.nr * depth], vec![f32::NAN; micro.nr * depth]];
                    // SAFETY: the source is a square of more than KC elements a side.
                    unsafe {
                        pack_rows(&micro, from, depth, straight.as_mut_ptr());
                        pack_turned(&micro, from, depth, turned.as_mut_ptr());
                    }
                    for i in 0..micro.nr * depth {
                        let (p, j) = (i / micro.nr, i % micro.nr);
                        let wanted = |at: usize| if j < count { source[at] } else { 0.0 };
                        let what = format!("{} {count} x {depth} at {p}, {j}", isa.name());
                        assert_eq!(straight[i], wanted(p * stride + j), "{what}");
                        assert_eq!(turned[i], wanted(j * stride + p), "{what}, turned");
                    }
                }
            }
        }
    }
}
