//! Group norm over images or sequences [samples, places, channels]: statistics of each sample and group of neighbouring
//! channels. Forward and gradient are sums down the columns of each sample, joined to groups, and one pass that applies
//! them.

use super::batch_norm::{GroupMean, StatParts, column_stats, column_stats_scratch, grad_sums, grad_sums_scratch};
use super::columns::Split;
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use std::ops::Range;

/// Elements that are worth a thread of their own.
const GRAIN: usize = 4096;

/// The extents of [samples, places, channels], and the groups that divide the channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupShape {
    pub(crate) samples: usize,
    pub(crate) places: usize,
    pub(crate) channels: usize,
    pub(crate) groups: usize,
}

impl GroupShape {
    /// Channels of a group.
    fn width(&self) -> usize {
        self.channels / self.groups
    }

    /// Elements of a group of one sample.
    fn count(&self) -> f64 {
        (self.places * self.width()) as f64
    }

    /// The chunks that the columns of a sample are summed in.
    fn split(&self) -> Split {
        Split::new(self.samples, self.places, self.channels)
    }
}

/// Elements of scratch that [`group_norm`] needs.
pub(crate) fn group_norm_scratch(shape: &GroupShape) -> usize {
    column_stats_scratch(shape.samples, shape.places, shape.channels) + 2 * shape.samples * shape.channels
}

/// y ← (x − mean)·rstd·scale + bias, with mean and 1/√(variance + ε) of each sample and group.
pub(crate) fn group_norm(
    cpu: &Cpu,
    shape: &GroupShape,
    eps: f32,
    x: &[f32],
    (scale, bias): (&[f32], &[f32]),
    (y, mean, rstd): (&mut [f32], &mut [f32], &mut [f32]),
    scratch: &mut [f32],
) {
    let (sums, coefficients) = scratch.split_at_mut(column_stats_scratch(shape.samples, shape.places, shape.channels));
    column_stats(cpu, shape.samples, shape.channels, x, sums);
    let parts = StatParts::new(sums, shape.samples, shape.places, shape.channels);
    for (i, (mean, rstd)) in mean.iter_mut().zip(rstd.iter_mut()).enumerate() {
        (*mean, *rstd) = group_stats(shape, &parts, eps, i);
    }
    let len = shape.samples * shape.channels;
    let (centers, factors) = coefficients[..2 * len].split_at_mut(len);
    for i in 0..len {
        let (group, channel) = (i / shape.width(), i % shape.channels);
        centers[i] = mean[group];
        factors[i] = rstd[group] * scale[channel];
    }
    for_rows(cpu, shape, y, |sample, flat, y| {
        let channels = sample * shape.channels..(sample + 1) * shape.channels;
        apply_rows(cpu.isa, &x[flat], &centers[channels.clone()], &factors[channels], bias, y);
    });
}

/// Mean and 1/√(variance + ε) of group `i`, counted over all samples, from the statistics of its columns.
fn group_stats(shape: &GroupShape, parts: &StatParts, eps: f32, i: usize) -> (f32, f32) {
    let split = shape.split();
    let (sample, first) = (i / shape.groups, i % shape.groups * shape.width());
    let columns = |chunk: usize| {
        let at = (sample * parts.chunks + chunk) * shape.channels + first;
        let (means, m2s) = (&parts.first[at..at + shape.width()], &parts.second[at..at + shape.width()]);
        let rows = split.chunks.range(chunk).len() as f64;
        means.iter().zip(m2s).map(move |(&mean, &m2)| (rows, mean as f64, m2 as f64))
    };
    let sum: f64 = (0..parts.chunks).flat_map(columns).map(|(rows, mean, _)| rows * mean).sum();
    let mean = sum / shape.count();
    let m2: f64 = (0..parts.chunks).flat_map(columns).map(|(rows, m, m2)| m2 + rows * (m - mean) * (m - mean)).sum();
    (mean as f32, (1.0 / (m2 / shape.count() + eps as f64).sqrt()) as f32)
}

/// What the gradient reads.
#[derive(Clone, Copy)]
pub(crate) struct GroupNormSaved<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) mean: &'a [f32],
    pub(crate) rstd: &'a [f32],
    pub(crate) scale: &'a [f32],
}

/// Elements of scratch that [`group_norm_grad`] needs.
pub(crate) fn group_norm_grad_scratch(shape: &GroupShape) -> usize {
    grad_sums_scratch(shape.samples, shape.places, shape.channels) + 4 * shape.samples * shape.channels
}

