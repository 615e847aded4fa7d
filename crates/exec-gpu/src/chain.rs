//! From a planned chain of elementwise nodes to a tape and its operands. Plain data: no device is touched.

use memfit_ir::op::Elementwise;
use memfit_ir::{Graph, Node, NodeId, Op, ValueId, op};
use memfit_plan::Place;
use memfit_transform::group::is_immediate;

use crate::tape::{Binary, Read, Store, Tape, Unary, Value};

/// A chain with its places.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    pub tape: Tape,
    /// The operands, each place once: what lies in one place is one operand of the kernel, read and written.
    pub operands: Vec<Place>,
    /// Extents and strides of what is broadcast.
    pub numbers: Vec<u32>,
    pub elements: usize,
}

impl Chain {
    /// A chain of nodes that [`code`] knows, over values that `place` finds: what it reads, and those of `writes` that it
    /// makes.
    pub fn new(graph: &Graph, nodes: &[NodeId], writes: &[ValueId], place: &dyn Fn(ValueId) -> Place) -> Chain {
        let shape = graph.shape(graph.node(nodes[0]).outputs[0]);
        let mut maker = Maker {
            graph,
            place,
            shape,
            tape: Tape { values: Vec::new(), stores: Vec::new() },
            operands: Vec::new(),
            numbers: Vec::new(),
            registers: Vec::new(),
        };
        for &id in nodes {
            maker.push(graph.node(id));
        }
        for &v in writes.iter().filter(|&&v| nodes.contains(&graph.producer(v))) {
            let buffer = maker.operand(place(v));
            let register = maker.known(v);
            maker.tape.stores.push(Store { register, buffer });
        }
        let Maker { tape, operands, numbers, .. } = maker;
        Chain { tape, operands, numbers, elements: shape.iter().product() }
    }
}

/// What a node does for one element, if a chain can do it.
pub fn code(op: &Op) -> Option<Code> {
    match op.elementwise()? {
        Elementwise::Unary(u) => Some(Code::Unary(unary(u))),
        Elementwise::Binary(b) => binary(b).map(Code::Binary),
        Elementwise::UnaryGrad(_)
        | Elementwise::Mask(_)
        | Elementwise::MaskGrad(_)
        | Elementwise::Compare(_)
        | Elementwise::Select
        | Elementwise::Cast(_)
        | Elementwise::Dropout(_)
        | Elementwise::BatchApply(_)
        | Elementwise::BatchGradInput(_) => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Unary(Unary),
    Binary(Binary),
}

fn unary(u: op::Unary) -> Unary {
    match u {
        op::Unary::Neg => Unary::Neg,
        op::Unary::Abs => Unary::Abs,
        op::Unary::Exp => Unary::Exp,
        op::Unary::Log => Unary::Log,
        op::Unary::Sqrt => Unary::Sqrt,
        op::Unary::Rsqrt => Unary::Rsqrt,
        op::Unary::Tanh => Unary::Tanh,
        op::Unary::Sigmoid => Unary::Sigmoid,
        op::Unary::Relu => Unary::Relu,
        op::Unary::Relu6 => Unary::Relu6,
        op::Unary::LeakyRelu(slope) => Unary::LeakyRelu(slope.to_bits()),
        op::Unary::Elu(alpha) => Unary::Elu(alpha.to_bits()),
        op::Unary::Softplus => Unary::Softplus,
        op::Unary::HardSigmoid => Unary::HardSigmoid,
        op::Unary::HardSwish => Unary::HardSwish,
        op::Unary::Silu => Unary::Silu,
        op::Unary::GeluTanh => Unary::GeluTanh,
        op::Unary::GeluErf => Unary::GeluErf,
    }
}

fn binary(b: op::Binary) -> Option<Binary> {
    match b {
        op::Binary::Add => Some(Binary::Add),
        op::Binary::Sub => Some(Binary::Sub),
        op::Binary::Mul => Some(Binary::Mul),
        op::Binary::Div => Some(Binary::Div),
        op::Binary::Min => Some(Binary::Min),
        op::Binary::Max => Some(Binary::Max),
        op::Binary::Pow | op::Binary::SigmoidCrossEntropy => None,
    }
}

struct Maker<'a> {
    graph: &'a Graph,
    place: &'a dyn Fn(ValueId) -> Place,
    shape: &'a [usize],
    tape: Tape,
    operands: Vec<Place>,
    numbers: Vec<u32>,
    /// By register, the value in it.
    registers: Vec<ValueId>,
}

