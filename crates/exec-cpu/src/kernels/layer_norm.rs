//! Layer norm and RMS norm over the last axis, forward and gradient. Each row is read twice, from cache. The gradients of
//! scale and bias are sums over rows: chunks of rows leave partial sums in scratch.

use super::batch_norm::sum_parts;
use super::{Chunks, lanes};
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use std::ops::Range;

/// Partial sums of the gradients of scale and bias.
const CHUNKS: usize = 32;
/// Elements of the smallest chunk.
const SMALLEST: usize = 4096;

/// y ← (x − mean)·rstd·scale + bias, with mean and 1/√(variance + ε) of each row.
pub(crate) fn layer_norm(
    cpu: &Cpu,
    eps: f32,
    x: &[f32],
    (scale, bias): (&[f32], &[f32]),
    y: &mut [f32],
    (mean, rstd): (&mut [f32], &mut [f32]),
) {
    let (rows, dim) = (rstd.len(), scale.len());
    let (y, mean, rstd) = (Parts::new(y), Parts::new(mean), Parts::new(rstd));
    cpu.pool.split(rows, grain(dim), |r| {
        let flat = r.start * dim..r.end * dim;
        // SAFETY: each row belongs to one thread.
        let (y, mean, rstd) = unsafe { (y.range(flat.clone()), mean.range(r.clone()), rstd.range(r)) };
        layer_rows(cpu.isa, eps, &x[flat], scale, bias, y, mean, rstd);
    });
}

/// y ← x·rstd·scale, with 1/√(mean of squares + ε) of each row.
pub(crate) fn rms_norm(cpu: &Cpu, eps: f32, x: &[f32], scale: &[f32], y: &mut [f32], rstd: &mut [f32]) {
    let (rows, dim) = (rstd.len(), scale.len());
    let (y, rstd) = (Parts::new(y), Parts::new(rstd));
    cpu.pool.split(rows, grain(dim), |r| {
        let flat = r.start * dim..r.end * dim;
        // SAFETY: each row belongs to one thread.
        let (y, rstd) = unsafe { (y.range(flat.clone()), rstd.range(r)) };
        rms_rows(cpu.isa, eps, &x[flat], scale, y, rstd);
    });
}

/// What the gradient of layer norm reads.
#[derive(Clone, Copy)]
pub(crate) struct LayerNormSaved<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) mean: &'a [f32],
    pub(crate) rstd: &'a [f32],
    pub(crate) scale: &'a [f32],
}

/// Elements of scratch that [`layer_norm_grad`] needs.
pub(crate) fn layer_norm_grad_scratch(rows: usize, dim: usize) -> usize {
    2 * chunks(rows, dim).count * dim
}

/// The gradients of layer norm by x, scale and bias.
pub(crate) fn layer_norm_grad(
    cpu: &Cpu,
    saved: LayerNormSaved,
    dy: &[f32],
    dx: &mut [f32],
    (dscale, dbias): (&mut [f32], &mut [f32]),
    scratch: &mut [f32],
) {
    let (rows, dim) = (saved.rstd.len(), saved.scale.len());
    let chunks = chunks(rows, dim);
    let (scales, biases) = scratch[..2 * chunks.count * dim].split_at_mut(chunks.count * dim);
    {
        let (dx, scales, biases) = (Parts::new(dx), Parts::new(&mut *scales), Parts::new(&mut *biases));
        for_each_chunk(cpu, chunks, |chunk, rows| {
            let (flat, part) = (rows.start * dim..rows.end * dim, chunk * dim..(chunk + 1) * dim);
            // SAFETY: each row and each chunk belongs to one thread.
            let (dx, scales, biases) =
                unsafe { (dx.range(flat.clone()), scales.range(part.clone()), biases.range(part)) };
            let (mean, rstd) = (&saved.mean[rows.clone()], &saved.rstd[rows]);
            layer_grad_rows(cpu.isa, [&saved.x[flat.clone()], &dy[flat]], mean, rstd, saved.scale, dx, scales, biases);
        });
    }
    sum_parts(scales, chunks.count, dim, 0..dim, dscale);
    sum_parts(biases, chunks.count, dim, 0..dim, dbias);
}

/// What the gradient of RMS norm reads.
#[derive(Clone, Copy)]
pub(crate) struct RmsNormSaved<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) rstd: &'a [f32],
    pub(crate) scale: &'a [f32],
}

/// Elements of scratch that [`rms_norm_grad`] needs.
pub(crate) fn rms_norm_grad_scratch(rows: usize, dim: usize) -> usize {
    chunks(rows, dim).count * dim
}

