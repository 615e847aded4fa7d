//! The gradient of attention: weights are computed again, tile by tile, from the saved log-sum-exp. Gradients of keys and
//! values are summed over the queries for one tile of keys at a time; those of the queries are summed in place.

use super::attention::{AttentionShape, TILE, Tile, for_each_unit, pack, pack_transposed, score_product, take};
use super::lanes;
use super::product::Product;
use crate::Cpu;
use crate::isa::{Isa, fma, simd};
use crate::math::{self, LANES};
use crate::pool::Parts;
use memfit_ir::op::Attention;

/// What the gradient reads.
#[derive(Clone, Copy)]
pub struct AttentionSaved<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub y: &'a [f32],
    pub lse: &'a [f32],
}

/// Elements of scratch that [`attention_grad`] needs.
pub fn attention_grad_scratch(threads: usize, shape: &AttentionShape) -> usize {
    threads * thread_scratch(shape)
}

fn thread_scratch(shape: &AttentionShape) -> usize {
    let [dim, value] = shape.padded();
    TILE * (shape.dim + shape.value_dim + 4 * dim + 2 * value + 2 * TILE) + shape.queries
}

/// The gradients of [`super::attention::attention`] by q, k and v.
pub fn attention_grad(
    cpu: &Cpu,
    op: Attention,
    shape: &AttentionShape,
    saved: AttentionSaved,
    dy: &[f32],
    [dq, dk, dv]: [&mut [f32]; 3],
    scratch: &mut [f32],
) {
    let [q_len, k_len, v_len] = shape.unit();
    let (y_len, rows) = (shape.queries * shape.value_dim, shape.queries);
    let (dq, dk, dv) = (Parts::new(dq), Parts::new(dk), Parts::new(dv));
    for_each_unit(cpu, shape.units, thread_scratch(shape), scratch, |u, scratch| {
        let at = |len: usize| u * len..(u + 1) * len;
        // SAFETY: each unit belongs to one thread.
        let grads = unsafe { [dq.range(at(q_len)), dk.range(at(k_len)), dv.range(at(v_len))] };
        let saved = AttentionSaved {
            q: &saved.q[at(q_len)],
            k: &saved.k[at(k_len)],
            v: &saved.v[at(v_len)],
            y: &saved.y[at(y_len)],
            lse: &saved.lse[at(rows)],
        };
        unit_grad(cpu.isa, op, shape, saved, &dy[at(y_len)], grads, scratch);
    });
}

/// One unit: for each tile of keys, all the queries that see it.
fn unit_grad(
    isa: Isa,
    op: Attention,
    shape: &AttentionShape,
    saved: AttentionSaved,
    dy: &[f32],
    [dq, dk, dv]: [&mut [f32]; 3],
    mut scratch: &mut [f32],
) {
    let (dim, value_dim) = (shape.dim, shape.value_dim);
    let deltas = take(&mut scratch, shape.queries);
    row_dots(isa, value_dim, dy, saved.y, deltas);
    let mut buffers = Buffers::carve(shape, scratch);
    dq.fill(0.0);
    for first_key in (0..shape.keys).step_by(TILE) {
        let keys = first_key..(first_key + TILE).min(shape.keys);
        buffers.load_keys(&saved.k[keys.start * dim..keys.end * dim], dim);
        buffers.load_values(&saved.v[keys.start * value_dim..keys.end * value_dim], value_dim);
        let first_query = if op.causal { first_key } else { 0 };
        for first in (first_query..shape.queries).step_by(TILE) {
            let queries = first..(first + TILE).min(shape.queries);
            let (q, y) = (queries.start * dim..queries.end * dim, queries.start * value_dim..queries.end * value_dim);
            let rows = TileRows {
                q: &saved.q[q.clone()],
                dy: &dy[y],
                lse: &saved.lse[queries.clone()],
                deltas: &deltas[queries.clone()],
            };
            let tile = Tile { scale: op.scale, queries, keys: keys.clone(), causal: op.causal };
            buffers.add_tile(isa, shape, &tile, rows, &mut dq[q]);
        }
        unpack(buffers.dk, &mut dk[keys.start * dim..keys.end * dim], dim);
        unpack(buffers.dv, &mut dv[keys.start * value_dim..keys.end * value_dim], value_dim);
    }
}

