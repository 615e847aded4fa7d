//! The executor itself: what the planner may ask of a GPU, and how plans run on it.

use std::sync::Arc;

use cubecl::bytes::Bytes;
use cubecl::future::block_on;
use cubecl::prelude::Client;
use memfit_exec::{Arena, Device, ExecError, Executor, Growth, KernelError};
use memfit_ir::{Family, Graph, Node, NodeId, Op, ValueId};
use memfit_plan::{CostModel, Launch, MadeFor, Place, Program, Target};
use memfit_transform::{Fusion, Group};

use crate::arena::GpuMemory;
use crate::device::{Gpu, Kind, open};
use crate::fusion::fusion;
use crate::launch::{Kernel, compile, launch_fill};
use crate::lower::{Step, estimate};
use crate::support;

/// Clones are the same GPU.
#[derive(Clone)]
pub struct GpuExecutor {
    gpu: Arc<Gpu>,
    device: Device,
}

impl GpuExecutor {
    /// On the GPU of this number; see [`crate::devices`]. How much memory it has, no interface says.
    pub fn new(index: usize) -> Result<GpuExecutor, ExecError> {
        let gpu = open(index)?;
        let device = Device::new(gpu.id.to_string(), u64::MAX);
        Ok(GpuExecutor { gpu, device })
    }

    /// The same GPU with the memory of another device, such as a logical one.
    pub fn on(&self, device: Device) -> GpuExecutor {
        GpuExecutor { gpu: self.gpu.clone(), device }
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// What the runtime has reserved on the device, in bytes: the segments, and beside them what it keeps for parameters
    /// of kernels and for copies to the host.
    pub fn reserved_bytes(&self) -> Reserved {
        let report = self.gpu.client.memory_report(cubecl::MemoryScope::Device);
        let segments = report.streams.iter().map(|s| s.pools.dedicated.usage.bytes_in_use).sum();
        Reserved { segments, all: report.usage().bytes_reserved }
    }

    fn client(&self) -> &Client {
        &self.gpu.client
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Of all arenas on the device.
    pub segments: u64,
    pub all: u64,
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
        let root = graph.node(group.root());
        // Element by element: a unit reads its own element before it writes it, and nobody else's.
        let same = graph.ty(input).elements() == graph.ty(output).elements()
            && graph.ty(input).dtype == graph.ty(output).dtype;
        // A product does not, nor do its prologues, and where it is summed up nothing of before is left.
        let after_product = || {
            let others = &group.nodes[..=group.prologue_len];
            let read = others.iter().any(|&n| graph.node(n).inputs.contains(&input));
            !read && group.product_home(graph) != Some(output)
        };
        if root.op.is_update() {
            return state_of(root, output) == Some(input);
        }
        let by_element = operands_by_element(&root.op);
        if !by_element.is_empty() {
            let read_otherwise = root.inputs.iter().enumerate().any(|(i, &v)| v == input && !by_element.contains(&i));
            return same && output == root.outputs[0] && !read_otherwise;
        }
        same && (root.op.is_elementwise() || (matches!(root.op, Op::MatMul(_)) && after_product()))
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
        | Family::Update => return &[],
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

    fn target(&self) -> &dyn Target {
        self
    }

    /// A device gives an allocation whole: it cannot grow page by page.
    fn allocate(&self, holder: &str, bytes: u64, _: Growth) -> Result<GpuMemory, ExecError> {
        GpuMemory::new(&self.gpu, &self.device, holder, bytes)
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn compile(&self, program: &Program, launch: &Launch) -> Result<Kernel, ExecError> {
        compile(&self.gpu, program, launch)
    }

    fn launch(&self, kernel: &Kernel, arena: &mut Arena<GpuMemory>) -> Result<(), KernelError> {
        kernel.launch(self.client(), arena);
        Ok(())
    }

    fn write(&self, memory: &mut GpuMemory, place: Place, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            let to = memory.part(place, offset, bytes.len() as u64);
            self.client().write(&to, Bytes::from_bytes_vec(bytes.to_vec()));
        }
    }

    fn read(&self, memory: &GpuMemory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        if !bytes.is_empty() {
            let from = memory.part(place, 0, bytes.len() as u64);
            let read = self.client().read_one(from).map_err(|e| self.gpu.error(e))?;
            bytes.copy_from_slice(&read[..bytes.len()]);
        }
        Ok(())
    }

    fn fill(&self, memory: &mut GpuMemory, place: Place, byte: u8) {
        launch_fill(self.client(), memory, place, byte);
    }

    fn wait(&self) -> Result<(), ExecError> {
        block_on(self.client().sync()).map_err(|e| self.gpu.error(e))
    }
}
