//! The executor itself: how plans run on a GPU.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use cubecl::MemoryScope;
use cubecl::client::Graph as CapturedGraph;
use cubecl::future::block_on;
use cubecl::prelude::Client;
use cubecl::server::Handle;
use memfit_exec::recorder::{KernelClock, LaunchId, Recorder, now};
use memfit_exec::{Arena, Device, ExecError, Executor, Growth, KernelError};
use memfit_plan::{Launch, Place, Plan, Program, Target, staged_programs};

use crate::arena::GpuMemory;
use crate::device::{Gpu, open};
use crate::launch::{Kernel, compile, launch_fill};
use crate::sizes::StagingSizes;
use crate::staging::Staging;

/// Clones are the same GPU, and their copies go the same way.
#[derive(Clone)]
pub struct GpuExecutor {
    gpu: Arc<Gpu>,
    device: Device,
    copies: Arc<Mutex<Copies>>,
}

/// How bytes come to the device and back.
#[derive(Default)]
struct Copies {
    /// Of the engine; without one, taken at the first copy.
    staging: Option<Staging>,
    /// What went wrong where there was nobody to tell.
    failed: Option<ExecError>,
}

/// The launches of a program, recorded.
pub struct Captured(CapturedGraph);

impl GpuExecutor {
    /// On the GPU of this number; see [`crate::devices`].
    pub fn new(index: usize) -> Result<GpuExecutor, ExecError> {
        let gpu = open(index)?;
        let device = gpu.device().clone();
        Ok(GpuExecutor { gpu, device, copies: Arc::default() })
    }

    /// The same GPU with the memory of another device, such as a logical one.
    pub fn on(&self, device: Device) -> GpuExecutor {
        GpuExecutor { gpu: self.gpu.clone(), device, copies: Arc::default() }
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// What all executors in this process have taken of the GPU, in bytes.
    pub fn reserved_bytes(&self) -> Reserved {
        let report = self.gpu.client.memory_report(MemoryScope::Device);
        let auxiliary = report.streams.iter().flat_map(|s| &s.auxiliary);
        let beside: u64 = auxiliary.map(|memory| memory.pools.usage().bytes_reserved).sum();
        let canary = self.gpu.canary.get().map_or(0, |handle| handle.size_in_used());
        let dedicated: u64 = report.streams.iter().map(|s| s.pools.dedicated.usage.bytes_in_use).sum();
        let segments = dedicated - canary;
        let rest = report.usage().bytes_reserved - beside - canary;
        let allocator = self.gpu.device.generate_allocator_report().map(|report| report.total_reserved_bytes);
        let staging = self.gpu.staged.load(Ordering::Relaxed);
        Reserved { segments, staging, parameters: beside + canary, other: rest.saturating_sub(segments), allocator }
    }

    /// Of that, what the runtime has given out: segments, and of the pages for parameters what is used. Copies are not its own.
    pub fn in_use_bytes(&self) -> u64 {
        self.gpu.client.memory_report(MemoryScope::Device).usage().bytes_in_use
    }

    /// Takes down what launching these kernels does: see [`Executor::capture`]. The runtime refuses whatever is not a launch,
    /// an allocation above all.
    pub fn capture_all<'a>(
        &self,
        kernels: impl IntoIterator<Item = &'a Kernel>,
        arena: &Arena<GpuMemory>,
    ) -> Result<Captured, ExecError> {
        self.capture_launches(|client| kernels.into_iter().for_each(|kernel| kernel.launch(client, arena)))
    }

    /// The same of launches of whatever kind.
    pub fn capture_launches(&self, launch: impl FnOnce(&Client)) -> Result<Captured, ExecError> {
        self.copy(Staging::submit_all)?;
        let (_alone, client) = (self.gpu.alone(), &self.gpu.client);
        client.graph_prepare().map_err(|e| self.gpu.error(e))?;
        let started = client.start_capture();
        if started.is_ok() {
            launch(client);
        }
        // Also where it could not be started: it is prepared no more then.
        let captured = client.stop_capture();
        started.and(captured).map(Captured).map_err(|e| self.gpu.error(e))
    }

    /// Does something with the buffers that copies go through; first what could not be told before is told.
    fn copy<T>(&self, copy: impl FnOnce(&mut Staging) -> Result<T, ExecError>) -> Result<T, ExecError> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let Copies { staging, failed } = &mut *copies;
        failed.take().map_or(Ok(()), Err)?;
        let staging = match staging {
            Some(staging) => staging,
            None => {
                let sizes = StagingSizes::new(&[], &self.gpu.target);
                let bytes = sizes.bytes();
                staging.insert(Staging::new(&self.gpu, &self.device, "copies", sizes, bytes)?)
            }
        };
        copy(staging)
    }

    /// The same where nobody can be told of what goes wrong: the next one who can is.
    fn copy_silently(&self, copy: impl FnOnce(&mut Staging) -> Result<(), ExecError>) {
        self.keep_failure(self.copy(copy));
    }

    /// Until somebody can be told.
    fn keep_failure(&self, result: Result<(), ExecError>) {
        if let Err(e) = result {
            self.copies.lock().unwrap_or_else(PoisonError::into_inner).failed.get_or_insert(e);
        }
    }

    /// Whether what is to be read was written: where a kernel could not be launched, its results carry the reason.
    fn check<'a>(&self, places: impl IntoIterator<Item = (&'a GpuMemory, Place)>) -> Result<(), ExecError> {
        let slices: Vec<Handle> = places.into_iter().map(|(memory, place)| memory.slice(place)).collect();
        self.gpu.client.check(&slices).map_err(|e| self.gpu.error(e))
    }
}

