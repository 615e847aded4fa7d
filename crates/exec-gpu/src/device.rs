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
use cubecl::wgpu::wgpu::{self, AdapterInfo, Backend, Backends, DeviceType, Instance, InstanceDescriptor};
use cubecl::wgpu::{AutoGraphicsApi, RuntimeOptions, WgpuSetup, try_init_setup};
use cubecl::{Device, MemoryScope};
use memfit_exec::{Device as Ledger, ExecError, Reservation};

use crate::adapters::{Adapter, Kind, Numbered, numbered};
use crate::call::Key;
use crate::card_memory::CardMemory;
use crate::staging::Keeping;
use crate::stamps::Stamps;
use crate::target::{GpuTarget, Limits};

/// An open device.
pub struct Gpu {
    /// On one queue, whichever thread uses it: the runtime would give each thread its own, and orders two of them by who
    /// made a buffer, not by who wrote it.
    pub(crate) client: Client,
    /// The shaders that are known to run: by key, and how many operands and numbers they are given.
    pub(crate) probed: Mutex<HashSet<(Key, usize, usize)>>,
    /// The same of cubek's, by what they are compiled from.
    pub(crate) products: Mutex<HashSet<String>>,
    /// Each with the time from its launch to its answer, which is that of its compilation.
    pub(crate) compiled: Mutex<Vec<(&'static str, Duration)>>,
    /// A few words that kernels are tried on.
    pub(crate) canary: OnceLock<Handle>,
    /// Below the runtime: copies go this way.
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// Nanoseconds of a tick of its clock, where it has one that kernels can be timed with.
    pub(crate) tick: Option<f64>,
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
    /// Its name and version.
    pub driver: String,
    /// What the planner may ask of it.
    pub target: GpuTarget,
    /// What kernels are compiled to: "wgsl", "spirv" or "msl".
    pub compiler: String,
    pub features: Features,
    /// When it was opened.
    pub memory: CardMemory,
    /// Who holds what of it in this process. There is one, so that its limit holds for all.
    ledger: Ledger,
    /// What other programs held then.
    _others: Option<Reservation>,
}

/// What not every device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Floats of 16 bits.
    pub f16: bool,
    /// Integers of 64 bits.
    pub int64: bool,
    /// Units that exchange registers: the fewest and the most of them, where there are such.
    pub subgroups: Option<[u32; 2]>,
    /// A clock that kernels can be timed with, without waiting for them.
    pub timestamps: bool,
}

/// The devices of this machine, in the order in which they are numbered. One that cannot be opened is given as the error.
pub fn devices() -> Vec<Result<Arc<Gpu>, ExecError>> {
    (0..count()).map(open).collect()
}

/// How many devices this machine has. None is opened for that.
pub fn count() -> usize {
    known().found.len()
}

/// Opens a device, or gives it again.
pub fn open(index: usize) -> Result<Arc<Gpu>, ExecError> {
    let mut known = known();
    let failed = |problem: String| ExecError::Device { device: format!("gpu:{index}"), problem };
    let count = known.found.len();
    let Some((listed, open)) = known.found.get_mut(index) else { return Err(failed(missing(count))) };
    if let Some(gpu) = open {
        return Ok(gpu.clone());
    }
    let device = WgpuDevice::new(selector(listed)).on(API.0);
    let options = RuntimeOptions::try_default().map_err(|e| failed(e.to_string()))?;
    let setup = try_init_setup::<AutoGraphicsApi>(&device, options).map_err(|e| failed(e.to_string()))?;
    let opened = adapter(&setup.adapter.get_info());
    if opened != listed.adapter {
        return Err(failed(format!("it was {} when it was listed, and is {} now", listed.adapter.name, opened.name)));
    }
    Ok(open.insert(Arc::new(Gpu::new(index, &device, &setup))).clone())
}

/// What this process knows of the machine's devices. Drivers are asked once, by one thread at a time: some break when
/// several ask.
struct DeviceList {
    asked: bool,
    /// Each with what it is when it is open.
    found: Vec<(Numbered, Option<Arc<Gpu>>)>,
}

static KNOWN: Mutex<DeviceList> = Mutex::new(DeviceList { asked: false, found: Vec::new() });

fn known() -> MutexGuard<'static, DeviceList> {
    // A panic in a driver leaves nothing half-done here.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.asked {
        known.found = numbered(&ask()).into_iter().map(|device| (device, None)).collect();
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

/// The adapters, in the order of their drivers.
fn ask() -> Vec<Adapter> {
    let backends = Backends::from(API.1);
    let instance = Instance::new(InstanceDescriptor { backends, ..InstanceDescriptor::new_without_display_handle() });
    block_on(instance.enumerate_adapters(backends)).iter().map(|a| adapter(&a.get_info())).collect()
}

