//! Sums and maxima along one contiguous row, in 64 lanes joined in a fixed order. The helpers are inlined into `simd!`
//! bodies; they never dispatch by themselves.

use crate::math::{LANES, sum_lanes};

/// The sum of `step` over a row: `step(sum so far, x)`.
#[inline(always)]
pub(crate) fn sum1(x: &[f32], step: impl Fn(f32, f32) -> f32) -> f32 {
    sum3([x, x, x], |acc, [x, _, _]| step(acc, x))
}

/// The sum of `step` over two rows of equal length: `step(sum so far, x, y)`.
#[inline(always)]
pub(crate) fn sum2(x: &[f32], y: &[f32], step: impl Fn(f32, f32, f32) -> f32) -> f32 {
    sum3([x, y, x], |acc, [x, y, _]| step(acc, x, y))
}

/// The sum of `step` over three rows of equal length: `step(sum so far, elements)`.
#[inline(always)]
pub(crate) fn sum3([x, y, z]: [&[f32]; 3], step: impl Fn(f32, [f32; 3]) -> f32) -> f32 {
    let (y, z) = (&y[..x.len()], &z[..x.len()]);
    if x.len() < LANES {
        // Rows this short are summed one element after the other; neighbouring rows overlap in time.
        let mut sum = 0.0;
        for ((&x, &y), &z) in x.iter().zip(y).zip(z) {
            sum = step(sum, [x, y, z]);
        }
        return sum;
    }
    let (x, x_tail) = x.as_chunks::<LANES>();
    let (y, y_tail) = y.as_chunks::<LANES>();
    let (z, z_tail) = z.as_chunks::<LANES>();
    // Four sums are under way at once. Each is an array and a loop of its own: that is what the compiler turns into a
    // register and an instruction.
    let (mut a, mut b, mut c, mut d) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let (x4, x_rest) = x.as_chunks::<4>();
    let (y4, y_rest) = y.as_chunks::<4>();
    let (z4, z_rest) = z.as_chunks::<4>();
    for ((x, y), z) in x4.iter().zip(y4).zip(z4) {
        step_lanes(&mut a, &x[0], &y[0], &z[0], &step);
        step_lanes(&mut b, &x[1], &y[1], &z[1], &step);
        step_lanes(&mut c, &x[2], &y[2], &z[2], &step);
        step_lanes(&mut d, &x[3], &y[3], &z[3], &step);
    }
    for ((x, y), z) in x_rest.iter().zip(y_rest).zip(z_rest) {
        step_lanes(&mut a, x, y, z, &step);
    }
    for (((a, &x), &y), &z) in a.iter_mut().zip(x_tail).zip(y_tail).zip(z_tail) {
        *a = step(*a, [x, y, z]);
    }
    for l in 0..LANES {
        a[l] = (a[l] + b[l]) + (c[l] + d[l]);
    }
    sum_lanes(settle(a))
}

/// The same lanes, in memory. The compiler would else cut the loop that fills them into the halves and quarters that the
/// fold of the lanes begins with.
#[inline(always)]
pub(crate) fn settle(lanes: [f32; LANES]) -> [f32; LANES] {
    std::hint::black_box(lanes)
}

#[inline(always)]
fn step_lanes(
    acc: &mut [f32; LANES],
    x: &[f32; LANES],
    y: &[f32; LANES],
    z: &[f32; LANES],
    step: &impl Fn(f32, [f32; 3]) -> f32,
) {
    for l in 0..LANES {
        acc[l] = step(acc[l], [x[l], y[l], z[l]]);
    }
}

/// The larger one; not a number if one of them is not.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// The largest element; −∞ for an empty row, not a number if one of them is not.
#[inline(always)]
pub(crate) fn max(x: &[f32]) -> f32 {
    fold_max(x, larger)
}

/// The largest of the elements that are numbers; −∞ if there is none. For those who notice the others by themselves.
#[inline(always)]
pub(crate) fn max_number(x: &[f32]) -> f32 {
    fold_max(x, larger_number)
}

/// The larger one, the first if one of them is not a number: a single instruction.
#[inline(always)]
pub(crate) fn larger_number(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[inline(always)]
fn fold_max(x: &[f32], larger: impl Fn(f32, f32) -> f32) -> f32 {
    let (x, tail) = x.as_chunks::<LANES>();
    let (x2, rest) = x.as_chunks::<2>();
    let (mut a, mut b) = ([f32::NEG_INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    for x in x2 {
        max_lanes(&mut a, &x[0], &larger);
        max_lanes(&mut b, &x[1], &larger);
    }
    for x in rest {
        max_lanes(&mut a, x, &larger);
    }
    for (a, &x) in a.iter_mut().zip(tail) {
        *a = larger(*a, x);
    }
    max_lanes(&mut a, &b, &larger);
    fold_lanes(a, larger)
}

#[inline(always)]
fn max_lanes(acc: &mut [f32; LANES], x: &[f32; LANES], larger: &impl Fn(f32, f32) -> f32) {
    for l in 0..LANES {
        acc[l] = larger(acc[l], x[l]);
    }
}

/// The lanes joined in pairs, in a fixed order.
#[inline(always)]
pub(crate) fn fold_lanes(lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut v = settle(lanes);
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            v[i] = join(v[i], v[i + width]);
        }
        width /= 2;
    }
    v[0]
}
