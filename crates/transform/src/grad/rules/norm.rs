//! Gradients of the norms. Each reads the input and its small statistics, never a normalised copy.

use memfit_ir::op::{BatchGradInput, Eps, Join};
use memfit_ir::{Op, ValueId};

use crate::error::{Error, Result};
use crate::grad::ctx::{Ctx, Grads};
use crate::step::{last_token, synchronised};

/// With the statistics of its own input, their share of the gradient is part of dx and nothing flows to them. With those of a
/// batch of which its input is a part, so it is, and what flows through them comes from all parts. Otherwise they must be
/// constant.
pub(super) fn batch_apply(ctx: &mut Ctx, eps: Eps) -> Grads {
    let dy = ctx.dy()?;
    let &[x, mean, var, scale, _] = &ctx.node.inputs[..] else { unreachable!("batch_apply has five inputs") };
    let is_asked = ctx.asked[mean.index()] || ctx.asked[var.index()];
    let of_all = synchronised(ctx.graph, x, mean, var).filter(|_| !is_asked);
    let batch_stats = has_own_statistics(ctx, x, mean, var) || of_all.is_some();
    if !batch_stats && (ctx.wants(1) || ctx.wants(2)) {
        return Err(Error::Statistics { op: ctx.node.op.name(), scope: ctx.node.scope.clone() });
    }
    let sums = ctx.outputs(Op::BatchGradReduce(eps), &[x, mean, var, dy])?;
    let (dscale, dbias) = (sums[0], sums[1]);
    let dx = ctx.when(0, |ctx| {
        let [through_var, through_mean] = match of_all {
            Some((join, share)) => of_all_parts(ctx, join, share, [dscale, dbias])?,
            None => [dscale, dbias],
        };
        let op = Op::BatchGradInput(BatchGradInput { eps: eps.0, batch_stats });
        ctx.op(op, &[x, mean, var, scale, dy, through_var, through_mean])
    })?;
    Ok(vec![dx, None, None, Some(dscale), Some(dbias)])
}

/// What flows into the statistics of a batch from all of its parts, as a mean over parts: a part divides it by its own samples,
/// as if there were no others.
fn of_all_parts(ctx: &mut Ctx, join: Join, share: ValueId, sums: [ValueId; 2]) -> Result<[ValueId; 2]> {
    let parts = [ctx.mul(sums[0], share)?, ctx.mul(sums[1], share)?];
    let inputs: Vec<ValueId> = parts.into_iter().chain(last_token(ctx.graph)).collect();
    let joined = ctx.outputs(Op::Join(join), &inputs)?;
    Ok([joined[0], joined[1]])
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
