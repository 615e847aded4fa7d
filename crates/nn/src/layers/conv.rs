//! Convolutions: plain, depthwise, transposed, and the triple convolution → batch norm → activation.

use memfit_ir::infer::same_padding;
use memfit_ir::op::{Conv, ConvTranspose, Pad2};
use memfit_ir::{Builder, Result, ValueId};

use super::{Activation, BatchNorm, activation, add_bias, batch_norm, check_size, image};
use crate::Mode;
use crate::init::{Fans, Initializer};

/// What stands around the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// The output is ⌈image ÷ stride⌉, as in TensorFlow.
    Same,
    /// Nothing.
    Valid,
    /// As many zeros on each side as said; PyTorch's padding p is `Explicit(Pad2::all(p))`.
    Explicit(Pad2),
}

impl Padding {
    /// PyTorch's way to keep the size at stride 1: (window − 1) ÷ 2 on all sides. Differs from `Same` at stride 2.
    pub fn half(window: usize) -> Self {
        Padding::Explicit(Pad2::all(window.saturating_sub(1) / 2))
    }

    pub(super) fn resolve(self, image: [usize; 2], window: [usize; 2], stride: [usize; 2], dil: [usize; 2]) -> Pad2 {
        match self {
            Padding::Same => same_padding(image, window, stride, dil),
            Padding::Valid => Pad2::NONE,
            Padding::Explicit(pad) => pad,
        }
    }
}

/// What a [`conv2d`] is like. `Conv2d::new(64, 3)` is 64 filters of 3×3; pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2d {
    /// Channels out.
    pub filters: usize,
    /// Height and width of a filter.
    pub size: [usize; 2],
    /// Pixels from one place of the filter to the next.
    pub stride: [usize; 2],
    /// What stands around the image.
    pub padding: Padding,
    /// Pixels between two taps of a filter; 1 is a dense one.
    pub dilation: [usize; 2],
    /// Groups of channels that are convolved by themselves.
    pub groups: usize,
    /// Whether a bias is added.
    pub bias: bool,
    /// How the filters start.
    pub init: Initializer,
}

impl Conv2d {
    /// Stride 1, no padding, a bias, Glorot uniform: Keras' defaults.
    pub fn new(filters: usize, size: usize) -> Self {
        Conv2d {
            filters,
            size: [size; 2],
            stride: [1; 2],
            padding: Padding::Valid,
            dilation: [1; 2],
            groups: 1,
            bias: true,
            init: Initializer::GLOROT_UNIFORM,
        }
    }
}

/// A convolution of NHWC images, as `keras.layers.Conv2D`. States: `weight [height, width, in ÷ groups, filters]`,
/// `bias [filters]`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Conv2d, Padding, conv2d};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 3]))?;
/// let y = conv2d(&mut b, "conv1", x, Conv2d { stride: [2; 2], padding: Padding::Same, ..Conv2d::new(64, 3) })?;
/// assert_eq!(b.shape(y), [8, 16, 16, 64]);
/// assert_eq!(b.shape(b.graph().state("conv1/weight").unwrap()), [3, 3, 3, 64]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn conv2d(b: &mut Builder, name: impl ToString, x: ValueId, c: Conv2d) -> Result<ValueId> {
    b.scope(name, |b| {
        let [samples, height, width, inputs] = image(b, x)?;
        check_filters(b, inputs, c.filters, c.groups)?;
        let per_group = inputs / c.groups;
        let shape = [c.size[0], c.size[1], per_group, c.filters];
        check_size(b, "the weight", &shape)?;
        check_size(b, "the output", &[samples, height, width, c.filters])?;
        let area = c.size[0] * c.size[1];
        // One input feeds the filters of its own group only.
        let fans = Fans { fan_in: area * per_group, fan_out: area * c.filters / c.groups };
        let weight = b.param("weight", shape, c.init.resolve(fans))?;
        let pad = c.padding.resolve([height, width], c.size, c.stride, c.dilation);
        let y = b.conv(x, weight, Conv { stride: c.stride, pad, dilation: c.dilation, groups: c.groups })?;
        add_bias(b, y, c.bias)
    })
}

fn check_filters(b: &Builder, inputs: usize, filters: usize, groups: usize) -> Result<()> {
    if filters == 0 {
        return b.fail("a convolution needs at least 1 filter, but was given 0");
    }
    if groups == 0 || !inputs.is_multiple_of(groups) || !filters.is_multiple_of(groups) {
        return b.fail(format!("{groups} groups do not divide the {inputs} channels in and the {filters} filters"));
    }
    Ok(())
}

/// What a [`depthwise_conv2d`] is like: a filter for every channel. `DepthwiseConv2d::new(3)` is 3×3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthwiseConv2d {
    /// Height and width of a filter.
    pub size: [usize; 2],
    /// Pixels from one place of the filter to the next.
    pub stride: [usize; 2],
    /// What stands around the image.
    pub padding: Padding,
    /// Pixels between two taps of a filter; 1 is a dense one.
    pub dilation: [usize; 2],
    /// Whether a bias is added.
    pub bias: bool,
    /// How the filters start.
    pub init: Initializer,
}

impl DepthwiseConv2d {
    /// Stride 1, no padding, a bias, Glorot uniform: Keras' defaults.
    pub fn new(size: usize) -> Self {
        let c = Conv2d::new(1, size);
        DepthwiseConv2d {
            size: c.size,
            stride: c.stride,
            padding: c.padding,
            dilation: c.dilation,
            bias: c.bias,
            init: c.init,
        }
    }
}

