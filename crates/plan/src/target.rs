//! What the planner asks an executor: how much scratch a group takes, how long it runs, and how memory must be cut.

use memfit_ir::Graph;
use memfit_transform::{Fusion, Group};

use crate::profile::Profile;

/// Implemented by each executor. Answers must be pure: the same question gets the same answer.
pub trait Target {
    /// How far nodes are joined into one kernel.
    fn fusion(&self) -> Fusion;

    /// Bytes of temporary memory that the group's kernel uses.
    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64;

    /// Predicted seconds of the group's kernel, which writes `fresh` bytes elsewhere than over what it reads.
    fn seconds(&self, graph: &Graph, group: &Group, fresh: u64, profile: &Profile) -> f64;

    /// Every placement starts at a multiple of this; a power of two.
    fn alignment(&self) -> u64;

    /// Most bytes of one value, or of one kernel's scratch: what a kernel can be given as one operand.
    fn largest_binding(&self) -> u64;

    /// Most bytes of one segment: what the device can give as one allocation. May be more than a kernel can be given.
    fn largest_segment(&self) -> u64;

    /// Whether the kernel gives the right result when `output` lies exactly where `input` lay. Where an op alone cannot
    /// write over an operand, no group around it can write over what the op reads, nor over what the chains before it do.
    fn can_run_in_place(
        &self,
        graph: &Graph,
        group: &Group,
        input: memfit_ir::ValueId,
        output: memfit_ir::ValueId,
    ) -> bool;
}
