//! From lowered groups to launches on the device.

use std::sync::PoisonError;
use std::time::Instant;

use cubecl::prelude::*;
use cubecl::server::{Handle, ServerError};
use memfit_exec::{Arena, ExecError};
use memfit_ir::{Node, ValueId};
use memfit_plan::{Launch, Place, Program};

use crate::arena::{GpuMemory, WORD, take};
use crate::call::{Call, Grid, Key};
use crate::device::Gpu;
use crate::kernels::attention;
use crate::kernels::depthwise::depthwise;
use crate::kernels::elementwise::chain;
use crate::kernels::fill::fill;
use crate::kernels::fold::fold_terms;
use crate::kernels::gather::gather;
use crate::kernels::gemm::gemm;
use crate::kernels::layout::layout;
use crate::kernels::update::update;
use crate::kernels::window::window;
use crate::lower::{self, Lowered, lower};
use crate::product::Product;
use crate::support::supports;

/// A compiled group: what is launched for it, one after the other.
#[derive(Default)]
pub struct Kernel {
    steps: Vec<Step>,
}

enum Step {
    Call(Box<Call>),
    Product(Box<Product>),
}

pub fn compile(gpu: &Gpu, program: &Program, launch: &Launch) -> Result<Kernel, ExecError> {
    let (graph, group) = (&program.graph, &launch.group);
    for &id in &group.nodes {
        supports(graph, id).map_err(|problem| unsupported(graph.node(id), problem))?;
    }
    let root = graph.node(group.root());
    let none = Place { segment: memfit_plan::Segment::Transient, offset: 0, size: 0 };
    let place = |v: ValueId| placed(program, v);
    let Lowered { steps, scratch } =
        lower(graph, group, gpu.target.limits.alignment, &place, launch.scratch.unwrap_or(none));
    let given = launch.scratch.map_or(0, |p| p.size);
    if given != scratch {
        let problem = format!("the plan gives it {given} bytes of scratch, but it takes {scratch}");
        return Err(unsupported(root, format!("{problem}; plan for this device")));
    }
    let steps = steps.into_iter().map(|step| match step {
        lower::Step::Call(call) => {
            let call = within(gpu, root, call)?;
            probe(gpu, &call).map_err(|problem| unsupported(root, problem))?;
            Ok(Step::Call(Box::new(call)))
        }
        lower::Step::Product(product) => {
            let refused = |problem: String| unsupported(root, format!("{problem}; run it on the CPU"));
            let product = Product::new(&gpu.client, product).map_err(|e| refused(e.to_string()))?;
            product.probe(gpu).map_err(refused)?;
            Ok(Step::Product(Box::new(product)))
        }
    });
    Ok(Kernel { steps: steps.collect::<Result<_, _>>()? })
}

/// A validated plan places every value that crosses groups.
fn placed(program: &Program, v: ValueId) -> Place {
    match program.place(v) {
        Some(place) => place,
        None => unreachable!("%{} of {} has no place in a validated plan", v.0, program.phase.name()),
    }
}

/// A device binds only so many operands at once.
fn within(gpu: &Gpu, root: &Node, call: Call) -> Result<Call, ExecError> {
    let (given, most) = (call.operands.len(), gpu.target.limits.bindings);
    if given <= most {
        return Ok(call);
    }
    let problem = format!("its group has {given} operands, but a kernel takes at most {most}; plan every node alone");
    Err(unsupported(root, problem))
}

fn unsupported(node: &Node, problem: String) -> ExecError {
    ExecError::Unsupported { op: node.op.name(), layer: node.scope.clone(), problem }
}

impl Kernel {
    pub fn launch(&self, client: &Client, arena: &Arena<GpuMemory>) {
        for step in &self.steps {
            match step {
                Step::Call(call) => {
                    let slice = |p: &Place| (arena.segment(*p).slice(*p), p.size);
                    run(client, call, 0, call.operands.iter().map(slice));
                }
                Step::Product(product) => product.launch(client, arena),
            }
        }
    }
}

