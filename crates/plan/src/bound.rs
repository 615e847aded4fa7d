//! What no plan can do without: a bound that is proved, not guessed.
//!
//! Whatever is kept, recomputed or reordered, every op of the programs runs at least once. While it runs, its operands,
//! its result and its kernel's scratch are there; and with them every value that was given or made before it, is read
//! after it, and cannot be made again: staged inputs and the results of the backward pass.

use memfit_ir::{Graph, NodeId, Op, ValueId};
use memfit_transform::end_of_forward;
use memfit_transform::group::is_contraction;

use crate::draft::accumulator_bytes;
use crate::types::Phase;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Both segments.
    pub bytes: u64,
    /// The op that needs them.
    pub reason: String,
}

/// Ops whose surroundings are looked at; those with the largest operands.
const LOOKED_AT: usize = 24;

pub fn lower_bound(graphs: &[(Phase, Graph)], state_bytes: u64) -> Bound {
    let mut best = Bound { bytes: state_bytes, reason: "the states alone".into() };
    for (phase, graph) in graphs {
        let accumulators = accumulator_bytes(graph);
        for (bytes, id) in needs(graph) {
            let bytes = state_bytes + accumulators + bytes;
            if bytes > best.bytes {
                let node = graph.node(id);
                let reason = format!("{} in layer \"{}\" of the {} program", node.op.name(), node.scope, phase.name());
                best = Bound { bytes, reason };
            }
        }
    }
    best
}

/// Transient bytes that must be there while a node runs, for the nodes with the largest operands.
fn needs(graph: &Graph) -> Vec<(u64, NodeId)> {
    let mut in_state = vec![false; graph.values().len()];
    for (_, v) in graph.states() {
        in_state[v.index()] = true;
    }
    for d in &graph.donations {
        in_state[d.new.index()] = true;
    }
    let facts = Facts { graph, in_state, users: graph.users(), end: end_of_forward(graph) };
    let roots = graph.node_ids().filter(|&id| facts.runs_alone(id));
    let mut own: Vec<(u64, NodeId)> = roots.map(|id| (facts.touched(id), id)).collect();
    own.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
    own.truncate(LOOKED_AT);
    own.into_iter().map(|(_, id)| (facts.needed(id), id)).collect()
}

struct Facts<'a> {
    graph: &'a Graph,
    in_state: Vec<bool>,
    users: Vec<Vec<NodeId>>,
    end: Option<NodeId>,
}

