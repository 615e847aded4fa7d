//! Statistics of the channels of a matrix [rows, channels]: mean and variance for batch norm, the sums of its gradient,
//! and the running statistics. Applying them is elementwise and stands elsewhere.
//!
//! Mean and squared deviations are taken in one pass over memory: a block of rows is summed, looked at again while it is
//! in cache, and joined with the blocks before by Chan's formula.

use super::columns::{self, Accumulator, Split, WIDEST, Walk};
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use std::ops::Range;

/// Columns a thread joins at least.
const JOIN_GRAIN: usize = 256;

/// Elements of scratch that [`batch_stats`] needs.
pub(crate) fn batch_stats_scratch(rows: usize, channels: usize) -> usize {
    column_stats_scratch(1, rows, channels)
}

/// (mean, var) ← mean and biased variance of each channel of x, [rows, channels].
pub(crate) fn batch_stats(
    cpu: &Cpu,
    channels: usize,
    x: &[f32],
    mean: &mut [f32],
    var: &mut [f32],
    scratch: &mut [f32],
) {
    column_stats(cpu, 1, channels, x, scratch);
    join_batch_stats(cpu, x.len() / channels.max(1), mean, var, scratch);
}

/// The last part of [`batch_stats`], where scratch holds the statistics of the chunks of rows.
pub(crate) fn join_batch_stats(cpu: &Cpu, rows: usize, mean: &mut [f32], var: &mut [f32], scratch: &[f32]) {
    let channels = mean.len();
    let (parts, split) = (StatParts::new(scratch, 1, rows, channels), Split::new(1, rows, channels));
    let (mean, var) = (Parts::new(mean), Parts::new(var));
    cpu.pool.split(channels, JOIN_GRAIN, |cols| {
        // SAFETY: split gives disjoint ranges.
        let (mean, var) = unsafe { (mean.range(cols.clone()), var.range(cols.clone())) };
        join_stats(cpu.isa, &split, &parts, 0, cols, mean, var);
        var.iter_mut().for_each(|v| *v /= rows as f32);
    });
}

/// Elements of scratch that [`batch_grad_reduce`] needs.
pub(crate) fn batch_grad_reduce_scratch(rows: usize, channels: usize) -> usize {
    grad_sums_scratch(1, rows, channels)
}

/// The statistics that x was normalised with, a channel each.
#[derive(Clone, Copy)]
pub(crate) struct Stats<'a> {
    pub(crate) mean: &'a [f32],
    pub(crate) var: &'a [f32],
    pub(crate) eps: f32,
}

/// dscale ← Σ dy·x̂ and dbias ← Σ dy over the rows, where x̂ = (x − mean)/√(var + ε).
pub(crate) fn batch_grad_reduce(
    cpu: &Cpu,
    stats: Stats,
    x: &[f32],
    dy: &[f32],
    dscale: &mut [f32],
    dbias: &mut [f32],
    scratch: &mut [f32],
) {
    let channels = stats.mean.len();
    grad_sums(cpu, 1, channels, [x, dy], GroupMean { mean: stats.mean, group: 1 }, scratch);
    join_batch_grad(cpu, stats, x.len() / channels.max(1), dscale, dbias, scratch);
}

/// The last part of [`batch_grad_reduce`], where scratch holds the sums of the chunks of rows.
pub(crate) fn join_batch_grad(
    cpu: &Cpu,
    stats: Stats,
    rows: usize,
    dscale: &mut [f32],
    dbias: &mut [f32],
    scratch: &[f32],
) {
    let channels = stats.mean.len();
    let parts = StatParts::new(scratch, 1, rows, channels);
    let (dscale, dbias) = (Parts::new(dscale), Parts::new(dbias));
    cpu.pool.split(channels, JOIN_GRAIN, |cols| {
        // SAFETY: split gives disjoint ranges.
        let (dscale, dbias) = unsafe { (dscale.range(cols.clone()), dbias.range(cols.clone())) };
        sum_parts(parts.first, parts.chunks, channels, cols.clone(), dbias);
        sum_parts(parts.second, parts.chunks, channels, cols.clone(), dscale);
        for (d, c) in dscale.iter_mut().zip(cols) {
            *d /= (stats.var[c] + stats.eps).sqrt();
        }
    });
}

/// running ← momentum·running + (1 − momentum)·batch, in place, for mean and variance.
pub(crate) fn batch_update(cpu: &Cpu, momentum: f32, running: [&mut [f32]; 2], batch: [&[f32]; 2]) {
    for (running, batch) in running.into_iter().zip(batch) {
        let n = running.len();
        let running = Parts::new(running);
        cpu.pool.split(n, 8192, |r| {
            // SAFETY: split gives disjoint ranges.
            let running = unsafe { running.range(r.clone()) };
            running.iter_mut().zip(&batch[r]).for_each(|(r, &b)| *r = momentum * *r + (1.0 - momentum) * b);
        });
    }
}

