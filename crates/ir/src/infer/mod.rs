//! Shape and type rules: from an op and its input types to its output types, or to the rule that is broken. Pure.

mod contract;
mod elementwise;
mod exchange;
mod layout;
pub mod limit;
mod norm;
mod window;

use crate::dtype::{DType, Shape, TensorType};
use crate::error::Rule;
use crate::op::{Init, Op, Update};
use crate::rule;

pub use contract::{conv_output, same_padding};
pub use elementwise::broadcast;

type Types = Result<Vec<TensorType>, Rule>;

/// The output types of an op, each within [`limit`]; the inputs are outputs of other ops. The error names both shapes;
/// the caller adds op and layer.
pub fn infer(op: &Op, inputs: &[&TensorType]) -> Types {
    arity(op, inputs.len())?;
    let types = rules(op, inputs)?;
    elementwise::bits_are_masks(op, inputs, &types)?;
    limit::types(&types)?;
    Ok(types)
}

fn rules(op: &Op, inputs: &[&TensorType]) -> Types {
    match op {
        Op::Input(i) => one(TensorType::new(i.dtype, i.shape.clone())),
        Op::State(s) => {
            let ok = match s.init {
                Init::Constant(c) => c.is_finite(),
                Init::Normal { std: x } | Init::Uniform { limit: x } => x.is_finite() && x >= 0.0,
            };
            if !ok {
                rule!("the initial value {:?} is not a finite number", s.init);
            }
            one(TensorType::new(s.dtype, s.shape.clone()))
        }
        Op::Fill(f) => one(TensorType::new(f.dtype, f.shape.clone())),
        Op::Unary(u) => elementwise::unary(*u, inputs[0]),
        Op::UnaryGrad(u) => elementwise::unary_grad(*u, inputs[0], inputs[1]),
        Op::Mask(u) => elementwise::mask(*u, inputs[0]),
        Op::MaskGrad(u) => elementwise::mask_grad(*u, inputs[0], inputs[1]),
        Op::Binary(b) => elementwise::binary(*b, inputs[0], inputs[1]),
        Op::Compare(_) => elementwise::compare(inputs[0], inputs[1]),
        Op::Select => elementwise::select(inputs[0], inputs[1], inputs[2]),
        Op::Cast(to) => one(TensorType::new(*to, inputs[0].shape.clone())),
        Op::Dropout(d) => elementwise::dropout(d, inputs[0], inputs[1]),
        Op::Reduce(r) => layout::reduce(r, inputs[0]),
        Op::Reshape(s) => layout::reshape(s, inputs[0]),
        Op::Transpose(p) => layout::transpose(p, inputs[0]),
        Op::Slice(s) => layout::slice(s, inputs[0]),
        Op::Concat(axis) => layout::concat(*axis, inputs),
        Op::Pad(p) => layout::pad(p, inputs[0]),
        Op::Broadcast(s) => layout::broadcast_to(s, inputs[0]),
        Op::MatMul(m) => contract::matmul(*m, inputs[0], inputs[1]),
        Op::Conv(c) => contract::conv(c, inputs[0], inputs[1]),
        Op::ConvTranspose(c) => contract::conv_transpose(c, inputs[0], inputs[1]),
        Op::ConvFilter(c) => contract::conv_filter(c, inputs[0], inputs[1]),
        Op::Attention(a) => contract::attention(*a, inputs),
        Op::AttentionGrad(a) => contract::attention_grad(*a, inputs),
        Op::MaxPool(w) => window::max_pool(w, inputs[0]),
        Op::MaxPoolGrad(w) => window::max_pool_grad(w, inputs[0], inputs[1]),
        Op::AvgPool(w) => window::avg_pool(w, inputs[0]),
        Op::AvgPoolGrad(w) => window::avg_pool_grad(w, inputs[0]),
        Op::Upsample(u) => window::upsample(u, inputs[0]),
        Op::UpsampleGrad(u) => window::upsample_grad(u, inputs[0]),
        Op::BatchStats => norm::batch_stats(inputs[0]),
        Op::BatchApply(e) => norm::batch_apply(e.0, inputs),
        Op::BatchGradReduce(e) => norm::batch_grad_reduce(e.0, inputs),
        Op::BatchGradInput(b) => norm::batch_grad_input(b.eps, inputs),
        Op::BatchUpdate(u) => norm::batch_update(u.momentum, inputs),
        Op::LayerNorm(e) => norm::layer_norm(e.0, inputs),
        Op::LayerNormGrad => norm::layer_norm_grad(inputs),
        Op::RmsNorm(e) => norm::rms_norm(e.0, inputs),
        Op::RmsNormGrad => norm::rms_norm_grad(inputs),
        Op::GroupNorm(g) => norm::group_norm(g, inputs),
        Op::GroupNormGrad(groups) => norm::group_norm_grad(*groups, inputs),
        Op::Softmax(_) => norm::softmax(inputs[0]),
        Op::SoftmaxGrad(_) => norm::softmax_grad(inputs[0], inputs[1]),
        Op::CrossEntropy(c) => norm::cross_entropy(c, inputs[0], inputs[1]),
        Op::CrossEntropyGrad(c) => norm::cross_entropy_grad(c, inputs),
        Op::Gather => layout::gather(inputs[0], inputs[1]),
        Op::GatherGrad(g) => layout::gather_grad(g.rows, inputs[0], inputs[1]),
        Op::Update(u) => update(*u, inputs),
        Op::Join(j) => exchange::join(*j, inputs),
        Op::Replicate(r) => exchange::replicate(*r, inputs),
    }
}

