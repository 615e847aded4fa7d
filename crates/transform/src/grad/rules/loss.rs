//! Gradients of softmax, cross-entropy and gather.

use memfit_ir::op::{CrossEntropy, GatherGrad, Softmax};
use memfit_ir::{Op, ValueId};

use crate::error::Result;
use crate::grad::ctx::{Ctx, Grads};

pub(super) fn softmax(ctx: &mut Ctx, s: Softmax) -> Grads {
    let (y, dy) = (ctx.node.outputs[0], ctx.dy()?);
    Ok(vec![Some(ctx.op(Op::SoftmaxGrad(s), &[y, dy])?)])
}

pub(super) fn cross_entropy(ctx: &mut Ctx, c: CrossEntropy) -> Grads {
    let (logits, labels, lse, dloss) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.node.outputs[1], ctx.dy()?);
    let dlogits = ctx.when(0, |ctx| ctx.op(Op::CrossEntropyGrad(c), &[logits, labels, lse, dloss]))?;
    let dlabels = ctx.when(1, |ctx| by_labels(ctx, c, dloss))?;
    Ok(vec![dlogits, dlabels])
}

/// The loss is Σ ((1 − s)·label + s/classes)·(lse − logit), so that dlabel = (1 − s)·dloss·(lse − logit).
fn by_labels(ctx: &mut Ctx, c: CrossEntropy, dloss: ValueId) -> Result<ValueId> {
    let (logits, lse) = (ctx.node.inputs[0], ctx.node.outputs[1]);
    let mut column = ctx.shape(lse);
    column.push(1);
    let lse = ctx.reshape(lse, &column)?;
    let dloss = ctx.reshape(dloss, &column)?;
    let kept = ctx.constant(1.0 - c.smoothing, dloss)?;
    let weight = ctx.mul(dloss, kept)?;
    let distance = ctx.sub(lse, logits)?;
    ctx.mul(distance, weight)
}

pub(super) fn gather(ctx: &mut Ctx) -> Grads {
    let (table, ids, dy) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    let rows = ctx.graph.shape(table)[0];
    Ok(vec![Some(ctx.op(Op::GatherGrad(GatherGrad { rows }), &[ids, dy])?), None])
}
