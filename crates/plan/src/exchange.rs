//! What exchanges between replicas take: room for the pieces that are under way, and time. Asked by the targets, so that an
//! exchange is planned like a kernel. And their order in a plan, which all replicas of a run must have in common.

use std::fmt::Write;

use memfit_ir::op::{Join, Replicate};
use memfit_ir::{Graph, Node, NodeId, Op, Replica, ValueId};
use memfit_transform::Group;

use crate::cost_model::CostModel;
use crate::types::Plan;

/// Bytes of an f32, which is all that is added up.
const NUMBER: u64 = 4;

/// How the numbers of a join are cut: each replica adds up one share of a piece for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of all tensors together.
    pub total: u64,
    /// Of a piece, which has an equal share for each replica. Pieces are of one size, and the last one is filled up.
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
        let most = (join.piece as u64 / count / NUMBER * NUMBER).max(NUMBER) * count;
        // As many as there must be, and none of them nearly empty.
        let pieces = total.div_ceil(most).max(1);
        let share = total.div_ceil(pieces * count).next_multiple_of(NUMBER).max(NUMBER);
        let rounds = join.replica.most_subtrees();
        Pieces { total, piece: share * count, share, rounds: rounds as u64 }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.total.div_ceil(self.piece)
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

/// Bytes of a state that are broadcast at a time.
const STATE_PIECE: u64 = 1 << 20;

/// Predicted seconds of an exchange, from the link between replicas and from the memory that its numbers pass through; none where
/// a group is no exchange.
pub fn seconds(graph: &Graph, group: &Group, cost_model: &CostModel) -> Option<f64> {
    let root = group.root();
    let node = graph.node(root);
    let bytes = |values: &[ValueId]| values.iter().map(|&v| graph.ty(v).bytes()).sum::<u64>();
    let (sent, copied) = if let Op::Join(join) = node.op {
        let pieces = Pieces::new(graph, root, join);
        // Each piece is added up from as many sums as there are subtrees: two are read and one is written.
        let added = 3 * pieces.count() * pieces.share * (join.replica.subtrees_in_all() as u64 - 1);
        // To where it is sent from, and from where it was received.
        (join_seconds(&pieces, cost_model), 2 * bytes(&node.inputs) + 2 * bytes(&node.outputs) + added)
    } else if let Op::Replicate(Replicate { count, .. }) = node.op {
        (broadcast_seconds(bytes(&node.inputs[..1]), count as u64, cost_model), 0)
    } else {
        return None;
    };
    Some(cost_model.launch_us * 1e-6 + sent + copied as f64 / (cost_model.gbytes * 1e9))
}

/// Of a piece, each replica sends every other one its share, once for each of its sums, and what it has added up once more. The
/// messages of a replica follow each other: links carry one at a time, and what starting one takes is the sender's time.
fn join_seconds(pieces: &Pieces, cost_model: &CostModel) -> f64 {
    let others = pieces.piece / pieces.share - 1;
    let messages = pieces.count() * (pieces.rounds + 1) * others;
    cost_model.link.seconds(messages, messages * pieces.share)
}

/// Down a tree: a small state waits for each of its levels, and of a large one every level sends a part while it receives the next.
fn broadcast_seconds(bytes: u64, count: u64, cost_model: &CostModel) -> f64 {
    let levels = u64::from(count.next_power_of_two().ilog2());
    let pieces = bytes.div_ceil(STATE_PIECE).max(1);
    if levels == 0 { 0.0 } else { cost_model.link.seconds(levels * pieces, bytes) }
}

impl Plan {
    /// FNV-1a of all exchanges of all programs, in the order in which they happen: where, of what kind, and how many bytes. It is
    /// the same for all replicas of a run, whatever their budgets, threads and shares; where it is not, they would wait for
    /// each other for ever, or take one number for another.
    pub fn exchange_hash(&self) -> u64 {
        let mut text = String::new();
        for program in &self.programs {
            let nodes = program.launches.iter().map(|launch| program.graph.node(launch.group.root()));
            for node in nodes.filter(|node| node.op.is_exchange()) {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{} {}", program.phase.name(), describe(&program.graph, node));
            }
        }
        memfit_ir::fingerprint(&text)
    }
}

