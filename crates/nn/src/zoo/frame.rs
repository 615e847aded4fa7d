//! What every model has around its layers: the inputs `x` and `y`, the loss, the outputs, and the check of the sizes
//! that a person gave.

use memfit_ir::{Builder, DType, Result as GraphResult, TensorType};

use super::{Network, Task};
use crate::error::Result;
use crate::forward::{Forward, Head};
use crate::layers::elements;
use crate::loss::Loss;
use crate::model::Mode;

/// What the labels of a training step are. Evaluation always has plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Labels {
    /// A distribution over the classes for every sample, instead of one class; for mixed samples. Of classes only.
    pub soft: bool,
    /// The share of each label that is spread over all classes. Not of masks.
    pub smoothing: f32,
}

/// Inputs, then the network from x to the logits, then the loss and the outputs.
pub fn forward(network: &dyn Network, batch: usize, mode: Mode, labels: Labels) -> Result<Forward> {
    let labels = if mode == Mode::Train { labels } else { Labels::default() };
    let shape = [&[batch], &network.input()?[..]].concat();
    let dtype = if network.task() == Task::Tokens { DType::I32 } else { DType::F32 };
    let x = TensorType::new(dtype, shape);
    let mut b = Builder::new();
    b.scope("x", |b| check(b, &x))?;
    b.scope("y", |b| check_labels(b, network.task(), labels))?;
    let y = label_type(network, &x, labels);
    let x = b.input("x", x)?;
    let y = b.input("y", y)?;
    let logits = network.logits(&mut b, mode, x)?;
    Forward::new(b, mode, &[Head::new("logits", logits, loss(network.task(), labels), y)])
}

fn loss(task: Task, labels: Labels) -> Loss {
    let smoothing = labels.smoothing;
    match task {
        Task::Masks => Loss::BinaryCrossEntropy,
        Task::Classes if labels.soft => Loss::CrossEntropy { smoothing },
        Task::Classes | Task::Tokens | Task::PixelClasses => Loss::SparseCrossEntropy { smoothing },
    }
}

fn label_type(network: &dyn Network, x: &TensorType, labels: Labels) -> TensorType {
    match network.task() {
        Task::Classes if labels.soft => TensorType::f32([x.shape[0], network.classes()]),
        Task::Classes => TensorType::i32([x.shape[0]]),
        Task::Tokens => TensorType::i32(x.shape.to_vec()),
        Task::PixelClasses => TensorType::i32(x.shape[..x.shape.rank() - 1].to_vec()),
        Task::Masks => {
            let mut shape = x.shape.to_vec();
            if let Some(channels) = shape.last_mut() {
                *channels = network.classes();
            }
            TensorType::f32(shape)
        }
    }
}

fn check_labels(b: &Builder, task: Task, labels: Labels) -> GraphResult<()> {
    if labels.soft && task != Task::Classes {
        return b.fail("only samples with one class each can have a distribution over the classes as label");
    }
    if labels.smoothing != 0.0 && task == Task::Masks {
        return b.fail("the labels of masks cannot be smoothed");
    }
    if !(0.0..1.0).contains(&labels.smoothing) {
        return b.fail(format!("labels can be smoothed by 0 up to less than 1, not by {}", labels.smoothing));
    }
    Ok(())
}

fn check(b: &Builder, x: &TensorType) -> GraphResult<()> {
    let batch = x.shape[0];
    if batch == 0 {
        return b.fail("the batch size is 0; it must be at least 1");
    }
    // The clock counts samples in i32.
    if i32::try_from(batch).is_err() {
        return b.fail(format!("the batch size {batch} is too large; it must be less than 2^31"));
    }
    if elements(&x.shape).is_none() {
        return b.fail(format!("an input of {x} is empty or too large; every size must be at least 1"));
    }
    Ok(())
}