/// The gradients of group norm by x, scale and bias.
pub(crate) fn group_norm_grad(
    cpu: &Cpu,
    shape: &GroupShape,
    saved: GroupNormSaved,
    dy: &[f32],
    dx: &mut [f32],
    (dscale, dbias): (&mut [f32], &mut [f32]),
    scratch: &mut [f32],
) {
    let (sums, coefficients) = scratch.split_at_mut(grad_sums_scratch(shape.samples, shape.places, shape.channels));
    let mean = GroupMean { mean: saved.mean, group: shape.width() };
    grad_sums(cpu, shape.samples, shape.channels, [saved.x, dy], mean, sums);
    let parts = StatParts::new(sums, shape.samples, shape.places, shape.channels);
    channel_grads(shape, &saved, &parts, dscale, dbias);
    let len = shape.samples * shape.channels;
    input_coefficients(shape, &saved, &parts, &mut coefficients[..4 * len]);
    let coefficients = &coefficients[..4 * len];
    for_rows(cpu, shape, dx, |sample, flat, dx| {
        let of = |i: usize| &coefficients[i * len + sample * shape.channels..][..shape.channels];
        grad_rows(cpu.isa, [&saved.x[flat.clone()], &dy[flat]], [of(0), of(1), of(2), of(3)], dx);
    });
}

/// Σ dy and Σ dy·(x − mean) of a channel of a sample.
fn channel_sums(shape: &GroupShape, parts: &StatParts, sample: usize, channel: usize) -> (f64, f64) {
    let at = |chunk: usize| (sample * parts.chunks + chunk) * shape.channels + channel;
    let plain = (0..parts.chunks).map(|chunk| parts.first[at(chunk)] as f64).sum();
    let weighted = (0..parts.chunks).map(|chunk| parts.second[at(chunk)] as f64).sum();
    (plain, weighted)
}

/// dscale ← Σ dy·x̂, dbias ← Σ dy.
fn channel_grads(shape: &GroupShape, saved: &GroupNormSaved, parts: &StatParts, dscale: &mut [f32], dbias: &mut [f32]) {
    for (channel, (dscale, dbias)) in dscale.iter_mut().zip(dbias).enumerate() {
        let (mut scale, mut bias) = (0.0, 0.0);
        for sample in 0..shape.samples {
            let (plain, weighted) = channel_sums(shape, parts, sample, channel);
            bias += plain;
            scale += weighted * saved.rstd[sample * shape.groups + channel / shape.width()] as f64;
        }
        (*dscale, *dbias) = (scale as f32, bias as f32);
    }
}

/// For each sample and channel the p, m, q and t of dx = p·dy − q·(x − m) − t.
fn input_coefficients(shape: &GroupShape, saved: &GroupNormSaved, parts: &StatParts, out: &mut [f32]) {
    let len = shape.samples * shape.channels;
    for group in 0..shape.samples * shape.groups {
        let (sample, first) = (group / shape.groups, group % shape.groups * shape.width());
        let (mut plain, mut weighted) = (0.0, 0.0);
        for channel in first..first + shape.width() {
            let (a, b) = channel_sums(shape, parts, sample, channel);
            plain += a * saved.scale[channel] as f64;
            weighted += b * saved.scale[channel] as f64;
        }
        let r = saved.rstd[group] as f64;
        let q = r * r * r * weighted / shape.count();
        let t = r * plain / shape.count();
        for channel in first..first + shape.width() {
            let at = sample * shape.channels + channel;
            out[at] = (r * saved.scale[channel] as f64) as f32;
            out[len + at] = saved.mean[group];
            out[2 * len + at] = q as f32;
            out[3 * len + at] = t as f32;
        }
    }
}

/// Runs `body(sample, elements, their outputs)` over stretches of rows that lie in one sample.
fn for_rows(cpu: &Cpu, shape: &GroupShape, y: &mut [f32], body: impl Fn(usize, Range<usize>, &mut [f32]) + Sync) {
    let y = Parts::new(y);
    cpu.pool.split(shape.samples * shape.places, GRAIN.div_ceil(shape.channels), |rows| {
        let mut row = rows.start;
        while row < rows.end {
            let sample = row / shape.places;
            let end = rows.end.min((sample + 1) * shape.places);
            let flat = row * shape.channels..end * shape.channels;
            // SAFETY: each row belongs to one thread.
            body(sample, flat.clone(), unsafe { y.range(flat) });
            row = end;
        }
    });
}