/// How many inputs an op takes besides the gate of an update; `None` for "one or more".
fn expected_inputs(op: &Op) -> Option<usize> {
    Some(match op {
        Op::Input(_) | Op::State(_) | Op::Fill(_) => 0,
        Op::Unary(_)
        | Op::Mask(_)
        | Op::Cast(_)
        | Op::Reduce(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Broadcast(_)
        | Op::MaxPool(_)
        | Op::AvgPool(_)
        | Op::AvgPoolGrad(_)
        | Op::Upsample(_)
        | Op::UpsampleGrad(_)
        | Op::BatchStats
        | Op::Attention(_)
        | Op::Softmax(_) => 1,
        Op::UnaryGrad(_)
        | Op::MaskGrad(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Dropout(_)
        | Op::MatMul(_)
        | Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::ConvFilter(_)
        | Op::MaxPoolGrad(_)
        | Op::SoftmaxGrad(_)
        | Op::CrossEntropy(_)
        | Op::RmsNorm(_)
        | Op::Gather
        | Op::GatherGrad(_) => 2,
        Op::Select | Op::LayerNorm(_) | Op::GroupNorm(_) => 3,
        Op::BatchGradReduce(_)
        | Op::BatchUpdate(_)
        | Op::RmsNormGrad
        | Op::CrossEntropyGrad(_)
        | Op::AttentionGrad(_) => 4,
        Op::BatchApply(_) | Op::LayerNormGrad | Op::GroupNormGrad(_) => 5,
        Op::BatchGradInput(_) => 7,
        Op::Update(u) => 4 + u.slots().len(),
        Op::Concat(_) | Op::Join(_) | Op::Replicate(_) => return None,
    })
}

/// Whether an op takes one more input than it needs: a `u8[]` that may hold it back.
fn may_be_gated(op: &Op) -> bool {
    op.is_update()
}

fn arity(op: &Op, given: usize) -> Result<(), Rule> {
    match expected_inputs(op) {
        Some(n) if may_be_gated(op) && given == n + 1 => Ok(()),
        Some(n) if n != given => rule!("takes {n} inputs, but was given {given}"),
        None if given == 0 => rule!("needs at least one input"),
        Some(_) | None => Ok(()),
    }
}

/// Every number of an update rule is in its range; a beta of 1 would divide by zero.
fn check_update(u: Update) -> Result<(), Rule> {
    let below_one = |what: &str, x: f32| {
        if !(0.0..1.0).contains(&x) {
            rule!("{what} must be at least 0 and less than 1, but is {x}");
        }
        Ok(())
    };
    let not_negative = |what: &str, x: f32| {
        if !(x >= 0.0 && x.is_finite()) {
            rule!("{what} must not be negative, but is {x}");
        }
        Ok(())
    };
    match u {
        Update::Sgd { momentum, nesterov, weight_decay } => {
            if nesterov && momentum == 0.0 {
                rule!("Nesterov's step needs a momentum, but it is 0");
            }
            below_one("the momentum", momentum)?;
            not_negative("the weight decay", weight_decay)
        }
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled: _ } => {
            below_one("beta1", beta1)?;
            below_one("beta2", beta2)?;
            not_negative("eps", eps)?;
            not_negative("the weight decay", weight_decay)
        }
        Update::RmsProp { alpha, eps } => {
            below_one("alpha", alpha)?;
            not_negative("eps", eps)
        }
        Update::Adagrad { eps } => not_negative("eps", eps),
    }
}

fn update(u: Update, inputs: &[&TensorType]) -> Types {
    check_update(u)?;
    let w = inputs[0];
    let (state, rest) = inputs.split_at(2 + u.slots().len());
    for (what, t) in ["gradient", "slot", "slot"].iter().zip(&state[1..]) {
        if *t != w {
            rule!("the {what} is {t}, but the parameter is {w}");
        }
    }
    needs_f32("the parameter", w)?;
    if *rest[0] != TensorType::f32([]) {
        rule!("the learning rate must be f32[], but is {}", rest[0]);
    }
    clock(rest[1])?;
    gate(&rest[2..])?;
    Ok(vec![w.clone(); 1 + u.slots().len()])
}

fn one(t: TensorType) -> Types {
    Ok(vec![t])
}

fn f32_of(shape: impl Into<Shape>) -> TensorType {
    TensorType::f32(shape)
}

fn needs_f32(what: &str, t: &TensorType) -> Result<(), Rule> {
    if t.dtype != DType::F32 {
        rule!("{what} must be f32, but is {t}; add a cast");
    }
    Ok(())
}

fn needs_rank(what: &str, t: &TensorType, rank: usize) -> Result<(), Rule> {
    if t.shape.rank() != rank {
        rule!("{what} must have {rank} axes, but is {t}");
    }
    Ok(())
}

fn needs_type(what: &str, given: &TensorType, expected: &TensorType) -> Result<(), Rule> {
    if given != expected {
        rule!("{what} must be {expected}, but is {given}");
    }
    Ok(())
}

/// What may hold an update back, where it is given.
fn gate(given: &[&TensorType]) -> Result<(), Rule> {
    given.iter().try_for_each(|t| needs_type("the gate", t, &TensorType::new(DType::U8, [])))
}

fn clock(t: &TensorType) -> Result<(), Rule> {
    needs_type("the clock", t, &TensorType::i32([4]))
}

fn positive(what: &str, n: [usize; 2]) -> Result<(), Rule> {
    if n[0] == 0 || n[1] == 0 {
        rule!("the {what} must be at least 1, but is {}x{}", n[0], n[1]);
    }
    Ok(())
}
