//! Rules of matmul, convolution and attention.

use super::{Types, f32_of, limit, needs_f32, needs_rank, needs_type, one, positive};
use crate::dtype::TensorType;
use crate::error::Rule;
use crate::op::{Attention, Conv, ConvFilter, ConvTranspose, MatMul, Pad2};
use crate::rule;

pub fn matmul(m: MatMul, a: &TensorType, b: &TensorType) -> Types {
    needs_f32("the left side", a)?;
    needs_f32("the right side", b)?;
    if a.shape.rank() < 2 || b.shape.rank() < 2 {
        rule!("needs at least 2 axes on both sides, but was given {} and {}", a.shape, b.shape);
    }
    let (batch_a, rows_cols_a) = a.shape.split_at(a.shape.rank() - 2);
    let (batch_b, rows_cols_b) = b.shape.split_at(b.shape.rank() - 2);
    let (rows, inner_a) = turned(rows_cols_a, m.transpose_a);
    let (inner_b, cols) = turned(rows_cols_b, m.transpose_b);
    if inner_a != inner_b {
        let t = |b: bool| if b { " transposed" } else { "" };
        rule!(
            "the inner extents {inner_a} and {inner_b} differ: {}{} times {}{}",
            a.shape,
            t(m.transpose_a),
            b.shape,
            t(m.transpose_b)
        );
    }
    if batch_a != batch_b && !batch_b.is_empty() {
        rule!("the batch axes of {} and {} differ", a.shape, b.shape);
    }
    if m.transpose_a && batch_b.is_empty() && !batch_a.is_empty() {
        rule!("a transposed left side {} needs the same batch axes on the right side {}", a.shape, b.shape);
    }
    one(f32_of([batch_a, &[rows, cols]].concat()))
}

fn turned(pair: &[usize], transpose: bool) -> (usize, usize) {
    if transpose { (pair[1], pair[0]) } else { (pair[0], pair[1]) }
}

/// Height and width after a convolution or pooling, or why there is none.
pub fn conv_output(
    image: [usize; 2],
    window: [usize; 2],
    stride: [usize; 2],
    pad: Pad2,
    dilation: [usize; 2],
) -> Result<[usize; 2], Rule> {
    positive("window", window)?;
    positive("stride", stride)?;
    positive("dilation", dilation)?;
    limit::extents("image", &image)?;
    limit::extents("window", &window)?;
    limit::steps("stride", &stride)?;
    limit::steps("dilation", &dilation)?;
    limit::steps("padding", &[pad.top, pad.bottom, pad.left, pad.right])?;
    let padded = [image[0] + pad.top + pad.bottom, image[1] + pad.left + pad.right];
    let mut out = [0; 2];
    for i in 0..2 {
        let reach = (window[i] - 1) * dilation[i] + 1;
        if reach > padded[i] {
            rule!(
                "a window of {}x{} with dilation {}x{} does not fit into the padded image of {}x{}",
                window[0],
                window[1],
                dilation[0],
                dilation[1],
                padded[0],
                padded[1]
            );
        }
        out[i] = (padded[i] - reach) / stride[i] + 1;
    }
    Ok(out)
}

/// The padding that TensorFlow calls SAME: the output is ⌈image ÷ stride⌉, the odd pixel goes to bottom and right.
pub fn same_padding(image: [usize; 2], window: [usize; 2], stride: [usize; 2], dilation: [usize; 2]) -> Pad2 {
    let total = |i: usize| {
        let out = image[i].div_ceil(stride[i].max(1));
        let reach = window[i].saturating_sub(1).saturating_mul(dilation[i]).saturating_add(1);
        out.saturating_sub(1).saturating_mul(stride[i]).saturating_add(reach).saturating_sub(image[i])
    };
    let (h, w) = (total(0), total(1));
    Pad2 { top: h / 2, bottom: h - h / 2, left: w / 2, right: w - w / 2 }
}

