//! Reductions and what only moves elements.

use memfit_ir::TensorType;
use memfit_ir::op::{Reduce, ReduceKind, Slice};

use super::elementwise::either_nan;
use crate::tensor::{Tensor, indices};

pub fn reduce(r: &Reduce, x: &Tensor, out: &TensorType) -> Tensor {
    let start = match r.kind {
        ReduceKind::Sum | ReduceKind::Mean | ReduceKind::SumSquares => 0.0,
        ReduceKind::Max => f64::NEG_INFINITY,
    };
    let mut y = Tensor::filled(out, start);
    for (i, index) in indices(x.shape()).enumerate() {
        let acc = y.at_mut(&reduced_index(r, &index));
        *acc = match r.kind {
            ReduceKind::Sum | ReduceKind::Mean => *acc + x.data[i],
            ReduceKind::SumSquares => *acc + x.data[i] * x.data[i],
            ReduceKind::Max => either_nan(*acc, x.data[i]).unwrap_or(acc.max(x.data[i])),
        };
    }
    if r.kind == ReduceKind::Mean {
        let count: usize = r.axes.iter().map(|&a| x.shape()[a]).product();
        y.data.iter_mut().for_each(|y| *y /= count as f64);
    }
    y
}

/// Where an element of x is summed up.
fn reduced_index(r: &Reduce, index: &[usize]) -> Vec<usize> {
    let kept = |axis: &usize| !r.axes.contains(axis);
    if r.keep {
        (0..index.len()).map(|a| if kept(&a) { index[a] } else { 0 }).collect()
    } else {
        (0..index.len()).filter(kept).map(|a| index[a]).collect()
    }
}

pub fn transpose(perm: &[usize], x: &Tensor, out: &TensorType) -> Tensor {
    Tensor::from_index(out, |i| {
        let mut from = vec![0; perm.len()];
        for (axis, &p) in perm.iter().enumerate() {
            from[p] = i[axis];
        }
        x.at(&from)
    })
}

pub fn slice(s: &Slice, x: &Tensor, out: &TensorType) -> Tensor {
    Tensor::from_index(out, |i| {
        let from: Vec<usize> = i.iter().zip(&s.start).map(|(i, start)| i + start).collect();
        x.at(&from)
    })
}

pub fn concat(axis: usize, inputs: &[&Tensor], out: &TensorType) -> Tensor {
    let mut y = Tensor::zeros(out);
    let mut before = 0;
    for x in inputs {
        for (i, mut index) in indices(x.shape()).enumerate() {
            index[axis] += before;
            *y.at_mut(&index) = x.data[i];
        }
        before += x.shape()[axis];
    }
    y
}

pub fn pad(pads: &[(usize, usize)], x: &Tensor, out: &TensorType) -> Tensor {
    let mut y = Tensor::zeros(out);
    for (i, index) in indices(x.shape()).enumerate() {
        let to: Vec<usize> = index.iter().zip(pads).map(|(i, (before, _))| i + before).collect();
        *y.at_mut(&to) = x.data[i];
    }
    y
}
