//! The closed set of operations. An op holds its attributes only: its inputs stand in the node, so that a pass can
//! walk any node without knowing the op. Every `match` over [`Op`] in shape, cost, gradient and kernel code names all
//! variants, so that the compiler lists what a new op still lacks; what is asked of ops in general follows from their
//! [`Family`].

mod family;
mod names;

pub use family::{Contraction, Elementwise, Family};

use crate::dtype::{DType, Shape, TensorType};
use crate::lanes::Replica;

/// One operation. The comment of a variant gives `inputs -> outputs`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    // ---- sources ------------------------------------------------------------------------------------------------
    /// `() -> x`. A tensor that the host gives anew for every run.
    Input(Input),
    /// `() -> s`. A tensor that outlives the run: parameter, optimizer slot, running statistic, accumulator.
    State(State),
    /// `() -> c`. A tensor with the same value everywhere.
    Fill(Fill),

    // ---- elementwise: one output element needs one element of each input, broadcast as numpy does --------------------
    // Floats of 16 bits are computed in f32 and rounded once for each op; integers wrap around.
    /// `x -> y`
    Unary(Unary),
    /// `(saved, dy) -> dx`, where `saved` is x or y as [`Unary::grad_reads`] says.
    UnaryGrad(Unary),
    /// `y -> bit`: one bit of y, which is all that the gradient of such an op reads of it ([`Unary::masks`]).
    Mask(Unary),
    /// `(bit, dy) -> dx`: the bits of [`Op::UnaryGrad`] from the mask instead of from y.
    MaskGrad(Unary),
    /// `(a, b) -> y`
    Binary(Binary),
    /// `(a, b) -> u8`, 1 where it holds.
    Compare(Compare),
    /// `(u8 condition, a, b) -> y`
    Select,
    /// `x -> y`
    Cast(DType),
    /// `(x, clock) -> y`. Its own gradient: the mask is computed again from the clock and never stored.
    Dropout(Dropout),

    // ---- reduce, layout ----------------------------------------------------------------------------------------------
    /// `x -> y`
    Reduce(Reduce),
    /// `x -> y`
    Reshape(Shape),
    /// `x -> y`; axis i of y is axis `perm[i]` of x.
    Transpose(Vec<usize>),
    /// `x -> y`
    Slice(Slice),
    /// `x.. -> y` along an axis.
    Concat(usize),
    /// `x -> y`, zeros around.
    Pad(Vec<(usize, usize)>),
    /// `x -> y`, numpy broadcasting to a larger shape.
    Broadcast(Shape),

    // ---- contractions ------------------------------------------------------------------------------------------------
    /// `(a, b) -> y`; leading axes are a batch and must be equal, or absent in b.
    MatMul(MatMul),
    /// `(x NHWC, w HWIO) -> y NHWC`
    Conv(Conv),
    /// `(y NHWC, w HWIO) -> x NHWC`: transposed convolution, and the gradient of [`Op::Conv`] by its input.
    ConvTranspose(ConvTranspose),
    /// `(x NHWC, dy NHWC) -> dw HWIO`: the gradient of [`Op::Conv`] by its filter.
    ConvFilter(ConvFilter),
    /// `qkv -> (y, lse)`: self-attention. qkv is batch, sequence, 3, heads, dim, with the queries, keys and values of a
    /// position side by side, as one projection makes them; y is batch, sequence, heads, dim, and lse batch, heads,
    /// sequence. The matrix of scores is never stored.
    Attention(Attention),
    /// `(qkv, y, lse, dy) -> dqkv`
    AttentionGrad(Attention),

    // ---- windows -----------------------------------------------------------------------------------------------------
    /// `x -> (y, index u8)`; the index is the position of the maximum in its window.
    MaxPool(Window),
    /// `(index, dy) -> dx`
    MaxPoolGrad(WindowGrad),
    /// `x -> y`; padding is not counted in the mean.
    AvgPool(Window),
    /// `dy -> dx`
    AvgPoolGrad(WindowGrad),
    /// `x -> y`
    Upsample(Upsample),
    /// `dy -> dx`
    UpsampleGrad(Upsample),

    // ---- norms -------------------------------------------------------------------------------------------------------
    /// `x -> (mean, var)` over all axes but the last; the variance is biased.
    BatchStats,
    /// `(x, mean, var, scale, bias) -> y`
    BatchApply(Eps),
    /// `(x, mean, var, dy) -> (dscale, dbias)`
    BatchGradReduce(Eps),
    /// `(x, mean, var, scale, dy, dscale, dbias) -> dx`
    BatchGradInput(BatchGradInput),
    /// `(running_mean, running_var, mean, var) -> (running_mean, running_var)`: m·running + (1 − m)·batch. With a fifth
    /// input, a `u8[]`, nothing changes where that is 0.
    BatchUpdate(BatchUpdate),
    /// `(x, scale, bias) -> (y, mean, rstd)` over the last axis.
    LayerNorm(Eps),
    /// `(x, mean, rstd, scale, dy) -> (dx, dscale, dbias)`
    LayerNormGrad,
    /// `(x, scale) -> (y, rstd)` over the last axis.
    RmsNorm(Eps),
    /// `(x, rstd, scale, dy) -> (dx, dscale)`
    RmsNormGrad,
    /// `(x, scale, bias) -> (y, mean, rstd)`; statistics per sample and group of channels.
    GroupNorm(GroupNorm),
    /// `(x, mean, rstd, scale, dy) -> (dx, dscale, dbias)`
    GroupNormGrad(usize),

    // ---- softmax and losses, over the last axis ----------------------------------------------------------------------
    /// `x -> y`
    Softmax(Softmax),
    /// `(y, dy) -> dx`
    SoftmaxGrad(Softmax),
    /// `(logits, labels) -> (loss, lse)` per row; labels are i32 classes or f32 distributions.
    CrossEntropy(CrossEntropy),
    /// `(logits, labels, lse, dloss) -> dlogits`
    CrossEntropyGrad(CrossEntropy),

    // ---- gather ------------------------------------------------------------------------------------------------------
    /// `(table, ids i32) -> rows`
    Gather,
    /// `(ids i32, drows) -> dtable`
    GatherGrad(GatherGrad),

    // ---- update: impure, as batch_update is; the outputs take the places of parameter and slots ----------------------
    /// `(w, g, slots.., lr, clock) -> (w, slots..)`. With one more input, a `u8[]`, nothing changes where that is 0.
    Update(Update),

    // ---- exchanges between replicas: each reads the token of the one before, so that all replicas have one order ----
    /// `(sums.., token) -> (totals.., token)`: of each tensor the sums over the replica's subtrees of lanes, and the sum over
    /// all lanes, which every replica is given.
    Join(Join),
    /// `(state, token) -> (state, token)`: what the state's owner has made of it takes its place; `(state, token) -> token`
    /// for the owner itself.
    Replicate(Replicate),
}