/// The channels of image and filter agree with the groups.
fn check_groups(c: &Conv, channels_in: usize, w: &[usize], image: &str) -> Result<(), Rule> {
    limit::steps("number of groups", &[c.groups])?;
    if c.groups == 0 || !channels_in.is_multiple_of(c.groups) || !w[3].is_multiple_of(c.groups) {
        rule!("{} groups do not divide the {channels_in} channels in and {} channels out", c.groups, w[3]);
    }
    if channels_in / c.groups != w[2] {
        rule!(
            "the filter [{},{},{},{}] reads {} channels a group, but the image {image} has {channels_in} in {} groups",
            w[0],
            w[1],
            w[2],
            w[3],
            w[2],
            c.groups
        );
    }
    Ok(())
}

pub fn conv(c: &Conv, x: &TensorType, w: &TensorType) -> Types {
    image_and_filter(x, w)?;
    check_groups(c, x.shape[3], &w.shape, &x.shape.to_string())?;
    let [h, wd] = conv_output([x.shape[1], x.shape[2]], [w.shape[0], w.shape[1]], c.stride, c.pad, c.dilation)?;
    one(f32_of([x.shape[0], h, wd, w.shape[3]]))
}

pub fn conv_transpose(c: &ConvTranspose, y: &TensorType, w: &TensorType) -> Types {
    image_and_filter(y, w)?;
    if y.shape[3] != w.shape[3] {
        rule!("the image {} has {} channels, but the filter {} has {}", y.shape, y.shape[3], w.shape, w.shape[3]);
    }
    limit::steps("number of groups", &[c.conv.groups])?;
    let channels = w.shape[2] * c.conv.groups;
    check_groups(&c.conv, channels, &w.shape, "made")?;
    let back = conv_output(c.size, [w.shape[0], w.shape[1]], c.conv.stride, c.conv.pad, c.conv.dilation)?;
    if back != [y.shape[1], y.shape[2]] {
        rule!(
            "an output of {}x{} would come from an image of {}x{}, but was given {}",
            c.size[0],
            c.size[1],
            back[0],
            back[1],
            y.shape
        );
    }
    one(f32_of([y.shape[0], c.size[0], c.size[1], channels]))
}

pub fn conv_filter(c: &ConvFilter, x: &TensorType, dy: &TensorType) -> Types {
    image_and_filter(x, dy)?;
    let groups = c.conv.groups;
    limit::steps("number of groups", &[groups])?;
    if groups == 0 || !x.shape[3].is_multiple_of(groups) || !dy.shape[3].is_multiple_of(groups) {
        rule!("{groups} groups do not divide the channels of {} and {}", x.shape, dy.shape);
    }
    let out = conv_output([x.shape[1], x.shape[2]], c.size, c.conv.stride, c.conv.pad, c.conv.dilation)?;
    if out != [dy.shape[1], dy.shape[2]] || x.shape[0] != dy.shape[0] {
        rule!("the image {} gives {}x{}, but the gradient is {}", x.shape, out[0], out[1], dy.shape);
    }
    one(f32_of([c.size[0], c.size[1], x.shape[3] / groups, dy.shape[3]]))
}

fn image_and_filter(x: &TensorType, w: &TensorType) -> Result<(), Rule> {
    needs_f32("the image", x)?;
    needs_f32("the second input", w)?;
    needs_rank("the image", x, 4)?;
    needs_rank("the second input", w, 4)
}

pub fn attention(a: Attention, inputs: &[&TensorType]) -> Types {
    if !a.scale.is_finite() {
        rule!("the scale must be a finite number, but is {}", a.scale);
    }
    let qkv = inputs[0];
    needs_f32("qkv", qkv)?;
    needs_rank("qkv", qkv, 5)?;
    let [batch, sequence, parts, heads, dim] = [0, 1, 2, 3, 4].map(|axis| qkv.shape[axis]);
    if parts != 3 {
        rule!("qkv must be batch, sequence, 3, heads, dim, but is {}", qkv.shape);
    }
    if sequence == 0 || dim == 0 {
        rule!("an empty sequence or dim in qkv {}", qkv.shape);
    }
    Ok(vec![f32_of([batch, sequence, heads, dim]), f32_of([batch, heads, sequence])])
}

pub fn attention_grad(a: Attention, inputs: &[&TensorType]) -> Types {
    let forward = attention(a, &inputs[..1])?;
    needs_type("y", inputs[1], &forward[0])?;
    needs_type("lse", inputs[2], &forward[1])?;
    needs_type("dy", inputs[3], &forward[0])?;
    one(inputs[0].clone())
}