/// Two values a column for each (sample, chunk), as they stand in scratch.
#[derive(Clone, Copy)]
pub(super) struct StatParts<'a> {
    pub(crate) first: &'a [f32],
    pub(crate) second: &'a [f32],
    pub(crate) chunks: usize,
}

impl<'a> StatParts<'a> {
    pub(crate) fn new(scratch: &'a [f32], samples: usize, rows: usize, cols: usize) -> StatParts<'a> {
        let chunks = Split::new(samples, rows, cols).chunks.count;
        let (first, rest) = scratch.split_at(samples * chunks * cols);
        StatParts { first, second: &rest[..first.len()], chunks }
    }
}

pub(super) fn column_stats_scratch(samples: usize, rows: usize, cols: usize) -> usize {
    2 * samples * Split::new(samples, rows, cols).chunks.count * cols
}

/// Mean and squared deviations of each column of each chunk of each sample, as [`StatParts`].
pub(super) fn column_stats(cpu: &Cpu, samples: usize, cols: usize, x: &[f32], scratch: &mut [f32]) {
    let rows = x.len() / (samples * cols).max(1);
    let split = Split::new(samples, rows, cols);
    for_each_unit(cpu, &split, samples, scratch, |units, mean, m2| {
        stat_units(cpu.isa, &split, rows, x, units, mean, m2);
    });
}

pub(super) fn grad_sums_scratch(samples: usize, rows: usize, cols: usize) -> usize {
    column_stats_scratch(samples, rows, cols)
}

/// The mean of a column: one value a sample and group of columns. Groups of one column of one sample are batch norm's.
#[derive(Clone, Copy)]
pub(super) struct GroupMean<'a> {
    pub(crate) mean: &'a [f32],
    /// Columns of a group.
    pub(crate) group: usize,
}

/// Σ dy and Σ dy·(x − mean) of each column of each chunk of each sample, as [`StatParts`].
pub(super) fn grad_sums(
    cpu: &Cpu,
    samples: usize,
    cols: usize,
    x_dy: [&[f32]; 2],
    mean: GroupMean,
    scratch: &mut [f32],
) {
    let rows = x_dy[0].len() / (samples * cols).max(1);
    let split = Split::new(samples, rows, cols);
    for_each_unit(cpu, &split, samples, scratch, |units, plain, weighted| {
        grad_units(cpu.isa, &split, rows, x_dy, mean, units, plain, weighted);
    });
}

/// Runs `body` on all units, with the places of their partial results in the two halves of scratch.
fn for_each_unit(
    cpu: &Cpu,
    split: &Split,
    samples: usize,
    scratch: &mut [f32],
    body: impl Fn(Range<usize>, &mut [f32], &mut [f32]) + Sync,
) {
    let (units, len) = (split.units(samples), samples * split.chunks.count * split.cols);
    let end = |u: usize| if u == units { len } else { split.start(u) };
    let (first, second) = scratch[..2 * len].split_at_mut(len);
    let (first, second) = (Parts::new(first), Parts::new(second));
    cpu.pool.split(units, 1, |range| {
        let place = end(range.start)..end(range.end);
        // SAFETY: units in order write neighbouring ranges, and the ranges of units are disjoint.
        let (first, second) = unsafe { (first.range(place.clone()), second.range(place)) };
        body(range, first, second);
    });
}

/// Blocks of rows of a unit's chunk, as (offset of the first element, rows).
struct Blocks {
    rows: Range<usize>,
    each: usize,
    base: usize,
    cols: usize,
}

impl Blocks {
    #[inline(always)]
    fn new(split: &Split, rows: usize, u: usize) -> (Walk, Blocks) {
        let (sample, chunk, col) = split.unit(u);
        let walk = Walk { stride: split.cols, width: split.width(col) };
        let base = sample * rows * split.cols + col;
        (walk, Blocks { rows: split.chunks.range(chunk), each: walk.block_rows(), base, cols: split.cols })
    }
}

impl Iterator for Blocks {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let rows = self.each.min(self.rows.len());
        let at = self.base + self.rows.start * self.cols;
        self.rows.start += rows;
        (rows > 0).then_some((at, rows))
    }
}

