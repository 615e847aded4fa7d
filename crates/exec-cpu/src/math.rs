//! Elementary functions on f32, without branches or tables, so that a loop over them becomes vector code. Errors are a
//! few units in the last place; the tests state the bound.

#![allow(clippy::excessive_precision)]

use crate::isa::fma;

/// eˣ. Below −87.3 it is 0, above 88.7 infinite.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN2_HIGH: f32 = 0.693359375;
    const LN2_LOW: f32 = -2.12194440e-4;
    // 1.5·2²³: adding it rounds to the nearest integer, which then stands in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.4, 88.8);
    let shifted = fma::<FMA>(clamped, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma::<FMA>(n, -LN2_LOW, fma::<FMA>(n, -LN2_HIGH, clamped));
    let mut p = 1.9875691500e-4;
    p = fma::<FMA>(p, r, 1.3981999507e-3);
    p = fma::<FMA>(p, r, 8.3334519073e-3);
    p = fma::<FMA>(p, r, 4.1665795894e-2);
    p = fma::<FMA>(p, r, 1.6666665459e-1);
    p = fma::<FMA>(p, r, 5.0000001201e-1);
    let y = fma::<FMA>(p, r * r, r) + 1.0;
    // 2ⁿ in two factors, because n may be 128.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) << 23) as u32);
    let result = y * power(half) * power(n - half);
    let result = if x < -87.3 { 0.0 } else { result };
    let result = if x > 88.72 { f32::INFINITY } else { result };
    if x.is_nan() { x } else { result }
}

/// eˣ − 1 for x ≤ 0.
#[inline(always)]
pub(crate) fn expm1<const FMA: bool>(x: f32) -> f32 {
    // Near 0 the series, which has no cancellation.
    let mut p = 1.0 / 5040.0;
    p = fma::<FMA>(p, x, 1.0 / 720.0);
    p = fma::<FMA>(p, x, 1.0 / 120.0);
    p = fma::<FMA>(p, x, 1.0 / 24.0);
    p = fma::<FMA>(p, x, 1.0 / 6.0);
    p = fma::<FMA>(p, x, 0.5);
    let series = fma::<FMA>(p * x, x, x);
    if x > -0.35 { series } else { exp::<FMA>(x) - 1.0 }
}

/// The natural logarithm of a number that is not negative.
#[inline(always)]
pub(crate) fn log<const FMA: bool>(x: f32) -> f32 {
    // Subnormal numbers are scaled up by 2²³ first.
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    let mut e = ((bits >> 23) & 0xff) - 126 - if small { 23 } else { 0 };
    let mut m = f32::from_bits(((bits & 0x007f_ffff) | 0x3f00_0000) as u32);
    let low = m < std::f32::consts::FRAC_1_SQRT_2;
    e -= low as i32;
    m = if low { m + m - 1.0 } else { m - 1.0 };
    let z = m * m;
    let mut p = 7.0376836292e-2;
    p = fma::<FMA>(p, m, -1.1514610310e-1);
    p = fma::<FMA>(p, m, 1.1676998740e-1);
    p = fma::<FMA>(p, m, -1.2420140846e-1);
    p = fma::<FMA>(p, m, 1.4249322787e-1);
    p = fma::<FMA>(p, m, -1.6668057665e-1);
    p = fma::<FMA>(p, m, 2.0000714765e-1);
    p = fma::<FMA>(p, m, -2.4999993993e-1);
    p = fma::<FMA>(p, m, 3.3333331174e-1);
    let e = e as f32;
    let tail = fma::<FMA>(e, -2.12194440e-4, m * z * p);
    let y = fma::<FMA>(e, 0.693359375, m + fma::<FMA>(-0.5, z, tail));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// log(1 + x) for 0 ≤ x ≤ 1.
#[inline(always)]
pub(crate) fn log1p<const FMA: bool>(x: f32) -> f32 {
    // log(1+x) = log(u) · x / (u − 1) with u = 1 + x as rounded corrects the rounding of u.
    let u = 1.0 + x;
    let d = u - 1.0;
    let ratio = if d == 0.0 { 1.0 } else { x / d };
    let y = log::<FMA>(u) * ratio;
    if d == 0.0 { x } else { y }
}

/// tanh by a rational function; exactly ±1 beyond ±7.9, because slopes multiply what is missing to 1 by large numbers.
#[inline(always)]
pub(crate) fn tanh<const FMA: bool>(x: f32) -> f32 {
    const LARGEST: f32 = 7.90531110763549805;
    let c = x.clamp(-LARGEST, LARGEST);
    let z = c * c;
    let mut p = -2.76076847742355e-16;
    p = fma::<FMA>(p, z, 2.00018790482477e-13);
    p = fma::<FMA>(p, z, -8.60467152213735e-11);
    p = fma::<FMA>(p, z, 5.12229709037114e-08);
    p = fma::<FMA>(p, z, 1.48572235717979e-05);
    p = fma::<FMA>(p, z, 6.37261928875436e-04);
    p = fma::<FMA>(p, z, 4.89352455891786e-03);
    let mut q = 1.19825839466702e-06;
    q = fma::<FMA>(q, z, 1.18534705686654e-04);
    q = fma::<FMA>(q, z, 2.26843463243900e-03);
    q = fma::<FMA>(q, z, 4.89352518554385e-03);
    if x.abs() > LARGEST { 1f32.copysign(x) } else { c * p / q }
}

/// 1 / (1 + e^−x)
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    // e^−|x| never overflows, and both branches share it.
    let e = exp::<FMA>(-x.abs());
    let d = 1.0 / (1.0 + e);
    if x >= 0.0 { d } else { e * d }
}

