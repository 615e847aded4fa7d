//! A step in micro-batches: `accumulate` runs once for each, `apply` once at the end of the batch.
//!
//! What a micro-batch contributes (gradients, loss, batch statistics), weighted by its share of the batch, is added to
//! accumulators that are zero when a step starts. Nothing that outlives the step changes before `apply`. A model that
//! changes a state in a way that cannot be put off is refused.

use memfit_ir::op::{Binary, Fill, Init, State, StateClass};
use memfit_ir::{DType, Donation, Fold, Graph, Node, Op, Replica, TensorType, ValueId};

use super::exchange::{BatchNorm, Exchange, Sums, join_sums};
use super::{ACCUMULATE, Job, LOSS, Training, check_share, push, scope_of, state_of};
use crate::error::{Error, Result};
use crate::passes;
use crate::step_graph::StepGraph;

#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// For each micro-batch: forward and backward; the sums take their new values.
    pub accumulate: StepGraph,
    /// What a replica with several lanes does with the sum of one.
    pub folds: Vec<(Fold, Graph)>,
    /// Once for each batch: joins the sums of all replicas; clip, update, running statistics; reads the sums. Gives the batch's loss as "loss", and the
    /// means over the micro-batches of the model's other numbers.
    pub apply: Graph,
}

/// The training step in two graphs. `forward` is the model of one micro-batch, `share` its part of the whole batch:
/// gradients and loss are those of the batch's mean up to the rounding of the sum, provided that no sample's result
/// depends on the others. Batch statistics are averaged over the micro-batches.
pub fn split_step(forward: &Graph, loss: ValueId, training: &Training, share: f32) -> Result<Split> {
    exchanging_split(forward, loss, training, share, &Exchange::ALONE)
}

