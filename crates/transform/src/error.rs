//! The errors of the transforms. Each names the op, layer or parameter, and the cure where there is one.

use memfit_ir::{Node, TensorType, in_layer};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Ir(#[from] memfit_ir::Error),

    // ---- gradients ---------------------------------------------------------------------------------------------------
    #[error("{op}{} has no gradient of its own; second derivatives are not supported", in_layer(.scope))]
    NoGradient { op: &'static str, scope: String },
    #[error("{op}{} changes a state; a loss cannot depend on its result", in_layer(.scope))]
    ThroughUpdate { op: &'static str, scope: String },
    #[error("{op}{}: output {output} only serves the op's own gradient; a loss cannot depend on it", in_layer(.scope))]
    AuxiliaryOutput { op: &'static str, scope: String, output: usize },
    #[error(
        "{op}{}: the mean and variance depend on what is differentiated, but are not both of batch_stats on its own \
         input; take them from there, or make them states",
        in_layer(.scope)
    )]
    Statistics { op: &'static str, scope: String },
    #[error("%{value} cannot be differentiated: it {problem}")]
    NotDifferentiable { value: u32, problem: String },
    #[error("the gradient given for %{value} is {given}, but the value is {expected}")]
    Cotangent { value: u32, given: TensorType, expected: TensorType },

    // ---- the training step -------------------------------------------------------------------------------------------
    #[error("the loss must be f32[], but is {ty}; take its mean or sum")]
    Loss { ty: TensorType },
    #[error("the loss does not depend on the parameter \"{param}\"; freeze it, or use it in the model")]
    Unreached { param: String },
    #[error("the parameter \"{name}\" is to be frozen, but the model has none of this name")]
    UnknownFrozen { name: String },
    #[error("an objective's loss is to be the output \"{name}\", but the model has none of this name")]
    UnknownLoss { name: String },
    #[error("the objective \"{loss}\" trains nothing: no parameter that is not frozen is meant by {trains}")]
    IdleObjective { loss: String, trains: String },
    #[error("there is nothing to train: the model has no parameter that is not frozen")]
    NothingToTrain,
    #[error("gradients can be clipped at a positive finite number only, not at {limit}")]
    Clip { limit: f32 },
    #[error("a micro-batch must be more than 0 and at most 1 of its batch, but its share is {share}")]
    Share { share: f32 },
    #[error(
        "batch norms of one batch cannot be synchronised over micro-batches; give each replica one lane, of one micro-batch"
    )]
    Synchronised,
    #[error("{op}{}: {problem}, so that the step cannot be split into micro-batches", in_layer(.scope))]
    CannotSplit { op: &'static str, scope: String, problem: String },
    #[error("{op}{}: {problem}, so that a step that overflows cannot be skipped; train in bf16 or f32", in_layer(.scope))]
    CannotSkip { op: &'static str, scope: String, problem: String },
}

impl Error {
    pub(crate) fn no_gradient(node: &Node) -> Error {
        Error::NoGradient { op: node.op.name(), scope: node.scope.clone() }
    }

    pub(crate) fn cannot_split(node: &Node, problem: impl Into<String>) -> Error {
        Error::CannotSplit { op: node.op.name(), scope: node.scope.clone(), problem: problem.into() }
    }
}
