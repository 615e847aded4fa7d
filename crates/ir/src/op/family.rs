//! What kind of work an op does: the one list of all ops by kind. What a pass or an executor asks of an op in general follows
//! from its family, so that a new op is placed here once and falls through nowhere.

use super::*;

/// The kind of work an op does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    /// Given by the host, or left by an earlier run.
    Source,
    Constant,
    Elementwise(Elementwise),
    /// Many numbers become few.
    Reduction,
    /// Moves elements and computes nothing.
    Layout,
    Contraction(Contraction),
    Attention,
    /// Pooling and upsampling.
    Window,
    /// Norms that make their own statistics.
    Norm,
    Softmax,
    Loss,
    Gather,
    /// Changes a state: its outputs take the places of some of its inputs.
    Update,
    /// Between replicas; no device computes it.
    Exchange,
}

/// An op of which one element of the output needs one element of each input (broadcast); some read small vectors besides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Elementwise {
    Unary(Unary),
    UnaryGrad(Unary),
    Mask(Unary),
    MaskGrad(Unary),
    Binary(Binary),
    Compare(Compare),
    Select,
    Cast(DType),
    Dropout(Dropout),
    BatchApply(Eps),
    BatchGradInput(BatchGradInput),
}

/// An op that sums products over an axis that its result does not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contraction {
    MatMul(MatMul),
    Conv(Conv),
    ConvTranspose(ConvTranspose),
    ConvFilter(ConvFilter),
}

impl Op {
    pub fn family(&self) -> Family {
        match self {
            Op::Input(_) | Op::State(_) => Family::Source,
            Op::Fill(_) => Family::Constant,
            Op::Unary(u) => Family::Elementwise(Elementwise::Unary(*u)),
            Op::UnaryGrad(u) => Family::Elementwise(Elementwise::UnaryGrad(*u)),
            Op::Mask(u) => Family::Elementwise(Elementwise::Mask(*u)),
            Op::MaskGrad(u) => Family::Elementwise(Elementwise::MaskGrad(*u)),
            Op::Binary(b) => Family::Elementwise(Elementwise::Binary(*b)),
            Op::Compare(c) => Family::Elementwise(Elementwise::Compare(*c)),
            Op::Select => Family::Elementwise(Elementwise::Select),
            Op::Cast(to) => Family::Elementwise(Elementwise::Cast(*to)),
            Op::Dropout(d) => Family::Elementwise(Elementwise::Dropout(*d)),
            Op::BatchApply(eps) => Family::Elementwise(Elementwise::BatchApply(*eps)),
            Op::BatchGradInput(b) => Family::Elementwise(Elementwise::BatchGradInput(*b)),
            Op::Reduce(_) | Op::BatchStats | Op::BatchGradReduce(_) => Family::Reduction,
            Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Concat(_) | Op::Pad(_) | Op::Broadcast(_) => {
                Family::Layout
            }
            Op::MatMul(m) => Family::Contraction(Contraction::MatMul(*m)),
            Op::Conv(c) => Family::Contraction(Contraction::Conv(*c)),
            Op::ConvTranspose(c) => Family::Contraction(Contraction::ConvTranspose(*c)),
            Op::ConvFilter(c) => Family::Contraction(Contraction::ConvFilter(*c)),
            Op::Attention(_) | Op::AttentionGrad(_) => Family::Attention,
            Op::MaxPool(_) | Op::MaxPoolGrad(_) | Op::AvgPool(_) | Op::AvgPoolGrad(_) => Family::Window,
            Op::Upsample(_) | Op::UpsampleGrad(_) => Family::Window,
            Op::LayerNorm(_) | Op::LayerNormGrad | Op::RmsNorm(_) | Op::RmsNormGrad => Family::Norm,
            Op::GroupNorm(_) | Op::GroupNormGrad(_) => Family::Norm,
            Op::Softmax(_) | Op::SoftmaxGrad(_) => Family::Softmax,
            Op::CrossEntropy(_) | Op::CrossEntropyGrad(_) => Family::Loss,
            Op::Gather | Op::GatherGrad(_) => Family::Gather,
            Op::BatchUpdate(_) | Op::Update(_) => Family::Update,
            Op::Join(_) | Op::Replicate(_) => Family::Exchange,
        }
    }

    /// Whether running it again on the same inputs is harmless: only such ops are cloned for recompute.
    pub fn is_pure(&self) -> bool {
        match self.family() {
            Family::Source | Family::Update | Family::Exchange => false,
            Family::Constant
            | Family::Elementwise(_)
            | Family::Reduction
            | Family::Layout
            | Family::Contraction(_)
            | Family::Attention
            | Family::Window
            | Family::Norm
            | Family::Softmax
            | Family::Loss
            | Family::Gather => true,
        }
    }

    /// Whether it gives a value and reads none.
    pub fn is_source(&self) -> bool {
        self.family() == Family::Source || self.family() == Family::Constant
    }

    /// Whether it is elementwise: such nodes run as one chain.
    pub fn is_elementwise(&self) -> bool {
        self.elementwise().is_some()
    }

    pub fn elementwise(&self) -> Option<Elementwise> {
        if let Family::Elementwise(op) = self.family() { Some(op) } else { None }
    }

    /// Whether its output may be finished by an elementwise chain while it is still in the cache.
    pub fn is_contraction(&self) -> bool {
        self.contraction().is_some()
    }

    pub fn contraction(&self) -> Option<Contraction> {
        if let Family::Contraction(op) = self.family() { Some(op) } else { None }
    }

    /// Whether replicas meet in it.
    pub fn is_exchange(&self) -> bool {
        self.family() == Family::Exchange
    }

    /// Whether its outputs take the places of states that it reads.
    pub fn is_update(&self) -> bool {
        self.family() == Family::Update
    }
}

impl Elementwise {
    /// Which of the inputs are read element by element. The others are read whole before the first element: the vectors of
    /// the batch-norm family, and dropout's clock.
    pub fn element_inputs(self) -> &'static [usize] {
        match self {
            Elementwise::Dropout(_) | Elementwise::BatchApply(_) => &[0],
            Elementwise::BatchGradInput(_) => &[0, 4],
            Elementwise::Unary(_) | Elementwise::Mask(_) | Elementwise::Cast(_) => &[0],
            Elementwise::UnaryGrad(_) | Elementwise::MaskGrad(_) | Elementwise::Binary(_) | Elementwise::Compare(_) => {
                &[0, 1]
            }
            Elementwise::Select => &[0, 1, 2],
        }
    }

    /// Whether all that it reads may be a constant that a kernel holds in a register.
    pub fn reads_elements_only(self) -> bool {
        match self {
            Elementwise::Dropout(_) | Elementwise::BatchApply(_) | Elementwise::BatchGradInput(_) => false,
            Elementwise::Unary(_)
            | Elementwise::UnaryGrad(_)
            | Elementwise::Mask(_)
            | Elementwise::MaskGrad(_)
            | Elementwise::Binary(_)
            | Elementwise::Compare(_)
            | Elementwise::Select
            | Elementwise::Cast(_) => true,
        }
    }
}