/// The same of a replica, which adds up its lanes of the batch and joins them to those of others.
pub fn exchanging_split(
    forward: &Graph,
    loss: ValueId,
    training: &Training,
    share: f32,
    exchange: &Exchange,
) -> Result<Split> {
    check_share(share)?;
    if exchange.batch_norm == BatchNorm::Synchronised {
        return Err(Error::Synchronised);
    }
    let mut accumulate = Job::new(forward, loss, training, share, exchange)?;
    let mut apply = Job::new(forward, loss, training, 1.0, exchange)?;
    passes::run(passes::ACCUMULATE, &mut accumulate)?;
    passes::run(passes::APPLY, &mut apply)?;
    let mut accumulate = accumulate.finish();
    let folds = folds(&accumulate.graph, exchange.replica)?;
    declare_kept(&mut accumulate.graph, exchange.replica.most_kept())?;
    Ok(Split { accumulate, folds, apply: apply.graph })
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
pub(super) fn numbers(graph: &Graph, losses: &[ValueId]) -> Vec<(String, ValueId)> {
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
pub(super) fn check_updates(graph: &Graph) -> Result<()> {
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
pub(super) struct Statistic {
    pub running: ValueId,
    pub batch: ValueId,
    pub scope: String,
}

/// Two for each batch update: mean and variance.
pub(super) fn statistics(graph: &Graph) -> Result<Vec<Statistic>> {
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

pub(super) fn is_state(graph: &Graph, v: ValueId) -> bool {
    matches!(graph.producer_op(v), Op::State(_))
}

// ---- folds -----------------------------------------------------------------------------------------------------------

/// The sum of an earlier lane, kept under this number while later ones are added up.
fn kept(graph: &mut Graph, name: &str, ty: TensorType, scope: &str, number: usize) -> Result<ValueId> {
    accumulator(graph, &format!("kept{number}/{name}"), ty, scope)
}

/// Each accumulator's name without what all begin with, its type and its scope.
fn accumulators(graph: &Graph) -> Vec<(String, TensorType, String)> {
    let sums = graph.states().filter(|(s, _)| s.class == StateClass::Accumulator);
    let described = |(s, v): (&State, ValueId)| {
        let name = s.name.strip_prefix(ACCUMULATE).unwrap_or(&s.name);
        (name.to_string(), graph.ty(v).clone(), scope_of(graph, v))
    };
    sums.map(described).collect()
}

/// What is kept while a lane is added up is nobody else's place, though the program does not look at it.
fn declare_kept(accumulate: &mut Graph, most: usize) -> Result<()> {
    for (name, ty, scope) in accumulators(accumulate) {
        for number in 0..most {
            kept(accumulate, &name, ty.clone(), &scope, number)?;
        }
    }
    Ok(())
}

fn folds(accumulate: &Graph, replica: Replica) -> Result<Vec<(Fold, Graph)>> {
    let mut kinds: Vec<Fold> = replica.schedule().into_iter().flatten().collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().map(|kind| Ok((kind, fold(accumulate, kind, replica.most_kept())?))).collect()
}

fn fold(accumulate: &Graph, kind: Fold, most: usize) -> Result<Graph> {
    let mut graph = Graph::new();
    for (name, ty, scope) in accumulators(accumulate) {
        let sum = accumulator(&mut graph, &name, ty.clone(), &scope)?;
        let others = (0..most).map(|number| kept(&mut graph, &name, ty.clone(), &scope, number));
        let kept = others.collect::<Result<Vec<_>>>()?;
        let donation = match kind {
            Fold::Keep(number) => {
                let new = push(&mut graph, Op::Broadcast(ty.shape), &[sum], &scope)?;
                Donation { old: kept[number as usize], new }
            }
            Fold::Add(number) => {
                let new = push(&mut graph, Op::Binary(Binary::Add), &[kept[number as usize], sum], &scope)?;
                Donation { old: sum, new }
            }
        };
        graph.donations.push(donation);
    }
    Ok(graph)
}

// ---- apply -----------------------------------------------------------------------------------------------------------

/// Puts in the model's place the trained parameters, their summed gradients, the losses and the updates of the running
/// statistics. Where there are other replicas, the sums are those over all of their lanes.
pub(crate) fn start_from_sums(job: &mut Job) -> Result<()> {
    let forward = &job.graph;
    let mut graph = Graph::new();
    let (mut params, mut sums) = (Vec::new(), Vec::new());
    let kept = job.task.exchange.replica.subtrees().len() - 1;
    let mut sum = |graph: &mut Graph, name: &str, ty: &TensorType, scope: String| -> Result<()> {
        let mut of = Vec::with_capacity(kept + 1);
        for number in 0..kept {
            of.push(self::kept(graph, name, ty.clone(), &scope, number)?);
        }
        of.push(accumulator(graph, name, ty.clone(), &scope)?);
        sums.push(Sums { of, scope });
        Ok(())
    };
    for &param in &job.params {
        params.push(same_state(&mut graph, forward, param)?);
        sum(&mut graph, &state_of(forward, param).name, forward.ty(param), scope_of(forward, param))?;
    }
    let (losses, numbers, statistics) = (job.loss_names(), numbers(forward, &job.losses), statistics(forward)?);
    for (name, &loss) in losses.iter().zip(&job.losses) {
        sum(&mut graph, name, forward.ty(loss), scope_of(forward, loss))?;
    }
    for (name, number) in &numbers {
        sum(&mut graph, name, forward.ty(*number), scope_of(forward, *number))?;
    }
    let of_batch: Vec<&Statistic> = statistics.iter().filter(|s| !is_state(forward, s.batch)).collect();
    for s in &of_batch {
        sum(&mut graph, &state_of(forward, s.running).name, forward.ty(s.batch), s.scope.clone())?;
    }
    let totals = totals(&mut graph, &mut job.notes.token, job.task.exchange, &sums)?;
    let (grads, rest) = totals.split_at(params.len());
    let (of_losses, rest) = rest.split_at(losses.len());
    let (of_numbers, batch) = rest.split_at(numbers.len());
    for (&loss, &total) in job.losses.iter().zip(of_losses) {
        let names = forward.outputs.iter().filter(|(_, v)| *v == loss).map(|(name, _)| name.clone());
        graph.outputs.extend(names.map(|name| (name, total)));
    }
    if graph.output(LOSS).is_none() {
        graph.outputs.push((LOSS.into(), of_losses[0]));
    }
    graph.outputs.extend(numbers.into_iter().zip(of_numbers).map(|((name, _), &total)| (name, total)));
    update_statistics(&mut graph, forward, |graph, s| {
        let total = of_batch.iter().position(|other| other.batch == s.batch && other.running == s.running);
        let batch = total.map_or_else(|| same_state(graph, forward, s.batch), |i| Ok(batch[i]))?;
        Ok([same_state(graph, forward, s.running)?, batch])
    })?;
    (job.params, job.grads, job.losses) = (params, grads.to_vec(), of_losses.to_vec());
    job.graph = graph;
    Ok(())
}

/// The sums over the lanes of all replicas, which take the places of this one's.
fn totals(graph: &mut Graph, token: &mut Option<ValueId>, exchange: &Exchange, sums: &[Sums]) -> Result<Vec<ValueId>> {
    let own = |s: &Sums| s.of[s.of.len() - 1];
    if !exchange.replica.has_others() {
        return Ok(sums.iter().map(own).collect());
    }
    let totals = join_sums(graph, token, exchange, sums)?;
    graph.donations.extend(sums.iter().zip(&totals).map(|(s, &new)| Donation { old: own(s), new }));
    Ok(totals)
}

/// Every batch update of the model, on the running statistics and what of the batch it is told of them.
pub(super) fn update_statistics(
    graph: &mut Graph,
    forward: &Graph,
    operands: impl Fn(&mut Graph, &Statistic) -> Result<[ValueId; 2]>,
) -> Result<()> {
    let read = statistics(forward)?;
    for (node, read) in batch_updates(forward).zip(read.chunks(2)) {
        let (mut running, mut batch) = (Vec::new(), Vec::new());
        for s in read {
            let [of_running, of_batch] = operands(graph, s)?;
            running.push(of_running);
            batch.push(of_batch);
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
