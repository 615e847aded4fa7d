//! Softmax and cross-entropy over the last axis, and rows of a table.

use memfit_ir::op::{CrossEntropy, Softmax};
use memfit_ir::{DType, TensorType};

use super::OutOfRange;
use crate::tensor::Tensor;

/// The rows of the last axis.
fn rows(x: &Tensor) -> std::slice::Chunks<'_, f64> {
    x.data.chunks(x.shape()[x.shape().len() - 1])
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}

pub fn softmax(s: Softmax, x: &Tensor) -> Tensor {
    let mut data = Vec::new();
    for row in rows(x) {
        let lse = log_sum_exp(row);
        data.extend(row.iter().map(|x| if s.log { x - lse } else { (x - lse).exp() }));
    }
    Tensor { ty: x.ty.clone(), data }
}

pub fn softmax_grad(s: Softmax, y: &Tensor, dy: &Tensor) -> Tensor {
    let mut data = Vec::new();
    for (y, dy) in rows(y).zip(rows(dy)) {
        let pairs = || y.iter().zip(dy);
        if s.log {
            let total: f64 = dy.iter().sum();
            data.extend(pairs().map(|(y, dy)| dy - y.exp() * total));
        } else {
            let total: f64 = pairs().map(|(y, dy)| y * dy).sum();
            data.extend(pairs().map(|(y, dy)| y * (dy - total)));
        }
    }
    Tensor { ty: dy.ty.clone(), data }
}

/// The smoothed distribution that each row of the logits should have.
fn targets(c: &CrossEntropy, classes: usize, labels: &Tensor) -> Result<Vec<Vec<f64>>, OutOfRange> {
    let smoothing = f64::from(c.smoothing);
    let smooth = |label: f64| (1.0 - smoothing) * label + smoothing / classes as f64;
    if labels.ty.dtype != DType::I32 {
        return Ok(rows(labels).map(|row| row.iter().map(|&l| smooth(l)).collect()).collect());
    }
    let one_hot = |&id: &f64| {
        let label = row_number(id, classes)?;
        Ok((0..classes).map(|class| smooth(if class == label { 1.0 } else { 0.0 })).collect())
    };
    labels.data.iter().map(one_hot).collect()
}

pub fn cross_entropy(c: &CrossEntropy, x: &[&Tensor], out: &[&TensorType]) -> Result<Vec<Tensor>, OutOfRange> {
    let [logits, labels] = [x[0], x[1]];
    let (mut loss, mut lse) = (Vec::new(), Vec::new());
    let classes = logits.shape()[logits.shape().len() - 1];
    for (row, target) in rows(logits).zip(targets(c, classes, labels)?) {
        let total = log_sum_exp(row);
        loss.push(row.iter().zip(&target).map(|(x, t)| t * (total - x)).sum());
        lse.push(total);
    }
    Ok(vec![Tensor { ty: out[0].clone(), data: loss }, Tensor { ty: out[1].clone(), data: lse }])
}

pub fn cross_entropy_grad(c: &CrossEntropy, x: &[&Tensor]) -> Result<Tensor, OutOfRange> {
    let [logits, labels, lse, dloss] = [x[0], x[1], x[2], x[3]];
    let classes = logits.shape()[logits.shape().len() - 1];
    let mut data = Vec::new();
    for (r, (row, target)) in rows(logits).zip(targets(c, classes, labels)?).enumerate() {
        // 1 for a distribution; dense labels are not forced to be one.
        let weight: f64 = target.iter().sum();
        let slope = |(x, t): (&f64, &f64)| dloss.data[r] * (weight * (x - lse.data[r]).exp() - t);
        data.extend(row.iter().zip(&target).map(slope));
    }
    Ok(Tensor { ty: logits.ty.clone(), data })
}

fn row_number(id: f64, limit: usize) -> Result<usize, OutOfRange> {
    if id < 0.0 || id >= limit as f64 {
        return Err(OutOfRange { id, limit });
    }
    Ok(id as usize)
}

pub fn gather(table: &Tensor, ids: &Tensor, out: &TensorType) -> Result<Tensor, OutOfRange> {
    let mut data = Vec::new();
    for &id in &ids.data {
        let row = row_number(id, table.shape()[0])?;
        data.extend((0..table.shape()[1]).map(|c| table.at(&[row, c])));
    }
    Ok(Tensor { ty: out.clone(), data })
}

pub fn gather_grad(ids: &Tensor, drows: &Tensor, out: &TensorType) -> Result<Tensor, OutOfRange> {
    let mut dtable = Tensor::zeros(out);
    let width = out.shape[1];
    for (i, &id) in ids.data.iter().enumerate() {
        let row = row_number(id, out.shape[0])?;
        for c in 0..width {
            *dtable.at_mut(&[row, c]) += drows.data[i * width + c];
        }
    }
    Ok(dtable)
}
