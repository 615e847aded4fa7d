//! Reductions, norms, softmax and losses of shapes that executors spread in different ways over threads, blocks and launches:
//! long and short, few and many, odd.

use memfit_ir::op::{CrossEntropy, Eps, GroupNorm, Reduce, ReduceKind, Softmax};
use memfit_ir::{Builder, DType, Op, TensorType};

use crate::error::Result;
use crate::generate::{Example, alone, on_normal_numbers};
use crate::tensor::Tensor;

/// What it is, and an op on normal numbers.
pub type Fold = (String, Example);

/// Shapes and the axes that are reduced.
const REDUCTIONS: [(&[usize], &[usize]); 20] = [
    (&[1], &[0]),
    (&[], &[]),
    (&[7], &[]),
    (&[300_001], &[0]),
    (&[5, 1000], &[1]),
    (&[1000, 10], &[1]),
    (&[70_000, 3], &[0]),
    (&[5000, 17], &[0]),
    (&[3000, 33], &[0]),
    (&[999, 64], &[0]),
    (&[77, 1000], &[0]),
    (&[2, 40_000], &[0]),
    (&[3, 7, 7, 65], &[1, 2]),
    (&[2, 1, 1, 5], &[1, 2]),
    (&[3, 100, 100, 24], &[1, 2]),
    (&[6, 5, 4, 3], &[0, 2]),
    (&[6, 5, 4, 3], &[1, 3]),
    (&[4, 33, 9, 17], &[0, 2]),
    (&[20, 3, 5000], &[0, 2]),
    (&[1, 5, 1, 7, 1], &[0, 1, 2, 3, 4]),
];

/// Every kind of reduction.
pub fn reductions() -> Result<Vec<Fold>> {
    let all = |(shape, axes): (&[usize], &[usize])| {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32(shape))?;
        for kind in ReduceKind::ALL {
            let y = b.op(Op::Reduce(Reduce { kind, axes: axes.to_vec(), keep: false }), &[x])?;
            b.output(kind.name(), y);
        }
        Ok((format!("{shape:?} over {axes:?}"), on_normal_numbers(b.finish())))
    };
    REDUCTIONS.into_iter().map(all).collect()
}

/// Norms, and their gradients as ops of their own.
pub fn norms() -> Result<Vec<Fold>> {
    let f32 = |shape: &[usize]| TensorType::f32(shape);
    let mut folds = Vec::new();
    for shape in [&[1, 30_000][..], &[3, 20_001], &[2, 5, 1000], &[3000, 7], &[700, 1]] {
        let (rows, n) = shape.split_at(shape.len() - 1);
        let (x, row, channel) = (f32(shape), f32(rows), f32(n));
        let [by_layer, by_root] = [Op::LayerNorm(Eps(1e-3)), Op::RmsNorm(Eps(1e-3))];
        folds.push(fold(&by_layer, &[x.clone(), channel.clone(), channel.clone()])?);
        folds.push(fold(&by_root, &[x.clone(), channel.clone()])?);
        folds.push(fold(&Op::LayerNormGrad, &[x.clone(), row.clone(), row.clone(), channel.clone(), x.clone()])?);
        folds.push(fold(&Op::RmsNormGrad, &[x.clone(), row, channel, x])?);
    }
    for (shape, groups) in [([1, 50, 60, 10], 1), ([2, 40, 40, 12], 3), ([300, 2, 2, 16], 4), ([2, 70, 70, 6], 6)] {
        let (x, cell, channel) = (f32(&shape), f32(&[shape[0], groups]), f32(&[shape[3]]));
        let by_group = Op::GroupNorm(GroupNorm { groups, eps: 1e-3 });
        folds.push(fold(&by_group, &[x.clone(), channel.clone(), channel.clone()])?);
        folds.push(fold(&Op::GroupNormGrad(groups), &[x.clone(), cell.clone(), cell, channel, x])?);
    }
    for shape in [&[40_000, 3][..], &[64, 16, 16, 20], &[2, 3000], &[9]] {
        let (x, channel) = (f32(shape), f32(&shape[shape.len() - 1..]));
        folds.push(fold(&Op::BatchStats, std::slice::from_ref(&x))?);
        // A normal number may be no variance: with ε it is.
        folds.push(fold(&Op::BatchGradReduce(Eps(9.0)), &[x.clone(), channel.clone(), channel, x])?);
    }
    Ok(folds)
}

/// Softmax and cross entropy of classes and of distributions, and their gradients as ops of their own.
pub fn losses() -> Result<Vec<Fold>> {
    let mut folds = Vec::new();
    for shape in [&[1, 40_000][..], &[3, 20_001], &[2, 5, 1000], &[3000, 7]] {
        let (x, rows) = (TensorType::f32(shape), &shape[..shape.len() - 1]);
        for log in [false, true] {
            folds.push(fold(&Op::Softmax(Softmax { log }), std::slice::from_ref(&x))?);
            folds.push(fold(&Op::SoftmaxGrad(Softmax { log }), &[x.clone(), x.clone()])?);
        }
        for labels in [TensorType::new(DType::I32, rows), x.clone()] {
            for smoothing in [0.0, 0.25] {
                let (op, row) = (CrossEntropy { smoothing }, TensorType::f32(rows));
                folds.push(fold(&Op::CrossEntropy(op), &[x.clone(), labels.clone()])?);
                folds.push(fold(&Op::CrossEntropyGrad(op), &[x.clone(), labels.clone(), row.clone(), row])?);
            }
        }
    }
    Ok(folds)
}

/// Variances of numbers far from zero and close together: 4096 and eighths around it. f32 holds each, but not their squares.
/// With the name of the output that shows whether digits were lost.
pub fn variances() -> Result<Vec<(Example, &'static str)>> {
    let eighths = |i: usize| 4096.0 + (i % 17) as f64 / 8.0 + (i / 50_000) as f64;
    let (by_batch, by_layer) = ([50_000, 2], [2, 50_000]);
    let channel = TensorType::f32([by_layer[1]]);
    let batch = fold(&Op::BatchStats, &[TensorType::f32(by_batch)])?.1;
    let layer = fold(&Op::LayerNorm(Eps(0.0)), &[TensorType::f32(by_layer), channel.clone(), channel])?.1;
    let mut made = vec![(batch, "y1"), (layer, "y2")];
    for ((example, _), shape) in made.iter_mut().zip([by_batch, by_layer]) {
        example.inputs.insert("x0".into(), Tensor::f32(shape, (0..100_000).map(eighths).collect())?);
    }
    Ok(made)
}

fn fold(op: &Op, inputs: &[TensorType]) -> Result<Fold> {
    let shapes: Vec<String> = inputs.iter().map(|ty| ty.to_string()).collect();
    Ok((format!("{} of {}", op.name(), shapes.join(", ")), on_normal_numbers(alone(op, inputs)?)))
}
