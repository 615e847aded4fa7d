//! Gradients of the norms. Each reads the input and its small statistics, never a normalised copy.

use memfit_ir::op::{BatchGradInput, Eps};
use memfit_ir::{Op, ValueId};

use crate::error::{Error, Result};
use crate::grad::ctx::{Ctx, Grads};

/// With the statistics of its own input, their share of the gradient is part of dx and nothing flows to them.
/// Otherwise they must be constant.
pub(super) fn batch_apply(ctx: &mut Ctx, eps: Eps) -> Grads {
    let dy = ctx.dy()?;
    let &[x, mean, var, scale, _] = &ctx.node.inputs[..] else { unreachable!("batch_apply has five inputs") };
    let batch_stats = has_own_statistics(ctx, x, mean, var);
    if !batch_stats && (ctx.wants(1) || ctx.wants(2)) {
        return Err(Error::Statistics { op: ctx.node.op.name(), scope: ctx.node.scope.clone() });
    }
    let sums = ctx.outputs(Op::BatchGradReduce(eps), &[x, mean, var, dy])?;
    let (dscale, dbias) = (sums[0], sums[1]);
    let dx = ctx.when(0, |ctx| {
        let op = Op::BatchGradInput(BatchGradInput { eps: eps.0, batch_stats });
        ctx.op(op, &[x, mean, var, scale, dy, dscale, dbias])
    })?;
    Ok(vec![dx, None, None, Some(dscale), Some(dbias)])
}

/// Whether mean and variance are those of x and nobody asked for their gradients, so that these may be folded into dx.
fn has_own_statistics(ctx: &Ctx, x: ValueId, mean: ValueId, var: ValueId) -> bool {
    let node = ctx.graph.node(ctx.graph.producer(mean));
    let own = node.op == Op::BatchStats && node.inputs[0] == x && node.outputs[..] == [mean, var];
    own && !ctx.asked[mean.index()] && !ctx.asked[var.index()]
}

/// What arrives besides batch_apply: dx = dmean/n + dvar·2(x − mean)/n. The variance's way through the mean is zero,
/// since Σ(x − mean) is.
pub(super) fn batch_stats(ctx: &mut Ctx) -> Grads {
    let (x, mean) = (ctx.node.inputs[0], ctx.node.outputs[0]);
    let shape = ctx.shape(x);
    let rows = shape[..shape.len() - 1].iter().product::<usize>() as f32;
    let shift = ctx.dys[0].map(|dmean| per_row(ctx, dmean, rows)).transpose()?;
    let spread = match ctx.dys[1] {
        Some(dvar) => {
            let slope = per_row(ctx, dvar, rows / 2.0)?;
            let centred = ctx.sub(x, mean)?;
            Some(ctx.mul(centred, slope)?)
        }
        None => None,
    };
    let dx = match (shift, spread) {
        (Some(shift), Some(spread)) => Some(ctx.add(spread, shift)?),
        (Some(shift), None) => Some(ctx.broadcast(shift, &shape)?),
        (None, spread) => spread,
    };
    Ok(vec![dx])
}

fn per_row(ctx: &mut Ctx, d: ValueId, rows: f32) -> Result<ValueId> {
    let rows = ctx.constant(rows, d)?;
    ctx.div(d, rows)
}

pub(super) fn layer_norm(ctx: &mut Ctx) -> Grads {
    from_statistics(ctx, Op::LayerNormGrad)
}

pub(super) fn rms_norm(ctx: &mut Ctx) -> Grads {
    from_statistics(ctx, Op::RmsNormGrad)
}

pub(super) fn group_norm(ctx: &mut Ctx, groups: usize) -> Grads {
    from_statistics(ctx, Op::GroupNormGrad(groups))
}

/// `(x, statistics.., scale, dy)` to a gradient for each input: the form of all norms that make their own statistics.
fn from_statistics(ctx: &mut Ctx, op: Op) -> Grads {
    let dy = ctx.dy()?;
    let node = ctx.node;
    let inputs = [&node.inputs[..1], &node.outputs[1..], &[node.inputs[1], dy]].concat();
    Ok(ctx.outputs(op, &inputs)?.into_iter().map(Some).collect())
}
