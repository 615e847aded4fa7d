//! From planned elementwise nodes to a tape and its operands.

use memfit_ir::op::{BatchGradInput, Elementwise};
use memfit_ir::{DType, Graph, Node, NodeId, Op, ValueId, op};
use memfit_plan::Place;
use memfit_transform::group::is_immediate;

use crate::call::{Call, Grid, Key, Operands};
use crate::tape::{Buffer, Read, Store, Tape, Value};

/// A chain of elementwise nodes alone, over values that `place` finds: what it reads, and those of `writes` that it makes.
pub fn chain(graph: &Graph, nodes: &[NodeId], writes: &[ValueId], place: &dyn Fn(ValueId) -> Place) -> Call {
    let elements = graph.ty(graph.node(nodes[0]).outputs[0]).elements();
    let mut operands = Operands::default();
    operands.numbers([elements]);
    let mut maker = TapeMaker::new(graph, graph.shape(graph.node(nodes[0]).outputs[0]), place, &mut operands);
    maker.run(nodes);
    maker.store(nodes, writes);
    let tape = maker.tape;
    let grid = Grid::each(elements.div_ceil(tape.lanes()));
    let flops = (nodes.len() * elements) as u64;
    operands.call(Key::Chain(tape), grid, flops)
}

/// Makes the tape of nodes of one shape: alone, before a contraction or after it.
pub struct TapeMaker<'a> {
    graph: &'a Graph,
    shape: &'a [usize],
    place: &'a dyn Fn(ValueId) -> Place,
    operands: &'a mut Operands,
    pub tape: Tape,
    /// By register, the value in it, if one of the graph.
    registers: Vec<Option<ValueId>>,
}

