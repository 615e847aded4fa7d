//! Folds down the columns of a row-major matrix, with neighbouring columns in neighbouring lanes. The helpers are inlined
//! into `simd!` bodies; which rows are folded together is the caller's choice and must depend on shapes only.
//!
//! A narrow matrix is folded as a wide one: with k·columns a multiple of the lanes, k rows stand side by side in the
//! accumulator and are joined at the end.

use super::Chunks;
use crate::math::LANES;

/// Columns that one unit of work covers; its accumulators stay in the first-level cache.
pub(crate) const TILE: usize = 256;
/// Matrices with fewer columns are folded as wide ones.
const NARROW: usize = 64;
/// The longest accumulator: the least common multiple of 63 and the lanes, rounded up.
pub(crate) const WIDEST: usize = 1024;
/// Elements that are folded before their sum is joined with the rest: they stay in cache for a second look, and short
/// sums keep the rounding error small.
const BLOCK: usize = 8192;
/// Units of work that are worth a chunk of their own.
const UNITS: usize = 64;
/// Elements of the smallest chunk.
const SMALLEST: usize = 16_384;

pub(crate) type Accumulator = [f32; WIDEST];

/// How `samples` matrices of rows × columns are cut into units of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) cols: usize,
    pub(crate) tiles: usize,
    pub(crate) chunks: Chunks,
}

impl Split {
    pub(crate) fn new(samples: usize, rows: usize, cols: usize) -> Split {
        let tiles = cols.div_ceil(TILE).max(1);
        let least = SMALLEST.div_ceil(cols.clamp(1, TILE));
        let chunks = Chunks::new(rows, least, UNITS.div_ceil((samples * tiles).max(1)));
        Split { cols, tiles, chunks }
    }

    /// Units of work of all samples.
    pub(crate) fn units(&self, samples: usize) -> usize {
        samples * self.chunks.count * self.tiles
    }

    /// The unit's sample, chunk and first column.
    #[inline(always)]
    pub(crate) fn unit(&self, u: usize) -> (usize, usize, usize) {
        let (rest, tile) = (u / self.tiles, u % self.tiles);
        (rest / self.chunks.count, rest % self.chunks.count, tile * TILE)
    }

    /// Columns of the tile that starts at `col`.
    #[inline(always)]
    pub(crate) fn width(&self, col: usize) -> usize {
        TILE.min(self.cols - col)
    }

    /// Where the unit's partial results start when each (sample, chunk) keeps one value a column. Units in order write
    /// neighbouring ranges.
    pub(crate) fn start(&self, u: usize) -> usize {
        let (rest, tile) = (u / self.tiles, u % self.tiles);
        rest * self.cols + tile * TILE
    }
}

/// A tile of columns of a matrix: `width` of `stride` elements a row.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) stride: usize,
    pub(crate) width: usize,
}

impl Walk {
    /// Rows that are folded before their result is joined with the rest.
    #[inline(always)]
    pub(crate) fn block_rows(self) -> usize {
        (BLOCK / self.width.max(1)).max(16)
    }

    /// Rows that stand side by side in the accumulator when `rows` are folded.
    #[inline(always)]
    fn side_by_side(self, rows: usize) -> usize {
        if self.width >= NARROW || self.stride != self.width {
            return 1;
        }
        let k = LANES >> self.width.trailing_zeros().min(LANES.trailing_zeros());
        let k = k * NARROW.div_ceil(k * self.width);
        if rows >= 4 * k { k } else { 1 }
    }
}

/// Folds `rows` rows of x into the first `width` elements of `acc`: `step(so far, x, param of the column)`.
/// `param` has a value a column, and room for [`WIDEST`]; it is repeated there.
#[inline(always)]
pub(crate) fn fold1(
    walk: Walk,
    rows: usize,
    x: &[f32],
    param: &mut Accumulator,
    acc: &mut Accumulator,
    (init, step, join): (f32, impl Fn(f32, f32, f32) -> f32, impl Fn(f32, f32) -> f32),
) {
    let k = walk.side_by_side(rows);
    let (width, stride) = (walk.width * k, walk.stride * k);
    repeat(param, walk.width, k);
    acc[..width].fill(init);
    let wide = rows / k;
    let row = |r: usize| &x[r * stride..r * stride + width];
    let mut r = 0;
    while r + 4 <= wide {
        step4([row(r), row(r + 1), row(r + 2), row(r + 3)], &param[..width], &mut acc[..width], &step);
        r += 4;
    }
    while r < wide {
        step1(row(r), &param[..width], &mut acc[..width], &step);
        r += 1;
    }
    for r in wide * k..rows {
        let row = &x[r * walk.stride..r * walk.stride + walk.width];
        step1(row, &param[..walk.width], &mut acc[..walk.width], &step);
    }
    join_sides(acc, walk.width, k, join);
}

