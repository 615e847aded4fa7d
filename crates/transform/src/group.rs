//! Grouping: which nodes one kernel runs. A group is never a new op and never changes arithmetic: it only says which
//! values need no memory, because they are made and used up inside one kernel.
//!
//! A group is either one node, a chain of elementwise nodes of one shape, or a contraction (matmul, convolution) with such a
//! chain over its output, the epilogue, and one for each operand, its prologue (`group/prologue.rs`). Reductions over the
//! channels of what a convolution makes may close its group: they look at it while it is in the cache
//! (`group/reductions.rs`). How far a device goes in this is its [`Fusion`] (`group/fusion.rs`).

mod fusion;
mod prologue;
mod reductions;

use memfit_ir::op::Elementwise;
use memfit_ir::{DType, Family, Graph, NodeId, Op, ValueId};

pub use fusion::{Fusion, Prologues};

/// Nodes that one kernel runs, in a valid order: the prologues of a contraction, the root, its epilogue, then reductions of
/// what these make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub nodes: Vec<NodeId>,
    /// How many of the nodes stand before the root; none where the root is no contraction.
    pub prologue_len: usize,
    /// How many of the nodes, the last ones, are reductions over channels.
    pub reductions_len: usize,
    /// The values that the kernel reads from memory, each once, in order of first use.
    pub reads: Vec<ValueId>,
    /// The values that leave the kernel, in order: read by other groups, given out, or taken over by a state. A node with
    /// several outputs writes them all.
    pub writes: Vec<ValueId>,
}

/// How far grouping goes. Both give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Grouping {
    /// As far as the device can.
    #[default]
    Fused,
    /// Every node alone: what grouping is checked against.
    Single,
}

impl Group {
    /// The contraction, the single node, or the start of the chain: what the group is named after.
    pub fn root(&self) -> NodeId {
        self.nodes[self.prologue_len]
    }

    /// What is computed while the contraction reads its operands.
    pub fn prologue(&self) -> &[NodeId] {
        &self.nodes[..self.prologue_len]
    }

    /// The part of the prologue that computes one operand, in order; empty where the operand is in memory.
    pub fn prologue_of(&self, graph: &Graph, operand: ValueId) -> Vec<NodeId> {
        prologue::prologue_of(graph, self.prologue(), operand)
    }

    /// The chain after the root.
    pub fn epilogue(&self) -> &[NodeId] {
        &self.nodes[self.prologue_len + 1..self.nodes.len() - self.reductions_len]
    }

    /// The reductions over channels that close the group. They read what they reduce from memory, where it stays.
    pub fn reductions(&self) -> &[NodeId] {
        &self.nodes[self.nodes.len() - self.reductions_len..]
    }

