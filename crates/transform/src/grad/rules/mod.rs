//! The table: one line for each op, to one small function for each rule. A rule never adds up contributions and never
//! looks beyond its node, save that batch norm asks where its statistics come from, and that exchanges wait for each other.

mod contract;
mod elementwise;
mod exchange;
mod layout;
mod loss;
mod norm;
mod reduce;
mod window;

use memfit_ir::Op;

use super::ctx::{Ctx, Grads};
use crate::error::Error;

/// The gradient of each input of the node, from those of its outputs.
pub(super) fn rule(ctx: &mut Ctx) -> Grads {
    match &ctx.node.op {
        // Nothing comes in, or nothing but integers and bits goes out.
        Op::Input(_) | Op::State(_) | Op::Fill(_) | Op::Compare(_) | Op::Mask(_) => {
            Ok(vec![None; ctx.node.inputs.len()])
        }

        Op::Unary(u) => elementwise::unary(ctx, *u),
        Op::Binary(b) => elementwise::binary(ctx, *b),
        Op::Select => elementwise::select(ctx),
        Op::Cast(_) => elementwise::cast(ctx),
        Op::Dropout(d) => elementwise::dropout(ctx, *d),

        Op::Reduce(r) => reduce::reduce(ctx, r),
        Op::Reshape(_) => layout::reshape(ctx),
        Op::Transpose(perm) => layout::transpose(ctx, perm),
        Op::Slice(s) => layout::slice(ctx, s),
        Op::Concat(axis) => layout::concat(ctx, *axis),
        Op::Pad(pads) => layout::pad(ctx, pads),
        Op::Broadcast(_) => layout::broadcast(ctx),

        Op::MatMul(m) => contract::matmul(ctx, *m),
        Op::Conv(c) => contract::conv(ctx, *c),
        Op::ConvTranspose(c) => contract::conv_transpose(ctx, c.conv),
        Op::ConvFilter(c) => contract::conv_filter(ctx, c.conv),
        Op::Attention(a) => contract::attention(ctx, *a),

        Op::MaxPool(w) => window::max_pool(ctx, *w),
        Op::AvgPool(w) => window::avg_pool(ctx, *w),
        Op::Upsample(u) => window::upsample(ctx, *u),

        Op::BatchStats => norm::batch_stats(ctx),
        Op::BatchApply(eps) => norm::batch_apply(ctx, *eps),
        Op::LayerNorm(_) => norm::layer_norm(ctx),
        Op::RmsNorm(_) => norm::rms_norm(ctx),
        Op::GroupNorm(g) => norm::group_norm(ctx, g.groups),

        Op::Softmax(s) => loss::softmax(ctx, *s),
        Op::CrossEntropy(c) => loss::cross_entropy(ctx, *c),
        Op::Gather => loss::gather(ctx),

        Op::UnaryGrad(_)
        | Op::MaskGrad(_)
        | Op::AttentionGrad(_)
        | Op::MaxPoolGrad(_)
        | Op::AvgPoolGrad(_)
        | Op::UpsampleGrad(_)
        | Op::BatchGradReduce(_)
        | Op::BatchGradInput(_)
        | Op::LayerNormGrad
        | Op::RmsNormGrad
        | Op::GroupNormGrad(_)
        | Op::SoftmaxGrad(_)
        | Op::CrossEntropyGrad(_)
        | Op::GatherGrad(_) => Err(Error::no_gradient(ctx.node)),

        Op::Join(join) => exchange::join(ctx, *join),

        Op::BatchUpdate(_) | Op::Update(_) | Op::Replicate(_) => {
            Err(Error::ThroughUpdate { op: ctx.node.op.name(), scope: ctx.node.scope.clone() })
        }
    }
}
