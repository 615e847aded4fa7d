//! Whether each sample's result depends on that sample alone, so that a batch may be cut into micro-batches without
//! changing more than the rounding of a sum.

use memfit_ir::{Graph, Node, NodeId, Op, ValueId};

/// The first node of the forward pass, up to `end`, that mixes the samples of a batch, in words; none if each sample
/// stands alone until the loss. A mean over all that becomes the loss does not count: its share of the batch's mean is
/// known. Where an op could do either, it is taken to mix.
pub fn mixes_samples(graph: &Graph, end: NodeId) -> Option<String> {
    let mut samples: Vec<Option<Samples>> = vec![None; graph.values().len()];
    let batch = batch_size(graph)?;
    let mut summed = vec![false; graph.values().len()];
    for id in graph.node_ids().take_while(|&id| id <= end) {
        let node = graph.node(id);
        if let Op::Input(input) = &node.op {
            let v = node.outputs[0];
            let is_data = input.name != memfit_ir::op::CLOCK && graph.shape(v).first() == Some(&batch);
            samples[v.index()] = is_data.then_some(Samples { axis: 0, rows: 1 });
            continue;
        }
        if node.inputs.iter().any(|v| summed[v.index()]) {
            if !is_linear(node, &summed, &samples) {
                return Some(mixed(node));
            }
            node.outputs.iter().for_each(|v| summed[v.index()] = true);
            continue;
        }
        let reads: Vec<(ValueId, Samples)> =
            node.inputs.iter().filter_map(|&v| samples[v.index()].map(|s| (v, s))).collect();
        if reads.is_empty() || !node.op.is_pure() {
            continue;
        }
        match of(graph, node, &reads, batch) {
            After::Kept(s) => node.outputs.iter().for_each(|v| samples[v.index()] = Some(s)),
            After::Summed => node.outputs.iter().for_each(|v| summed[v.index()] = true),
            After::Mixed => return Some(mixed(node)),
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

enum After {
    /// The samples still stand apart.
    Kept(Samples),
    /// Summed up over all samples, as the loss is.
    Summed,
    Mixed,
}

fn mixed(node: &Node) -> String {
    format!("{} in layer \"{}\" mixes the samples of a batch", node.op.name(), node.scope)
}

/// Whether the sum over micro-batches of what a node makes from a sum is what it makes from the whole sum.
fn is_linear(node: &Node, summed: &[bool], samples: &[Option<Samples>]) -> bool {
    use memfit_ir::op::{Binary, Unary};
    let apart = node.inputs.iter().any(|v| samples[v.index()].is_some());
    let sums = node.inputs.iter().filter(|v| summed[v.index()]).count();
    !apart
        && match &node.op {
            Op::Binary(Binary::Add | Binary::Sub) => true,
            Op::Binary(Binary::Mul) => sums == 1,
            Op::Binary(Binary::Div) => sums == 1 && summed[node.inputs[0].index()],
            Op::Unary(Unary::Neg) | Op::Reshape(_) | Op::Cast(_) => true,
            _ => false,
        }
}

/// The first extent of the data: of the first input with an axis that is not the clock.
fn batch_size(graph: &Graph) -> Option<usize> {
    let data = graph.inputs().filter(|(name, _)| *name != memfit_ir::op::CLOCK);
    data.filter_map(|(_, v)| graph.shape(v).first().copied()).next()
}

fn of(graph: &Graph, node: &Node, reads: &[(ValueId, Samples)], batch: usize) -> After {
    let y = graph.shape(node.outputs[0]);
    let (first, s) = reads[0];
    let x = graph.shape(first);
    let alike = reads.iter().all(|(_, other)| *other == s);
    let only_first = reads.len() == 1 && node.inputs[0] == first;
    let last = s.axis + 1 == x.len();
    let kept = |ok: bool| if ok { After::Kept(s) } else { After::Mixed };
    match &node.op {
        Op::Reduce(r) if r.axes.contains(&s.axis) => {
            let additive = matches!(r.kind, memfit_ir::op::ReduceKind::Sum | memfit_ir::op::ReduceKind::Mean);
            if additive && r.axes.len() == x.len() { After::Summed } else { After::Mixed }
        }
        Op::Reduce(r) if r.keep => After::Kept(s),
        Op::Reduce(r) => After::Kept(Samples { axis: s.axis - r.axes.iter().filter(|a| **a < s.axis).count(), ..s }),
        Op::Reshape(_) => reshaped(x, y, s, batch),
        Op::Transpose(perm) => match perm.iter().position(|&p| p == s.axis) {
            Some(axis) => After::Kept(Samples { axis, ..s }),
            None => After::Mixed,
        },
        Op::Slice(cut) => kept(cut.start[s.axis] == 0 && cut.stop[s.axis] == x[s.axis]),
        Op::Concat(axis) => kept(*axis != s.axis && alike),
        Op::Pad(pads) => kept(pads[s.axis] == (0, 0)),
        Op::Broadcast(shape) => kept(shape.len() == x.len() && shape[s.axis] == x[s.axis]),
        Op::Softmax(_) => kept(!last),
        // Rows of the left side by a right side that is the same for all, or a product for each sample.
        Op::MatMul(m) => {
            let each = s.axis + 2 < y.len() && reads.iter().all(|(v, _)| graph.shape(*v).len() == y.len());
            let of_rows = only_first && !last && !(m.transpose_a && s.axis + 2 == x.len());
            kept(alike && (each || of_rows))
        }
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::BatchApply(_) => kept(only_first && !last),
        Op::Conv(_) | Op::ConvTranspose(_) | Op::GroupNorm(_) => kept(only_first && s.axis == 0),
        Op::MaxPool(_) | Op::AvgPool(_) | Op::Upsample(_) => kept(s.axis == 0),
        Op::Gather => kept(reads.len() == 1 && node.inputs[1] == first),
        Op::CrossEntropy(_) => kept(alike && s.axis == 0 && x.len() > y.len()),
        // Batch and heads stand apart, the other axes do not.
        Op::Attention(_) => kept(alike && s.axis < 2),
        op if op.is_elementwise() => {
            let full = |v: &ValueId| graph.shape(*v).len() == y.len() && graph.shape(*v)[s.axis] == y[s.axis];
            kept(alike && reads.iter().all(|(v, _)| full(v)))
        }
        // Statistics of the batch; and what does not stand in a forward pass.
        _ => After::Mixed,
    }
}

/// The samples stay apart where an axis of the new shape begins where theirs did and holds whole samples.
fn reshaped(x: &[usize], y: &[usize], s: Samples, batch: usize) -> After {
    let before: usize = x[..s.axis].iter().product();
    let begins = |axis: &usize| y[..*axis].iter().product::<usize>() == before && y[*axis] > 0;
    let whole = |axis: &usize| y[*axis].is_multiple_of(batch);
    match (0..y.len()).filter(begins).find(whole) {
        Some(axis) => After::Kept(Samples { axis, rows: y[axis] / batch }),
        None => After::Mixed,
    }
}
