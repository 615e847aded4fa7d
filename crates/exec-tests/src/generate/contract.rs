//! Matmul, convolution in its three directions, and attention; the contractions with a chain behind them, as they are
//! fused.

use memfit_ir::op::{Attention, Binary, Conv, ConvFilter, ConvTranspose, MatMul, Pad2, Unary};
use memfit_ir::{DType, Op, Result as Built, ValueId};

use super::maker::{Made, Maker, Numbers, shrink};

/// Multiply-adds of one contraction, which the reference does one by one.
const WORK: usize = 400_000;

pub fn matmul(m: &mut Maker) -> Made {
    let sizes = [1, 2, 3, 5, 8, 13, 16, 17, 33, 48, 65, 130, 260, 520];
    let mut extents = [m.extent(&sizes), m.extent(&sizes), m.extent(&sizes)];
    let batch: Vec<usize> = (0..m.draws.draw(3)).map(|_| m.batch()).collect();
    shrink(&mut extents, WORK / batch.iter().product::<usize>());
    let [rows, inner, cols] = extents;
    let op = MatMul { transpose_a: m.draws.flip(), transpose_b: m.draws.flip() };
    // One right side may serve the whole batch, but not with a transposed left side.
    let shared = !batch.is_empty() && !op.transpose_a && m.draws.flip();
    let turned = |turn: bool, [r, c]: [usize; 2]| if turn { [c, r] } else { [r, c] };
    let a = [&batch[..], &turned(op.transpose_a, [rows, inner])].concat();
    let b = [if shared { &[] } else { &batch[..] }, &turned(op.transpose_b, [inner, cols])].concat();
    let (a, b) = (m.f32(&a, Numbers::Normal)?, m.f32(&b, Numbers::Normal)?);
    let y = m.b.matmul_with(a, b, op)?;
    finished(m, y)
}

/// A contraction with the ends that models put on it: bias, residual, activation. Sometimes the product itself is also
/// given out.
pub fn finished(m: &mut Maker, product: ValueId) -> Made {
    let shape = m.b.shape(product).to_vec();
    let mut y = product;
    for _ in 0..m.draws.draw(4) {
        y = end(m, &shape, y)?;
    }
    let both = y != product && m.draws.one_in(3);
    m.done(if both { vec![y, product] } else { vec![y] })
}

fn end(m: &mut Maker, shape: &[usize], y: ValueId) -> Built<ValueId> {
    match m.draws.draw(4) {
        0 => {
            let bias = m.f32(&shape[shape.len() - 1..], Numbers::Normal)?;
            m.b.add(y, bias)
        }
        1 => {
            let residual = m.f32(shape, Numbers::Normal)?;
            m.b.add(residual, y)
        }
        2 => {
            let factor = m.constant(DType::F32, &[], 0.25)?;
            m.b.binary(Binary::Mul, y, factor)
        }
        _ => m.b.unary(m.draws.pick(&[Unary::Sigmoid, Unary::Relu, Unary::Silu, Unary::GeluTanh, Unary::Relu6]), y),
    }
}

/// A convolution that fits: its geometry, image (batch, height, width) and window.
fn geometry(m: &mut Maker) -> (Conv, [usize; 3], [usize; 2]) {
    let wide = m.for_kernels() && m.draws.one_in(6);
    let window: [usize; 2] = std::array::from_fn(|_| if wide { m.draws.pick(&[5, 7]) } else { 1 + m.draws.draw(3) });
    let stride = std::array::from_fn(|_| m.draws.pick(&[1, 1, 2, 3]));
    let dilation: [usize; 2] = std::array::from_fn(|_| m.draws.pick(&[1, 1, 1, 2]));
    let pad = if m.draws.flip() {
        Pad2::NONE
    } else {
        Pad2 { top: m.draws.draw(3), bottom: m.draws.draw(3), left: m.draws.draw(3), right: m.draws.draw(3) }
    };
    let reach = |i: usize| (window[i] - 1) * dilation[i] + 1;
    let image =
        [m.batch(), m.side().max(reach(0).saturating_sub(pad.top)), m.side().max(reach(1).saturating_sub(pad.left))];
    (Conv { stride, pad, dilation, groups: 1 }, image, window)
}

/// Channels in and out of a group, so that the work stays small.
fn channels(m: &mut Maker, image: [usize; 3], window: [usize; 2]) -> [usize; 2] {
    let mut channels = [m.channels(), m.channels()];
    shrink(&mut channels, (WORK / (image.iter().product::<usize>() * window[0] * window[1])).max(1));
    channels
}

/// Geometry, image and filter of any convolution.
pub fn convolution(m: &mut Maker) -> (Conv, [usize; 4], [usize; 4]) {
    let (mut conv, [n, h, w], window) = geometry(m);
    conv.groups = m.draws.pick(&[1, 1, 1, 2, 3]);
    let [c_in, c_out] = channels(m, [n * conv.groups, h, w], window);
    (conv, [n, h, w, conv.groups * c_in], [window[0], window[1], c_in, conv.groups * c_out])
}

