//! Products of small matrices that are in cache already: the tiles of attention. The columns of the right side and of the
//! result are a multiple of the lanes. Each element is a sum over the inner axis in order, whatever the tile's shape.

use crate::isa::{Isa, fma, simd};
use crate::math::LANES;
use crate::prefetch::RowPrefetch;

/// c ← a·b (+ c), where a is [m, k], b [k, n] and c [m, n].
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) k: usize,
    /// A multiple of the lanes.
    pub(crate) n: usize,
    /// Elements between the rows of a as it is stored: [m, k], or [k, m] with `transposed`.
    pub(crate) a_stride: usize,
    pub(crate) transposed: bool,
    pub(crate) b_stride: usize,
    pub(crate) c_stride: usize,
    /// Add to what c holds.
    pub(crate) add: bool,
}

impl Product {
    /// Fetches what comes next with each of its blocks.
    pub(crate) fn run(self, isa: Isa, prefetch: &mut RowPrefetch, a: &[f32], b: &[f32], c: &mut [f32]) {
        // With 32 registers of 16 lanes a block of 4 × 64 stays in registers; else 4 × 16, or 2 × 16 of 4 lanes each.
        match isa {
            Isa::Avx512 => blocks_4x4(isa, self, prefetch, a, b, c),
            Isa::Avx2 | Isa::Neon => blocks_4x1(isa, self, prefetch, a, b, c),
            Isa::Portable => blocks_2x1(isa, self, prefetch, a, b, c),
        }
    }
}

simd! {
    fn blocks_4x4<FMA>(isa, p: Product, prefetch: &mut RowPrefetch, a: &[f32], b: &[f32], c: &mut [f32]) {
        blocks::<FMA, 4, 64, 32>(p, prefetch, a, b, c);
    }
}

simd! {
    fn blocks_4x1<FMA>(isa, p: Product, prefetch: &mut RowPrefetch, a: &[f32], b: &[f32], c: &mut [f32]) {
        blocks::<FMA, 4, LANES, LANES>(p, prefetch, a, b, c);
    }
}

simd! {
    fn blocks_2x1<FMA>(isa, p: Product, prefetch: &mut RowPrefetch, a: &[f32], b: &[f32], c: &mut [f32]) {
        blocks::<FMA, 2, LANES, LANES>(p, prefetch, a, b, c);
    }
}

/// Blocks of `ROWS` × `COLS`; of `HALF` and of [`LANES`] columns where fewer are left.
#[inline(always)]
fn blocks<const FMA: bool, const ROWS: usize, const COLS: usize, const HALF: usize>(
    p: Product,
    prefetch: &mut RowPrefetch,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
) {
    let mut j = 0;
    while j + COLS <= p.n {
        column::<FMA, ROWS, COLS>(p, prefetch, j, a, b, c);
        j += COLS;
    }
    while j + HALF <= p.n {
        column::<FMA, ROWS, HALF>(p, prefetch, j, a, b, c);
        j += HALF;
    }
    while j < p.n {
        column::<FMA, ROWS, LANES>(p, prefetch, j, a, b, c);
        j += LANES;
    }
}

/// All rows of `COLS` columns from `j` on.
#[inline(always)]
fn column<const FMA: bool, const ROWS: usize, const COLS: usize>(
    p: Product,
    prefetch: &mut RowPrefetch,
    j: usize,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
) {
    let mut i = 0;
    while i + ROWS <= p.m {
        prefetch.advance();
        block::<FMA, ROWS, COLS>(p, i, j, a, b, c);
        i += ROWS;
    }
    while i < p.m {
        prefetch.advance();
        block::<FMA, 1, COLS>(p, i, j, a, b, c);
        i += 1;
    }
}

/// `ROWS` × `COLS` of the result, in registers.
#[inline(always)]
fn block<const FMA: bool, const ROWS: usize, const COLS: usize>(
    p: Product,
    i: usize,
    j: usize,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
) {
    let mut sum = [[0.0; COLS]; ROWS];
    if p.add {
        for (r, sum) in sum.iter_mut().enumerate() {
            let at = (i + r) * p.c_stride + j;
            sum.copy_from_slice(&c[at..at + COLS]);
        }
    }
    let b = &b[j..(p.k - 1) * p.b_stride + j + COLS];
    if p.transposed {
        for k in 0..p.k {
            let (a, b) = (&a[k * p.a_stride + i..][..ROWS], &b[k * p.b_stride..][..COLS]);
            for r in 0..ROWS {
                for l in 0..COLS {
                    sum[r][l] = fma::<FMA>(a[r], b[l], sum[r][l]);
                }
            }
        }
    } else {
        let mut rows: [&[f32]; ROWS] = [&[]; ROWS];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = &a[(i + r) * p.a_stride..][..p.k];
        }
        for k in 0..p.k {
            let b = &b[k * p.b_stride..][..COLS];
            for r in 0..ROWS {
                let a = rows[r][k];
                for l in 0..COLS {
                    sum[r][l] = fma::<FMA>(a, b[l], sum[r][l]);
                }
            }
        }
    }
    for (r, sum) in sum.iter().enumerate() {
        let at = (i + r) * p.c_stride + j;
        c[at..at + COLS].copy_from_slice(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    #[test]
    fn products_of_any_size() {
        let sizes = [(1, 1, 16), (4, 3, 64), (5, 7, 80), (13, 64, 48), (64, 64, 64), (63, 17, 112)];
        for ((m, k, n), transposed) in sizes.iter().flat_map(|&s| [(s, false), (s, true)]) {
            let (a, b, start) = (random(m * k, 1), random(k * n, 2), random(m * n, 3));
            let a_at = |i: usize, p: usize| if transposed { p * m + i } else { i * k + p };
            for add in [false, true] {
                let want = (0..m * n).map(|at| {
                    let (i, j) = (at / n, at % n);
                    let sum: f64 = (0..k).map(|p| a[a_at(i, p)] as f64 * b[p * n + j] as f64).sum();
                    sum + if add { start[at] as f64 } else { 0.0 }
                });
                let a_stride = if transposed { m } else { k };
                let product = Product { m, k, n, a_stride, transposed, b_stride: n, c_stride: n, add };
                check(&format!("{m} x {k} x {n}"), 3e-6, &[want.collect()], |cpu| {
                    let mut c = if add { start.clone() } else { nans(m * n) };
                    product.run(cpu.isa, &mut RowPrefetch::default(), &a, &b, &mut c);
                    vec![c]
                });
            }
        }
    }
}