fn adapter(info: &AdapterInfo) -> Adapter {
    Adapter { kind: kind(info.device_type), name: info.name.clone(), bus: info.device_pci_bus_id.clone() }
}

fn kind(device_type: DeviceType) -> Kind {
    match device_type {
        DeviceType::DiscreteGpu => Kind::Discrete,
        DeviceType::IntegratedGpu => Kind::Integrated,
        DeviceType::VirtualGpu => Kind::Virtual,
        DeviceType::Cpu => Kind::Software,
        DeviceType::Other => Kind::Other,
    }
}

/// By which the runtime finds it: it counts each kind in the order of its drivers, too.
fn selector(device: &Numbered) -> WgpuDeviceKind {
    match device.adapter.kind {
        Kind::Discrete => WgpuDeviceKind::DiscreteGpu(device.of_kind),
        Kind::Integrated => WgpuDeviceKind::IntegratedGpu(device.of_kind),
        Kind::Virtual => WgpuDeviceKind::VirtualGpu(device.of_kind),
        Kind::Other => WgpuDeviceKind::Other(device.of_kind),
        Kind::Software => WgpuDeviceKind::Cpu,
    }
}

fn missing(found: usize) -> String {
    match found {
        0 => "this machine has no GPU with a driver; on Debian, mesa-vulkan-drivers brings one in software".into(),
        1 => "this machine has one GPU, gpu:0".into(),
        n => format!("this machine has {n} GPUs, gpu:0 to gpu:{}", n - 1),
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
        let (device, queue) = (setup.device.clone(), setup.queue.clone());
        let tick = Stamps::period(&device, &queue, info.backend);
        let features = Features::of(&device, &info, tick.is_some());
        let kind = kind(info.device_type);
        let mut memory = CardMemory::ask(&setup.adapter, kind);
        memory.total = memory.total.or(properties.memory.max_memory().filter(|_| kind != Kind::Software));
        let id = format!("gpu:{index}");
        let ledger = Ledger::new(id.clone(), memory.total.unwrap_or(u64::MAX));
        let others = memory.used.map(|used| used.min(ledger.limit())).and_then(|used| ledger.take(OTHERS, used).ok());
        Gpu {
            features,
            compiler: compiler(client.name()).into(),
            client,
            probed: Mutex::default(),
            products: Mutex::default(),
            compiled: Mutex::default(),
            canary: OnceLock::new(),
            tick,
            device,
            queue,
            staged: AtomicU64::new(0),
            keeping: Mutex::default(),
            sending: Mutex::new(()),
            id,
            name: info.name,
            driver: [info.driver, info.driver_info].map(|part| part.trim().to_string()).join(" ").trim().into(),
            target: GpuTarget { api: info.backend.to_string(), kind, limits, has_clock: tick.is_some() },
            memory,
            ledger,
            _others: others,
        }
    }

    /// Its memory, of which whoever takes some takes it here. Without a limit where nobody says how much there is.
    pub fn device(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether it computes on the host, and in its memory.
    pub fn is_software(&self) -> bool {
        self.target.kind == Kind::Software
    }

    /// Gives the device up: whatever is asked of it from now on fails, as where its driver loses it.
    pub fn destroy(&self) {
        self.device.destroy();
    }

    /// The shaders that were compiled so far, each with its kernel's name and the time that took.
    pub fn compiled(&self) -> Vec<(&'static str, Duration)> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The runtime for oneself: launches of others would be captured with one's own, and what they allocate or read would fail.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It refused so many bytes.
    pub(crate) fn out_of_memory(&self, holder: &str, bytes: u64, problem: impl ToString) -> ExecError {
        let (device, source) = (format!("{} ({})", self.id, self.name), std::io::Error::other(problem.to_string()));
        ExecError::OutOfMemory { device, holder: holder.to_string(), bytes, source }
    }

    pub(crate) fn keeping(&self) -> MutexGuard<'_, Vec<Keeping>> {
        self.keeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn error(&self, problem: impl ToString) -> ExecError {
        ExecError::Device { device: format!("{} ({})", self.id, self.name), problem: problem.to_string() }
    }
}

/// Who holds what was taken before.
const OTHERS: &str = "other programs";

/// The runtime's name has its compiler in angle brackets.
fn compiler(runtime: &str) -> &str {
    runtime.split_once('<').map_or(runtime, |(_, rest)| rest.trim_end_matches('>'))
}

impl Features {
    fn of(device: &wgpu::Device, info: &AdapterInfo, timestamps: bool) -> Features {
        let has = |feature: wgpu::Features| device.features().contains(feature);
        let subgroups = [info.subgroup_min_size, info.subgroup_max_size];
        Features {
            f16: has(wgpu::Features::SHADER_F16),
            int64: has(wgpu::Features::SHADER_INT64),
            subgroups: has(wgpu::Features::SUBGROUP).then_some(subgroups),
            timestamps,
        }
    }
}
