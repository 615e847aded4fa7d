//! Norms. `scale` starts at 1 and `bias` at 0.

use memfit_ir::op::{BatchUpdate, Eps, Init, StateClass};
use memfit_ir::{Builder, Op, Result, TensorType, ValueId};

use super::channels;
use crate::Mode;

/// What a [`batch_norm`] is like. `BatchNorm::default()` is PyTorch's; Keras' has an eps of 1e-3 and a momentum of 0.99.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance before its root.
    pub eps: f32,
    /// The share of the running statistics that stays at each step: PyTorch's momentum 0.1 is 0.9 here, as in Keras.
    pub momentum: f32,
}

impl Default for BatchNorm {
    fn default() -> Self {
        BatchNorm { eps: 1e-5, momentum: 0.9 }
    }
}

/// Normalises each channel over the batch. States: `scale`, `bias`, and the running statistics `mean` and `var`. A sample's
/// result depends on its batch, so a model with it is micro-batched only where that is allowed.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::Mode;
/// use memfit_nn::layers::{BatchNorm, batch_norm};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 16]))?;
/// let y = batch_norm(&mut b, Mode::Train, "bn", x, BatchNorm::default())?;
/// assert_eq!(b.shape(y), [8, 32, 32, 16]);
/// assert_eq!(b.graph().donations.len(), 2, "mean and var move");
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn batch_norm(b: &mut Builder, mode: Mode, name: impl ToString, x: ValueId, n: BatchNorm) -> Result<ValueId> {
    b.scope(name, |b| {
        let c = channels(b, x)?;
        let [scale, bias] = scale_and_bias(b, c)?;
        let mean = b.state("mean", StateClass::Statistic, TensorType::f32([c]), Init::Constant(0.0))?;
        let var = b.state("var", StateClass::Statistic, TensorType::f32([c]), Init::Constant(1.0))?;
        match mode {
            Mode::Eval => b.op(Op::BatchApply(Eps(n.eps)), &[x, mean, var, scale, bias]),
            Mode::Train => {
                let [y, batch_mean, batch_var] = b.batch_norm(x, scale, bias, n.eps)?;
                let update = Op::BatchUpdate(BatchUpdate { momentum: n.momentum });
                let new = b.op_outputs(update, &[mean, var, batch_mean, batch_var])?;
                b.donate(mean, new[0]);
                b.donate(var, new[1]);
                Ok(y)
            }
        }
    })
}

/// Normalises each row of the last axis. States: `scale`, `bias`. PyTorch's eps is 1e-5, Keras' 1e-3.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::layer_norm;
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 128, 64]))?;
/// let y = layer_norm(&mut b, "ln", x, 1e-5)?;
/// assert_eq!(b.shape(y), [8, 128, 64]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn layer_norm(b: &mut Builder, name: impl ToString, x: ValueId, eps: f32) -> Result<ValueId> {
    b.scope(name, |b| {
        let c = channels(b, x)?;
        let [scale, bias] = scale_and_bias(b, c)?;
        b.layer_norm(x, scale, bias, eps)
    })
}

/// Divides each row of the last axis by its root mean square. State: `scale`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::rms_norm;
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 128, 64]))?;
/// let y = rms_norm(&mut b, "norm", x, 1e-6)?;
/// assert_eq!(b.shape(y), [8, 128, 64]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn rms_norm(b: &mut Builder, name: impl ToString, x: ValueId, eps: f32) -> Result<ValueId> {
    b.scope(name, |b| {
        let c = channels(b, x)?;
        let scale = b.param("scale", [c], Init::Constant(1.0))?;
        b.rms_norm(x, scale, eps)
    })
}

/// Normalises groups of channels of each sample. States: `scale`, `bias`. Unlike batch norm, no sample sees another.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::group_norm;
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 16]))?;
/// let y = group_norm(&mut b, "gn", x, 4, 1e-5)?;
/// assert_eq!(b.shape(y), [8, 32, 32, 16]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn group_norm(b: &mut Builder, name: impl ToString, x: ValueId, groups: usize, eps: f32) -> Result<ValueId> {
    b.scope(name, |b| {
        let c = channels(b, x)?;
        let [scale, bias] = scale_and_bias(b, c)?;
        b.group_norm(x, scale, bias, groups, eps)
    })
}

fn scale_and_bias(b: &mut Builder, channels: usize) -> Result<[ValueId; 2]> {
    let scale = b.param("scale", [channels], Init::Constant(1.0))?;
    let bias = b.param("bias", [channels], Init::Constant(0.0))?;
    Ok([scale, bias])
}