/// log(1 + eˣ)
#[inline(always)]
pub(crate) fn softplus<const FMA: bool>(x: f32) -> f32 {
    x.max(0.0) + log1p::<FMA>(exp::<FMA>(-x.abs()))
}

/// The error function by a rational function; constant beyond ±4.
#[inline(always)]
pub(crate) fn erf<const FMA: bool>(x: f32) -> f32 {
    let c = x.clamp(-4.0, 4.0);
    let z = c * c;
    let mut p = -2.72614225801306e-10;
    p = fma::<FMA>(p, z, 2.77068142495902e-08);
    p = fma::<FMA>(p, z, -2.10102402082508e-06);
    p = fma::<FMA>(p, z, -5.69250639462346e-05);
    p = fma::<FMA>(p, z, -7.34990630326855e-04);
    p = fma::<FMA>(p, z, -2.95459980854025e-03);
    p = fma::<FMA>(p, z, -1.60960333262415e-02);
    let mut q = -1.45660718464996e-05;
    q = fma::<FMA>(q, z, -2.13374055278905e-04);
    q = fma::<FMA>(q, z, -1.68282697438203e-03);
    q = fma::<FMA>(q, z, -7.37332916720468e-03);
    q = fma::<FMA>(q, z, -1.42647390514189e-02);
    c * p / q
}

/// aᵇ for a ≥ 0, or any a with b an integer.
#[inline(always)]
pub(crate) fn pow(a: f32, b: f32) -> f32 {
    // Rare in training steps: precision before speed.
    (a as f64).powf(b as f64) as f32
}

/// The lanes that every sum uses, whatever the instruction set: sums do not depend on the width of its registers.
pub(crate) const LANES: usize = 16;

/// The sum of the lanes in a fixed order.
#[inline(always)]
pub(crate) fn sum_lanes(lanes: [f32; LANES]) -> f32 {
    let mut v = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            v[i] += v[i + width];
        }
        width /= 2;
    }
    v[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a function against f64 on a grid: |error| ≤ `ulps` units of the result, plus an absolute floor.
    fn check(name: &str, range: (f32, f32), floor: f64, ulps: f64, f: [fn(f32) -> f32; 2], exact: fn(f64) -> f64) {
        let steps = 200_001;
        for i in 0..steps {
            let x = range.0 + (range.1 - range.0) * (i as f32 / (steps - 1) as f32);
            let want = exact(x as f64);
            let bound = ulps * want.abs() * f32::EPSILON as f64 + floor;
            for f in f {
                let got = f(x) as f64;
                assert!((got - want).abs() <= bound, "{name}({x}) = {got}, want {want}, error {:e}", got - want);
            }
        }
    }

    fn erf_exact(x: f64) -> f64 {
        // The Taylor series; enough terms for |x| ≤ 5 in f64.
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn functions_are_accurate() {
        check("exp", (-87.0, 88.0), 0.0, 1.5, [exp::<true>, exp::<false>], f64::exp);
        check("expm1", (-20.0, 0.0), 0.0, 3.0, [expm1::<true>, expm1::<false>], f64::exp_m1);
        check("log", (1e-3, 10.0), 1e-8, 1.5, [log::<true>, log::<false>], f64::ln);
        check("log", (10.0, 1e30), 0.0, 1.5, [log::<true>, log::<false>], f64::ln);
        check("log1p", (0.0, 1.0), 1e-38, 3.0, [log1p::<true>, log1p::<false>], f64::ln_1p);
        check("tanh", (-10.0, 10.0), 1e-9, 4.0, [tanh::<true>, tanh::<false>], f64::tanh);
        check("sigmoid", (-80.0, 80.0), 0.0, 3.0, [sigmoid::<true>, sigmoid::<false>], |x| 1.0 / (1.0 + (-x).exp()));
        check("softplus", (-80.0, 80.0), 0.0, 3.0, [softplus::<true>, softplus::<false>], |x| {
            x.max(0.0) + (-x.abs()).exp().ln_1p()
        });
        check("erf", (-5.0, 5.0), 3e-7, 2.0, [erf::<true>, erf::<false>], erf_exact);
    }

    #[test]
    fn edges() {
        for (got, want) in [
            (exp::<true>(0.0), 1.0),
            (exp::<true>(f32::NEG_INFINITY), 0.0),
            (exp::<true>(f32::INFINITY), f32::INFINITY),
            (exp::<true>(-1000.0), 0.0),
            (log::<true>(0.0), f32::NEG_INFINITY),
            (log::<true>(1.0), 0.0),
            (log::<true>(f32::INFINITY), f32::INFINITY),
            (tanh::<true>(0.0), 0.0),
            (tanh::<true>(100.0), 1.0),
            (sum_lanes([1.0; 16]), 16.0),
        ] {
            assert!((got - want).abs() < 3e-7 || got == want, "{got} {want}");
        }
        assert!(
            [tanh::<true>, tanh::<false>].iter().all(|f| f(30.0) == 1.0 && f(-30.0) == -1.0 && f(f32::NAN).is_nan())
        );
        assert!(exp::<true>(f32::NAN).is_nan() && log::<true>(-1.0).is_nan() && log::<true>(f32::NAN).is_nan());
        assert!((log::<true>(1e-42) - 1e-42f64.ln() as f32).abs() < 1e-3);
    }
}
