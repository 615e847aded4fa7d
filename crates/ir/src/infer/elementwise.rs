//! Rules of the elementwise family.

use super::{Types, clock, needs_f32, one};
use crate::dtype::{DType, Shape, TensorType};
use crate::error::Rule;
use crate::op::{Binary, Dropout, Op, Unary};
use crate::rule;

/// The common shape of two, as numpy broadcasts: aligned at the last axis, extent 1 stretches.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let extent = |s: &[usize], i: usize| if i + s.len() >= rank { s[i + s.len() - rank] } else { 1 };
    let mut dims = Vec::with_capacity(rank);
    for i in 0..rank {
        dims.push(match (extent(a, i), extent(b, i)) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => return None,
        });
    }
    Some(dims.into())
}

pub fn unary(u: Unary, x: &TensorType) -> Types {
    let integer_too = matches!(u, Unary::Neg | Unary::Abs) && x.dtype == DType::I32;
    if !x.dtype.is_float() && !integer_too {
        rule!("needs a float tensor, but was given {x}; add a cast");
    }
    if let Unary::LeakyRelu(slope) = u
        && !(slope >= 0.0 && slope.is_finite())
    {
        rule!("the slope must not be negative, but is {slope}")
    }
    if let Unary::Elu(alpha) = u
        && !(alpha > 0.0 && alpha.is_finite())
    {
        rule!("alpha must be positive, but is {alpha}")
    }
    one(x.clone())
}

pub fn unary_grad(u: Unary, saved: &TensorType, dy: &TensorType) -> Types {
    if saved != dy {
        rule!("the saved value is {saved}, but the gradient is {dy}; they must be equal");
    }
    if !dy.dtype.is_float() {
        rule!("needs float tensors, but was given {dy}");
    }
    unary(u, saved)
}

pub fn mask(u: Unary, y: &TensorType) -> Types {
    check_masks(u)?;
    unary(u, y)?;
    one(TensorType::new(DType::Bit, y.shape.clone()))
}

pub fn mask_grad(u: Unary, bits: &TensorType, dy: &TensorType) -> Types {
    check_masks(u)?;
    if bits.dtype != DType::Bit || bits.shape != dy.shape {
        rule!("the mask must be bit{}, but is {bits}; mask makes one", dy.shape);
    }
    unary(u, dy)
}

fn check_masks(u: Unary) -> Result<(), Rule> {
    if !u.masks() {
        rule!("the gradient of {} reads more than one bit", u.name());
    }
    Ok(())
}

/// Bits come from masks and go into gradients; on the way they may get another shape, which leaves them where they are.
/// Nothing else needs to know how eight of them share a byte.
pub fn bits_are_masks(op: &Op, inputs: &[&TensorType], outputs: &[TensorType]) -> Result<(), Rule> {
    let bits = |t: &&TensorType| t.dtype == DType::Bit;
    if matches!(op, Op::Mask(_) | Op::MaskGrad(_) | Op::Reshape(_)) {
        return Ok(());
    }
    if let Some(t) = inputs.iter().copied().find(bits) {
        rule!("cannot read {t}; only mask_grad reads bits");
    }
    match outputs.iter().find(bits) {
        Some(t) => rule!("cannot make {t}; only mask makes bits"),
        None => Ok(()),
    }
}

pub fn binary(b: Binary, x: &TensorType, y: &TensorType) -> Types {
    let shape = joined(x, y)?;
    let ok = match b {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max => x.dtype != DType::U8,
        Binary::Div | Binary::Pow | Binary::SigmoidCrossEntropy => x.dtype.is_float(),
    };
    if !ok {
        rule!("cannot work on {} tensors ({x} and {y}); add a cast", x.dtype);
    }
    one(TensorType::new(x.dtype, shape))
}

pub fn compare(x: &TensorType, y: &TensorType) -> Types {
    one(TensorType::new(DType::U8, joined(x, y)?))
}

pub fn select(condition: &TensorType, a: &TensorType, b: &TensorType) -> Types {
    if condition.dtype != DType::U8 {
        rule!("the condition must be u8, but is {condition}; compare makes one");
    }
    let shape = joined(a, b)?;
    let Some(all) = broadcast(&condition.shape, &shape) else {
        rule!("the condition {condition} and the choices {a} and {b} do not broadcast together");
    };
    one(TensorType::new(a.dtype, all))
}

pub fn dropout(d: &Dropout, x: &TensorType, t: &TensorType) -> Types {
    needs_f32("the input", x)?;
    clock(t)?;
    if !(0.0..1.0).contains(&d.rate) {
        rule!("the rate must be at least 0 and less than 1, but is {}", d.rate);
    }
    if x.shape.rank() == 0 {
        rule!("the input must have a batch axis, but is {x}");
    }
    one(x.clone())
}

fn joined(x: &TensorType, y: &TensorType) -> Result<Shape, Rule> {
    if x.dtype != y.dtype {
        rule!("the types {x} and {y} differ; add a cast");
    }
    match broadcast(&x.shape, &y.shape) {
        Some(shape) => Ok(shape),
        None => rule!("the shapes {} and {} do not broadcast together", x.shape, y.shape),
    }
}