/// What a tile needs of its queries.
#[derive(Clone, Copy)]
struct TileRows<'a> {
    q: &'a [f32],
    dy: &'a [f32],
    lse: &'a [f32],
    /// Σ dy·y of each query.
    deltas: &'a [f32],
}

struct Buffers<'a> {
    keys_t: &'a mut [f32],
    values_t: &'a mut [f32],
    keys: &'a mut [f32],
    queries: &'a mut [f32],
    dy: &'a mut [f32],
    weights: &'a mut [f32],
    dscores: &'a mut [f32],
    dq: &'a mut [f32],
    dk: &'a mut [f32],
    dv: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    fn carve(shape: &AttentionShape, mut scratch: &'a mut [f32]) -> Buffers<'a> {
        let [dim, value] = shape.padded();
        let mut next = |n: usize| take(&mut scratch, n * TILE);
        Buffers {
            keys_t: next(shape.dim),
            values_t: next(shape.value_dim),
            keys: next(dim),
            queries: next(dim),
            dy: next(value),
            weights: next(TILE),
            dscores: next(TILE),
            dq: next(dim),
            dk: next(dim),
            dv: next(value),
        }
    }

    fn load_keys(&mut self, k: &[f32], dim: usize) {
        pack_transposed(k, dim, self.keys_t);
        pack(k, dim, self.keys);
        self.dk.fill(0.0);
    }

    fn load_values(&mut self, v: &[f32], value_dim: usize) {
        pack_transposed(v, value_dim, self.values_t);
        self.dv.fill(0.0);
    }

    /// Adds what one tile of scores gives to dq, dk and dv.
    fn add_tile(&mut self, isa: Isa, shape: &AttentionShape, tile: &Tile, rows: TileRows, dq: &mut [f32]) {
        let [dim, value] = shape.padded();
        let (m, n) = (tile.queries.len(), tile.keys.len());
        pack(rows.q, shape.dim, self.queries);
        pack(rows.dy, shape.value_dim, self.dy);
        score_product(m, shape.dim, n).run(isa, rows.q, self.keys_t, self.weights);
        score_product(m, shape.value_dim, n).run(isa, rows.dy, self.values_t, self.dscores);
        grad_tile(isa, tile, rows.lse, rows.deltas, self.weights, self.dscores);
        let over_queries = Product {
            m: n,
            k: m,
            n: value,
            a_stride: TILE,
            transposed: true,
            b_stride: value,
            c_stride: value,
            add: true,
        };
        over_queries.run(isa, self.weights, self.dy, self.dv);
        Product { n: dim, b_stride: dim, c_stride: dim, ..over_queries }.run(isa, self.dscores, self.queries, self.dk);
        let over_keys =
            Product { m, k: n, n: dim, a_stride: TILE, transposed: false, b_stride: dim, c_stride: dim, add: false };
        over_keys.run(isa, self.dscores, self.keys, self.dq);
        add_rows(isa, shape.dim, dim, self.dq, dq);
    }
}

/// Rows of a padded buffer, without the padding.
fn unpack(from: &[f32], to: &mut [f32], dim: usize) {
    for (to, from) in to.chunks_exact_mut(dim).zip(from.chunks_exact(dim.next_multiple_of(LANES))) {
        to.copy_from_slice(&from[..dim]);
    }
}

simd! {
    /// The dot product of each row.
    fn row_dots<FMA>(isa, dim: usize, x: &[f32], y: &[f32], dots: &mut [f32]) {
        for ((x, y), dot) in x.chunks_exact(dim).zip(y.chunks_exact(dim)).zip(dots) {
            *dot = lanes::sum2(x, y, |a, x, y| fma::<FMA>(x, y, a));
        }
    }
}