/// The type of a token: it says that the exchange before is over. The first exchange has none to read.
pub fn token() -> TensorType {
    TensorType::new(DType::U8, [])
}

/// What is given for every run. Two names are the engine's own: see [`CLOCK`] and [`LEARNING_RATE`].
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
}

/// `i32[4]`: the step counted from 0, the global index of the first sample of this micro-batch, and the two halves of
/// the seed. Randomness and bias correction are functions of it, so that nothing random is ever stored.
pub const CLOCK: &str = "clock";

/// Whether an input has a row for each of so many samples; what has not, such as weights of classes, is the same for all.
pub fn has_row_per_sample(name: &str, shape: &[usize], samples: usize) -> bool {
    name != CLOCK && shape.first() == Some(&samples)
}
/// `f32[]`: the learning rate of this step.
pub const LEARNING_RATE: &str = "lr";

#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The scope path with the tensor's own name: `layer3/2/conv1/weight`.
    pub name: String,
    pub class: StateClass,
    pub dtype: DType,
    pub shape: Shape,
    pub init: Init,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateClass {
    /// Trained by the optimizer.
    Param,
    /// Of the optimizer: momentum and the like.
    Slot,
    /// Running mean and variance.
    Statistic,
    /// A sum over the micro-batches of one step; zero when a step starts, not kept between steps.
    Accumulator,
}

impl StateClass {
    /// Whether it is kept between steps, and is therefore part of a checkpoint.
    pub fn outlives_step(self) -> bool {
        match self {
            StateClass::Param | StateClass::Slot | StateClass::Statistic => true,
            StateClass::Accumulator => false,
        }
    }
}

/// How a state starts, drawn from the counter-based generator keyed by the seed and the state's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    Constant(f32),
    /// Mean 0.
    Normal {
        std: f32,
    },
    /// Between −limit and limit.
    Uniform {
        limit: f32,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    pub value: f32,
    pub dtype: DType,
    pub shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// The slope below zero, not negative.
    LeakyRelu(f32),
    /// α(eˣ − 1) below zero, α > 0.
    Elu(f32),
    Softplus,
    HardSigmoid,
    HardSwish,
    Silu,
    GeluTanh,
    GeluErf,
}

/// What the gradient of a unary op reads besides dy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Input,
    Output,
}

impl Unary {
    /// Reading the output lets the input die (and lets the op run in place).
    pub fn grad_reads(self) -> Reads {
        match self {
            Unary::Exp
            | Unary::Sqrt
            | Unary::Rsqrt
            | Unary::Tanh
            | Unary::Sigmoid
            | Unary::Relu
            | Unary::Relu6
            | Unary::LeakyRelu(_)
            | Unary::Elu(_)
            | Unary::HardSigmoid => Reads::Output,
            Unary::Neg
            | Unary::Abs
            | Unary::Log
            | Unary::Softplus
            | Unary::HardSwish
            | Unary::Silu
            | Unary::GeluTanh
            | Unary::GeluErf => Reads::Input,
        }
    }

