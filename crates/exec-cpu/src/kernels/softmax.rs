//! Softmax and its logarithm over the last axis, and their gradients. A row is shifted by its maximum, so that nothing
//! overflows.

use super::lanes;
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::math::{self, LANES, sum_lanes};
use crate::pool::Parts;

/// Elements that are worth a thread of their own.
pub(super) const GRAIN: usize = 2048;

/// y ← softmax of each row of x, of `dim` elements; its logarithm with `log`.
pub(crate) fn softmax(cpu: &Cpu, log: bool, dim: usize, x: &[f32], y: &mut [f32]) {
    let (rows, y) = (x.len() / dim.max(1), Parts::new(y));
    cpu.pool.split(rows, GRAIN.div_ceil(dim.max(1)), |r| {
        let flat = r.start * dim..r.end * dim;
        // SAFETY: each row belongs to one thread.
        let y = unsafe { y.range(flat.clone()) };
        if log { log_rows(cpu.isa, dim, &x[flat], y) } else { rows_of(cpu.isa, dim, &x[flat], y) }
    });
}

/// dx ← the gradient of [`softmax`] from its output y.
pub(crate) fn softmax_grad(cpu: &Cpu, log: bool, dim: usize, y: &[f32], dy: &[f32], dx: &mut [f32]) {
    let (rows, dx) = (y.len() / dim.max(1), Parts::new(dx));
    cpu.pool.split(rows, GRAIN.div_ceil(dim.max(1)), |r| {
        let flat = r.start * dim..r.end * dim;
        // SAFETY: each row belongs to one thread.
        let dx = unsafe { dx.range(flat.clone()) };
        grad_rows(cpu.isa, log, dim, &y[flat.clone()], &dy[flat], dx);
    });
}

/// y ← e^(x − max), and the sum of it.
#[inline(always)]
fn exp_row<const FMA: bool>(x: &[f32], max: f32, y: &mut [f32]) -> f32 {
    let mut sum = [0.0; LANES];
    let ((x, x_tail), (y, y_tail)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for l in 0..LANES {
            y[l] = math::exp::<FMA>(x[l] - max);
            sum[l] += y[l];
        }
    }
    let tail = exp_tail::<FMA>(x_tail, max);
    y_tail.copy_from_slice(&tail[..y_tail.len()]);
    for l in 0..LANES {
        sum[l] += tail[l];
    }
    sum_lanes(lanes::settle(sum))
}

/// The sum of e^(x − max).
#[inline(always)]
pub(super) fn exp_sum<const FMA: bool>(x: &[f32], max: f32) -> f32 {
    let mut sum = [0.0; LANES];
    let (x, x_tail) = x.as_chunks::<LANES>();
    for x in x {
        for l in 0..LANES {
            sum[l] += math::exp::<FMA>(x[l] - max);
        }
    }
    let tail = exp_tail::<FMA>(x_tail, max);
    for l in 0..LANES {
        sum[l] += tail[l];
    }
    sum_lanes(lanes::settle(sum))
}

/// e^(x − max) for less than a vector, as a whole one with zeros behind.
#[inline(always)]
fn exp_tail<const FMA: bool>(x: &[f32], max: f32) -> [f32; LANES] {
    let mut tail = [f32::NEG_INFINITY; LANES];
    tail[..x.len()].copy_from_slice(x);
    for (l, t) in tail.iter_mut().enumerate() {
        // Behind the end also where max is infinite and the difference is not a number.
        *t = if l < x.len() { math::exp::<FMA>(*t - max) } else { 0.0 };
    }
    tail
}

simd! {
    fn rows_of<FMA>(isa, dim: usize, x: &[f32], y: &mut [f32]) {
        for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
            let scale = 1.0 / exp_row::<FMA>(x, lanes::max_number(x), y);
            for y in y {
 *y *= scale;
}
        }
    }
}

simd! {
    fn log_rows<FMA>(isa, dim: usize, x: &[f32], y: &mut [f32]) {
        for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
            let max = lanes::max_number(x);
            let log = math::log::<FMA>(exp_sum::<FMA>(x, max));
            for (y, &x) in y.iter_mut().zip(x) {
 *y = (x - max) - log;
}
        }
    }
}

simd! {
    fn grad_rows<FMA>(isa, log: bool, dim: usize, y: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((y, dy), dx) in y.chunks_exact(dim).zip(dy.chunks_exact(dim)).zip(dx.chunks_exact_mut(dim)) {
            if log {
                let sum = lanes::sum1(dy, |a, dy| a + dy);
                for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                    *dx = fma::<FMA>(-math::exp::<FMA>(y), sum, dy);
                }
            } else {
                let sum = lanes::sum2(y, dy, |a, y, dy| fma::<FMA>(y, dy, a));
                for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
 *dx = y * (dy - sum);
}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    #[test]
    fn softmax_and_its_gradient() {
        for (rows, dim) in [(1, 1), (3, 2), (5, 10), (200, 17), (40, 33), (7, 64), (9, 1000), (2, 5003)] {
            let mut x = random(rows * dim, 1);
            x.iter_mut().for_each(|v| *v *= 10.0);
            let dy = random(rows * dim, 2);
            for log in [false, true] {
                let (mut y, mut dx) = (Vec::new(), Vec::new());
                for (x, dy) in x.chunks(dim).zip(dy.chunks(dim)) {
                    let sum: f64 = x.iter().map(|&v| (v as f64).exp()).sum();
                    let p: Vec<f64> = x.iter().map(|&v| (v as f64).exp() / sum).collect();
                    let all: f64 = dy.iter().map(|&d| d as f64).sum();
                    let dot: f64 = p.iter().zip(dy).map(|(p, &d)| p * d as f64).sum();
                    for (p, &d) in p.iter().zip(dy) {
                        y.push(if log { p.ln() } else { *p });
                        dx.push(if log { d as f64 - p * all } else { p * (d as f64 - dot) });
                    }
                }
                check(&format!("softmax {rows} x {dim}, log {log}"), 3e-6, &[y, dx], |cpu| {
                    let (mut y, mut dx) = (nans(x.len()), nans(x.len()));
                    softmax(cpu, log, dim, &x, &mut y);
                    softmax_grad(cpu, log, dim, &y, &dy, &mut dx);
                    vec![y, dx]
                });
            }
        }
    }

    #[test]
    fn large_logits_and_masked_ones() {
        let x = [1000.0, 1000.0, f32::NEG_INFINITY, -1000.0];
        check("softmax", 0.0, &[vec![0.5, 0.5, 0.0, 0.0]], |cpu| {
            let mut y = nans(4);
            softmax(cpu, false, 4, &x, &mut y);
            vec![y]
        });
    }
}
