//! A chain as a tape: what one unit of a kernel does for one element. Plain data, which a kernel unrolls when it is
//! compiled; equal tapes are one kernel.

/// What one unit does for its element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tape {
    /// Each fills the register with its number.
    pub values: Vec<Value>,
    pub stores: Vec<Store>,
}

/// Where the content of a register comes from. Others are named by their number, which is lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Load {
        buffer: usize,
        read: Read,
    },
    /// As bits: floats are not equal to themselves.
    Constant(u32),
    Unary {
        op: Unary,
        x: usize,
    },
    Binary {
        op: Binary,
        a: usize,
        b: usize,
    },
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
    pub buffer: usize,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
}
