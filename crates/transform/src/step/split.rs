//! A step in micro-batches: `accumulate` runs once for each, `apply` once at the end of the batch.
//!
//! What a micro-batch contributes (gradients, loss, batch statistics), weighted by its share of the batch, is added to
//! accumulators that are zero when a step starts. Nothing that outlives the step changes before `apply`. A model that
//! changes a state in a way that cannot be put off is refused.

use memfit_ir::op::{Binary, Fill, Init, State, StateClass};
use memfit_ir::{DType, Donation, Graph, Node, Op, TensorType, ValueId};

use super::{ACCUMULATE, Job, LOSS, Training, push, scope_of, state_of};
use crate::error::{Error, Result};
use crate::passes;
use crate::step_graph::StepGraph;

#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// For each micro-batch: forward and backward; the sums take their new values.
    pub accumulate: StepGraph,
    /// Once for each batch: clip, update, running statistics; reads the sums. Gives the batch's loss as "loss", and the
    /// means over the micro-batches of the model's other numbers.
    pub apply: Graph,
}

/// The training step in two graphs. `forward` is the model of one micro-batch, `share` its part of the whole batch:
/// gradients and loss are those of the batch's mean up to the rounding of the sum, provided that no sample's result
/// depends on the others. Batch statistics are averaged over the micro-batches.
pub fn split_step(forward: &Graph, loss: ValueId, training: &Training, share: f32) -> Result<Split> {
    if !(share > 0.0 && share <= 1.0) {
        return Err(Error::Share { share });
    }
    let mut accumulate = Job::new(forward, loss, training, share)?;
    let mut apply = Job::new(forward, loss, training, 1.0)?;
    passes::run(passes::ACCUMULATE, &mut accumulate)?;
    passes::run(passes::APPLY, &mut apply)?;
    Ok(Split { accumulate: accumulate.finish(), apply: apply.graph })
}

// ---- accumulate ------------------------------------------------------------------------------------------------------

/// Adds gradients, loss and batch statistics to their sums, instead of changing states. The batch updates that were
/// in the graph lose their purpose here and go with the next pruning.
pub(crate) fn accumulate(job: &mut Job) -> Result<()> {
    check_updates(&job.graph)?;
    let (params, grads, losses) = (job.params.clone(), job.grads.clone(), job.losses.clone());
    let names = job.loss_names();
    let statistics = statistics(&job.graph)?;
    let numbers = numbers(&job.graph, &losses);
    let graph = &mut job.graph;
    graph.donations.clear();
    graph.outputs.retain(|output| !losses.contains(&output.1) && !numbers.contains(output));
    for (param, grad) in params.into_iter().zip(grads) {
        let (name, scope) = (state_of(graph, param).name.clone(), scope_of(graph, param));
        add_to(graph, &name, grad, &scope)?;
    }
    let share = Op::Fill(Fill { value: job.task.share, dtype: DType::F32, shape: [].into() });
    let share = push(graph, share, &[], "")?;
    for (name, number) in names.into_iter().zip(losses).chain(numbers) {
        let scope = scope_of(graph, number);
        let part = push(graph, Op::Binary(Binary::Mul), &[number, share], &scope)?;
        add_to(graph, &name, part, &scope)?;
    }
    for Statistic { running, batch, scope } in statistics {
        if !is_state(graph, batch) {
            let name = state_of(graph, running).name.clone();
            let part = push(graph, Op::Binary(Binary::Mul), &[batch, share], &scope)?;
            add_to(graph, &name, part, &scope)?;
        }
    }
    Ok(())
}

/// What a model gives besides the losses that is one number, such as the loss of one of its heads: of the batch it is the
/// mean over the micro-batches.
fn numbers(graph: &Graph, losses: &[ValueId]) -> Vec<(String, ValueId)> {
    let is_number = |v: &ValueId| *graph.ty(*v) == TensorType::f32([]) && !losses.contains(v);
    graph.outputs.iter().filter(|(_, v)| is_number(v)).cloned().collect()
}

fn add_to(graph: &mut Graph, name: &str, part: ValueId, scope: &str) -> Result<()> {
    let ty = graph.ty(part).clone();
    let old = accumulator(graph, name, ty, scope)?;
    let new = push(graph, Op::Binary(Binary::Add), &[old, part], scope)?;
    graph.donations.push(Donation { old, new });
    Ok(())
}

/// The sum over the micro-batches of what belongs to the state, or the loss, of this name.
fn accumulator(graph: &mut Graph, name: &str, ty: TensorType, scope: &str) -> Result<ValueId> {
    let (name, class, init) = (format!("{ACCUMULATE}{name}"), StateClass::Accumulator, Init::Constant(0.0));
    push(graph, Op::State(State { name, class, dtype: ty.dtype, shape: ty.shape, init }), &[], scope)
}

