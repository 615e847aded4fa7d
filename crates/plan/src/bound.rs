//! What no plan can do without: a bound that is proved, not guessed.
//!
//! Whatever is kept, recomputed or reordered, every op of the programs runs at least once. While it runs, its operands,
//! its result and its kernel's scratch are there; and with them every value that was given or made before it, is read
//! after it, and cannot be made again: staged inputs and the results of the backward pass.

use memfit_ir::{Graph, NodeId, Op, ValueId};
use memfit_transform::end_of_forward;
use memfit_transform::group::is_contraction;

use crate::draft::{Workshop, accumulator_bytes};
use crate::flow::storage;
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

pub fn lower_bound(graphs: &[(Phase, Graph)], state_bytes: u64, _shop: &Workshop) -> Bound {
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
    let leaf = leaves(graph, &in_state);
    let facts = Facts { graph, in_state, users: graph.users(), leaf };
    let roots = graph.node_ids().filter(|&id| facts.runs_alone(id));
    let mut own: Vec<(u64, NodeId)> = roots.map(|id| (facts.operands(id).iter().map(|o| o.1).sum(), id)).collect();
    own.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
    own.truncate(LOOKED_AT);
    own.into_iter().map(|(bytes, id)| (bytes + facts.around(id), id)).collect()
}

struct Facts<'a> {
    graph: &'a Graph,
    in_state: Vec<bool>,
    users: Vec<Vec<NodeId>>,
    /// By value: see [`leaves`].
    leaf: Vec<ValueId>,
}

/// For every value, what must be in memory for a kernel that makes it on the fly: itself, or the widest of what the
/// elementwise chain reads that makes it, whichever is less.
fn leaves(graph: &Graph, in_state: &[bool]) -> Vec<ValueId> {
    let mut leaf: Vec<ValueId> = Vec::with_capacity(graph.values().len());
    for node in graph.nodes() {
        for &v in &node.outputs {
            let bytes = |u: &ValueId| if in_state[u.index()] { 0 } else { graph.ty(*u).bytes() };
            let widest = node.inputs.iter().map(|u| leaf[u.index()]).max_by_key(|u| (bytes(u), std::cmp::Reverse(u.0)));
            leaf.push(match (&node.op, widest) {
                (Op::Reshape(_), Some(u)) => u,
                (op, Some(u)) if op.is_elementwise() && bytes(&u) <= graph.ty(v).bytes() => u,
                _ => v,
            });
        }
    }
    leaf
}

impl Facts<'_> {
    /// Whether a node is the root of its kernel in every grouping.
    fn runs_alone(&self, id: NodeId) -> bool {
        let op = &self.graph.node(id).op;
        let source = matches!(op, Op::Input(_) | Op::State(_) | Op::Fill(_) | Op::Reshape(_));
        !source && !op.is_elementwise()
    }

    /// The transient values that must be in memory while a node runs, with their bytes. What an elementwise chain makes
    /// could be made inside the kernel; but then the widest thing that the chain reads is there instead.
    fn operands(&self, id: NodeId) -> Vec<(ValueId, u64)> {
        let node = self.graph.node(id);
        let fused = is_contraction(&node.op);
        let mut found: Vec<(ValueId, u64)> = Vec::new();
        let mut add = |v: ValueId, bytes: u64| {
            if !self.in_state[v.index()] && !found.iter().any(|f| f.0 == v) {
                found.push((v, bytes));
            }
        };
        for &v in &node.inputs {
            let v = if fused { self.leaf[v.index()] } else { storage(self.graph, v) };
            add(v, self.graph.ty(v).bytes());
        }
        for &v in &node.outputs {
            if !self.in_place_possible(id, v) {
                add(v, self.output_bytes(v, fused));
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
        ends.map(|e| if self.in_state[e.index()] { 0 } else { self.graph.ty(*e).bytes().min(ty.bytes()) })
            .min()
            .unwrap_or(0)
    }

    /// Kernels that may write over an operand: then the result takes no memory of its own.
    fn in_place_possible(&self, id: NodeId, v: ValueId) -> bool {
        let node = self.graph.node(id);
        !is_contraction(&node.op) && node.inputs.iter().any(|u| self.graph.ty(*u).bytes() == self.graph.ty(v).bytes())
    }

    /// Bytes that are there while a node runs though it does not touch them.
    fn around(&self, id: NodeId) -> u64 {
        let end = end_of_forward(self.graph);
        let needed_by = self.ancestors(id);
        let needs_it = self.descendants(id);
        let touched = self.operands(id);
        let mut bytes = 0;
        for (i, value) in self.graph.values().iter().enumerate() {
            let v = ValueId(i as u32);
            let given = matches!(self.graph.node(value.node).op, Op::Input(_));
            let made = end.is_some_and(|end| value.node > end)
                && needed_by[value.node.index()]
                && !self.graph.node(value.node).op.is_elementwise()
                && !matches!(self.graph.node(value.node).op, Op::Reshape(_) | Op::Fill(_));
            let later = || self.readers(v).iter().any(|u| needs_it[u.index()]);
            if (given || made) && !self.in_state[i] && !touched.iter().any(|t| t.0 == v) && later() {
                bytes += value.ty.bytes();
            }
        }
        bytes
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
