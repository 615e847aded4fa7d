//! What can go wrong when a plan runs.

use memfit_ir::bytes::{Bytes, told_apart};
use memfit_ir::{TensorType, in_layer};
use memfit_plan::Phase;

use crate::device::DeviceFull;
use crate::wire::WireError;

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A device that was asked for memory refused it.
    #[error("{device} cannot give the {} that {holder} take: {source}", Bytes(*bytes))]
    OutOfMemory { device: String, holder: String, bytes: u64, source: std::io::Error },
    /// A hard limit: nothing was taken.
    #[error("{0}")]
    DeviceFull(Box<DeviceFull>),
    #[error("the plan needs {} of transient memory, but what it is to share has {}", told_apart(*needed, *given)[0], told_apart(*needed, *given)[1])]
    SharedTooSmall { needed: u64, given: u64 },
    #[error(
        "\"{name}\" is gone, or was never there: another model has run in the same memory since, or this one has not run; \
         read it right after its step"
    )]
    Gone { name: String },
    #[error(
        "state \"{name}\" cannot be set: it is summed up within a step and begins at zero with each; set weights instead"
    )]
    Accumulator { name: String },
    #[error("cannot start {threads} threads: {source}")]
    Threads { threads: usize, source: std::io::Error },
    #[error("input \"{name}\" is missing; this {} needs {expected}", phase.name())]
    MissingInput { name: String, phase: Phase, expected: TensorType },
    #[error("input \"{name}\" must be {expected}, but is {given}")]
    WrongInput { name: String, expected: TensorType, given: TensorType },
    #[error("there is no input \"{name}\"; the model reads {known}")]
    UnknownInput { name: String, known: String },
    #[error("input \"{name}\" says {ty} but holds {bytes} bytes")]
    InputLength { name: String, ty: TensorType, bytes: usize },
    #[error("there is no {what} \"{name}\" in this plan")]
    Unknown { what: &'static str, name: String },
    /// A plan that was made elsewhere, or changed since.
    #[error("the {} program of this plan does not hold, plan anew: {problem}", phase.name())]
    Plan { phase: Phase, problem: String },
    #[error("\"{name}\" is {ty}, but there is room for {bytes} bytes")]
    OutputLength { name: String, ty: TensorType, bytes: usize },
    #[error("this plan has no {} program", .0.name())]
    NoPhase(Phase),
    #[error("{op}{}: {problem}", in_layer(layer))]
    Data { op: &'static str, layer: String, problem: KernelError },
    #[error("state \"{name}\": only f32 states start from random numbers, but it is {ty}")]
    Init { name: String, ty: TensorType },
    #[error("{op}{} cannot run on this device: {problem}", in_layer(layer))]
    Unsupported { op: &'static str, layer: String, problem: String },
    #[error("exchange{}: {source}", in_layer(layer))]
    Wire { layer: String, source: WireError },
    #[error(
        "this plan is for replica {rank} of {count}, which exchange what they have; connect it to the others first"
    )]
    NotConnected { rank: usize, count: usize },
    #[error("this plan is for replica {rank} of {count}, but the connection is that of {given_rank} of {given_count}")]
    WrongWire { rank: usize, count: usize, given_rank: usize, given_count: usize },
    /// What the device itself says, and not about any data.
    #[error("{device}: {problem}")]
    Device { device: String, problem: String },
}

/// A kernel met data that it cannot work on. It is small and made without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    #[error("index {index} at position {position} is outside of 0..{limit}")]
    Index { index: i64, position: usize, limit: usize },
}
