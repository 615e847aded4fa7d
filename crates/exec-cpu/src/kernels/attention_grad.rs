//! The gradient of attention: weights are computed again, tile by tile, from the saved log-sum-exp. Gradients of keys and
//! values are summed over the queries for one tile of keys at a time; those of a head's queries are summed in scratch. What
//! a head's gradient overwrites it has read, so that dqkv may take the place of qkv.

use super::heads::{AttentionShape, Head, TILE, Tile, take};
use super::lanes;
use crate::Cpu;
use crate::isa::{Isa, fma, simd};
use crate::math::{self, LANES};
use crate::pool::Parts;
use crate::prefetch::{FarRows, RowPrefetch};
use memfit_ir::op::Attention;
use std::ops::Range;

/// What the forward pass leaves for the gradient.
#[derive(Clone, Copy)]
pub(crate) struct AttentionSaved<'a> {
    /// None where dqkv takes its place: then it is what lies there.
    pub(crate) qkv: Option<&'a [f32]>,
    pub(crate) y: &'a [f32],
    pub(crate) lse: &'a [f32],
}

/// Elements of scratch that [`attention_grad`] needs.
pub(crate) fn attention_grad_scratch(threads: usize, shape: &AttentionShape) -> usize {
    shape.scratch(threads, head_scratch(shape))
}

fn head_scratch(shape: &AttentionShape) -> usize {
    let padded = shape.padded();
    shape.sequence * (3 * padded + 1) + TILE * (2 * shape.dim + 3 * padded + 2 * TILE)
}

/// The gradient of [`super::attention::attention`].
pub(crate) fn attention_grad(
    cpu: &Cpu,
    op: Attention,
    shape: &AttentionShape,
    saved: AttentionSaved,
    dy: &[f32],
    dqkv: &mut [f32],
    scratch: &mut [f32],
) {
    let dqkv_address = dqkv.as_ptr().addr();
    let dqkv = Parts::new(dqkv);
    shape.for_each_head(cpu, head_scratch(shape), scratch, |head, next, scratch| {
        // SAFETY: the rows of a head belong to one thread, which writes none while it reads one.
        let x = |at: Range<usize>| saved.qkv.map_or_else(|| unsafe { &*dqkv.range(at.clone()) }, |x| &x[at.clone()]);
        let [q, k, v] = head.qkv;
        let mut prefetch =
            RowPrefetch::new(next.iter().flat_map(|head| rows_of(head, &saved, dy, dqkv_address)), shape.sequence);
        let mut buffers = Buffers::carve(shape, scratch);
        buffers.load_queries(cpu.isa, shape, &head, x, saved.y, dy);
        for keys in shape.tiles() {
            k.pack(x, keys.clone(), buffers.keys);
            k.pack_transposed(x, keys.clone(), buffers.keys_t);
            v.pack_transposed(x, keys.clone(), buffers.values_t);
            for queries in shape.tiles() {
                if let Some(tile) = Tile::new(op, shape.dim, queries, keys.clone()) {
                    buffers.add_tile(cpu.isa, &mut prefetch, op, &tile, &saved.lse[head.lse.clone()]);
                }
            }
            // SAFETY: the rows of a head belong to one thread, and no slice of them lives any more.
            unsafe {
                k.unpack(buffers.dk, keys.clone(), &dqkv);
                v.unpack(buffers.dv, keys, &dqkv);
            }
        }
        // SAFETY: the rows of a head belong to one thread, and no slice of them lives any more.
        unsafe { q.unpack(buffers.dq, 0..shape.sequence, &dqkv) };
    });
}

/// What the gradient of a head reads and writes.
fn rows_of(head: &Head, saved: &AttentionSaved, dy: &[f32], dqkv: usize) -> impl Iterator<Item = FarRows> + use<> {
    let [dq, dk, dv] = head.qkv.map(|rows| rows.far(dqkv));
    let (y, dy) = (head.y.far(saved.y.as_ptr().addr()), head.y.far(dy.as_ptr().addr()));
    let apart = saved.qkv.map(|x| head.qkv.map(|rows| rows.far(x.as_ptr().addr())));
    let [q, k, v] = apart.unwrap_or([dq, dk, dv]);
    [q, dy, y, k, v].into_iter().chain(apart.map(|_| [dk, dv, dq]).into_iter().flatten())
}

