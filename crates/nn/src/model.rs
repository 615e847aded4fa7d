//! What can be planned and trained: a name, and a forward graph for any batch size and mode. The zoo's networks are
//! models, and so is any type or closure of one's own.

use crate::error::Result;
use crate::forward::{Forward, HeadInfo};

/// What a graph is built for. Only batch norm and dropout differ; names and shapes of the states are the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Statistics of the batch are used and the running ones are updated; dropout is on.
    Train,
    /// Running statistics are used; dropout is the identity. No state changes.
    Eval,
}

/// A model: a function from a batch size and a [`Mode`] to a [`Forward`] pass, which has its inputs, outputs, losses and
/// metrics by name.
///
/// Shapes are concrete, so that every byte of a step can be planned: the planner builds a model for each micro-batch
/// that it looks at. Building must be a pure function: the same model gives the same graph, with the same states in both
/// modes.
///
/// A model with two inputs and two outputs, whose total loss is `1.0 · digit + 0.1 · size`:
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Conv2d, Dense, conv2d, dense, flatten};
/// use memfit_nn::{Forward, Head, Loss, Mode, Model, Result};
///
/// struct Mine;
///
/// impl Model for Mine {
///     fn name(&self) -> &str {
///         "mine"
///     }
///
///     fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
///         let mut b = Builder::new();
///         let image = b.input("image", TensorType::f32([batch, 8, 8, 1]))?;
///         let features = b.input("features", TensorType::f32([batch, 3]))?;
///         let class = b.input("class", TensorType::i32([batch]))?;
///         let area = b.input("area", TensorType::f32([batch, 1]))?;
///
///         let x = conv2d(&mut b, "conv", image, Conv2d::new(8, 3))?;
///         let x = b.relu(x)?;
///         let x = flatten(&mut b, x)?;
///         let x = b.concat(&[x, features], 1)?;
///         let digit = dense(&mut b, "digit", x, Dense::new(10))?;
///         let size = dense(&mut b, "size", x, Dense::new(1))?;
///
///         Forward::new(
///             b,
///             mode,
///             &[
///                 Head::new("digit", digit, Loss::SparseCrossEntropy { smoothing: 0.0 }, class),
///                 Head::new("size", size, Loss::MeanSquaredError, area).weight(0.1),
///             ],
///         )
///     }
/// }
///
/// let forward = Mine.build(32, Mode::Train)?;
/// let names: Vec<&str> = forward.graph.outputs.iter().map(|(name, _)| name.as_str()).collect();
/// assert_eq!(names, ["loss", "digit/loss", "digit", "size/loss", "size"]);
/// # Ok::<(), memfit_nn::Error>(())
/// ```
pub trait Model {
    /// What it is called, in plans and messages.
    fn name(&self) -> &str;

    /// The forward pass for batches of this size, from the inputs to the losses.
    fn build(&self, batch: usize, mode: Mode) -> Result<Forward>;

    /// The next smaller model that could stand in for this one, with the same inputs and outputs: where a run does not
    /// fit, such siblings are planned and named among the fixes. None where there is none.
    fn smaller(&self) -> Option<Box<dyn Model>> {
        None
    }

    /// What it is evaluated by: the heads of its forward pass in [`Mode::Eval`].
    fn heads(&self) -> Result<Vec<HeadInfo>> {
        Ok(self.build(1, Mode::Eval)?.heads)
    }
}

impl<M: Model + ?Sized> Model for Box<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        (**self).build(batch, mode)
    }

    fn smaller(&self) -> Option<Box<dyn Model>> {
        (**self).smaller()
    }

    fn heads(&self) -> Result<Vec<HeadInfo>> {
        (**self).heads()
    }
}

/// A model made of a function: see [`from_fn`].
#[derive(Clone)]
pub struct FromFn<F> {
    name: String,
    build: F,
}

/// Makes a [`Model`] of a function or closure.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::layers::{Dense, dense};
/// use memfit_nn::{Forward, Head, Loss, Mode, Model, from_fn};
///
/// let units = 3;
/// let linear = from_fn("linear", move |batch, mode| {
///     let mut b = Builder::new();
///     let x = b.input("x", TensorType::f32([batch, 4]))?;
///     let target = b.input("target", TensorType::f32([batch, units]))?;
///     let y = dense(&mut b, "fc", x, Dense::new(units))?;
///     Forward::new(b, mode, &[Head::new("y", y, Loss::MeanSquaredError, target)])
/// });
/// assert_eq!(linear.build(8, Mode::Eval)?.graph.param_count(), 4 * 3 + 3);
/// # Ok::<(), memfit_nn::Error>(())
/// ```
pub fn from_fn<F: Fn(usize, Mode) -> Result<Forward>>(name: impl Into<String>, build: F) -> FromFn<F> {
    FromFn { name: name.into(), build }
}

impl<F: Fn(usize, Mode) -> Result<Forward>> Model for FromFn<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        (self.build)(batch, mode)
    }
}
