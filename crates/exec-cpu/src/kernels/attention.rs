//! Attention without the matrix of scores: tiles of 64 queries and 64 keys pass through the softmax one after the other
//! and leave only the outputs and a log-sum-exp for each query. A unit of work is one head of one sample; its arithmetic
//! does not depend on the threads.

use super::lanes;
use super::product::Product;
use crate::Cpu;
use crate::isa::{Isa, fma, simd};
use crate::math::{self, LANES, sum_lanes};
use crate::pool::{Parts, part};
use memfit_ir::op::Attention;
use std::ops::Range;

/// Queries and keys of a tile.
pub(super) const TILE: usize = 64;

/// The extents of q [units, queries, dim], k [units, keys, dim] and v [units, keys, value_dim].
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Batch times heads.
    pub units: usize,
    pub queries: usize,
    pub keys: usize,
    pub dim: usize,
    pub value_dim: usize,
}

impl AttentionShape {
    /// Elements of q, k and v in one unit.
    pub(super) fn unit(&self) -> [usize; 3] {
        [self.queries * self.dim, self.keys * self.dim, self.keys * self.value_dim]
    }

    /// Dims of q and v, rounded up to whole vectors.
    pub(super) fn padded(&self) -> [usize; 2] {
        [self.dim.next_multiple_of(LANES), self.value_dim.next_multiple_of(LANES)]
    }
}

/// Elements of scratch that [`attention`] needs.
pub fn attention_scratch(threads: usize, shape: &AttentionShape) -> usize {
    threads * thread_scratch(shape)
}

fn thread_scratch(shape: &AttentionShape) -> usize {
    let [_, value] = shape.padded();
    TILE * (shape.dim + 2 * value + TILE) + shape.queries
}

/// y ← softmax(scale·q·kᵀ)·v, lse ← the log-sum-exp of each query's scores.
pub fn attention(
    cpu: &Cpu,
    op: Attention,
    shape: &AttentionShape,
    [q, k, v]: [&[f32]; 3],
    y: &mut [f32],
    lse: &mut [f32],
    scratch: &mut [f32],
) {
    let [q_len, k_len, v_len] = shape.unit();
    let y_len = shape.queries * shape.value_dim;
    let (y, lse) = (Parts::new(y), Parts::new(lse));
    for_each_unit(cpu, shape.units, thread_scratch(shape), scratch, |u, scratch| {
        // SAFETY: each unit belongs to one thread.
        let (y, lse) =
            unsafe { (y.range(u * y_len..(u + 1) * y_len), lse.range(u * shape.queries..(u + 1) * shape.queries)) };
        let qkv = [&q[u * q_len..(u + 1) * q_len], &k[u * k_len..(u + 1) * k_len], &v[u * v_len..(u + 1) * v_len]];
        attend(cpu.isa, op, shape, qkv, y, lse, scratch);
    });
}

/// Runs `body(unit, scratch of its thread)` on all units.
pub(super) fn for_each_unit(
    cpu: &Cpu,
    units: usize,
    each: usize,
    scratch: &mut [f32],
    body: impl Fn(usize, &mut [f32]) + Sync,
) {
    let (threads, scratch) = (cpu.pool.threads(), Parts::new(scratch));
    cpu.pool.run(&|t| {
        // SAFETY: each thread has its own scratch.
        let scratch = unsafe { scratch.range(t * each..(t + 1) * each) };
        part(units, 1, threads, t).for_each(|u| body(u, scratch));
    });
}

/// One unit. Until the end y is not divided by the sum of the weights, and lse holds the largest score so far.
fn attend(
    isa: Isa,
    op: Attention,
    shape: &AttentionShape,
    [q, k, v]: [&[f32]; 3],
    y: &mut [f32],
    lse: &mut [f32],
    mut scratch: &mut [f32],
) {
    let (dim, [_, value]) = (shape.dim, shape.padded());
    let keys_t = take(&mut scratch, dim * TILE);
    let values = take(&mut scratch, TILE * value);
    let scores = take(&mut scratch, TILE * TILE);
    let out = take(&mut scratch, TILE * value);
    let sums = take(&mut scratch, shape.queries);
    y.fill(0.0);
    lse.fill(f32::NEG_INFINITY);
    sums.fill(0.0);
    for first_key in (0..shape.keys).step_by(TILE) {
        let keys = first_key..(first_key + TILE).min(shape.keys);
        pack_transposed(&k[keys.start * dim..keys.end * dim], dim, keys_t);
        pack(&v[keys.start * shape.value_dim..keys.end * shape.value_dim], shape.value_dim, values);
        let first_query = if op.causal { first_key } else { 0 };
        for first in (first_query..shape.queries).step_by(TILE) {
            let queries = first..(first + TILE).min(shape.queries);
            let (m, n) = (queries.len(), keys.len());
            let tile = Tile { scale: op.scale, queries: queries.clone(), keys: keys.clone(), causal: op.causal };
            score_product(m, dim, n).run(isa, &q[queries.start * dim..queries.end * dim], keys_t, scores);
            let mut shrink = [0.0; TILE];
            softmax_tile(isa, &tile, scores, &mut lse[queries.clone()], &mut sums[queries.clone()], &mut shrink);
            let product = Product {
                m,
                k: n,
                n: value,
                a_stride: TILE,
                transposed: false,
                b_stride: value,
                c_stride: value,
                add: false,
            };
            product.run(isa, scores, values, out);
            let y = &mut y[queries.start * shape.value_dim..queries.end * shape.value_dim];
            join_tile(isa, shape.value_dim, value, &shrink, out, y);
        }
    }
    finish(isa, shape.value_dim, sums, y, lse);
}

