//! MobileNetV3, small and large, as in torchvision.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::inverted::{InvertedResidual, inverted_residual, same_conv};
use super::width::{checked, divisible_by_8, scaled};
use super::{Choice, Labels, Network, Setting, Task, image};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{Activation, BatchNorm, Dense, SqueezeExcite, activation, conv_bn, dense, dropout};
use crate::model::{Mode, Model};

const NORM: BatchNorm = BatchNorm { eps: 1e-3, momentum: 0.99 };

/// MobileNetV3: depthwise convolutions in inverted residual blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct MobileNetV3 {
    /// Small or large.
    pub size: Size,
    /// Height, width, channels.
    pub input: [usize; 3],
    /// The width of the last layer.
    pub classes: usize,
    /// The share of activations that is dropped before the last layer, in training.
    pub dropout: f32,
    /// What its channels are multiplied by: [`Setting::Scale`].
    pub width: f32,
}

/// The two sizes that the paper has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 2.5 million parameters.
    Small,
    /// 5.5 million parameters.
    Large,
}

/// Kernel, expanded channels, channels out, squeeze-and-excite, activation, stride.
type Row = (usize, usize, usize, bool, Activation, usize);
const RE: Activation = Activation::Relu;
const HS: Activation = Activation::HardSwish;

const SMALL: [Row; 11] = [
    (3, 16, 16, true, RE, 2),
    (3, 72, 24, false, RE, 2),
    (3, 88, 24, false, RE, 1),
    (5, 96, 40, true, HS, 2),
    (5, 240, 40, true, HS, 1),
    (5, 240, 40, true, HS, 1),
    (5, 120, 48, true, HS, 1),
    (5, 144, 48, true, HS, 1),
    (5, 288, 96, true, HS, 2),
    (5, 576, 96, true, HS, 1),
    (5, 576, 96, true, HS, 1),
];

const LARGE: [Row; 15] = [
    (3, 16, 16, false, RE, 1),
    (3, 64, 24, false, RE, 2),
    (3, 72, 24, false, RE, 1),
    (5, 72, 40, true, RE, 2),
    (5, 120, 40, true, RE, 1),
    (5, 120, 40, true, RE, 1),
    (3, 240, 80, false, HS, 2),
    (3, 200, 80, false, HS, 1),
    (3, 184, 80, false, HS, 1),
    (3, 184, 80, false, HS, 1),
    (3, 480, 112, true, HS, 1),
    (3, 672, 112, true, HS, 1),
    (5, 672, 160, true, HS, 2),
    (5, 960, 160, true, HS, 1),
    (5, 960, 160, true, HS, 1),
];

impl MobileNetV3 {
    /// For ImageNet: 224×224×3 in 1000 classes.
    pub fn new(size: Size) -> Self {
        MobileNetV3 { size, input: [224, 224, 3], classes: 1000, dropout: 0.2, width: 1.0 }
    }
}

impl Model for MobileNetV3 {
    fn name(&self) -> &str {
        match self.size {
            Size::Small => "mobilenet_v3_small",
            Size::Large => "mobilenet_v3_large",
        }
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }

    fn smaller(&self) -> Option<Box<dyn Model>> {
        Some(self.sibling()?)
    }
}

impl Network for MobileNetV3 {
    fn task(&self) -> Task {
        Task::Classes
    }

    fn input(&self) -> Result<Vec<usize>> {
        Ok(self.input.to_vec())
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn logits(&self, b: &mut Builder, mode: Mode, x: ValueId) -> GraphResult<ValueId> {
        let (rows, head, hidden) = match self.size {
            Size::Small => (&SMALL[..], 576, 1024),
            Size::Large => (&LARGE[..], 960, 1280),
        };
        let x = b.scope("features", |b| features(b, mode, x, rows, head, self.width))?;
        let x = b.global_avg_pool(x)?;
        b.scope("classifier", |b| {
            let x = dense(b, "fc1", x, fc(hidden))?;
            let x = activation(b, x, HS)?;
            let x = dropout(b, mode, x, self.dropout)?;
            dense(b, "fc2", x, fc(self.classes))
        })
    }

    fn choices(&self) -> Vec<Choice> {
        vec![
            Choice::width(self.width, "times the channels of its blocks, in eights; its head stays as wide"),
            Choice::dropout(self.dropout),
        ]
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => self.input = image(&sample)?,
            Setting::Classes(classes) => self.classes = classes,
            Setting::Dropout(rate) => self.dropout = rate,
            Setting::Scale(width) => self.width = checked(width)?,
            other => return Err(other.refuse(self)),
        }
        Ok(())
    }

    fn sibling(&self) -> Option<Box<dyn Network>> {
        match self.size {
            Size::Small => None,
            Size::Large => Some(Box::new(MobileNetV3 { size: Size::Small, ..self.clone() })),
        }
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}

/// The stem and the blocks at this width; the last convolution belongs to the head, and keeps its own.
fn features(b: &mut Builder, mode: Mode, x: ValueId, rows: &[Row], head: usize, width: f32) -> GraphResult<ValueId> {
    let mut x = conv_bn(b, mode, "stem", x, same_conv(scaled(16, width), 3, 2, NORM, HS))?;
    for (i, &(kernel, expanded, out, excite, activation, stride)) in (1..).zip(rows) {
        let (expanded, out) = (scaled(expanded, width), scaled(out, width));
        let excite = excite.then(|| SqueezeExcite {
            squeeze: divisible_by_8(expanded / 4),
            activation: Activation::Relu,
            gate: Activation::HardSigmoid,
            init: Initializer::HE_NORMAL_OUT,
        });
        let block = InvertedResidual { kernel, stride, expanded, out, activation, excite, norm: NORM };
        x = inverted_residual(b, mode, i, x, &block)?;
    }
    conv_bn(b, mode, "head", x, same_conv(head, 1, 1, NORM, HS))
}

fn fc(units: usize) -> Dense {
    Dense { init: Initializer::Normal { std: 0.01 }, ..Dense::new(units) }
}