simd! {
    /// Statistics of units of work; their results stand one after the other in `mean` and `m2`.
    fn stat_units<FMA>(
        isa, split: &Split, rows: usize, x: &[f32], units: Range<usize>, mean: &mut [f32], m2: &mut [f32],
    ) {
        let (mut center, mut acc): (Accumulator, Accumulator) = ([0.0; WIDEST], [0.0; WIDEST]);
        let mut place = 0;
        for u in units {
            let width = split.width(split.unit(u).2);
            let (mean, m2) = (&mut mean[place..place + width], &mut m2[place..place + width]);
            mean.fill(0.0);
            m2.fill(0.0);
            let mut seen = 0;
            let (walk, blocks) = Blocks::new(split, rows, u);
            for (at, block) in blocks {
                stat_block::<FMA>(walk, [seen, block], &x[at..], [&mut center, &mut acc], mean, m2);
                seen += block;
            }
            place += width;
        }
    }
}

/// Joins the statistics of a block of `n[1]` rows to those of the `n[0]` rows before it.
#[inline(always)]
pub(super) fn stat_block<const FMA: bool>(
    walk: Walk,
    n: [usize; 2],
    x: &[f32],
    [center, acc]: [&mut Accumulator; 2],
    mean: &mut [f32],
    m2: &mut [f32],
) {
    let width = walk.width;
    // Relative to the block's first row, so that a mean far from zero costs no digits.
    center[..width].copy_from_slice(&x[..width]);
    let sum = (0.0, |a: f32, x: f32, c: f32| a + (x - c), |a: f32, b: f32| a + b);
    columns::fold1(walk, n[1], x, center, acc, sum);
    let share = 1.0 / n[1] as f32;
    for (c, &sum) in center[..width].iter_mut().zip(acc.iter()) {
        *c = fma::<FMA>(sum, share, *c);
    }
    let deviation = |a: f32, x: f32, c: f32| fma::<FMA>(x - c, x - c, a);
    columns::fold1(walk, n[1], x, center, acc, (0.0, deviation, |a: f32, b: f32| a + b));
    chan::<FMA>(n, mean, m2, &center[..width], &acc[..width]);
}

/// Joins mean and squared deviations of `n[1]` rows to those of `n[0]` rows.
#[inline(always)]
fn chan<const FMA: bool>(n: [usize; 2], mean: &mut [f32], m2: &mut [f32], other_mean: &[f32], other_m2: &[f32]) {
    let total = (n[0] + n[1]) as f64;
    let share = (n[1] as f64 / total) as f32;
    let cross = (n[0] as f64 * n[1] as f64 / total) as f32;
    for (((mean, m2), &other), &other_m2) in mean.iter_mut().zip(m2).zip(other_mean).zip(other_m2) {
        let delta = other - *mean;
        *m2 = fma::<FMA>(delta * delta, cross, *m2 + other_m2);
        *mean = fma::<FMA>(delta, share, *mean);
    }
}

simd! {
    /// Joins the chunks of one sample, in order, for some columns: mean and the sum of squared deviations.
    pub(super) fn join_stats<FMA>(
        isa, split: &Split, parts: &StatParts, sample: usize, cols: Range<usize>, mean: &mut [f32], m2: &mut [f32],
    ) {
        mean.fill(0.0);
        m2.fill(0.0);
        let mut seen = 0;
        for chunk in 0..parts.chunks {
            let at = (sample * parts.chunks + chunk) * split.cols;
            let place = at + cols.start..at + cols.end;
            let rows = split.chunks.range(chunk).len();
            chan::<FMA>([seen, rows], mean, m2, &parts.first[place.clone()], &parts.second[place]);
            seen += rows;
        }
    }
}

/// y ← the sum of `n` vectors of `stride` elements, in order, for some columns.
pub(super) fn sum_parts(parts: &[f32], n: usize, stride: usize, cols: Range<usize>, y: &mut [f32]) {
    y.fill(0.0);
    for i in 0..n {
        let part = &parts[i * stride + cols.start..i * stride + cols.end];
        y.iter_mut().zip(part).for_each(|(y, &p)| *y += p);
    }
}

simd! {
    /// Sums of the gradient for units of work; their results stand one after the other in `plain` and `weighted`.
    fn grad_units<FMA>(
        isa, split: &Split, rows: usize, x_dy: [&[f32]; 2], mean: GroupMean, units: Range<usize>,
        plain: &mut [f32], weighted: &mut [f32],
    ) {
        let mut center: Accumulator = [0.0; WIDEST];
        let (mut sum, mut product): (Accumulator, Accumulator) = ([0.0; WIDEST], [0.0; WIDEST]);
        let mut place = 0;
        for u in units {
            let (sample, _, col) = split.unit(u);
            let width = split.width(col);
            let first = sample * (split.cols / mean.group);
            for (i, c) in center[..width].iter_mut().enumerate() {
                *c = mean.mean[first + (col + i) / mean.group];
            }
            let (plain, weighted) = (&mut plain[place..place + width], &mut weighted[place..place + width]);
            plain.fill(0.0);
            weighted.fill(0.0);
            let (walk, blocks) = Blocks::new(split, rows, u);
            for (at, block) in blocks {
                let x_dy = [&x_dy[0][at..], &x_dy[1][at..]];
                grad_block::<FMA>(walk, block, x_dy, [&mut center, &mut sum, &mut product], plain, weighted);
            }
            place += width;
        }
    }
}

