//! Gradients of the contractions. Matmul is its own family; the three convolutions are one trilinear form
//! ⟨conv(x, w), y⟩ = ⟨x, transpose(y, w)⟩ = ⟨filter(x, y), w⟩, so that the gradients of each are the other two.

use memfit_ir::op::{Attention, Conv, ConvFilter, ConvTranspose, MatMul};
use memfit_ir::{Op, ValueId};

use crate::error::Result;
use crate::grad::ctx::{Ctx, Grads};

/// y = A·B gives dA = dy·Bᵀ and dB = Aᵀ·dy; for a side that was read transposed, the transposed of that. The flags do
/// all the turning.
pub(super) fn matmul(ctx: &mut Ctx, m: MatMul) -> Grads {
    let (a, b, dy) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    // The weight's gradient first: then the operand that it reads can die before the other gradient needs memory.
    let db = ctx.when(1, |ctx| {
        // One right side for the whole batch: the batch axes are more rows.
        let is_shared = ctx.graph.shape(a).len() > ctx.graph.shape(b).len();
        let (a, dy) = if is_shared { (rows(ctx, a)?, rows(ctx, dy)?) } else { (a, dy) };
        if m.transpose_b {
            product(ctx, dy, true, a, m.transpose_a)
        } else {
            product(ctx, a, !m.transpose_a, dy, false)
        }
    })?;
    let da = ctx.when(0, |ctx| {
        if m.transpose_a {
            product(ctx, b, m.transpose_b, dy, true)
        } else {
            product(ctx, dy, false, b, !m.transpose_b)
        }
    })?;
    Ok(vec![da, db])
}

fn product(ctx: &mut Ctx, a: ValueId, transpose_a: bool, b: ValueId, transpose_b: bool) -> Result<ValueId> {
    ctx.op(Op::MatMul(MatMul { transpose_a, transpose_b }), &[a, b])
}

/// All axes but the last as one.
fn rows(ctx: &mut Ctx, x: ValueId) -> Result<ValueId> {
    let shape = ctx.shape(x);
    let (last, lead) = shape.split_last().expect("a matrix has two axes");
    ctx.reshape(x, &[lead.iter().product(), *last])
}

pub(super) fn conv(ctx: &mut Ctx, c: Conv) -> Grads {
    let (x, w, dy) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    let dw = ctx.when(1, |ctx| filter(ctx, c, x, dy, w))?;
    let dx = ctx.when(0, |ctx| transposed(ctx, c, dy, w, x))?;
    Ok(vec![dx, dw])
}

/// Of x = transpose(y, w): dy = conv(dx, w), dw = filter(dx, y).
pub(super) fn conv_transpose(ctx: &mut Ctx, c: Conv) -> Grads {
    let (y, w, dx) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    let dw = ctx.when(1, |ctx| filter(ctx, c, dx, y, w))?;
    let dy = ctx.when(0, |ctx| ctx.op(Op::Conv(c), &[dx, w]))?;
    Ok(vec![dy, dw])
}

/// Of w = filter(x, y): dx = transpose(y, dw), dy = conv(x, dw).
pub(super) fn conv_filter(ctx: &mut Ctx, c: Conv) -> Grads {
    let (x, y, dw) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    let dx = ctx.when(0, |ctx| transposed(ctx, c, y, dw, x))?;
    let dy = ctx.when(1, |ctx| ctx.op(Op::Conv(c), &[x, dw]))?;
    Ok(vec![dx, dy])
}

/// The transposed convolution that makes an image of the size of `like`.
fn transposed(ctx: &mut Ctx, conv: Conv, y: ValueId, w: ValueId, like: ValueId) -> Result<ValueId> {
    let size = [ctx.graph.shape(like)[1], ctx.graph.shape(like)[2]];
    ctx.op(Op::ConvTranspose(ConvTranspose { conv, size }), &[y, w])
}

/// The gradient by a filter of the size of `like`.
fn filter(ctx: &mut Ctx, conv: Conv, x: ValueId, y: ValueId, like: ValueId) -> Result<ValueId> {
    let size = [ctx.graph.shape(like)[0], ctx.graph.shape(like)[1]];
    ctx.op(Op::ConvFilter(ConvFilter { conv, size }), &[x, y])
}

pub(super) fn attention(ctx: &mut Ctx, a: Attention) -> Grads {
    let dy = ctx.dy()?;
    let (qkv, y, lse) = (ctx.node.inputs[0], ctx.node.outputs[0], ctx.node.outputs[1]);
    let dqkv = ctx.when(0, |ctx| ctx.op(Op::AttentionGrad(a), &[qkv, y, lse, dy]))?;
    Ok(vec![dqkv])
}
