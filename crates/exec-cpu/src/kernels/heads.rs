//! What attention and its gradient share: where the rows of a head lie, how they come into scratch and out of it, and the
//! products of a tile. The rows of a head lie far apart in memory, so a tile is only ever computed from copies of them.

use super::product::Product;
use crate::Cpu;
use crate::isa::Isa;
use crate::math::LANES;
use crate::pool::{Parts, part};
use crate::prefetch::{FarRows, RowPrefetch};
use memfit_ir::op::Attention;
use std::ops::Range;

/// Queries and keys of a tile.
pub(crate) const TILE: usize = 64;

/// The extents of qkv [batch, sequence, 3, heads, dim].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionShape {
    pub(crate) batch: usize,
    pub(crate) sequence: usize,
    pub(crate) heads: usize,
    pub(crate) dim: usize,
}

impl AttentionShape {
    /// How far apart the rows of a head lie in scratch: the dim, rounded up to whole vectors.
    pub(crate) fn padded(&self) -> usize {
        self.dim.next_multiple_of(LANES)
    }

    /// The positions of a sequence, cut into tiles.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let sequence = self.sequence;
        (0..sequence).step_by(TILE).map(move |first| first..(first + TILE).min(sequence))
    }

    /// Elements of scratch for so many a head.
    pub(crate) fn scratch(&self, threads: usize, each: usize) -> usize {
        threads.min(self.batch * self.heads) * each
    }

    /// Runs `body(head, the one after it, scratch of its thread)` on all heads of all samples. Each belongs to one thread.
    pub(crate) fn for_each_head(
        &self,
        cpu: &Cpu,
        each: usize,
        scratch: &mut [f32],
        body: impl Fn(Head, Option<Head>, &mut [f32]) + Sync,
    ) {
        let heads = self.batch * self.heads;
        let (threads, scratch) = (cpu.pool.threads().min(heads), Parts::new(scratch));
        cpu.pool.run(&|t| {
            if t < threads {
                // SAFETY: each thread has its own scratch.
                let scratch = unsafe { scratch.range(t * each..(t + 1) * each) };
                let mine = part(heads, 1, threads, t);
                for i in mine.clone() {
                    let next = (i + 1 < mine.end).then(|| self.head(i + 1));
                    body(self.head(i), next, scratch);
                }
            }
        });
    }

    fn head(&self, i: usize) -> Head {
        let (sample, head, row) = (i / self.heads, i % self.heads, self.heads * self.dim);
        let rows = |parts: usize, part: usize| HeadRows {
            first: (sample * self.sequence * parts + part) * row + head * self.dim,
            stride: parts * row,
            dim: self.dim,
        };
        Head { qkv: [0, 1, 2].map(|p| rows(3, p)), y: rows(1, 0), lse: i * self.sequence..(i + 1) * self.sequence }
    }
}

/// Where one head of one sample lies.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Its queries, keys and values, in qkv.
    pub(crate) qkv: [HeadRows; 3],
    pub(crate) y: HeadRows,
    pub(crate) lse: Range<usize>,
}

/// `dim` elements for each position of the sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRows {
    first: usize,
    stride: usize,
    dim: usize,
}

impl HeadRows {
    #[inline(always)]
    pub(crate) fn at(self, position: usize) -> Range<usize> {
        let first = self.first + position * self.stride;
        first..first + self.dim
    }

    /// From the row of a position on, and the stride.
    pub(crate) fn from(self, x: &[f32], position: usize) -> (&[f32], usize) {
        (&x[self.at(position).start..], self.stride)
    }

    /// All of them, in a tensor at this address.
    pub(crate) fn far(self, x: usize) -> FarRows {
        FarRows { start: x + 4 * self.first, stride: self.stride, len: self.dim }
    }

    /// Copies rows into `to`, each with zeros up to whole vectors.
    pub(crate) fn pack<'a>(self, x: impl Fn(Range<usize>) -> &'a [f32], positions: Range<usize>, to: &mut [f32]) {
        for (to, position) in to.chunks_exact_mut(self.dim.next_multiple_of(LANES)).zip(positions) {
            to[..self.dim].copy_from_slice(x(self.at(position)));
            to[self.dim..].fill(0.0);
        }
    }

    /// Copies up to [`TILE`] rows into columns of `to`, [dim, TILE]; zeros where there is no row.
    pub(crate) fn pack_transposed<'a>(
        self,
        x: impl Fn(Range<usize>) -> &'a [f32],
        positions: Range<usize>,
        to: &mut [f32],
    ) {
        if positions.len() < TILE {
            to.fill(0.0);
        }
        let (first, n) = (positions.start, positions.len());
        let row = |column: usize| x(self.at(first + column));
        // Four at a time, so that the compiler turns them in registers.
        for column in (0..n - n % 4).step_by(4) {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| row(column + i));
            for ((((to, a), b), c), d) in to.chunks_exact_mut(TILE).zip(a).zip(b).zip(c).zip(d) {
                to[column..column + 4].copy_from_slice(&[*a, *b, *c, *d]);
            }
        }
        for column in n - n % 4..n {
            for (to, &x) in to.chunks_exact_mut(TILE).zip(row(column)) {
                to[column] = x;
            }
        }
    }

    /// Copies padded rows to their places.
    ///
    /// # Safety
    /// No other part of `to` that lives has an element of these rows.
    pub(crate) unsafe fn unpack(self, from: &[f32], positions: Range<usize>, to: &Parts<f32>) {
        for (from, position) in from.chunks_exact(self.dim.next_multiple_of(LANES)).zip(positions) {
            // SAFETY: the caller promises that nobody else has an element of the row.
            unsafe { to.range(self.at(position)) }.copy_from_slice(&from[..self.dim]);
        }
    }
}

