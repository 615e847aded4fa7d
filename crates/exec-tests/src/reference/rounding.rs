//! Rounding, drawn at random, where a device with 32-bit floats rounds: each element moves by half a unit in its last
//! place, up or down. Ops that only move, choose or compare elements do not round; a sum rounds its terms too.

use memfit_ir::op::{Binary, ReduceKind, Unary};
use memfit_ir::{DType, Op, philox};

use crate::tensor::{Tensor, round_to};

pub struct Noise {
    key: [u32; 2],
    /// Tensors that were rounded so far.
    drawn: u32,
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
    pub fn new(seed: u32) -> Noise {
        Noise { key: [seed, 0], drawn: 0 }
    }

    pub fn on_input(&mut self, op: &Op, t: &Tensor) -> Tensor {
        match rounds(op) {
            Rounds::Terms => self.rounded(t.clone()),
            Rounds::Nowhere | Rounds::Result => t.clone(),
        }
    }

    pub fn on_output(&mut self, op: &Op, t: Tensor) -> Tensor {
        match rounds(op) {
            Rounds::Terms | Rounds::Result => self.rounded(t),
            Rounds::Nowhere => t,
        }
    }

    fn rounded(&mut self, mut t: Tensor) -> Tensor {
        let unit = match t.ty.dtype {
            DType::F32 => 2f64.powi(-24),
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            DType::I32 | DType::U8 => return t,
        };
        self.drawn += 1;
        for (i, x) in t.data.iter_mut().enumerate() {
            let word = philox::philox([i as u32 / 128, self.drawn, 0, 0], self.key)[i / 32 % 4];
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
        Op::UnaryGrad(_) | Op::Binary(_) | Op::Dropout(_) => Rounds::Result,
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
        | Op::Update(_) => Rounds::Terms,
    }
}

/// The clamped functions give their bounds exactly, which their slopes rely on.
fn of_unary(u: Unary) -> Rounds {
    match u {
        Unary::Neg | Unary::Abs | Unary::Relu | Unary::Relu6 | Unary::HardSigmoid => Rounds::Nowhere,
        _ => Rounds::Result,
    }
}
