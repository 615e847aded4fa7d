//! Grouping: which nodes one kernel runs. A group is never a new op and never changes arithmetic: it only says which
//! values need no memory, because they are made and used up inside one kernel.
//!
//! A group is either one node, a chain of elementwise nodes of one shape, or a contraction (matmul, convolution) followed
//! by such a chain over its output and preceded by one for each operand (`group/prologue.rs`). Sums over the channels of
//! what a convolution makes may close its group: they look at it while it is in the cache (`group/sums.rs`).

mod prologue;
mod sums;

use memfit_ir::{DType, Graph, NodeId, Op, ValueId};

/// Nodes that one kernel runs, in a valid order: what is computed while a contraction reads its operands, then the root,
/// then the chain behind it, then sums over what these make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub nodes: Vec<NodeId>,
    /// How many of the nodes stand before the root; none where the root is no contraction.
    pub before: usize,
    /// How many of the nodes, the last ones, are sums over channels.
    pub sums: usize,
    /// The values that the kernel reads from memory, each once, in order of first use.
    pub reads: Vec<ValueId>,
    /// The values that leave the kernel, in order: read by other groups, given out, or taken over by a state. A node with
    /// several outputs writes them all.
    pub writes: Vec<ValueId>,
}

/// How far grouping goes. Both give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Grouping {
    #[default]
    Fused,
    /// Every node alone: the yardstick that grouping is checked against.
    Single,
}

/// A chain longer than this gains nothing: its tiles would leave the first-level cache.
const MAX_NODES: usize = 16;

impl Group {
    /// The contraction, the single node, or the start of the chain: what the group is named after.
    pub fn root(&self) -> NodeId {
        self.nodes[self.before]
    }

    /// The chain behind the root.
    pub fn behind(&self) -> &[NodeId] {
        &self.nodes[self.before + 1..self.nodes.len() - self.sums]
    }

    /// The sums over channels that close the group. They read what they sum up from memory, where it stays.
    pub fn closing_sums(&self) -> &[NodeId] {
        &self.nodes[self.nodes.len() - self.sums..]
    }

