//! Whether each sample's result depends on that sample alone, so that a batch may be cut into micro-batches without
//! changing more than the rounding of a sum.

use std::fmt;

use memfit_ir::op::{MatMul, Reduce, ReduceKind, has_row_per_sample};
use memfit_ir::{Graph, Node, NodeId, Op, ValueId, in_layer};

/// What makes a sample's result depend on the rest of its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchDependence {
    /// Statistics over the batch, as a batch norm's: with micro-batches they come from fewer samples.
    BatchStatistics { op: &'static str, scope: String },
    /// Another op that mixes the samples, or may.
    Mixed { op: &'static str, scope: String },
    /// No input has the samples of the batch along its first axis, so that nothing is known of them.
    NoBatchAxis { batch: usize },
}

impl fmt::Display for BatchDependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchDependence::BatchStatistics { op, scope } | BatchDependence::Mixed { op, scope } => {
                write!(f, "{op}{} mixes the samples of a batch", in_layer(scope))
            }
            BatchDependence::NoBatchAxis { batch } => {
                write!(f, "no input has the {batch} samples of the batch along its first axis")
            }
        }
    }
}

impl BatchDependence {
    fn through(node: &Node) -> BatchDependence {
        let (op, scope) = (node.op.name(), node.scope.clone());
        if node.op == Op::BatchStats {
            BatchDependence::BatchStatistics { op, scope }
        } else {
            BatchDependence::Mixed { op, scope }
        }
    }
}

/// What first mixes the samples of a batch of so many in the forward pass, up to `end`; none if each sample stands alone until
/// the loss. A mean over all that becomes the loss does not count: its share of the batch's mean is known. Where an op could
/// do either, it is taken to mix; and so is a graph of which no input has the batch as its first extent.
pub fn batch_dependence(graph: &Graph, end: NodeId, batch: usize) -> Option<BatchDependence> {
    let mut samples: Vec<Option<Samples>> = vec![None; graph.values().len()];
    let mut averaged = vec![false; graph.values().len()];
    if !graph.inputs().any(|(name, v)| has_row_per_sample(name, graph.shape(v), batch)) {
        return Some(BatchDependence::NoBatchAxis { batch });
    }
    for id in graph.node_ids().take_while(|&id| id <= end) {
        let node = graph.node(id);
        if let Op::Input(input) = &node.op {
            let v = node.outputs[0];
            samples[v.index()] =
                has_row_per_sample(&input.name, graph.shape(v), batch).then_some(Samples { axis: 0, rows: 1 });
            continue;
        }
        if node.inputs.iter().any(|v| averaged[v.index()]) {
            if !is_linear(node, &averaged, &samples) {
                return Some(BatchDependence::through(node));
            }
            node.outputs.iter().for_each(|v| averaged[v.index()] = true);
            continue;
        }
        let reads: Vec<(ValueId, Samples)> =
            node.inputs.iter().filter_map(|&v| samples[v.index()].map(|s| (v, s))).collect();
        if reads.is_empty() || !node.op.is_pure() {
            continue;
        }
        match after(graph, node, &reads, batch) {
            SampleFlow::Kept(s) => node.outputs.iter().for_each(|v| samples[v.index()] = Some(s)),
            SampleFlow::Averaged => node.outputs.iter().for_each(|v| averaged[v.index()] = true),
            SampleFlow::Mixed => return Some(BatchDependence::through(node)),
        }
    }
    None
}

/// Where the samples of a batch are: one after the other along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Samples {
    axis: usize,
    /// How many places along the axis belong to one sample.
    rows: usize,
}

enum SampleFlow {
    /// The samples still stand apart.
    Kept(Samples),
    /// The mean over all samples, as the loss is. A sum is not: of that, a micro-batch has more than its share.
    Averaged,
    Mixed,
}

/// Whether the mean over micro-batches of what a node makes from their means is what it makes from the mean of all.
fn is_linear(node: &Node, averaged: &[bool], samples: &[Option<Samples>]) -> bool {
    use memfit_ir::op::{Binary, Unary};
    let apart = node.inputs.iter().any(|v| samples[v.index()].is_some());
    let means = node.inputs.iter().filter(|v| averaged[v.index()]).count();
    let is_linear = if let Op::Binary(b) = node.op {
        match b {
            Binary::Add | Binary::Sub => true,
            Binary::Mul => means == 1,
            Binary::Div => means == 1 && averaged[node.inputs[0].index()],
            Binary::Min | Binary::Max | Binary::Pow | Binary::SigmoidCrossEntropy => false,
        }
    } else {
        matches!(node.op, Op::Unary(Unary::Neg) | Op::Reshape(_) | Op::Cast(_))
    };
    !apart && is_linear
}

