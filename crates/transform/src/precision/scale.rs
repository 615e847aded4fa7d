//! The scale of the loss, for f16. The loss's gradient starts as the scale, so that small gradients do not vanish; those of
//! the parameters are divided by it. Where one of them is not finite, the step is skipped: nothing changes but the scale,
//! which is halved, and the counts. After many good steps in a row it is doubled.
//!
//! What is skipped has not happened to the optimizer either: its clock is the host's less the skipped steps.

use memfit_ir::op::{Binary, Compare, Fill, Init, State, StateClass};
use memfit_ir::{DType, Donation, Graph, NodeId, Op, TensorType, ValueId};

use super::{Half, Precision};
use crate::error::{Error, Result};
use crate::step::{Job, SCOPE, push, scalar, scope_of, state_of, sum_of_squares};

/// The scale of the first step.
pub const START: f32 = 65536.0;
/// Good steps in a row before the scale is doubled.
pub const PATIENCE: f32 = 2000.0;
/// The scale is halved and doubled between these: powers of two, so that to scale is exact.
const LEAST: f32 = 1.0 / 16_777_216.0;
const MOST: f32 = 16_777_216.0;

pub const SCALE: &str = "optimizer/loss_scale";
pub const GOOD_STEPS: &str = "optimizer/good_steps";
/// As the clock counts: what stands in its first place is taken from it.
pub const SKIPPED_STEPS: &str = "optimizer/skipped_steps";

/// What the end of a step knows of the scale.
#[derive(Clone, Copy)]
pub(crate) struct Scaling {
    scale: ValueId,
    /// `u8[]`: 1 where every gradient is finite.
    pub(crate) gate: ValueId,
    /// `i32[4]`, to be taken from the clock.
    pub(crate) skipped: ValueId,
}

/// The loss's own gradient where it is scaled: the share of the batch times the scale.
pub(crate) fn seed(job: &mut Job) -> Result<Option<ValueId>> {
    if job.task.training.precision != Precision::Mixed(Half::F16) {
        return Ok(None);
    }
    let scale = state(&mut job.graph, SCALE, TensorType::f32([]), START)?;
    // Made before the gradients, so that a gradient can be divided where it is made.
    job.notes.unscale = Some(inverse(&mut job.graph, scale)?);
    let share = scalar(&mut job.graph, job.task.share)?;
    push(&mut job.graph, Op::Binary(Binary::Mul), &[scale, share], SCOPE).map(Some)
}

/// Divides the gradients by the scale, looks whether they are finite, and holds back what the model itself updates.
pub(crate) fn unscale(job: &mut Job) -> Result<()> {
    if job.task.training.precision != Precision::Mixed(Half::F16) {
        return Ok(());
    }
    let scale = state(&mut job.graph, SCALE, TensorType::f32([]), START)?;
    let inverse = match job.notes.unscale {
        Some(v) => v,
        None => inverse(&mut job.graph, scale)?,
    };
    for i in 0..job.grads.len() {
        let scope = scope_of(&job.graph, job.params[i]);
        job.grads[i] = push(&mut job.graph, Op::Binary(Binary::Mul), &[job.grads[i], inverse], &scope)?;
    }
    // A sum of squares is not finite if one element is not, or if one is larger than any step could use.
    let squares = sum_of_squares(job)?;
    let most = scalar(&mut job.graph, f32::MAX)?;
    let gate = push(&mut job.graph, Op::Compare(Compare::Le), &[squares, most], SCOPE)?;
    hold_back(&mut job.graph, gate)?;
    let skipped = state(&mut job.graph, SKIPPED_STEPS, TensorType::i32([4]), 0.0)?;
    job.notes.scaling = Some(Scaling { scale, gate, skipped });
    Ok(())
}