    /// The chain that computes an operand of the contraction, in order; empty where the operand is in memory.
    pub fn feeding(&self, graph: &Graph, operand: ValueId) -> Vec<NodeId> {
        prologue::feeding(graph, &self.nodes[..self.before], operand)
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// Finds out what the group reads and writes.
    fn finish(&mut self, graph: &Graph, needed: &Needed) {
        let without_sums = &self.nodes[..self.nodes.len() - self.sums];
        for &id in &self.nodes {
            let node = graph.node(id);
            for &v in &node.inputs {
                let inside = self.nodes.contains(&graph.producer(v)) || is_immediate(graph, &node.op, v);
                if !inside && !self.reads.contains(&v) {
                    self.reads.push(v);
                }
            }
            let leaves = |v: &ValueId| {
                let inside = |u: &NodeId| without_sums.contains(u);
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

/// Who needs which value; made once for a graph.
#[derive(Clone, Debug)]
pub struct Needed {
    pub users: Vec<Vec<NodeId>>,
    /// Outputs and new states: needed when the run ends.
    pub at_end: Vec<bool>,
}

impl Needed {
    pub fn new(graph: &Graph) -> Needed {
        let mut at_end = vec![false; graph.values().len()];
        for (_, v) in &graph.outputs {
            at_end[v.index()] = true;
        }
        for d in &graph.donations {
            at_end[d.new.index()] = true;
        }
        Needed { users: graph.users(), at_end }
    }
}

/// Whether a value is a constant that an elementwise kernel holds in a register instead of reading it.
pub fn is_immediate(graph: &Graph, reader: &Op, v: ValueId) -> bool {
    matches!(graph.producer_op(v), Op::Fill(_)) && reads_immediates(reader)
}

fn reads_immediates(op: &Op) -> bool {
    // The batch-norm family and dropout read vectors and the clock from memory.
    op.is_elementwise() && !matches!(op, Op::BatchApply(_) | Op::BatchGradInput(_) | Op::Dropout(_))
}

/// By node: whether it is only another name for its input's bytes: no kernel runs it.
pub fn views(graph: &Graph) -> Vec<bool> {
    let mut found: Vec<bool> = graph.nodes().iter().map(|n| matches!(n.op, Op::Reshape(_))).collect();
    for d in &graph.donations {
        found[graph.producer(d.new).index()] = false;
    }
    found
}

/// The groups of a graph in a valid order. Sources and views belong to none.
pub fn group(graph: &Graph, grouping: Grouping) -> Vec<Group> {
    let needed = Needed::new(graph);
    let before = match grouping {
        Grouping::Fused => prologue::prologues(graph, &needed),
        Grouping::Single => vec![Vec::new(); graph.nodes().len()],
    };
    let mut in_prologue = vec![false; graph.nodes().len()];
    before.iter().flatten().for_each(|n| in_prologue[n.index()] = true);
    let (of, waiting) = (vec![None; graph.nodes().len()], vec![false; graph.nodes().len()]);
    let views = views(graph);
    let groups = Vec::new();
    let mut maker = Maker { graph, grouping, needed, views, before, in_prologue, waiting, of, groups };
    graph.node_ids().for_each(|id| maker.take(id));
    let Maker { mut groups, needed, .. } = maker;
    groups.iter_mut().for_each(|g| g.finish(graph, &needed));
    groups
}

/// Goes through the nodes in order and puts each into a group.
struct Maker<'a> {
    graph: &'a Graph,
    grouping: Grouping,
    needed: Needed,
    views: Vec<bool>,
    /// By node: the chains before it.
    before: Vec<Vec<NodeId>>,
    in_prologue: Vec<bool>,
    /// By node: whether it waits for its reader.
    waiting: Vec<bool>,
    /// The group of each node. Groups are numbered by their first node, and a node joins a group only if all else that it
    /// reads comes from groups with lower numbers: so the numbers stay a valid order.
    of: Vec<Option<usize>>,
    groups: Vec<Group>,
}

impl Maker<'_> {
    fn take(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let group_of = |v: &ValueId| self.of[self.graph.producer(*v).index()];
        let is_held = matches!(node.op, Op::Fill(_)) && !needs_memory(self.graph, &self.needed, id);
        let is_source = matches!(node.op, Op::Input(_) | Op::State(_)) || is_held;
        // What is in a prologue goes with the contraction that reads it, and nobody else does.
        if is_source || self.in_prologue[id.index()] {
            return;
        }
        if self.views[id.index()] {
            // A view is ready when its source is.
            self.of[id.index()] = group_of(&node.inputs[0]);
            return;
        }
        let fused = self.grouping == Grouping::Fused;
        if fused && waits(self.graph, &self.needed, &self.waiting, id, &self.in_prologue) {
            // It goes with its reader, and is ready when its sources are.
            self.of[id.index()] = node.inputs.iter().filter_map(group_of).max();
            self.waiting[id.index()] = true;
            return;
        }
        self.place(id);
    }

    /// Puts a node with those that wait for it into the group that it can join, or else into a new one.
    fn place(&mut self, id: NodeId) {
        let members = with_waiting(self.graph, &self.waiting, id);
        if self.grouping == Grouping::Fused
            && let Some(index) = sums::joinable(self.graph, &self.groups, &self.of, id)
        {
            self.groups[index].nodes.push(id);
            self.groups[index].sums += 1;
            self.of[id.index()] = Some(index);
            return;
        }
        let joined = match self.grouping {
            Grouping::Fused => joinable(self.graph, &self.groups, &self.of, &members, id),
            Grouping::Single => None,
        };
        let index = joined.unwrap_or(self.groups.len());
        if index == self.groups.len() {
            let nodes = std::mem::take(&mut self.before[id.index()]);
            self.groups.push(Group { before: nodes.len(), nodes, ..Group::default() });
        }
        for member in members {
            let group = &mut self.groups[index];
            group.nodes.insert(group.nodes.len() - group.sums, member);
            self.of[member.index()] = Some(index);
            self.waiting[member.index()] = false;
        }
    }
}

/// A constant needs memory where something other than an elementwise kernel wants it.
fn needs_memory(graph: &Graph, needed: &Needed, fill: NodeId) -> bool {
    let v = graph.node(fill).outputs[0];
    needed.at_end[v.index()] || needed.users[v.index()].iter().any(|u| !reads_immediates(&graph.node(*u).op))
}

/// Whether a node is a cast from 16 bits. It never joins the maker of its input, so that the 16 bits are what lies in memory
/// until somebody reads them.
fn widens(graph: &Graph, node: &memfit_ir::Node) -> bool {
    node.op == Op::Cast(DType::F32) && matches!(graph.ty(node.inputs[0]).dtype, DType::F16 | DType::BF16)
}

/// Whether a node leaves it to its reader which group both join: it has but one, an elementwise node that reads it element
/// for element, and itself reads but one tensor of its shape, which has no more bytes. So if the reader comes much later, what
/// lies in memory until then is that tensor and not this one: which costs nothing where it is kept anyway, as for a value
/// that is made again.
fn waits(graph: &Graph, needed: &Needed, waiting: &[bool], id: NodeId, in_prologue: &[bool]) -> bool {
    let node = graph.node(id);
    if !node.op.is_elementwise() {
        return false;
    }
    let v = node.outputs[0];
    let [reader] = needed.users[v.index()][..] else { return false };
    if in_prologue[reader.index()] {
        return false;
    }
    let reader = graph.node(reader);
    let mut sources = node.inputs.iter().filter(|u| graph.shape(**u) == graph.shape(v));
    let one = sources.next().is_some_and(|u| graph.ty(*u).bytes() <= graph.ty(v).bytes()) && sources.next().is_none();
    !needed.at_end[v.index()]
        && one
        && with_waiting(graph, waiting, id).len() < MAX_NODES / 2
        && reader.op.is_elementwise()
        && graph.shape(reader.outputs[0]) == graph.shape(v)
        && !vectors(&reader.op, &reader.inputs).any(|&vector| vector == v)
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

/// The group that a node can join, with the `members` that wait for it.
fn joinable(graph: &Graph, groups: &[Group], of: &[Option<usize>], members: &[NodeId], id: NodeId) -> Option<usize> {
    let node = graph.node(id);
    if !node.op.is_elementwise() || widens(graph, node) {
        return None;
    }
    let latest = node.inputs.iter().filter_map(|&v| of[graph.producer(v).index()]).max()?;
    let group = &groups[latest];
    let root = graph.node(group.root());
    let open =
        group.behind().len() + members.len() < MAX_NODES && (root.op.is_elementwise() || is_contraction(&root.op));
    let same_shape = graph.shape(root.outputs[0]) == graph.shape(node.outputs[0]);
    // Everything that is taken from the group must be inside it, element for element: not a view of it, nor as a vector.
    let direct = |m: &NodeId| {
        let member = graph.node(*m);
        let outside = |v: &&ValueId| !members.contains(&graph.producer(**v));
        let taken = member.inputs.iter().filter(outside).filter(|v| of[graph.producer(**v).index()] == Some(latest));
        let element =
            |v: &ValueId| group.contains(graph.producer(*v)) && graph.shape(*v) == graph.shape(node.outputs[0]);
        taken.into_iter().all(element) && elementwise_in(graph, member, group)
    };
    (open && same_shape && members.iter().all(direct)).then_some(latest)
}

/// The vectors of the batch-norm family are read whole before the first element, so they must come from outside.
fn elementwise_in(graph: &Graph, node: &memfit_ir::Node, group: &Group) -> bool {
    !vectors(&node.op, &node.inputs).any(|v| group.contains(graph.producer(*v)))
}

/// The inputs of an elementwise op that are not read element by element.
fn vectors<'a>(op: &Op, inputs: &'a [ValueId]) -> impl Iterator<Item = &'a ValueId> {
    let elements: &[usize] = match op {
        Op::BatchApply(_) | Op::Dropout(_) => &[0],
        Op::BatchGradInput(_) => &[0, 4],
        _ => &[0, 1, 2],
    };
    inputs.iter().enumerate().filter(|(i, _)| !elements.contains(i)).map(|(_, v)| v)
}

/// Whether the output of an op may be finished by an elementwise chain while it is still in the cache.
pub fn is_contraction(op: &Op) -> bool {
    matches!(op, Op::MatMul(_) | Op::Conv(_) | Op::ConvTranspose(_) | Op::ConvFilter(_))
}
