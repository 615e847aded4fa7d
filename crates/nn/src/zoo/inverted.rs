//! The inverted residual block that MobileNetV3 and EfficientNet share: 1×1 to many channels, depthwise,
//! squeeze-and-excite, 1×1 back to few.

use memfit_ir::{Builder, Result, ValueId};

use crate::layers::{Activation, BatchNorm, Conv2d, ConvBn, Padding, SqueezeExcite, conv_bn, squeeze_excite};
use crate::{Initializer, Mode};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvertedResidual {
    /// Of the depthwise convolution.
    pub kernel: usize,
    pub stride: usize,
    /// Channels in the middle; where they are as many as come in, nothing is expanded.
    pub expanded: usize,
    /// Channels out.
    pub out: usize,
    pub activation: Activation,
    pub excite: Option<SqueezeExcite>,
    pub norm: BatchNorm,
}

pub fn inverted_residual(
    b: &mut Builder,
    mode: Mode,
    name: impl ToString,
    x: ValueId,
    r: &InvertedResidual,
) -> Result<ValueId> {
    b.scope(name, |b| {
        let inputs = b.shape(x)[3];
        let mut y = x;
        if r.expanded != inputs {
            y = conv_bn(b, mode, "expand", y, same_conv(r.expanded, 1, 1, r.norm, r.activation))?;
        }
        let mut depthwise = same_conv(r.expanded, r.kernel, r.stride, r.norm, r.activation);
        depthwise.conv.groups = r.expanded;
        y = conv_bn(b, mode, "depthwise", y, depthwise)?;
        if let Some(excite) = r.excite {
            y = squeeze_excite(b, "se", y, excite)?;
        }
        y = conv_bn(b, mode, "project", y, same_conv(r.out, 1, 1, r.norm, Activation::Linear))?;
        if r.stride == 1 && inputs == r.out { b.add(x, y) } else { Ok(y) }
    })
}

/// A convolution that keeps height and width but for its stride, with torchvision's padding and initial values.
pub fn same_conv(filters: usize, size: usize, stride: usize, norm: BatchNorm, activation: Activation) -> ConvBn {
    let conv = Conv2d {
        stride: [stride; 2],
        padding: Padding::half(size),
        init: Initializer::HE_NORMAL_OUT,
        ..Conv2d::new(filters, size)
    };
    ConvBn { conv, norm, activation }
}