/// What becomes of the samples in a node that reads some.
fn after(graph: &Graph, node: &Node, reads: &[(ValueId, Samples)], batch: usize) -> SampleFlow {
    let y = graph.shape(node.outputs[0]);
    let (first, s) = reads[0];
    let x = graph.shape(first);
    let alike = reads.iter().all(|(_, other)| *other == s);
    let only_first = reads.len() == 1 && node.inputs[0] == first;
    let last = s.axis + 1 == x.len();
    let kept = |ok: bool| if ok { SampleFlow::Kept(s) } else { SampleFlow::Mixed };
    match &node.op {
        Op::Reduce(r) => reduced(r, x, s),
        Op::Reshape(_) => reshaped(x, y, s, batch),
        Op::Transpose(perm) => match perm.iter().position(|&p| p == s.axis) {
            Some(axis) => SampleFlow::Kept(Samples { axis, ..s }),
            None => SampleFlow::Mixed,
        },
        Op::Slice(cut) => kept(cut.start[s.axis] == 0 && cut.stop[s.axis] == x[s.axis]),
        Op::Concat(axis) => kept(*axis != s.axis && alike),
        Op::Pad(pads) => kept(pads[s.axis] == (0, 0)),
        Op::Broadcast(shape) => kept(shape.len() == x.len() && shape[s.axis] == x[s.axis]),
        Op::Softmax(_) => kept(!last),
        Op::MatMul(m) => kept(alike && (only_first && rows_stay_apart(m, x, s) || each_by_itself(graph, y, reads, s))),
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::BatchApply(_) => kept(only_first && !last),
        Op::Conv(_) | Op::ConvTranspose(_) | Op::GroupNorm(_) => kept(only_first && s.axis == 0),
        Op::MaxPool(_) | Op::AvgPool(_) | Op::Upsample(_) => kept(s.axis == 0),
        Op::Gather => kept(reads.len() == 1 && node.inputs[1] == first),
        Op::CrossEntropy(_) => kept(alike && s.axis == 0 && x.len() > y.len()),
        Op::Attention(_) => kept(s.axis == 0),
        Op::Unary(_)
        | Op::UnaryGrad(_)
        | Op::Mask(_)
        | Op::MaskGrad(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Dropout(_)
        | Op::BatchGradInput(_) => {
            let full = |v: &ValueId| graph.shape(*v).len() == y.len() && graph.shape(*v)[s.axis] == y[s.axis];
            kept(alike && reads.iter().all(|(v, _)| full(v)))
        }
        Op::BatchStats => SampleFlow::Mixed,
        // What reads nothing, and what does not stand in a forward pass.
        Op::Input(_)
        | Op::State(_)
        | Op::Fill(_)
        | Op::ConvFilter(_)
        | Op::AttentionGrad(_)
        | Op::MaxPoolGrad(_)
        | Op::AvgPoolGrad(_)
        | Op::UpsampleGrad(_)
        | Op::BatchGradReduce(_)
        | Op::BatchUpdate(_)
        | Op::LayerNormGrad
        | Op::RmsNormGrad
        | Op::GroupNormGrad(_)
        | Op::SoftmaxGrad(_)
        | Op::CrossEntropyGrad(_)
        | Op::GatherGrad(_)
        | Op::Update(_)
        | Op::Join(_)
        | Op::Replicate(_) => SampleFlow::Mixed,
    }
}

fn reduced(r: &Reduce, x: &[usize], s: Samples) -> SampleFlow {
    let before = r.axes.iter().filter(|a| **a < s.axis).count();
    match (r.axes.contains(&s.axis), r.keep) {
        (true, _) if r.kind == ReduceKind::Mean && r.axes.len() == x.len() => SampleFlow::Averaged,
        (true, _) => SampleFlow::Mixed,
        (false, true) => SampleFlow::Kept(s),
        (false, false) => SampleFlow::Kept(Samples { axis: s.axis - before, ..s }),
    }
}

/// Rows of the left side by a right side that is the same for all.
fn rows_stay_apart(m: &MatMul, x: &[usize], s: Samples) -> bool {
    s.axis + 1 < x.len() && !(m.transpose_a && s.axis + 2 == x.len())
}

/// A product for each sample.
fn each_by_itself(graph: &Graph, y: &[usize], reads: &[(ValueId, Samples)], s: Samples) -> bool {
    s.axis + 2 < y.len() && reads.iter().all(|(v, _)| graph.shape(*v).len() == y.len())
}

/// The samples stay apart where an axis of the new shape begins where theirs did and holds whole samples.
fn reshaped(x: &[usize], y: &[usize], s: Samples, batch: usize) -> SampleFlow {
    let before: usize = x[..s.axis].iter().product();
    let begins = |axis: &usize| y[..*axis].iter().product::<usize>() == before && y[*axis] > 0;
    let whole = |axis: &usize| y[*axis].is_multiple_of(batch);
    match (0..y.len()).filter(begins).find(whole) {
        Some(axis) => SampleFlow::Kept(Samples { axis, rows: y[axis] / batch }),
        None => SampleFlow::Mixed,
    }
}
