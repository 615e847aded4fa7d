//! A chain as a tape: registers and instructions, made once, run for every tile by [`super::bound`].

#![deny(clippy::wildcard_enum_match_arm)]

use memfit_ir::op::{BatchGradInput, Binary, Compare, Op, Unary};
use memfit_ir::{DType, Graph, Node, NodeId, ValueId};
use memfit_transform::group::is_immediate;

use super::TILE;
use super::operand::Strides;
use super::setup::Setup;

/// The largest period that is repeated in scratch; longer operands are copied tile by tile.
const LONGEST_PERIOD: usize = 8192;

/// A chain before its values have places.
#[derive(Clone, Debug)]
pub(crate) struct Tape {
    /// Elements of the chain's shape.
    pub(super) elements: usize,
    pub(super) registers: Vec<Register>,
    pub(super) instructions: Vec<Instruction>,
    /// What is set before the first tile, in the shared part of the scratch.
    pub(super) setup: Vec<Setup>,
    pub(super) slots: usize,
    pub(super) shared: usize,
}

/// Where the lanes of a register are for the tile at hand.
#[derive(Clone, Debug)]
pub(super) enum Register {
    /// 32-bit lanes in memory, or bits.
    Memory {
        value: ValueId,
        dtype: DType,
    },
    /// Other elements of the chain's shape, converted into a slot.
    Narrow {
        value: ValueId,
        dtype: DType,
        slot: usize,
    },
    Strided {
        value: ValueId,
        dtype: DType,
        strides: Strides,
        slot: usize,
    },
    /// The same lane everywhere, at this offset of the shared part.
    Constant {
        at: usize,
    },
    /// Repeats after `period` lanes, from this offset of the shared part.
    Periodic {
        at: usize,
        period: usize,
    },
    /// A result inside the chain.
    Slot(usize),
}

/// A node, with the numbers of its registers.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    pub(super) code: Code,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
    pub(super) value: ValueId,
    pub(super) dtype: DType,
    /// The value leaves the chain.
    pub(super) writes: bool,
}

/// What an instruction computes, on lanes of f32 where it does not say i32.
#[derive(Clone, Copy, Debug)]
pub(super) enum Code {
    Unary(Unary),
    /// Neg or Abs of i32.
    UnaryInt {
        negate: bool,
    },
    UnaryGrad(Unary),
    Mask(Unary),
    MaskGrad(Unary),
    Binary(Binary),
    BinaryInt(Binary),
    Compare(Compare),
    CompareInt(Compare),
    /// Of any lanes.
    Select,
    Cast {
        from_float: bool,
        to: DType,
    },
    /// From x, mean, factor and bias.
    BatchApply,
    /// From x, dy, mean and three factors.
    BatchGradInput,
    Dropout {
        clock: ValueId,
        rate: f32,
        stream: u32,
        per_sample: usize,
    },
}

/// Most registers of a tape: what running it keeps on the stack.
pub(super) const MAX_REGISTERS: usize = 160;

impl Tape {
    /// A tape for elementwise nodes of one shape. Values of `writes` leave the chain.
    pub(crate) fn new(graph: &Graph, nodes: &[NodeId], writes: &[ValueId]) -> Tape {
        let shape = graph.shape(graph.node(nodes[0]).outputs[0]);
        let mut maker = Maker {
            graph,
            shape,
            tape: Tape {
                elements: shape.iter().product(),
                registers: Vec::new(),
                instructions: Vec::new(),
                setup: Vec::new(),
                slots: 0,
                shared: 0,
            },
            known: Vec::new(),
        };
        for &id in nodes {
            maker.push(graph.node(id), writes);
        }
        assert!(maker.tape.registers.len() <= MAX_REGISTERS, "a chain has too many registers");
        maker.tape
    }

    pub(super) fn tile(&self) -> usize {
        TILE.min(self.elements.next_multiple_of(16)).max(16)
    }

