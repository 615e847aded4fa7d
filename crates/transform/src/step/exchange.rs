//! Where replicas meet in a step: sums over their lanes, and parameters that one of them updates for all. Exchanges are
//! chained by a token, in the order in which gradients are made, so that every replica has them in the same order whatever
//! else its plan changes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use memfit_ir::op::{Binary, Fill, Join, Replicate};
use memfit_ir::{DType, Donation, Graph, Op, Replica, ValueId};

use super::split::{Statistic, check_updates, is_state, numbers, statistics, update_statistics};
use super::{Job, Training, push, scope_of, state_of, trained};
use crate::error::Result;

/// How a replica's step is joined to those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub replica: Replica,
    /// Bytes that are exchanged at a time, at most. No result depends on it.
    pub piece: usize,
    pub shard: Shard,
    pub batch_norm: BatchNorm,
}

/// Of which samples batch norms take the statistics in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BatchNorm {
    /// Those of a leaf: a replica asks no other, and every number of replicas gives the same bits.
    #[default]
    Leaf,
    /// Those of the whole batch, which replicas exchange in every batch norm. Each must have one lane, of one leaf; another number
    /// of replicas rounds otherwise.
    Synchronised,
}

impl BatchNorm {
    pub fn name(self) -> &'static str {
        match self {
            BatchNorm::Leaf => "leaf",
            BatchNorm::Synchronised => "synchronised",
        }
    }
}

/// What of a model's states each replica has a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Shard {
    /// Every replica has all.
    #[default]
    None,
    /// What the optimizer keeps: each replica updates some of the parameters, whole ones, for all.
    Optimizer,
}

impl Shard {
    pub fn name(self) -> &'static str {
        match self {
            Shard::None => "none",
            Shard::Optimizer => "optimizer",
        }
    }
}

impl Exchange {
    pub const ALONE: Exchange =
        Exchange { replica: Replica::ALONE, piece: Exchange::PIECE, shard: Shard::None, batch_norm: BatchNorm::Leaf };
    /// As much as hides what a message costs, and little beside an arena.
    pub const PIECE: usize = 1 << 20;
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange::ALONE
    }
}

/// What is added up over lanes: a replica's sums of it, in the order of its subtrees.
pub(super) struct Sums {
    pub of: Vec<ValueId>,
    pub scope: String,
}

/// A whole step's gradients, losses, numbers and statistics are one lane's: from here on they are those of the batch.
pub(crate) fn join(job: &mut Job) -> Result<()> {
    if !job.task.exchange.replica.has_others() {
        return Ok(());
    }
    check_updates(&job.graph)?;
    let forward = job.graph.clone();
    let (statistics, graph) = (statistics(&forward)?, &mut job.graph);
    let share = push(graph, fill(job.task.share), &[], "")?;
    // As an accumulator does that starts from zero, so that the sum of one leaf is the same bits.
    let zero = push(graph, fill(0.0), &[], "")?;
    let first = |graph: &mut Graph, part: ValueId, scope: String| -> Result<Sums> {
        Ok(Sums { of: vec![push(graph, Op::Binary(Binary::Add), &[zero, part], &scope)?], scope })
    };
    let weighted = |graph: &mut Graph, part: ValueId, scope: String| -> Result<Sums> {
        let part = push(graph, Op::Binary(Binary::Mul), &[part, share], &scope)?;
        first(graph, part, scope)
    };
    let mut sums = Vec::new();
    let mut order: Vec<usize> = (0..job.grads.len()).collect();
    order.sort_by_key(|&i| job.grads[i]);
    for &i in &order {
        sums.push(first(graph, job.grads[i], scope_of(&forward, job.params[i]))?);
    }
    let scalars: Vec<(String, ValueId)> = {
        let given = |v: &ValueId| forward.outputs.iter().filter(|(_, o)| o == v).cloned().collect::<Vec<_>>();
        job.losses.iter().flat_map(given).chain(numbers(&forward, &job.losses)).collect()
    };
    for (_, number) in &scalars {
        sums.push(weighted(graph, *number, scope_of(&forward, *number))?);
    }
    // Synchronised ones are those of the batch already.
    let is_joined = |v: ValueId| forward.producer_op(v).is_exchange();
    let is_part = |s: &&Statistic| !is_state(&forward, s.batch) && !is_joined(s.batch);
    let of_batch: Vec<_> = statistics.iter().filter(is_part).collect();
    for statistic in &of_batch {
        sums.push(weighted(graph, statistic.batch, statistic.scope.clone())?);
    }
    job.notes.token = last_token(graph);
    let totals = join_sums(graph, &mut job.notes.token, job.task.exchange, &sums)?;
    let (grads, rest) = totals.split_at(order.len());
    let (numbers, batch) = rest.split_at(scalars.len());
    order.iter().zip(grads).for_each(|(&i, &total)| job.grads[i] = total);
    for ((name, _), &total) in scalars.iter().zip(numbers) {
        graph.outputs.iter_mut().filter(|(n, _)| n == name).for_each(|(_, v)| *v = total);
    }
    graph.donations.clear();
    let total_of = |v: ValueId| of_batch.iter().position(|s| s.batch == v).map_or(v, |i| batch[i]);
    update_statistics(graph, &forward, |_, statistic| Ok([statistic.running, total_of(statistic.batch)]))?;
    let mut of_grads: Vec<ValueId> = sums[..order.len()].iter().flat_map(|s| s.of.clone()).collect();
    of_grads.push(zero);
    join_as_made(job, &of_grads)
}