/// Bytes of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Of all arenas.
    pub segments: u64,
    /// What copies from and to the host go through.
    pub staging: u64,
    /// What the runtime keeps for the parameters of kernels, and the words that they are tried on.
    pub parameters: u64,
    /// What it keeps else: nothing that memfit knows of.
    pub other: u64,
    /// All of it as the driver gave it, in blocks; none where it does not say.
    pub allocator: Option<u64>,
}

impl Reserved {
    /// What was asked for, without what blocks round up.
    pub fn all(&self) -> u64 {
        self.segments + self.staging + self.parameters + self.other
    }
}

impl Executor for GpuExecutor {
    type Memory = GpuMemory;
    type Kernel = Kernel;
    type Captured = Captured;

    fn target(&self) -> &dyn Target {
        &self.gpu.target
    }

    /// A device gives an allocation whole: it cannot grow page by page.
    fn allocate(&self, holder: &str, bytes: u64, _: Growth) -> Result<GpuMemory, ExecError> {
        GpuMemory::new(&self.gpu, &self.device, holder, bytes)
    }

    fn take_staging(&mut self, holder: &str, plan: &Plan) -> Result<(), ExecError> {
        let sizes = StagingSizes::new(&staged_programs(&plan.programs, self.target()), &self.gpu.target);
        let staging = Some(Staging::new(&self.gpu, &self.device, holder, sizes, plan.staging_bytes)?);
        self.copies = Arc::new(Mutex::new(Copies { staging, failed: None }));
        Ok(())
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn compile(&self, program: &Program, launch: &Launch) -> Result<Kernel, ExecError> {
        compile(&self.gpu, program, launch)
    }

    fn launch(&self, kernel: &Kernel, arena: &mut Arena<GpuMemory>) -> Result<(), KernelError> {
        self.copy_silently(Staging::submit_writes);
        let _alone = self.gpu.alone();
        kernel.launch(&self.gpu.client, arena);
        Ok(())
    }

    /// Between two stamps of the device's clock. Where it has none, the host waits for each kernel, so that its time is its own: with
    /// nothing else queued, the device has nothing to overlap it with.
    fn launch_recorded(
        &self,
        kernel: &Kernel,
        arena: &mut Arena<GpuMemory>,
        id: LaunchId,
        recorder: &Recorder,
    ) -> Result<(), KernelError> {
        if self.gpu.tick.is_some() {
            self.copy_silently(|staging| staging.launch_stamped(id, recorder, |client| kernel.launch(client, arena)));
            return Ok(());
        }
        self.keep_failure(self.wait());
        let begin = now();
        self.launch(kernel, arena)?;
        self.keep_failure(self.wait());
        recorder.kernel(id, [(0, begin, now())]);
        Ok(())
    }

    fn tell_recorded(&self, recorder: &Recorder) -> Result<(), ExecError> {
        self.copy(|staging| staging.tell_stamped(recorder))
    }

    fn kernel_clock(&self) -> KernelClock {
        if self.gpu.tick.is_some() { KernelClock::Device } else { KernelClock::Waiting }
    }

    fn capture(&self, kernels: &[Kernel], arena: &mut Arena<GpuMemory>) -> Result<Option<Captured>, ExecError> {
        self.capture_all(kernels, arena).map(Some)
    }

    fn replay(&self, captured: &Captured) -> Result<(), ExecError> {
        self.copy(Staging::submit_writes)?;
        let _alone = self.gpu.alone();
        // SAFETY: the engine has both segments as long as what was captured in them, and all that uses them goes the way of
        // the same client.
        unsafe { captured.0.replay() }.map_err(|e| self.gpu.error(e))
    }

    fn end_run(&self) -> Result<(), ExecError> {
        self.copy(Staging::end_run)
    }

    fn write(&self, memory: &mut GpuMemory, place: Place, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.copy_silently(|staging| staging.write(memory.buffer(place), place.offset + offset, bytes));
        }
    }

    fn read(&self, memory: &GpuMemory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        let all = 0..bytes.len();
        self.read_all(memory, &[(place, all)], bytes)
    }

    fn read_all(&self, memory: &GpuMemory, places: &[(Place, Range<usize>)], room: &mut [u8]) -> Result<(), ExecError> {
        let parts = || places.iter().filter(|(_, part)| !part.is_empty());
        let Some((first, _)) = parts().next() else { return Ok(()) };
        self.check(parts().map(|(place, _)| (memory, *place)))?;
        let from = memory.buffer(*first);
        self.copy(|staging| staging.read(from, parts().map(|(place, part)| (place.offset, part.clone())), room))
    }

    fn keep(&self, arena: &mut Arena<GpuMemory>, places: &[Place]) -> Result<bool, ExecError> {
        self.check(places.iter().map(|&place| (arena.segment(place), place)))?;
        let words = places.iter().map(|&place| (arena.segment(place).buffer(place), place.offset));
        self.copy(|staging| {
            staging.keep(words);
            Ok(true)
        })
    }

    fn kept(&self, words: &mut [u32]) -> Result<(), ExecError> {
        self.copy(|staging| staging.kept(words))
    }

    fn fill(&self, memory: &mut GpuMemory, place: Place, byte: u8) {
        if place.size == 0 {
            return;
        }
        if byte == 0 {
            return self.copy_silently(|staging| {
                staging.clear(memory.buffer(place), place.offset, place.size);
                Ok(())
            });
        }
        self.copy_silently(Staging::submit_writes);
        let _alone = self.gpu.alone();
        launch_fill(&self.gpu.client, memory, place, byte);
    }

    fn wait(&self) -> Result<(), ExecError> {
        self.copy(Staging::submit_all)?;
        let alone = self.gpu.alone();
        let ended = self.gpu.client.sync();
        drop(alone);
        block_on(ended).map_err(|e| self.gpu.error(e))
    }
}