pub fn conv(m: &mut Maker) -> Made {
    let (conv, image, filter) = convolution(m);
    let (x, w) = (m.f32(&image, Numbers::Normal)?, m.f32(&filter, Numbers::Normal)?);
    let y = m.b.conv(x, w, conv)?;
    finished(m, y)
}

/// One filter, or two, for each channel.
pub fn depthwise(m: &mut Maker) -> Made {
    let (mut conv, [n, h, w], window) = geometry(m);
    let (groups, multiplier) = (m.channels(), m.draws.pick(&[1, 1, 1, 2]));
    conv.groups = groups;
    let x = m.f32(&[n, h, w, groups], Numbers::Normal)?;
    let w = m.f32(&[window[0], window[1], 1, groups * multiplier], Numbers::Normal)?;
    let y = m.b.conv(x, w, conv)?;
    finished(m, y)
}

/// The shape that the convolution of this image by this filter gives.
pub fn convolved_shape(
    conv: Conv,
    image: [usize; 4],
    filter: [usize; 4],
) -> std::result::Result<[usize; 4], memfit_ir::error::Rule> {
    let (size, window) = ([image[1], image[2]], [filter[0], filter[1]]);
    let [h, w] = memfit_ir::infer::conv_output(size, window, conv.stride, conv.pad, conv.dilation)?;
    Ok([image[0], h, w, filter[3]])
}

/// An input of the shape that the convolution of this image by this filter gives.
fn convolved(m: &mut Maker, conv: Conv, image: [usize; 4], filter: [usize; 4]) -> Built<ValueId> {
    match convolved_shape(conv, image, filter) {
        Ok(shape) => m.f32(&shape, Numbers::Normal),
        Err(e) => m.b.fail(format!("{e:?}")),
    }
}

pub fn conv_transpose(m: &mut Maker) -> Made {
    let (conv, image, filter) = convolution(m);
    let y = convolved(m, conv, image, filter)?;
    let w = m.f32(&filter, Numbers::Normal)?;
    let x = m.b.conv_transpose(y, w, ConvTranspose { conv, size: [image[1], image[2]] })?;
    finished(m, x)
}

pub fn conv_filter(m: &mut Maker) -> Made {
    let (conv, image, filter) = convolution(m);
    let x = m.f32(&image, Numbers::Normal)?;
    let dy = convolved(m, conv, image, filter)?;
    let w = m.b.op(Op::ConvFilter(ConvFilter { conv, size: [filter[0], filter[1]] }), &[x, dy])?;
    finished(m, w)
}

/// A product of a convolution of 3×3 taps with more channels than the others have: kernels take shortcuts there.
pub fn conv_3x3(m: &mut Maker) -> Made {
    let [top, bottom, left, right] = std::array::from_fn(|_| m.draws.pick(&[1, 1, 1, 0, 2]));
    let conv = Conv { stride: [1, 1], pad: Pad2 { top, bottom, left, right }, dilation: [1, 1], groups: 1 };
    let sides = if m.for_kernels() { 10 } else { 3 };
    let image = [m.batch(), 3 + m.draws.draw(sides), 3 + m.draws.draw(sides)];
    let channels: [usize; 2] =
        std::array::from_fn(|_| if m.for_kernels() { m.draws.pick(&[16, 17, 24, 33, 40]) } else { m.channels() });
    let (image, filter) = ([image[0], image[1], image[2], channels[0]], [3, 3, channels[0], channels[1]]);
    let made = match m.draws.draw(3) {
        0 => {
            let (x, w) = (m.f32(&image, Numbers::Normal)?, m.f32(&filter, Numbers::Normal)?);
            m.b.conv(x, w, conv)?
        }
        1 => {
            let (y, w) = (convolved(m, conv, image, filter)?, m.f32(&filter, Numbers::Normal)?);
            m.b.conv_transpose(y, w, ConvTranspose { conv, size: [image[1], image[2]] })?
        }
        _ => {
            let (x, y) = (m.f32(&image, Numbers::Normal)?, convolved(m, conv, image, filter)?);
            m.b.op(Op::ConvFilter(ConvFilter { conv, size: [3, 3] }), &[x, y])?
        }
    };
    finished(m, made)
}

pub fn attention(m: &mut Maker) -> Made {
    let causal = m.draws.flip();
    let (batch, heads) = (m.batch(), m.batch());
    let sequence = m.extent(&[1, 2, 3, 5, 8, 17, 33, 65, 70]);
    let dim = m.extent(&[1, 3, 4, 8, 16, 17, 33]);
    let scale = m.draws.pick(&[1.0 / (dim as f32).sqrt(), 1.0]);
    let qkv = m.f32(&[batch, sequence, 3, heads, dim], Numbers::Normal)?;
    m.one(Op::Attention(Attention { causal, scale }), &[qkv])
}
