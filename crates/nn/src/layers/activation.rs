//! Activations and dropout: layers without states.

use memfit_ir::op::Unary;
use memfit_ir::{Builder, Result, ValueId};

use super::channels;
use crate::Mode;
use crate::error::Error;

/// A function of each element; of the last axis for [`Activation::Softmax`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// The identity.
    Linear,
    /// max(x, 0).
    Relu,
    /// min(max(x, 0), 6).
    Relu6,
    /// x, or the given slope times x below zero. Keras' default slope is 0.3, PyTorch's 0.01.
    LeakyRelu(f32),
    /// x, or alpha · (eˣ − 1) below zero.
    Elu(f32),
    /// tanh(x).
    Tanh,
    /// 1 ÷ (1 + e⁻ˣ).
    Sigmoid,
    /// x ÷ 6 + ½, cut to 0…1: PyTorch's and Keras 3's; Keras 2 had another slope.
    HardSigmoid,
    /// x times its hard sigmoid.
    HardSwish,
    /// x times its sigmoid, also called swish.
    Silu,
    /// log(1 + eˣ).
    Softplus,
    /// x · Φ(x), approximated by tanh, as in GPT-2.
    GeluTanh,
    /// x · Φ(x) exactly: the default of PyTorch and Keras.
    GeluErf,
    /// Over the last axis.
    Softmax,
}

/// Those with a name of their own; a slope or alpha is PyTorch's.
const NAMES: [(&str, Activation); 13] = [
    ("relu", Activation::Relu),
    ("relu6", Activation::Relu6),
    ("leaky_relu", Activation::LeakyRelu(0.01)),
    ("elu", Activation::Elu(1.0)),
    ("gelu", Activation::GeluErf),
    ("gelu_tanh", Activation::GeluTanh),
    ("silu", Activation::Silu),
    ("tanh", Activation::Tanh),
    ("sigmoid", Activation::Sigmoid),
    ("softplus", Activation::Softplus),
    ("hard_sigmoid", Activation::HardSigmoid),
    ("hard_swish", Activation::HardSwish),
    ("linear", Activation::Linear),
];

impl Activation {
    /// Every name that [`Activation::from_name`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// By its name, with the usual slope or alpha.
    pub fn from_name(name: &str) -> Result<Activation, Error> {
        let known = || Activation::names().collect();
        let found = NAMES.iter().find(|(own, _)| *own == name).map(|(_, kind)| *kind);
        found.ok_or_else(|| Error::Unknown { what: "activation", given: name.into(), known: known() })
    }

    /// Its name; of a slope or alpha of one's own that of its kind.
    pub fn name(self) -> &'static str {
        let is_kind = |kind: &Activation| std::mem::discriminant(kind) == std::mem::discriminant(&self);
        NAMES.iter().find(|(_, kind)| is_kind(kind)).map_or("softmax", |(name, _)| name)
    }
}

/// Appends an activation; it has no states and no scope of its own.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Activation, activation};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 64]))?;
/// let y = activation(&mut b, x, Activation::Silu)?;
/// assert_eq!(b.shape(y), [8, 64]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
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

/// Sets a share of the elements to zero and scales the rest up; the identity in [`Mode::Eval`] and at rate 0. The mask
/// follows from seed, step and sample alone: it is the same under every plan and micro-batch.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::Mode;
/// use memfit_nn::layers::dropout;
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 64]))?;
/// assert_eq!(dropout(&mut b, Mode::Eval, x, 0.5)?, x);
/// assert_ne!(dropout(&mut b, Mode::Train, x, 0.5)?, x);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
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
