//! The micro-kernels: an MR×NR tile of C from packed panels of A and B, held in registers.

use super::ahead::{Ahead, LINE};
use super::vector::{Plain, Vector};
use crate::isa::Isa;

/// Depth of a block: the longest sum that is held in registers.
pub const KC: usize = 512;
/// Distance of two rows in A when packed by rows. Not a power of two, so that rows do not share cache sets.
pub const ROW_STRIDE: usize = KC + 16;

/// How A is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedA {
    /// Row after row, `ROW_STRIDE` apart: for sources that are contiguous along the depth. Packing is plain copying.
    Rows,
    /// MR rows interleaved: for sources that are contiguous along the rows.
    Panels,
}

/// One tile: C[0..m, 0..n] (+)= A·B over `depth`.
#[derive(Clone, Copy)]
pub struct Tile {
    pub a: *const f32,
    /// An NR-wide panel.
    pub b: *const f32,
    pub c: *mut f32,
    /// Where each row of C starts, in elements from `c`: `rows[i]`.
    pub rows: *const usize,
    pub depth: usize,
    pub m: usize,
    pub n: usize,
    /// Add to C instead of overwriting it.
    pub accumulate: bool,
    /// Whether C is far away.
    pub far: bool,
    /// What else is far away and will be wanted. It and C are asked for line by line while the sums are made, so that A and
    /// B need not wait.
    pub ahead: Ahead,
}

/// A micro-kernel for one instruction set: its tile and its functions.
#[derive(Clone, Copy)]
pub struct Micro {
    pub isa: Isa,
    pub mr: usize,
    pub nr: usize,
    rows: TileFn,
    panels: TileFn,
}

type TileFn = unsafe fn(&Tile);

impl Micro {
    pub fn new(isa: Isa) -> Micro {
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
    pub fn tiles(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.mr) * columns.div_ceil(self.nr)
    }

    /// # Safety
    /// The pointers of the tile hold what it names, and the instruction set of this kernel is available.
    #[inline(always)]
    pub unsafe fn run(&self, packed: PackedA, tile: &Tile) {
        // SAFETY: passed on.
        unsafe {
            match packed {
                PackedA::Rows => (self.rows)(tile),
                PackedA::Panels => (self.panels)(tile),
            }
        }
    }
}

/// The kernel. A's element (i, p) is at `i·AI + p·AP`; NV registers make a row of the tile.
#[inline(always)]
unsafe fn kernel<V: Vector, const MR: usize, const NV: usize, const AI: usize, const AP: usize, const NR: usize>(
    t: &Tile,
) {
    // SAFETY: the caller's promise about the tile's pointers covers every access below.
    unsafe {
        let mut acc = [[V::zero(); NV]; MR];
        let (mut a, mut b) = (t.a, t.b);
        let (mut ahead, far) = (t.ahead, if t.far { t.m } else { 0 });
        // More would come faster than memory gives them.
        let asked = (far + ahead.lines()).min(t.depth);
        let apart = t.depth / asked.max(1);
        for i in 0..=asked {
            if i < far {
                let row = t.c.wrapping_add(*t.rows.add(i));
                for j in (0..NR).step_by(LINE) {
                    V::prefetch(row.wrapping_add(j));
                }
            } else if let Some(line) = ahead.next() {
                V::prefetch(line);
            }
            let depth = if i < asked { apart } else { t.depth - asked * apart };
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
        match (t.m >= MR && t.n >= NV * V::WIDTH, t.accumulate) {
            (true, true) => whole::<V, MR, NV>(t, acc, |sum, p| V::load(p).add(sum)),
            (true, false) => whole::<V, MR, NV>(t, acc, |sum, _| sum),
            (false, _) => edge::<V, MR, NV>(t, acc),
        }
    }
}

/// Writes a tile that has all its rows and columns.
#[inline(always)]
unsafe fn whole<V: Vector, const MR: usize, const NV: usize>(
    t: &Tile,
    acc: [[V; NV]; MR],
    join: impl Fn(V, *const f32) -> V,
) {
    for (i, acc) in acc.into_iter().enumerate() {
        for (j, sum) in acc.into_iter().enumerate() {
            // SAFETY: the tile's rows and columns are inside C.
            unsafe {
                let p = t.c.add(*t.rows.add(i) + j * V::WIDTH);
                join(sum, p).store(p);
            }
        }
    }
}

/// Writes those rows and columns that the tile has.
#[inline(always)]
unsafe fn edge<V: Vector, const MR: usize, const NV: usize>(t: &Tile, acc: [[V; NV]; MR]) {
    for (i, acc) in acc.into_iter().enumerate().take(t.m) {
        for (j, x) in acc.into_iter().enumerate() {
            let left = t.n.saturating_sub(j * V::WIDTH);
            // SAFETY: the tile's rows and columns are inside C, and no others are touched.
            unsafe {
                let p = t.c.add(*t.rows.add(i)).wrapping_add(j * V::WIDTH);
                let sum = if t.accumulate { V::load_first(p, left).add(x) } else { x };
                sum.store_first(p, left);
            }
        }
    }
}

/// Picks the smallest kernel that has room for the tile: at edges, most registers of a full one would be idle.
#[inline(always)]
unsafe fn fitting<V: Vector, const MR: usize, const AI: usize, const AP: usize, const NR: usize>(t: &Tile) {
    // SAFETY: passed on; a smaller kernel reads less of the packed panels.
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

unsafe fn portable_rows(t: &Tile) {
    // SAFETY: passed on.
    unsafe { fitting::<Plain<4>, 4, ROW_STRIDE, 1, 8>(t) }
}

unsafe fn portable_panels(t: &Tile) {
    // SAFETY: passed on.
    unsafe { fitting::<Plain<4>, 4, 1, 4, 8>(t) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::vector::{V256, V512};
    use super::{ROW_STRIDE, Tile, fitting};

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub unsafe fn rows512(t: &Tile) {
        // SAFETY: passed on.
        unsafe { fitting::<V512, 14, ROW_STRIDE, 1, 32>(t) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub unsafe fn panels512(t: &Tile) {
        // SAFETY: passed on.
        unsafe { fitting::<V512, 14, 1, 14, 32>(t) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn rows256(t: &Tile) {
        // SAFETY: passed on.
        unsafe { fitting::<V256, 6, ROW_STRIDE, 1, 16>(t) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn panels256(t: &Tile) {
        // SAFETY: passed on.
        unsafe { fitting::<V256, 6, 1, 6, 16>(t) }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::super::vector::V128;
    use super::{ROW_STRIDE, Tile, fitting};

    pub unsafe fn rows(t: &Tile) {
        // SAFETY: passed on.
        unsafe { fitting::<V128, 8, ROW_STRIDE, 1, 8>(t) }
    }

    pub unsafe fn panels(t: &Tile) {
        // SAFETY: passed on.
        unsafe { fitting::<V128, 8, 1, 8, 8>(t) }
    }
}
