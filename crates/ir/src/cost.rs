//! What a node costs on any machine: its arithmetic and the bytes that it must move. These are counts that follow from
//! op and shapes; seconds, caches, fusion and scratch memory are the target's business and do not stand here.

use std::ops::AddAssign;

use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{Attention, Binary, Family, Op, ReduceKind, Unary, Update, UpsampleMode};

/// Work and traffic of one node, or of many. A count that does not fit is `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    /// A multiply-add counts 2; see [`cost`].
    pub flops: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.flops = self.flops.saturating_add(other.flops);
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
    }
}

/// The cost of one node.
///
/// Flops of contractions are exact; elsewhere they are a small number for each element, of which an exponential or
/// logarithm is 8, and a root or division 4. Layout ops have none.
///
/// Each distinct input is read once and each output is written once, as if nothing were fused or found in a cache. Of
/// a slice and of a gather only what they take is read. A reshape is a view, and an input or a state is already there:
/// both move nothing.
pub fn cost(graph: &Graph, node: NodeId) -> Cost {
    let n = graph.node(node);
    let (bytes_read, bytes_written) = bytes(graph, n);
    let flops = u64::try_from(flops(graph, n)).unwrap_or(u64::MAX);
    Cost { flops, bytes_read, bytes_written }
}

/// The sum over all nodes.
pub fn graph_cost(graph: &Graph) -> Cost {
    let mut sum = Cost::default();
    for id in graph.node_ids() {
        sum += cost(graph, id);
    }
    sum
}

fn bytes(graph: &Graph, n: &Node) -> (u64, u64) {
    let total = |vs: &[ValueId]| vs.iter().fold(0, |sum: u64, &v| sum.saturating_add(graph.ty(v).bytes()));
    let read = match reads(&n.op) {
        Reads::View => return (0, 0),
        Reads::Part => total(&n.outputs),
        Reads::Rows => total(&[n.inputs[1], n.outputs[0]]),
        Reads::All => {
            let mut distinct = n.inputs.clone();
            distinct.sort_unstable();
            distinct.dedup();
            total(&distinct)
        }
    };
    (read, total(&n.outputs))
}

enum Reads {
    /// Nothing is read and nothing is written: the output is already there.
    View,
    /// As much of the input as there is output.
    Part,
    /// The ids, and as much of the table as there is output.
    Rows,
    All,
}

fn reads(op: &Op) -> Reads {
    if op.family() == Family::Source || matches!(op, Op::Reshape(_)) {
        Reads::View
    } else if matches!(op, Op::Slice(_)) {
        Reads::Part
    } else if *op == Op::Gather {
        Reads::Rows
    } else {
        Reads::All
    }
}

/// Flops of one exponential or logarithm.
const EXP: u128 = 8;
/// Flops of one root or division.
const ROOT: u128 = 4;
/// Integer operations for one element's share of a Philox block, with the comparison and the scaling.
const DRAW: u128 = 24;