    /// Whether the gradient reads the output only to ask whether it lies inside an interval: one bit says it all.
    pub fn masks(self) -> bool {
        match self {
            Unary::Relu | Unary::Relu6 | Unary::LeakyRelu(_) | Unary::HardSigmoid => true,
            Unary::Neg
            | Unary::Abs
            | Unary::Exp
            | Unary::Log
            | Unary::Sqrt
            | Unary::Rsqrt
            | Unary::Tanh
            | Unary::Sigmoid
            | Unary::Elu(_)
            | Unary::Softplus
            | Unary::HardSwish
            | Unary::Silu
            | Unary::GeluTanh
            | Unary::GeluErf => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    Pow,
    /// `(logit, label)`: max(x, 0) − x·z + log(1 + e^−|x|).
    SigmoidCrossEntropy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share set to zero; the rest is divided by 1 − rate.
    pub rate: f32,
    /// Fixed when the model is built; two dropouts differ by it.
    pub stream: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    pub kind: ReduceKind,
    /// Ascending.
    pub axes: Vec<usize>,
    /// Keep the reduced axes with extent 1.
    pub keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceKind {
    Sum,
    Mean,
    Max,
    SumSquares,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub start: Vec<usize>,
    pub stop: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatMul {
    pub transpose_a: bool,
    pub transpose_b: bool,
}

/// Padding before and after each of the two image axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pad2 {
    pub top: usize,
    pub bottom: usize,
    pub left: usize,
    pub right: usize,
}

impl Pad2 {
    pub const NONE: Pad2 = Pad2 { top: 0, bottom: 0, left: 0, right: 0 };

    pub const fn all(p: usize) -> Pad2 {
        Pad2 { top: p, bottom: p, left: p, right: p }
    }
}

/// The geometry of a convolution; pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    pub stride: [usize; 2],
    pub pad: Pad2,
    pub dilation: [usize; 2],
    pub groups: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTranspose {
    pub conv: Conv,
    /// Height and width of the output: a stride leaves several possible.
    pub size: [usize; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvFilter {
    pub conv: Conv,
    /// Height and width of the filter.
    pub size: [usize; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub causal: bool,
    pub scale: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub pad: Pad2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowGrad {
    pub window: Window,
    /// Height and width of the pooled image.
    pub size: [usize; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upsample {
    pub mode: UpsampleMode,
    pub factor: [usize; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpsampleMode {
    Nearest,
    /// Half-pixel centres.
    Bilinear,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eps(pub f32);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchGradInput {
    pub eps: f32,
    /// Whether mean and variance are those of x, so that the gradient flows through them too.
    pub batch_stats: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchUpdate {
    pub momentum: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    pub groups: usize,
    pub eps: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    pub log: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Share of the label spread over all classes, the true one included.
    pub smoothing: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherGrad {
    /// Rows of the table.
    pub rows: usize,
}

/// A sum over the lanes of all replicas, in a fixed tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    pub replica: Replica,
    /// Bytes that are exchanged at a time, at most. The result does not depend on it.
    pub piece: usize,
}

/// A state that one replica updates for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replicate {
    pub rank: usize,
    /// Of the replicas that are given it, the owner among them.
    pub count: usize,
    /// The rank that has the new values.
    pub owner: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// v ← μv + g, p ← p − lr·v (Nesterov: g + μv); decay is added to the gradient. No slot where momentum is 0.
    Sgd { momentum: f32, nesterov: bool, weight_decay: f32 },
    /// m̂ / (√v̂ + ε). `decoupled` is AdamW: p is decayed by lr·wd before the step; else decay is added to the gradient.
    Adam { beta1: f32, beta2: f32, eps: f32, weight_decay: f32, decoupled: bool },
    /// g / (√(average of g²) + ε)
    RmsProp { alpha: f32, eps: f32 },
    /// g / (√(sum of g²) + ε)
    Adagrad { eps: f32 },
}

impl Join {
    /// How many sums of each tensor a replica has.
    pub fn sums(self) -> usize {
        self.replica.subtrees().len()
    }
}

impl Update {
    /// The names of the slots, in input order.
    pub fn slots(self) -> &'static [&'static str] {
        match self {
            Update::Sgd { momentum, .. } if momentum != 0.0 => &["momentum"],
            Update::Sgd { .. } => &[],
            Update::Adam { .. } => &["m", "v"],
            Update::RmsProp { .. } => &["square_avg"],
            Update::Adagrad { .. } => &["square_sum"],
        }
    }

    /// The same with another decay of the weights; none where the rule has no such thing.
    pub fn with_weight_decay(self, weight_decay: f32) -> Option<Update> {
        match self {
            Update::Sgd { momentum, nesterov, .. } => Some(Update::Sgd { momentum, nesterov, weight_decay }),
            Update::Adam { beta1, beta2, eps, decoupled, .. } => {
                Some(Update::Adam { beta1, beta2, eps, weight_decay, decoupled })
            }
            Update::RmsProp { .. } | Update::Adagrad { .. } => None,
        }
    }
}
