//! Any device that plans run on, behind one type: for programs that learn only when they run which device that is. Each call
//! is one `match` more than the executor's own, beside a kernel that runs for microseconds at least.

use std::ops::Range;
use std::time::Duration;

use memfit_exec::recorder::{KernelClock, LaunchId, Recorder};
use memfit_exec::{Arena, Device, ExecError, Executor, Growth, KernelError};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_cpu::isa::Isa;
#[cfg(feature = "gpu")]
use memfit_exec_gpu::GpuExecutor;
use memfit_plan::{CostModel, Launch, Place, Plan, Program, Target};

use crate::calibrate;

/// Clones share their threads.
#[derive(Clone)]
pub enum AnyExecutor {
    /// Of the CPU.
    Cpu(CpuExecutor),
    /// Of a GPU.
    #[cfg(feature = "gpu")]
    Gpu(GpuExecutor),
}

/// A segment of a plan, on the executor's device.
pub enum AnyMemory {
    /// Of the CPU.
    Cpu(<CpuExecutor as Executor>::Memory),
    /// Of a GPU.
    #[cfg(feature = "gpu")]
    Gpu(<GpuExecutor as Executor>::Memory),
}

/// A compiled group.
pub enum AnyKernel {
    /// Of the CPU.
    Cpu(<CpuExecutor as Executor>::Kernel),
    /// Of a GPU.
    #[cfg(feature = "gpu")]
    Gpu(<GpuExecutor as Executor>::Kernel),
}

/// A program as a device repeats it.
pub enum AnyCaptured {
    /// Of the CPU, which repeats none.
    Cpu(<CpuExecutor as Executor>::Captured),
    /// Of a GPU.
    #[cfg(feature = "gpu")]
    Gpu(<GpuExecutor as Executor>::Captured),
}

impl AnyExecutor {
    /// The name of what a plan for a GPU depends on: see [`AnyExecutor::identity`].
    pub const ADAPTER: &str = "gpu";

    /// For the device of this name, such as `cpu`, `cpu:0` or `gpu:0`. Threads are the CPU's. A logical device has a limit,
    /// which its name does not say: see [`AnyExecutor::for_device`].
    pub fn open(device: &str, threads: usize) -> Result<AnyExecutor, ExecError> {
        let (kind, number) = device.split_once(':').unwrap_or((device, "0"));
        match (kind, number.parse::<usize>()) {
            ("cpu", Ok(0)) => Ok(AnyExecutor::Cpu(CpuExecutor::new(threads)?)),
            ("gpu", Ok(number)) => gpu(number),
            _ => Err(unknown(device, "there is no such device")),
        }
    }

    /// For this device, whole or logical, and within its limit.
    pub fn for_device(device: &Device, threads: usize) -> Result<AnyExecutor, ExecError> {
        let whole = device.name().split('/').next().unwrap_or_default();
        Ok(AnyExecutor::open(whole, threads)?.on(device.clone()))
    }

    /// What times are predicted from on the device of this name, where nothing was measured. Threads are the CPU's.
    pub fn default_cost_model(device: &str, threads: usize) -> Result<CostModel, ExecError> {
        if device.starts_with("cpu") {
            return Ok(CpuExecutor::default_cost_model(Isa::chosen()?, threads));
        }
        let whole = device.split('/').next().unwrap_or_default();
        Ok(AnyExecutor::open(whole, 1)?.target().cost_model())
    }

    /// How many GPUs this machine has; none where this build knows of no GPUs.
    pub fn gpu_count() -> Option<usize> {
        #[cfg(feature = "gpu")]
        return Some(memfit_exec_gpu::count());
        #[cfg(not(feature = "gpu"))]
        None
    }

    /// The memory of the GPU of this number, which is opened for that.
    pub fn gpu_memory(number: usize) -> Result<Device, ExecError> {
        Ok(gpu(number)?.device().clone())
    }

    /// What the driver calls the device of this name; none for the CPU, which has no driver.
    pub fn adapter(device: &str) -> Result<Option<String>, ExecError> {
        if device.starts_with("cpu") {
            return Ok(None);
        }
        let whole = device.split('/').next().unwrap_or_default();
        Ok(AnyExecutor::open(whole, 1)?.identity().into_iter().next().map(|(_, name)| name))
    }

    /// Whether memory can be had page by page, when it is touched.
    pub fn gives_pages(&self) -> bool {
        match self {
            AnyExecutor::Cpu(_) => true,
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(_) => false,
        }
    }

    /// Whether what it gives is memory of this process: that of a CPU is, and that of a rasteriser in software.
    pub fn gives_process_memory(&self) -> bool {
        match self {
            AnyExecutor::Cpu(_) => true,
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.gpu().target.kind == memfit_exec_gpu::adapters::Kind::Software,
        }
    }

    /// How long a single program is worth measuring. What runs shaders in software is for tests, and a model has many of them.
    pub fn patience(&self) -> Duration {
        match self {
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(_) if self.gives_process_memory() => Duration::from_secs(1),
            _ => calibrate::PATIENCE,
        }
    }

