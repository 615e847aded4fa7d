//! What the planner asks an executor: what it can run, how much scratch a group takes, how long it runs, and how memory
//! must be cut.

use memfit_ir::{Graph, NodeId, ValueId};
use memfit_transform::{Fusion, Group};

use crate::cost_model::CostModel;
use crate::staging::StagedProgram;
use crate::types::MadeFor;

/// Implemented by each executor. Answers must be pure: the same question gets the same answer.
pub trait Target {
    /// What plans for it are made for.
    fn describe(&self) -> MadeFor;

    /// Times are predicted from this where the request names no other.
    fn cost_model(&self) -> CostModel;

    /// Whether there is a kernel for a node; else why not, with what one can do about it.
    fn supports(&self, graph: &Graph, node: NodeId) -> Result<(), String>;

    /// How far nodes are joined into one kernel.
    fn fusion(&self) -> Fusion;

    /// Bytes of temporary memory that the group's kernel uses.
    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64;

    /// Predicted seconds of the group's kernel, which writes `fresh` bytes elsewhere than over what it reads.
    fn seconds(&self, graph: &Graph, group: &Group, fresh: u64, cost_model: &CostModel) -> f64;

    /// What a launch of the group is on the device: one kernel, or several in a row.
    fn kernels(&self, _graph: &Graph, _group: &Group) -> u64 {
        1
    }

    /// Bytes that a plan of these programs takes of the device beside its segments, at most; more programs, bytes or kernels
    /// never take less. Nothing where the host's memory is the device's.
    fn staging_bytes(&self, _programs: &[StagedProgram]) -> u64 {
        0
    }

    /// Every placement starts at a multiple of this; a power of two.
    fn alignment(&self) -> u64;

    /// Most bytes of one value, or of one kernel's scratch: what a kernel can be given as one operand.
    fn largest_binding(&self) -> u64;

    /// Most bytes of one segment: what the device can give as one allocation. May be more than a kernel can be given.
    fn largest_segment(&self) -> u64;

    /// Whether the kernel gives the right result when `output` lies exactly where `input` lay. Where an op alone cannot
    /// write over an operand, no group around it can write over what the op reads, nor over what the chains before it do.
    fn can_run_in_place(&self, graph: &Graph, group: &Group, input: ValueId, output: ValueId) -> bool;
}
