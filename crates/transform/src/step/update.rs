//! Clipping and the optimizer: from the gradient of each parameter to its update. Both graphs that end a step, whole
//! or in micro-batches, are finished here.

use memfit_ir::op::{
    Binary, CLOCK, Fill, Init, Input, LEARNING_RATE, Reduce, ReduceKind, State, StateClass, Unary, Update,
};
use memfit_ir::{DType, Donation, Graph, Op, TensorType, ValueId};

use super::exchange::own_params;
use super::{Clip, Job, push, scope_of, state_of};
use crate::error::Result;
use crate::precision::scale::Scaling;

/// The scope of what belongs to no single layer.
pub(crate) const SCOPE: &str = "optimizer";

pub(crate) fn clip(job: &mut Job) -> Result<()> {
    job.grads = match job.task.training.clip {
        Clip::None => return Ok(()),
        Clip::Value(limit) => clip_value(job, limit)?,
        Clip::GlobalNorm(limit) => clip_norm(job, limit)?,
    };
    Ok(())
}

fn clip_value(job: &mut Job, limit: f32) -> Result<Vec<ValueId>> {
    let high = scalar(&mut job.graph, limit)?;
    let low = scalar(&mut job.graph, -limit)?;
    let mut clipped = Vec::new();
    for (&param, &grad) in job.params.iter().zip(&job.grads) {
        let scope = scope_of(&job.graph, param);
        let above = push(&mut job.graph, Op::Binary(Binary::Max), &[grad, low], &scope)?;
        clipped.push(push(&mut job.graph, Op::Binary(Binary::Min), &[above, high], &scope)?);
    }
    Ok(clipped)
}

/// The factor is limit / max(norm, limit): exactly 1 where the norm is within the limit, and never a division by 0.
fn clip_norm(job: &mut Job, limit: f32) -> Result<Vec<ValueId>> {
    let norm = global_norm(job)?;
    let graph = &mut job.graph;
    let limit = scalar(graph, limit)?;
    let larger = push(graph, Op::Binary(Binary::Max), &[norm, limit], SCOPE)?;
    let factor = push(graph, Op::Binary(Binary::Div), &[limit, larger], SCOPE)?;
    let mut clipped = Vec::new();
    for (&param, &grad) in job.params.iter().zip(&job.grads) {
        let scope = scope_of(graph, param);
        clipped.push(push(graph, Op::Binary(Binary::Mul), &[grad, factor], &scope)?);
    }
    Ok(clipped)
}

fn global_norm(job: &mut Job) -> Result<ValueId> {
    let total = sum_of_squares(job)?;
    push(&mut job.graph, Op::Unary(Unary::Sqrt), &[total], SCOPE)
}

/// Of all gradients, summed in the order of the parameters: the order is part of the result.
pub(crate) fn sum_of_squares(job: &mut Job) -> Result<ValueId> {
    if let Some(known) = job.notes.squares {
        return Ok(known);
    }
    let graph = &mut job.graph;
    let mut total = None;
    for (&param, &grad) in job.params.iter().zip(&job.grads) {
        let scope = scope_of(graph, param);
        let axes = (0..graph.shape(grad).len()).collect();
        let reduce = Op::Reduce(Reduce { kind: ReduceKind::SumSquares, axes, keep: false });
        let squares = push(graph, reduce, &[grad], &scope)?;
        total = Some(match total {
            None => squares,
            Some(sum) => push(graph, Op::Binary(Binary::Add), &[sum, squares], SCOPE)?,
        });
    }
    job.notes.squares = total;
    Ok(total.expect("there is at least one parameter to train"))
}

pub(crate) fn update(job: &mut Job) -> Result<()> {
    let lr = input(&mut job.graph, LEARNING_RATE, TensorType::f32([]))?;
    let clock = input(&mut job.graph, CLOCK, TensorType::i32([4]))?;
    // A skipped step has not happened: the optimizer's clock stands still, and nothing is updated.
    let (clock, gate) = match job.notes.scaling {
        None => (clock, None),
        Some(Scaling { skipped, gate, .. }) => {
            (push(&mut job.graph, Op::Binary(Binary::Sub), &[clock, skipped], SCOPE)?, Some(gate))
        }
    };
    let own = own_params(job);
    for ((&param, &grad), _) in job.params.iter().zip(&job.grads).zip(own).filter(|(_, own)| *own) {
        update_param(&mut job.graph, job.task.training.update, [param, grad, lr, clock], gate)?;
    }
    Ok(())
}

/// One optimizer node in the layer of its parameter, with its slots; parameter and slots take the new values.
fn update_param(
    graph: &mut Graph,
    rule: Update,
    [param, grad, lr, clock]: [ValueId; 4],
    gate: Option<ValueId>,
) -> Result<()> {
    let scope = scope_of(graph, param);
    let mut old = vec![param];
    for slot in rule.slots() {
        let State { name, dtype, shape, .. } = state_of(graph, param).clone();
        let name = format!("optimizer/{name}/{slot}");
        let state = State { name, class: StateClass::Slot, dtype, shape, init: Init::Constant(0.0) };
        old.push(push(graph, Op::State(state), &[], &scope)?);
    }
    let inputs = [&[param, grad], &old[1..], &[lr, clock], gate.as_slice()].concat();
    let node = graph.push(Op::Update(rule), &inputs, &scope)?;
    let new = graph.node(node).outputs.clone();
    graph.donations.extend(old.into_iter().zip(new).map(|(old, new)| Donation { old, new }));
    Ok(())
}

/// The input of this name; the model may have it already.
fn input(graph: &mut Graph, name: &str, ty: TensorType) -> Result<ValueId> {
    match graph.input(name) {
        Some(v) => Ok(v),
        None => push(graph, Op::Input(Input { name: name.into(), dtype: ty.dtype, shape: ty.shape }), &[], ""),
    }
}

pub(crate) fn scalar(graph: &mut Graph, value: f32) -> Result<ValueId> {
    push(graph, Op::Fill(Fill { value, dtype: DType::F32, shape: [].into() }), &[], SCOPE)
}
