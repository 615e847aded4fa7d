//! The micro-kernels: an MR×NR tile of C from packed panels of A and B, held in registers.

use crate::isa::Isa;
use crate::prefetch::{BlockPrefetch, LINE};
use crate::vector::{Plain, Vector};

/// Depth of a block: the longest sum that is held in registers.
pub(crate) const KC: usize = 512;
/// Distance of two rows in A when packed by rows. Not a power of two, so that rows do not share cache sets.
pub(crate) const ROW_STRIDE: usize = KC + 16;

/// How A is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackedA {
    /// Row after row, `ROW_STRIDE` apart: for sources that are contiguous along the depth. Packing is plain copying.
    Rows,
    /// MR rows interleaved: for sources that are contiguous along the rows.
    Panels,
}

/// One tile: C[0..m, 0..n] (+)= A·B over `depth`. Of A and B, a kernel reads whole panels of MR rows and NR columns.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) a: *const f32,
    /// An NR-wide panel.
    pub(crate) b: *const f32,
    pub(crate) c: *mut f32,
    /// Where each row of C starts, in elements from `c`: `rows[i]`.
    pub(crate) rows: *const usize,
    pub(crate) depth: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    /// Add to C instead of overwriting it.
    pub(crate) accumulate: bool,
    /// Whether C is far away.
    pub(crate) prefetch_c: bool,
    /// What else is far away and will be wanted. It and C are prefetched line by line while the sums are made, so that A and
    /// B need not wait.
    pub(crate) prefetch: BlockPrefetch,
}

/// A micro-kernel for one instruction set: its tile and its functions.
#[derive(Clone, Copy)]
pub(crate) struct Micro {
    pub(crate) isa: Isa,
    pub(crate) mr: usize,
    pub(crate) nr: usize,
    rows: TileFn,
    panels: TileFn,
}

type TileFn = unsafe fn(&Tile);

impl Micro {
    pub(crate) fn new(isa: Isa) -> Micro {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Micro { isa, mr: 14, nr: 32, rows: x86::rows512, panels: x86::panels512 },
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Micro { isa, mr: 6, nr: 16, rows: x86::rows256, panels: x86::panels256 },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => Micro { isa, mr: 8, nr: 8, rows: arm::rows, panels: arm::panels },
            _ => Micro { isa, mr: 4, nr: 8, rows: portable_rows, panels: portable_panels },
        }
    }

    /// Tiles of so many rows and columns.
    pub(crate) fn tiles(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.mr) * columns.div_ceil(self.nr)
    }

    /// Makes a tile.
    ///
    /// # Safety
    /// `a` holds `depth` columns of MR packed rows, `b` `depth` rows of NR columns, and `rows` the offsets of `m` rows; `m` and
    /// `n` are at most MR and NR. The first `n` elements of those rows of `c` can be written, and read where they are added to,
    /// and no other thread touches them. The kernel is one of an instruction set that is available.
    #[inline(always)]
    pub(crate) unsafe fn run(&self, packed: PackedA, tile: &Tile) {
        // SAFETY: the caller's promise; both functions are of this kernel's instruction set, MR and NR.
        unsafe {
            match packed {
                PackedA::Rows => (self.rows)(tile),
                PackedA::Panels => (self.panels)(tile),
            }
        }
    }
}

/// The kernel. A's element (i, p) is at `i·AI + p·AP`; NV registers make a row of the tile.
///
/// # Safety
/// As for [`Micro::run`], with MR rows and NV registers of columns; the instruction set of `V` is available.
#[inline(always)]
unsafe fn kernel<V: Vector, const MR: usize, const NV: usize, const AI: usize, const AP: usize, const NR: usize>(
    t: &Tile,
) {
    // SAFETY: the loops over depth take MR elements of A and NR of B at a time, `depth` times in all; offsets are read of the
    // first `m` rows.
    unsafe {
        let mut acc = [[V::zero(); NV]; MR];
        let (mut a, mut b) = (t.a, t.b);
        let (mut prefetch, c_rows) = (t.prefetch, if t.prefetch_c { t.m } else { 0 });
        // More would come faster than memory gives them.
        let prefetches = (c_rows + prefetch.lines()).min(t.depth);
        let apart = t.depth / prefetches.max(1);
        for i in 0..=prefetches {
            if i < c_rows {
                let row = t.c.wrapping_add(*t.rows.add(i));
                for j in (0..NR).step_by(LINE) {
                    V::prefetch(row.wrapping_add(j));
                }
            } else if let Some(line) = prefetch.next() {
                V::prefetch(line);
            }
            let depth = if i < prefetches { apart } else { t.depth - prefetches * apart };
            for _ in 0..depth {
                let mut row: [V; NV] = [V::zero(); NV];
                for (j, r) in row.iter_mut().enumerate() {
                    *r = V::load(b.add(j * V::WIDTH));
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let x = V::splat(a.add(i * AI));
                    for j in 0..NV {
                        acc[j] = acc[j].fma(x, row[j]);
                    }
                }
                a = a.add(AP);
                b = b.add(NR);
            }
        }
        if t.m < MR || t.n < NV * V::WIDTH {
            edge::<V, MR, NV>(t, acc);
        } else if t.accumulate {
            whole::<V, MR, NV>(t, acc, |sum, p| V::load(p).add(sum));
        } else {
            whole::<V, MR, NV>(t, acc, |sum, _| sum);
        }
    }
}

