//! Rules of the norms, softmax and cross-entropy.

use super::{Types, f32_of, gate, needs_f32, needs_rank, needs_type, one};
use crate::dtype::{DType, TensorType};
use crate::error::Rule;
use crate::op::{CrossEntropy, GroupNorm};
use crate::rule;

/// Extent of the last axis, which norms and softmax work over.
fn last(what: &str, x: &TensorType) -> Result<usize, Rule> {
    needs_f32(what, x)?;
    match x.shape.last() {
        Some(&n) if x.elements() > 0 => Ok(n),
        _ => rule!("{what} must have at least one axis and no empty one, but is {x}"),
    }
}

fn check_eps(eps: f32) -> Result<(), Rule> {
    if !(eps >= 0.0 && eps.is_finite()) {
        rule!("eps must not be negative, but is {eps}");
    }
    Ok(())
}

fn vectors(x: &TensorType, names: &[&str], given: &[&TensorType]) -> Result<(), Rule> {
    let n = last("the input", x)?;
    for (name, t) in names.iter().zip(given) {
        if **t != f32_of([n]) {
            rule!("{name} must be f32[{n}] for the input {}, but is {t}", x.shape);
        }
    }
    Ok(())
}

pub fn batch_stats(x: &TensorType) -> Types {
    let n = last("the input", x)?;
    Ok(vec![f32_of([n]), f32_of([n])])
}

pub fn batch_apply(eps: f32, t: &[&TensorType]) -> Types {
    check_eps(eps)?;
    vectors(t[0], &["mean", "var", "scale", "bias"], &t[1..])?;
    one(t[0].clone())
}

pub fn batch_grad_reduce(eps: f32, t: &[&TensorType]) -> Types {
    check_eps(eps)?;
    vectors(t[0], &["mean", "var"], &t[1..3])?;
    needs_type("the gradient", t[3], t[0])?;
    Ok(vec![t[1].clone(), t[1].clone()])
}

pub fn batch_grad_input(eps: f32, t: &[&TensorType]) -> Types {
    check_eps(eps)?;
    vectors(t[0], &["mean", "var", "scale"], &t[1..4])?;
    needs_type("the gradient", t[4], t[0])?;
    vectors(t[0], &["dscale", "dbias"], &t[5..])?;
    one(t[0].clone())
}

pub fn batch_update(momentum: f32, t: &[&TensorType]) -> Types {
    if !(0.0..=1.0).contains(&momentum) {
        rule!("the momentum must be between 0 and 1, but is {momentum}");
    }
    vectors(t[0], &["running var", "mean", "var"], &t[1..4])?;
    needs_rank("the running mean", t[0], 1)?;
    gate(&t[4..])?;
    Ok(vec![t[0].clone(), t[1].clone()])
}

fn rows_of(x: &TensorType) -> TensorType {
    f32_of(&x.shape[..x.shape.rank() - 1])
}

pub fn layer_norm(eps: f32, t: &[&TensorType]) -> Types {
    check_eps(eps)?;
    vectors(t[0], &["scale", "bias"], &t[1..])?;
    Ok(vec![t[0].clone(), rows_of(t[0]), rows_of(t[0])])
}

pub fn layer_norm_grad(t: &[&TensorType]) -> Types {
    vectors(t[0], &["scale"], &t[3..4])?;
    needs_type("mean", t[1], &rows_of(t[0]))?;
    needs_type("rstd", t[2], &rows_of(t[0]))?;
    needs_type("the gradient", t[4], t[0])?;
    Ok(vec![t[0].clone(), t[3].clone(), t[3].clone()])
}

pub fn rms_norm(eps: f32, t: &[&TensorType]) -> Types {
    check_eps(eps)?;
    vectors(t[0], &["scale"], &t[1..])?;
    Ok(vec![t[0].clone(), rows_of(t[0])])
}

pub fn rms_norm_grad(t: &[&TensorType]) -> Types {
    vectors(t[0], &["scale"], &t[2..3])?;
    needs_type("rstd", t[1], &rows_of(t[0]))?;
    needs_type("the gradient", t[3], t[0])?;
    Ok(vec![t[0].clone(), t[2].clone()])
}

fn group_stats(groups: usize, x: &TensorType) -> Result<TensorType, Rule> {
    let channels = last("the input", x)?;
    if x.shape.rank() < 2 {
        rule!("the input must have a batch axis and channels, but is {x}");
    }
    if groups == 0 || !channels.is_multiple_of(groups) {
        rule!("{groups} groups do not divide the {channels} channels of {}", x.shape);
    }
    Ok(f32_of([x.shape[0], groups]))
}

pub fn group_norm(g: &GroupNorm, t: &[&TensorType]) -> Types {
    check_eps(g.eps)?;
    let stats = group_stats(g.groups, t[0])?;
    vectors(t[0], &["scale", "bias"], &t[1..])?;
    Ok(vec![t[0].clone(), stats.clone(), stats])
}

pub fn group_norm_grad(groups: usize, t: &[&TensorType]) -> Types {
    let stats = group_stats(groups, t[0])?;
    needs_type("mean", t[1], &stats)?;
    needs_type("rstd", t[2], &stats)?;
    vectors(t[0], &["scale"], &t[3..4])?;
    needs_type("the gradient", t[4], t[0])?;
    Ok(vec![t[0].clone(), t[3].clone(), t[3].clone()])
}

pub fn softmax(x: &TensorType) -> Types {
    last("the input", x)?;
    one(x.clone())
}

pub fn softmax_grad(y: &TensorType, dy: &TensorType) -> Types {
    needs_type("the gradient", dy, y)?;
    softmax(y)
}

pub fn cross_entropy(c: &CrossEntropy, logits: &TensorType, labels: &TensorType) -> Types {
    let classes = last("the logits", logits)?;
    if !(0.0..=1.0).contains(&c.smoothing) {
        rule!("the label smoothing must be between 0 and 1, but is {}", c.smoothing);
    }
    let rows = rows_of(logits);
    let sparse = TensorType::new(DType::I32, rows.shape.clone());
    if *labels != sparse && labels != logits {
        rule!("labels for {} must be {sparse} classes below {classes} or {logits}, but are {labels}", logits.shape);
    }
    Ok(vec![rows.clone(), rows])
}

pub fn cross_entropy_grad(c: &CrossEntropy, t: &[&TensorType]) -> Types {
    let forward = cross_entropy(c, t[0], t[1])?;
    needs_type("lse", t[2], &forward[1])?;
    needs_type("the gradient", t[3], &forward[0])?;
    one(t[0].clone())
}
