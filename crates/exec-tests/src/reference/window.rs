//! Pooling and upsampling.

use memfit_ir::TensorType;
use memfit_ir::op::{Upsample, UpsampleMode, Window};

use crate::tensor::{Tensor, indices};

/// The image position that an output position reads at a window position; none in the padding.
pub fn source(out: usize, k: usize, stride: usize, dilation: usize, pad: usize, extent: usize) -> Option<usize> {
    (out * stride + k * dilation).checked_sub(pad).filter(|&i| i < extent)
}

/// What an output position sees: (position in the window, height, width) of the image, in scan order, without padding.
fn seen(w: &Window, image: &[usize], oh: usize, ow: usize) -> Vec<(usize, usize, usize)> {
    let mut all = Vec::new();
    for kh in 0..w.size[0] {
        for kw in 0..w.size[1] {
            let ih = source(oh, kh, w.stride[0], 1, w.pad.top, image[1]);
            let iw = source(ow, kw, w.stride[1], 1, w.pad.left, image[2]);
            if let (Some(ih), Some(iw)) = (ih, iw) {
                all.push((kh * w.size[1] + kw, ih, iw));
            }
        }
    }
    all
}

pub fn max_pool(w: &Window, x: &Tensor, out: &[&TensorType]) -> Vec<Tensor> {
    let mut y = Tensor::filled(out[0], f64::NEG_INFINITY);
    let mut index = Tensor::zeros(out[1]);
    for (o, i) in indices(&out[0].shape).enumerate() {
        let seen = seen(w, x.shape(), i[1], i[2]);
        index.data[o] = seen[0].0 as f64;
        for (position, ih, iw) in seen {
            let value = x.at(&[i[0], ih, iw, i[3]]);
            // Strictly greater: the first of equal maxima wins. The first NaN wins over all.
            if value > y.data[o] || (value.is_nan() && !y.data[o].is_nan()) {
                y.data[o] = value;
                index.data[o] = position as f64;
            }
        }
    }
    vec![y, index]
}

pub fn max_pool_grad(w: &Window, index: &Tensor, dy: &Tensor, out: &TensorType) -> Tensor {
    let mut dx = Tensor::zeros(out);
    for (o, i) in indices(dy.shape()).enumerate() {
        for (position, ih, iw) in seen(w, &out.shape, i[1], i[2]) {
            if position as f64 == index.data[o] {
                *dx.at_mut(&[i[0], ih, iw, i[3]]) += dy.data[o];
            }
        }
    }
    dx
}

pub fn avg_pool(w: &Window, x: &Tensor, out: &TensorType) -> Tensor {
    Tensor::from_index(out, |i| {
        let seen = seen(w, x.shape(), i[1], i[2]);
        seen.iter().map(|&(_, ih, iw)| x.at(&[i[0], ih, iw, i[3]])).sum::<f64>() / seen.len() as f64
    })
}

pub fn avg_pool_grad(w: &Window, dy: &Tensor, out: &TensorType) -> Tensor {
    let mut dx = Tensor::zeros(out);
    for (o, i) in indices(dy.shape()).enumerate() {
        let seen = seen(w, &out.shape, i[1], i[2]);
        for &(_, ih, iw) in &seen {
            *dx.at_mut(&[i[0], ih, iw, i[3]]) += dy.data[o] / seen.len() as f64;
        }
    }
    dx
}

pub fn upsample(u: &Upsample, x: &Tensor, out: &TensorType) -> Tensor {
    let mut y = Tensor::zeros(out);
    for_each_tap(u, x.shape(), &out.shape, |xi, yi, weight| *y.at_mut(&yi) += weight * x.at(&xi));
    y
}

pub fn upsample_grad(u: &Upsample, dy: &Tensor, out: &TensorType) -> Tensor {
    let mut dx = Tensor::zeros(out);
    for_each_tap(u, &out.shape, dy.shape(), |xi, yi, weight| *dx.at_mut(&xi) += weight * dy.at(&yi));
    dx
}

/// Upsampling is linear: y[yi] = Σ weight · x[xi] over these triples, and its gradient is a sum over the same ones.
fn for_each_tap(u: &Upsample, x: &[usize], y: &[usize], mut f: impl FnMut([usize; 4], [usize; 4], f64)) {
    for yi in indices(y) {
        for (ih, weight_h) in taps(u.mode, yi[1], u.factor[0], x[1]) {
            for (iw, weight_w) in taps(u.mode, yi[2], u.factor[1], x[2]) {
                f([yi[0], ih, iw, yi[3]], [yi[0], yi[1], yi[2], yi[3]], weight_h * weight_w);
            }
        }
    }
}

/// The positions along one axis that an output position reads, with their weights.
fn taps(mode: UpsampleMode, out: usize, factor: usize, extent: usize) -> [(usize, f64); 2] {
    match mode {
        UpsampleMode::Nearest => [(out / factor, 1.0), (out / factor, 0.0)],
        UpsampleMode::Bilinear => {
            let centre = (out as f64 + 0.5) / factor as f64 - 0.5;
            let clamped = centre.clamp(0.0, (extent - 1) as f64);
            let below = clamped.floor();
            let above = (below as usize + 1).min(extent - 1);
            [(below as usize, 1.0 - (clamped - below)), (above, clamped - below)]
        }
    }
}
