//! EfficientNet-B0 as in torchvision, but without stochastic depth: torchvision skips whole blocks at random in
//! training (up to one in five), this model never does. Evaluation is the same.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::inverted::{InvertedResidual, inverted_residual, same_conv};
use super::width::{checked, scaled};
use super::{Choice, Labels, Network, Setting, Task, image};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{Activation, BatchNorm, Dense, SqueezeExcite, conv_bn, dense, dropout};
use crate::model::{Mode, Model};

/// Expansion, kernel, stride of the first block, channels out, blocks.
const STAGES: [(usize, usize, usize, usize, usize); 7] = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
];

/// EfficientNet-B0: `keras.applications.EfficientNetB0`, without its preprocessing layers.
#[derive(Clone, Debug, PartialEq)]
pub struct EfficientNetB0 {
    /// Height, width, channels.
    pub input: [usize; 3],
    /// The width of the last layer.
    pub classes: usize,
    /// The share of activations that is dropped before the last layer, in training.
    pub dropout: f32,
    /// What its channels are multiplied by: [`Setting::Scale`].
    pub width: f32,
}

impl Default for EfficientNetB0 {
    fn default() -> Self {
        EfficientNetB0 { input: [224, 224, 3], classes: 1000, dropout: 0.2, width: 1.0 }
    }
}

impl Model for EfficientNetB0 {
    fn name(&self) -> &str {
        "efficientnet_b0"
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for EfficientNetB0 {
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
        let x = b.scope("features", |b| features(b, mode, x, self.width))?;
        let x = b.global_avg_pool(x)?;
        b.scope("classifier", |b| {
            let x = dropout(b, mode, x, self.dropout)?;
            let limit = 1.0 / (self.classes.max(1) as f32).sqrt();
            dense(b, "fc", x, Dense { init: Initializer::Uniform { limit }, ..Dense::new(self.classes) })
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

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}

/// The stem and the stages at this width; the last convolution belongs to the head, and keeps its own.
fn features(b: &mut Builder, mode: Mode, x: ValueId, width: f32) -> GraphResult<ValueId> {
    let norm = BatchNorm::default();
    let mut x = conv_bn(b, mode, "stem", x, same_conv(scaled(32, width), 3, 2, norm, Activation::Silu))?;
    for (stage, &(expansion, kernel, stride, out, blocks)) in (1..).zip(&STAGES) {
        x = b.scope(stage, |b| {
            let mut x = x;
            for i in 0..blocks {
                let inputs = b.shape(x)[3];
                let block = InvertedResidual {
                    kernel,
                    stride: if i == 0 { stride } else { 1 },
                    expanded: inputs * expansion,
                    out: scaled(out, width),
                    activation: Activation::Silu,
                    excite: Some(excite(inputs)),
                    norm,
                };
                x = inverted_residual(b, mode, i, x, &block)?;
            }
            Ok(x)
        })?;
    }
    conv_bn(b, mode, "head", x, same_conv(1280, 1, 1, norm, Activation::Silu))
}

/// Squeezed to a quarter of what the block is given, not of what it expands to.
fn excite(inputs: usize) -> SqueezeExcite {
    SqueezeExcite {
        squeeze: (inputs / 4).max(1),
        activation: Activation::Silu,
        gate: Activation::Sigmoid,
        init: Initializer::HE_NORMAL_OUT,
    }
}