impl Maker<'_> {
    fn push(&mut self, node: &Node) {
        let inputs: Vec<usize> = node.inputs.iter().map(|&v| self.read(&node.op, v)).collect();
        let value = match code(&node.op) {
            Some(Code::Unary(op)) => Value::Unary { op, x: inputs[0] },
            Some(Code::Binary(op)) => Value::Binary { op, a: inputs[0], b: inputs[1] },
            None => unreachable!("{} in a chain that was checked", node.op.name()),
        };
        self.register(node.outputs[0], value);
    }

    /// The register of an input of a node, filled now if it was not before.
    fn read(&mut self, reader: &Op, v: ValueId) -> usize {
        if let Some(register) = self.registers.iter().position(|&r| r == v) {
            return register;
        }
        if let (Op::Fill(f), true) = (self.graph.producer_op(v), is_immediate(self.graph, reader, v)) {
            return self.register(v, Value::Constant(f.value.to_bits()));
        }
        self.load(v)
    }

    fn load(&mut self, v: ValueId) -> usize {
        let (shape, buffer) = (self.graph.shape(v), self.operand((self.place)(v)));
        let read = if shape.iter().product::<usize>() == self.shape.iter().product::<usize>() {
            Read::Same
        } else if shape.iter().all(|&n| n == 1) {
            Read::Scalar
        } else {
            let axes = broadcast_axes(shape, self.shape);
            let first = self.numbers.len();
            self.numbers.extend(axes.iter().flat_map(|&(extent, stride)| [extent as u32, stride as u32]));
            Read::Strided { first, rank: axes.len() }
        };
        self.register(v, Value::Load { buffer, read })
    }

    fn register(&mut self, v: ValueId, value: Value) -> usize {
        self.registers.push(v);
        self.tape.values.push(value);
        self.registers.len() - 1
    }

    fn known(&self, v: ValueId) -> usize {
        match self.registers.iter().position(|&r| r == v) {
            Some(register) => register,
            None => unreachable!("%{} leaves a chain that does not make it", v.0),
        }
    }

    fn operand(&mut self, place: Place) -> usize {
        self.operands.iter().position(|&p| p == place).unwrap_or_else(|| {
            self.operands.push(place);
            self.operands.len() - 1
        })
    }
}

/// How a tensor of shape `from` is read along `to`, to which it broadcasts: extents and strides in elements, 0 where it
/// is repeated. Neighbouring axes that step alike are one.
fn broadcast_axes(from: &[usize], to: &[usize]) -> Vec<(usize, usize)> {
    let mut axes: Vec<(usize, usize)> = Vec::new();
    let mut stride = 1;
    for (i, &extent) in to.iter().rev().enumerate() {
        let own = if i < from.len() { from[from.len() - 1 - i] } else { 1 };
        let step = if own == 1 { 0 } else { stride };
        stride *= own;
        match axes.last_mut() {
            _ if extent == 1 => {}
            Some((n, inner)) if step == *n * *inner => *n *= extent,
            _ => axes.push((extent, step)),
        }
    }
    axes.reverse();
    axes
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Builder, TensorType};
    use memfit_plan::Segment;

    use super::*;

    fn place_at(offset: u64) -> Place {
        Place { segment: Segment::Transient, offset, size: 24 }
    }

    /// x + v, then relu, then ÷ 2: v is broadcast, the result lies where x lay.
    #[test]
    fn a_chain_reads_each_operand_once_and_works_in_place() {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([2, 3])).unwrap();
        let v = b.input("v", TensorType::f32([3])).unwrap();
        let sum = b.add(x, v).unwrap();
        let positive = b.relu(sum).unwrap();
        let half = b.scale(positive, 0.5).unwrap();
        let graph = b.finish();
        let nodes = [sum, positive, half].map(|v| graph.producer(v));
        let place = |value: ValueId| if value == v { place_at(256) } else { place_at(0) };
        let chain = Chain::new(&graph, &nodes, &[half], &place);
        assert_eq!(chain.operands, [place_at(0), place_at(256)]);
        assert_eq!((chain.elements, &chain.numbers[..]), (6, &[2, 0, 3, 1][..]));
        let values = [
            Value::Load { buffer: 0, read: Read::Same },
            Value::Load { buffer: 1, read: Read::Strided { first: 0, rank: 2 } },
            Value::Binary { op: Binary::Add, a: 0, b: 1 },
            Value::Unary { op: Unary::Relu, x: 2 },
            Value::Constant(0.5f32.to_bits()),
            Value::Binary { op: Binary::Mul, a: 3, b: 4 },
        ];
        assert_eq!(chain.tape, Tape { values: values.to_vec(), stores: vec![Store { register: 5, buffer: 0 }] });
    }

    #[test]
    fn axes_that_step_alike_are_one() {
        let check = |from: &[usize], to: &[usize], expected: &[(usize, usize)]| {
            assert_eq!(broadcast_axes(from, to), expected, "{from:?} to {to:?}");
        };
        check(&[4], &[2, 3, 4], &[(6, 0), (4, 1)]);
        check(&[3, 1], &[2, 3, 4], &[(2, 0), (3, 1), (4, 0)]);
        check(&[2, 1, 4], &[2, 3, 4], &[(2, 4), (3, 0), (4, 1)]);
        check(&[2, 3, 1], &[2, 3, 4], &[(6, 1), (4, 0)]);
        check(&[2, 1, 1], &[2, 3, 4], &[(2, 1), (12, 0)]);
        check(&[1, 3, 4], &[2, 3, 4], &[(2, 0), (12, 1)]);
    }
}
