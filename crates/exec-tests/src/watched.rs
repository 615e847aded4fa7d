//! An executor that watches another one: a kernel may write its results and its scratch and nothing else, and what lay
//! there before must not matter.

use std::convert::Infallible;

use memfit_exec::{Arena, Device, ExecError, Executor, Growth, HostMemory, KernelError};
use memfit_plan::{Launch, Place, Program, Segment, Target};

/// All ones: NaN in every float type.
const POISON: u8 = 0xff;

pub struct Watched<E>(pub E);

pub struct Kernel<K> {
    kernel: K,
    /// The op, for the message.
    op: &'static str,
    /// Results and scratch.
    writes: Vec<Place>,
    /// Those of them that the kernel does not read: all but states that are updated in place.
    fresh: Vec<Place>,
}

impl<E: Executor<Memory = HostMemory>> Executor for Watched<E> {
    type Memory = HostMemory;
    type Kernel = Kernel<E::Kernel>;
    type Captured = Infallible;

    fn target(&self) -> &dyn Target {
        self.0.target()
    }

    fn device(&self) -> &Device {
        self.0.device()
    }

    fn allocate(&self, holder: &str, bytes: u64, growth: Growth) -> Result<HostMemory, ExecError> {
        self.0.allocate(holder, bytes, growth)
    }

    fn compile(&self, program: &Program, launch: &Launch) -> Result<Self::Kernel, ExecError> {
        let places = |values: &[memfit_ir::ValueId]| values.iter().filter_map(|&v| program.place(v)).collect();
        let (reads, mut writes): (Vec<Place>, Vec<Place>) = (places(&launch.group.reads), places(&launch.group.writes));
        writes.extend(launch.scratch);
        let fresh = writes.iter().copied().filter(|w| !reads.contains(w)).collect();
        let op = program.graph.node(launch.group.root()).op.name();
        Ok(Kernel { kernel: self.0.compile(program, launch)?, op, writes, fresh })
    }

    fn launch(&self, kernel: &Self::Kernel, arena: &mut Arena<HostMemory>) -> Result<(), KernelError> {
        for &place in &kernel.fresh {
            self.0.fill(arena.segment_mut(place), place, POISON);
        }
        let mut before = [arena.state.all().to_vec(), arena.transient.all().to_vec()];
        self.0.launch(&kernel.kernel, arena)?;
        for &place in &kernel.writes {
            let range = place.offset as usize..(place.offset + place.size) as usize;
            before[place.segment as usize][range].copy_from_slice(arena.segment_mut(place).bytes(place));
        }
        let after = [arena.state.all(), arena.transient.all()];
        for (segment, (before, after)) in [Segment::State, Segment::Transient].iter().zip(before.iter().zip(after)) {
            let stray = before.iter().zip(after).position(|(a, b)| a != b);
            assert_eq!(stray, None, "{} wrote to byte {stray:?} of the {segment:?} segment", kernel.op);
        }
        Ok(())
    }

    fn write(&self, memory: &mut HostMemory, place: Place, offset: u64, bytes: &[u8]) {
        self.0.write(memory, place, offset, bytes);
    }

    fn read(&self, memory: &HostMemory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.0.read(memory, place, bytes)
    }

    fn fill(&self, memory: &mut HostMemory, place: Place, byte: u8) {
        self.0.fill(memory, place, byte);
    }

    fn wait(&self) -> Result<(), ExecError> {
        self.0.wait()
    }
}