/// Writes a tile that has all its rows and columns. `join` may read a register from the pointer that it is given.
///
/// # Safety
/// As for [`Micro::run`], with at least MR rows and NV registers of columns.
#[inline(always)]
unsafe fn whole<V: Vector, const MR: usize, const NV: usize>(
    t: &Tile,
    acc: [[V; NV]; MR],
    join: impl Fn(V, *const f32) -> V,
) {
    for (i, acc) in acc.into_iter().enumerate() {
        for (j, sum) in acc.into_iter().enumerate() {
            // SAFETY: row i is one of the MR, and its NV registers are inside of C.
            unsafe {
                let p = t.c.add(*t.rows.add(i) + j * V::WIDTH);
                join(sum, p).store(p);
            }
        }
    }
}

/// Writes those rows and columns that the tile has.
///
/// # Safety
/// As for [`Micro::run`]; the instruction set of `V` is available.
#[inline(always)]
unsafe fn edge<V: Vector, const MR: usize, const NV: usize>(t: &Tile, acc: [[V; NV]; MR]) {
    for (i, acc) in acc.into_iter().enumerate().take(t.m) {
        for (j, x) in acc.into_iter().enumerate() {
            let left = t.n.saturating_sub(j * V::WIDTH);
            // SAFETY: row i is one of the `m`, and of its `n` columns those from this register on are touched, which may be none.
            unsafe {
                let p = t.c.add(*t.rows.add(i)).wrapping_add(j * V::WIDTH);
                let sum = if t.accumulate { V::load_first(p, left).add(x) } else { x };
                sum.store_first(p, left);
            }
        }
    }
}

/// Picks the smallest kernel that has room for the tile: at edges, most registers of a full one would be idle.
///
/// # Safety
/// As for [`Micro::run`], with panels of MR rows and NR columns; the instruction set of `V` is available, and NR is two of its
/// registers.
#[inline(always)]
unsafe fn fitting<V: Vector, const MR: usize, const AI: usize, const AP: usize, const NR: usize>(t: &Tile) {
    // SAFETY: a smaller kernel reads less of the packed panels, and has room for the tile.
    unsafe {
        match (t.m, t.n > V::WIDTH) {
            (0..=4, true) => kernel::<V, 4, 2, AI, AP, NR>(t),
            (5..=8, true) if MR > 8 => kernel::<V, 8, 2, AI, AP, NR>(t),
            (_, true) => kernel::<V, MR, 2, AI, AP, NR>(t),
            (0..=4, false) => kernel::<V, 4, 1, AI, AP, NR>(t),
            (_, false) => kernel::<V, MR, 1, AI, AP, NR>(t),
        }
    }
}

/// Defines the kernel functions of an instruction set.
macro_rules! tile_fns {
    ($($(#[$attribute:meta])* $vis:vis fn $name:ident = $vector:ty, $mr:literal, $ai:expr, $ap:literal, $nr:literal;)*) => {$(
        /// # Safety
        /// As for [`Micro::run`], of a kernel of this instruction set.
        $(#[$attribute])*
        $vis unsafe fn $name(t: &Tile) {
            // SAFETY: the caller's promise is of this kernel's sizes and instruction set.
            unsafe { fitting::<$vector, $mr, { $ai }, $ap, $nr>(t) }
        }
    )*};
}

tile_fns! {
    fn portable_rows = Plain<4>, 4, ROW_STRIDE, 1, 8;
    fn portable_panels = Plain<4>, 4, 1, 4, 8;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ROW_STRIDE, Tile, fitting};
    use crate::vector::{V256, V512};

    tile_fns! {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        pub(super) fn rows512 = V512, 14, ROW_STRIDE, 1, 32;
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        pub(super) fn panels512 = V512, 14, 1, 14, 32;
        #[target_feature(enable = "avx2,fma")]
        pub(super) fn rows256 = V256, 6, ROW_STRIDE, 1, 16;
        #[target_feature(enable = "avx2,fma")]
        pub(super) fn panels256 = V256, 6, 1, 6, 16;
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{ROW_STRIDE, Tile, fitting};
    use crate::vector::V128;

    tile_fns! {
        pub(super) fn rows = V128, 8, ROW_STRIDE, 1, 8;
        pub(super) fn panels = V128, 8, 1, 8, 8;
    }
}