    /// The value in whose memory the product of a contraction is summed up before the epilogue: itself if it leaves the
    /// group, else the last result of its type that does not take over a state (whose old content the epilogue may still
    /// read). None: in scratch.
    pub fn product_home(&self, graph: &Graph) -> Option<ValueId> {
        let product = graph.node(self.root()).outputs[0];
        if self.writes.contains(&product) {
            return Some(product);
        }
        let fits = |v: &ValueId| {
            self.epilogue().contains(&graph.producer(*v))
                && graph.ty(*v) == graph.ty(product)
                && !graph.donations.iter().any(|d| d.new == *v)
        };
        self.writes.iter().rev().copied().find(fits)
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// Finds out what the group reads and writes.
    fn finish(&mut self, graph: &Graph, needed: &ValueUses) {
        self.reads = reads(graph, &self.nodes);
        let chains = &self.nodes[..self.nodes.len() - self.reductions_len];
        for &id in &self.nodes {
            let node = graph.node(id);
            let leaves = |v: &ValueId| {
                let inside = |u: &NodeId| chains.contains(u);
                needed.at_end[v.index()] || !needed.users[v.index()].iter().all(inside)
            };
            if node.outputs.len() > 1 || self.nodes.len() == 1 {
                self.writes.extend(&node.outputs);
            } else {
                self.writes.extend(node.outputs.iter().copied().filter(leaves));
            }
        }
    }
}

/// The values that a kernel of these nodes reads from memory, each once, in order of first use.
fn reads(graph: &Graph, nodes: &[NodeId]) -> Vec<ValueId> {
    let mut found: Vec<ValueId> = Vec::new();
    for &id in nodes {
        let node = graph.node(id);
        for &v in &node.inputs {
            let inside = nodes.contains(&graph.producer(v)) || is_immediate(graph, &node.op, v);
            if !inside && !found.contains(&v) {
                found.push(v);
            }
        }
    }
    found
}

/// Who needs which value; made once for a graph.
#[derive(Clone, Debug)]
pub struct ValueUses {
    pub users: Vec<Vec<NodeId>>,
    /// Outputs and new states: needed when the run ends.
    pub at_end: Vec<bool>,
}

impl ValueUses {
    pub fn new(graph: &Graph) -> ValueUses {
        let mut at_end = vec![false; graph.values().len()];
        for (_, v) in &graph.outputs {
            at_end[v.index()] = true;
        }
        for d in &graph.donations {
            at_end[d.new.index()] = true;
        }
        ValueUses { users: graph.users(), at_end }
    }
}

/// Whether a value is a constant that an elementwise kernel holds in a register instead of reading it.
pub fn is_immediate(graph: &Graph, reader: &Op, v: ValueId) -> bool {
    matches!(graph.producer_op(v), Op::Fill(_)) && reads_immediates(reader)
}

fn reads_immediates(op: &Op) -> bool {
    op.elementwise().is_some_and(Elementwise::reads_elements_only)
}

/// By node: whether it is only another name for its input's bytes: no kernel runs it.
pub fn views(graph: &Graph) -> Vec<bool> {
    let mut found: Vec<bool> = graph.nodes().iter().map(|n| matches!(n.op, Op::Reshape(_))).collect();
    for d in &graph.donations {
        found[graph.producer(d.new).index()] = false;
    }
    found
}

/// The groups of a graph in a valid order, as far as `fusion` goes. Sources and views belong to none.
pub fn group(graph: &Graph, fusion: &Fusion) -> Vec<Group> {
    let needed = ValueUses::new(graph);
    let prologues = prologue::prologues(graph, &needed, fusion);
    let mut in_prologue = vec![false; graph.nodes().len()];
    prologues.iter().flatten().for_each(|n| in_prologue[n.index()] = true);
    let (group_of, waiting) = (vec![None; graph.nodes().len()], vec![false; graph.nodes().len()]);
    let views = views(graph);
    let groups = Vec::new();
    let mut maker = Maker { graph, fusion, needed, views, prologues, in_prologue, waiting, group_of, groups };
    graph.node_ids().for_each(|id| maker.take(id));
    let Maker { mut groups, needed, .. } = maker;
    groups.iter_mut().for_each(|g| g.finish(graph, &needed));
    groups
}

/// Goes through the nodes in order and puts each into a group.
struct Maker<'a> {
    graph: &'a Graph,
    fusion: &'a Fusion,
    needed: ValueUses,
    views: Vec<bool>,
    /// By node: the chains before it.
    prologues: Vec<Vec<NodeId>>,
    in_prologue: Vec<bool>,
    /// By node: whether it waits for its reader.
    waiting: Vec<bool>,
    /// The group of each node. Groups are numbered by their first node, and a node joins a group only if all else that it
    /// reads comes from groups with lower numbers: so the numbers stay a valid order.
    group_of: Vec<Option<usize>>,
    groups: Vec<Group>,
}

