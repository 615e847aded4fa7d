//! Gradients of the elementwise family, each in the shape of the output: where an input was broadcast, its gradient is
//! summed back to the input's shape by [`Ctx::when`].

use memfit_ir::Op;
use memfit_ir::op::{Binary, Compare, Dropout, Reads, Unary};

use crate::grad::ctx::{Ctx, Grads};

pub(super) fn unary(ctx: &mut Ctx, u: Unary) -> Grads {
    let dy = ctx.dy()?;
    if u == Unary::Neg {
        return Ok(vec![Some(ctx.neg(dy)?)]);
    }
    let saved = match u.grad_reads() {
        Reads::Input => ctx.node.inputs[0],
        Reads::Output => ctx.node.outputs[0],
    };
    Ok(vec![Some(ctx.op(Op::UnaryGrad(u), &[saved, dy])?)])
}

pub(super) fn binary(ctx: &mut Ctx, b: Binary) -> Grads {
    match b {
        Binary::Add => add(ctx),
        Binary::Sub => sub(ctx),
        Binary::Mul => mul(ctx),
        Binary::Div => div(ctx),
        Binary::Min => extremum(ctx, Compare::Lt),
        Binary::Max => extremum(ctx, Compare::Gt),
        Binary::Pow => pow(ctx),
        Binary::SigmoidCrossEntropy => sigmoid_cross_entropy(ctx),
    }
}

fn add(ctx: &mut Ctx) -> Grads {
    let dy = ctx.dy()?;
    let da = ctx.when(0, |_| Ok(dy))?;
    let db = ctx.when(1, |_| Ok(dy))?;
    Ok(vec![da, db])
}

fn sub(ctx: &mut Ctx) -> Grads {
    let dy = ctx.dy()?;
    let da = ctx.when(0, |_| Ok(dy))?;
    let db = ctx.when(1, |ctx| {
        let sum = ctx.summed_to_input(1, dy)?;
        ctx.neg(sum)
    })?;
    Ok(vec![da, db])
}

fn mul(ctx: &mut Ctx) -> Grads {
    let (a, b, dy) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    let da = ctx.when(0, |ctx| ctx.mul(dy, b))?;
    let db = ctx.when(1, |ctx| ctx.mul(dy, a))?;
    Ok(vec![da, db])
}

/// da = dy / b, db = −dy·(a/b)/b: both share dy / b.
fn div(ctx: &mut Ctx) -> Grads {
    let (b, y, dy) = (ctx.node.inputs[1], ctx.node.outputs[0], ctx.dy()?);
    let share = ctx.div(dy, b)?;
    let da = ctx.when(0, |_| Ok(share))?;
    let db = ctx.when(1, |ctx| {
        let d = ctx.mul(share, y)?;
        let sum = ctx.summed_to_input(1, d)?;
        ctx.neg(sum)
    })?;
    Ok(vec![da, db])
}

/// Minimum and maximum: the side that `wins` gets the gradient; equal sides get half each.
fn extremum(ctx: &mut Ctx, wins: Compare) -> Grads {
    let (a, b, dy) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    let (zero, half) = (ctx.constant(0.0, dy)?, ctx.constant(0.5, dy)?);
    let equal = ctx.compare(Compare::Eq, a, b)?;
    let halved = ctx.mul(dy, half)?;
    let tie = ctx.select(equal, halved, zero)?;
    let da = ctx.when(0, |ctx| {
        let won = ctx.compare(wins, a, b)?;
        ctx.select(won, dy, tie)
    })?;
    let db = ctx.when(1, |ctx| {
        let won = ctx.compare(wins, b, a)?;
        ctx.select(won, dy, tie)
    })?;
    Ok(vec![da, db])
}

/// da = dy·b·a^(b − 1), db = dy·y·ln a. A zero exponent, and a zero base in db, would give 0·∞: they are set to 0.
fn pow(ctx: &mut Ctx) -> Grads {
    let (a, b, y, dy) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.node.outputs[0], ctx.dy()?);
    let zero = ctx.constant(0.0, dy)?;
    let da = ctx.when(0, |ctx| {
        let one = ctx.constant(1.0, dy)?;
        let less = ctx.sub(b, one)?;
        let power = ctx.op(Op::Binary(Binary::Pow), &[a, less])?;
        let slope = ctx.mul(b, power)?;
        let d = ctx.mul(dy, slope)?;
        let flat = ctx.compare(Compare::Eq, b, zero)?;
        ctx.select(flat, zero, d)
    })?;
    let db = ctx.when(1, |ctx| {
        let log = ctx.op(Op::Unary(Unary::Log), &[a])?;
        let slope = ctx.mul(y, log)?;
        let d = ctx.mul(dy, slope)?;
        let flat = ctx.compare(Compare::Eq, a, zero)?;
        ctx.select(flat, zero, d)
    })?;
    Ok(vec![da, db])
}

/// dx = dy·(sigmoid(x) − z), dz = −x·dy.
fn sigmoid_cross_entropy(ctx: &mut Ctx) -> Grads {
    let (x, z, dy) = (ctx.node.inputs[0], ctx.node.inputs[1], ctx.dy()?);
    let dx = ctx.when(0, |ctx| {
        let p = ctx.op(Op::Unary(Unary::Sigmoid), &[x])?;
        let error = ctx.sub(p, z)?;
        ctx.mul(dy, error)
    })?;
    let dz = ctx.when(1, |ctx| {
        let d = ctx.mul(dy, x)?;
        let sum = ctx.summed_to_input(1, d)?;
        ctx.neg(sum)
    })?;
    Ok(vec![dx, dz])
}

pub(super) fn select(ctx: &mut Ctx) -> Grads {
    let (condition, dy) = (ctx.node.inputs[0], ctx.dy()?);
    let zero = ctx.constant(0.0, dy)?;
    let da = ctx.when(1, |ctx| ctx.select(condition, dy, zero))?;
    let db = ctx.when(2, |ctx| ctx.select(condition, zero, dy))?;
    Ok(vec![None, da, db])
}

/// Between floats only: the walk never comes here with an integer on either side.
pub(super) fn cast(ctx: &mut Ctx) -> Grads {
    let dy = ctx.dy()?;
    let from = ctx.dtype(ctx.node.inputs[0]);
    Ok(vec![Some(ctx.cast(dy, from)?)])
}

/// The same op on dy: the mask follows from stream and clock.
pub(super) fn dropout(ctx: &mut Ctx, d: Dropout) -> Grads {
    let (clock, dy) = (ctx.node.inputs[1], ctx.dy()?);
    Ok(vec![Some(ctx.op(Op::Dropout(d), &[dy, clock])?), None])
}
