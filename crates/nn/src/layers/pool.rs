//! Pooling, and squeeze-and-excite, which is built on it. Global pooling is a method of the builder.

use memfit_ir::op::Window;
use memfit_ir::{Builder, Result, ValueId};

use super::{Activation, Dense, Padding, activation, dense, image};
use crate::Initializer;

/// `Pool::new(2)` is a window of 2×2 with the same stride and no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: Padding,
}

impl Pool {
    pub fn new(size: usize) -> Self {
        Pool { size: [size; 2], stride: [size; 2], padding: Padding::Valid }
    }

    fn window(self, b: &Builder, x: ValueId) -> Result<Window> {
        let [_, height, width, _] = image(b, x)?;
        let pad = self.padding.resolve([height, width], self.size, self.stride, [1; 2]);
        Ok(Window { size: self.size, stride: self.stride, pad })
    }
}

pub fn max_pool(b: &mut Builder, name: impl ToString, x: ValueId, p: Pool) -> Result<ValueId> {
    b.scope(name, |b| {
        let window = p.window(b, x)?;
        b.max_pool(x, window)
    })
}

pub fn avg_pool(b: &mut Builder, name: impl ToString, x: ValueId, p: Pool) -> Result<ValueId> {
    b.scope(name, |b| {
        let window = p.window(b, x)?;
        b.avg_pool(x, window)
    })
}

/// Scales each channel by a gate that a small network computes from the means of all channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SqueezeExcite {
    /// Channels in the middle.
    pub squeeze: usize,
    pub activation: Activation,
    /// Sigmoid or hard sigmoid.
    pub gate: Activation,
    pub init: Initializer,
}

/// States under `name/fc1` and `name/fc2`: 1×1 convolutions of a 1×1 image, which dense layers are.
pub fn squeeze_excite(b: &mut Builder, name: impl ToString, x: ValueId, s: SqueezeExcite) -> Result<ValueId> {
    b.scope(name, |b| {
        let [samples, _, _, channels] = image(b, x)?;
        let means = b.global_avg_pool(x)?;
        let y = dense(b, "fc1", means, Dense { init: s.init, ..Dense::new(s.squeeze) })?;
        let y = activation(b, y, s.activation)?;
        let y = dense(b, "fc2", y, Dense { init: s.init, ..Dense::new(channels) })?;
        let gate = activation(b, y, s.gate)?;
        let gate = b.reshape(gate, [samples, 1, 1, channels])?;
        b.mul(x, gate)
    })
}
