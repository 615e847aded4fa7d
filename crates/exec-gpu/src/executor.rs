//! The executor itself: what the planner may ask of a GPU, and how plans run on it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use cubecl::MemoryScope;
use cubecl::client::Graph as CapturedGraph;
use cubecl::future::block_on;
use cubecl::prelude::Client;
use cubecl::server::Handle;
use memfit_exec::recorder::{LaunchId, Recorder, now};
use memfit_exec::{Arena, Device, ExecError, Executor, Growth, KernelError};
use memfit_ir::{Family, Graph, Node, NodeId, Op, ValueId};
use memfit_plan::{CostModel, Launch, MadeFor, Place, Plan, Program, Target, exchange};
use memfit_transform::{Fusion, Group};

use crate::adapters::Kind;
use crate::arena::{GpuMemory, WORD};
use crate::device::{Gpu, open};
use crate::fusion::fusion;
use crate::launch::{Kernel, compile, launch_fill};
use crate::lower::attention::may_overwrite;
use crate::lower::contract::writes_product_first;
use crate::lower::{Step, estimate};
use crate::staging::{Staging, StagingSizes};
use crate::support;

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

/// The runtime keeps the parameters of a kernel in pages: the first has so many bytes, and each a hundredth less than the one
/// before, down to the parameters themselves.
const FIRST_PAGE: u64 = 16 << 10;
/// Pages that this makes, taken together.
const PAGES: u64 = 100;
/// No kernel has more parameters.
const PARAMETERS: u64 = 1 << 10;

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
                let sizes = StagingSizes::LEAST;
                staging.insert(Staging::new(&self.gpu, &self.device, "copies", sizes, sizes.bytes())?)
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

impl Target for GpuExecutor {
    fn fusion(&self) -> Fusion {
        fusion(self.gpu.limits.bindings)
    }

    fn describe(&self) -> MadeFor {
        MadeFor::new("gpu", self.gpu.api.as_str())
    }

    /// Of the order of magnitude of such devices, not measured on any: drivers do not say how fast they are.
    fn cost_model(&self) -> CostModel {
        match self.gpu.kind {
            Kind::Discrete | Kind::Virtual => CostModel::new("discrete gpu", 5000.0, 300.0, 10.0),
            Kind::Integrated | Kind::Other => CostModel::new("integrated gpu", 500.0, 30.0, 20.0),
            Kind::Software => CostModel::new("software gpu", 10.0, 5.0, 50.0),
        }
    }

    fn supports(&self, graph: &Graph, node: NodeId) -> Result<(), String> {
        support::supports(graph, node)
    }

    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64 {
        estimate(graph, group, self.gpu.limits.alignment).scratch
    }

    fn seconds(&self, graph: &Graph, group: &Group, _: u64, cost_model: &CostModel) -> f64 {
        let seconds = |step: &Step| {
            let (flops, bytes) = step.work();
            let (compute, memory) =
                (flops as f64 / (cost_model.gflops * 1e9), bytes as f64 / (cost_model.gbytes * 1e9));
            cost_model.launch_us * 1e-6 + compute.max(memory)
        };
        estimate(graph, group, self.gpu.limits.alignment).steps.iter().map(seconds).sum()
    }

    fn alignment(&self) -> u64 {
        self.gpu.limits.alignment
    }

    fn largest_binding(&self) -> u64 {
        self.gpu.limits.binding
    }

    fn largest_segment(&self) -> u64 {
        self.gpu.limits.buffer
    }

    fn can_run_in_place(&self, graph: &Graph, group: &Group, input: ValueId, output: ValueId) -> bool {
        if let Some(answer) = exchange::can_run_in_place(graph, group, input, output) {
            return answer;
        }
        let root = graph.node(group.root());
        // Element by element: a unit reads its own element before it writes it, and nobody else's.
        let same = graph.ty(input).elements() == graph.ty(output).elements()
            && graph.ty(input).dtype == graph.ty(output).dtype;
        // A product does not, nor do its prologues, and where it is put before the chain over it nothing of before is left.
        let after_product = || {
            let others = &group.nodes[..=group.prologue_len];
            let read = others.iter().any(|&n| graph.node(n).inputs.contains(&input));
            let buried = group.product_home(graph) == Some(output) && writes_product_first(graph, group);
            !read && !buried
        };
        if root.op.is_update() {
            return state_of(root, output) == Some(input);
        }
        if let Op::AttentionGrad(_) = root.op {
            let qkv = root.inputs[0];
            let others = &root.inputs[1..];
            return same && input == qkv && !others.contains(&input) && may_overwrite(graph.shape(qkv)[4]);
        }
        let by_element = operands_by_element(&root.op);
        if !by_element.is_empty() {
            let read_otherwise = root.inputs.iter().enumerate().any(|(i, &v)| v == input && !by_element.contains(&i));
            return same && output == root.outputs[0] && !read_otherwise;
        }
        same && (root.op.is_elementwise() || (root.op.is_contraction() && after_product()))
    }
}

