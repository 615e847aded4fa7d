//! Batch, layer, RMS and group norm. All are sums over cells: a cell is the set of elements that share a statistic,
//! and `cells[i]` is the cell of element i. The channel of element i is its place along the last axis.

use memfit_ir::TensorType;
use memfit_ir::op::{BatchGradInput, BatchUpdate, Eps, GroupNorm};

use crate::tensor::Tensor;

/// Extent of the last axis.
fn channels(x: &Tensor) -> usize {
    x.shape()[x.shape().len() - 1]
}

/// A cell per channel, over all other axes.
fn channel_cells(x: &Tensor) -> Vec<usize> {
    (0..x.data.len()).map(|i| i % channels(x)).collect()
}

/// A cell per row of the last axis.
fn row_cells(x: &Tensor) -> Vec<usize> {
    (0..x.data.len()).map(|i| i / channels(x)).collect()
}

/// A cell per sample and group of neighbouring channels.
fn group_cells(groups: usize, x: &Tensor) -> Vec<usize> {
    let sample_elements: usize = x.shape()[1..].iter().product();
    let group_channels = channels(x) / groups;
    (0..x.data.len()).map(|i| i / sample_elements * groups + i % channels(x) / group_channels).collect()
}

/// Σ term(i) over the elements of each cell.
fn sums(count: usize, cells: &[usize], term: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; count];
    for (i, &cell) in cells.iter().enumerate() {
        sums[cell] += term(i);
    }
    sums
}

fn means(count: usize, cells: &[usize], term: impl Fn(usize) -> f64) -> Vec<f64> {
    let members = sums(count, cells, |_| 1.0);
    sums(count, cells, term).iter().zip(members).map(|(s, n)| s / n).collect()
}

fn tensor(ty: &TensorType, data: Vec<f64>) -> Tensor {
    Tensor { ty: ty.clone(), data }
}

fn each(ty: &TensorType, f: impl Fn(usize) -> f64) -> Tensor {
    tensor(ty, (0..ty.elements()).map(f).collect())
}

fn rstd(var: f64, eps: f32) -> f64 {
    1.0 / (var + f64::from(eps)).sqrt()
}

// ---- batch norm ------------------------------------------------------------------------------------------------------

pub fn batch_stats(x: &Tensor, out: &[&TensorType]) -> Vec<Tensor> {
    let cells = channel_cells(x);
    let mean = means(channels(x), &cells, |i| x.data[i]);
    let var = means(channels(x), &cells, |i| (x.data[i] - mean[cells[i]]).powi(2));
    vec![tensor(out[0], mean), tensor(out[1], var)]
}

pub fn batch_apply(eps: Eps, t: &[&Tensor], out: &TensorType) -> Tensor {
    let [x, mean, var, scale, bias] = [t[0], t[1], t[2], t[3], t[4]];
    each(out, |i| {
        let c = i % channels(x);
        scale.data[c] * (x.data[i] - mean.data[c]) * rstd(var.data[c], eps.0) + bias.data[c]
    })
}

pub fn batch_grad_reduce(eps: Eps, t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    let [x, mean, var, dy] = [t[0], t[1], t[2], t[3]];
    let cells = channel_cells(x);
    let normal = |i: usize| (x.data[i] - mean.data[cells[i]]) * rstd(var.data[cells[i]], eps.0);
    let dscale = sums(channels(x), &cells, |i| dy.data[i] * normal(i));
    let dbias = sums(channels(x), &cells, |i| dy.data[i]);
    vec![tensor(out[0], dscale), tensor(out[1], dbias)]
}

pub fn batch_grad_input(b: &BatchGradInput, t: &[&Tensor], out: &TensorType) -> Tensor {
    let [x, mean, var, scale, dy, dscale, dbias] = [t[0], t[1], t[2], t[3], t[4], t[5], t[6]];
    let n = (x.data.len() / channels(x)) as f64;
    each(out, |i| {
        let c = i % channels(x);
        let rstd = rstd(var.data[c], b.eps);
        let normal = (x.data[i] - mean.data[c]) * rstd;
        let through_stats = if b.batch_stats { dbias.data[c] / n + normal * dscale.data[c] / n } else { 0.0 };
        scale.data[c] * rstd * (dy.data[i] - through_stats)
    })
}