struct Buffers<'a> {
    // Of the whole sequence.
    queries: &'a mut [f32],
    dy: &'a mut [f32],
    dq: &'a mut [f32],
    /// Σ dy·y of each query.
    deltas: &'a mut [f32],
    // Of a tile.
    keys: &'a mut [f32],
    keys_t: &'a mut [f32],
    values_t: &'a mut [f32],
    weights: &'a mut [f32],
    dscores: &'a mut [f32],
    dk: &'a mut [f32],
    dv: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    fn carve(shape: &AttentionShape, mut scratch: &'a mut [f32]) -> Buffers<'a> {
        let (n, padded) = (shape.sequence, shape.padded());
        let mut next = |n: usize| take(&mut scratch, n);
        Buffers {
            queries: next(n * padded),
            dy: next(n * padded),
            dq: next(n * padded),
            keys: next(TILE * padded),
            keys_t: next(TILE * shape.dim),
            values_t: next(TILE * shape.dim),
            weights: next(TILE * TILE),
            dscores: next(TILE * TILE),
            dk: next(TILE * padded),
            dv: next(TILE * padded),
            deltas: next(n),
        }
    }

    fn load_queries<'x>(
        &mut self,
        isa: Isa,
        shape: &AttentionShape,
        head: &Head,
        x: impl Fn(Range<usize>) -> &'x [f32],
        y: &[f32],
        dy: &[f32],
    ) {
        head.qkv[0].pack(x, 0..shape.sequence, self.queries);
        head.y.pack(|at| &dy[at], 0..shape.sequence, self.dy);
        // The sums over the queries have not begun: there is room for y.
        head.y.pack(|at| &y[at], 0..shape.sequence, self.dq);
        row_dots(isa, shape.padded(), self.dy, self.dq, self.deltas);
    }

    /// Adds what one tile of scores gives to dq, dk and dv. The first tile of a sum begins it.
    fn add_tile(&mut self, isa: Isa, prefetch: &mut RowPrefetch, op: Attention, tile: &Tile, lse: &[f32]) {
        let (padded, queries) = (self.dk.len() / TILE, tile.queries.clone());
        let rows = queries.start * padded..queries.end * padded;
        let (q, dy) = (&self.queries[rows.clone()], &self.dy[rows.clone()]);
        tile.across(isa, prefetch, (q, padded), self.keys_t, self.weights);
        tile.across(isa, prefetch, (dy, padded), self.values_t, self.dscores);
        grad_tile(isa, op.scale, tile, &lse[queries.clone()], &self.deltas[queries], self.weights, self.dscores);
        let goes_on = tile.queries.start > if op.causal { tile.keys.start } else { 0 };
        tile.over_queries(isa, prefetch, goes_on, self.weights, dy, self.dv);
        tile.over_queries(isa, prefetch, goes_on, self.dscores, q, self.dk);
        tile.over_keys(isa, prefetch, tile.keys.start > 0, self.dscores, self.keys, &mut self.dq[rows]);
    }
}

simd! {
    /// The dot product of each row.
    fn row_dots<FMA>(isa, padded: usize, x: &[f32], y: &[f32], dots: &mut [f32]) {
        for ((x, y), dot) in x.chunks_exact(padded).zip(y.chunks_exact(padded)).zip(dots) {
            *dot = lanes::sum2(x, y, |a, x, y| fma::<FMA>(x, y, a));
        }
    }
}