/// A convolution of each channel by itself, as `keras.layers.DepthwiseConv2D` with a multiplier of 1. States: `weight
/// [height, width, 1, channels]`, `bias [channels]`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{DepthwiseConv2d, Padding, depthwise_conv2d};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 24]))?;
/// let y = depthwise_conv2d(&mut b, "dw", x, DepthwiseConv2d { padding: Padding::Same, ..DepthwiseConv2d::new(3) })?;
/// assert_eq!(b.shape(y), [8, 32, 32, 24]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn depthwise_conv2d(b: &mut Builder, name: impl ToString, x: ValueId, d: DepthwiseConv2d) -> Result<ValueId> {
    let name = name.to_string();
    let channels = b.scope(&name, |b| image(b, x))?[3];
    let c = Conv2d {
        filters: channels,
        groups: channels,
        size: d.size,
        stride: d.stride,
        padding: d.padding,
        dilation: d.dilation,
        bias: d.bias,
        init: d.init,
    };
    conv2d(b, name, x, c)
}

/// What a [`conv2d_transpose`] is like. `Conv2dTranspose::new(64, 2)` is 64 filters of 2×2. The padding is that of the convolution that goes the other way:
/// it makes the output smaller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2dTranspose {
    /// Channels out.
    pub filters: usize,
    /// Height and width of a filter.
    pub size: [usize; 2],
    /// Pixels of the output for one of the input.
    pub stride: [usize; 2],
    /// What is cut off the output.
    pub padding: Padding,
    /// Whether a bias is added.
    pub bias: bool,
    /// How the filters start.
    pub init: Initializer,
}

impl Conv2dTranspose {
    /// Stride 1, no padding, a bias, Glorot uniform: Keras' defaults.
    pub fn new(filters: usize, size: usize) -> Self {
        let init = Initializer::GLOROT_UNIFORM;
        Conv2dTranspose { filters, size: [size; 2], stride: [1; 2], padding: Padding::Valid, bias: true, init }
    }

    /// Height and width out, or nothing where the padding takes all of it.
    fn output(&self, image: [usize; 2]) -> Option<[usize; 2]> {
        let full = |i: usize| Some(image[i].checked_sub(1)? * self.stride[i] + self.size[i]);
        let size = match self.padding {
            Padding::Same => [image[0] * self.stride[0], image[1] * self.stride[1]],
            Padding::Valid => [full(0)?, full(1)?],
            Padding::Explicit(p) => [full(0)?.checked_sub(p.top + p.bottom)?, full(1)?.checked_sub(p.left + p.right)?],
        };
        (size[0] > 0 && size[1] > 0).then_some(size)
    }
}

/// The gradient of a convolution as a layer, as `keras.layers.Conv2DTranspose`: it makes images larger. States: `weight
/// [height, width, filters, in]`, `bias [filters]`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Conv2dTranspose, conv2d_transpose};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 16, 16, 64]))?;
/// let y = conv2d_transpose(&mut b, "up", x, Conv2dTranspose { stride: [2; 2], ..Conv2dTranspose::new(32, 2) })?;
/// assert_eq!(b.shape(y), [8, 32, 32, 32]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn conv2d_transpose(b: &mut Builder, name: impl ToString, x: ValueId, c: Conv2dTranspose) -> Result<ValueId> {
    b.scope(name, |b| {
        let [samples, height, width, inputs] = image(b, x)?;
        check_filters(b, inputs, c.filters, 1)?;
        let Some(size) = c.output([height, width]) else {
            return b.fail(format!("nothing is left of the image {} after the padding {:?}", b.ty(x), c.padding));
        };
        let shape = [c.size[0], c.size[1], c.filters, inputs];
        check_size(b, "the weight", &shape)?;
        check_size(b, "the output", &[samples, size[0], size[1], c.filters])?;
        let area = c.size[0] * c.size[1];
        let fans = Fans { fan_in: area * inputs, fan_out: area * c.filters };
        let weight = b.param("weight", shape, c.init.resolve(fans))?;
        let pad = c.padding.resolve(size, c.size, c.stride, [1; 2]);
        let conv = Conv { stride: c.stride, pad, dilation: [1; 2], groups: 1 };
        let y = b.conv_transpose(x, weight, ConvTranspose { conv, size })?;
        add_bias(b, y, c.bias)
    })
}

/// What a [`conv_bn`] is like: a convolution (its own bias would be lost in the norm, so it is switched off), a batch
/// norm, an activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvBn {
    /// The convolution.
    pub conv: Conv2d,
    /// The norm of its results.
    pub norm: BatchNorm,
    /// What comes last.
    pub activation: Activation,
}

/// Convolution, batch norm, activation: the block of most convnets. States under `name/conv` and `name/bn`.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::Mode;
/// use memfit_nn::layers::{Activation, BatchNorm, Conv2d, ConvBn, conv_bn};
///
/// let mut b = Builder::new();
/// let x = b.input("x", TensorType::f32([8, 32, 32, 3]))?;
/// let layer = ConvBn { conv: Conv2d::new(16, 3), norm: BatchNorm::default(), activation: Activation::Relu };
/// let y = conv_bn(&mut b, Mode::Train, "block", x, layer)?;
/// assert_eq!(b.shape(y), [8, 30, 30, 16]);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn conv_bn(b: &mut Builder, mode: Mode, name: impl ToString, x: ValueId, c: ConvBn) -> Result<ValueId> {
    b.scope(name, |b| {
        let y = conv2d(b, "conv", x, Conv2d { bias: false, ..c.conv })?;
        let y = batch_norm(b, mode, "bn", y, c.norm)?;
        activation(b, y, c.activation)
    })
}
