//! From a planned group to something that can be launched: shapes and places are read once, and a closure remembers them.
//! [`scratch_len`] and [`compile`] stand side by side and must agree on the scratch of every op.

pub mod contract;
mod feed;
mod nodes;
mod sums;

use memfit_exec::KernelError;
use memfit_ir::Graph;
use memfit_plan::{Place, Program, Step};
use memfit_transform::Group;
use memfit_transform::group::is_contraction;

use crate::Cpu;
use crate::elementwise::{Bound, Tape};
use crate::gemm::Scratch;
use crate::memory::Memory;
use crate::pool::part;
use nodes::NodeKernel;

/// A compiled group.
pub type Launch = Box<dyn Fn(&Cpu, &Memory) -> Result<(), KernelError> + Send + Sync>;

/// Below this many elements a chain runs on the calling thread: waking another costs more.
const SMALL: usize = 16 << 10;

/// Elements (of four bytes) of scratch that a group's kernel uses.
pub fn scratch_len(cpu: &Cpu, graph: &Graph, group: &Group) -> usize {
    let root = graph.node(group.root());
    if root.op.is_elementwise() {
        Tape::new(graph, &group.nodes, &group.writes).scratch_len(cpu.pool.threads())
    } else if is_contraction(&root.op) {
        contract::scratch(cpu, graph, group).total()
    } else {
        nodes::scratch_len(cpu, graph, root)
    }
}

pub fn compile(cpu: &Cpu, program: &Program, step: &Step) -> Launch {
    let root = program.graph.node(step.group.root());
    if root.op.is_elementwise() {
        chain(program, step)
    } else if is_contraction(&root.op) {
        contract::compile(cpu, program, step)
    } else {
        let kernel = NodeKernel::new(program, step);
        Box::new(move |cpu, memory| kernel.launch(cpu, memory))
    }
}

/// A validated plan places every value that crosses groups.
fn placed(program: &Program, v: memfit_ir::ValueId) -> Place {
    match program.place(v) {
        Some(place) => place,
        None => unreachable!("%{} of {} has no place in a validated plan", v.0, program.phase.name()),
    }
}

/// An elementwise chain.
fn chain(program: &Program, step: &Step) -> Launch {
    let tape = Tape::new(&program.graph, &step.group.nodes, &step.group.writes);
    let bound = tape.bind(|v| placed(program, v));
    let scratch = step.scratch;
    Box::new(move |cpu, memory| {
        let scratch = Scratch(scratch.map_or(std::ptr::null_mut(), |p| memory.f32_at(p)));
        // SAFETY: the scratch has the length that the tape asked for, and the plan placed every value.
        unsafe { bound.prepare(memory, scratch.0) };
        run_chain(cpu, memory, &bound, scratch);
        Ok(())
    })
}

/// Runs a prepared chain over all of its elements on all threads.
fn run_chain(cpu: &Cpu, memory: &Memory, bound: &Bound, scratch: Scratch) {
    let n = bound.elements();
    let threads = cpu.pool.threads();
    // SAFETY: threads run disjoint elements, each with slots of its own.
    let run = |t: usize, range| unsafe { bound.run_long(cpu.isa, memory, scratch.at(0), t, range) };
    if n <= SMALL {
        run(0, 0..n);
    } else {
        cpu.pool.run(&|t| run(t, part(n, crate::elementwise::TILE, threads, t)));
    }
}
