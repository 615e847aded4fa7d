//! A small convnet for small images, such as the 8×8 digits that come with memfit.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::choice::checked_kernel;
use super::frame::forward;
use super::width::{checked, scaled};
use super::{Choice, Labels, Network, Setting, Task, image};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{
    Activation, BatchNorm, Conv2d, ConvBn, Dense, Padding, Pool, conv_bn, dense, dropout, flatten, max_pool,
};
use crate::model::{Mode, Model};

/// Three convolutions with batch norm, one pooling, dropout, a dense layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Digits {
    /// Height, width, channels.
    pub input: [usize; 3],
    /// The width of the last layer.
    pub classes: usize,
    /// The share of activations that is dropped before the last layer, in training.
    pub dropout: f32,
    /// What its channels are multiplied by: [`Setting::Scale`].
    pub width: f32,
    /// Height and width of its convolutions, odd.
    pub kernel: usize,
}

impl Default for Digits {
    fn default() -> Self {
        Digits { input: [8, 8, 1], classes: 10, dropout: 0.25, width: 1.0, kernel: 3 }
    }
}

impl Digits {
    fn conv(&self, filters: usize) -> ConvBn {
        let conv = Conv2d::new(scaled(filters, self.width), self.kernel);
        let conv = Conv2d { padding: Padding::Same, init: Initializer::HE_NORMAL, ..conv };
        ConvBn { conv, norm: BatchNorm::default(), activation: Activation::Relu }
    }
}

impl Model for Digits {
    fn name(&self) -> &str {
        "digits"
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for Digits {
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
        let x = conv_bn(b, mode, "conv1", x, self.conv(32))?;
        let x = conv_bn(b, mode, "conv2", x, self.conv(32))?;
        let x = max_pool(b, "pool", x, Pool::new(2))?;
        let x = conv_bn(b, mode, "conv3", x, self.conv(64))?;
        // Not pooled to one pixel: where a stroke is tells a 6 from a 9.
        let x = flatten(b, x)?;
        let x = dropout(b, mode, x, self.dropout)?;
        dense(b, "fc", x, Dense::new(self.classes))
    }

    fn choices(&self) -> Vec<Choice> {
        vec![
            Choice::width(self.width, "times the channels of its convolutions (32, 32, 64), in eights"),
            Choice::kernel(self.kernel),
            Choice::dropout(self.dropout),
        ]
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => self.input = image(&sample)?,
            Setting::Classes(classes) => self.classes = classes,
            Setting::Dropout(rate) => self.dropout = rate,
            Setting::Scale(width) => self.width = checked(width)?,
            Setting::Kernel(kernel) => self.kernel = checked_kernel(kernel)?,
            other => return Err(other.refuse(self)),
        }
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}