/// queries [m, dim] times packed keys [dim, TILE], of which n count.
pub(super) fn score_product(m: usize, dim: usize, n: usize) -> Product {
    let n = n.next_multiple_of(LANES);
    Product { m, k: dim, n, a_stride: dim, transposed: false, b_stride: TILE, c_stride: TILE, add: false }
}

/// The next `n` elements of scratch.
pub(super) fn take<'a>(scratch: &mut &'a mut [f32], n: usize) -> &'a mut [f32] {
    let (first, rest) = std::mem::take(scratch).split_at_mut(n);
    *scratch = rest;
    first
}

/// Rows of x as columns of `to`, [dim, TILE]; zeros where there is no row.
pub(super) fn pack_transposed(x: &[f32], dim: usize, to: &mut [f32]) {
    let rows = x.len() / dim;
    for (d, to) in to.chunks_exact_mut(TILE).enumerate() {
        for (to, row) in to.iter_mut().zip(x.chunks_exact(dim)) {
            *to = row[d];
        }
        to[rows..].fill(0.0);
    }
}

/// Rows of x, each with zeros up to whole vectors.
pub(super) fn pack(x: &[f32], dim: usize, to: &mut [f32]) {
    for (to, x) in to.chunks_exact_mut(dim.next_multiple_of(LANES)).zip(x.chunks_exact(dim)) {
        to[..dim].copy_from_slice(x);
        to[dim..].fill(0.0);
    }
}

/// A tile of scores.
pub(super) struct Tile {
    pub scale: f32,
    pub queries: Range<usize>,
    pub keys: Range<usize>,
    pub causal: bool,
}

impl Tile {
    /// How many of the tile's keys a query of it may look at.
    #[inline(always)]
    pub fn visible(&self, row: usize) -> usize {
        let all = self.keys.len();
        if self.causal { all.min((self.queries.start + row + 1).saturating_sub(self.keys.start)) } else { all }
    }
}

simd! {
    /// Scores become weights e^(score − largest so far); `shrink` is what earlier weights are multiplied with.
    fn softmax_tile<FMA>(
        isa, tile: &Tile, scores: &mut [f32], largest: &mut [f32], sums: &mut [f32], shrink: &mut [f32; TILE],
    ) {
        let (rows, vectors) = (tile.queries.len(), tile.keys.len().div_ceil(LANES));
        for (row, scores) in scores.chunks_exact_mut(TILE).enumerate().take(rows) {
            let scores = &mut scores.as_chunks_mut::<LANES>().0[..vectors];
            let visible = tile.visible(row);
            let mut max = [f32::NEG_INFINITY; LANES];
            for (i, scores) in scores.iter_mut().enumerate() {
                for score in scores.iter_mut() {
                    *score *= tile.scale;
                }
                let here = visible.saturating_sub(i * LANES);
                if here < LANES {
                    scores[here..].fill(f32::NEG_INFINITY);
                }
                for l in 0..LANES {
                    max[l] = lanes::larger_number(max[l], scores[l]);
                }
            }
            shrink[row] = lanes::larger_number(largest[row], lanes::fold_lanes(max, lanes::larger_number));
        }
        // Both exponentials of a row wait for its maximum, but rows do not wait for each other.
        for ((largest, shrink), sum) in largest.iter_mut().zip(shrink.iter_mut()).zip(sums.iter_mut()) {
            let before = *largest;
            *largest = *shrink;
            *shrink = math::exp::<FMA>(before - *largest);
            *sum *= *shrink;
        }
        for ((scores, &largest), total) in scores.chunks_exact_mut(TILE).zip(&*largest).zip(sums) {
            let mut sum = [0.0; LANES];
            for scores in &mut scores.as_chunks_mut::<LANES>().0[..vectors] {
                for l in 0..LANES {
                    scores[l] = math::exp::<FMA>(scores[l] - largest);
                    sum[l] += scores[l];
                }
            }
            *total += sum_lanes(lanes::settle(sum));
        }
    }
}

