//! Attention without the matrix of scores: tiles of 64 queries and 64 keys pass through the softmax one after the other
//! and leave only the outputs and a log-sum-exp for each query. A unit of work is one head of one sample; its arithmetic
//! does not depend on the threads.

use super::heads::{AttentionShape, Head, TILE, Tile, take};
use super::lanes;
use crate::Cpu;
use crate::isa::{Isa, simd};
use crate::math::{self, LANES, sum_lanes};
use crate::pool::Parts;
use crate::prefetch::RowPrefetch;
use memfit_ir::op::Attention;

/// Elements of scratch that [`attention`] needs.
pub(crate) fn attention_scratch(threads: usize, shape: &AttentionShape) -> usize {
    shape.scratch(threads, head_scratch(shape))
}

fn head_scratch(shape: &AttentionShape) -> usize {
    let (padded, tiles) = (shape.padded(), shape.sequence.div_ceil(TILE));
    tiles * TILE * shape.dim + shape.sequence * padded + TILE * (padded + TILE)
}

/// y ← softmax(scale·q·kᵀ)·v of each head, lse ← the log-sum-exp of each query's scores.
pub(crate) fn attention(
    cpu: &Cpu,
    op: Attention,
    shape: &AttentionShape,
    qkv: &[f32],
    y: &mut [f32],
    lse: &mut [f32],
    scratch: &mut [f32],
) {
    let y_address = y.as_ptr().addr();
    let (y, lse) = (Parts::new(y), Parts::new(lse));
    shape.for_each_head(cpu, head_scratch(shape), scratch, |head, next, scratch| {
        // SAFETY: each head belongs to one thread.
        let lse = unsafe { lse.range(head.lse.clone()) };
        let mut buffers = Buffers::load(shape, &head, qkv, scratch);
        let soon = next.into_iter().flat_map(|h| {
            let [q, k, v] = h.qkv.map(|rows| rows.far(qkv.as_ptr().addr()));
            [k, v, q, h.y.far(y_address)]
        });
        let mut prefetch = RowPrefetch::new(soon, shape.sequence);
        for queries in shape.tiles() {
            let tiles = shape.tiles().map_while(|keys| Tile::new(op, shape.dim, queries.clone(), keys));
            let q = head.qkv[0].from(qkv, queries.start);
            buffers.attend(cpu.isa, &mut prefetch, op.scale, q, tiles, &mut lse[queries.clone()]);
            // SAFETY: the rows of a head belong to one thread.
            unsafe { head.y.unpack(buffers.out, queries, &y) };
        }
    });
}

struct Buffers<'a> {
    dim: usize,
    /// The keys of the whole sequence, [dim, TILE] for each tile of them.
    keys_t: &'a mut [f32],
    /// The values of the whole sequence.
    values: &'a mut [f32],
    scores: &'a mut [f32],
    out: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    fn load(shape: &AttentionShape, head: &Head, qkv: &[f32], mut scratch: &'a mut [f32]) -> Buffers<'a> {
        let (padded, tiles) = (shape.padded(), shape.sequence.div_ceil(TILE));
        let mut next = |n: usize| take(&mut scratch, n);
        let buffers = Buffers {
            dim: shape.dim,
            keys_t: next(tiles * TILE * shape.dim),
            values: next(shape.sequence * padded),
            scores: next(TILE * TILE),
            out: next(TILE * padded),
        };
        let [_, k, v] = head.qkv;
        for (keys, to) in shape.tiles().zip(buffers.keys_t.chunks_exact_mut(TILE * shape.dim)) {
            k.pack_transposed(|at| &qkv[at], keys, to);
        }
        v.pack(|at| &qkv[at], 0..shape.sequence, buffers.values);
        buffers
    }

    /// One tile of queries and all the keys that it sees. Until the end `out` is not divided by the sum of the weights,
    /// and lse holds the largest score so far.
    fn attend(
        &mut self,
        isa: Isa,
        prefetch: &mut RowPrefetch,
        scale: f32,
        queries: (&[f32], usize),
        tiles: impl Iterator<Item = Tile>,
        lse: &mut [f32],
    ) {
        let padded = self.out.len() / TILE;
        let (mut sums, mut shrink) = ([0.0; TILE], [0.0; TILE]);
        lse.fill(f32::NEG_INFINITY);
        for (tile, keys_t) in tiles.zip(self.keys_t.chunks_exact(TILE * self.dim)) {
            tile.across(isa, prefetch, queries, keys_t, self.scores);
            softmax_tile(isa, scale, &tile, self.scores, lse, &mut sums, &mut shrink);
            let first = tile.keys.start == 0;
            if !first {
                scale_rows(isa, padded, &shrink[..lse.len()], self.out);
            }
            tile.over_keys(isa, prefetch, !first, self.scores, &self.values[tile.keys.start * padded..], self.out);
        }
        finish(isa, padded, &mut sums, self.out, lse);
    }
}

