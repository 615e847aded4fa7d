//! An executor that watches another one: a kernel may write its results and its scratch and nothing else, and what lay
//! there before must not matter.

use memfit_exec::{ExecError, Executor, Growth, HostArena, KernelError};
use memfit_plan::{Place, Program, Segment, Step, Target};

/// All ones: NaN in every float type.
const POISON: u8 = 0xff;

pub struct Watched<E>(pub E);

pub struct Arena {
    arena: HostArena,
    whole: [Place; 2],
}

pub struct Kernel<K> {
    kernel: K,
    /// The op, for the message.
    op: &'static str,
    /// Results and scratch.
    writes: Vec<Place>,
    /// Those of them that the kernel does not read: all but states that are updated in place.
    fresh: Vec<Place>,
}

impl<E: Executor<Arena = HostArena>> Executor for Watched<E> {
    type Arena = Arena;
    type Kernel = Kernel<E::Kernel>;

    fn target(&self) -> &dyn Target {
        self.0.target()
    }

    fn allocate(&self, state_bytes: u64, transient_bytes: u64, growth: Growth) -> Result<Arena, ExecError> {
        let whole = [(Segment::State, state_bytes), (Segment::Transient, transient_bytes)];
        let whole = whole.map(|(segment, size)| Place { segment, offset: 0, size });
        Ok(Arena { arena: self.0.allocate(state_bytes, transient_bytes, growth)?, whole })
    }

    fn compile(&self, program: &Program, step: &Step) -> Result<Self::Kernel, ExecError> {
        let places = |values: &[memfit_ir::ValueId]| values.iter().filter_map(|&v| program.place(v)).collect();
        let (reads, mut writes): (Vec<Place>, Vec<Place>) = (places(&step.group.reads), places(&step.group.writes));
        writes.extend(step.scratch);
        let fresh = writes.iter().copied().filter(|w| !reads.contains(w)).collect();
        let op = program.graph.node(step.group.root()).op.name();
        Ok(Kernel { kernel: self.0.compile(program, step)?, op, writes, fresh })
    }

    fn launch(&self, kernel: &Self::Kernel, arena: &mut Arena) -> Result<(), KernelError> {
        for &place in &kernel.fresh {
            self.0.fill(&mut arena.arena, place, POISON);
        }
        let mut before = arena.whole.map(|segment| arena.arena.bytes(segment).to_vec());
        self.0.launch(&kernel.kernel, &mut arena.arena)?;
        for place in &kernel.writes {
            let range = place.offset as usize..(place.offset + place.size) as usize;
            let segment = arena.whole.iter().position(|s| s.segment == place.segment).expect("both are there");
            before[segment][range].copy_from_slice(arena.arena.bytes(*place));
        }
        for (segment, before) in arena.whole.iter().zip(&before) {
            let after = arena.arena.bytes(*segment);
            let stray = before.iter().zip(after).position(|(a, b)| a != b);
            assert_eq!(stray, None, "{} wrote to byte {stray:?} of the {:?} segment", kernel.op, segment.segment);
        }
        Ok(())
    }

    fn write(&self, arena: &mut Arena, place: Place, offset: u64, bytes: &[u8]) {
        self.0.write(&mut arena.arena, place, offset, bytes);
    }

    fn read(&self, arena: &Arena, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.0.read(&arena.arena, place, bytes)
    }

    fn fill(&self, arena: &mut Arena, place: Place, byte: u8) {
        self.0.fill(&mut arena.arena, place, byte);
    }

    fn wait(&self) -> Result<(), ExecError> {
        self.0.wait()
    }
}