/// The gradients of RMS norm by x and scale.
pub(crate) fn rms_norm_grad(
    cpu: &Cpu,
    saved: RmsNormSaved,
    dy: &[f32],
    dx: &mut [f32],
    dscale: &mut [f32],
    scratch: &mut [f32],
) {
    let (rows, dim) = (saved.rstd.len(), saved.scale.len());
    let chunks = chunks(rows, dim);
    let scales = &mut scratch[..chunks.count * dim];
    {
        let (dx, scales) = (Parts::new(dx), Parts::new(&mut *scales));
        for_each_chunk(cpu, chunks, |chunk, rows| {
            let (flat, part) = (rows.start * dim..rows.end * dim, chunk * dim..(chunk + 1) * dim);
            // SAFETY: each row and each chunk belongs to one thread.
            let (dx, scales) = unsafe { (dx.range(flat.clone()), scales.range(part)) };
            rms_grad_rows(cpu.isa, &saved.x[flat.clone()], &dy[flat], &saved.rstd[rows], saved.scale, dx, scales);
        });
    }
    sum_parts(scales, chunks.count, dim, 0..dim, dscale);
}

/// Rows that are worth a thread of their own.
fn grain(dim: usize) -> usize {
    SMALLEST.div_ceil(dim.max(1))
}

fn chunks(rows: usize, dim: usize) -> Chunks {
    Chunks::new(rows, grain(dim), CHUNKS)
}

fn for_each_chunk(cpu: &Cpu, chunks: Chunks, body: impl Fn(usize, Range<usize>) + Sync) {
    cpu.pool.split(chunks.count, 1, |range| range.for_each(|chunk| body(chunk, chunks.range(chunk))));
}

simd! {
    fn layer_rows<FMA>(
        isa, eps: f32, x: &[f32], scale: &[f32], bias: &[f32], y: &mut [f32], mean: &mut [f32], rstd: &mut [f32],
    ) {
        let dim = scale.len();
        let rows = x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)).zip(mean).zip(rstd);
        for (((x, y), mean), rstd) in rows {
            let m = lanes::sum1(x, |a, x| a + x) / dim as f32;
            let variance = lanes::sum1(x, |a, x| fma::<FMA>(x - m, x - m, a)) / dim as f32;
            let r = 1.0 / (variance + eps).sqrt();
            for (((y, &x), &s), &b) in y.iter_mut().zip(x).zip(scale).zip(bias) {
                *y = fma::<FMA>((x - m) * r, s, b);
            }
            (*mean, *rstd) = (m, r);
        }
    }
}

simd! {
    fn rms_rows<FMA>(isa, eps: f32, x: &[f32], scale: &[f32], y: &mut [f32], rstd: &mut [f32]) {
        let dim = scale.len();
        for ((x, y), rstd) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)).zip(rstd) {
            let squares = lanes::sum1(x, |a, x| fma::<FMA>(x, x, a)) / dim as f32;
            let r = 1.0 / (squares + eps).sqrt();
            for ((y, &x), &s) in y.iter_mut().zip(x).zip(scale) {
 *y = x * r * s;
}
            *rstd = r;
        }
    }
}

simd! {
    /// dx of some rows, and their sums for scale and bias.
    fn layer_grad_rows<FMA>(
        isa, x_dy: [&[f32]; 2], mean: &[f32], rstd: &[f32], scale: &[f32],
        dx: &mut [f32], dscale: &mut [f32], dbias: &mut [f32],
    ) {
        let dim = scale.len();
        dscale.fill(0.0);
        dbias.fill(0.0);
        let rows = x_dy[0].chunks_exact(dim).zip(x_dy[1].chunks_exact(dim)).zip(dx.chunks_exact_mut(dim));
        for (((x, dy), dx), (&m, &r)) in rows.zip(mean.iter().zip(rstd)) {
            // dx holds x̂ until the two means over the row are known.
            let columns = x.iter().zip(dy).zip(dx.iter_mut()).zip(dscale.iter_mut()).zip(dbias.iter_mut());
            for ((((&x, &dy), dx), dscale), dbias) in columns {
                *dx = (x - m) * r;
                *dscale = fma::<FMA>(dy, *dx, *dscale);
                *dbias += dy;
            }
            let plain = lanes::sum2(dy, scale, |a, dy, s| fma::<FMA>(dy, s, a)) / dim as f32;
            let weighted = lanes::sum3([dy, scale, dx], |a, [dy, s, h]| fma::<FMA>(dy * s, h, a)) / dim as f32;
            for ((dx, &dy), &s) in dx.iter_mut().zip(dy).zip(scale) {
                *dx = r * fma::<FMA>(-weighted, *dx, fma::<FMA>(dy, s, -plain));
            }
        }
    }
}

