//! The multi-layer perceptron: dense layers with an activation between them.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::{Choice, Labels, Network, Setting, Task, option};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{Activation, Dense, activation, dense, dropout, elements};
use crate::model::{Mode, Model};

/// Most hidden layers; no known network of only dense layers has more.
const MOST_LAYERS: usize = 64;

/// Dense layers with an activation, and dropout if there is to be any, after each but the last.
///
/// ```
/// use memfit_nn::{Mode, Model, zoo::Mlp};
///
/// let mlp = Mlp::new(784, &[256], 10);
/// assert_eq!(mlp.build(32, Mode::Train)?.graph.param_count(), 785 * 256 + 257 * 10);
/// # Ok::<(), memfit_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Numbers in a sample.
    pub features: usize,
    /// Widths of the hidden layers; where nobody says them they are [`Mlp::usual_hidden`].
    pub hidden: Option<Vec<usize>>,
    /// The width of the last layer.
    pub classes: usize,
    /// After each hidden layer.
    pub activation: Activation,
    /// The share of activations that is dropped after each hidden layer, in training.
    pub dropout: f32,
}

impl Default for Mlp {
    fn default() -> Self {
        Mlp { features: 784, hidden: None, classes: 10, activation: Activation::Relu, dropout: 0.0 }
    }
}

impl Mlp {
    /// With ReLU and no dropout.
    pub fn new(features: usize, hidden: &[usize], classes: usize) -> Mlp {
        Mlp { features, hidden: Some(hidden.to_vec()), classes, ..Mlp::default() }
    }

    /// Widths of the hidden layers for samples of so many numbers, where nobody says them: two layers of the power of two that
    /// is at least twice as much, from 64 to 2048. A table of 5 columns gets 64, an image of 28×28 gets 2048.
    pub fn usual_hidden(features: usize) -> [usize; 2] {
        [features.saturating_mul(2).clamp(64, 2048).next_power_of_two(); 2]
    }

    fn hidden(&self) -> Vec<usize> {
        self.hidden.clone().unwrap_or_else(|| Mlp::usual_hidden(self.features).to_vec())
    }
}

impl Model for Mlp {
    fn name(&self) -> &str {
        "mlp"
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for Mlp {
    fn task(&self) -> Task {
        Task::Classes
    }

    fn input(&self) -> Result<Vec<usize>> {
        Ok(vec![self.features])
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn logits(&self, b: &mut Builder, mode: Mode, mut x: ValueId) -> GraphResult<ValueId> {
        let hidden = self.hidden();
        let fc = |units: usize| Dense { init: Initializer::HE_NORMAL, ..Dense::new(units) };
        for (i, &units) in (1..).zip(&hidden) {
            x = dense(b, format!("fc{i}"), x, fc(units))?;
            x = activation(b, x, self.activation)?;
            x = dropout(b, mode, x, self.dropout)?;
        }
        dense(b, format!("fc{}", hidden.len() + 1), x, fc(self.classes))
    }

    fn choices(&self) -> Vec<Choice> {
        vec![
            Choice::new(
                "hidden",
                format!("{:?}", self.hidden()),
                "up to 64 widths; [] for a linear model",
                "units of each hidden layer; by itself two layers, of the power of two that is at least twice the input's size, 64 to 2048",
            ),
            Choice::new(
                "activation",
                self.activation.name(),
                "a name",
                "after each hidden layer: relu, relu6, leaky_relu, elu, gelu, gelu_tanh, silu, tanh, sigmoid, softplus, hard_sigmoid, \
                 hard_swish, linear",
            ),
            Choice::new(
                "dropout",
                self.dropout,
                "0 to less than 1",
                "share of each hidden layer that is dropped, in training",
            ),
        ]
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => match elements(&sample) {
                Some(features) => self.features = features,
                None => return option("mlp", format!("an input of {sample:?} is empty or too large")),
            },
            Setting::Classes(classes) => self.classes = classes,
            Setting::Hidden(hidden) if hidden.len() > MOST_LAYERS => {
                return option("hidden", format!("must be of at most {MOST_LAYERS} layers, but has {}", hidden.len()));
            }
            Setting::Hidden(hidden) => self.hidden = Some(hidden),
            Setting::Activation(activation) => self.activation = activation,
            Setting::Dropout(rate) => self.dropout = rate,
            other => return Err(other.refuse(self)),
        }
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}