/// The next `n` elements of scratch.
pub(crate) fn take<'a>(scratch: &mut &'a mut [f32], n: usize) -> &'a mut [f32] {
    let (first, rest) = std::mem::take(scratch).split_at_mut(n);
    *scratch = rest;
    first
}

/// A tile of scores [queries, keys], in rows of [`TILE`]. On the diagonal of causal attention nothing is computed of the
/// vectors that no query of a band sees.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    pub(crate) queries: Range<usize>,
    pub(crate) keys: Range<usize>,
    dim: usize,
    causal: bool,
}

impl Tile {
    /// Of two tiles of one sequence; none where no query sees a key.
    pub(crate) fn new(op: Attention, dim: usize, queries: Range<usize>, keys: Range<usize>) -> Option<Tile> {
        (!op.causal || keys.start <= queries.start).then_some(Tile { queries, keys, dim, causal: op.causal })
    }

    /// How many of the tile's keys a query of it may look at.
    #[inline(always)]
    pub(crate) fn visible(&self, row: usize) -> usize {
        if self.is_diagonal() { row + 1 } else { self.keys.len() }
    }

    #[inline(always)]
    fn is_diagonal(&self) -> bool {
        self.causal && self.queries.start == self.keys.start
    }

    /// Rows of n queries or keys that are computed together, by their first and last place.
    fn bands(&self, n: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let each = if self.is_diagonal() { LANES } else { TILE };
        (0..n).step_by(each).map(move |first| first..(first + each).min(n))
    }

    /// scores ← rows·columns: rows of the queries, a stride apart, and columns of the keys, [dim, TILE].
    pub(crate) fn across(
        &self,
        isa: Isa,
        prefetch: &mut RowPrefetch,
        (rows, stride): (&[f32], usize),
        columns: &[f32],
        scores: &mut [f32],
    ) {
        for band in self.bands(self.queries.len()) {
            let product = Product {
                m: band.len(),
                k: self.dim,
                n: self.visible(band.end - 1).next_multiple_of(LANES),
                a_stride: stride,
                transposed: false,
                b_stride: TILE,
                c_stride: TILE,
                add: false,
            };
            product.run(isa, prefetch, &rows[band.start * stride..], columns, &mut scores[band.start * TILE..]);
        }
    }

    /// y (+)= scores·x: a padded row of y for each query, and of x for each key.
    pub(crate) fn over_keys(
        &self,
        isa: Isa,
        prefetch: &mut RowPrefetch,
        add: bool,
        scores: &[f32],
        x: &[f32],
        y: &mut [f32],
    ) {
        let padded = self.dim.next_multiple_of(LANES);
        for band in self.bands(self.queries.len()) {
            let product = Product {
                m: band.len(),
                k: self.visible(band.end - 1),
                n: padded,
                a_stride: TILE,
                transposed: false,
                b_stride: padded,
                c_stride: padded,
                add,
            };
            product.run(isa, prefetch, &scores[band.start * TILE..], x, &mut y[band.start * padded..]);
        }
    }

    /// y (+)= scoresᵀ·x: a padded row of y for each key, and of x for each query.
    pub(crate) fn over_queries(
        &self,
        isa: Isa,
        prefetch: &mut RowPrefetch,
        add: bool,
        scores: &[f32],
        x: &[f32],
        y: &mut [f32],
    ) {
        let padded = self.dim.next_multiple_of(LANES);
        for band in self.bands(self.keys.len()) {
            // Of the queries, those before a key do not see it.
            let first = if self.is_diagonal() { band.start } else { 0 };
            let product = Product {
                m: band.len(),
                k: self.queries.len() - first,
                n: padded,
                a_stride: TILE,
                transposed: true,
                b_stride: padded,
                c_stride: padded,
                add,
            };
            let scores = &scores[first * TILE + band.start..];
            product.run(isa, prefetch, scores, &x[first * padded..], &mut y[band.start * padded..]);
        }
    }
}
