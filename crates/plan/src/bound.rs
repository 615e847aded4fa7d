//! What no plan can do without: a bound that is proved, not guessed.
//!
//! Whatever is kept, recomputed or reordered, every op of the programs runs at least once. While it runs, its operands and
//! its result are there; and with them every value that was given or made before it, is read after it, and cannot be made
//! again: staged inputs and the results of the backward pass. Scratch counts for ops that always run alone. That of a
//! contraction does not: it depends on what else its kernel computes, and so on the plan.
//!
//! An op of the forward pass may run more than once. Then one of its runs is looked at: the one that leads to the first op
//! of the backward pass which depends on it. That op and all that depend on it run once, and later.

#![deny(clippy::wildcard_enum_match_arm)]

use memfit_ir::{Graph, NodeId, Op, ValueId, in_layer};
use memfit_transform::{Group, StepGraph, ValueUses};

use crate::draft::accumulator_bytes;
use crate::flow::{in_state, storage};
use crate::target::Target;
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

pub fn lower_bound(graphs: &[(Phase, StepGraph)], state_bytes: u64, target: &dyn Target) -> Bound {
    let mut best = Bound { bytes: state_bytes, reason: "the states alone".into() };
    for (phase, step) in graphs {
        let graph = &step.graph;
        let accumulators = accumulator_bytes(graph);
        for (bytes, id) in needs(step, target) {
            let bytes = state_bytes + accumulators + bytes;
            if bytes > best.bytes {
                let node = graph.node(id);
                let reason = format!("{}{} of the {} program", node.op.name(), in_layer(&node.scope), phase.name());
                best = Bound { bytes, reason };
            }
        }
    }
    best
}

/// Transient bytes that must be there while a node runs, for the nodes with the largest operands.
fn needs(step: &StepGraph, target: &dyn Target) -> Vec<(u64, NodeId)> {
    let graph = &step.graph;
    let facts = Facts {
        graph,
        target,
        in_state: in_state(graph),
        storage: storage(graph),
        needed: ValueUses::new(graph),
        end: step.forward_end,
    };
    let roots = graph.node_ids().filter(|&id| facts.is_root(id));
    let mut own: Vec<(u64, NodeId)> = roots.map(|id| (facts.touched(id), id)).collect();
    own.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
    own.truncate(LOOKED_AT);
    own.into_iter().map(|(_, id)| (facts.needed_by(id), id)).collect()
}

struct Facts<'a> {
    graph: &'a Graph,
    target: &'a dyn Target,
    in_state: Vec<bool>,
    /// By value: what it is a view of, or itself.
    storage: Vec<ValueId>,
    needed: ValueUses,
    end: Option<NodeId>,
}

/// The run of a node that is looked at.
struct Run {
    node: NodeId,
    /// By node: whether it comes after this run wherever it comes, and runs once.
    after: Vec<bool>,
    /// By node: whether what the run makes goes this way; all ways where the node runs once.
    ways: Option<Vec<bool>>,
    /// By value: whether it is there during the run, whoever else needs it.
    around: Vec<bool>,
}

/// What an operand takes at least, and where the chain that could compute it begins.
#[derive(Clone, Copy)]
struct Source {
    bytes: u64,
    start: ValueId,
}