/// All as it was where a gate is given and 0.
pub fn batch_update(u: &BatchUpdate, t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    if t.get(4).is_some_and(|gate| gate.data[0] == 0.0) {
        return vec![t[0].clone(), t[1].clone()];
    }
    let momentum = f64::from(u.momentum);
    let mixed = |running: &Tensor, batch: &Tensor, ty: &TensorType| {
        each(ty, |i| momentum * running.data[i] + (1.0 - momentum) * batch.data[i])
    };
    vec![mixed(t[0], t[2], out[0]), mixed(t[1], t[3], out[1])]
}

// ---- layer and group norm: the same, with other cells ----------------------------------------------------------------

pub fn layer_norm(eps: Eps, t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    centred_norm(eps.0, &row_cells(t[0]), t, out)
}

pub fn layer_norm_grad(t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    centred_norm_grad(&row_cells(t[0]), t, out)
}

pub fn group_norm(g: &GroupNorm, t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    centred_norm(g.eps, &group_cells(g.groups, t[0]), t, out)
}

pub fn group_norm_grad(groups: usize, t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    centred_norm_grad(&group_cells(groups, t[0]), t, out)
}

fn centred_norm(eps: f32, cells: &[usize], t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    let [x, scale, bias] = [t[0], t[1], t[2]];
    let count = out[1].elements();
    let mean = means(count, cells, |i| x.data[i]);
    let var = means(count, cells, |i| (x.data[i] - mean[cells[i]]).powi(2));
    let rstd: Vec<f64> = var.iter().map(|&v| rstd(v, eps)).collect();
    let y = each(out[0], |i| {
        let c = i % channels(x);
        scale.data[c] * (x.data[i] - mean[cells[i]]) * rstd[cells[i]] + bias.data[c]
    });
    vec![y, tensor(out[1], mean), tensor(out[2], rstd)]
}

fn centred_norm_grad(cells: &[usize], t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    let [x, mean, rstd, scale, dy] = [t[0], t[1], t[2], t[3], t[4]];
    let count = mean.data.len();
    let normal = |i: usize| (x.data[i] - mean.data[cells[i]]) * rstd.data[cells[i]];
    let dnormal = |i: usize| dy.data[i] * scale.data[i % channels(x)];
    let through_mean = means(count, cells, dnormal);
    let through_var = means(count, cells, |i| dnormal(i) * normal(i));
    let dx = each(out[0], |i| {
        rstd.data[cells[i]] * (dnormal(i) - through_mean[cells[i]] - normal(i) * through_var[cells[i]])
    });
    let by_channel = channel_cells(x);
    let dscale = sums(channels(x), &by_channel, |i| dy.data[i] * normal(i));
    let dbias = sums(channels(x), &by_channel, |i| dy.data[i]);
    vec![dx, tensor(out[1], dscale), tensor(out[2], dbias)]
}

// ---- RMS norm --------------------------------------------------------------------------------------------------------

pub fn rms_norm(eps: Eps, t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    let [x, scale] = [t[0], t[1]];
    let cells = row_cells(x);
    let squares = means(out[1].elements(), &cells, |i| x.data[i].powi(2));
    let rstd: Vec<f64> = squares.iter().map(|&s| rstd(s, eps.0)).collect();
    let y = each(out[0], |i| scale.data[i % channels(x)] * x.data[i] * rstd[cells[i]]);
    vec![y, tensor(out[1], rstd)]
}

pub fn rms_norm_grad(t: &[&Tensor], out: &[&TensorType]) -> Vec<Tensor> {
    let [x, rstd, scale, dy] = [t[0], t[1], t[2], t[3]];
    let cells = row_cells(x);
    let normal = |i: usize| x.data[i] * rstd.data[cells[i]];
    let dnormal = |i: usize| dy.data[i] * scale.data[i % channels(x)];
    let through_rms = means(rstd.data.len(), &cells, |i| dnormal(i) * normal(i));
    let dx = each(out[0], |i| rstd.data[cells[i]] * (dnormal(i) - normal(i) * through_rms[cells[i]]));
    let dscale = sums(channels(x), &channel_cells(x), |i| dy.data[i] * normal(i));
    vec![dx, tensor(out[1], dscale)]
}