simd! {
    /// Scores become weights, and the gradients of weights become those of scores.
    fn grad_tile<FMA>(
        isa, tile: &Tile, lse: &[f32], deltas: &[f32], weights: &mut [f32], dscores: &mut [f32],
    ) {
        let vectors = tile.keys.len().div_ceil(LANES);
        let rows = weights.chunks_exact_mut(TILE).zip(dscores.chunks_exact_mut(TILE));
        for (row, ((weights, dscores), (&lse, &delta))) in rows.zip(lse.iter().zip(deltas)).enumerate() {
            let (weights, dscores) = (weights.as_chunks_mut::<LANES>().0, dscores.as_chunks_mut::<LANES>().0);
            let visible = tile.visible(row);
            for (i, (weights, dscores)) in weights.iter_mut().zip(dscores).enumerate().take(vectors) {
                for l in 0..LANES {
                    let weight = math::exp::<FMA>(fma::<FMA>(weights[l], tile.scale, -lse));
                    weights[l] = if i * LANES + l < visible { weight } else { 0.0 };
                    dscores[l] = weights[l] * (dscores[l] - delta) * tile.scale;
                }
            }
        }
    }
}

simd! {
    /// y += x, whose rows are padded.
    fn add_rows<FMA>(isa, dim: usize, stride: usize, x: &[f32], y: &mut [f32]) {
        for (y, x) in y.chunks_exact_mut(dim).zip(x.chunks_exact(stride)) {
            for (y, &x) in y.iter_mut().zip(x) {
                *y += x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::attention::tests::{cases, forward, inputs, naive};
    use super::*;
    use crate::kernels::check::{check, nans};

    /// dq, dk and dv in f64, from the weights.
    fn naive_grad(
        shape: &AttentionShape,
        op: Attention,
        [q, k, v, dy]: &[Vec<f32>; 4],
        [p, y, _]: &[Vec<f64>; 3],
    ) -> [Vec<f64>; 3] {
        let mut out = shape.unit().map(|n| vec![0.0; n * shape.units]);
        let (dim, value_dim) = (shape.dim, shape.value_dim);
        for (at, &p) in p.iter().enumerate() {
            let (row, j) = (at / shape.keys, at % shape.keys);
            let key = row / shape.queries * shape.keys + j;
            let dp: f64 = (0..value_dim).map(|d| dy[row * value_dim + d] as f64 * v[key * value_dim + d] as f64).sum();
            let delta: f64 = (0..value_dim).map(|d| dy[row * value_dim + d] as f64 * y[row * value_dim + d]).sum();
            let ds = p * (dp - delta) * op.scale as f64;
            for d in 0..dim {
                out[0][row * dim + d] += ds * k[key * dim + d] as f64;
                out[1][key * dim + d] += ds * q[row * dim + d] as f64;
            }
            for d in 0..value_dim {
                out[2][key * value_dim + d] += p * dy[row * value_dim + d] as f64;
            }
        }
        out
    }

    #[test]
    fn gradients_by_queries_keys_and_values() {
        for (shape, op) in cases() {
            let all = inputs(&shape);
            let [q, k, v, dy] = &all;
            let want = naive_grad(&shape, op, &all, &naive(&shape, op, q, k, v));
            check(&format!("{op:?} {shape:?}"), 3e-5, &want, |cpu| {
                let [y, lse] = forward(cpu, &shape, op, [q, k, v]);
                let saved = AttentionSaved { q, k, v, y: &y, lse: &lse };
                let (mut dq, mut dk, mut dv) = (nans(q.len()), nans(k.len()), nans(v.len()));
                let mut scratch = nans(attention_grad_scratch(cpu.pool.threads(), &shape));
                attention_grad(cpu, op, &shape, saved, dy, [&mut dq, &mut dk, &mut dv], &mut scratch);
                vec![dq, dk, dv]
            });
        }
    }
}