impl Facts<'_> {
    /// Whether a node is the root of its kernel in every grouping, or a sum that closes one: its operands and results are in
    /// memory while its kernel runs, and so is its scratch.
    fn is_root(&self, id: NodeId) -> bool {
        let op = &self.graph.node(id).op;
        !op.is_source() && !matches!(op, Op::Reshape(_)) && !op.is_elementwise()
    }

    /// Bytes of all that a node reads and writes: the order in which nodes are looked at.
    fn touched(&self, id: NodeId) -> u64 {
        let node = self.graph.node(id);
        node.inputs.iter().chain(&node.outputs).map(|&v| self.bytes(v)).sum()
    }

    fn bytes(&self, v: ValueId) -> u64 {
        if self.in_state[v.index()] { 0 } else { self.graph.ty(v).bytes() }
    }

    fn users(&self, v: ValueId) -> &[NodeId] {
        &self.needed.users[v.index()]
    }

    fn is_elementwise(&self, id: NodeId) -> bool {
        self.graph.node(id).op.is_elementwise()
    }

    /// Transient bytes that must be there while a node runs.
    fn needed_by(&self, id: NodeId) -> u64 {
        let run = self.run(id);
        let values = (0..run.around.len() as u32).map(ValueId);
        let around: u64 = values.filter(|v| run.around[v.index()]).map(|v| self.bytes(v)).sum();
        let alone = self.alone(id);
        let own = if self.graph.node(id).op.is_contraction() {
            self.contraction_result(&run, &alone)
        } else {
            self.results(&run, &alone) + self.target.scratch_bytes(self.graph, &alone)
        };
        around + self.operands(&run) + own
    }

    fn run(&self, node: NodeId) -> Run {
        let mut after = self.descendants(node);
        let mut ways = None;
        if self.end.is_some_and(|end| node <= end) {
            let is_backward = |id: &NodeId| self.end < Some(*id) && after[id.index()];
            // Where the backward pass does not depend on it, nobody makes it again.
            if let Some(first) = self.graph.node_ids().find(is_backward) {
                after = self.descendants(first);
                after[first.index()] = true;
                let mut leads = self.ancestors(first);
                leads[first.index()] = true;
                ways = Some(leads);
            }
        }
        let around = self.around(node, &after);
        Run { node, after, ways, around }
    }

    /// A node as a group of its own.
    fn alone(&self, id: NodeId) -> Group {
        let node = self.graph.node(id);
        let mut reads: Vec<ValueId> = Vec::new();
        for v in &node.inputs {
            if !reads.contains(v) {
                reads.push(*v);
            }
        }
        Group { nodes: vec![id], reads, writes: node.outputs.clone(), ..Group::default() }
    }

    /// The least bytes that the operands of a node take beside what is around. Of operands that may be computed from one
    /// and the same value only the largest counts.
    fn operands(&self, run: &Run) -> u64 {
        let node = self.graph.node(run.node);
        let sources = self.sources(&run.around, node.op.is_contraction());
        let mut found: Vec<Source> = Vec::new();
        for v in &node.inputs {
            let source = sources[v.index()];
            match found.iter_mut().find(|f| f.start == source.start) {
                Some(same) => same.bytes = same.bytes.max(source.bytes),
                None => found.push(source),
            }
        }
        found.iter().map(|f| f.bytes).sum()
    }

    /// For every value, the least that must be in memory for a kernel that reads it: itself, or, where the kernel can run
    /// the elementwise chain that makes it, the widest of what the chain reads, whichever is less. What is there anyway
    /// takes nothing more, nor does a constant that a chain holds.
    fn sources(&self, around: &[bool], fused: bool) -> Vec<Source> {
        let mut found: Vec<Source> = Vec::with_capacity(around.len());
        for node in self.graph.nodes() {
            for &v in &node.outputs {
                let start = self.storage[v.index()];
                let bytes = if around[start.index()] { 0 } else { self.bytes(start) };
                let read = |u: &ValueId| {
                    let is_constant = matches!(self.graph.producer_op(*u), Op::Fill(_));
                    if is_constant { Source { bytes: 0, start: *u } } else { found[u.index()] }
                };
                let widest = node.inputs.iter().map(read).max_by_key(|s| (s.bytes, std::cmp::Reverse(s.start)));
                found.push(match widest {
                    Some(s) if fused && node.op.is_elementwise() => Source { bytes: bytes.min(s.bytes), ..s },
                    Some(_) | None => Source { bytes, start },
                });
            }
        }
        found
    }

    /// The least bytes that the results of an op take which always runs alone: those that cannot lie over an operand.
    fn results(&self, run: &Run, alone: &Group) -> u64 {
        let over = |w: ValueId| {
            let dies = |v: &&ValueId| !run.around[self.storage[v.index()].index()];
            let same = |v: &ValueId| self.graph.ty(*v).bytes() == self.graph.ty(w).bytes();
            let mut operands = alone.reads.iter().filter(dies);
            operands.any(|&v| same(&v) && self.target.can_run_in_place(self.graph, alone, v, w))
        };
        alone.writes.iter().filter(|w| !over(**w)).map(|&w| self.bytes(w)).sum()
    }

    /// The least bytes that the result of a contraction takes, which may leave its kernel as another value: at the end of
    /// a chain behind it, in a narrower type, in the place of a state, or over what that chain reads.
    fn contraction_result(&self, run: &Run, alone: &Group) -> u64 {
        let result = alone.writes[0];
        let over_operand = |v: &ValueId| self.target.can_run_in_place(self.graph, alone, *v, result);
        let chain = self.chain_behind(run.node);
        let made = |id: &NodeId| self.graph.ty(self.graph.node(*id).outputs[0]).bytes();
        let over = |v: ValueId| {
            let mut later = self.readers(v).into_iter().filter(|u| run.after[u.index()]);
            let bytes = self.graph.ty(v).bytes();
            later.all(|u| chain.contains(&u)) && chain.iter().chain([&run.node]).any(|id| made(id) == bytes)
        };
        let mut around = (0..run.around.len() as u32).map(ValueId).filter(|v| run.around[v.index()]);
        if alone.reads.iter().any(over_operand) || around.any(over) {
            return 0;
        }
        self.leaving(run)[result.index()]
    }

    /// The elementwise nodes that a contraction leads to by elementwise nodes alone.
    fn chain_behind(&self, id: NodeId) -> Vec<NodeId> {
        let mut chain: Vec<NodeId> = Vec::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            for &v in &self.graph.node(id).outputs {
                let new = self.users(v).iter().filter(|&&u| self.is_elementwise(u) && !chain.contains(&u));
                let new: Vec<NodeId> = new.copied().collect();
                open.extend(&new);
                chain.extend(new);
            }
        }
        chain
    }

    /// By value: the least bytes by which it leaves a kernel that can go on with the elementwise nodes behind it. On the
    /// way to a reader that is not elementwise some value has to be in memory; of several ways, the widest counts.
    fn leaving(&self, run: &Run) -> Vec<u64> {
        let mut least = vec![0; self.graph.values().len()];
        for v in (0..least.len() as u32).rev().map(ValueId) {
            let goes = |u: &&NodeId| run.ways.as_ref().is_none_or(|ways| ways[u.index()]);
            let given_out = run.ways.is_none() && self.needed.at_end[v.index()];
            let own = self.bytes(v);
            let by_reader = |u: &NodeId| {
                if self.is_elementwise(*u) { least[self.graph.node(*u).outputs[0].index()] } else { own }
            };
            let widest = self.users(v).iter().filter(goes).map(by_reader).max().unwrap_or(0);
            least[v.index()] = if given_out { own } else { own.min(widest) };
        }
        least
    }

    /// By value: whether it is there while a node runs, wherever else it may be needed: it was given, or made on the way
    /// to the node and is not recomputed, and somebody reads it who comes `after`.
    fn around(&self, id: NodeId, after: &[bool]) -> Vec<bool> {
        let on_the_way = self.ancestors(id);
        let there = |v: ValueId| {
            let producer = self.graph.producer(v);
            let op = &self.graph.node(producer).op;
            let given = matches!(op, Op::Input(_));
            let made = self.end.is_some_and(|end| producer > end)
                && on_the_way[producer.index()]
                && !matches!(op, Op::Reshape(_) | Op::Fill(_));
            let later = || self.readers(v).iter().any(|u| after[u.index()]);
            !self.in_state[v.index()] && (given || made) && later()
        };
        (0..self.graph.values().len() as u32).map(|v| there(ValueId(v))).collect()
    }

    /// Nodes that read a value, themselves or through views.
    fn readers(&self, v: ValueId) -> Vec<NodeId> {
        let mut found = Vec::new();
        for &u in self.users(v) {
            let made = self.graph.node(u).outputs.first().filter(|w| self.storage[w.index()] != **w);
            match made {
                Some(&view) => found.extend(self.readers(view)),
                None => found.push(u),
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
                for u in self.users(*v) {
                    if !std::mem::replace(&mut found[u.index()], true) {
                        open.push(*u);
                    }
                }
            }
        }
        found
    }
}
