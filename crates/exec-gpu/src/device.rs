//! The GPUs of this machine: which there are, and what each can be given. A device is opened once in a process and
//! shared by all that ask for it.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};
use cubecl::future::block_on;
use cubecl::prelude::Client;
use cubecl::server::Handle;
use cubecl::wgpu::wgpu::{self, Backend, Backends, DeviceType, Instance, InstanceDescriptor};
use cubecl::wgpu::{AutoGraphicsApi, RuntimeOptions, WgpuSetup, try_init_setup};
use cubecl::{Device, MemoryScope};
use memfit_exec::ExecError;

use crate::call::Key;
use crate::staging::Keeping;

/// An open device.
pub struct Gpu {
    /// On one queue, whichever thread uses it: the runtime would give each thread its own, and orders two of them by who
    /// made a buffer, not by who wrote it.
    pub(crate) client: Client,
    /// The shaders that are known to run: by key, and how many operands and numbers they are given.
    pub(crate) probed: Mutex<HashSet<(Key, usize, usize)>>,
    /// Each with the time from its launch to its answer, which is that of its compilation.
    pub(crate) compiled: Mutex<Vec<(&'static str, Duration)>>,
    /// A few words that kernels are tried on.
    pub(crate) canary: OnceLock<Handle>,
    /// Below the runtime: copies go this way.
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// Bytes of all buffers that copies go through.
    pub(crate) staged: AtomicU64,
    /// What is put aside with the next submission, whoever makes it.
    keeping: Mutex<Vec<Keeping>>,
    /// Held by whoever sends to the runtime, and as long as what is sent belongs together: while a segment is taken, while
    /// launches are captured.
    sending: Mutex<()>,
    /// "gpu:0"
    pub id: String,
    /// As its driver calls it.
    pub name: String,
    /// "vulkan", "metal", "dx12"
    pub api: String,
    pub kind: Kind,
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Discrete,
    Integrated,
    Virtual,
    /// A rasteriser that runs on the CPU: right, but slow.
    Software,
    Other,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Discrete => "discrete",
            Kind::Integrated => "integrated",
            Kind::Virtual => "virtual",
            Kind::Software => "software",
            Kind::Other => "other",
        }
    }
}

/// What the device can be given. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of the start of every operand; a power of two.
    pub alignment: u64,
    /// One operand of a kernel.
    pub binding: u64,
    /// One allocation.
    pub buffer: u64,
    /// Operands of one kernel.
    pub bindings: usize,
}

/// The devices of this machine, in the order in which they are numbered. One that cannot be opened is given as the error.
pub fn devices() -> Vec<Result<Arc<Gpu>, ExecError>> {
    let count = known().found.len();
    (0..count).map(open).collect()
}

/// Opens a device, or gives it again.
pub fn open(index: usize) -> Result<Arc<Gpu>, ExecError> {
    let mut known = known();
    let failed = |problem: String| ExecError::Device { device: format!("gpu:{index}"), problem };
    let count = known.found.len();
    let Some((device, open)) = known.found.get_mut(index) else { return Err(failed(missing(count))) };
    if let Some(gpu) = open {
        return Ok(gpu.clone());
    }
    let options = RuntimeOptions::try_default().map_err(|e| failed(e.to_string()))?;
    let setup = try_init_setup::<AutoGraphicsApi>(device, options).map_err(|e| failed(e.to_string()))?;
    Ok(open.insert(Arc::new(Gpu::new(index, device, &setup))).clone())
}

/// What this process knows of the machine's devices. Drivers are asked once, by one thread at a time: some break when
/// several ask.
struct DeviceList {
    asked: bool,
    /// Each with what it is when it is open.
    found: Vec<(WgpuDevice, Option<Arc<Gpu>>)>,
}

static KNOWN: Mutex<DeviceList> = Mutex::new(DeviceList { asked: false, found: Vec::new() });

fn known() -> MutexGuard<'static, DeviceList> {
    // A panic in a driver leaves nothing half-done here.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.asked {
        known.found = ask().into_iter().map(|device| (device, None)).collect();
        known.asked = true;
    }
    known
}

