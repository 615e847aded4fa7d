//! What every model has around its layers: the inputs `x` and `y`, the loss, the outputs, and the check of the sizes
//! that a person gave.

use memfit_ir::{Builder, DType, Result as GraphResult, TensorType};

use super::{Network, Task};
use crate::error::Result;
use crate::forward::{Forward, Head};
use crate::layers::elements;
use crate::loss::Loss;
use crate::model::Mode;

/// What the labels of a training step are. Evaluation has them without mixing, smoothing and weights.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Labels {
    /// A distribution over the classes for every sample, instead of one class; for mixed samples. Of classes only.
    pub soft: bool,
    /// The share of each label that is spread over all classes. Not of masks.
    pub smoothing: f32,
    /// Numbers that are to be predicted, as many as there would be classes, by this loss; of networks that classify.
    pub values: Option<Loss>,
    /// Another input `w`: a weight for each label. Not of masks and tokens.
    pub weighted: bool,
}

/// What a network is for with such labels.
pub fn task(network: &dyn Network, labels: Labels) -> Task {
    match network.task() {
        Task::Classes if labels.values.is_some() => Task::Values,
        task => task,
    }
}

/// Inputs, then the network from x to the logits, then the loss and the outputs.
pub fn forward(network: &dyn Network, batch: usize, mode: Mode, labels: Labels) -> Result<Forward> {
    let plain = Labels { values: labels.values, ..Labels::default() };
    let labels = if mode == Mode::Train { labels } else { plain };
    let task = task(network, labels);
    let shape = [&[batch], &network.input()?[..]].concat();
    let dtype = if task == Task::Tokens { DType::I32 } else { DType::F32 };
    let x = TensorType::new(dtype, shape);
    let mut b = Builder::new();
    b.scope("x", |b| check(b, &x))?;
    b.scope("y", |b| check_labels(b, task, labels))?;
    let y = label_type(task, network.classes(), &x, labels);
    let weights = TensorType::f32(if task == Task::Values { vec![batch] } else { y.shape.to_vec() });
    let x = b.input("x", x)?;
    let y = b.input("y", y)?;
    let weights = if labels.weighted { Some(b.input("w", weights)?) } else { None };
    let logits = network.logits(&mut b, mode, x)?;
    let head = Head::new("logits", logits, loss(task, labels), y);
    let head = weights.into_iter().fold(head, Head::sample_weights);
    Forward::new(b, mode, &[head])
}

fn loss(task: Task, labels: Labels) -> Loss {
    let smoothing = labels.smoothing;
    match task {
        Task::Masks => Loss::BinaryCrossEntropy,
        Task::Classes if labels.soft => Loss::CrossEntropy { smoothing },
        Task::Values => labels.values.unwrap_or(Loss::MeanSquaredError),
        Task::Classes | Task::Tokens | Task::PixelClasses => Loss::SparseCrossEntropy { smoothing },
    }
}

fn label_type(task: Task, width: usize, x: &TensorType, labels: Labels) -> TensorType {
    match task {
        Task::Classes if labels.soft => TensorType::f32([x.shape[0], width]),
        Task::Classes => TensorType::i32([x.shape[0]]),
        Task::Values => TensorType::f32([x.shape[0], width]),
        Task::Tokens => TensorType::i32(x.shape.to_vec()),
        Task::PixelClasses => TensorType::i32(x.shape[..x.shape.rank() - 1].to_vec()),
        Task::Masks => {
            let mut shape = x.shape.to_vec();
            if let Some(channels) = shape.last_mut() {
                *channels = width;
            }
            TensorType::f32(shape)
        }
    }
}

fn check_labels(b: &Builder, task: Task, labels: Labels) -> GraphResult<()> {
    if let Some(loss) = labels.values {
        if task != Task::Values {
            return b.fail("only networks that classify can predict numbers instead");
        }
        if !loss.is_of_values() {
            return b.fail(format!("numbers are predicted by mse, mae, huber, log-cosh or poisson, not by {loss}"));
        }
    }
    if labels.soft && task != Task::Classes {
        return b.fail("only samples with one class each can have a distribution over the classes as label");
    }
    if labels.smoothing != 0.0 && matches!(task, Task::Masks | Task::Values) {
        let what = if task == Task::Masks { "the labels of masks" } else { "numbers that are predicted" };
        return b.fail(format!("{what} cannot be smoothed"));
    }
    if labels.weighted && (labels.soft || matches!(task, Task::Masks | Task::Tokens)) {
        return b.fail("only labels that are one class or numbers have weights");
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
