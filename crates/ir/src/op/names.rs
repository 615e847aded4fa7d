//! What ops are called, in text form, in errors and in reports.

use super::*;

impl Op {
    /// What an input or a state is called by its user.
    pub fn label(&self) -> Option<&str> {
        if let Op::Input(i) = self {
            Some(&i.name)
        } else if let Op::State(s) = self {
            Some(&s.name)
        } else {
            None
        }
    }

    /// The name in text form, in errors and in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::State(_) => "state",
            Op::Fill(_) => "fill",
            Op::Unary(u) => u.name(),
            Op::UnaryGrad(u) => u.grad_name(),
            Op::Mask(_) => "mask",
            Op::MaskGrad(_) => "mask_grad",
            Op::Binary(b) => b.name(),
            Op::Compare(c) => c.name(),
            Op::Select => "select",
            Op::Cast(_) => "cast",
            Op::Dropout(_) => "dropout",
            Op::Reduce(r) => r.kind.name(),
            Op::Reshape(_) => "reshape",
            Op::Transpose(_) => "transpose",
            Op::Slice(_) => "slice",
            Op::Concat(_) => "concat",
            Op::Pad(_) => "pad",
            Op::Broadcast(_) => "broadcast",
            Op::MatMul(_) => "matmul",
            Op::Conv(_) => "conv2d",
            Op::ConvTranspose(_) => "conv2d_transpose",
            Op::ConvFilter(_) => "conv2d_filter",
            Op::Attention(_) => "attention",
            Op::AttentionGrad(_) => "attention_grad",
            Op::MaxPool(_) => "max_pool",
            Op::MaxPoolGrad(_) => "max_pool_grad",
            Op::AvgPool(_) => "avg_pool",
            Op::AvgPoolGrad(_) => "avg_pool_grad",
            Op::Upsample(_) => "upsample",
            Op::UpsampleGrad(_) => "upsample_grad",
            Op::BatchStats => "batch_stats",
            Op::BatchApply(_) => "batch_apply",
            Op::BatchGradReduce(_) => "batch_grad_reduce",
            Op::BatchGradInput(_) => "batch_grad_input",
            Op::BatchUpdate(_) => "batch_update",
            Op::LayerNorm(_) => "layer_norm",
            Op::LayerNormGrad => "layer_norm_grad",
            Op::RmsNorm(_) => "rms_norm",
            Op::RmsNormGrad => "rms_norm_grad",
            Op::GroupNorm(_) => "group_norm",
            Op::GroupNormGrad(_) => "group_norm_grad",
            Op::Softmax(s) => ["softmax", "log_softmax"][s.log as usize],
            Op::SoftmaxGrad(s) => ["softmax_grad", "log_softmax_grad"][s.log as usize],
            Op::CrossEntropy(_) => "cross_entropy",
            Op::CrossEntropyGrad(_) => "cross_entropy_grad",
            Op::Gather => "gather",
            Op::GatherGrad(_) => "gather_grad",
            Op::Update(u) => u.name(),
            Op::Join(_) => "join",
            Op::Replicate(_) => "replicate",
        }
    }
}

impl Unary {
    /// One of each, with usual parameters where there are any.
    pub const ALL: [Unary; 18] = [
        Unary::Neg,
        Unary::Abs,
        Unary::Exp,
        Unary::Log,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Relu,
        Unary::Relu6,
        Unary::LeakyRelu(0.2),
        Unary::Elu(1.0),
        Unary::Softplus,
        Unary::HardSigmoid,
        Unary::HardSwish,
        Unary::Silu,
        Unary::GeluTanh,
        Unary::GeluErf,
    ];

    pub fn name(self) -> &'static str {
        self.names().0
    }

    pub fn grad_name(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Unary::Neg => ("neg", "neg_grad"),
            Unary::Abs => ("abs", "abs_grad"),
            Unary::Exp => ("exp", "exp_grad"),
            Unary::Log => ("log", "log_grad"),
            Unary::Sqrt => ("sqrt", "sqrt_grad"),
            Unary::Rsqrt => ("rsqrt", "rsqrt_grad"),
            Unary::Tanh => ("tanh", "tanh_grad"),
            Unary::Sigmoid => ("sigmoid", "sigmoid_grad"),
            Unary::Relu => ("relu", "relu_grad"),
            Unary::Relu6 => ("relu6", "relu6_grad"),
            Unary::LeakyRelu(_) => ("leaky_relu", "leaky_relu_grad"),
            Unary::Elu(_) => ("elu", "elu_grad"),
            Unary::Softplus => ("softplus", "softplus_grad"),
            Unary::HardSigmoid => ("hardsigmoid", "hardsigmoid_grad"),
            Unary::HardSwish => ("hardswish", "hardswish_grad"),
            Unary::Silu => ("silu", "silu_grad"),
            Unary::GeluTanh => ("gelu_tanh", "gelu_tanh_grad"),
            Unary::GeluErf => ("gelu_erf", "gelu_erf_grad"),
        }
    }
}

impl Binary {
    pub const ALL: [Binary; 8] = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Min,
        Binary::Max,
        Binary::Pow,
        Binary::SigmoidCrossEntropy,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Min => "min",
            Binary::Max => "max",
            Binary::Pow => "pow",
            Binary::SigmoidCrossEntropy => "sigmoid_cross_entropy",
        }
    }
}

impl Compare {
    pub const ALL: [Compare; 6] = [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge];

    pub fn name(self) -> &'static str {
        match self {
            Compare::Eq => "eq",
            Compare::Ne => "ne",
            Compare::Lt => "lt",
            Compare::Le => "le",
            Compare::Gt => "gt",
            Compare::Ge => "ge",
        }
    }
}

impl ReduceKind {
    pub const ALL: [ReduceKind; 4] = [ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Max, ReduceKind::SumSquares];

    pub fn name(self) -> &'static str {
        match self {
            ReduceKind::Sum => "reduce_sum",
            ReduceKind::Mean => "reduce_mean",
            ReduceKind::Max => "reduce_max",
            ReduceKind::SumSquares => "reduce_sum_squares",
        }
    }
}

impl Update {
    pub fn name(self) -> &'static str {
        match self {
            Update::Sgd { .. } => "sgd",
            Update::Adam { decoupled: false, .. } => "adam",
            Update::Adam { decoupled: true, .. } => "adamw",
            Update::RmsProp { .. } => "rmsprop",
            Update::Adagrad { .. } => "adagrad",
        }
    }
}

impl StateClass {
    pub const ALL: [StateClass; 4] =
        [StateClass::Param, StateClass::Slot, StateClass::Statistic, StateClass::Accumulator];

    pub fn name(self) -> &'static str {
        match self {
            StateClass::Param => "param",
            StateClass::Slot => "slot",
            StateClass::Statistic => "statistic",
            StateClass::Accumulator => "accumulator",
        }
    }
}

impl UpsampleMode {
    pub const ALL: [UpsampleMode; 2] = [UpsampleMode::Nearest, UpsampleMode::Bilinear];

    pub fn name(self) -> &'static str {
        match self {
            UpsampleMode::Nearest => "nearest",
            UpsampleMode::Bilinear => "bilinear",
        }
    }
}
