//! The executor itself: what the planner may ask of the CPU, and how plans run on it.

#![deny(clippy::wildcard_enum_match_arm)]

use std::convert::Infallible;
use std::sync::Arc;

use memfit_exec::recorder::{LaunchId, Recorder, now};
use memfit_exec::{Arena, Device, ExecError, Executor, Growth, HostMemory, KernelError};
use memfit_ir::{Family, Graph, NodeId, Op, ValueId, cost};
use memfit_plan::{CostModel, Launch, MadeFor, Place, Program, Target, exchange};
use memfit_transform::group::Prologues;
use memfit_transform::{Fusion, Group};

use crate::Cpu;
use crate::compile::contraction::Contraction;
use crate::compile::{self, CpuKernel};
use crate::isa::Isa;
use crate::pool::Pool;
use crate::subnormal::FlushSubnormals;

/// A cache line, and the widest vector register.
const ALIGNMENT: u64 = 64;

/// More threads than any machine has cores would only wait for each other.
const MAX_THREADS: usize = 1024;

/// What one kernel does here.
const FUSION: Fusion = Fusion {
    // A longer chain gains nothing: its tiles would leave the first-level cache.
    max_nodes: 16,
    max_operands: usize::MAX,
    prologues: Some(Prologues {
        // A product may read its left operand again for every thousand columns of the result or so: beyond this many,
        // computing it each time costs more than keeping it.
        max_columns: 2048,
        // A filter of more elements than this is not held whole, and a pixel may then be computed once for each tap that reads
        // it. That pays only where each reading serves many columns (measured: 4 to 7 % of the time at 512, 10 % at 256).
        max_filter: 1 << 20,
        many_columns: 512,
    }),
    // More than these would push the tiles of the convolution out of the cache.
    max_reductions: 2,
};

/// Runs plans on the CPU. Clones share their threads.
#[derive(Clone)]
pub struct CpuExecutor {
    cpu: Arc<Cpu>,
    device: Device,
}

impl CpuExecutor {
    /// On this many threads, with the instruction set that is [chosen](Isa::chosen) and all the memory that the machine has.
    pub fn new(threads: usize) -> Result<CpuExecutor, ExecError> {
        CpuExecutor::with_isa(threads, Isa::chosen()?)
    }

    /// The same threads with the memory of another device, such as a logical one.
    pub fn on(&self, device: Device) -> CpuExecutor {
        CpuExecutor { cpu: self.cpu.clone(), device }
    }

    /// With one of [`Isa::available`]; another is an error.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<CpuExecutor, ExecError> {
        Isa::check(isa)?;
        let failed = |source| ExecError::Threads { threads, source };
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(failed(std::io::Error::other(format!("between 1 and {MAX_THREADS} are possible"))));
        }
        let cpu = Arc::new(Cpu::new(Pool::new(threads).map_err(failed)?, isa));
        Ok(CpuExecutor { cpu, device: Device::host() })
    }

    /// The threads that run kernels, the caller's included.
    pub fn threads(&self) -> usize {
        self.cpu.pool.threads()
    }

    /// Hands out no work to all threads, and waits for them: what a benchmark of that times.
    pub fn fork(&self) {
        self.cpu.pool.run(&|thread| {
            std::hint::black_box(thread);
        });
    }

    /// How often its threads were handed out work: what a benchmark of that counts.
    pub fn forks(&self) -> usize {
        self.cpu.pool.forks()
    }

    /// The instructions that kernels use.
    pub fn isa(&self) -> Isa {
        self.cpu.isa
    }

    /// Of a kind of machine, whatever this one is like: plans for the same instructions and threads are the same everywhere.
    /// Chosen so that they predict the training steps of seven models on two cores of an AMD EPYC, with AVX-512 and with AVX2.
    /// One thread and portable code are from fits to five of them; NEON and more threads are estimates.
    pub fn default_cost_model(isa: Isa, threads: usize) -> CostModel {
        let gflops_a_thread = match isa {
            Isa::Avx512 => 250.0,
            Isa::Avx2 => 130.0,
            Isa::Neon => 60.0,
            Isa::Portable => 45.0,
        };
        // One thread has most of what memory gives to two, and no number of them more than a few channels have.
        let gbytes = (22.0 + 8.0 * threads as f64).min(100.0);
        let plural = if threads == 1 { "" } else { "s" };
        let name = format!("default, {}, {threads} thread{plural}", isa.name());
        CostModel::new(name, gflops_a_thread * threads as f64, gbytes, 3.0)
    }
}