/// Moves the exchanges of gradients, and the sums that they read, to where the gradients are made: in the order of the graph a
/// gradient is then gone before the next is there, whatever order a planner is able to find.
fn join_as_made(job: &mut Job, sums: &[ValueId]) -> Result<()> {
    let from = &job.graph;
    let mut moves = vec![false; from.nodes().len()];
    sums.iter().for_each(|&v| moves[from.producer(v).index()] = true);
    let mut place: Vec<usize> = (0..moves.len()).collect();
    for id in from.node_ids() {
        let node = from.node(id);
        let made = |v: &ValueId| from.producer(*v).index();
        let is_join = matches!(node.op, Op::Join(_)) && sums.contains(&node.inputs[0]);
        if is_join || moves[id.index()] {
            place[id.index()] = node.inputs.iter().map(|v| place[made(v)]).max().unwrap_or(0);
        }
    }
    let mut order: Vec<usize> = (0..place.len()).collect();
    order.sort_by_key(|&i| (place[i], i));
    let (graph, of) = reordered(from, &order)?;
    let token = &mut job.notes.token;
    for v in
        job.grads.iter_mut().chain(&mut job.params).chain(&mut job.losses).chain(&mut job.notes.unscale).chain(token)
    {
        *v = of[v.index()];
    }
    job.graph = graph;
    Ok(())
}

/// The same nodes in another order, each behind what it reads; and by value, which it is there.
fn reordered(from: &Graph, order: &[usize]) -> Result<(Graph, Vec<ValueId>)> {
    let mut graph = Graph::new();
    let mut of: Vec<ValueId> = (0..from.values().len() as u32).map(ValueId).collect();
    for &i in order {
        let node = &from.nodes()[i];
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| of[v.index()]).collect();
        let id = graph.push(node.op.clone(), &inputs, &node.scope)?;
        node.outputs.iter().zip(&graph.node(id).outputs).for_each(|(old, &new)| of[old.index()] = new);
    }
    graph.outputs = from.outputs.iter().map(|(name, v)| (name.clone(), of[v.index()])).collect();
    let donated = |d: &Donation| Donation { old: of[d.old.index()], new: of[d.new.index()] };
    graph.donations = from.donations.iter().map(donated).collect();
    Ok((graph, of))
}

/// What the next exchange of a graph waits for: that the last one is over.
pub(crate) fn last_token(graph: &Graph) -> Option<ValueId> {
    graph.nodes().iter().rev().find(|node| node.op.is_exchange())?.outputs.last().copied()
}

pub(super) fn fill(value: f32) -> Op {
    Op::Fill(Fill { value, dtype: DType::F32, shape: [].into() })
}