#[inline(always)]
fn step4([x0, x1, x2, x3]: [&[f32]; 4], param: &[f32], acc: &mut [f32], step: &impl Fn(f32, f32, f32) -> f32) {
    for (((((acc, &p), &x0), &x1), &x2), &x3) in acc.iter_mut().zip(param).zip(x0).zip(x1).zip(x2).zip(x3) {
        *acc = step(step(step(step(*acc, x0, p), x1, p), x2, p), x3, p);
    }
}

#[inline(always)]
fn step1(x: &[f32], param: &[f32], acc: &mut [f32], step: &impl Fn(f32, f32, f32) -> f32) {
    for ((acc, &p), &x) in acc.iter_mut().zip(param).zip(x) {
        *acc = step(*acc, x, p);
    }
}

/// Sums of dy and of dy·(x − mean) a column, into the first `width` elements of `plain` and `weighted`.
#[inline(always)]
pub(crate) fn fold_grad<const FMA: bool>(
    walk: Walk,
    rows: usize,
    [x, dy]: [&[f32]; 2],
    mean: &mut Accumulator,
    [plain, weighted]: [&mut Accumulator; 2],
) {
    let k = walk.side_by_side(rows);
    let (width, stride) = (walk.width * k, walk.stride * k);
    repeat(mean, walk.width, k);
    plain[..width].fill(0.0);
    weighted[..width].fill(0.0);
    let wide = rows / k;
    for r in 0..wide {
        let row = r * stride..r * stride + width;
        step_grad::<FMA>(&x[row.clone()], &dy[row], &mean[..width], &mut plain[..width], &mut weighted[..width]);
    }
    for r in wide * k..rows {
        let (row, width) = (r * walk.stride..r * walk.stride + walk.width, walk.width);
        step_grad::<FMA>(&x[row.clone()], &dy[row], &mean[..width], &mut plain[..width], &mut weighted[..width]);
    }
    join_sides(plain, walk.width, k, |a, b| a + b);
    join_sides(weighted, walk.width, k, |a, b| a + b);
}

#[inline(always)]
fn step_grad<const FMA: bool>(x: &[f32], dy: &[f32], mean: &[f32], plain: &mut [f32], weighted: &mut [f32]) {
    for ((((plain, weighted), &m), &x), &dy) in plain.iter_mut().zip(weighted).zip(mean).zip(x).zip(dy) {
        *plain += dy;
        *weighted = crate::isa::fma::<FMA>(dy, x - m, *weighted);
    }
}

#[inline(always)]
fn repeat(param: &mut Accumulator, width: usize, k: usize) {
    for i in 1..k {
        param.copy_within(0..width, i * width);
    }
}

#[inline(always)]
fn join_sides(acc: &mut Accumulator, width: usize, k: usize, join: impl Fn(f32, f32) -> f32) {
    let (first, rest) = acc.split_at_mut(width);
    for side in rest[..(k - 1) * width].chunks_exact(width) {
        for (a, &b) in first.iter_mut().zip(side) {
            *a = join(*a, b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulators_hold_every_width() {
        for width in 1..=TILE {
            let walk = Walk { stride: width, width };
            let k = walk.side_by_side(usize::MAX / 8);
            assert!(k * width <= WIDEST, "{width} columns, {k} side by side");
            assert!(width >= NARROW || (k * width).is_multiple_of(LANES));
        }
    }

    #[test]
    fn units_cover_the_matrix_in_order() {
        for (samples, rows, cols) in [(1, 1, 1), (1, 100_000, 3), (3, 1000, 700), (100, 49, 512), (1, 7, 5000)] {
            let split = Split::new(samples, rows, cols);
            let mut next = 0;
            for u in 0..split.units(samples) {
                let (sample, chunk, col) = split.unit(u);
                assert_eq!(split.start(u), next);
                assert_eq!(next, (sample * split.chunks.count + chunk) * cols + col);
                next += split.width(col);
            }
            assert_eq!(next, samples * split.chunks.count * cols);
            assert!(split.chunks.range(split.chunks.count - 1).end == rows);
        }
    }
}
