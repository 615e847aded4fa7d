//! Where numbers are rounded to 16 bits: a function of the graph alone.
//!
//! An **activation** is an f32 tensor that depends on the data and on a parameter and that stands in the model: a parameter is
//! read to make it, or by something that follows from it. What comes after the last parameter is the loss. **Statistics**
//! (reductions and what is computed elementwise from them alone, and every second result of an op: batch means, log-sums,
//! reciprocal deviations) are small, and what they say of many elements would be wrong for all: they stay in f32.
//!
//! An activation **leaves its chain**, and is rounded, where it has to be stored: unless its one reader is an elementwise op
//! of the same shape, of whose inputs it is the latest made. The same holds for gradients. An activation is also rounded
//! where a gradient will read it: the inputs of a product, the input or the output of an activation function. So a
//! convolution, a norm, an activation function and a residual sum round the convolution, which the norm's gradient reads, and
//! what leaves in the end.

use memfit_ir::op::{Binary, CLOCK, Elementwise, LEARNING_RATE, Reads, StateClass, Unary};
use memfit_ir::{DType, Family, Graph, Node, NodeId, Op, ValueId};

use crate::group::ValueUses;

/// What a value is to the rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Activation,
    Other,
}

/// Roles and readers of all values of a graph.
pub struct Points<'a> {
    graph: &'a Graph,
    needed: ValueUses,
    roles: Vec<Role>,
}

