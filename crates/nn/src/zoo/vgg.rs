//! VGG-16 without batch norm, as in torchvision. Images of other sizes than 224×224 are flattened as they come out of
//! the convolutions (as in Keras), not pooled to 7×7: the first dense layer is then larger or smaller.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::width::{checked, scaled};
use super::{Choice, Labels, Network, Setting, Task, image};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{Conv2d, Dense, Padding, Pool, conv2d, dense, dropout, flatten, max_pool};
use crate::model::{Mode, Model};

/// Filters and number of the 3×3 convolutions before each pooling.
const STAGES: [(usize, usize); 5] = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)];

/// VGG-16: 13 convolutions and three dense layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Vgg16 {
    /// Height, width, channels.
    pub input: [usize; 3],
    /// The width of the last layer.
    pub classes: usize,
    /// The share of activations that is dropped before the last layer, in training.
    pub dropout: f32,
    /// What its channels are multiplied by: [`Setting::Scale`].
    pub width: f32,
}

impl Default for Vgg16 {
    fn default() -> Self {
        Vgg16 { input: [224, 224, 3], classes: 1000, dropout: 0.5, width: 1.0 }
    }
}

impl Vgg16 {
    fn features(&self, b: &mut Builder, mut x: ValueId) -> GraphResult<ValueId> {
        let [height, width, _] = self.input;
        if height < 32 || width < 32 {
            return b
                .fail(format!("five poolings leave nothing of {height}x{width}; the input must be at least 32x32"));
        }
        for (stage, &(filters, convolutions)) in (1..).zip(&STAGES) {
            for i in 1..=convolutions {
                let conv = Conv2d::new(scaled(filters, self.width), 3);
                let conv = Conv2d { padding: Padding::half(3), init: Initializer::HE_NORMAL_OUT, ..conv };
                x = conv2d(b, format!("conv{stage}_{i}"), x, conv)?;
                x = b.relu(x)?;
            }
            x = max_pool(b, format!("pool{stage}"), x, Pool::new(2))?;
        }
        Ok(x)
    }

    fn classifier(&self, b: &mut Builder, mode: Mode, mut x: ValueId) -> GraphResult<ValueId> {
        let fc = |units| Dense { init: Initializer::Normal { std: 0.01 }, ..Dense::new(units) };
        for name in ["fc1", "fc2"] {
            x = dense(b, name, x, fc(4096))?;
            x = b.relu(x)?;
            x = dropout(b, mode, x, self.dropout)?;
        }
        dense(b, "fc3", x, fc(self.classes))
    }
}

impl Model for Vgg16 {
    fn name(&self) -> &str {
        "vgg16"
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for Vgg16 {
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
        let x = b.scope("features", |b| self.features(b, x))?;
        let x = flatten(b, x)?;
        b.scope("classifier", |b| self.classifier(b, mode, x))
    }

    fn choices(&self) -> Vec<Choice> {
        vec![
            Choice::width(
                self.width,
                "times the channels of its convolutions, in eights; its dense layers keep their 4096",
            ),
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