simd! {
    fn apply_rows<FMA>(isa, x: &[f32], center: &[f32], factor: &[f32], bias: &[f32], y: &mut [f32]) {
        for (x, y) in x.chunks_exact(bias.len()).zip(y.chunks_exact_mut(bias.len())) {
            for ((((y, &x), &m), &f), &b) in y.iter_mut().zip(x).zip(center).zip(factor).zip(bias) {
                *y = fma::<FMA>(x - m, f, b);
            }
        }
    }
}

simd! {
    fn grad_rows<FMA>(isa, x_dy: [&[f32]; 2], coefficients: [&[f32]; 4], dx: &mut [f32]) {
        let ([x, dy], [p, m, q, t]) = (x_dy, coefficients);
        let rows = x.chunks_exact(p.len()).zip(dy.chunks_exact(p.len())).zip(dx.chunks_exact_mut(p.len()));
        for ((x, dy), dx) in rows {
            let columns = dx.iter_mut().zip(x).zip(dy).zip(p.iter().zip(m)).zip(q.iter().zip(t));
            for ((((dx, &x), &dy), (&p, &m)), (&q, &t)) in columns {
                *dx = fma::<FMA>(dy, p, -fma::<FMA>(x - m, q, t));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    /// y, mean, rstd, dx, dscale and dbias in f64.
    fn naive(shape: &GroupShape, x: &[f32], scale: &[f32], bias: &[f32], dy: &[f32], eps: f32) -> [Vec<f64>; 6] {
        let GroupShape { samples, channels, groups, .. } = *shape;
        let of = |i: usize| i / (shape.places * channels) * groups + i % channels / shape.width();
        let fold = |value: &dyn Fn(usize) -> f64| {
            let mut sums = vec![0.0; samples * groups];
            (0..x.len()).for_each(|i| sums[of(i)] += value(i) / shape.count());
            sums
        };
        let mean = fold(&|i| x[i] as f64);
        let var = fold(&|i| (x[i] as f64 - mean[of(i)]).powi(2));
        let rstd: Vec<f64> = var.iter().map(|v| 1.0 / (v + eps as f64).sqrt()).collect();
        let hat = |i: usize| (x[i] as f64 - mean[of(i)]) * rstd[of(i)];
        let g = |i: usize| dy[i] as f64 * scale[i % channels] as f64;
        let (plain, weighted) = (fold(&g), fold(&|i| g(i) * hat(i)));
        let (mut dscale, mut dbias) = (vec![0.0; channels], vec![0.0; channels]);
        for i in 0..x.len() {
            dscale[i % channels] += dy[i] as f64 * hat(i);
            dbias[i % channels] += dy[i] as f64;
        }
        let y = (0..x.len()).map(|i| hat(i) * scale[i % channels] as f64 + bias[i % channels] as f64).collect();
        let dx = (0..x.len()).map(|i| rstd[of(i)] * (g(i) - plain[of(i)] - hat(i) * weighted[of(i)])).collect();
        [y, mean, rstd, dx, dscale, dbias]
    }

    #[test]
    fn group_norm_and_its_gradient() {
        let sizes = [[1, 1, 1, 1], [2, 20, 8, 4], [3, 7, 17, 17], [2, 49, 33, 3], [1, 5000, 24, 1], [5, 100, 96, 32]];
        for [samples, places, channels, groups] in sizes {
            let shape = GroupShape { samples, places, channels, groups };
            let n = samples * places * channels;
            let x: Vec<f32> = random(n, 1).iter().map(|v| v + 3.0).collect();
            let (dy, scale, bias) = (random(n, 2), random(channels, 3), random(channels, 4));
            let want = naive(&shape, &x, &scale, &bias, &dy, 1e-2);
            check(&format!("{shape:?}"), 2e-5, &want, |cpu| {
                let (mut y, mut mean, mut rstd) = (nans(n), nans(samples * groups), nans(samples * groups));
                let mut scratch = nans(group_norm_scratch(&shape));
                let out = (&mut y[..], &mut mean[..], &mut rstd[..]);
                group_norm(cpu, &shape, 1e-2, &x, (&scale, &bias), out, &mut scratch);
                let (mut dx, mut dscale, mut dbias) = (nans(n), nans(channels), nans(channels));
                let mut scratch = nans(group_norm_grad_scratch(&shape));
                let saved = GroupNormSaved { x: &x, mean: &mean, rstd: &rstd, scale: &scale };
                group_norm_grad(cpu, &shape, saved, &dy, &mut dx, (&mut dscale, &mut dbias), &mut scratch);
                vec![y, mean, rstd, dx, dscale, dbias]
            });
        }
    }
}