/// An exchange in the words that all replicas have for it.
fn describe(graph: &Graph, node: &Node) -> String {
    let (bytes, name) = (|v: &ValueId| graph.ty(*v).bytes(), node.op.name());
    if let Op::Join(Join { replica: Replica { lanes, count, .. }, piece }) = node.op {
        let totals: Vec<u64> = node.outputs[..node.outputs.len() - 1].iter().map(bytes).collect();
        format!("{name} {} {lanes}/{count} {piece} {totals:?}", node.scope)
    } else if let Op::Replicate(Replicate { count, owner, .. }) = node.op {
        format!("{name} {} {owner}/{count} {}", node.scope, bytes(&node.inputs[0]))
    } else {
        unreachable!("{name} is no exchange")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost_model::Link;
    use memfit_ir::op::{Fill, Input};
    use memfit_ir::{DType, TensorType};

    /// A graph of one exchange of so many numbers, and its group.
    fn exchange(op: Op, numbers: usize, sums: usize) -> (Graph, Group) {
        let mut graph = Graph::new();
        let ty = TensorType::f32([numbers]);
        let sum = |graph: &mut Graph, i: usize| {
            let input = Input { name: format!("x{i}"), dtype: ty.dtype, shape: ty.shape.clone() };
            let node = graph.push(Op::Input(input), &[], "").unwrap();
            graph.node(node).outputs[0]
        };
        let inputs: Vec<ValueId> = (0..sums).map(|i| sum(&mut graph, i)).collect();
        let node = graph.push(op, &inputs, "layer").unwrap();
        let writes = graph.node(node).outputs.clone();
        (graph, Group { nodes: vec![node], prologue_len: 0, reductions_len: 0, reads: inputs, writes })
    }

    fn cost_model(link: Link) -> CostModel {
        CostModel::new("paper", 270.0, 28.0, 3.0).with_link(link)
    }

    fn joined(numbers: usize, replica: Replica, piece: usize, link: Link) -> f64 {
        let join = Join { replica, piece };
        let (graph, group) = exchange(Op::Join(join), numbers, join.sums());
        seconds(&graph, &group, &cost_model(link)).unwrap()
    }

    fn all_of(count: usize) -> Replica {
        Replica { lanes: count, count, rank: 0 }
    }

    const SLOW: Link = Link { gbytes: 0.125, message_us: 50.0 };

    #[test]
    fn a_join_takes_longer_for_more_bytes_replicas_and_pieces() {
        for link in [Link::SHARED_MEMORY, SLOW, Link { gbytes: 12.5, message_us: 10.0 }] {
            for count in [2, 3, 4, 7, 8, 64, 500, 512] {
                let of = |numbers, piece| joined(numbers, all_of(count), piece, link);
                let sizes = [1, 2, 63, 64, 1000, 1 << 18, (1 << 18) + 1, 1 << 20, 25_000_000];
                assert!(sizes.is_sorted_by(|&a, &b| of(a, 1 << 20) <= of(b, 1 << 20)), "{count} replicas");
                for numbers in sizes {
                    let pieces = [1 << 24, 1 << 20, 1 << 18, 1 << 14];
                    assert!(
                        pieces.is_sorted_by(|&a, &b| of(numbers, a) <= of(numbers, b)),
                        "{count} replicas, {numbers}"
                    );
                    let twice = joined(numbers, all_of(2 * count), 1 << 20, link);
                    assert!(of(numbers, 1 << 20) < twice, "{count} replicas, {numbers}");
                }
            }
        }
    }

    #[test]
    fn an_exchange_is_no_faster_than_its_link() {
        let numbers = 25_000_000;
        // Half of it goes out to be added up, and half of what comes back is the other's.
        let seconds = joined(numbers, all_of(2), 1 << 24, Link::SHARED_MEMORY);
        assert!((0.103..0.150).contains(&seconds), "{seconds} s, and 103 to 150 ms were measured");
        let slower = joined(numbers, all_of(2), 1 << 24, SLOW);
        assert!((6.0..8.0).contains(&(slower / seconds)), "an eighth of the bandwidth: {slower} s");
        // Of 5 lanes one of two replicas has two parts of the tree, each of which is sent.
        let two = joined(numbers, Replica { lanes: 4, count: 2, rank: 0 }, 1 << 24, SLOW);
        let uneven = joined(numbers, Replica { lanes: 5, count: 2, rank: 0 }, 1 << 24, SLOW);
        assert!(uneven > 1.3 * two, "{uneven} s and {two} s");
    }

    #[test]
    fn a_broadcast_takes_its_bytes_once_and_a_message_for_each_level() {
        let replicated = |numbers, count| {
            let (graph, group) = exchange(Op::Replicate(Replicate { rank: 0, count, owner: 1 }), numbers, 1);
            seconds(&graph, &group, &cost_model(SLOW)).unwrap()
        };
        let (small, large) = (|count| replicated(1, count), |count| replicated(1 << 22, count));
        assert!((small(4) - small(2) - 50e-6).abs() < 1e-9 && (small(512) - small(2) - 400e-6).abs() < 1e-9);
        assert!(large(512) < 1.1 * large(2), "its levels overlap");
        assert!([2, 3, 5, 9, 64, 512].is_sorted_by(|&a, &b| large(a) < large(b)));
    }

    #[test]
    fn pieces_are_even_and_as_few_as_can_be() {
        for (numbers, count, piece) in
            [(1, 2, 8), (262_144, 3, 1 << 20), (262_145, 4, 1 << 20), (1000, 7, 64), (9, 4, 17)]
        {
            let join = Join { replica: all_of(count), piece };
            let (graph, group) = exchange(Op::Join(join), numbers, 1);
            let pieces = Pieces::new(&graph, group.root(), join);
            assert!(pieces.piece <= piece.max(4 * count) as u64 && pieces.piece == count as u64 * pieces.share);
            assert!(pieces.count() * pieces.piece >= pieces.total && pieces.share.is_multiple_of(NUMBER));
            let most = (piece / count / 4 * 4 * count) as u64;
            assert_eq!(pieces.count(), pieces.total.div_ceil(most), "{pieces:?}");
            let filled = pieces.count() * pieces.piece - pieces.total;
            assert!(
                filled < pieces.count() * NUMBER * count as u64 + pieces.piece / 2,
                "{pieces:?} sends {filled} of nothing"
            );
        }
    }

    #[test]
    fn what_is_no_exchange_is_left_to_the_target() {
        let fill = Op::Fill(Fill { value: 0.0, dtype: DType::F32, shape: [4].into() });
        let (graph, group) = exchange(fill, 4, 0);
        assert_eq!(seconds(&graph, &group, &cost_model(SLOW)), None);
        assert_eq!(scratch_bytes(&graph, &group), None);
    }
}