impl<'a> TapeMaker<'a> {
    pub fn new(
        graph: &'a Graph,
        shape: &'a [usize],
        place: &'a dyn Fn(ValueId) -> Place,
        operands: &'a mut Operands,
    ) -> TapeMaker<'a> {
        TapeMaker { graph, shape, place, operands, tape: Tape::default(), registers: Vec::new() }
    }

    /// The value that the kernel computes before the tape, in 32 bits of f32, rounded to its type.
    pub fn given(&mut self, v: ValueId) {
        let given = self.push(Value::Given);
        let rounded = self.rounded(given, self.graph.ty(v).dtype);
        self.registers[rounded] = Some(v);
    }

    /// The same where it is 0 everywhere.
    pub fn zero(&mut self, v: ValueId) {
        let zero = self.push(Value::Constant(0));
        self.registers[zero] = Some(v);
    }

    /// The same where it lies in a place as so many parts, whole tensors of f32 one after the other.
    pub fn summed(&mut self, v: ValueId, place: Place, parts: usize) {
        let buffer = self.operands.buffer(place, DType::F32);
        let first = self.operands.numbers([parts, self.shape.iter().product()]);
        let sum = self.push(Value::Sum { buffer, first });
        let rounded = self.rounded(sum, self.graph.ty(v).dtype);
        self.registers[rounded] = Some(v);
    }

    /// Appends nodes, in order.
    pub fn run(&mut self, nodes: &[NodeId]) {
        for &id in nodes {
            let node = self.graph.node(id);
            let register = self.node(node);
            let rounded = self.rounded(register, self.graph.ty(node.outputs[0]).dtype);
            self.registers[rounded] = Some(node.outputs[0]);
        }
    }

    /// Stores those of `writes` that the nodes make.
    pub fn store(&mut self, nodes: &[NodeId], writes: &[ValueId]) {
        for &v in writes.iter().filter(|&&v| nodes.contains(&self.graph.producer(v))) {
            self.store_value(v);
        }
    }

    /// Stores a value that is in a register.
    pub fn store_value(&mut self, v: ValueId) {
        let buffer = self.operands.buffer((self.place)(v), self.graph.ty(v).dtype);
        let register = self.register_of(v);
        self.tape.stores.push(Store { register, buffer });
    }

    /// The register of an input of a node, filled now if it was not before.
    pub fn value(&mut self, v: ValueId) -> usize {
        self.registers.iter().rposition(|&r| r == Some(v)).unwrap_or_else(|| self.load(v))
    }

    fn register_of(&self, v: ValueId) -> usize {
        match self.registers.iter().rposition(|&r| r == Some(v)) {
            Some(register) => register,
            None => unreachable!("%{} leaves a chain that does not make it", v.0),
        }
    }

    fn push(&mut self, value: Value) -> usize {
        self.registers.push(None);
        self.tape.values.push(value);
        self.registers.len() - 1
    }

    fn constant(&mut self, bits: u32) -> usize {
        let number = self.operands.numbers([bits as usize]);
        self.push(Value::Number(number))
    }

    /// What a register holds when its value is stored as a type of fewer bits.
    fn rounded(&mut self, x: usize, to: DType) -> usize {
        match to {
            DType::F16 | DType::BF16 | DType::U8 => self.push(Value::Round { to, x }),
            DType::F32 | DType::I32 | DType::Bit => x,
        }
    }

    fn node(&mut self, node: &Node) -> usize {
        let Some(op) = node.op.elementwise() else { unreachable!("{} in a chain", node.op.name()) };
        let float = self.graph.ty(node.inputs[0]).dtype.is_float();
        let value = match op {
            Elementwise::Dropout(d) => self.dropout(node, d),
            Elementwise::BatchApply(eps) => return self.batch_apply(node, eps.0),
            Elementwise::BatchGradInput(b) => return self.batch_grad_input(node, b),
            Elementwise::Unary(u) => {
                let x = self.input(node, 0);
                if float {
                    Value::Unary { op: u.into(), x }
                } else {
                    Value::UnaryInt { negate: u == op::Unary::Neg, x }
                }
            }
            Elementwise::UnaryGrad(u) => {
                Value::UnaryGrad { op: u.into(), saved: self.input(node, 0), dy: self.input(node, 1) }
            }
            Elementwise::Mask(u) => Value::Mask { op: u.into(), y: self.input(node, 0) },
            Elementwise::MaskGrad(u) => {
                Value::MaskGrad { op: u.into(), bit: self.input(node, 0), dy: self.input(node, 1) }
            }
            Elementwise::Binary(op) => {
                let (a, b) = (self.input(node, 0), self.input(node, 1));
                if float { Value::Binary { op, a, b } } else { Value::BinaryInt { op, a, b } }
            }
            Elementwise::Compare(op) => {
                let (a, b) = (self.input(node, 0), self.input(node, 1));
                if float { Value::Compare { op, a, b } } else { Value::CompareInt { op, a, b } }
            }
            Elementwise::Select => {
                Value::Select { condition: self.input(node, 0), a: self.input(node, 1), b: self.input(node, 2) }
            }
            Elementwise::Cast(to) => Value::Cast { from_float: float, to, x: self.input(node, 0) },
        };
        self.push(value)
    }

    fn dropout(&mut self, node: &Node, d: op::Dropout) -> Value {
        let x = self.input(node, 0);
        let clock = self.operands.buffer((self.place)(node.inputs[1]), DType::I32);
        let per_sample = self.operands.numbers([self.shape[1..].iter().product::<usize>()]);
        Value::Dropout { x, clock, rate: d.rate.to_bits(), stream: d.stream, per_sample }
    }

    /// (x − mean)·(scale ÷ √(var + ε)) + bias
    fn batch_apply(&mut self, node: &Node, eps: f32) -> usize {
        let [x, mean, var, scale, bias] = [0, 1, 2, 3, 4].map(|i| self.input(node, i));
        let centred = self.binary(op::Binary::Sub, x, mean);
        let rstd = self.rstd(var, eps);
        let factor = self.binary(op::Binary::Mul, scale, rstd);
        let product = self.binary(op::Binary::Mul, centred, factor);
        self.binary(op::Binary::Add, product, bias)
    }

    /// a·(dy − (dbias + (x − mean)·rstd·dscale) ÷ rows), where a = scale·rstd; without the middle part where the statistics
    /// are not those of x.
    fn batch_grad_input(&mut self, node: &Node, op: BatchGradInput) -> usize {
        use op::Binary::{Add, Mul, Sub};
        let [x, mean, var, scale, dy] = [0, 1, 2, 3, 4].map(|i| self.input(node, i));
        let rstd = self.rstd(var, op.eps);
        let factor = self.binary(Mul, scale, rstd);
        if !op.batch_stats {
            return self.binary(Mul, factor, dy);
        }
        let [dscale, dbias] = [5, 6].map(|i| self.input(node, i));
        let rows = self.shape[..self.shape.len() - 1].iter().product::<usize>();
        let per_row = self.constant((1.0 / rows as f32).to_bits());
        let centred = self.binary(Sub, x, mean);
        let normal = self.binary(Mul, centred, rstd);
        let through_var = self.binary(Mul, normal, dscale);
        let through_both = self.binary(Add, dbias, through_var);
        let mean_part = self.binary(Mul, through_both, per_row);
        let inner = self.binary(Sub, dy, mean_part);
        self.binary(Mul, factor, inner)
    }

    fn binary(&mut self, op: op::Binary, a: usize, b: usize) -> usize {
        self.push(Value::Binary { op, a, b })
    }

    fn rstd(&mut self, var: usize, eps: f32) -> usize {
        let eps = self.constant(eps.to_bits());
        let sum = self.binary(op::Binary::Add, var, eps);
        self.push(Value::Unary { op: op::Unary::Rsqrt.into(), x: sum })
    }

    fn input(&mut self, node: &Node, input: usize) -> usize {
        let v = node.inputs[input];
        if let Some(register) = self.registers.iter().rposition(|&r| r == Some(v)) {
            return register;
        }
        if let (Op::Fill(f), true) = (self.graph.producer_op(v), is_immediate(self.graph, &node.op, v)) {
            let register = self.constant(constant_bits(f.value, f.dtype));
            let register = self.rounded(register, f.dtype);
            self.registers[register] = Some(v);
            return register;
        }
        self.load(v)
    }

    fn load(&mut self, v: ValueId) -> usize {
        let ty = self.graph.ty(v);
        let buffer = self.operands.buffer((self.place)(v), ty.dtype);
        let read = self.read(&ty.shape);
        let register = self.load_buffer(buffer, read);
        self.registers[register] = Some(v);
        register
    }

    pub fn load_buffer(&mut self, buffer: Buffer, read: Read) -> usize {
        self.push(Value::Load { buffer, read })
    }

    fn read(&mut self, shape: &[usize]) -> Read {
        if shape.iter().product::<usize>() == self.shape.iter().product::<usize>() {
            return Read::Same;
        }
        if shape.iter().all(|&n| n == 1) {
            return Read::Scalar;
        }
        let axes = broadcast_axes(shape, self.shape);
        let first = self.operands.numbers(axes.iter().flat_map(|&(extent, stride)| [extent, stride]));
        Read::Strided { first, rank: axes.len() }
    }
}