impl Facts<'_> {
    /// Whether a node is the root of its kernel in every grouping.
    fn runs_alone(&self, id: NodeId) -> bool {
        let op = &self.graph.node(id).op;
        let source = matches!(op, Op::Input(_) | Op::State(_) | Op::Fill(_) | Op::Reshape(_));
        !source && !op.is_elementwise()
    }

    /// Bytes of all that a node reads and writes: the order in which nodes are looked at.
    fn touched(&self, id: NodeId) -> u64 {
        let node = self.graph.node(id);
        node.inputs.iter().chain(&node.outputs).map(|&v| self.bytes(v)).sum()
    }

    fn bytes(&self, v: ValueId) -> u64 {
        if self.in_state[v.index()] { 0 } else { self.graph.ty(v).bytes() }
    }

    /// Transient bytes that must be there while a node runs.
    fn needed(&self, id: NodeId) -> u64 {
        let node = self.graph.node(id);
        let around = self.around(id);
        let sources = self.sources(&around, is_contraction(&node.op));
        let mut operands: Vec<(ValueId, u64)> = Vec::new();
        for &v in &node.inputs {
            let (source, bytes) = sources[v.index()];
            if !operands.iter().any(|o| o.0 == source) {
                operands.push((source, bytes));
            }
        }
        let results = node.outputs.iter().filter(|v| !self.in_place_possible(id, **v));
        let results: u64 = results.map(|&v| self.output_bytes(v, is_contraction(&node.op))).sum();
        let there: u64 =
            (0..around.len() as u32).map(ValueId).filter(|v| around[v.index()]).map(|v| self.bytes(v)).sum();
        there + operands.iter().map(|o| o.1).sum::<u64>() + results
    }

    /// For every value, the least that must be in memory for a kernel that reads it, and the value that this stands for:
    /// itself, or, where the kernel can run the elementwise chain that makes it, the widest of what the chain reads,
    /// whichever is less. What is there anyway takes nothing more.
    fn sources(&self, around: &[bool], fused: bool) -> Vec<(ValueId, u64)> {
        let mut found: Vec<(ValueId, u64)> = Vec::with_capacity(around.len());
        for node in self.graph.nodes() {
            for &v in &node.outputs {
                let own = if around[v.index()] { 0 } else { self.bytes(v) };
                let widest =
                    node.inputs.iter().map(|u| found[u.index()]).max_by_key(|s| (s.1, std::cmp::Reverse(s.0.0)));
                found.push(match (&node.op, widest) {
                    (Op::Reshape(_), Some(source)) => source,
                    (op, Some(source)) if fused && op.is_elementwise() && source.1 <= own => source,
                    _ => (v, own),
                });
            }
        }
        found
    }

    /// A result that a chain finishes inside the kernel may leave it in a narrower type, or only as a sum with a state.
    fn output_bytes(&self, v: ValueId, fused: bool) -> u64 {
        let ty = self.graph.ty(v);
        let users = &self.users[v.index()];
        let chained = fused && !users.is_empty() && users.iter().all(|u| self.graph.node(*u).op.is_elementwise());
        if !chained {
            return ty.bytes();
        }
        let ends = users.iter().flat_map(|u| &self.graph.node(*u).outputs);
        ends.map(|&e| self.bytes(e).min(ty.bytes())).min().unwrap_or(0)
    }

    /// Kernels that may write over an operand: then the result takes no memory of its own.
    fn in_place_possible(&self, id: NodeId, v: ValueId) -> bool {
        let node = self.graph.node(id);
        !is_contraction(&node.op) && node.inputs.iter().any(|u| self.graph.ty(*u).bytes() == self.graph.ty(v).bytes())
    }

    /// By value: whether it is there while a node runs, wherever else it may be needed: it was given, or made on the way
    /// to the node and is not made again, and somebody reads it who needs the node first.
    fn around(&self, id: NodeId) -> Vec<bool> {
        let (on_the_way, needs_it) = (self.ancestors(id), self.descendants(id));
        let there = |v: ValueId| {
            let producer = self.graph.producer(v);
            let op = &self.graph.node(producer).op;
            let given = matches!(op, Op::Input(_));
            let made = self.end.is_some_and(|end| producer > end)
                && on_the_way[producer.index()]
                && !matches!(op, Op::Reshape(_) | Op::Fill(_));
            let later = || self.readers(v).iter().any(|u| needs_it[u.index()]);
            !self.in_state[v.index()] && (given || made) && later()
        };
        (0..self.graph.values().len() as u32).map(|v| there(ValueId(v))).collect()
    }

    /// Nodes that read a value, themselves or through views.
    fn readers(&self, v: ValueId) -> Vec<NodeId> {
        let mut found = Vec::new();
        for &u in &self.users[v.index()] {
            match self.graph.node(u).op {
                Op::Reshape(_) => found.extend(self.readers(self.graph.node(u).outputs[0])),
                _ => found.push(u),
            }
        }
        found
    }

    fn ancestors(&self, id: NodeId) -> Vec<bool> {
        let mut found = vec![false; self.graph.nodes().len()];
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            for v in &self.graph.node(id).inputs {
                let p = self.graph.producer(*v);
                if !std::mem::replace(&mut found[p.index()], true) {
                    open.push(p);
                }
            }
        }
        found
    }

    fn descendants(&self, id: NodeId) -> Vec<bool> {
        let mut found = vec![false; self.graph.nodes().len()];
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            for v in &self.graph.node(id).outputs {
                for u in &self.users[v.index()] {
                    if !std::mem::replace(&mut found[u.index()], true) {
                        open.push(*u);
                    }
                }
            }
        }
        found
    }
}
