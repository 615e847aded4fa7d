//! What exchanges between replicas take: room for the pieces that are under way, and time. Asked by the targets, so that an
//! exchange is planned like a kernel.

use memfit_ir::op::Join;
use memfit_ir::{Graph, NodeId, Op, ValueId};
use memfit_transform::Group;

/// Bytes of an f32, which is all that is added up.
const NUMBER: u64 = 4;

/// How the numbers of a join are cut: each replica adds up one share of a piece for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of all tensors together.
    pub total: u64,
    /// Of a piece, which has an equal share for each replica; the last one of a join may be filled up.
    pub piece: u64,
    /// Of one share of it.
    pub share: u64,
    /// The most sums of one tensor that a replica has, each of which is sent.
    pub rounds: u64,
}

impl Pieces {
    pub fn new(graph: &Graph, node: NodeId, join: Join) -> Pieces {
        let totals = graph.node(node).outputs.split_last().map_or(&[][..], |(_, totals)| totals);
        let total: u64 = totals.iter().map(|&v| graph.ty(v).bytes()).sum();
        let count = join.replica.count as u64;
        let most = (join.piece as u64).min(total.next_multiple_of(NUMBER * count));
        let share = (most / count / NUMBER * NUMBER).max(NUMBER);
        let rounds = (0..join.replica.count).map(|rank| join.replica.with_rank(rank).subtrees().len()).max();
        Pieces { total, piece: share * count, share, rounds: rounds.unwrap_or(1) as u64 }
    }

    /// Bytes that are under way at a time: a piece that is sent, and what all replicas have sent of their sums.
    pub fn room(&self) -> u64 {
        self.piece * (1 + self.rounds)
    }
}

/// Bytes of scratch that an exchange needs where its device's memory is the host's; none where a group is no exchange.
pub fn scratch_bytes(graph: &Graph, group: &Group) -> Option<u64> {
    let root = group.root();
    if let Op::Join(join) = graph.node(root).op {
        Some(Pieces::new(graph, root, join).room())
    } else {
        // Sent from its place, and received there.
        graph.node(root).op.is_exchange().then_some(0)
    }
}

/// Whether an exchange may write an output over an input: piece by piece, each where it was read.
pub fn can_run_in_place(graph: &Graph, group: &Group, input: ValueId, output: ValueId) -> Option<bool> {
    let node = graph.node(group.root());
    if let Op::Join(join) = node.op {
        let sums = join.sums();
        let tensor = node.outputs.iter().position(|&v| v == output);
        let of_tensor = tensor.and_then(|i| node.inputs.get(i * sums..(i + 1) * sums));
        let read_once = node.inputs.iter().filter(|v| **v == input).count() == 1;
        Some(read_once && of_tensor.is_some_and(|of| of.contains(&input)))
    } else {
        node.op.is_exchange().then(|| node.inputs[0] == input && node.outputs[0] == output)
    }
}
