//! A chain as a tape: what one unit of a kernel does for one element. Plain data, which a kernel unrolls when it is
//! compiled; equal tapes are one kernel.
//!
//! A register has 32 bits whatever its type: floats are f32 (of 16-bit types rounded to what they hold), integers i32, and
//! bits 0 or 1.

use memfit_ir::DType;
use memfit_ir::op::{self, Binary, Compare};

/// What one unit does for its element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tape {
    /// Each fills the register with its number.
    pub values: Vec<Value>,
    pub stores: Vec<Store>,
}

impl Tape {
    /// Elements of one unit: it owns whole words of all that it stores.
    pub fn lanes(&self) -> usize {
        self.stores.iter().map(|s| per_word(s.buffer.dtype)).max().unwrap_or(1)
    }

    /// About how many operations an element takes.
    pub fn work(&self) -> usize {
        self.values.iter().map(Value::work).sum()
    }
}

/// Elements of a word.
pub const fn per_word(dtype: DType) -> usize {
    32 / dtype.bits()
}

/// An operand of a kernel: the number of its buffer, and what lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    pub index: usize,
    pub dtype: DType,
}

/// Where the content of a register comes from. Others are named by their number, which is lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Load {
        buffer: Buffer,
        read: Read,
    },
    /// What the kernel computed for this element before the tape, as f32.
    Given,
    /// The sum of floats that lie apart, in their order. How many there are, and how far apart, are the two numbers of the
    /// launch from `first` on.
    Sum {
        buffer: Buffer,
        first: usize,
    },
    /// As bits: floats are not equal to themselves.
    Constant(u32),
    /// A constant whose bits are the number of the launch with this index. A compiler that knew them would join those of
    /// neighbouring nodes, (x + a) + b to x + (a + b), and give other bits than the nodes alone; and there would be a shader
    /// for each.
    Number(usize),
    Unary {
        op: Unary,
        x: usize,
    },
    /// dx from x or y, as the op says, and dy.
    UnaryGrad {
        op: Unary,
        saved: usize,
        dy: usize,
    },
    /// 1 where y is in the interval of which a mask tells.
    Mask {
        op: Unary,
        y: usize,
    },
    MaskGrad {
        op: Unary,
        bit: usize,
        dy: usize,
    },
    Binary {
        op: Binary,
        a: usize,
        b: usize,
    },
    Compare {
        op: Compare,
        a: usize,
        b: usize,
    },
    /// Of integers: − or | |.
    UnaryInt {
        negate: bool,
        x: usize,
    },
    BinaryInt {
        op: Binary,
        a: usize,
        b: usize,
    },
    CompareInt {
        op: Compare,
        a: usize,
        b: usize,
    },
    /// a where the condition is not 0.
    Select {
        condition: usize,
        a: usize,
        b: usize,
    },
    Cast {
        from_float: bool,
        to: DType,
        x: usize,
    },
    /// To what a type of fewer bits holds.
    Round {
        to: DType,
        x: usize,
    },
    /// x, kept or dropped. The number with this index is the elements of a sample.
    Dropout {
        x: usize,
        clock: Buffer,
        rate: u32,
        stream: u32,
        per_sample: usize,
    },
}

impl Value {
    /// About how many operations it takes.
    fn work(&self) -> usize {
        const FUNCTION: usize = 12;
        let narrow = |dtype: DType| match dtype {
            DType::F16 => 10,
            DType::BF16 | DType::U8 | DType::Bit => 2,
            DType::F32 | DType::I32 => 0,
        };
        match self {
            Value::Load { buffer, read } => {
                let position = if let Read::Strided { rank, .. } = read { 6 * rank } else { 0 };
                1 + position + narrow(buffer.dtype)
            }
            Value::Given | Value::Constant(_) | Value::Number(_) => 0,
            Value::Unary { op, .. } | Value::UnaryGrad { op, .. } => match op {
                Unary::Neg | Unary::Abs | Unary::Relu | Unary::Relu6 | Unary::LeakyRelu(_) => 1,
                Unary::Sqrt | Unary::Rsqrt | Unary::HardSigmoid | Unary::HardSwish => 4,
                Unary::Exp | Unary::Log | Unary::Tanh | Unary::Sigmoid | Unary::Elu(_) => FUNCTION,
                Unary::Softplus | Unary::Silu | Unary::GeluTanh | Unary::GeluErf => FUNCTION,
            },
            Value::Binary { op, .. } => match op {
                Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max => 1,
                Binary::Div => 4,
                Binary::Pow | Binary::SigmoidCrossEntropy => 2 * FUNCTION,
            },
            Value::Round { to, .. } => narrow(*to),
            Value::Mask { .. } | Value::MaskGrad { .. } | Value::Cast { .. } => 2,
            Value::Compare { .. } | Value::Select { .. } => 1,
            Value::UnaryInt { .. } | Value::BinaryInt { .. } | Value::CompareInt { .. } => 1,
            Value::Dropout { .. } | Value::Sum { .. } => 10 * FUNCTION,
        }
    }
}

/// Which element of a buffer belongs to an element of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// The one with its number.
    Same,
    /// The only one.
    Scalar,
    /// By axes: their extents and strides are numbers of the launch from `first` on.
    Strided { first: usize, rank: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    pub register: usize,
    pub buffer: Buffer,
}

/// As in the IR, with parameters as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    Neg,
    Abs,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Tanh,
    Sigmoid,
    Relu,
    Relu6,
    LeakyRelu(u32),
    Elu(u32),
    Softplus,
    HardSigmoid,
    HardSwish,
    Silu,
    GeluTanh,
    GeluErf,
}

impl From<op::Unary> for Unary {
    fn from(u: op::Unary) -> Unary {
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
}
