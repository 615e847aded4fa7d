//! Gradients of the layout ops: each moves elements, and its gradient moves them back.

use memfit_ir::Op;
use memfit_ir::op::Slice;

use crate::grad::ctx::{Ctx, Grads};

pub(super) fn reshape(ctx: &mut Ctx) -> Grads {
    let dy = ctx.dy()?;
    let shape = ctx.shape(ctx.node.inputs[0]);
    Ok(vec![Some(ctx.reshape(dy, &shape)?)])
}

pub(super) fn transpose(ctx: &mut Ctx, perm: &[usize]) -> Grads {
    let dy = ctx.dy()?;
    let mut back = vec![0; perm.len()];
    for (to, &from) in perm.iter().enumerate() {
        back[from] = to;
    }
    Ok(vec![Some(ctx.op(Op::Transpose(back), &[dy])?)])
}

pub(super) fn slice(ctx: &mut Ctx, s: &Slice) -> Grads {
    let dy = ctx.dy()?;
    let shape = ctx.shape(ctx.node.inputs[0]);
    let pads = shape.iter().enumerate().map(|(i, &extent)| (s.start[i], extent - s.stop[i])).collect();
    Ok(vec![Some(ctx.op(Op::Pad(pads), &[dy])?)])
}

pub(super) fn concat(ctx: &mut Ctx, axis: usize) -> Grads {
    let dy = ctx.dy()?;
    let mut start = vec![0; ctx.graph.shape(dy).len()];
    let mut grads = Vec::new();
    for (i, &x) in ctx.node.inputs.iter().enumerate() {
        let stop: Vec<usize> = start.iter().zip(ctx.graph.shape(x)).map(|(from, extent)| from + extent).collect();
        let end = stop[axis];
        let part = Slice { start: start.clone(), stop };
        grads.push(ctx.when(i, |ctx| ctx.op(Op::Slice(part), &[dy]))?);
        start[axis] = end;
    }
    Ok(grads)
}

pub(super) fn pad(ctx: &mut Ctx, pads: &[(usize, usize)]) -> Grads {
    let dy = ctx.dy()?;
    let shape = ctx.shape(ctx.node.inputs[0]);
    let start: Vec<usize> = pads.iter().map(|&(before, _)| before).collect();
    let stop = start.iter().zip(&shape).map(|(from, extent)| from + extent).collect();
    Ok(vec![Some(ctx.op(Op::Slice(Slice { start, stop }), &[dy])?)])
}

pub(super) fn broadcast(ctx: &mut Ctx) -> Grads {
    let dy = ctx.dy()?;
    Ok(vec![ctx.when(0, |_| Ok(dy))?])
}
