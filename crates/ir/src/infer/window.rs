//! Rules of pooling and upsampling.

use super::{Types, conv_output, f32_of, limit, needs_f32, needs_rank, one, positive};
use crate::dtype::{DType, TensorType};
use crate::error::Rule;
use crate::op::{Upsample, Window, WindowGrad};
use crate::rule;

fn pooled(w: &Window, x: &TensorType) -> Result<[usize; 4], Rule> {
    needs_f32("the image", x)?;
    needs_rank("the image", x, 4)?;
    check_window(w)?;
    let [h, wd] = conv_output([x.shape[1], x.shape[2]], w.size, w.stride, w.pad, [1, 1])?;
    Ok([x.shape[0], h, wd, x.shape[3]])
}

fn check_window(w: &Window) -> Result<(), Rule> {
    if w.pad.top.max(w.pad.bottom) >= w.size[0] || w.pad.left.max(w.pad.right) >= w.size[1] {
        rule!("the padding must be smaller than the window of {}x{}", w.size[0], w.size[1]);
    }
    Ok(())
}

pub fn max_pool(w: &Window, x: &TensorType) -> Types {
    if w.size[0].saturating_mul(w.size[1]) > 256 {
        rule!("a window of {}x{} has more than 256 positions", w.size[0], w.size[1]);
    }
    let shape = pooled(w, x)?;
    Ok(vec![f32_of(shape), TensorType::new(DType::U8, shape)])
}

pub fn avg_pool(w: &Window, x: &TensorType) -> Types {
    one(f32_of(pooled(w, x)?))
}

pub fn max_pool_grad(w: &WindowGrad, index: &TensorType, dy: &TensorType) -> Types {
    if index.dtype != DType::U8 || index.shape != dy.shape {
        rule!("the index is {index}, but the gradient is {dy}");
    }
    avg_pool_grad(w, dy)
}

pub fn avg_pool_grad(w: &WindowGrad, dy: &TensorType) -> Types {
    needs_f32("the gradient", dy)?;
    needs_rank("the gradient", dy, 4)?;
    let x = f32_of([dy.shape[0], w.size[0], w.size[1], dy.shape[3]]);
    let shape = pooled(&w.window, &x)?;
    if shape[..] != dy.shape[..] {
        rule!("an image of {}x{} gives {:?}, but the gradient is {}", w.size[0], w.size[1], shape, dy.shape);
    }
    one(x)
}

pub fn upsample(u: &Upsample, x: &TensorType) -> Types {
    needs_f32("the image", x)?;
    needs_rank("the image", x, 4)?;
    positive("factor", u.factor)?;
    limit::steps("factor", &u.factor)?;
    let s = &x.shape;
    one(f32_of([s[0], s[1] * u.factor[0], s[2] * u.factor[1], s[3]]))
}

pub fn upsample_grad(u: &Upsample, dy: &TensorType) -> Types {
    needs_f32("the gradient", dy)?;
    needs_rank("the gradient", dy, 4)?;
    positive("factor", u.factor)?;
    let s = &dy.shape;
    if !s[1].is_multiple_of(u.factor[0]) || !s[2].is_multiple_of(u.factor[1]) {
        rule!("the factor {}x{} does not divide {}", u.factor[0], u.factor[1], s);
    }
    one(f32_of([s[0], s[1] / u.factor[0], s[2] / u.factor[1], s[3]]))
}
