//! A chain that computes an operand of a contraction while that is packed.

use std::ops::Range;

use memfit_ir::{Graph, ValueId};
use memfit_plan::Program;
use memfit_transform::Group;

use super::placed;
use crate::Cpu;
use crate::elementwise::{BoundTape, Tape};
use crate::gemm::{Prologue, Scratch};
use crate::isa::Isa;
use crate::memory::Memory;

/// The tape of an operand that is computed; none where it is in memory.
pub(super) fn tape_of(graph: &Graph, group: &Group, operand: ValueId) -> Option<Tape> {
    let nodes = group.prologue_of(graph, operand);
    (!nodes.is_empty()).then(|| Tape::new(graph, &nodes, &[]))
}

/// The tape with its values in place.
pub(super) fn bound_tape_of(program: &Program, group: &Group, operand: ValueId) -> Option<BoundTape> {
    tape_of(&program.graph, group, operand).map(|tape| tape.bind(|v| placed(program, v)))
}

/// A chain at work, for one launch.
pub(super) struct ChainPrologue<'a> {
    bound: &'a BoundTape,
    isa: Isa,
    memory: &'a Memory,
    scratch: Scratch,
}

impl<'a> ChainPrologue<'a> {
    /// Prepares a chain.
    ///
    /// # Safety
    /// As for [`BoundTape::prepare`], for as long as it lives.
    pub(super) unsafe fn new(cpu: &Cpu, memory: &'a Memory, bound: &'a BoundTape, scratch: Scratch) -> Self {
        // SAFETY: the caller's promise is that of `prepare`.
        unsafe { bound.prepare(memory, scratch.0) };
        ChainPrologue { bound, isa: cpu.isa, memory, scratch }
    }
}

impl Prologue for ChainPrologue<'_> {
    unsafe fn compute(&self, thread: usize, elements: Range<usize>, to: *mut f32) {
        // SAFETY: `new` has prepared the chain, whose memory and scratch are there for as long as this lives; the caller has room
        // for the elements, and is the only one with this thread's number.
        unsafe { self.bound.run_to(self.isa, self.memory, self.scratch.at(0), thread, elements, Some(to)) }
    }
}
