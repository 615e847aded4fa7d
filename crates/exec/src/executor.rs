//! What a device must do: give memory, compile a group, run it, move bytes. One trait for every kind of device.

use memfit_plan::{Launch, Place, Program, Target};

use crate::arena::Arena;
use crate::device::Device;
use crate::error::{ExecError, KernelError};
use crate::host_memory::Growth;
use crate::recorder::{LaunchId, Recorder, now};

pub trait Executor {
    /// A segment of a plan in the device's memory.
    type Memory;
    /// A compiled group, bound to its places.
    type Kernel;

    /// What the planner asks this device.
    fn target(&self) -> &dyn Target;

    /// The device, of which all memory is taken.
    fn device(&self) -> &Device;

    /// Takes a segment for a holder of this name, once. Everything that a run needs afterwards lies in its two segments.
    fn allocate(&self, holder: &str, bytes: u64, growth: Growth) -> Result<Self::Memory, ExecError>;

    /// Makes the kernel of a launch. May allocate; [`Executor::launch`] may not.
    fn compile(&self, program: &Program, launch: &Launch) -> Result<Self::Kernel, ExecError>;

    /// Starts a kernel. What is started later, written, filled or read sees its results; but it may still run when this
    /// returns, and what goes wrong then is reported by [`Executor::read`] and [`Executor::wait`].
    fn launch(&self, kernel: &Self::Kernel, arena: &mut Arena<Self::Memory>) -> Result<(), KernelError>;

    /// The same, and tells when it began and ended, as far as the device knows that without waiting. Here it is what the host sees,
    /// on one thread.
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

    /// Bytes of a segment in pages that the system holds at the moment; none where nobody can tell.
    fn resident_bytes(&self, _memory: &Self::Memory) -> Option<u64> {
        None
    }

    /// Copies bytes of the host to `offset` bytes into a place of this segment; the host may change them at once.
    fn write(&self, memory: &mut Self::Memory, place: Place, offset: u64, bytes: &[u8]);

    /// Copies a place, from its start, to the host, once everything started before has run.
    fn read(&self, memory: &Self::Memory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError>;

    /// Sets every byte of a place. A device that writes words may also set the bytes up to the next multiple of four,
    /// which belong to no place.
    fn fill(&self, memory: &mut Self::Memory, place: Place, byte: u8);

    /// Waits until everything that was started has run.
    fn wait(&self) -> Result<(), ExecError>;
}
