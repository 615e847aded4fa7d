//! Unary, binary, comparison, choice and dropout: one element at a time.

use std::f64::consts::{FRAC_2_PI, FRAC_2_SQRT_PI, PI, SQRT_2};

use memfit_ir::op::{Binary, Compare, Dropout, Unary};
use memfit_ir::{TensorType, philox};

use crate::tensor::Tensor;

pub fn unary(u: Unary, x: &Tensor) -> Tensor {
    Tensor { ty: x.ty.clone(), data: x.data.iter().map(|&x| value(u, x)).collect() }
}

/// `saved` is x or y, as [`Unary::grad_reads`] says.
pub fn unary_grad(u: Unary, saved: &Tensor, dy: &Tensor) -> Tensor {
    let data = saved.data.iter().zip(&dy.data).map(|(&s, &dy)| dy * slope(u, s)).collect();
    Tensor { ty: dy.ty.clone(), data }
}

pub fn mask(u: Unary, y: &Tensor, out: &TensorType) -> Tensor {
    Tensor { ty: out.clone(), data: y.data.iter().map(|&y| f64::from(u8::from(inside(u, y)))).collect() }
}

/// The slope at any output inside the interval, or at any outside of it.
pub fn mask_grad(u: Unary, bits: &Tensor, dy: &Tensor) -> Tensor {
    let data =
        bits.data.iter().zip(&dy.data).map(|(&b, &dy)| dy * slope(u, if b != 0.0 { 0.5 } else { 0.0 })).collect();
    Tensor { ty: dy.ty.clone(), data }
}

/// Where the slope is that of the middle piece.
fn inside(u: Unary, y: f64) -> bool {
    match u {
        Unary::Relu | Unary::LeakyRelu(_) => y > 0.0,
        Unary::Relu6 => 0.0 < y && y < 6.0,
        Unary::HardSigmoid => 0.0 < y && y < 1.0,
        Unary::Neg
        | Unary::Abs
        | Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Tanh
        | Unary::Sigmoid
        | Unary::Elu(_)
        | Unary::Softplus
        | Unary::HardSwish
        | Unary::Silu
        | Unary::GeluTanh
        | Unary::GeluErf => unreachable!("{} has no mask", u.name()),
    }
}

fn value(u: Unary, x: f64) -> f64 {
    match u {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => sigmoid(x),
        // A NaN stays one: what hides it hides a fault.
        Unary::Relu if x < 0.0 => 0.0,
        Unary::Relu => x,
        Unary::Relu6 => x.clamp(0.0, 6.0),
        Unary::LeakyRelu(slope) => {
            if x > 0.0 {
                x
            } else {
                f64::from(slope) * x
            }
        }
        Unary::Elu(alpha) => {
            if x > 0.0 {
                x
            } else {
                f64::from(alpha) * x.exp_m1()
            }
        }
        Unary::Softplus => softplus(x),
        Unary::HardSigmoid => (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Unary::Silu => x * sigmoid(x),
        Unary::GeluTanh => 0.5 * x * (1.0 + gelu_inner(x).tanh()),
        Unary::GeluErf => 0.5 * x * (1.0 + erf(x / SQRT_2)),
    }
}

/// The derivative, from y where [`Unary::grad_reads`] says output and from x elsewhere.
fn slope(u: Unary, saved: f64) -> f64 {
    let (x, y) = (saved, saved);
    let step = |holds: bool| if holds { 1.0 } else { 0.0 };
    match u {
        Unary::Neg => -1.0,
        Unary::Abs => step(x > 0.0) - step(x < 0.0),
        Unary::Exp => y,
        Unary::Log => 1.0 / x,
        Unary::Sqrt => 0.5 / y,
        Unary::Rsqrt => -0.5 * y.powi(3),
        Unary::Tanh => 1.0 - y * y,
        Unary::Sigmoid => y * (1.0 - y),
        Unary::Relu => step(y > 0.0),
        Unary::Relu6 => step(0.0 < y && y < 6.0),
        Unary::LeakyRelu(slope) => {
            if y > 0.0 {
                1.0
            } else {
                f64::from(slope)
            }
        }
        Unary::Elu(alpha) => {
            if y > 0.0 {
                1.0
            } else {
                y + f64::from(alpha)
            }
        }
        Unary::Softplus => sigmoid(x),
        Unary::HardSigmoid => step(0.0 < y && y < 1.0) / 6.0,
        Unary::HardSwish if x <= -3.0 => 0.0,
        Unary::HardSwish if x >= 3.0 => 1.0,
        Unary::HardSwish => (2.0 * x + 3.0) / 6.0,
        Unary::Silu => sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
        Unary::GeluTanh => {
            let t = gelu_inner(x).tanh();
            let inner_slope = FRAC_2_PI.sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope
        }
        Unary::GeluErf => 0.5 * (1.0 + erf(x / SQRT_2)) + x * (-0.5 * x * x).exp() / (2.0 * PI).sqrt(),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// log(1 + eˣ), written so that eˣ cannot overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn gelu_inner(x: f64) -> f64 {
    FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))
}

