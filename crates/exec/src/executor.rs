//! What a device must do: give memory, compile a group, run it, move bytes. One trait for every kind of device.

use memfit_plan::{Launch, Place, Plan, Program, Target};
use std::ops::Range;

use crate::arena::Arena;
use crate::device::Device;
use crate::error::{ExecError, KernelError};
use crate::host_memory::Growth;
use crate::recorder::{KernelClock, LaunchId, Recorder, now};

pub trait Executor {
    /// A segment of a plan in the device's memory.
    type Memory;
    /// A compiled group, bound to its places.
    type Kernel;
    /// The kernels of a program as the device repeats them in one go: see [`Executor::capture`].
    type Captured;

    /// What the planner asks this device.
    fn target(&self) -> &dyn Target;

    /// The device, of which all memory is taken.
    fn device(&self) -> &Device;

    /// Takes a segment for a holder of this name, once. Everything that a run needs afterwards lies in its two segments.
    fn allocate(&self, holder: &str, bytes: u64, growth: Growth) -> Result<Self::Memory, ExecError>;

    /// Takes what the plan has beside its two segments ([`Plan::staging_bytes`]) for a holder of this name, once, before them.
    /// Copies of an executor that were made before do not have it.
    fn take_staging(&mut self, _holder: &str, _plan: &Plan) -> Result<(), ExecError> {
        Ok(())
    }

    /// Makes the kernel of a launch. May allocate; [`Executor::launch`] may not.
    fn compile(&self, program: &Program, launch: &Launch) -> Result<Self::Kernel, ExecError>;

    /// Starts a kernel. What is started later, written, filled or read sees its results; but it may still run when this
    /// returns, and what goes wrong then is reported by [`Executor::read`] and [`Executor::wait`].
    fn launch(&self, kernel: &Self::Kernel, arena: &mut Arena<Self::Memory>) -> Result<(), KernelError>;

    /// The same, and tells when it began and ended: at once, or with [`Executor::tell_recorded`] where a device works on its own.
    /// Here it is what the host sees, on one thread.
    fn launch_recorded(
        &self,
        kernel: &Self::Kernel,
        arena: &mut Arena<Self::Memory>,
        id: LaunchId,
        recorder: &Recorder,
    ) -> Result<(), KernelError> {
        let begin = now();
        self.launch(kernel, arena)?;
        recorder.kernel(id, [(0, begin, now())]);
        Ok(())
    }

    /// Tells of the kernels that were launched so and not told of yet, once they have run.
    fn tell_recorded(&self, _recorder: &Recorder) -> Result<(), ExecError> {
        Ok(())
    }

    /// How the times are taken that it tells.
    fn kernel_clock(&self) -> KernelClock {
        KernelClock::Threads
    }

    /// Takes down what launching these kernels, in this order, does to the device, and launches none of them. None where
    /// there is nothing to gain: they are launched one by one then. It is an error if one of them allocates.
    fn capture(
        &self,
        _kernels: &[Self::Kernel],
        _arena: &mut Arena<Self::Memory>,
    ) -> Result<Option<Self::Captured>, ExecError> {
        Ok(None)
    }

    /// Launches all kernels that were captured, in the memory that they were captured with.
    fn replay(&self, _captured: &Self::Captured) -> Result<(), ExecError> {
        unreachable!("an executor that captures also replays")
    }

    /// Hands all that was started to the device, as the end of a run of a program, and waits until the run before it has
    /// ended: so the host is never more than one run ahead, and what it stages for the next run lies beside no more than
    /// what this one reads.
    fn end_run(&self) -> Result<(), ExecError> {
        Ok(())
    }

    /// Where a segment starts in the host's memory; none where the device has memory of its own, which is copied from and to.
    fn host_base(&self, _memory: &mut Self::Memory) -> Option<*mut u8> {
        None
    }

    /// Bytes of a segment in pages that the system holds at the moment; none where nobody can tell.
    fn resident_bytes(&self, _memory: &Self::Memory) -> Option<u64> {
        None
    }

    /// Copies bytes of the host to `offset` bytes into a place of this segment; the host may change them at once. It starts
    /// at a multiple of four, or where the write before it ended: a device that writes words may also set the bytes up to the
    /// next multiple of four.
    fn write(&self, memory: &mut Self::Memory, place: Place, offset: u64, bytes: &[u8]);

    /// Copies a place, from its start, to the host, once everything started before has run.
    fn read(&self, memory: &Self::Memory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError>;

    /// Copies places of a segment, from their starts, to these parts of `room`, once everything started before has run. A
    /// device that works on its own is waited for once, as far as its buffers go.
    fn read_all(
        &self,
        memory: &Self::Memory,
        places: &[(Place, Range<usize>)],
        room: &mut [u8],
    ) -> Result<(), ExecError> {
        places.iter().try_for_each(|(place, part)| self.read(memory, *place, &mut room[part.clone()]))
    }

    /// Puts one word of each of these places aside, as they are when everything started before has run, and waits for
    /// nothing. False, and nothing is put aside, where the host reads a place without waiting.
    fn keep(&self, _arena: &mut Arena<Self::Memory>, _places: &[Place]) -> Result<bool, ExecError> {
        Ok(false)
    }

    /// The words that were put aside longest ago, once they are there; then they are not kept any more. No more than two
    /// are kept at a time.
    fn kept(&self, _words: &mut [u32]) -> Result<(), ExecError> {
        unreachable!("an executor that keeps words also hands them out")
    }

    /// Sets every byte of a place. A device that writes words may also set the bytes up to the next multiple of four,
    /// which belong to no place.
    fn fill(&self, memory: &mut Self::Memory, place: Place, byte: u8);

    /// Waits until everything that was started has run.
    fn wait(&self) -> Result<(), ExecError>;
}