/// The bits of a register with a constant.
pub(crate) fn constant_bits(value: f32, dtype: DType) -> u32 {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => value.to_bits(),
        DType::I32 => (value as i32).cast_unsigned(),
        DType::U8 => u32::from(value as u8),
        DType::Bit => unreachable!("the type rules refuse a constant of bits"),
    }
}

/// How a tensor of shape `from` is read along `to`, to which it broadcasts: extents and strides in elements, 0 where it
/// is repeated. Neighbouring axes that step alike are one, and outer ones over which it is only repeated are left out.
pub fn broadcast_axes(from: &[usize], to: &[usize]) -> Vec<(usize, usize)> {
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
    while axes.len() > 1 && axes[axes.len() - 1].1 == 0 {
        axes.pop();
    }
    axes.reverse();
    axes
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Builder, TensorType};
    use memfit_plan::Segment;

    use super::*;
    use crate::tape::Unary;

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
        let call = chain(&graph, &nodes, &[half], &place);
        assert_eq!(call.operands, [place_at(0), place_at(256)]);
        assert_eq!((&call.numbers[..], call.grid), (&[6, 3, 1, 0.5f32.to_bits()][..], Grid { cubes: 1, units: 256 }));
        let buffer = |index| Buffer { index, dtype: DType::F32 };
        let values = [
            Value::Load { buffer: buffer(0), read: Read::Same },
            Value::Load { buffer: buffer(1), read: Read::Strided { first: 1, rank: 1 } },
            Value::Binary { op: op::Binary::Add, a: 0, b: 1 },
            Value::Unary { op: Unary::Relu, x: 2 },
            Value::Number(3),
            Value::Binary { op: op::Binary::Mul, a: 3, b: 4 },
        ];
        let stores = vec![Store { register: 5, buffer: buffer(0) }];
        assert_eq!(call.key, Key::Chain(Tape { values: values.to_vec(), stores }));
    }

    #[test]
    fn axes_that_step_alike_are_one() {
        let check = |from: &[usize], to: &[usize], expected: &[(usize, usize)]| {
            assert_eq!(broadcast_axes(from, to), expected, "{from:?} to {to:?}");
        };
        check(&[4], &[2, 3, 4], &[(4, 1)]);
        check(&[3, 1], &[2, 3, 4], &[(3, 1), (4, 0)]);
        check(&[2, 1, 4], &[2, 3, 4], &[(2, 4), (3, 0), (4, 1)]);
        check(&[2, 3, 1], &[2, 3, 4], &[(6, 1), (4, 0)]);
        check(&[2, 1, 1], &[2, 3, 4], &[(2, 1), (12, 0)]);
        check(&[1, 3, 4], &[2, 3, 4], &[(12, 1)]);
    }
}