simd! {
    /// Scores become weights, and the gradients of weights become those of scores.
    fn grad_tile<FMA>(
        isa, scale: f32, tile: &Tile, lse: &[f32], deltas: &[f32], weights: &mut [f32], dscores: &mut [f32],
    ) {
        let rows = weights.chunks_exact_mut(TILE).zip(dscores.chunks_exact_mut(TILE));
        for (row, ((weights, dscores), (&lse, &delta))) in rows.zip(lse.iter().zip(deltas)).enumerate() {
            let (weights, dscores) = (weights.as_chunks_mut::<LANES>().0, dscores.as_chunks_mut::<LANES>().0);
            let visible = tile.visible(row);
            let vectors = weights.iter_mut().zip(dscores).take(visible.div_ceil(LANES));
            for (i, (weights, dscores)) in vectors.enumerate() {
                for l in 0..LANES {
                    let weight = math::exp::<FMA>(fma::<FMA>(weights[l], scale, -lse));
                    weights[l] = if i * LANES + l < visible { weight } else { 0.0 };
                    dscores[l] = weights[l] * (dscores[l] - delta) * scale;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::attention::tests::{cases, forward, inputs, naive, place, y_place};
    use super::*;
    use crate::isa::Isa;
    use crate::kernels::check::{check, cpu, nans};

    /// dqkv in f64, from the weights.
    fn naive_grad(
        shape: &AttentionShape,
        op: Attention,
        [qkv, dy]: &[Vec<f32>; 2],
        [p, y, _]: &[Vec<f64>; 3],
    ) -> Vec<f64> {
        let mut out = vec![0.0; qkv.len()];
        let n = shape.sequence;
        for (at, &p) in p.iter().enumerate() {
            let (row, j) = (at / n, at % n);
            let (b, h, i) = (row / n / shape.heads, row / n % shape.heads, row % n);
            let x = |part: usize, t: usize, d: usize| qkv[place(shape, part, [b, h, t, d])] as f64;
            let dy = |d: usize| dy[y_place(shape, [b, h, i, d])] as f64;
            let dp: f64 = (0..shape.dim).map(|d| dy(d) * x(2, j, d)).sum();
            let delta: f64 = (0..shape.dim).map(|d| dy(d) * y[y_place(shape, [b, h, i, d])]).sum();
            let ds = p * (dp - delta) * op.scale as f64;
            for d in 0..shape.dim {
                out[place(shape, 0, [b, h, i, d])] += ds * x(1, j, d);
                out[place(shape, 1, [b, h, j, d])] += ds * x(0, i, d);
                out[place(shape, 2, [b, h, j, d])] += p * dy(d);
            }
        }
        out
    }

    /// With dqkv in a place of its own, or in that of qkv.
    fn gradient(
        cpu: &Cpu,
        shape: &AttentionShape,
        op: Attention,
        [qkv, dy]: &[Vec<f32>; 2],
        in_place: bool,
    ) -> Vec<f32> {
        let [y, lse] = forward(cpu, shape, op, qkv);
        let mut dqkv = if in_place { qkv.clone() } else { nans(qkv.len()) };
        let mut scratch = nans(attention_grad_scratch(cpu.pool.threads(), shape));
        let saved = AttentionSaved { qkv: (!in_place).then_some(&qkv[..]), y: &y, lse: &lse };
        attention_grad(cpu, op, shape, saved, dy, &mut dqkv, &mut scratch);
        dqkv
    }

    #[test]
    fn gradients_by_queries_keys_and_values() {
        for (shape, op) in cases() {
            let inputs = inputs(&shape);
            let want = naive_grad(&shape, op, &inputs, &naive(&shape, op, &inputs[0]));
            check(&format!("{op:?} {shape:?}"), 3e-5, &[want], |cpu| vec![gradient(cpu, &shape, op, &inputs, false)]);
        }
    }

    #[test]
    fn the_gradient_may_take_the_place_of_what_it_reads() {
        for (shape, op) in cases() {
            let inputs = inputs(&shape);
            let cpu = cpu(Isa::best(), 2);
            let [apart, over] = [false, true].map(|in_place| gradient(&cpu, &shape, op, &inputs, in_place));
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&apart) == bits(&over), "{op:?} {shape:?}");
        }
    }
}
