//! A chain that computes an operand of a contraction while that is packed.

use std::ops::Range;

use memfit_ir::{Graph, ValueId};
use memfit_plan::Program;
use memfit_transform::Group;

use super::placed;
use crate::Cpu;
use crate::elementwise::{Bound, Tape};
use crate::gemm::{Feed, Scratch};
use crate::isa::Isa;
use crate::memory::Memory;

/// The tape of an operand that is computed; none where it is in memory.
pub fn tape_of(graph: &Graph, group: &Group, operand: ValueId) -> Option<Tape> {
    let nodes = group.prologue_of(graph, operand);
    (!nodes.is_empty()).then(|| Tape::new(graph, &nodes, &[]))
}

/// The tape with its values in place.
pub fn bound_of(program: &Program, group: &Group, operand: ValueId) -> Option<Bound> {
    tape_of(&program.graph, group, operand).map(|tape| tape.bind(|v| placed(program, v)))
}

/// A chain at work, for one launch.
pub struct ChainFeed<'a> {
    bound: &'a Bound,
    isa: Isa,
    memory: &'a Memory,
    scratch: Scratch,
}

impl<'a> ChainFeed<'a> {
    /// Prepares a chain, if there is one.
    ///
    /// # Safety
    /// The scratch is as long as the tape asked for, and the operands are in `memory`.
    pub unsafe fn new(cpu: &Cpu, memory: &'a Memory, bound: Option<&'a Bound>, scratch: Scratch) -> Option<Self> {
        bound.map(|bound| {
            // SAFETY: passed on.
            unsafe { bound.prepare(memory, scratch.0) };
            ChainFeed { bound, isa: cpu.isa, memory, scratch }
        })
    }
}

impl Feed for ChainFeed<'_> {
    unsafe fn fill(&self, thread: usize, elements: Range<usize>, to: *mut f32) {
        // SAFETY: passed on; the chain has been prepared, and each thread has slots of its own.
        unsafe { self.bound.run_to(self.isa, self.memory, self.scratch.at(0), thread, elements, Some(to)) }
    }
}