    /// The same with the memory of another device, such as a logical one.
    pub fn on(&self, device: Device) -> AnyExecutor {
        match self {
            AnyExecutor::Cpu(cpu) => AnyExecutor::Cpu(cpu.on(device)),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => AnyExecutor::Gpu(gpu.on(device)),
        }
    }

    /// What a plan for this executor depends on, each with its name: such plans run on no other.
    pub fn identity(&self) -> Vec<(&'static str, String)> {
        match self {
            AnyExecutor::Cpu(cpu) => {
                vec![("threads", cpu.threads().to_string()), ("instructions", cpu.isa().name().to_string())]
            }
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => vec![(AnyExecutor::ADAPTER, gpu.gpu().name.clone())],
        }
    }
}

fn unknown(device: &str, problem: &str) -> ExecError {
    ExecError::Device { device: device.into(), problem: problem.into() }
}

#[cfg(feature = "gpu")]
fn gpu(number: usize) -> Result<AnyExecutor, ExecError> {
    Ok(AnyExecutor::Gpu(GpuExecutor::new(number)?))
}

#[cfg(not(feature = "gpu"))]
fn gpu(number: usize) -> Result<AnyExecutor, ExecError> {
    Err(unknown(&format!("gpu:{number}"), "this build is without the feature gpu"))
}

/// Memory and kernels are of the executor that made them; another one's are a bug of the caller.
#[cfg(feature = "gpu")]
fn foreign() -> ! {
    panic!("memory or a kernel of another device")
}

impl Executor for AnyExecutor {
    type Memory = AnyMemory;
    type Kernel = AnyKernel;
    type Captured = AnyCaptured;