/// Only batch updates may change a state, and only a donation may read their results: all else would see the states
/// of one micro-batch where the whole step sees those of the batch.
fn check_updates(graph: &Graph) -> Result<()> {
    let put_off = |v: ValueId| matches!(graph.producer_op(v), Op::BatchUpdate(_));
    for d in &graph.donations {
        if !put_off(d.new) {
            let node = graph.node(graph.producer(d.new));
            let name = &state_of(graph, d.old).name;
            return Err(Error::cannot_split(node, format!("changes the state \"{name}\" in every micro-batch")));
        }
    }
    let problem = "reads statistics that are updated at the end of the batch only";
    if let Some(node) = graph.nodes().iter().find(|n| n.inputs.iter().any(|&v| put_off(v))) {
        return Err(Error::cannot_split(node, problem));
    }
    match graph.outputs.iter().find(|(_, v)| put_off(*v)) {
        Some((name, v)) => {
            let node = graph.node(graph.producer(*v));
            Err(Error::cannot_split(node, format!("the output \"{name}\" {problem}")))
        }
        None => Ok(()),
    }
}

/// A running statistic, what its batch update reads for it, and the layer.
struct Statistic {
    running: ValueId,
    batch: ValueId,
    scope: String,
}

/// Two for each batch update: mean and variance.
fn statistics(graph: &Graph) -> Result<Vec<Statistic>> {
    let mut found = Vec::new();
    for node in batch_updates(graph) {
        for i in 0..2 {
            let (running, batch) = (node.inputs[i], node.inputs[i + 2]);
            if !is_state(graph, running) {
                return Err(Error::cannot_split(node, "its running statistics are not states"));
            }
            found.push(Statistic { running, batch, scope: node.scope.clone() });
        }
    }
    Ok(found)
}

/// Those that change something: what a frozen layer would have updated stays as it is.
fn batch_updates(graph: &Graph) -> impl Iterator<Item = &Node> {
    let is_donated = |v: &ValueId| graph.donations.iter().any(|d| d.new == *v);
    graph.nodes().iter().filter(move |n| matches!(n.op, Op::BatchUpdate(_)) && n.outputs.iter().any(is_donated))
}

fn is_state(graph: &Graph, v: ValueId) -> bool {
    matches!(graph.producer_op(v), Op::State(_))
}

// ---- apply -----------------------------------------------------------------------------------------------------------

/// Puts in the model's place the trained parameters, their summed gradients, the loss and the updates of the running
/// statistics.
pub(crate) fn start_from_sums(job: &mut Job) -> Result<()> {
    let forward = &job.graph;
    let mut graph = Graph::new();
    let (mut params, mut grads) = (Vec::new(), Vec::new());
    for &param in &job.params {
        let name = &state_of(forward, param).name;
        params.push(same_state(&mut graph, forward, param)?);
        grads.push(accumulator(&mut graph, name, forward.ty(param).clone(), &scope_of(forward, param))?);
    }
    let mut losses = Vec::new();
    for (name, &loss) in job.loss_names().iter().zip(&job.losses) {
        let sum = accumulator(&mut graph, name, TensorType::f32([]), &scope_of(forward, loss))?;
        let names = forward.outputs.iter().filter(|(_, v)| *v == loss).map(|(name, _)| name.clone());
        graph.outputs.extend(names.map(|name| (name, sum)));
        losses.push(sum);
    }
    if graph.output(LOSS).is_none() {
        graph.outputs.push((LOSS.into(), losses[0]));
    }
    for (name, number) in numbers(forward, &job.losses) {
        let sum = accumulator(&mut graph, &name, TensorType::f32([]), &scope_of(forward, number))?;
        graph.outputs.push((name, sum));
    }
    update_statistics(&mut graph, forward)?;
    (job.graph, job.params, job.grads, job.losses) = (graph, params, grads, losses);
    Ok(())
}

/// Every batch update of the model, on the sums of what it reads.
fn update_statistics(graph: &mut Graph, forward: &Graph) -> Result<()> {
    let read = statistics(forward)?;
    for (node, read) in batch_updates(forward).zip(read.chunks(2)) {
        let (mut running, mut batch) = (Vec::new(), Vec::new());
        for s in read {
            running.push(same_state(graph, forward, s.running)?);
            batch.push(if is_state(forward, s.batch) {
                same_state(graph, forward, s.batch)?
            } else {
                let name = &state_of(forward, s.running).name;
                accumulator(graph, name, forward.ty(s.batch).clone(), &s.scope)?
            });
        }
        let id = graph.push(node.op.clone(), &[&running[..], &batch[..]].concat(), &node.scope)?;
        let new = graph.node(id).outputs.clone();
        graph.donations.extend(running.into_iter().zip(new).map(|(old, new)| Donation { old, new }));
    }
    Ok(())
}

/// The state of another graph, in this one; the same if it is here already.
fn same_state(graph: &mut Graph, from: &Graph, v: ValueId) -> Result<ValueId> {
    match graph.state(&state_of(from, v).name) {
        Some(here) => Ok(here),
        None => push(graph, from.producer_op(v).clone(), &[], &scope_of(from, v)),
    }
}