    /// Elements of scratch: a part shared by all threads, and slots for each.
    pub(crate) fn scratch_len(&self, threads: usize) -> usize {
        self.shared + threads * self.slots * self.tile()
    }
}

struct Maker<'a> {
    graph: &'a Graph,
    shape: &'a [usize],
    tape: Tape,
    /// Registers of values already met.
    known: Vec<(ValueId, usize)>,
}

impl Maker<'_> {
    fn push(&mut self, node: &Node, writes: &[ValueId]) {
        let value = node.outputs[0];
        let (code, inputs) = self.instruction(node);
        let slot = self.slot();
        let output = self.register(Register::Slot(slot));
        self.known.push((value, output));
        let dtype = self.graph.ty(value).dtype;
        let writes = writes.contains(&value);
        self.tape.instructions.push(Instruction { code, inputs, output, value, dtype, writes });
    }

    /// What a node computes, and the registers that it reads.
    fn instruction(&mut self, node: &Node) -> (Code, Vec<usize>) {
        let float = self.graph.ty(node.inputs[0]).dtype.is_float();
        let code = match node.op {
            Op::Unary(u) if float => Code::Unary(u),
            Op::Unary(u) => Code::UnaryInt { negate: u == Unary::Neg },
            Op::UnaryGrad(u) => Code::UnaryGrad(u),
            Op::Mask(u) => Code::Mask(u),
            Op::MaskGrad(u) => Code::MaskGrad(u),
            Op::Binary(b) if float => Code::Binary(b),
            Op::Binary(b) => Code::BinaryInt(b),
            Op::Compare(c) if float => Code::Compare(c),
            Op::Compare(c) => Code::CompareInt(c),
            Op::Select => Code::Select,
            Op::Cast(to) => Code::Cast { from_float: float, to },
            Op::Dropout(ref d) => {
                let per_sample = self.tape.elements / self.shape[0].max(1);
                let code = Code::Dropout { clock: node.inputs[1], rate: d.rate, stream: d.stream, per_sample };
                return (code, vec![self.read(node, 0)]);
            }
            Op::BatchApply(eps) => return (Code::BatchApply, self.batch_apply(node, eps.0)),
            Op::BatchGradInput(b) => return (Code::BatchGradInput, self.batch_grad_input(node, b)),
            Op::Input(_)
            | Op::State(_)
            | Op::Fill(_)
            | Op::Reduce(_)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Slice(_)
            | Op::Concat(_)
            | Op::Pad(_)
            | Op::Broadcast(_)
            | Op::MatMul(_)
            | Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::ConvFilter(_)
            | Op::MaxPool(_)
            | Op::MaxPoolGrad(_)
            | Op::AvgPool(_)
            | Op::AvgPoolGrad(_)
            | Op::Upsample(_)
            | Op::UpsampleGrad(_)
            | Op::BatchStats
            | Op::BatchGradReduce(_)
            | Op::BatchUpdate(_)
            | Op::LayerNorm(_)
            | Op::LayerNormGrad
            | Op::RmsNorm(_)
            | Op::RmsNormGrad
            | Op::GroupNorm(_)
            | Op::GroupNormGrad(_)
            | Op::Softmax(_)
            | Op::SoftmaxGrad(_)
            | Op::CrossEntropy(_)
            | Op::CrossEntropyGrad(_)
            | Op::Gather
            | Op::GatherGrad(_)
            | Op::Attention(_)
            | Op::AttentionGrad(_)
            | Op::Update(_)
            | Op::Join(_)
            | Op::Replicate(_) => unreachable!("{} in an elementwise chain", node.op.name()),
        };
        (code, (0..node.inputs.len()).map(|i| self.read(node, i)).collect())
    }

    fn batch_apply(&mut self, node: &Node, eps: f32) -> Vec<usize> {
        let period = self.shape[self.shape.len() - 1];
        let mean = self.vector(node.inputs[1], period);
        let at = self.share(period + TILE);
        let [var, scale] = [node.inputs[2], node.inputs[3]];
        self.tape.setup.push(Setup::Factor { var, scale, eps, period, at });
        let factor = self.register(Register::Periodic { at, period });
        let bias = self.vector(node.inputs[4], period);
        vec![self.read(node, 0), mean, factor, bias]
    }

    fn batch_grad_input(&mut self, node: &Node, op: BatchGradInput) -> Vec<usize> {
        let period = self.shape[self.shape.len() - 1];
        let rows = self.tape.elements / period;
        let mean = self.vector(node.inputs[1], period);
        let at = self.share(3 * (period + TILE));
        let inputs = [node.inputs[2], node.inputs[3], node.inputs[5], node.inputs[6]];
        let BatchGradInput { eps, batch_stats } = op;
        self.tape.setup.push(Setup::GradFactors { inputs, eps, batch_stats, rows, period, at });
        let [a, b, c] = [0, 1, 2].map(|i| self.register(Register::Periodic { at: at + i * (period + TILE), period }));
        vec![self.read(node, 0), self.read(node, 4), mean, a, b, c]
    }

    fn register(&mut self, r: Register) -> usize {
        self.tape.registers.push(r);
        self.tape.registers.len() - 1
    }

    fn slot(&mut self) -> usize {
        self.tape.slots += 1;
        self.tape.slots - 1
    }

    fn share(&mut self, lanes: usize) -> usize {
        let at = self.tape.shared;
        self.tape.shared += lanes.next_multiple_of(16);
        at
    }

    /// The register of an input.
    fn read(&mut self, node: &Node, input: usize) -> usize {
        let value = node.inputs[input];
        if let Some(&(_, r)) = self.known.iter().find(|(v, _)| *v == value) {
            return r;
        }
        let ty = self.graph.ty(value);
        let dtype = ty.dtype;
        let strides = Strides::new(&ty.shape, self.shape);
        let register = if is_immediate(self.graph, &node.op, value) {
            self.number(value)
        } else if ty.elements() == 1 && self.tape.elements != 1 {
            let at = self.share(TILE);
            self.tape.setup.push(Setup::Scalar { value, dtype, at });
            Register::Constant { at }
        } else if ty.elements() == self.tape.elements {
            match dtype {
                DType::F32 | DType::I32 | DType::Bit => Register::Memory { value, dtype },
                DType::F16 | DType::BF16 | DType::U8 => Register::Narrow { value, dtype, slot: self.slot() },
            }
        } else if let Some(period) = strides.period().filter(|&p| p <= LONGEST_PERIOD) {
            return self.vector_of(value, dtype, period);
        } else {
            Register::Strided { value, dtype, strides, slot: self.slot() }
        };
        let r = self.register(register);
        self.known.push((value, r));
        r
    }

    fn number(&mut self, value: ValueId) -> Register {
        let Op::Fill(fill) = self.graph.producer_op(value) else { unreachable!("an immediate that is no constant") };
        let bits = match fill.dtype {
            DType::F32 => fill.value.to_bits(),
            DType::F16 => half::f16::from_f32(fill.value).to_f32().to_bits(),
            DType::BF16 => half::bf16::from_f32(fill.value).to_f32().to_bits(),
            DType::I32 => fill.value as i32 as u32,
            DType::U8 => fill.value as u8 as u32,
            DType::Bit => unreachable!("the type rules refuse a constant of bits"),
        };
        let at = self.share(TILE);
        self.tape.setup.push(Setup::Number { bits, at });
        Register::Constant { at }
    }

    fn vector(&mut self, value: ValueId, period: usize) -> usize {
        self.vector_of(value, DType::F32, period)
    }

    fn vector_of(&mut self, value: ValueId, dtype: DType, period: usize) -> usize {
        let at = self.share(period + TILE);
        self.tape.setup.push(Setup::Vector { value, dtype, period, at });
        self.register(Register::Periodic { at, period })
    }
}