/// The system's own way to its GPUs. Others, such as OpenGL, would name the same ones again.
const API: (WgpuBackend, Backend) = if cfg!(target_vendor = "apple") {
    (WgpuBackend::Metal, Backend::Metal)
} else if cfg!(windows) {
    (WgpuBackend::Dx12, Backend::Dx12)
} else {
    (WgpuBackend::Vulkan, Backend::Vulkan)
};

/// The devices, the strongest kind first, each kind in the order of its driver: so the runtime numbers them, too.
fn ask() -> Vec<WgpuDevice> {
    let backends = Backends::from(API.1);
    let instance = Instance::new(InstanceDescriptor { backends, ..InstanceDescriptor::new_without_display_handle() });
    let adapters = block_on(instance.enumerate_adapters(backends));
    let count = |kind: DeviceType| adapters.iter().filter(|a| a.get_info().device_type == kind).count();
    let discrete = (0..count(DeviceType::DiscreteGpu)).map(WgpuDeviceKind::DiscreteGpu);
    let integrated = (0..count(DeviceType::IntegratedGpu)).map(WgpuDeviceKind::IntegratedGpu);
    let virtual_ones = (0..count(DeviceType::VirtualGpu)).map(WgpuDeviceKind::VirtualGpu);
    let others = (0..count(DeviceType::Other)).map(WgpuDeviceKind::Other);
    // The runtime knows one of them only.
    let software = (0..count(DeviceType::Cpu).min(1)).map(|_| WgpuDeviceKind::Cpu);
    let kinds = discrete.chain(integrated).chain(virtual_ones).chain(others).chain(software);
    kinds.map(|kind| WgpuDevice::new(kind).on(API.0)).collect()
}

fn missing(found: usize) -> String {
    match found {
        0 => "this machine has no GPU with a driver; on Debian, mesa-vulkan-drivers brings one in software".into(),
        n => format!("this machine has {n} GPUs, numbered from 0"),
    }
}

fn on_one_queue(mut client: Client) -> Client {
    let report = client.memory_report(MemoryScope::CurrentStream);
    if let Some(own) = report.streams.first() {
        // SAFETY: all that reaches the device from here goes through this client, in the order in which it is sent.
        unsafe { client.set_stream(own.stream) };
    }
    client
}

impl Gpu {
    fn new(index: usize, device: &WgpuDevice, setup: &WgpuSetup) -> Gpu {
        let (info, limits) = (setup.adapter.get_info(), setup.device.limits());
        let client = on_one_queue(Device::Wgpu(device.clone()).client());
        let properties = client.properties();
        let limits = Limits {
            alignment: properties.memory.alignment.max(limits.min_storage_buffer_offset_alignment.into()),
            binding: limits.max_storage_buffer_binding_size,
            buffer: limits.max_buffer_size,
            bindings: properties.hardware.max_bindings as usize,
        };
        let kind = match info.device_type {
            DeviceType::DiscreteGpu => Kind::Discrete,
            DeviceType::IntegratedGpu => Kind::Integrated,
            DeviceType::VirtualGpu => Kind::Virtual,
            DeviceType::Cpu => Kind::Software,
            DeviceType::Other => Kind::Other,
        };
        let (name, api) = (info.name, info.backend.to_string());
        let (device, queue) = (setup.device.clone(), setup.queue.clone());
        Gpu {
            client,
            probed: Mutex::default(),
            compiled: Mutex::default(),
            canary: OnceLock::new(),
            device,
            queue,
            staged: AtomicU64::new(0),
            keeping: Mutex::default(),
            sending: Mutex::new(()),
            id: format!("gpu:{index}"),
            name,
            api,
            kind,
            limits,
        }
    }

    /// The shaders that were compiled so far, each with its kernel's name and the time that took.
    pub fn compiled(&self) -> Vec<(&'static str, Duration)> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The runtime for oneself: launches of others would be captured with one's own, and what they allocate or read would fail.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keeping(&self) -> MutexGuard<'_, Vec<Keeping>> {
        self.keeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn error(&self, problem: impl ToString) -> ExecError {
        ExecError::Device { device: format!("{} ({})", self.id, self.name), problem: problem.to_string() }
    }
}