/// Runs the kernel of a call on a few words, unless that was done before: a device that cannot compile a kernel may say
/// nothing, and leave results as they were.
fn probe(gpu: &Gpu, call: &Call) -> Result<(), String> {
    let mut known = gpu.probed.lock().unwrap_or_else(PoisonError::into_inner);
    let shader = (call.key.clone(), call.operands.len(), call.numbers.len());
    if known.contains(&shader) {
        return Ok(());
    }
    let (name, start) = (call.key.name(), Instant::now());
    let failed = |problem: &str| {
        format!("{} ({}) cannot run its kernel \"{name}\": {problem}; run it on the CPU", gpu.id, gpu.name)
    };
    let canary = canary(gpu).map_err(|e| failed(&e.to_string()))?;
    let _alone = gpu.alone();
    fill_words(&gpu.client, canary.clone(), canary.size_in_used() / WORD, u32::MAX);
    let size = canary_bytes(gpu);
    let slice = |i: usize| {
        let start = i as u64 * size;
        let end = canary.size_in_used() - start - size;
        (canary.clone().offset_start(start).offset_end(end), size)
    };
    let one = Call { grid: Grid { cubes: 1, ..call.grid }, ..call.clone() };
    run(&gpu.client, &one, PROBE, (0..call.operands.len()).map(slice));
    let read = gpu.client.read_one(canary.clone()).map_err(|e| failed(&e.to_string()))?;
    let answered = read.chunks_exact(WORD as usize).filter(|word| *word == PROBE.to_ne_bytes()).count();
    if answered != 1 {
        return Err(failed("the driver took it and did not run it"));
    }
    known.insert(shader);
    gpu.compiled.lock().unwrap_or_else(PoisonError::into_inner).push((name, start.elapsed()));
    Ok(())
}

/// The words that kernels are tried on: a part for each operand.
fn canary(gpu: &Gpu) -> Result<&Handle, ServerError> {
    if let Some(known) = gpu.canary.get() {
        return Ok(known);
    }
    let taken = take(gpu, canary_bytes(gpu) * gpu.target.limits.bindings as u64)?;
    Ok(gpu.canary.get_or_init(|| match taken {
        Some((handle, _)) => handle,
        None => unreachable!("a device whose kernels are given nothing"),
    }))
}

fn canary_bytes(gpu: &Gpu) -> u64 {
    gpu.target.limits.alignment.max(WORD)
}

/// What a kernel answers to a probe: no number that lies there anyway.
const PROBE: u32 = 0x600d_ca11;

/// Launches the kernel of a call on buffers, each with its bytes. What is no probe has a `probe` of 0.
pub(crate) fn run(client: &Client, call: &Call, probe: u32, buffers: impl Iterator<Item = (Handle, u64)>) {
    // SAFETY: a slice has as many words as its place.
    let buffer =
        |(handle, bytes): (_, u64)| unsafe { BufferArg::from_raw_parts(handle, bytes.div_ceil(WORD) as usize) };
    let buffers: SequenceArg<Box<[u32]>> = buffers.map(buffer).collect();
    let numbers: SequenceArg<u32> = call.numbers.iter().copied().collect();
    let (count, dim) = spread(client, call.grid);
    // SAFETY: units beyond what the numbers say end at once, and positions lie inside of their operands.
    unsafe {
        match call.key.clone() {
            Key::Chain(tape) => chain::launch_unchecked(client, count, dim, buffers, numbers, probe, tape),
            Key::Fold(key) => fold_terms::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
            Key::Layout(key) => layout::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
            Key::Window(key) => window::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
            Key::Gather(key) => gather::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
            Key::Update(key) => update::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
            Key::Attention(kernel) => attention::launch(client, count, dim, buffers, numbers, probe, *kernel),
            Key::Gemm(key) => gemm::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
            Key::Depthwise(key) => depthwise::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
        }
    }
}

/// A number of cubes over the three axes of a launch; there may be some more.
fn spread(client: &Client, grid: Grid) -> (CubeCount, CubeDim) {
    let most = client.properties().hardware.max_cube_count.0.min(65_535) as usize;
    let (x, y) = if grid.cubes <= most { (grid.cubes, 1) } else { (most, grid.cubes.div_ceil(most)) };
    (CubeCount::Static(x as u32, y as u32, 1), CubeDim::new_1d(grid.units as u32))
}

/// Sets every byte of a place, up to the end of its last word.
pub fn launch_fill(client: &Client, memory: &GpuMemory, place: Place, byte: u8) {
    let words = place.size.div_ceil(WORD);
    if words > 0 {
        fill_words(client, memory.slice(place), words, u32::from_ne_bytes([byte; 4]));
    }
}

pub fn fill_words(client: &Client, slice: Handle, words: u64, word: u32) {
    let words = words as usize;
    let (count, dim) = spread(client, Grid::each(words));
    // SAFETY: the slice has as many words, and units beyond them end at once.
    unsafe { fill::launch_unchecked(client, count, dim, BufferArg::from_raw_parts(slice, words), word, words) };
}
