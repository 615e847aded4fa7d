//! Gradients of pooling and upsampling. They read no image: the size is an attribute, the maximum an index.

use memfit_ir::Op;
use memfit_ir::op::{Upsample, Window, WindowGrad};

use crate::grad::ctx::{Ctx, Grads};

pub(super) fn max_pool(ctx: &mut Ctx, window: Window) -> Grads {
    let (index, dy) = (ctx.node.outputs[1], ctx.dy()?);
    let op = Op::MaxPoolGrad(of_input(ctx, window));
    Ok(vec![Some(ctx.op(op, &[index, dy])?)])
}

pub(super) fn avg_pool(ctx: &mut Ctx, window: Window) -> Grads {
    let dy = ctx.dy()?;
    let op = Op::AvgPoolGrad(of_input(ctx, window));
    Ok(vec![Some(ctx.op(op, &[dy])?)])
}

fn of_input(ctx: &Ctx, window: Window) -> WindowGrad {
    let shape = ctx.graph.shape(ctx.node.inputs[0]);
    WindowGrad { window, size: [shape[1], shape[2]] }
}

pub(super) fn upsample(ctx: &mut Ctx, u: Upsample) -> Grads {
    let dy = ctx.dy()?;
    Ok(vec![Some(ctx.op(Op::UpsampleGrad(u), &[dy])?)])
}
