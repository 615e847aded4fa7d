//! Functions of numbers that kernels share. A NaN stays one: what hides it hides a fault.

use cubecl::prelude::*;

use crate::kernels::word::is_nan_bits;

#[cube]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Where it is 1 to the last bit, a device may compute ∞ ÷ ∞.
#[cube]
pub fn tanh(x: f32) -> f32 {
    let low = select(x < -10.0f32, -10.0f32, x);
    select(low > 10.0, 10.0, low).tanh()
}

/// eˣ − 1, of which nothing is lost near 0.
#[cube]
pub fn expm1(x: f32) -> f32 {
    let near = x * (1.0 + x * 0.5 * (1.0 + x / 3.0 * (1.0 + x * 0.25 * (1.0 + x * 0.2))));
    select(x.abs() < 0.1, near, x.exp() - 1.0)
}

/// log(1 + eˣ) for x ≤ 0.
#[cube]
pub fn log1p_exp(x: f32) -> f32 {
    (1.0 + x.exp()).ln()
}

#[cube]
pub fn gelu_inner(x: f32) -> f32 {
    0.797_884_6 * (x + 0.044_715 * x * x * x)
}

/// Between 0 and a limit.
#[cube]
pub fn between(x: f32, limit: f32) -> f32 {
    let positive = select(x < 0.0, 0.0, x);
    select(positive > limit, limit, positive)
}

#[cube]
pub fn maximum(a: f32, b: f32) -> f32 {
    select(b > a || is_nan_bits(u32::reinterpret(b)), b, a)
}

/// aᵇ, also where devices say nothing: of negative numbers, and with ±0 as either.
#[cube]
pub fn power(a: f32, b: f32) -> f32 {
    let size = a.abs().powf(b);
    let whole = b.floor() == b;
    let half = b * 0.5;
    let odd = whole && !(half.floor() == half);
    let negative = (u32::reinterpret(a) >> 31) != 0;
    let signed = select(negative && odd, -size, size);
    let known = select(negative && !whole && a < 0.0, f32::reinterpret(0x7fc0_0000u32.runtime()), signed);
    // A device may say that a NaN's power is a number.
    let nan = is_nan_bits(u32::reinterpret(a)) || is_nan_bits(u32::reinterpret(b));
    let shown = select(nan, f32::reinterpret(0x7fc0_0000u32.runtime()), known);
    select(b == 0.0 || a == 1.0, 1.0, shown)
}

#[cube]
pub fn rstd(variance: f32, eps: f32) -> f32 {
    1.0 / (variance + eps).sqrt()
}

#[cube]
pub fn nan() -> f32 {
    f32::reinterpret(0x7fc0_0000u32.runtime())
}
