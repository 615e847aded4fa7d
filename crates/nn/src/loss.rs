//! Losses: from what the model says and what is true to one scalar, the mean. All are computed from logits, so that
//! nothing overflows. Logits and labels must have the same shape where they are compared element by element: a silent
//! broadcast of `f32[n]` against `f32[n,1]` is the classic wrong loss.

use memfit_ir::{Builder, DType, Result, ValueId};

/// Softmax cross-entropy with i32 classes, averaged over all rows. `smoothing` is spread over all classes.
pub fn sparse_cross_entropy(b: &mut Builder, logits: ValueId, labels: ValueId, smoothing: f32) -> Result<ValueId> {
    b.scope("loss", |b| {
        if b.ty(labels).dtype != DType::I32 {
            let given = b.ty(labels).clone();
            return b.fail(format!("sparse labels must be i32 classes, but are {given}; use cross_entropy"));
        }
        let rows = b.cross_entropy(logits, labels, smoothing)?;
        b.mean(rows)
    })
}

/// Softmax cross-entropy with a distribution over the classes for every row, averaged over all rows.
pub fn cross_entropy(b: &mut Builder, logits: ValueId, labels: ValueId, smoothing: f32) -> Result<ValueId> {
    b.scope("loss", |b| {
        same_shape(b, logits, labels)?;
        let rows = b.cross_entropy(logits, labels, smoothing)?;
        b.mean(rows)
    })
}

/// Sigmoid cross-entropy with labels in 0…1, averaged over all elements.
pub fn binary_cross_entropy(b: &mut Builder, logits: ValueId, labels: ValueId) -> Result<ValueId> {
    b.scope("loss", |b| {
        same_shape(b, logits, labels)?;
        let elements = b.sigmoid_cross_entropy(logits, labels)?;
        b.mean(elements)
    })
}

/// The mean of (prediction − target)².
pub fn mean_squared_error(b: &mut Builder, prediction: ValueId, target: ValueId) -> Result<ValueId> {
    b.scope("loss", |b| {
        same_shape(b, prediction, target)?;
        b.mean_squared_error(prediction, target)
    })
}

fn same_shape(b: &Builder, given: ValueId, labels: ValueId) -> Result<()> {
    if b.ty(given) != b.ty(labels) {
        return b.fail(format!("the model gives {}, but the labels are {}", b.ty(given), b.ty(labels)));
    }
    Ok(())
}