simd! {
    /// dx of some rows, and their sum for scale.
    fn rms_grad_rows<FMA>(
        isa, x: &[f32], dy: &[f32], rstd: &[f32], scale: &[f32], dx: &mut [f32], dscale: &mut [f32],
    ) {
        let dim = scale.len();
        dscale.fill(0.0);
        let rows = x.chunks_exact(dim).zip(dy.chunks_exact(dim)).zip(dx.chunks_exact_mut(dim));
        for (((x, dy), dx), &r) in rows.zip(rstd) {
            let columns = x.iter().zip(dy).zip(dx.iter_mut()).zip(dscale.iter_mut());
            for (((&x, &dy), dx), dscale) in columns {
                *dx = x * r;
                *dscale = fma::<FMA>(dy, *dx, *dscale);
            }
            let weighted = lanes::sum3([dy, scale, dx], |a, [dy, s, h]| fma::<FMA>(dy * s, h, a)) / dim as f32;
            for ((dx, &dy), &s) in dx.iter_mut().zip(dy).zip(scale) {
                *dx = r * fma::<FMA>(-weighted, *dx, dy * s);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    const SHAPES: [(usize, usize); 9] =
        [(1, 1), (1, 3), (3, 17), (5, 16), (200, 33), (1000, 64), (700, 100), (64, 768), (2, 5000)];

    /// y, mean, rstd, dx, dscale, dbias of one row each, in f64. With `center` off it is RMS norm.
    fn naive(x: &[f32], scale: &[f32], bias: &[f32], dy: &[f32], eps: f32, center: bool) -> [Vec<f64>; 6] {
        let dim = scale.len();
        let mut out: [Vec<f64>; 6] = Default::default();
        (out[4], out[5]) = (vec![0.0; dim], vec![0.0; dim]);
        for (x, dy) in x.chunks(dim).zip(dy.chunks(dim)) {
            let n = dim as f64;
            let m = if center { x.iter().map(|&v| v as f64).sum::<f64>() / n } else { 0.0 };
            let variance = x.iter().map(|&v| (v as f64 - m).powi(2)).sum::<f64>() / n;
            let r = 1.0 / (variance + eps as f64).sqrt();
            let hat: Vec<f64> = x.iter().map(|&v| (v as f64 - m) * r).collect();
            let g: Vec<f64> = dy.iter().zip(scale).map(|(&d, &s)| d as f64 * s as f64).collect();
            let plain = if center { g.iter().sum::<f64>() / n } else { 0.0 };
            let weighted = g.iter().zip(&hat).map(|(g, h)| g * h).sum::<f64>() / n;
            for i in 0..dim {
                out[0].push(hat[i] * scale[i] as f64 + bias[i] as f64);
                out[3].push(r * (g[i] - plain - hat[i] * weighted));
                out[4][i] += dy[i] as f64 * hat[i];
                out[5][i] += dy[i] as f64;
            }
            out[1].push(m);
            out[2].push(r);
        }
        out
    }

    #[test]
    fn layer_norm_and_its_gradient() {
        for (rows, dim) in SHAPES {
            let (x, dy) = (random(rows * dim, 1), random(rows * dim, 2));
            let (scale, bias) = (random(dim, 3), random(dim, 4));
            let want = naive(&x, &scale, &bias, &dy, 1e-2, true);
            check(&format!("layer norm {rows} x {dim}"), 1e-5, &want, |cpu| {
                let (mut y, mut mean, mut rstd) = (nans(x.len()), nans(rows), nans(rows));
                layer_norm(cpu, 1e-2, &x, (&scale, &bias), &mut y, (&mut mean, &mut rstd));
                let (mut dx, mut dscale, mut dbias) = (nans(x.len()), nans(dim), nans(dim));
                let mut scratch = nans(layer_norm_grad_scratch(rows, dim));
                let saved = LayerNormSaved { x: &x, mean: &mean, rstd: &rstd, scale: &scale };
                layer_norm_grad(cpu, saved, &dy, &mut dx, (&mut dscale, &mut dbias), &mut scratch);
                vec![y, mean, rstd, dx, dscale, dbias]
            });
        }
    }

    #[test]
    fn rms_norm_and_its_gradient() {
        for (rows, dim) in SHAPES {
            let (x, dy, scale) = (random(rows * dim, 1), random(rows * dim, 2), random(dim, 3));
            let [y, _, rstd, dx, dscale, _] = naive(&x, &scale, &vec![0.0; dim], &dy, 1e-2, false);
            check(&format!("rms norm {rows} x {dim}"), 1e-5, &[y, rstd, dx, dscale], |cpu| {
                let (mut y, mut rstd) = (nans(x.len()), nans(rows));
                rms_norm(cpu, 1e-2, &x, &scale, &mut y, &mut rstd);
                let (mut dx, mut dscale) = (nans(x.len()), nans(dim));
                let mut scratch = nans(rms_norm_grad_scratch(rows, dim));
                let saved = RmsNormSaved { x: &x, rstd: &rstd, scale: &scale };
                rms_norm_grad(cpu, saved, &dy, &mut dx, &mut dscale, &mut scratch);
                vec![y, rstd, dx, dscale]
            });
        }
    }
}