simd! {
    /// y ← shrink·y + out, a row each.
    fn join_tile<FMA>(isa, dim: usize, stride: usize, shrink: &[f32; TILE], out: &[f32], y: &mut [f32]) {
        for ((y, out), &shrink) in y.chunks_exact_mut(dim).zip(out.chunks_exact(stride)).zip(shrink) {
            for (y, &out) in y.iter_mut().zip(out) {
                *y = fma::<FMA>(shrink, *y, out);
            }
        }
    }
}

simd! {
    /// Divides by the sum of the weights, and turns the largest score into the log-sum-exp.
    fn finish<FMA>(isa, dim: usize, sums: &[f32], y: &mut [f32], lse: &mut [f32]) {
        for ((y, &sum), lse) in y.chunks_exact_mut(dim).zip(sums).zip(lse) {
            let share = 1.0 / sum;
            for y in y {
                *y *= share;
            }
            *lse += math::log::<FMA>(sum);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    pub fn cases() -> Vec<(AttentionShape, Attention)> {
        let mut cases = Vec::new();
        let sizes = [
            [1, 1, 1, 1, 1],
            [2, 9, 9, 8, 8],
            [3, 17, 17, 5, 5],
            [1, 64, 64, 64, 64],
            [2, 130, 130, 16, 16],
            [1, 200, 200, 33, 40],
            [3, 7, 150, 17, 3],
            [1, 150, 7, 80, 64],
        ];
        for [units, queries, keys, dim, value_dim] in sizes {
            let shape = AttentionShape { units, queries, keys, dim, value_dim };
            let scale = 1.0 / (dim as f32).sqrt();
            cases.push((shape, Attention { causal: false, scale }));
            if queries == keys {
                cases.push((shape, Attention { causal: true, scale: 2.0 * scale }));
            }
        }
        cases
    }

    pub fn inputs(shape: &AttentionShape) -> [Vec<f32>; 4] {
        let [q, k, v] = shape.unit().map(|n| n * shape.units);
        let large = |x: Vec<f32>| x.iter().map(|v| v * 3.0).collect::<Vec<_>>();
        let dy = random(shape.units * shape.queries * shape.value_dim, 4);
        [large(random(q, 1)), large(random(k, 2)), random(v, 3), dy]
    }

    /// Weights [units, queries, keys], y and lse, in f64.
    pub fn naive(shape: &AttentionShape, op: Attention, q: &[f32], k: &[f32], v: &[f32]) -> [Vec<f64>; 3] {
        let mut out: [Vec<f64>; 3] = Default::default();
        for row in 0..shape.units * shape.queries {
            let (unit, query) = (row / shape.queries, row % shape.queries);
            let key = |j: usize, d: usize| k[(unit * shape.keys + j) * shape.dim + d] as f64;
            let score = |j: usize| {
                let dot: f64 = (0..shape.dim).map(|d| q[row * shape.dim + d] as f64 * key(j, d)).sum();
                if op.causal && j > query { f64::NEG_INFINITY } else { dot * op.scale as f64 }
            };
            let scores: Vec<f64> = (0..shape.keys).map(score).collect();
            let max = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            let lse = max + scores.iter().map(|s| (s - max).exp()).sum::<f64>().ln();
            let p: Vec<f64> = scores.iter().map(|s| (s - lse).exp()).collect();
            for d in 0..shape.value_dim {
                let value = |j: usize| v[(unit * shape.keys + j) * shape.value_dim + d] as f64;
                out[1].push((0..shape.keys).map(|j| p[j] * value(j)).sum());
            }
            out[0].extend(p);
            out[2].push(lse);
        }
        out
    }

    pub fn forward(cpu: &Cpu, shape: &AttentionShape, op: Attention, qkv: [&[f32]; 3]) -> [Vec<f32>; 2] {
        let rows = shape.units * shape.queries;
        let (mut y, mut lse) = (nans(rows * shape.value_dim), nans(rows));
        let mut scratch = nans(attention_scratch(cpu.pool.threads(), shape));
        attention(cpu, op, shape, qkv, &mut y, &mut lse, &mut scratch);
        [y, lse]
    }

    #[test]
    fn outputs_and_log_sum_exp() {
        for (shape, op) in cases() {
            let [q, k, v, _] = inputs(&shape);
            let [_, y, lse] = naive(&shape, op, &q, &k, &v);
            check(&format!("{op:?} {shape:?}"), 1e-5, &[y, lse], |cpu| forward(cpu, &shape, op, [&q, &k, &v]).into());
        }
    }

    #[test]
    fn huge_scores_do_not_overflow() {
        let shape = AttentionShape { units: 1, queries: 1, keys: 2, dim: 1, value_dim: 1 };
        let op = Attention { causal: false, scale: 1.0 };
        check("huge", 1e-6, &[vec![5.0], vec![1e4]], |cpu| {
            forward(cpu, &shape, op, [&[100.0], &[100.0, -100.0], &[5.0, 7.0]]).into()
        });
    }
}
