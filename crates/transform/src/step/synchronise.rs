//! Batch norms that normalise by the statistics of the whole batch, where each replica has a part of it: the means of all parts
//! are joined, and then their variances around the common mean. Only where a replica's part is looked at as a whole: sums over
//! micro-batches come too late for those before.

use memfit_ir::op::{Binary, Join};
use memfit_ir::{Donation, Graph, Node, Op, ValueId};

use super::exchange::{BatchNorm, fill, last_token};
use super::{Job, push};
use crate::error::Result;
use crate::prune::needed_values;

/// Whoever reads the statistics of a part reads those of the batch from here on.
pub(crate) fn synchronise(job: &mut Job) -> Result<()> {
    let exchange = *job.task.exchange;
    if exchange.batch_norm == BatchNorm::Leaf || !exchange.replica.has_others() {
        return Ok(());
    }
    // Of a frozen norm nobody reads the statistics, and nobody may exchange them.
    let (from, needed) = (&job.graph, needed_values(&job.graph));
    let is_read = |node: &Node| node.outputs.iter().any(|v| needed[v.index()]);
    let join = Join { replica: exchange.replica, piece: exchange.piece };
    let mut out = Graph::new();
    let mut of: Vec<ValueId> = Vec::with_capacity(from.values().len());
    for node in from.nodes() {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| of[v.index()]).collect();
        let id = out.push(node.op.clone(), &inputs, &node.scope)?;
        let made = out.node(id).outputs.clone();
        if let (Op::BatchStats, true, &[mean, var]) = (&node.op, is_read(node), &made[..]) {
            of.extend(of_batch(&mut out, join, job.task.share, [mean, var], &node.scope)?);
        } else {
            of.extend(made);
        }
    }
    let at = |v: ValueId| of[v.index()];
    out.outputs = from.outputs.iter().map(|(name, v)| (name.clone(), at(*v))).collect();
    out.donations = from.donations.iter().map(|d| Donation { old: at(d.old), new: at(d.new) }).collect();
    job.params.iter_mut().chain(&mut job.losses).for_each(|v| *v = at(*v));
    job.graph = out;
    Ok(())
}

/// Mean and variance of the batch, from those of a part that is `share` of it: Σ share·mean, and
/// Σ share·(var + (mean − that)²).
fn of_batch(graph: &mut Graph, join: Join, share: f32, [mean, var]: [ValueId; 2], scope: &str) -> Result<[ValueId; 2]> {
    let share = push(graph, fill(share), &[], scope)?;
    let joined = |graph: &mut Graph, part: ValueId| {
        let part = push(graph, Op::Binary(Binary::Mul), &[part, share], scope)?;
        let inputs: Vec<ValueId> = [part].into_iter().chain(last_token(graph)).collect();
        push(graph, Op::Join(join), &inputs, scope)
    };
    let of_all = joined(graph, mean)?;
    let apart = push(graph, Op::Binary(Binary::Sub), &[mean, of_all], scope)?;
    let square = push(graph, Op::Binary(Binary::Mul), &[apart, apart], scope)?;
    let around = push(graph, Op::Binary(Binary::Add), &[var, square], scope)?;
    Ok([of_all, joined(graph, around)?])
}

/// How statistics of a batch are made of those of `x`: the exchange, and the share of the batch that `x` is. None where a mean
/// and a variance are not that.
pub(crate) fn synchronised(graph: &Graph, x: ValueId, mean: ValueId, var: ValueId) -> Option<(Join, ValueId)> {
    let join = |v: ValueId| {
        let node = graph.node(graph.producer(v));
        if let Op::Join(join) = node.op { Some((join, node.inputs[0])) } else { None }
    };
    let ((exchange, part), _) = (join(mean)?, join(var)?);
    let weighted = graph.node(graph.producer(part));
    let (Op::Binary(Binary::Mul), &[own, share]) = (&weighted.op, &weighted.inputs[..]) else { return None };
    let statistics = graph.node(graph.producer(own));
    let is_of_x = statistics.op == Op::BatchStats && statistics.inputs[0] == x && statistics.outputs[0] == own;
    is_of_x.then_some((exchange, share))
}
