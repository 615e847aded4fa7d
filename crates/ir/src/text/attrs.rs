//! From an op to its settings: the half of the text form that the compiler keeps complete. [`build`](super::build) is
//! the way back.

use super::setting::Setting;
use crate::op::*;

/// The settings that [`build`](super::build) takes to make the op again. What the name, the label or the printed result type says
/// already is not among them.
pub fn attrs(op: &Op) -> Vec<(&'static str, String)> {
    match op {
        Op::State(s) => vec![("class", s.class.write()), ("init", s.init.write())],
        Op::Fill(f) => vec![("value", f.value.write())],
        Op::Unary(u) | Op::UnaryGrad(u) => unary_attrs(*u),
        Op::Mask(u) | Op::MaskGrad(u) => [vec![("of", u.write())], unary_attrs(*u)].concat(),
        Op::Dropout(d) => vec![("rate", d.rate.write()), ("stream", d.stream.write())],
        Op::Reduce(r) => vec![("axes", r.axes.write()), ("keep", r.keep.write())],
        Op::Transpose(perm) => vec![("perm", perm.write())],
        Op::Slice(s) => vec![("start", s.start.write()), ("stop", s.stop.write())],
        Op::Concat(axis) => vec![("axis", axis.write())],
        Op::Pad(pads) => vec![("pad", pads.write())],
        Op::MatMul(m) => vec![("transpose_a", m.transpose_a.write()), ("transpose_b", m.transpose_b.write())],
        Op::Conv(c) => conv_attrs(c),
        Op::ConvTranspose(c) => with_size(conv_attrs(&c.conv), c.size),
        Op::ConvFilter(c) => with_size(conv_attrs(&c.conv), c.size),
        Op::Attention(a) | Op::AttentionGrad(a) => vec![("causal", a.causal.write()), ("scale", a.scale.write())],
        Op::MaxPool(w) | Op::AvgPool(w) => window_attrs(w),
        Op::MaxPoolGrad(w) | Op::AvgPoolGrad(w) => with_size(window_attrs(&w.window), w.size),
        Op::Upsample(u) | Op::UpsampleGrad(u) => vec![("mode", u.mode.write()), ("factor", u.factor.write())],
        Op::BatchApply(e) | Op::BatchGradReduce(e) | Op::LayerNorm(e) | Op::RmsNorm(e) => vec![("eps", e.0.write())],
        Op::BatchGradInput(b) => vec![("eps", b.eps.write()), ("batch_stats", b.batch_stats.write())],
        Op::BatchUpdate(u) => vec![("momentum", u.momentum.write())],
        Op::GroupNorm(g) => vec![("groups", g.groups.write()), ("eps", g.eps.write())],
        Op::GroupNormGrad(groups) => vec![("groups", groups.write())],
        Op::CrossEntropy(c) | Op::CrossEntropyGrad(c) => vec![("smoothing", c.smoothing.write())],
        Op::GatherGrad(g) => vec![("rows", g.rows.write())],
        Op::Update(u) => update_attrs(*u),
        Op::Join(Join { replica, piece }) => vec![
            ("lanes", replica.lanes.write()),
            ("replicas", replica.count.write()),
            ("rank", replica.rank.write()),
            ("piece", piece.write()),
        ],
        Op::Replicate(r) => {
            vec![("count", r.count.write()), ("rank", r.rank.write()), ("owner", r.owner.write())]
        }
        Op::Input(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Reshape(_)
        | Op::Broadcast(_)
        | Op::BatchStats
        | Op::LayerNormGrad
        | Op::RmsNormGrad
        | Op::Softmax(_)
        | Op::SoftmaxGrad(_)
        | Op::Gather => vec![],
    }
}

fn unary_attrs(u: Unary) -> Vec<(&'static str, String)> {
    match u {
        Unary::LeakyRelu(slope) => vec![("slope", slope.write())],
        Unary::Elu(alpha) => vec![("alpha", alpha.write())],
        Unary::Neg
        | Unary::Abs
        | Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Tanh
        | Unary::Sigmoid
        | Unary::Relu
        | Unary::Relu6
        | Unary::Softplus
        | Unary::HardSigmoid
        | Unary::HardSwish
        | Unary::Silu
        | Unary::GeluTanh
        | Unary::GeluErf => vec![],
    }
}

fn conv_attrs(c: &Conv) -> Vec<(&'static str, String)> {
    let Conv { stride, pad, dilation, groups } = c;
    vec![("stride", stride.write()), ("pad", pad.write()), ("dilation", dilation.write()), ("groups", groups.write())]
}

/// The window is `window`, because `size` is the image where there are both.
fn window_attrs(w: &Window) -> Vec<(&'static str, String)> {
    vec![("window", w.size.write()), ("stride", w.stride.write()), ("pad", w.pad.write())]
}

fn with_size(mut attrs: Vec<(&'static str, String)>, size: [usize; 2]) -> Vec<(&'static str, String)> {
    attrs.push(("size", size.write()));
    attrs
}

fn update_attrs(u: Update) -> Vec<(&'static str, String)> {
    match u {
        Update::Sgd { momentum, nesterov, weight_decay } => {
            vec![("momentum", momentum.write()), ("nesterov", nesterov.write()), ("weight_decay", weight_decay.write())]
        }
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled: _ } => vec![
            ("beta1", beta1.write()),
            ("beta2", beta2.write()),
            ("eps", eps.write()),
            ("weight_decay", weight_decay.write()),
        ],
        Update::RmsProp { alpha, eps } => vec![("alpha", alpha.write()), ("eps", eps.write())],
        Update::Adagrad { eps } => vec![("eps", eps.write())],
    }
}
