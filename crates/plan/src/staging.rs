//! What a plan takes of its device beside its segments: what copies from and to the host go through, and what the device keeps
//! of kernels. It is within the budget, so candidates know it before they are chosen from.

use memfit_ir::Graph;
use memfit_transform::Group;

use crate::target::Target;
use crate::types::{Phase, Program};

/// What of a program decides what its device takes beside the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedProgram {
    pub phase: Phase,
    /// Of all that the host gives it, each in whole units of the device's alignment.
    pub input_bytes: u64,
    /// What it hands out.
    pub outputs: u64,
    /// What its launches are on the device: see [`Target::kernels`].
    pub kernels: u64,
}

impl StagedProgram {
    pub(crate) fn new<'a>(
        phase: Phase,
        graph: &Graph,
        groups: impl Iterator<Item = &'a Group>,
        target: &dyn Target,
    ) -> StagedProgram {
        let bytes = |v| graph.ty(v).bytes().next_multiple_of(target.alignment());
        StagedProgram {
            phase,
            input_bytes: graph.inputs().map(|(_, v)| bytes(v)).sum(),
            outputs: graph.outputs.len() as u64,
            kernels: groups.map(|group| target.kernels(graph, group)).sum(),
        }
    }

    /// The same with kernels that take nothing: what no plan of the program goes below.
    pub(crate) fn without_kernels(self) -> StagedProgram {
        StagedProgram { kernels: 0, ..self }
    }
}

/// Of the programs of a plan.
pub fn staged_programs(programs: &[Program], target: &dyn Target) -> Vec<StagedProgram> {
    let staged = |p: &Program| StagedProgram::new(p.phase, &p.graph, p.launches.iter().map(|l| &l.group), target);
    programs.iter().map(staged).collect()
}