impl Target for CpuExecutor {
    fn fusion(&self) -> Fusion {
        FUSION
    }

    fn describe(&self) -> MadeFor {
        let threads = Some(self.threads());
        MadeFor { threads, ..MadeFor::new("cpu", self.isa().name()) }
    }

    fn cost_model(&self) -> CostModel {
        CpuExecutor::default_cost_model(self.isa(), self.threads())
    }

    /// There is a kernel for every op, in every type that the type rules let it have.
    fn supports(&self, _: &Graph, _: NodeId) -> Result<(), String> {
        Ok(())
    }

    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64 {
        let own = || 4 * compile::scratch_len(&self.cpu, graph, group) as u64;
        exchange::scratch_bytes(graph, group).unwrap_or_else(own)
    }

    fn seconds(&self, graph: &Graph, group: &Group, fresh: u64, cost_model: &CostModel) -> f64 {
        if let Some(seconds) = exchange::seconds(graph, group, cost_model) {
            return seconds;
        }
        let root = graph.node(group.root());
        let written: u64 = group.writes.iter().map(|&v| graph.ty(v).bytes()).sum();
        // A part of a tensor is all that is read of it.
        let is_part = matches!(root.op, Op::Slice(_) | Op::Gather);
        let most = if is_part { written } else { u64::MAX };
        let mut bytes = written + group.reads.iter().map(|&v| graph.ty(v).bytes().min(most)).sum::<u64>();
        // What is computed while an operand is read takes about as long as a pass of its own would: measured 0.97 to 1.05 of it in
        // packing.
        for &operand in &root.inputs {
            if !group.prologue_of(graph, operand).is_empty() {
                let times = Contraction::new(graph, root).map_or(1, |c| c.times_read(&self.cpu)) as u64;
                bytes += 2 * times * graph.ty(operand).bytes();
            }
        }
        // Cold lines are read before they are written, and push others out. A product hides that behind its arithmetic.
        if !root.op.is_contraction() {
            bytes += 2 * fresh;
        }
        let work = group.nodes.iter().filter(|&&n| is_heavy(&graph.node(n).op));
        let flops: f64 = work.map(|&n| cost(graph, n).flops as f64 / pace(self.isa(), graph, n)).sum();
        cost_model.launch_us * 1e-6 + flops / (cost_model.gflops * 1e9) + bytes as f64 / (cost_model.gbytes * 1e9)
    }

    fn alignment(&self) -> u64 {
        ALIGNMENT
    }

    fn largest_binding(&self) -> u64 {
        isize::MAX as u64
    }

    fn largest_segment(&self) -> u64 {
        isize::MAX as u64
    }

    fn can_run_in_place(&self, graph: &Graph, group: &Group, input: ValueId, output: ValueId) -> bool {
        if let Some(answer) = exchange::can_run_in_place(graph, group, input, output) {
            return answer;
        }
        let root = graph.node(group.root());
        let same_size = graph.ty(input).elements() == graph.ty(output).elements()
            && graph.ty(input).dtype.bits() == graph.ty(output).dtype.bits();
        if root.op.is_elementwise() {
            return same_size;
        }
        // The epilogue of a contraction reads and writes element by element; the product itself does not, nor do its prologues
        // and reductions.
        if root.op.is_contraction() {
            let mut others = group.nodes[..=group.prologue_len].iter().chain(group.reductions());
            let read = others.any(|&n| graph.node(n).inputs.contains(&input));
            let by_elements = group.epilogue().contains(&graph.producer(output));
            let summed_there = group.product_home(graph) == Some(output);
            return same_size && !read && !summed_there && by_elements;
        }
        if matches!(root.op, Op::Update(_) | Op::BatchUpdate(_)) {
            return root.outputs.iter().position(|&v| v == output).is_some_and(|i| {
                // Parameter and slots stand in the order of the results; the gradient stands between them.
                let from = if matches!(root.op, Op::Update(_)) && i > 0 { i + 1 } else { i };
                root.inputs[from] == input
            });
        }
        // Row by row or head by head; the other operands may not be overwritten. No other kernel was made for it.
        let made_for_it = matches!(root.op, Op::CrossEntropyGrad(_) | Op::AttentionGrad(_));
        made_for_it && same_size && input == root.inputs[0] && !root.inputs[1..].contains(&input)
    }
}

