//! Rounding, drawn at random, where a device rounds: each element moves up or down by a little. Ops that only move,
//! choose or compare elements do not round; a sum rounds on its way too.

use memfit_ir::op::{Binary, ReduceKind, Unary};
use memfit_ir::{DType, Node, Op, philox};

use crate::tensor::{Tensor, round_to};

/// Which rounding is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To 32 bits: half a unit in the last place.
    Single,
    /// To 16 bits: what was computed a little differently may be stored a whole unit away.
    Half,
}

pub struct Noise {
    rounding: Rounding,
    seed: u32,
    /// Tensors that were rounded so far.
    drawn: u32,
    /// Of each value so far: whether every device must give the same bits.
    exact: Vec<bool>,
}

/// Where an op rounds.
#[derive(Clone, Copy, PartialEq)]
enum Rounds {
    Nowhere,
    /// One operation for each element of the result.
    Result,
    /// Many: the terms as well as the result.
    Terms,
}

impl Noise {
    pub fn new(rounding: Rounding, seed: u32) -> Noise {
        Noise { rounding, seed, drawn: 0, exact: Vec::new() }
    }

    /// The inputs of a node as it sees them.
    pub fn before(&mut self, node: &Node, given: &[&Tensor], results: &[usize]) -> Vec<Tensor> {
        let inside = self.rounding == Rounding::Single && rounds(&node.op) == Rounds::Terms;
        // A sum of many terms rounds after each, and what it has rounded grows with their number.
        let largest = given.iter().map(|t| t.data.len()).max().unwrap_or(0);
        let terms = largest / results.iter().copied().min().unwrap_or(1).max(1);
        let times = (terms.max(1) as f64).sqrt();
        given.iter().map(|&t| if inside { self.moved(t.clone(), times) } else { t.clone() }).collect()
    }

    /// The results of a node as they are stored.
    pub fn after(&mut self, node: &Node, made: Vec<Tensor>) -> Vec<Tensor> {
        let rounds = rounds(&node.op) != Rounds::Nowhere;
        let exact = !rounds && node.inputs.iter().all(|v| self.exact[v.index()]);
        self.exact.extend(made.iter().map(|_| exact));
        let stored = match self.rounding {
            Rounding::Single => rounds,
            Rounding::Half => rounds || (matches!(node.op, Op::Cast(_)) && !exact),
        };
        made.into_iter().map(|t| if stored { self.moved(t, 1.0) } else { t }).collect()
    }

    fn moved(&mut self, mut t: Tensor, times: f64) -> Tensor {
        let unit = match (self.rounding, t.ty.dtype) {
            (Rounding::Single, DType::F32) => 2f64.powi(-24) * times,
            (Rounding::Half, DType::F16) => 2f64.powi(-10),
            (Rounding::Half, DType::BF16) => 2f64.powi(-7),
            _ => return t,
        };
        self.drawn += 1;
        for (i, x) in t.data.iter_mut().enumerate() {
            let word = philox::philox([i as u32 / 128, self.drawn, 0, 0], [self.seed, 0])[i / 32 % 4];
            let up = word >> (i % 32) & 1 == 1;
            *x = round_to(t.ty.dtype, *x * if up { 1.0 + unit } else { 1.0 - unit });
        }
        t
    }
}

fn rounds(op: &Op) -> Rounds {
    match op {
        Op::Input(_) | Op::State(_) | Op::Fill(_) | Op::Compare(_) | Op::Select | Op::Cast(_) => Rounds::Nowhere,
        Op::Unary(u) => of_unary(*u),
        Op::Binary(Binary::Min | Binary::Max) => Rounds::Nowhere,
        Op::Mask(_) => Rounds::Nowhere,
        Op::UnaryGrad(_) | Op::MaskGrad(_) | Op::Binary(_) | Op::Dropout(_) => Rounds::Result,
        Op::Reduce(r) if r.kind == ReduceKind::Max => Rounds::Nowhere,
        Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Concat(_) | Op::Pad(_) | Op::Broadcast(_) => {
            Rounds::Nowhere
        }
        Op::MaxPool(_) | Op::Gather => Rounds::Nowhere,
        Op::Reduce(_)
        | Op::MatMul(_)
        | Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::ConvFilter(_)
        | Op::Attention(_)
        | Op::AttentionGrad(_)
        | Op::MaxPoolGrad(_)
        | Op::AvgPool(_)
        | Op::AvgPoolGrad(_)
        | Op::Upsample(_)
        | Op::UpsampleGrad(_)
        | Op::BatchStats
        | Op::BatchApply(_)
        | Op::BatchGradReduce(_)
        | Op::BatchGradInput(_)
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
        | Op::GatherGrad(_)
        | Op::Update(_)
        | Op::Join(_)
        | Op::Replicate(_) => Rounds::Terms,
    }
}

/// The clamped functions give their bounds exactly, which their slopes rely on.
fn of_unary(u: Unary) -> Rounds {
    match u {
        Unary::Neg | Unary::Abs | Unary::Relu | Unary::Relu6 | Unary::HardSigmoid => Rounds::Nowhere,
        Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Tanh
        | Unary::Sigmoid
        | Unary::LeakyRelu(_)
        | Unary::Elu(_)
        | Unary::Softplus
        | Unary::HardSwish
        | Unary::Silu
        | Unary::GeluTanh
        | Unary::GeluErf => Rounds::Result,
    }
}
