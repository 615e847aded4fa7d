//! From a planned group to a kernel that can be launched: shapes and places are read once, and a closure remembers them.
//! [`scratch_len`] and [`compile`] stand side by side and must agree on the scratch of every op.

#![deny(clippy::wildcard_enum_match_arm)]

mod contract;
pub(crate) mod contraction;
mod nodes;
mod prologue;
mod reductions;

use memfit_exec::{Arena, HostMemory, KernelError};
use memfit_ir::{Graph, ValueId};
use memfit_plan::{Launch, Place, Program, Segment};
use memfit_transform::Group;

use crate::Cpu;
use crate::elementwise::{BoundTape, Tape};
use crate::gemm::Scratch;
use crate::memory::Memory;
use crate::pool::part;
use contraction::Contraction;
use nodes::NodeKernel;

/// A group of a plan, compiled for the CPU and bound to its places.
pub struct CpuKernel {
    run: Run,
    /// Bytes from the start of each segment to the end of the group's last place there.
    state_bytes: u64,
    transient_bytes: u64,
}

/// What a kernel does in an arena that has all places of its group.
type Run = Box<dyn Fn(&Cpu, &Memory) -> Result<(), KernelError> + Send + Sync>;

impl CpuKernel {
    fn new(program: &Program, launch: &Launch, run: Run) -> CpuKernel {
        let nodes = launch.group.nodes.iter().map(|&n| program.graph.node(n));
        let values = nodes.flat_map(|n| n.inputs.iter().chain(&n.outputs));
        let places: Vec<Place> = values.filter_map(|&v| program.place(v)).chain(launch.scratch).collect();
        let bytes = |segment: Segment| {
            let ends = places.iter().filter(|p| p.segment == segment).map(|p| p.offset + p.size);
            ends.max().unwrap_or(0)
        };
        CpuKernel { run, state_bytes: bytes(Segment::State), transient_bytes: bytes(Segment::Transient) }
    }

    /// Runs it in an arena, which must be as large as the plan's.
    pub(crate) fn launch(&self, cpu: &Cpu, arena: &mut Arena<HostMemory>) -> Result<(), KernelError> {
        let has_places = self.state_bytes <= arena.state.all().len() as u64
            && self.transient_bytes <= arena.transient.all().len() as u64;
        assert!(has_places, "the arena is smaller than the plan that the kernel was compiled for");
        (self.run)(cpu, &Memory::new(arena))
    }
}

/// Below this many elements a chain runs on the calling thread: waking another costs more.
const SMALL: usize = 16 << 10;

/// Elements (of four bytes) of scratch that a group's kernel uses.
pub(crate) fn scratch_len(cpu: &Cpu, graph: &Graph, group: &Group) -> usize {
    let root = graph.node(group.root());
    if root.op.is_elementwise() {
        Tape::new(graph, &group.nodes, &group.writes).scratch_len(cpu.pool.threads())
    } else if let Some(contraction) = Contraction::new(graph, root) {
        contract::scratch(cpu, graph, group, &contraction).total()
    } else {
        nodes::scratch_len(cpu, graph, root)
    }
}

/// The kernel of a step of a validated plan.
pub(crate) fn compile(cpu: &Cpu, program: &Program, launch: &Launch) -> CpuKernel {
    let root = program.graph.node(launch.group.root());
    let run = if root.op.is_elementwise() {
        chain(program, launch)
    } else if let Some(contraction) = Contraction::new(&program.graph, root) {
        contract::compile(cpu, program, launch, contraction)
    } else {
        let kernel = NodeKernel::new(program, launch);
        Box::new(move |cpu: &Cpu, memory: &Memory| kernel.launch(cpu, memory))
    };
    CpuKernel::new(program, launch, run)
}

/// A validated plan places every value that crosses groups.
fn placed(program: &Program, v: ValueId) -> Place {
    match program.place(v) {
        Some(place) => place,
        None => unreachable!("%{} of {} has no place in a validated plan", v.0, program.phase.name()),
    }
}

/// An elementwise chain.
fn chain(program: &Program, launch: &Launch) -> Run {
    let tape = Tape::new(&program.graph, &launch.group.nodes, &launch.group.writes);
    let bound = tape.bind(|v| placed(program, v));
    let scratch = launch.scratch;
    Box::new(move |cpu, memory| {
        let scratch = Scratch(scratch.map_or(std::ptr::null_mut(), |p| memory.f32_at(p)));
        // SAFETY: the arena has the group's places, and the scratch is as long as the tape asked for: the executor compiles no
        // step of another length.
        unsafe {
            bound.prepare(memory, scratch.0);
            run_chain(cpu, memory, &bound, scratch);
        }
        Ok(())
    })
}

/// Runs a chain over all of its elements on all threads.
///
/// # Safety
/// It has been prepared with this memory and scratch, which nobody else uses.
unsafe fn run_chain(cpu: &Cpu, memory: &Memory, bound: &BoundTape, scratch: Scratch) {
    let n = bound.elements();
    let threads = cpu.pool.threads();
    // SAFETY: the chain is prepared; threads have different numbers, and tiles of different elements, which are whole bytes of
    // bits.
    let run = |t: usize, range| unsafe { bound.run_long(cpu.isa, memory, scratch.at(0), t, range) };
    if n <= SMALL {
        run(0, 0..n);
    } else {
        cpu.pool.run(&|t| run(t, part(n, crate::elementwise::TILE, threads, t)));
    }
}
