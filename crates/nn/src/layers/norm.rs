//! Norms. `scale` starts at 1 and `bias` at 0.

use memfit_ir::op::{BatchUpdate, Eps, Init, StateClass};
use memfit_ir::{Builder, Op, Result, TensorType, ValueId};

use super::channels;
use crate::Mode;

/// `BatchNorm::default()` is PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    pub eps: f32,
    /// The share of the running statistics that stays at each step: PyTorch's momentum 0.1 is 0.9 here, as in Keras.
    pub momentum: f32,
}

impl Default for BatchNorm {
    fn default() -> Self {
        BatchNorm { eps: 1e-5, momentum: 0.9 }
    }
}

/// Normalises each channel over the batch. States: `scale`, `bias`, and the running statistics `mean` and `var`.
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

/// Normalises each row of the last axis. States: `scale`, `bias`.
pub fn layer_norm(b: &mut Builder, name: impl ToString, x: ValueId, eps: f32) -> Result<ValueId> {
    b.scope(name, |b| {
        let c = channels(b, x)?;
        let [scale, bias] = scale_and_bias(b, c)?;
        b.layer_norm(x, scale, bias, eps)
    })
}

/// Divides each row of the last axis by its root mean square. State: `scale`.
pub fn rms_norm(b: &mut Builder, name: impl ToString, x: ValueId, eps: f32) -> Result<ValueId> {
    b.scope(name, |b| {
        let c = channels(b, x)?;
        let scale = b.param("scale", [c], Init::Constant(1.0))?;
        b.rms_norm(x, scale, eps)
    })
}

/// Normalises groups of channels of each sample. States: `scale`, `bias`.
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