/// 2/√π · e^(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·5…(2n+1)): all terms have one sign, so nothing cancels.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let mut term = x;
    let mut sum = x;
    let mut n = 0.0;
    while term.abs() > 1e-17 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// NaN, if one of two numbers is: `f64::max` would give the other one.
pub fn either_nan(a: f64, b: f64) -> Option<f64> {
    (a.is_nan() || b.is_nan()).then_some(f64::NAN)
}

pub fn binary(op: Binary, x: &Tensor, y: &Tensor, out: &TensorType) -> Tensor {
    Tensor::from_index(out, |i| {
        let (a, b) = (x.at_broadcast(i), y.at_broadcast(i));
        match op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Min => either_nan(a, b).unwrap_or(a.min(b)),
            Binary::Max => either_nan(a, b).unwrap_or(a.max(b)),
            Binary::Pow => a.powf(b),
            Binary::SigmoidCrossEntropy => a.max(0.0) - a * b + (-a.abs()).exp().ln_1p(),
        }
    })
}

pub fn compare(c: Compare, x: &Tensor, y: &Tensor, out: &TensorType) -> Tensor {
    Tensor::from_index(out, |i| {
        let (a, b) = (x.at_broadcast(i), y.at_broadcast(i));
        let holds = match c {
            Compare::Eq => a == b,
            Compare::Ne => a != b,
            Compare::Lt => a < b,
            Compare::Le => a <= b,
            Compare::Gt => a > b,
            Compare::Ge => a >= b,
        };
        f64::from(u8::from(holds))
    })
}

pub fn select(condition: &Tensor, a: &Tensor, b: &Tensor, out: &TensorType) -> Tensor {
    Tensor::from_index(out, |i| if condition.at_broadcast(i) != 0.0 { a.at_broadcast(i) } else { b.at_broadcast(i) })
}

/// The clock holds step, first sample and the two halves of the seed. The first axis of x is the sample.
pub fn dropout(d: &Dropout, x: &Tensor, clock: &Tensor) -> Tensor {
    let word = |i: usize| clock.data[i] as i32 as u32;
    let seed = [word(2), word(3)];
    let sample_elements: usize = x.shape()[1..].iter().product();
    let kept = 1.0 / (1.0 - f64::from(d.rate));
    let data = x.data.iter().enumerate().map(|(i, &x)| {
        let sample = word(1).wrapping_add((i / sample_elements) as u32);
        let element = (i % sample_elements) as u32;
        let drawn = philox::unit(philox::dropout_word(seed, d.stream, word(0), sample, element));
        if drawn < d.rate { 0.0 } else { x * kept }
    });
    Tensor { ty: x.ty.clone(), data: data.collect() }
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn erf_matches_published_values() {
        // Abramowitz and Stegun, table 7.1, and the asymptote.
        for (x, y) in [(0.0, 0.0), (0.5, 0.5204998778130465), (1.0, 0.8427007929497149), (2.0, 0.9953222650189527)] {
            assert!((erf(x) - y).abs() < 1e-14, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!((erf(5.9) - 1.0).abs() < 1e-14);
        assert_eq!(erf(100.0), 1.0);
    }
}
