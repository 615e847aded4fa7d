//! What every model has around its layers: the inputs `x` and `y`, the loss, the outputs, and the check of the sizes
//! that a person gave.

use memfit_ir::{Builder, Result as GraphResult, TensorType, ValueId};

use super::Forward;
use crate::error::Result;
use crate::layers::elements;
use crate::loss;

/// From predictions and labels to a scalar.
pub type Loss = fn(&mut Builder, ValueId, ValueId) -> GraphResult<ValueId>;

/// A model from f32 samples to i32 classes.
pub fn classifier(
    batch: usize,
    sample: &[usize],
    body: impl FnOnce(&mut Builder, ValueId) -> GraphResult<ValueId>,
) -> Result<Forward> {
    let x = TensorType::f32([&[batch], sample].concat());
    forward(x, TensorType::i32([batch]), classes_loss, body)
}

/// Inputs, then `body` from x to the logits, then the loss and the outputs.
pub fn forward(
    x: TensorType,
    y: TensorType,
    loss: Loss,
    body: impl FnOnce(&mut Builder, ValueId) -> GraphResult<ValueId>,
) -> Result<Forward> {
    let mut b = Builder::new();
    b.scope("x", |b| check(b, &x))?;
    let x = b.input("x", x)?;
    let y = b.input("y", y)?;
    let logits = body(&mut b, x)?;
    let loss = loss(&mut b, logits, y)?;
    b.output("loss", loss);
    b.output("logits", logits);
    Ok(Forward { graph: b.finish(), logits, loss })
}

/// Softmax over the last axis, i32 labels.
pub fn classes_loss(b: &mut Builder, logits: ValueId, labels: ValueId) -> GraphResult<ValueId> {
    loss::sparse_cross_entropy(b, logits, labels, 0.0)
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
