//! Reductions over channels that close the group of a convolution: the statistics of a batch norm over what it makes, and
//! the sums of a batch norm's gradient over the gradient that it makes. What they reduce is in the cache then, and memory is
//! read once less.

use memfit_ir::op::{Contraction, Conv};
use memfit_ir::{DType, Graph, NodeId, Op, ValueId};

use super::{Fusion, Group};

/// The group that a reduction can close: the one that makes what it reduces, if all else that it reads is made before that,
/// and tensors among it are read there anyway.
pub fn joinable(
    graph: &Graph,
    fusion: &Fusion,
    groups: &[Group],
    group_of: &[Option<usize>],
    id: NodeId,
) -> Option<usize> {
    let node = graph.node(id);
    let (reduced, others): (ValueId, &[ValueId]) = if node.op == Op::BatchStats {
        (node.inputs[0], &[])
    } else if let Op::BatchGradReduce(_) = node.op {
        (node.inputs[3], &node.inputs[..3])
    } else {
        return None;
    };
    let index = group_of[graph.producer(reduced).index()]?;
    let group = &groups[index];
    let made_here = group.contains(graph.producer(reduced)) && graph.ty(reduced).dtype == DType::F32;
    let made_before = |v: &ValueId| group_of[graph.producer(*v).index()].is_none_or(|other| other < index);
    // A tensor that the convolution does not read anyway would have to be there earlier than without this.
    let there = |v: &ValueId| made_before(v) && (graph.shape(*v).len() == 1 || reads(graph, group, *v));
    let open = group.reductions_len < fusion.max_reductions;
    (in_rows(graph, group.root()) && made_here && open && others.iter().all(there)).then_some(index)
}

fn reads(graph: &Graph, group: &Group, v: ValueId) -> bool {
    group.nodes.iter().any(|&n| graph.node(n).inputs.contains(&v))
}

/// Whether a kernel makes whole rows of channels one after the other.
fn in_rows(graph: &Graph, root: NodeId) -> bool {
    let node = graph.node(root);
    let channels = |v: ValueId| graph.shape(v).last().copied();
    // One filter a channel, whatever the stride.
    let depthwise = |c: &Conv| {
        let [x, y] = [node.inputs[0], node.outputs[0]].map(channels);
        c.groups > 1 && x == Some(c.groups) && y == Some(c.groups)
    };
    match node.op.contraction() {
        Some(Contraction::Conv(c)) => c.groups == 1 || depthwise(&c),
        Some(Contraction::ConvTranspose(c)) => (c.conv.groups == 1 && c.conv.stride == [1, 1]) || depthwise(&c.conv),
        Some(Contraction::MatMul(_) | Contraction::ConvFilter(_)) | None => false,
    }
}
