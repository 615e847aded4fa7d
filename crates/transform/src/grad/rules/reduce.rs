//! Gradients of reductions: dy, with the reduced axes put back as extent 1, is stretched over them again.

use memfit_ir::op::{Compare, Reduce, ReduceKind};
use memfit_ir::{DType, Op, ValueId};

use crate::error::Result;
use crate::grad::ctx::{Ctx, Grads};

pub(super) fn reduce(ctx: &mut Ctx, r: &Reduce) -> Grads {
    let (x, dy) = (ctx.node.inputs[0], ctx.dy()?);
    let shape = ctx.shape(x);
    let mut kept = shape.clone();
    for &axis in &r.axes {
        kept[axis] = 1;
    }
    let dy = aligned(ctx, dy, &kept)?;
    let dx = match r.kind {
        ReduceKind::Sum => ctx.broadcast(dy, &shape)?,
        ReduceKind::Mean => {
            let count: usize = r.axes.iter().map(|&axis| shape[axis]).product();
            let count = ctx.constant(count as f32, dy)?;
            let share = ctx.div(dy, count)?;
            ctx.broadcast(share, &shape)?
        }
        ReduceKind::Max => max(ctx, r, &kept, dy)?,
        ReduceKind::SumSquares => {
            let two = ctx.constant(2.0, dy)?;
            let twice = ctx.mul(dy, two)?;
            ctx.mul(x, twice)?
        }
    };
    Ok(vec![Some(dx)])
}

/// A reduced value in the shape `kept`, or as it is where broadcasting puts it there anyway.
fn aligned(ctx: &mut Ctx, v: ValueId, kept: &[usize]) -> Result<ValueId> {
    let missing = kept.len() - ctx.graph.shape(v).len();
    let in_place = kept[..missing].iter().all(|&extent| extent == 1) && kept[missing..] == *ctx.graph.shape(v);
    if in_place { Ok(v) } else { ctx.reshape(v, kept) }
}

/// Every element that equals the maximum gets the same share of dy.
fn max(ctx: &mut Ctx, r: &Reduce, kept: &[usize], dy: ValueId) -> Result<ValueId> {
    let (x, y) = (ctx.node.inputs[0], ctx.node.outputs[0]);
    let y = aligned(ctx, y, kept)?;
    let mask = ctx.compare(Compare::Eq, x, y)?;
    let ones = ctx.cast(mask, DType::F32)?;
    let count = Reduce { kind: ReduceKind::Sum, axes: r.axes.clone(), keep: true };
    let count = ctx.op(Op::Reduce(count), &[ones])?;
    let share = ctx.div(dy, count)?;
    let zero = ctx.constant(0.0, dy)?;
    ctx.select(mask, share, zero)
}
