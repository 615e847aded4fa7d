//! Sums and maxima along one contiguous row, in 64 lanes joined in a fixed order. The helpers are inlined into `simd!`
//! bodies; they never dispatch by themselves.

use crate::math::{LANES, sum_lanes};

/// Four vectors of lanes, so that four additions are under way at once.
const WIDE: usize = 4 * LANES;

/// The sum of `step` over a row: `step(sum so far, x)`.
#[inline(always)]
pub fn sum1(x: &[f32], step: impl Fn(f32, f32) -> f32) -> f32 {
    sum3([x, x, x], |acc, [x, _, _]| step(acc, x))
}

/// The sum of `step` over two rows of equal length: `step(sum so far, x, y)`.
#[inline(always)]
pub fn sum2(x: &[f32], y: &[f32], step: impl Fn(f32, f32, f32) -> f32) -> f32 {
    sum3([x, y, x], |acc, [x, y, _]| step(acc, x, y))
}

/// The sum of `step` over three rows of equal length: `step(sum so far, elements)`.
#[inline(always)]
pub fn sum3([x, y, z]: [&[f32]; 3], step: impl Fn(f32, [f32; 3]) -> f32) -> f32 {
    let (y, z) = (&y[..x.len()], &z[..x.len()]);
    let mut acc = [[0.0; LANES]; 4];
    let (x_wide, x_rest) = x.as_chunks::<WIDE>();
    let (y_wide, y_rest) = y.as_chunks::<WIDE>();
    let (z_wide, z_rest) = z.as_chunks::<WIDE>();
    for ((x, y), z) in x_wide.iter().zip(y_wide).zip(z_wide) {
        for (v, acc) in acc.iter_mut().enumerate() {
            for (l, acc) in acc.iter_mut().enumerate() {
                let i = v * LANES + l;
                *acc = step(*acc, [x[i], y[i], z[i]]);
            }
        }
    }
    let (x_lanes, x_tail) = x_rest.as_chunks::<LANES>();
    let (y_lanes, y_tail) = y_rest.as_chunks::<LANES>();
    let (z_lanes, z_tail) = z_rest.as_chunks::<LANES>();
    for ((x, y), z) in x_lanes.iter().zip(y_lanes).zip(z_lanes) {
        for l in 0..LANES {
            acc[0][l] = step(acc[0][l], [x[l], y[l], z[l]]);
        }
    }
    for (((acc, &x), &y), &z) in acc[0].iter_mut().zip(x_tail).zip(y_tail).zip(z_tail) {
        *acc = step(*acc, [x, y, z]);
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