/// The sums over all lanes, in the same order. Small ones go together, up to a piece.
pub(super) fn join_sums(
    graph: &mut Graph,
    token: &mut Option<ValueId>,
    exchange: &Exchange,
    sums: &[Sums],
) -> Result<Vec<ValueId>> {
    let op = Op::Join(Join { replica: exchange.replica, piece: exchange.piece });
    let mut totals = Vec::with_capacity(sums.len());
    for bucket in buckets(graph, sums, exchange.piece as u64) {
        let inputs: Vec<ValueId> = bucket.iter().flat_map(|s| &s.of).copied().chain(*token).collect();
        let node = graph.push(op.clone(), &inputs, &bucket[0].scope)?;
        let outputs = &graph.node(node).outputs;
        totals.extend(&outputs[..bucket.len()]);
        *token = outputs.last().copied();
    }
    Ok(totals)
}

/// Neighbours that fit into a piece together; what does not fit into one stands alone.
fn buckets<'a>(graph: &Graph, sums: &'a [Sums], piece: u64) -> Vec<&'a [Sums]> {
    let bytes = |s: &Sums| graph.ty(s.of[0]).bytes();
    let (mut found, mut start, mut filled) = (Vec::new(), 0, 0);
    for (i, s) in sums.iter().enumerate() {
        if i > start && filled + bytes(s) > piece {
            found.push(&sums[start..i]);
            (start, filled) = (i, 0);
        }
        filled += bytes(s);
    }
    found.push(&sums[start..]);
    found
}

/// By parameter, whether this replica updates it.
pub(super) fn own_params(job: &Job) -> Vec<bool> {
    let rank = job.task.exchange.replica.rank;
    owners(job).into_iter().map(|owner| owner.is_none_or(|owner| owner == rank)).collect()
}

/// By parameter, who updates it for all; none where everybody does.
fn owners(job: &Job) -> Vec<Option<usize>> {
    deal(&job.graph, &job.params, job.task.exchange)
}

/// The names of the parameters that are trained, each with who updates it for all; none where everybody does.
pub fn parameter_owners(
    forward: &Graph,
    training: &Training,
    exchange: &Exchange,
) -> Result<Vec<(String, Option<usize>)>> {
    let params = trained(forward, &training.frozen)?;
    let names = params.iter().map(|&v| state_of(forward, v).name.clone());
    Ok(names.zip(deal(forward, &params, exchange)).collect())
}

/// The largest parameters are dealt first, each to who has the fewest bytes so far, of equals to the first.
fn deal(graph: &Graph, params: &[ValueId], exchange: &Exchange) -> Vec<Option<usize>> {
    let Exchange { replica, shard, .. } = *exchange;
    if shard == Shard::None || !replica.has_others() {
        return vec![None; params.len()];
    }
    let bytes: Vec<u64> = params.iter().map(|&v| graph.ty(v).bytes()).collect();
    let mut order: Vec<usize> = (0..bytes.len()).collect();
    order.sort_by_key(|&i| Reverse(bytes[i]));
    let mut owners = vec![None; bytes.len()];
    let mut loads: BinaryHeap<Reverse<(u64, usize)>> = (0..replica.count).map(|rank| Reverse((0, rank))).collect();
    for i in order {
        let Some(Reverse((load, rank))) = loads.pop() else { break };
        owners[i] = Some(rank);
        loads.push(Reverse((load + bytes[i], rank)));
    }
    owners
}

/// Hands out the parameters that one replica has updated for all.
pub(crate) fn replicate(job: &mut Job) -> Result<()> {
    let Replica { rank, count, .. } = job.task.exchange.replica;
    for (owner, param) in owners(job).into_iter().zip(job.params.clone()) {
        let Some(owner) = owner else { continue };
        let graph = &mut job.graph;
        let updated = graph.donations.iter().find(|d| d.old == param).map(|d| d.new);
        let inputs: Vec<ValueId> = [updated.unwrap_or(param)].into_iter().chain(job.notes.token).collect();
        let node = graph.push(Op::Replicate(Replicate { rank, count, owner }), &inputs, &scope_of(graph, param))?;
        let outputs = graph.node(node).outputs.clone();
        job.notes.token = outputs.last().copied();
        if rank != owner {
            graph.donations.push(Donation { old: param, new: outputs[0] });
        }
    }
    // What nobody reads goes with the next pruning, and the owner's last exchanges have no other result.
    if let (Some(token), Shard::Optimizer) = (job.notes.token, job.task.exchange.shard) {
        job.graph.outputs.push((TOKEN.into(), token));
    }
    Ok(())
}

/// The output that says that the last exchange is over.
const TOKEN: &str = "exchanged";