impl Maker<'_> {
    fn take(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let group_of = |v: &ValueId| self.group_of[self.graph.producer(*v).index()];
        let is_held = matches!(node.op, Op::Fill(_)) && !needs_memory(self.graph, &self.needed, id);
        let is_source = node.op.family() == Family::Source || is_held;
        // What is in a prologue goes with the contraction that reads it, and nobody else does.
        if is_source || self.in_prologue[id.index()] {
            return;
        }
        if self.views[id.index()] {
            // A view is ready when its source is.
            self.group_of[id.index()] = group_of(&node.inputs[0]);
        } else if self.waits(id) {
            // It goes with its reader, and is ready when its sources are.
            self.group_of[id.index()] = node.inputs.iter().filter_map(group_of).max();
            self.waiting[id.index()] = true;
        } else {
            self.place(id);
        }
    }

    /// Puts a node with those that wait for it into the group that it can join, or else into a new one.
    fn place(&mut self, id: NodeId) {
        if let Some(index) = reductions::joinable(self.graph, self.fusion, &self.groups, &self.group_of, id) {
            self.groups[index].nodes.push(id);
            self.groups[index].reductions_len += 1;
            self.group_of[id.index()] = Some(index);
            return;
        }
        let members = self.members(id);
        let index = self.joinable(&members, id).unwrap_or(self.groups.len());
        if index == self.groups.len() {
            let nodes = std::mem::take(&mut self.prologues[id.index()]);
            self.groups.push(Group { prologue_len: nodes.len(), nodes, ..Group::default() });
        }
        for member in members {
            let group = &mut self.groups[index];
            group.nodes.insert(group.nodes.len() - group.reductions_len, member);
            self.group_of[member.index()] = Some(index);
            self.waiting[member.index()] = false;
        }
    }

    /// A node with those that wait for it; alone where all of them together have more operands than one kernel takes. Those
    /// that waited are placed then.
    fn members(&mut self, id: NodeId) -> Vec<NodeId> {
        let members = with_waiting(self.graph, &self.waiting, id);
        if members.len() == 1 || self.operands(&members) <= self.fusion.max_operands {
            return members;
        }
        for &member in &members[..members.len() - 1] {
            self.waiting[member.index()] = false;
            self.place(member);
        }
        vec![id]
    }

    /// How many operands a kernel takes that runs a chain: what it reads from memory, and what leaves it.
    fn operands(&self, chain: &[NodeId]) -> usize {
        let leaves = |v: &&ValueId| {
            self.needed.at_end[v.index()] || !self.needed.users[v.index()].iter().all(|user| chain.contains(user))
        };
        let writes = chain.iter().flat_map(|&id| &self.graph.node(id).outputs).filter(leaves).count();
        reads(self.graph, chain).len() + writes
    }

    /// Whether a node leaves it to its reader which group both join: it has but one, an elementwise node that reads it
    /// element for element, and itself reads but one tensor of its shape, which has no more bytes. So if the reader comes much
    /// later, what lies in memory until then is that tensor and not this one: which costs nothing where it is kept anyway, as
    /// for a value that is recomputed.
    fn waits(&self, id: NodeId) -> bool {
        let (graph, needed) = (self.graph, &self.needed);
        let node = graph.node(id);
        if !node.op.is_elementwise() {
            return false;
        }
        let v = node.outputs[0];
        let [reader] = needed.users[v.index()][..] else { return false };
        if self.in_prologue[reader.index()] {
            return false;
        }
        let reader = graph.node(reader);
        let mut sources = node.inputs.iter().filter(|u| graph.shape(**u) == graph.shape(v));
        let one =
            sources.next().is_some_and(|u| graph.ty(*u).bytes() <= graph.ty(v).bytes()) && sources.next().is_none();
        !needed.at_end[v.index()]
            && one
            && with_waiting(graph, &self.waiting, id).len() < self.fusion.max_nodes / 2
            && reader.op.is_elementwise()
            && graph.shape(reader.outputs[0]) == graph.shape(v)
            && !vectors(&reader.op, &reader.inputs).any(|&vector| vector == v)
    }

    /// The group that a node can join, with the `members` that wait for it.
    fn joinable(&self, members: &[NodeId], id: NodeId) -> Option<usize> {
        let (graph, group_of) = (self.graph, &self.group_of);
        let node = graph.node(id);
        if !node.op.is_elementwise() || widens(graph, node) {
            return None;
        }
        let latest = node.inputs.iter().filter_map(|&v| group_of[graph.producer(v).index()]).max()?;
        let group = &self.groups[latest];
        let root = graph.node(group.root());
        let open = group.epilogue().len() + members.len() < self.fusion.max_nodes
            && (root.op.is_elementwise() || root.op.is_contraction());
        let same_shape = graph.shape(root.outputs[0]) == graph.shape(node.outputs[0]);
        // Everything that is taken from the group must be inside it, element for element: not a view of it, nor as a vector.
        let direct = |m: &NodeId| {
            let member = graph.node(*m);
            let outside = |v: &&ValueId| !members.contains(&graph.producer(**v));
            let in_group = |v: &&ValueId| group_of[graph.producer(**v).index()] == Some(latest);
            let mut taken = member.inputs.iter().filter(outside).filter(in_group);
            let element =
                |v: &ValueId| group.contains(graph.producer(*v)) && graph.shape(*v) == graph.shape(node.outputs[0]);
            taken.all(element) && elementwise_in(graph, member, group)
        };
        let fits = || {
            // A contraction and its chains may be one kernel, or several: then its epilogue reads the product as any operand.
            let chains = [&group.nodes[..], if root.op.is_contraction() { group.epilogue() } else { &[] }];
            chains.iter().all(|chain| self.operands(&[chain, members].concat()) <= self.fusion.max_operands)
        };
        (open && same_shape && members.iter().all(direct) && fits()).then_some(latest)
    }
}

/// A constant needs memory where something other than an elementwise kernel wants it.
fn needs_memory(graph: &Graph, needed: &ValueUses, fill: NodeId) -> bool {
    let v = graph.node(fill).outputs[0];
    needed.at_end[v.index()] || needed.users[v.index()].iter().any(|u| !reads_immediates(&graph.node(*u).op))
}

/// Whether a node is a cast from 16 bits. It never joins the maker of its input, so that the 16 bits are what lies in memory
/// until somebody reads them.
fn widens(graph: &Graph, node: &memfit_ir::Node) -> bool {
    node.op == Op::Cast(DType::F32) && matches!(graph.ty(node.inputs[0]).dtype, DType::F16 | DType::BF16)
}

/// A node with the nodes that wait for it, in order.
fn with_waiting(graph: &Graph, waiting: &[bool], id: NodeId) -> Vec<NodeId> {
    let mut found = Vec::new();
    for &v in &graph.node(id).inputs {
        let producer = graph.producer(v);
        if waiting[producer.index()] && !found.contains(&producer) {
            found.extend(with_waiting(graph, waiting, producer));
        }
    }
    found.push(id);
    found
}

/// The vectors of the batch-norm family are read whole before the first element, so they must come from outside.
fn elementwise_in(graph: &Graph, node: &memfit_ir::Node, group: &Group) -> bool {
    !vectors(&node.op, &node.inputs).any(|v| group.contains(graph.producer(*v)))
}

/// The inputs of an elementwise op that are not read element by element.
fn vectors<'a>(op: &Op, inputs: &'a [ValueId]) -> impl Iterator<Item = &'a ValueId> {
    let elements = op.elementwise().map_or(&[][..], Elementwise::element_inputs);
    inputs.iter().enumerate().filter(|(i, _)| !elements.contains(i)).map(|(_, v)| v)
}