impl<'a> Points<'a> {
    pub fn new(graph: &'a Graph) -> Points<'a> {
        let needed = ValueUses::new(graph);
        let roles = roles(graph);
        Points { graph, needed, roles }
    }

    pub fn role(&self, v: ValueId) -> Role {
        self.roles[v.index()]
    }

    /// Of each value: whether it is an activation to be rounded.
    pub fn activations(&self) -> Vec<bool> {
        let all = (0..self.roles.len() as u32).map(ValueId);
        all.map(|v| self.role(v) == Role::Activation && (self.leaves_chain(v) || self.is_saved(v))).collect()
    }

    pub fn leaves_chain(&self, v: ValueId) -> bool {
        match self.needed.users[v.index()][..] {
            _ if self.needed.at_end[v.index()] => true,
            [] => false,
            [reader] => !self.continues(v, reader),
            [_, _, ..] => true,
        }
    }

    /// Whether a reader takes the value over element for element, while it is at hand.
    fn continues(&self, v: ValueId, reader: NodeId) -> bool {
        let node = self.graph.node(reader);
        let source = |v: &ValueId| kind(self.graph.producer_op(*v)) == Kind::Source;
        let latest = node.inputs.iter().filter(|v| !source(v)).map(|&v| self.graph.producer(v)).max();
        matches!(kind(&node.op), Kind::Elementwise(_))
            && self.graph.shape(node.outputs[0]) == self.graph.shape(v)
            && latest == Some(self.graph.producer(v))
    }

    /// Whether the gradient of its maker or of a reader reads the value.
    fn is_saved(&self, v: ValueId) -> bool {
        let saves = |op: &Op, which: Saves| matches!(kind(op), Kind::Elementwise(s) if s == which || s == Saves::Both);
        saves(self.graph.producer_op(v), Saves::Output)
            || self.needed.users[v.index()].iter().any(|r| saves(&self.graph.node(*r).op, Saves::Inputs))
    }
}

fn roles(graph: &Graph) -> Vec<Role> {
    let n = graph.values().len();
    let (mut data, mut trained, mut statistic) = (vec![false; n], vec![false; n], vec![false; n]);
    for node in graph.nodes() {
        let any = |of: &[bool]| node.inputs.iter().any(|v| of[v.index()]);
        let (from_data, from_params) = if let Op::Input(i) = &node.op {
            (i.name != CLOCK && i.name != LEARNING_RATE, false)
        } else if let Op::State(s) = &node.op {
            (false, s.class == StateClass::Param)
        } else {
            (any(&data), any(&trained))
        };
        let small = is_statistic(node, &data, &statistic);
        for (i, v) in node.outputs.iter().enumerate() {
            data[v.index()] = from_data;
            trained[v.index()] = from_params;
            statistic[v.index()] = small || i > 0;
        }
    }
    let reads_param = |node: &Node| node.inputs.iter().any(|v| trained[v.index()] && !data[v.index()]);
    let mut inside = vec![false; n];
    for id in graph.node_ids().rev() {
        let node = graph.node(id);
        let leads = reads_param(node) || node.outputs.iter().any(|&v| inside[v.index()] && !is_scalar(graph, v));
        node.inputs.iter().for_each(|v| inside[v.index()] |= leads);
    }
    let role = |i: usize| {
        let v = ValueId(i as u32);
        let in_model = inside[i] || reads_param(graph.node(graph.producer(v)));
        let f32 = graph.ty(v).dtype == DType::F32 && !is_scalar(graph, v);
        let activation = f32 && data[i] && trained[i] && in_model && !statistic[i];
        if activation { Role::Activation } else { Role::Other }
    };
    (0..n).map(role).collect()
}

fn is_scalar(graph: &Graph, v: ValueId) -> bool {
    graph.shape(v).is_empty()
}

fn is_statistic(node: &Node, data: &[bool], statistic: &[bool]) -> bool {
    let mut of_data = node.inputs.iter().filter(|v| data[v.index()]).peekable();
    match kind(&node.op) {
        Kind::Statistic => true,
        Kind::Elementwise(_) | Kind::Layout => of_data.peek().is_some() && of_data.all(|v| statistic[v.index()]),
        Kind::Source | Kind::Contraction | Kind::Other => false,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Source,
    Elementwise(Saves),
    /// Moves elements and computes nothing.
    Layout,
    Contraction,
    /// Makes few numbers of many.
    Statistic,
    Other,
}

pub fn kind(op: &Op) -> Kind {
    match op.family() {
        Family::Source | Family::Constant => Kind::Source,
        Family::Elementwise(op) => Kind::Elementwise(saved_by(op)),
        Family::Layout => Kind::Layout,
        Family::Contraction(_) => Kind::Contraction,
        // Before gradients are taken, what replicas exchange are statistics.
        Family::Reduction | Family::Exchange => Kind::Statistic,
        // A number a row, and its gradient, which is a tensor again.
        Family::Loss => {
            if let Op::CrossEntropy(_) = op {
                Kind::Statistic
            } else {
                Kind::Other
            }
        }
        Family::Attention | Family::Window | Family::Norm | Family::Softmax | Family::Gather | Family::Update => {
            Kind::Other
        }
    }
}

/// What the gradient of an elementwise op reads. All that other ops read and make leaves its chain anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    Nothing,
    Inputs,
    Output,
    Both,
}

fn saved_by(op: Elementwise) -> Saves {
    match op {
        Elementwise::Unary(u) => saved_by_unary(u),
        Elementwise::Binary(b) => saved_by_binary(b),
        // Besides its input, vectors.
        Elementwise::BatchApply(_) => Saves::Inputs,
        Elementwise::UnaryGrad(_)
        | Elementwise::Mask(_)
        | Elementwise::MaskGrad(_)
        | Elementwise::Compare(_)
        | Elementwise::Select
        | Elementwise::Cast(_)
        | Elementwise::Dropout(_)
        | Elementwise::BatchGradInput(_) => Saves::Nothing,
    }
}

fn saved_by_unary(u: Unary) -> Saves {
    match (u, u.grad_reads()) {
        (Unary::Neg, _) => Saves::Nothing,
        (_, Reads::Input) => Saves::Inputs,
        (_, Reads::Output) => Saves::Output,
    }
}

fn saved_by_binary(b: Binary) -> Saves {
    match b {
        Binary::Add | Binary::Sub => Saves::Nothing,
        Binary::Mul | Binary::Min | Binary::Max | Binary::SigmoidCrossEntropy => Saves::Inputs,
        Binary::Div | Binary::Pow => Saves::Both,
    }
}
