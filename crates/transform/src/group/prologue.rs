//! Prologues: elementwise chains that are computed while a contraction reads its operand, so that the operand has no memory.
//!
//! A chain is taken only if the contraction is the one reader of its result and if that spares memory: the values that it
//! reads would be there anyway, or are smaller than its result.

use memfit_ir::op::{Binary, Contraction, Conv, Elementwise};
use memfit_ir::{DType, Graph, NodeId, ValueId};

use super::{Fusion, Prologues, ValueUses, reads};

/// For each node, the chains before it, in order; empty for all but contractions.
pub fn prologues(graph: &Graph, needed: &ValueUses, fusion: &Fusion) -> Vec<Vec<NodeId>> {
    let Some(limits) = &fusion.prologues else { return vec![Vec::new(); graph.nodes().len()] };
    let find = |id: NodeId| {
        let node = graph.node(id);
        // What one kernel takes must do for all operands, and for the results.
        let mut room = fusion.max_operands.saturating_sub(node.inputs.len() + node.outputs.len());
        let mut found: Vec<NodeId> = Vec::new();
        for v in operands(graph, limits, id) {
            let nodes = chain(graph, needed, fusion, room, id, v);
            room -= reads(graph, &nodes).len().saturating_sub(1);
            found.extend(nodes);
        }
        found.sort_unstable();
        found
    };
    graph.node_ids().map(find).collect()
}

/// The nodes among `nodes` that an operand is computed from, in order.
pub fn prologue_of(graph: &Graph, nodes: &[NodeId], operand: ValueId) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = Vec::new();
    for &id in nodes.iter().rev() {
        let made = graph.node(id).outputs[0];
        if made == operand || found.iter().any(|&f| graph.node(f).inputs.contains(&made)) {
            found.push(id);
        }
    }
    found.reverse();
    found
}

/// The operands of a contraction that a kernel can compute itself while it reads them, about once for each element.
fn operands(graph: &Graph, limits: &Prologues, id: NodeId) -> impl Iterator<Item = ValueId> {
    let node = graph.node(id);
    // In groups of channels, each group would compute all channels.
    let whole = |c: &Conv| c.groups == 1;
    let width = graph.shape(node.outputs[0]).last().copied().unwrap_or(0);
    let columns = || width <= limits.max_columns;
    let taps = || {
        let filter = graph.shape(node.inputs[1]);
        let is_held = graph.ty(node.inputs[1]).elements() <= limits.max_filter;
        columns() && (filter[..2] == [1, 1] || is_held || width >= limits.many_columns)
    };
    let [left, right] = match node.op.contraction() {
        None => [false, false],
        Some(Contraction::MatMul(_)) => [columns(), true],
        Some(Contraction::Conv(c)) => [whole(&c) && taps(), whole(&c)],
        // With a stride, the image is read once for each phase.
        Some(Contraction::ConvTranspose(c)) => [whole(&c.conv) && c.conv.stride == [1, 1] && taps(), whole(&c.conv)],
        Some(Contraction::ConvFilter(c)) => [whole(&c.conv) && columns(), whole(&c.conv)],
    };
    let twice = node.inputs.len() == 2 && node.inputs[0] == node.inputs[1];
    let fits = [left, right].into_iter().map(move |fits| fits && !twice);
    node.inputs.iter().copied().zip(fits).filter(|&(_, fits)| fits).map(|(v, _)| v)
}

/// The chain that makes `operand` for its reader: of all that end there, the one that reads the fewest bytes which would
/// not be kept without it, and of these the shortest, with at most `room` values read beyond the first. Empty where none reads
/// fewer bytes than the operand has.
fn chain(
    graph: &Graph,
    needed: &ValueUses,
    fusion: &Fusion,
    room: usize,
    reader: NodeId,
    operand: ValueId,
) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = Vec::new();
    let (mut best, mut least) = (0, graph.ty(operand).bytes());
    while nodes.len() < fusion.max_nodes {
        let inside = |n: NodeId| n == reader || nodes.contains(&n);
        let read = nodes.iter().flat_map(|&n| &graph.node(n).inputs).chain([&operand]);
        let next = read
            .map(|&v| graph.producer(v))
            .filter(|&n| !inside(n) && can_feed(graph, n, operand))
            .filter(|&n| only_inside(needed, graph.node(n).outputs[0], inside))
            .max();
        let Some(next) = next else { break };
        nodes.push(next);
        let extra = extra_bytes(graph, needed, &nodes);
        if extra < least && reads(graph, &nodes).len() <= room.saturating_add(1) {
            (best, least) = (nodes.len(), extra);
        }
    }
    nodes.truncate(best);
    nodes
}

/// Whether a node may be part of the chain of an operand: cheap, element for element, and free of bits, which a kernel
/// cannot start in the middle of a byte.
fn can_feed(graph: &Graph, id: NodeId, operand: ValueId) -> bool {
    let node = graph.node(id);
    node.op.elementwise().is_some_and(is_cheap)
        && graph.ty(node.outputs[0]).dtype != DType::Bit
        && graph.shape(node.outputs[0]) == graph.shape(operand)
}

fn is_cheap(op: Elementwise) -> bool {
    match op {
        Elementwise::Dropout(_) | Elementwise::Mask(_) | Elementwise::MaskGrad(_) => false,
        Elementwise::Binary(b) => b != Binary::Pow,
        Elementwise::Unary(_)
        | Elementwise::UnaryGrad(_)
        | Elementwise::Compare(_)
        | Elementwise::Select
        | Elementwise::Cast(_)
        | Elementwise::BatchApply(_)
        | Elementwise::BatchGradInput(_) => true,
    }
}

/// Whether a value is needed by those inside and by nobody else.
fn only_inside(needed: &ValueUses, v: ValueId, inside: impl Fn(NodeId) -> bool) -> bool {
    !needed.at_end[v.index()] && needed.users[v.index()].iter().all(|&u| inside(u))
}

/// Bytes that a chain reads and that would need no memory without it: its first nodes would be computed where those values
/// are made.
fn extra_bytes(graph: &Graph, needed: &ValueUses, nodes: &[NodeId]) -> u64 {
    let mut read: Vec<ValueId> = nodes.iter().flat_map(|&n| graph.node(n).inputs.clone()).collect();
    read.sort_unstable();
    read.dedup();
    let spared = |v: &ValueId| {
        let producer = graph.producer(*v);
        let op = &graph.node(producer).op;
        !nodes.contains(&producer)
            && (op.is_elementwise() || op.is_contraction())
            && only_inside(needed, *v, |u| nodes.contains(&u))
    };
    read.iter().filter(|v| spared(v)).map(|&v| graph.ty(v).bytes()).sum()
}