/// Adds the sums of a block of rows.
#[inline(always)]
pub(super) fn grad_block<const FMA: bool>(
    walk: Walk,
    rows: usize,
    x_dy: [&[f32]; 2],
    [center, sum, product]: [&mut Accumulator; 3],
    plain: &mut [f32],
    weighted: &mut [f32],
) {
    columns::fold_grad::<FMA>(walk, rows, x_dy, center, [sum, product]);
    for ((p, w), (&s, &t)) in plain.iter_mut().zip(weighted.iter_mut()).zip(sum.iter().zip(product.iter())) {
        *p += s;
        *w += t;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::kernels::check::{check, cpu, nans, random};

    const SHAPES: [(usize, usize); 12] = [
        (1, 1),
        (1, 17),
        (2, 3),
        (7, 16),
        (1000, 3),
        (40_000, 3),
        (6000, 17),
        (3001, 33),
        (5000, 64),
        (900, 130),
        (300, 700),
        (49, 2048),
    ];

    fn naive_stats(x: &[f32], channels: usize) -> (Vec<f64>, Vec<f64>) {
        let rows = x.len() / channels;
        let column = |c: usize| x.iter().skip(c).step_by(channels).map(|&v| v as f64);
        let mean: Vec<f64> = (0..channels).map(|c| column(c).sum::<f64>() / rows as f64).collect();
        let var = (0..channels).map(|c| column(c).map(|v| (v - mean[c]).powi(2)).sum::<f64>() / rows as f64);
        (mean.clone(), var.collect())
    }

    #[test]
    fn mean_and_variance_also_far_from_zero() {
        for (rows, channels) in SHAPES {
            for (shift, tolerance) in [(0.0, 1e-6), (100.0, 2e-6)] {
                let mut x = random(rows * channels, 3);
                x.iter_mut().for_each(|v| *v += shift);
                let (mean, var) = naive_stats(&x, channels);
                check(&format!("stats {rows} x {channels} + {shift}"), tolerance, &[mean, var], |cpu| {
                    let (mut mean, mut var) = (nans(channels), nans(channels));
                    let mut scratch = nans(batch_stats_scratch(rows, channels));
                    batch_stats(cpu, channels, &x, &mut mean, &mut var, &mut scratch);
                    vec![mean, var]
                });
            }
        }
    }

    #[test]
    fn sums_of_the_gradient() {
        for (rows, channels) in SHAPES {
            let (x, dy) = (random(rows * channels, 4), random(rows * channels, 5));
            let (mean, var) =
                (random(channels, 6), random(channels, 7).iter().map(|v| v * v + 0.2).collect::<Vec<_>>());
            let (mut dscale, mut dbias) = (vec![0.0; channels], vec![0.0; channels]);
            for (i, (&x, &dy)) in x.iter().zip(&dy).enumerate() {
                let c = i % channels;
                let xhat = (x as f64 - mean[c] as f64) / (var[c] as f64 + 1e-3f32 as f64).sqrt();
                dscale[c] += dy as f64 * xhat;
                dbias[c] += dy as f64;
            }
            let tolerance = 2e-6 + 5e-7 * (rows as f64).sqrt();
            check(&format!("grad {rows} x {channels}"), tolerance, &[dscale, dbias], |cpu| {
                let (mut dscale, mut dbias) = (nans(channels), nans(channels));
                let mut scratch = nans(batch_grad_reduce_scratch(rows, channels));
                let stats = Stats { mean: &mean, var: &var, eps: 1e-3 };
                batch_grad_reduce(cpu, stats, &x, &dy, &mut dscale, &mut dbias, &mut scratch);
                vec![dscale, dbias]
            });
        }
    }

    #[test]
    fn running_statistics_move_towards_the_batch() {
        let (mut mean, mut var) = ([0.0, 4.0], [1.0, 2.0]);
        batch_update(&cpu(Isa::best(), 2), 0.75, [&mut mean, &mut var], [&[8.0, 4.0], &[5.0, 2.0]]);
        assert_eq!((mean, var), ([2.0, 4.0], [2.0, 2.0]));
    }
}