simd! {
    /// Scores become weights e^(score − largest so far); `shrink` is what earlier weights are multiplied with.
    fn softmax_tile<FMA>(
        isa, scale: f32, tile: &Tile, scores: &mut [f32], largest: &mut [f32], sums: &mut [f32; TILE],
        shrink: &mut [f32; TILE],
    ) {
        for (row, scores) in scores.chunks_exact_mut(TILE).enumerate().take(largest.len()) {
            let visible = tile.visible(row);
            let scores = &mut scores.as_chunks_mut::<LANES>().0[..visible.div_ceil(LANES)];
            let mut max = [f32::NEG_INFINITY; LANES];
            for (i, scores) in scores.iter_mut().enumerate() {
                for score in scores.iter_mut() {
                    *score *= scale;
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
        for (row, ((scores, &largest), total)) in scores.chunks_exact_mut(TILE).zip(&*largest).zip(sums).enumerate() {
            let mut sum = [0.0; LANES];
            for scores in &mut scores.as_chunks_mut::<LANES>().0[..tile.visible(row).div_ceil(LANES)] {
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
    /// Multiplies each row by a number.
    fn scale_rows<FMA>(isa, padded: usize, by: &[f32], rows: &mut [f32]) {
        for (row, &by) in rows.chunks_exact_mut(padded).zip(by) {
            for x in row {
                *x *= by;
            }
        }
    }
}

simd! {
    /// Divides by the sums of the weights, and turns the largest scores into log-sum-exps.
    fn finish<FMA>(isa, padded: usize, sums: &mut [f32; TILE], out: &mut [f32], lse: &mut [f32]) {
        for ((row, &mut sum), lse) in out.chunks_exact_mut(padded).zip(sums).zip(lse) {
            let share = 1.0 / sum;
            for x in row {
                *x *= share;
            }
            *lse += math::log::<FMA>(sum);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    pub(crate) fn cases() -> Vec<(AttentionShape, Attention)> {
        let mut cases = Vec::new();
        for [batch, sequence, heads, dim] in [
            [1, 1, 1, 1],
            [2, 9, 1, 8],
            [3, 17, 2, 5],
            [1, 64, 3, 64],
            [2, 130, 1, 16],
            [1, 200, 2, 33],
            [2, 150, 2, 80],
        ] {
            let shape = AttentionShape { batch, sequence, heads, dim };
            let scale = 1.0 / (dim as f32).sqrt();
            cases.push((shape, Attention { causal: false, scale }));
            cases.push((shape, Attention { causal: true, scale: 2.0 * scale }));
        }
        cases
    }

    /// qkv, of which queries and keys are large, and dy.
    pub(crate) fn inputs(shape: &AttentionShape) -> [Vec<f32>; 2] {
        let (width, positions) = (shape.heads * shape.dim, shape.batch * shape.sequence);
        let mut qkv = random(positions * 3 * width, 1);
        for position in qkv.chunks_mut(3 * width) {
            position[..2 * width].iter_mut().for_each(|x| *x *= 3.0);
        }
        [qkv, random(positions * width, 4)]
    }

    /// Of part 0, 1 or 2 of qkv.
    pub(crate) fn place(shape: &AttentionShape, part: usize, [b, h, t, d]: [usize; 4]) -> usize {
        (((b * shape.sequence + t) * 3 + part) * shape.heads + h) * shape.dim + d
    }

    /// Of y.
    pub(crate) fn y_place(shape: &AttentionShape, [b, h, t, d]: [usize; 4]) -> usize {
        ((b * shape.sequence + t) * shape.heads + h) * shape.dim + d
    }

    /// Weights [batch, heads, queries, keys], y and lse, in f64.
    pub(crate) fn naive(shape: &AttentionShape, op: Attention, qkv: &[f32]) -> [Vec<f64>; 3] {
        let n = shape.sequence;
        let mut out = [vec![], vec![0.0; qkv.len() / 3], vec![]];
        for row in 0..shape.batch * shape.heads * n {
            let (b, h, query) = (row / n / shape.heads, row / n % shape.heads, row % n);
            let x = |part: usize, t: usize, d: usize| qkv[place(shape, part, [b, h, t, d])] as f64;
            let score = |j: usize| {
                let dot: f64 = (0..shape.dim).map(|d| x(0, query, d) * x(1, j, d)).sum();
                if op.causal && j > query { f64::NEG_INFINITY } else { dot * op.scale as f64 }
            };
            let scores: Vec<f64> = (0..n).map(score).collect();
            let max = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            let lse = max + scores.iter().map(|s| (s - max).exp()).sum::<f64>().ln();
            let p: Vec<f64> = scores.iter().map(|s| (s - lse).exp()).collect();
            for d in 0..shape.dim {
                out[1][y_place(shape, [b, h, query, d])] = (0..n).map(|j| p[j] * x(2, j, d)).sum();
            }
            out[0].extend(p);
            out[2].push(lse);
        }
        out
    }

    pub(crate) fn forward(cpu: &Cpu, shape: &AttentionShape, op: Attention, qkv: &[f32]) -> [Vec<f32>; 2] {
        let (mut y, mut lse) = (nans(qkv.len() / 3), nans(shape.batch * shape.heads * shape.sequence));
        let mut scratch = nans(attention_scratch(cpu.pool.threads(), shape));
        attention(cpu, op, shape, qkv, &mut y, &mut lse, &mut scratch);
        [y, lse]
    }

    #[test]
    fn outputs_and_log_sum_exp() {
        for (shape, op) in cases() {
            let [qkv, _] = inputs(&shape);
            let [_, y, lse] = naive(&shape, op, &qkv);
            check(&format!("{op:?} {shape:?}"), 1e-5, &[y, lse], |cpu| forward(cpu, &shape, op, &qkv).into());
        }
    }

    #[test]
    fn huge_scores_do_not_overflow() {
        let shape = AttentionShape { batch: 1, sequence: 2, heads: 1, dim: 1 };
        let op = Attention { causal: false, scale: 1.0 };
        let qkv = [100.0, 100.0, 5.0, 100.0, -100.0, 7.0];
        check("huge", 1e-6, &[vec![5.0; 2], vec![1e4; 2]], |cpu| forward(cpu, &shape, op, &qkv).into());
    }
}