/// The scale and the counts of the next step.
pub(crate) fn rescale(job: &mut Job) -> Result<()> {
    let Some(Scaling { scale, gate, skipped }) = job.notes.scaling else { return Ok(()) };
    let g = &mut job.graph;
    let good = state(g, GOOD_STEPS, TensorType::f32([]), 0.0)?;
    let [zero, one, half, two] = [0.0, 1.0, 0.5, 2.0].map(|x| scalar(g, x));
    let (zero, one, half, two) = (zero?, one?, half?, two?);
    let (least, most, patience) = (scalar(g, LEAST)?, scalar(g, MOST)?, scalar(g, PATIENCE)?);
    let binary = |g: &mut Graph, b: Binary, x: ValueId, y: ValueId| push(g, Op::Binary(b), &[x, y], SCOPE);
    let select = |g: &mut Graph, c: ValueId, x: ValueId, y: ValueId| push(g, Op::Select, &[c, x, y], SCOPE);

    let counted = binary(g, Binary::Add, good, one)?;
    let due = push(g, Op::Compare(Compare::Ge), &[counted, patience], SCOPE)?;
    let doubled = binary(g, Binary::Mul, scale, two)?;
    let doubled = binary(g, Binary::Min, doubled, most)?;
    let halved = binary(g, Binary::Mul, scale, half)?;
    let halved = binary(g, Binary::Max, halved, least)?;
    let kept = select(g, due, doubled, scale)?;
    let next_scale = select(g, gate, kept, halved)?;
    let restarted = select(g, due, zero, counted)?;
    let next_good = select(g, gate, restarted, zero)?;

    let tick = push(g, Op::Fill(Fill { value: 1.0, dtype: DType::I32, shape: [1].into() }), &[], SCOPE)?;
    let tick = push(g, Op::Pad(vec![(0, 3)]), &[tick], SCOPE)?;
    let one_more = binary(g, Binary::Add, skipped, tick)?;
    let next_skipped = select(g, gate, skipped, one_more)?;
    let next = [(scale, next_scale), (good, next_good), (skipped, next_skipped)];
    g.donations.extend(next.map(|(old, new)| Donation { old, new }));
    Ok(())
}

/// Exact: the scale is a power of two.
fn inverse(graph: &mut Graph, scale: ValueId) -> Result<ValueId> {
    let one = scalar(graph, 1.0)?;
    push(graph, Op::Binary(Binary::Div), &[one, scale], SCOPE)
}

/// The state of this name; the first that asks for it makes it.
fn state(graph: &mut Graph, name: &str, ty: TensorType, start: f32) -> Result<ValueId> {
    if let Some(v) = graph.state(name) {
        return Ok(v);
    }
    let (class, init, TensorType { dtype, shape }) = (StateClass::Slot, Init::Constant(start), ty);
    push(graph, Op::State(State { name: name.into(), class, dtype, shape, init }), &[], SCOPE)
}

/// Lets what the model changes by itself, such as running statistics, change only where the gate is open. An update is put
/// after the gate; the one before it loses its purpose and goes with the next pruning.
fn hold_back(graph: &mut Graph, gate: ValueId) -> Result<()> {
    check_unread(graph)?;
    let donations = std::mem::take(&mut graph.donations);
    let mut moved: Vec<(NodeId, NodeId)> = Vec::new();
    for Donation { old, new } in donations {
        let maker = graph.producer(new);
        let node = graph.node(maker).clone();
        let new = if node.op.is_update() {
            let later = match moved.iter().find(|(from, _)| *from == maker) {
                Some(&(_, to)) => to,
                None => {
                    let to = graph.push(node.op.clone(), &[&node.inputs[..], &[gate]].concat(), &node.scope)?;
                    moved.push((maker, to));
                    to
                }
            };
            graph.node(later).outputs[graph.values()[new.index()].output]
        } else {
            push(graph, Op::Select, &[gate, new, old], &node.scope)?
        };
        graph.donations.push(Donation { old, new });
    }
    Ok(())
}

/// What reads an updated state would read it before it is known whether the step counts.
fn check_unread(graph: &Graph) -> Result<()> {
    let updated = |v: &ValueId| graph.donations.iter().any(|d| d.new == *v) && graph.producer_op(*v).is_update();
    let problem = |v: ValueId| {
        let old = graph.donations.iter().find(|d| d.new == v).map_or(v, |d| d.old);
        format!("reads the new value of the state \"{}\"", state_of(graph, old).name)
    };
    for node in graph.nodes() {
        if let Some(&v) = node.inputs.iter().find(|v| updated(v)) {
            return Err(Error::CannotSkip { op: node.op.name(), scope: node.scope.clone(), problem: problem(v) });
        }
    }
    match graph.outputs.iter().find(|(_, v)| updated(v)) {
        Some((name, v)) => {
            let node = graph.node(graph.producer(*v));
            let problem = format!("the output \"{name}\" {}", problem(*v));
            Err(Error::CannotSkip { op: node.op.name(), scope: node.scope.clone(), problem })
        }
        None => Ok(()),
    }
}
