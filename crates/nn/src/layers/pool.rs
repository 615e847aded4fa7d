//! Pooling, and squeeze-and-excite, which is built on it. Global pooling is a method of the builder.

use memfit_ir::op::Window;
use memfit_ir::{Builder, Result, ValueId};

use super::{Activation, Dense, Padding, activation, dense, image};
use crate::Initializer;

/// What a [`max_pool`] or [`avg_pool`] is like. `Pool::new(2)` is a window of 2×2 with the same stride and no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Height and width of the window.
    pub size: [usize; 2],
    /// Pixels from one window to the next.
    pub stride: [usize; 2],
    /// What stands around the image.
    pub padding: Padding,
}

impl Pool {
    /// A square window with the same stride and no padding.
    pub fn new(size: usize) -> Self {
        Pool { size: [size; 2], stride: [size; 2], padding: Padding::Valid }
    }

    fn window(self, b: &Builder, x: ValueId) -> Result<Window> {
        let [_, height, width, _] = image(b, x)?;
        let pad = self.padding.resolve([height, width], self.size, self.stride, [1; 2]);
        Ok(Window { size: self.size, stride: self.stride, pad })
    }
}

/// The largest of each window, as `keras.layers.MaxPooling2D`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Pool, max_pool};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 16]))?;
/// let y = max_pool(&mut b, "pool", x, Pool::new(2))?;
/// assert_eq!(b.shape(y), [8, 16, 16, 16]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn max_pool(b: &mut Builder, name: impl ToString, x: ValueId, p: Pool) -> Result<ValueId> {
    b.scope(name, |b| {
        let window = p.window(b, x)?;
        b.max_pool(x, window)
    })
}

/// The mean of each window, as `keras.layers.AveragePooling2D`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Pool, avg_pool};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 16]))?;
/// let y = avg_pool(&mut b, "pool", x, Pool::new(4))?;
/// assert_eq!(b.shape(y), [8, 8, 8, 16]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn avg_pool(b: &mut Builder, name: impl ToString, x: ValueId, p: Pool) -> Result<ValueId> {
    b.scope(name, |b| {
        let window = p.window(b, x)?;
        b.avg_pool(x, window)
    })
}

/// What a [`squeeze_excite`] is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SqueezeExcite {
    /// Channels in the middle.
    pub squeeze: usize,
    /// Between the two dense layers.
    pub activation: Activation,
    /// Sigmoid or hard sigmoid.
    pub gate: Activation,
    /// How both weights start.
    pub init: Initializer,
}

/// Scales each channel by a gate that a small network computes from the means of all channels. States under `name/fc1` and `name/fc2`: 1×1 convolutions of a 1×1 image, which dense layers are.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::Initializer;
/// use memfit_nn::layers::{Activation, SqueezeExcite, squeeze_excite};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 64]))?;
/// let layer = SqueezeExcite {
///     squeeze: 16,
///     activation: Activation::Relu,
///     gate: Activation::Sigmoid,
///     init: Initializer::HE_NORMAL,
/// };
/// let y = squeeze_excite(&mut b, "se", x, layer)?;
/// assert_eq!(b.shape(y), [8, 32, 32, 64]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
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