/// Whether an op's arithmetic, and not its memory traffic, is what takes time.
fn is_heavy(op: &Op) -> bool {
    op.is_contraction() || op.family() == Family::Attention
}

/// How fast an op's arithmetic is, measured against a large product's: depthwise convolutions have few operations for each
/// byte, attention spends as long on its softmax, and a convolution of 3×3 taps makes fewer multiplications than it counts.
fn pace(isa: Isa, graph: &Graph, node: NodeId) -> f64 {
    // The faster products are, the less is gained by having fewer of them: tiles have to be transformed all the same.
    let share = match isa {
        Isa::Avx512 => 0.75,
        Isa::Avx2 => 0.85,
        Isa::Neon | Isa::Portable => 0.95,
    };
    match Contraction::new(graph, graph.node(node)) {
        Some(contraction) if !contraction.is_depthwise() => contraction.gain().powf(share),
        Some(_) | None => 0.6,
    }
}

impl Executor for CpuExecutor {
    type Memory = HostMemory;
    type Kernel = CpuKernel;
    type Captured = Infallible;

    fn target(&self) -> &dyn Target {
        self
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, holder: &str, bytes: u64, growth: Growth) -> Result<HostMemory, ExecError> {
        HostMemory::new(&self.device, holder, bytes, growth)
    }

    fn compile(&self, program: &Program, launch: &Launch) -> Result<CpuKernel, ExecError> {
        let needed = self.scratch_bytes(&program.graph, &launch.group);
        let given = launch.scratch.map_or(0, |p| p.size);
        if given != needed {
            let root = program.graph.node(launch.group.root());
            return Err(ExecError::Unsupported {
                op: root.op.name(),
                layer: root.scope.clone(),
                problem: format!(
                    "the plan gives it {given} bytes of scratch, but with {} threads and {} instructions it takes {needed}; \
                     plan for this device",
                    self.threads(),
                    self.isa().name()
                ),
            });
        }
        Ok(compile::compile(&self.cpu, program, launch))
    }

    fn launch(&self, kernel: &CpuKernel, arena: &mut Arena<HostMemory>) -> Result<(), KernelError> {
        // The pool's threads are always in this mode.
        let _flushed = FlushSubnormals::new();
        kernel.launch(&self.cpu, arena)
    }

    /// With a part for each thread that was at work on it.
    fn launch_recorded(
        &self,
        kernel: &CpuKernel,
        arena: &mut Arena<HostMemory>,
        id: LaunchId,
        recorder: &Recorder,
    ) -> Result<(), KernelError> {
        let begin = now();
        let (launched, others) = self.cpu.pool.timed(|| self.launch(kernel, arena));
        recorder.kernel(id, std::iter::once((0, begin, now())).chain(others));
        launched
    }

    fn host_base(&self, memory: &mut HostMemory) -> Option<*mut u8> {
        Some(memory.base_mut())
    }

    fn resident_bytes(&self, memory: &HostMemory) -> Option<u64> {
        memory.resident_bytes()
    }

    fn write(&self, memory: &mut HostMemory, place: Place, offset: u64, bytes: &[u8]) {
        memory.bytes_mut(place)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, memory: &HostMemory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        bytes.copy_from_slice(&memory.bytes(place)[..bytes.len()]);
        Ok(())
    }

    fn fill(&self, memory: &mut HostMemory, place: Place, byte: u8) {
        memory.bytes_mut(place).fill(byte);
    }

    fn wait(&self) -> Result<(), ExecError> {
        Ok(())
    }
}
