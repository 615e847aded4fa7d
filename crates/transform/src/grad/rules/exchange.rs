//! Gradients of what replicas exchange.

use memfit_ir::op::{Fill, Join};
use memfit_ir::{Op, ValueId};

use crate::grad::ctx::{Ctx, Grads};
use crate::step::last_token;

/// Every replica's loss may depend on a total, and all of them on each replica's part of it: what flows into a part is the sum over
/// replicas of what flows into the total. All have the same graph, so all exchange it, in the same order.
pub(super) fn join(ctx: &mut Ctx, join: Join) -> Grads {
    let (sums, mut grads) = (join.sums(), vec![None; ctx.node.inputs.len()]);
    for (tensor, dy) in ctx.dys.iter().enumerate() {
        let Some(dy) = *dy else { continue };
        // One for each part of this replica, which gives what flows into its total once.
        let mut parts = vec![dy];
        for _ in 1..sums {
            let (dtype, shape) = (ctx.dtype(dy), ctx.shape(dy).into());
            parts.push(ctx.op(Op::Fill(Fill { value: 0.0, dtype, shape }), &[])?);
        }
        let inputs: Vec<ValueId> = parts.into_iter().chain(last_token(ctx.graph)).collect();
        let total = ctx.op(Op::Join(join), &inputs)?;
        grads[tensor * sums..(tensor + 1) * sums].fill(Some(total));
    }
    Ok(grads)
}
