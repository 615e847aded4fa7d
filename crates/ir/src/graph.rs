//! The graph: an append-only list of nodes in a valid order. Shapes are concrete. A transform reads one graph and
//! writes another; nothing edits a node in place.

use crate::dtype::TensorType;
use crate::error::{Error, Result};
use crate::infer::infer;
use crate::op::{Op, State, StateClass};

/// A value: one output of one node. Dense, so that passes keep facts about values in plain vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A node, numbered in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl ValueId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    /// The layer path, kept through every transform: "layer3/2/conv1".
    pub scope: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub ty: TensorType,
    /// The node that makes it.
    pub node: NodeId,
    /// Which of the node's outputs it is.
    pub output: usize,
}

/// `new` takes over the place of `old` when the run ends: how state changes in SSA form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Donation {
    /// A [`Op::State`] value.
    pub old: ValueId,
    pub new: ValueId,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    values: Vec<Value>,
    /// What the host may read after a run, by name.
    pub outputs: Vec<(String, ValueId)>,
    pub donations: Vec<Donation>,
}

impl Graph {
    pub fn new() -> Self {
        Graph::default()
    }

    /// Appends a node; its output types follow from the op and its inputs.
    pub fn push(&mut self, op: Op, inputs: &[ValueId], scope: &str) -> Result<NodeId> {
        for &v in inputs {
            if v.index() >= self.values.len() {
                return Err(Error::UnknownValue { op: op.name(), scope: scope.into(), value: v.0 });
            }
        }
        let types: Vec<&TensorType> = inputs.iter().map(|&v| self.ty(v)).collect();
        let out_types = infer(&op, &types).map_err(|e| e.broken_by(&op, scope))?;
        let node = NodeId(self.nodes.len() as u32);
        let first = self.values.len() as u32;
        let outputs = (0..out_types.len() as u32).map(|i| ValueId(first + i)).collect();
        for (output, ty) in out_types.into_iter().enumerate() {
            self.values.push(Value { ty, node, output });
        }
        self.nodes.push(Node { op, inputs: inputs.to_vec(), outputs, scope: scope.into() });
        Ok(node)
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn values(&self) -> &[Value] {
        &self.values
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub fn node_ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    pub fn ty(&self, v: ValueId) -> &TensorType {
        &self.values[v.index()].ty
    }

    pub fn shape(&self, v: ValueId) -> &[usize] {
        &self.values[v.index()].ty.shape
    }

    /// The node that makes a value.
    pub fn producer(&self, v: ValueId) -> NodeId {
        self.values[v.index()].node
    }

    pub fn producer_op(&self, v: ValueId) -> &Op {
        &self.node(self.producer(v)).op
    }

    /// For every value, the nodes that read it, in order, each once.
    pub fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users = vec![Vec::new(); self.values.len()];
        for id in self.node_ids() {
            for &v in &self.node(id).inputs {
                let list: &mut Vec<NodeId> = &mut users[v.index()];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        users
    }

    pub fn output(&self, name: &str) -> Option<ValueId> {
        self.outputs.iter().find(|(n, _)| n == name).map(|&(_, v)| v)
    }

    /// The given inputs of the host: name and value, in order.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, ValueId)> {
        self.nodes
            .iter()
            .filter_map(|n| if let Op::Input(i) = &n.op { Some((i.name.as_str(), n.outputs[0])) } else { None })
    }

    pub fn input(&self, name: &str) -> Option<ValueId> {
        self.inputs().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    pub fn states(&self) -> impl Iterator<Item = (&State, ValueId)> {
        self.nodes.iter().filter_map(|n| if let Op::State(s) = &n.op { Some((s, n.outputs[0])) } else { None })
    }

    pub fn state(&self, name: &str) -> Option<ValueId> {
        self.states().find(|(s, _)| s.name == name).map(|(_, v)| v)
    }

    /// Number of trained elements; running statistics do not count.
    pub fn param_count(&self) -> usize {
        self.states().filter(|(s, _)| s.class == StateClass::Param).map(|(s, _)| s.shape.elements()).sum()
    }
}