/// The state whose place an output of an update takes.
fn state_of(update: &Node, output: ValueId) -> Option<ValueId> {
    let i = update.outputs.iter().position(|&v| v == output)?;
    // Parameter and slots stand in the order of the results; the gradient stands between them.
    let from = if matches!(update.op, Op::Update(_)) && i > 0 { i + 1 } else { i };
    Some(update.inputs[from])
}

/// Which operands of an op that folds are read element by element where its first result is written: by the same unit and
/// by no other, and whatever else is made of them is made before.
fn operands_by_element(op: &Op) -> &'static [usize] {
    match op.family() {
        Family::Norm | Family::Softmax | Family::Loss => {}
        Family::Source
        | Family::Constant
        | Family::Elementwise(_)
        | Family::Reduction
        | Family::Layout
        | Family::Contraction(_)
        | Family::Attention
        | Family::Window
        | Family::Gather
        | Family::Update
        | Family::Exchange => return &[],
    }
    if matches!(op, Op::LayerNormGrad | Op::GroupNormGrad(_)) {
        &[0, 4]
    } else if matches!(op, Op::RmsNormGrad) {
        &[0, 3]
    } else if matches!(op, Op::SoftmaxGrad(_) | Op::CrossEntropyGrad(_)) {
        &[0, 1]
    } else if matches!(op, Op::CrossEntropy(_)) {
        &[]
    } else {
        &[0]
    }
}

impl Executor for GpuExecutor {
    type Memory = GpuMemory;
    type Kernel = Kernel;
    type Captured = Captured;

    fn target(&self) -> &dyn Target {
        self
    }

    /// A device gives an allocation whole: it cannot grow page by page.
    fn allocate(&self, holder: &str, bytes: u64, _: Growth) -> Result<GpuMemory, ExecError> {
        GpuMemory::new(&self.gpu, &self.device, holder, bytes)
    }

    /// Buffers for copies, which are exact, and the parameters of kernels, which are not: kernels with the same share them.
    fn staging_bytes(&self, plan: &Plan) -> u64 {
        let launches = plan.programs.iter().flat_map(|p| p.launches.iter().map(|l| (&p.graph, &l.group)));
        let steps = |(graph, group)| estimate(graph, group, self.gpu.limits.alignment).steps.len() as u64;
        // Each may have been tried first.
        let kernels: u64 = 2 * launches.map(steps).sum::<u64>();
        let canary = self.gpu.limits.alignment.max(WORD) * self.gpu.limits.bindings as u64;
        StagingSizes::new(plan).bytes() + canary + kernels.min(PAGES) * FIRST_PAGE + kernels * PARAMETERS
    }

    fn take_staging(&mut self, holder: &str, plan: &Plan) -> Result<(), ExecError> {
        let (sizes, all) = (StagingSizes::new(plan), self.staging_bytes(plan));
        let staging = Some(Staging::new(&self.gpu, &self.device, holder, sizes, all)?);
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

    /// Waits for each kernel, so that its time is its own: with nothing else queued, the device has nothing to overlap it with.
    fn launch_recorded(
        &self,
        kernel: &Kernel,
        arena: &mut Arena<GpuMemory>,
        id: LaunchId,
        recorder: &Recorder,
    ) -> Result<(), KernelError> {
        self.keep_failure(self.wait());
        let begin = now();
        self.launch(kernel, arena)?;
        self.keep_failure(self.wait());
        recorder.kernel(id, [(0, begin, now())]);
        Ok(())
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
        if bytes.is_empty() {
            return Ok(());
        }
        self.check([(memory, place)])?;
        self.copy(|staging| staging.read(memory.buffer(place), place.offset, bytes))
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
