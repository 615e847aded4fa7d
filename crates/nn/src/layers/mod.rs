//! Layers. Each is a function that appends to a [`Builder`] under a scope of its own name, with a config struct where
//! there is more than one thing to say. A layer checks what it was given before it computes with it: a wrong size is
//! an error that names the layer, never a panic.

mod activation;
mod attention;
mod conv;
mod dense;
mod norm;
mod pool;

pub use activation::{Activation, activation, dropout};
pub use attention::{SelfAttention, self_attention};
pub use conv::{
    Conv2d, Conv2dTranspose, ConvBn, DepthwiseConv2d, Padding, conv_bn, conv2d, conv2d_transpose, depthwise_conv2d,
};
pub use dense::{Dense, Embedding, dense, embedding, flatten};
pub use norm::{BatchNorm, batch_norm, group_norm, layer_norm, rms_norm};
pub use pool::{Pool, SqueezeExcite, avg_pool, max_pool, squeeze_excite};

use memfit_ir::op::Init;
use memfit_ir::{Builder, Result, ValueId};

/// More than this in one tensor (4 TiB of f32) is a mistake, and the sizes that follow from it would overflow.
const MAX_ELEMENTS: usize = 1 << 40;

/// The number of elements, unless it is 0 or too large to be meant.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    let product = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    (1..=MAX_ELEMENTS).contains(&product).then_some(product)
}

/// Refuses a weight or a result before its size can overflow.
fn check_size(b: &Builder, what: &str, shape: &[usize]) -> Result<()> {
    match elements(shape) {
        Some(_) => Ok(()),
        None => b.fail(format!("{what} would be {shape:?}, which is empty or too large")),
    }
}

/// Extent of the last axis: what dense layers and norms work over.
fn channels(b: &Builder, x: ValueId) -> Result<usize> {
    match b.shape(x).last() {
        Some(&n) => Ok(n),
        None => b.fail(format!("the input must have at least one axis, but is {}", b.ty(x))),
    }
}

/// Samples, height, width and channels of an image.
fn image(b: &Builder, x: ValueId) -> Result<[usize; 4]> {
    match *b.shape(x) {
        [n, h, w, c] => Ok([n, h, w, c]),
        _ => b.fail(format!("the input must be an image (batch, height, width, channels), but is {}", b.ty(x))),
    }
}

/// y + bias, with a bias of zeros to start from; or y as it is.
fn add_bias(b: &mut Builder, y: ValueId, bias: bool) -> Result<ValueId> {
    if !bias {
        return Ok(y);
    }
    let n = channels(b, y)?;
    let bias = b.param("bias", [n], Init::Constant(0.0))?;
    b.add(y, bias)
}