/// In `u128`, where no product of two tensors' elements can overflow.
fn flops(graph: &Graph, n: &Node) -> u128 {
    let elements = |v: ValueId| graph.ty(v).elements() as u128;
    let product = |dims: &[usize]| dims.iter().map(|&d| d as u128).product::<u128>();
    let elements_in = |values: &[ValueId]| values.iter().map(|&v| elements(v)).sum::<u128>();
    let input = |i: usize| elements(n.inputs[i]);
    let output = || elements(n.outputs[0]);
    let shape = |i: usize| graph.shape(n.inputs[i]);
    match &n.op {
        Op::Input(_) | Op::State(_) | Op::Fill(_) => 0,
        Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Concat(_) | Op::Pad(_) | Op::Broadcast(_) => 0,
        Op::Gather => 0,
        Op::Unary(u) => unary(*u) * output(),
        Op::UnaryGrad(u) | Op::MaskGrad(u) => unary_grad(*u) * output(),
        Op::Mask(_) => output(),
        Op::Binary(b) => binary(*b) * output(),
        Op::Compare(_) | Op::Select | Op::Cast(_) => output(),
        Op::Dropout(_) => DRAW * output(),
        Op::Reduce(r) => match r.kind {
            ReduceKind::Sum | ReduceKind::Mean | ReduceKind::Max => input(0),
            ReduceKind::SumSquares => 2 * input(0),
        },
        Op::MatMul(m) => {
            let [.., rows, cols] = *shape(0) else { return 0 };
            2 * output() * (if m.transpose_a { rows } else { cols }) as u128
        }
        // Each pixel on the side of the convolution's output meets one filter of one group: the same count for the
        // convolution and both of its gradients.
        Op::Conv(_) => 2 * output() * product(&shape(1)[..3]),
        Op::ConvTranspose(_) => 2 * input(0) * product(&shape(1)[..3]),
        Op::ConvFilter(_) => 2 * input(1) * product(&graph.shape(n.outputs[0])[..3]),
        Op::Attention(a) => attention(*a, shape(0), 2),
        Op::AttentionGrad(a) => attention(*a, shape(0), 5),
        Op::MaxPool(w) | Op::AvgPool(w) => output() * product(&w.size),
        Op::MaxPoolGrad(_) => input(1),
        Op::AvgPoolGrad(w) => input(0) * product(&w.window.size),
        Op::Upsample(u) => output() * upsample(u.mode),
        Op::UpsampleGrad(u) => input(0) * upsample(u.mode).max(1),
        Op::BatchStats => 3 * input(0),
        Op::BatchApply(_) => 2 * output(),
        Op::BatchGradReduce(_) => 4 * input(0),
        Op::BatchGradInput(b) => (if b.batch_stats { 5 } else { 1 }) * output(),
        Op::BatchUpdate(_) => 3 * (input(0) + input(1)),
        Op::LayerNorm(_) | Op::GroupNorm(_) => 7 * input(0),
        Op::LayerNormGrad | Op::GroupNormGrad(_) => 13 * input(0),
        Op::RmsNorm(_) => 4 * input(0),
        Op::RmsNormGrad => 9 * input(0),
        Op::Softmax(_) => (EXP + 4) * input(0),
        Op::SoftmaxGrad(s) => (if s.log { EXP + 3 } else { 4 }) * input(0),
        Op::CrossEntropy(_) | Op::CrossEntropyGrad(_) => (EXP + 4) * input(0),
        Op::GatherGrad(_) => input(1),
        Op::Update(u) => update(*u) * input(0),
        Op::Join(j) => elements_in(&n.outputs) * j.replica.subtrees_in_all() as u128 / j.replica.count as u128,
        Op::Replicate(_) => 0,
    }
}

/// A number of products over the dim for each head and pair of positions. Half of the pairs where causal: the 2 of a
/// multiply-add makes that exact.
fn attention(a: Attention, qkv: &[usize], products: u128) -> u128 {
    let [batch, sequence, _, heads, dim] = *qkv else { return 0 };
    let terms = [batch, heads, sequence, sequence, dim].iter().map(|&d| d as u128).product::<u128>();
    terms * products * if a.causal { 1 } else { 2 }
}

fn unary(u: Unary) -> u128 {
    match u {
        Unary::Neg | Unary::Abs | Unary::Relu => 1,
        Unary::Relu6 | Unary::LeakyRelu(_) => 2,
        Unary::HardSigmoid => 4,
        Unary::HardSwish => 5,
        Unary::Sqrt | Unary::Rsqrt => ROOT,
        Unary::Exp | Unary::Log => EXP,
        Unary::Elu(_) => EXP + 3,
        Unary::Sigmoid | Unary::Tanh => EXP + ROOT + 2,
        Unary::Silu => EXP + ROOT + 3,
        Unary::Softplus => 2 * EXP + 3,
        Unary::GeluTanh | Unary::GeluErf => EXP + ROOT + 10,
    }
}

/// With the multiplication by dy. Those that read the output need no exponential.
fn unary_grad(u: Unary) -> u128 {
    match u {
        Unary::Neg | Unary::Relu | Unary::Exp => 1,
        Unary::Abs | Unary::Relu6 | Unary::LeakyRelu(_) => 2,
        Unary::Elu(_) | Unary::Sigmoid | Unary::Tanh | Unary::HardSigmoid => 3,
        Unary::Rsqrt => 4,
        Unary::HardSwish => 5,
        Unary::Log => ROOT,
        Unary::Sqrt => ROOT + 1,
        Unary::Softplus => EXP + ROOT + 2,
        Unary::Silu => EXP + ROOT + 6,
        Unary::GeluTanh | Unary::GeluErf => EXP + ROOT + 18,
    }
}

fn binary(b: Binary) -> u128 {
    match b {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max => 1,
        Binary::Div => ROOT,
        Binary::Pow => 2 * EXP + 1,
        Binary::SigmoidCrossEntropy => 2 * EXP + 5,
    }
}

fn upsample(mode: UpsampleMode) -> u128 {
    match mode {
        UpsampleMode::Nearest => 0,
        UpsampleMode::Bilinear => 8,
    }
}

fn update(u: Update) -> u128 {
    match u {
        Update::Sgd { momentum, nesterov, .. } => 4 + if momentum != 0.0 { 2 } else { 0 } + 2 * nesterov as u128,
        Update::Adam { .. } => 2 * ROOT + 12,
        Update::RmsProp { .. } | Update::Adagrad { .. } => 2 * ROOT + 6,
    }
}
