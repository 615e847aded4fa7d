//! Sums and maxima along one contiguous row, in 64 lanes joined in a fixed order. The helpers are inlined into `simd!`
//! bodies; they never dispatch by themselves.

use crate::math::{LANES, sum_lanes};

/// Four vectors of lanes, so that four additions are under way at once.
const WIDE: usize = 4 * LANES;

/// The sum of `step` over a row: `step(sum so far, x)`.
#[inline(always)]
pub fn sum1(x: &[f32], step: impl Fn(f32, f32) -> f32) -> f32 {
    sum2(x, x, |acc, x, _| step(acc, x))
}

/// The sum of `step` over two rows of equal length: `step(sum so far, x, y)`.
#[inline(always)]
pub fn sum2(x: &[f32], y: &[f32], step: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let y = &y[..x.len()];
    let mut acc = [[0.0; LANES]; 4];
    let (x_wide, x_rest) = x.as_chunks::<WIDE>();
    let (y_wide, y_rest) = y.as_chunks::<WIDE>();
    for (x, y) in x_wide.iter().zip(y_wide) {
        for (v, acc) in acc.iter_mut().enumerate() {
            for (l, acc) in acc.iter_mut().enumerate() {
                *acc = step(*acc, x[v * LANES + l], y[v * LANES + l]);
            }
        }
    }
    let (x_lanes, x_tail) = x_rest.as_chunks::<LANES>();
    let (y_lanes, y_tail) = y_rest.as_chunks::<LANES>();
    for (x, y) in x_lanes.iter().zip(y_lanes) {
        for l in 0..LANES {
            acc[0][l] = step(acc[0][l], x[l], y[l]);
        }
    }
    for (l, (x, y)) in x_tail.iter().zip(y_tail).enumerate() {
        acc[0][l] = step(acc[0][l], *x, *y);
    }
    let mut sum = [0.0; LANES];
    for l in 0..LANES {
        sum[l] = (acc[0][l] + acc[1][l]) + (acc[2][l] + acc[3][l]);
    }
    sum_lanes(sum)
}

/// The larger one; not a number if one of them is not.
#[inline(always)]
pub fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// The largest element; −∞ for an empty row, not a number if one of them is not.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let mut acc = [f32::NEG_INFINITY; LANES];
    let (lanes, tail) = x.as_chunks::<LANES>();
    for x in lanes {
        for l in 0..LANES {
            acc[l] = larger(acc[l], x[l]);
        }
    }
    for (acc, &x) in acc.iter_mut().zip(tail) {
        *acc = larger(*acc, x);
    }
    acc.iter().fold(f32::NEG_INFINITY, |a, &b| larger(a, b))
}
