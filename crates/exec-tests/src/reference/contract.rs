//! Matmul, convolution in its three directions, and attention.

use memfit_ir::TensorType;
use memfit_ir::op::{Attention, Conv, MatMul};

use super::window::source;
use crate::tensor::{Tensor, indices};

pub fn matmul(m: MatMul, a: &Tensor, b: &Tensor, out: &TensorType) -> Tensor {
    let rank = out.shape.rank();
    let (rows, cols) = (out.shape[rank - 2], out.shape[rank - 1]);
    let inner = a.shape()[if m.transpose_a { rank - 2 } else { rank - 1 }];
    let mut y = Tensor::zeros(out);
    for (i, y) in y.data.iter_mut().enumerate() {
        let (batch, row, col) = (i / (rows * cols), i / cols % rows, i % cols);
        // b may have no batch axes: then it is the same for all.
        let batch_b = if b.shape().len() == 2 { 0 } else { batch };
        let at_a = |k: usize| batch * rows * inner + if m.transpose_a { k * rows + row } else { row * inner + k };
        let at_b = |k: usize| batch_b * inner * cols + if m.transpose_b { col * inner + k } else { k * cols + col };
        *y = (0..inner).map(|k| a.data[at_a(k)] * b.data[at_b(k)]).sum();
    }
    y
}

pub fn conv(c: &Conv, x: &Tensor, w: &Tensor, out: &TensorType) -> Tensor {
    let mut y = Tensor::zeros(out);
    for_each_product(c, x.shape(), w.shape(), &out.shape, |xi, wi, yi| *y.at_mut(&yi) += x.at(&xi) * w.at(&wi));
    y
}

pub fn conv_transpose(c: &Conv, y: &Tensor, w: &Tensor, out: &TensorType) -> Tensor {
    let mut x = Tensor::zeros(out);
    for_each_product(c, &out.shape, w.shape(), y.shape(), |xi, wi, yi| *x.at_mut(&xi) += y.at(&yi) * w.at(&wi));
    x
}

pub fn conv_filter(c: &Conv, x: &Tensor, dy: &Tensor, out: &TensorType) -> Tensor {
    let mut dw = Tensor::zeros(out);
    for_each_product(c, x.shape(), &out.shape, dy.shape(), |xi, wi, yi| *dw.at_mut(&wi) += x.at(&xi) * dy.at(&yi));
    dw
}

/// A convolution is bilinear: y[yi] = Σ x[xi] · w[wi] over these triples, and its gradients are sums over the same ones.
fn for_each_product(
    c: &Conv,
    x: &[usize],
    w: &[usize],
    y: &[usize],
    mut f: impl FnMut([usize; 4], [usize; 4], [usize; 4]),
) {
    let (group_in, group_out) = (w[2], w[3] / c.groups);
    for yi in indices(y) {
        let [n, oh, ow, oc] = [yi[0], yi[1], yi[2], yi[3]];
        let group = oc / group_out;
        for kh in 0..w[0] {
            for kw in 0..w[1] {
                let ih = source(oh, kh, c.stride[0], c.dilation[0], c.pad.top, x[1]);
                let iw = source(ow, kw, c.stride[1], c.dilation[1], c.pad.left, x[2]);
                let (Some(ih), Some(iw)) = (ih, iw) else { continue };
                for ic in 0..group_in {
                    f([n, ih, iw, group * group_in + ic], [kh, kw, ic, oc], [n, oh, ow, oc]);
                }
            }
        }
    }
}

pub fn attention(a: Attention, x: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    let qkv = x[0];
    let mut y = Tensor::zeros(out[0]);
    let mut lse = Tensor::zeros(out[1]);
    for i in indices(&out[1].shape) {
        let [b, h, query] = [i[0], i[1], i[2]];
        let scores: Vec<f64> = keys(a, query, qkv).map(|key| score(a, qkv, [b, h, query], key)).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = largest + scores.iter().map(|s| (s - largest).exp()).sum::<f64>().ln();
        *lse.at_mut(&i) = total;
        for (key, s) in scores.iter().enumerate() {
            for d in 0..qkv.shape()[4] {
                *y.at_mut(&[b, query, h, d]) += (s - total).exp() * qkv.at(&[b, key, V, h, d]);
            }
        }
    }
    vec![y, lse]
}

pub fn attention_grad(a: Attention, x: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    let [qkv, y, lse, dy] = [x[0], x[1], x[2], x[3]];
    let mut dqkv = Tensor::zeros(out[0]);
    let (scale, dim) = (f64::from(a.scale), qkv.shape()[4]);
    for i in indices(lse.shape()) {
        let [b, h, query] = [i[0], i[1], i[2]];
        let slope = |d: usize| dy.at(&[b, query, h, d]);
        let mean_slope: f64 = (0..dim).map(|d| y.at(&[b, query, h, d]) * slope(d)).sum();
        for key in keys(a, query, qkv) {
            let p = (score(a, qkv, [b, h, query], key) - lse.at(&i)).exp();
            let dp: f64 = (0..dim).map(|d| qkv.at(&[b, key, V, h, d]) * slope(d)).sum();
            let dscore = p * (dp - mean_slope) * scale;
            for d in 0..dim {
                *dqkv.at_mut(&[b, key, V, h, d]) += p * slope(d);
                *dqkv.at_mut(&[b, query, Q, h, d]) += dscore * qkv.at(&[b, key, K, h, d]);
                *dqkv.at_mut(&[b, key, K, h, d]) += dscore * qkv.at(&[b, query, Q, h, d]);
            }
        }
    }
    vec![dqkv]
}

/// Where queries, keys and values stand along the third axis of qkv.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;

/// The keys that a query sees.
fn keys(a: Attention, query: usize, qkv: &Tensor) -> std::ops::Range<usize> {
    0..if a.causal { query + 1 } else { qkv.shape()[1] }
}

fn score(a: Attention, qkv: &Tensor, [b, h, query]: [usize; 3], key: usize) -> f64 {
    let products = (0..qkv.shape()[4]).map(|d| qkv.at(&[b, query, Q, h, d]) * qkv.at(&[b, key, K, h, d]));
    products.sum::<f64>() * f64::from(a.scale)
}
