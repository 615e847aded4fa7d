//! Activations and dropout: layers without states.

use memfit_ir::op::Unary;
use memfit_ir::{Builder, Result, ValueId};

use super::channels;
use crate::Mode;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// The identity.
    Linear,
    Relu,
    Relu6,
    /// The slope below zero.
    LeakyRelu(f32),
    Elu(f32),
    Tanh,
    Sigmoid,
    HardSigmoid,
    HardSwish,
    Silu,
    Softplus,
    /// The approximation by tanh, as in GPT-2.
    GeluTanh,
    /// The exact one, PyTorch's default.
    GeluErf,
    /// Over the last axis.
    Softmax,
}

pub fn activation(b: &mut Builder, x: ValueId, kind: Activation) -> Result<ValueId> {
    let unary = match kind {
        Activation::Linear => return Ok(x),
        Activation::Softmax => {
            let rank = channels(b, x).map(|_| b.shape(x).len())?;
            return b.softmax(x, rank - 1, false);
        }
        Activation::Relu => Unary::Relu,
        Activation::Relu6 => Unary::Relu6,
        Activation::LeakyRelu(slope) => Unary::LeakyRelu(slope),
        Activation::Elu(alpha) => Unary::Elu(alpha),
        Activation::Tanh => Unary::Tanh,
        Activation::Sigmoid => Unary::Sigmoid,
        Activation::HardSigmoid => Unary::HardSigmoid,
        Activation::HardSwish => Unary::HardSwish,
        Activation::Silu => Unary::Silu,
        Activation::Softplus => Unary::Softplus,
        Activation::GeluTanh => Unary::GeluTanh,
        Activation::GeluErf => Unary::GeluErf,
    };
    b.unary(unary, x)
}

/// Sets a share of the elements to zero and scales the rest up; the identity in [`Mode::Eval`] and at rate 0.
pub fn dropout(b: &mut Builder, mode: Mode, x: ValueId, rate: f32) -> Result<ValueId> {
    b.scope("dropout", |b| {
        // Checked in both modes, so that a wrong rate is found before training starts.
        if !(0.0..1.0).contains(&rate) {
            return b.fail(format!("the rate must be at least 0 and less than 1, but is {rate}"));
        }
        match mode {
            Mode::Train if rate > 0.0 => b.dropout(x, rate),
            Mode::Train | Mode::Eval => Ok(x),
        }
    })
}
