//! Whether each sample's result depends on that sample alone, so that a batch may be cut into micro-batches without
//! changing more than the rounding of a sum.

use memfit_ir::{Graph, Node, NodeId, Op, ValueId};

/// The first node of the forward pass, up to `end`, that mixes the samples of a batch, in words; none if each sample
/// stands alone until the loss. A mean over all that becomes the loss does not count: its share of the batch's mean is
/// known. Where an op could do either, it is taken to mix.
pub fn mixes_samples(graph: &Graph, end: NodeId) -> Option<String> {
    // By value: how many rows of the first axis belong to one sample; none if it is the same for every sample.
    let mut rows: Vec<Option<usize>> = vec![None; graph.values().len()];
    let batch = batch_size(graph)?;
    let mut summed = vec![false; graph.values().len()];
    for id in graph.node_ids().take_while(|&id| id <= end) {
        let node = graph.node(id);
        if let Op::Input(_) = node.op {
            let v = node.outputs[0];
            rows[v.index()] = (graph.shape(v).first() == Some(&batch)).then_some(1);
            continue;
        }
        if node.inputs.iter().any(|v| summed[v.index()]) {
            if !is_linear(node, &summed, &rows) {
                return Some(mixed(node));
            }
            node.outputs.iter().for_each(|v| summed[v.index()] = true);
            continue;
        }
        let reads: Vec<(ValueId, usize)> =
            node.inputs.iter().filter_map(|&v| rows[v.index()].map(|r| (v, r))).collect();
        if reads.is_empty() || !node.op.is_pure() {
            continue;
        }
        match of(graph, node, &reads, batch) {
            Rows::Kept(r) => node.outputs.iter().for_each(|v| rows[v.index()] = Some(r)),
            Rows::Summed => node.outputs.iter().for_each(|v| summed[v.index()] = true),
            Rows::Mixed => return Some(mixed(node)),
        }
    }
    None
}

fn mixed(node: &Node) -> String {
    format!("{} in layer \"{}\" mixes the samples of a batch", node.op.name(), node.scope)
}

/// Whether the sum over micro-batches of what a node makes from a sum is what it makes from the whole sum.
fn is_linear(node: &Node, summed: &[bool], rows: &[Option<usize>]) -> bool {
    use memfit_ir::op::{Binary, Unary};
    let samples = node.inputs.iter().any(|v| rows[v.index()].is_some());
    let sums = node.inputs.iter().filter(|v| summed[v.index()]).count();
    !samples
        && match &node.op {
            Op::Binary(Binary::Add | Binary::Sub) => true,
            Op::Binary(Binary::Mul) => sums == 1,
            Op::Binary(Binary::Div) => sums == 1 && summed[node.inputs[0].index()],
            Op::Unary(Unary::Neg) | Op::Reshape(_) | Op::Cast(_) => true,
            _ => false,
        }
}

enum Rows {
    /// The samples still stand one after the other along the first axis, each with so many rows.
    Kept(usize),
    /// Summed up over all samples, as the loss is.
    Summed,
    Mixed,
}

/// The first extent of the data: of the first input with an axis that is not the clock.
fn batch_size(graph: &Graph) -> Option<usize> {
    let data = graph.inputs().filter(|(name, _)| *name != memfit_ir::op::CLOCK);
    data.filter_map(|(_, v)| graph.shape(v).first().copied()).next()
}

fn of(graph: &Graph, node: &Node, reads: &[(ValueId, usize)], batch: usize) -> Rows {
    let y = graph.shape(node.outputs[0]);
    let (first, r) = reads[0];
    let x = graph.shape(first);
    let is_first = node.inputs[0] == first;
    let same_rows = reads.iter().all(|&(_, other)| other == r);
    let kept = |ok: bool| if ok { Rows::Kept(r) } else { Rows::Mixed };
    match &node.op {
        Op::Reduce(reduce) if reduce.axes.contains(&0) => {
            let all = reduce.axes.len() == x.len();
            let additive = matches!(reduce.kind, memfit_ir::op::ReduceKind::Sum | memfit_ir::op::ReduceKind::Mean);
            if all && additive { Rows::Summed } else { Rows::Mixed }
        }
        Op::Reduce(_) | Op::Softmax(_) => kept(x.len() > 1 || matches!(node.op, Op::Reduce(_))),
        Op::Reshape(_) => match y.first() {
            Some(&n) if n > 0 && n.is_multiple_of(batch) => Rows::Kept(n / batch),
            _ => Rows::Mixed,
        },
        Op::Transpose(perm) => kept(perm.first() == Some(&0)),
        Op::Slice(s) => kept(s.start[0] == 0 && s.stop[0] == x[0]),
        Op::Concat(axis) => kept(*axis > 0 && same_rows),
        Op::Pad(pads) => kept(pads[0] == (0, 0)),
        Op::Broadcast(shape) => kept(shape.len() == x.len() && x[0] == batch * r),
        // Rows of the left side by a right side that is the same for all, or a product for each sample.
        Op::MatMul(m) => {
            let each = y.len() > 2 && reads.iter().all(|(v, _)| graph.shape(*v).len() == y.len());
            kept(same_rows && (each || is_first && reads.len() == 1 && !(m.transpose_a && x.len() == 2)))
        }
        Op::Conv(_) | Op::ConvTranspose(_) | Op::LayerNorm(_) | Op::RmsNorm(_) | Op::GroupNorm(_) => {
            kept(is_first && reads.len() == 1)
        }
        Op::Gather => kept(reads.len() == 1 && node.inputs[1] == first),
        Op::BatchApply(_) => kept(is_first && reads.len() == 1),
        Op::MaxPool(_) | Op::AvgPool(_) | Op::Upsample(_) => Rows::Kept(r),
        Op::CrossEntropy(_) | Op::Attention(_) => kept(same_rows),
        op if op.is_elementwise() => {
            let full = reads.iter().all(|(v, _)| graph.shape(*v).len() == y.len() && graph.shape(*v)[0] == y[0]);
            kept(same_rows && full)
        }
        // Statistics of the batch; and what does not stand in a forward pass.
        _ => Rows::Mixed,
    }
}