    fn target(&self) -> &dyn Target {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.target(),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.target(),
        }
    }

    fn device(&self) -> &Device {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.device(),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.device(),
        }
    }

    fn allocate(&self, holder: &str, bytes: u64, growth: Growth) -> Result<AnyMemory, ExecError> {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.allocate(holder, bytes, growth).map(AnyMemory::Cpu),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.allocate(holder, bytes, growth).map(AnyMemory::Gpu),
        }
    }

    fn take_staging(&mut self, holder: &str, plan: &Plan) -> Result<(), ExecError> {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.take_staging(holder, plan),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.take_staging(holder, plan),
        }
    }

    fn compile(&self, program: &Program, launch: &Launch) -> Result<AnyKernel, ExecError> {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.compile(program, launch).map(AnyKernel::Cpu),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.compile(program, launch).map(AnyKernel::Gpu),
        }
    }

    fn launch(&self, kernel: &AnyKernel, arena: &mut Arena<AnyMemory>) -> Result<(), KernelError> {
        match (self, kernel, &mut *arena.state, &mut *arena.transient) {
            (AnyExecutor::Cpu(cpu), AnyKernel::Cpu(kernel), AnyMemory::Cpu(state), AnyMemory::Cpu(transient)) => {
                cpu.launch(kernel, &mut Arena { state, transient })
            }
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyKernel::Gpu(kernel), AnyMemory::Gpu(state), AnyMemory::Gpu(transient)) => {
                gpu.launch(kernel, &mut Arena { state, transient })
            }
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn launch_recorded(
        &self,
        kernel: &AnyKernel,
        arena: &mut Arena<AnyMemory>,
        id: LaunchId,
        recorder: &Recorder,
    ) -> Result<(), KernelError> {
        match (self, kernel, &mut *arena.state, &mut *arena.transient) {
            (AnyExecutor::Cpu(cpu), AnyKernel::Cpu(kernel), AnyMemory::Cpu(state), AnyMemory::Cpu(transient)) => {
                cpu.launch_recorded(kernel, &mut Arena { state, transient }, id, recorder)
            }
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyKernel::Gpu(kernel), AnyMemory::Gpu(state), AnyMemory::Gpu(transient)) => {
                gpu.launch_recorded(kernel, &mut Arena { state, transient }, id, recorder)
            }
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn tell_recorded(&self, recorder: &Recorder) -> Result<(), ExecError> {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.tell_recorded(recorder),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.tell_recorded(recorder),
        }
    }

    fn kernel_clock(&self) -> KernelClock {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.kernel_clock(),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.kernel_clock(),
        }
    }

    fn capture(&self, kernels: &[AnyKernel], arena: &mut Arena<AnyMemory>) -> Result<Option<AnyCaptured>, ExecError> {
        match (self, &mut *arena.state, &mut *arena.transient) {
            (AnyExecutor::Cpu(_), AnyMemory::Cpu(_), AnyMemory::Cpu(_)) => {
                debug_assert!(kernels.iter().all(|kernel| matches!(kernel, AnyKernel::Cpu(_))));
                // It launches them one by one.
                Ok(None)
            }
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(state), AnyMemory::Gpu(transient)) => {
                let kernels = kernels.iter().map(|kernel| match kernel {
                    AnyKernel::Gpu(kernel) => kernel,
                    AnyKernel::Cpu(_) => foreign(),
                });
                let captured = gpu.capture_all(kernels, &Arena { state, transient })?;
                Ok(Some(AnyCaptured::Gpu(captured)))
            }
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn replay(&self, captured: &AnyCaptured) -> Result<(), ExecError> {
        match (self, captured) {
            (AnyExecutor::Cpu(cpu), AnyCaptured::Cpu(captured)) => cpu.replay(captured),
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyCaptured::Gpu(captured)) => gpu.replay(captured),
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn end_run(&self) -> Result<(), ExecError> {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.end_run(),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.end_run(),
        }
    }

    fn keep(&self, arena: &mut Arena<AnyMemory>, places: &[Place]) -> Result<bool, ExecError> {
        match (self, &mut *arena.state, &mut *arena.transient) {
            (AnyExecutor::Cpu(cpu), AnyMemory::Cpu(state), AnyMemory::Cpu(transient)) => {
                cpu.keep(&mut Arena { state, transient }, places)
            }
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(state), AnyMemory::Gpu(transient)) => {
                gpu.keep(&mut Arena { state, transient }, places)
            }
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn kept(&self, words: &mut [u32]) -> Result<(), ExecError> {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.kept(words),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.kept(words),
        }
    }

    fn host_base(&self, memory: &mut AnyMemory) -> Option<*mut u8> {
        match (self, memory) {
            (AnyExecutor::Cpu(cpu), AnyMemory::Cpu(memory)) => cpu.host_base(memory),
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(memory)) => gpu.host_base(memory),
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn resident_bytes(&self, memory: &AnyMemory) -> Option<u64> {
        match (self, memory) {
            (AnyExecutor::Cpu(cpu), AnyMemory::Cpu(memory)) => cpu.resident_bytes(memory),
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(memory)) => gpu.resident_bytes(memory),
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn write(&self, memory: &mut AnyMemory, place: Place, offset: u64, bytes: &[u8]) {
        match (self, memory) {
            (AnyExecutor::Cpu(cpu), AnyMemory::Cpu(memory)) => cpu.write(memory, place, offset, bytes),
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(memory)) => gpu.write(memory, place, offset, bytes),
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn read(&self, memory: &AnyMemory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        match (self, memory) {
            (AnyExecutor::Cpu(cpu), AnyMemory::Cpu(memory)) => cpu.read(memory, place, bytes),
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(memory)) => gpu.read(memory, place, bytes),
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn read_all(&self, memory: &AnyMemory, places: &[(Place, Range<usize>)], room: &mut [u8]) -> Result<(), ExecError> {
        match (self, memory) {
            (AnyExecutor::Cpu(cpu), AnyMemory::Cpu(memory)) => cpu.read_all(memory, places, room),
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(memory)) => gpu.read_all(memory, places, room),
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn fill(&self, memory: &mut AnyMemory, place: Place, byte: u8) {
        match (self, memory) {
            (AnyExecutor::Cpu(cpu), AnyMemory::Cpu(memory)) => cpu.fill(memory, place, byte),
            #[cfg(feature = "gpu")]
            (AnyExecutor::Gpu(gpu), AnyMemory::Gpu(memory)) => gpu.fill(memory, place, byte),
            #[cfg(feature = "gpu")]
            _ => foreign(),
        }
    }

    fn wait(&self) -> Result<(), ExecError> {
        match self {
            AnyExecutor::Cpu(cpu) => cpu.wait(),
            #[cfg(feature = "gpu")]
            AnyExecutor::Gpu(gpu) => gpu.wait(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_opened_by_its_name() {
        for name in ["cpu", "cpu:0"] {
            let executor = AnyExecutor::open(name, 2).expect("there is a CPU");
            assert_eq!(executor.identity()[0], ("threads", "2".to_string()));
        }
        for name in ["tpu:0", "cpu:1", "", "cpu:x", "gpu:999", "cpu:0/1", "cpu:0/banana"] {
            assert!(AnyExecutor::open(name, 1).is_err(), "{name}");
        }
        assert!(AnyExecutor::open("cpu:0", 0).is_err());
        let parts = Device::new("cpu:0", 100).split(&[30, 70]).expect("there is room");
        let executor = AnyExecutor::for_device(&parts[1], 1).expect("there is a CPU");
        assert_eq!((executor.device().name(), executor.device().limit()), ("cpu:0/1", 70));
    }
    /// Else replicas would exchange through memory that no plan knows of.
    #[test]
    fn the_memory_of_a_cpu_is_the_hosts() {
        let executor = AnyExecutor::open("cpu", 1).expect("there is a CPU");
        let mut memory = executor.allocate("a test", 64, Growth::Commit).expect("there is room");
        assert!(executor.host_base(&mut memory).is_some());
    }
}
