//! From a planned group to something that can be launched, or to a refusal that names the op, the layer and the cure.

use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;
use memfit_exec::{Arena, ExecError};
use memfit_ir::{Node, NodeId, Op, ValueId};
use memfit_plan::{Launch, Place, Program};

use crate::arena::{GpuMemory, WORD};
use crate::chain::Chain;
use crate::device::Gpu;
use crate::kernels::elementwise::chain;
use crate::kernels::fill::fill;
use crate::layout::Layout;
use crate::product::Product;
use crate::support::supports;

/// A compiled group: a chain; or a product, the chains that compute its operands, and the chain over its result.
#[derive(Default)]
pub struct Kernel {
    prologues: Vec<Chain>,
    product: Option<Product>,
    chain: Option<Chain>,
}

/// Units of a cube.
const UNITS: u32 = 256;

pub fn compile(gpu: &Gpu, program: &Program, launch: &Launch) -> Result<Kernel, ExecError> {
    let (graph, group) = (&program.graph, &launch.group);
    for &id in &group.nodes {
        supports(graph, id).map_err(|problem| unsupported(graph.node(id), problem))?;
    }
    let root = graph.node(group.root());
    // A tensor of no elements is there without any work.
    if graph.ty(root.outputs[0]).elements() == 0 {
        return Ok(Kernel::default());
    }
    let layout = Layout::new(graph, group, gpu.limits.alignment);
    let given = launch.scratch.map_or(0, |p| p.size);
    if given != layout.bytes {
        let problem = format!("the plan gives it {given} bytes of scratch, but it takes {}", layout.bytes);
        return Err(unsupported(root, format!("{problem}; plan for this device")));
    }
    let raw = root.outputs[0];
    let place = |v: ValueId| {
        let summed_up = if v == raw { group.product_home(graph).unwrap_or(raw) } else { v };
        launch.scratch.and_then(|s| layout.place(s, v)).unwrap_or_else(|| placed(program, summed_up))
    };
    let chain = |nodes: &[NodeId], writes: &[ValueId]| within(gpu, root, Chain::new(graph, nodes, writes, &place));
    let Op::MatMul(op) = root.op else {
        return Ok(Kernel { chain: Some(chain(&group.nodes, &group.writes)?), ..Kernel::default() });
    };
    let fed = root.inputs.iter().map(|&v| (v, group.prologue_of(graph, v))).filter(|(_, nodes)| !nodes.is_empty());
    let prologues = fed.map(|(v, nodes)| chain(&nodes, &[v])).collect::<Result<_, _>>()?;
    let tensor = |v: ValueId| (place(v), graph.shape(v));
    let product = Product::new(&gpu.client, op, [tensor(root.inputs[0]), tensor(root.inputs[1]), tensor(raw)])
        .map_err(|e| unsupported(root, format!("{e}; run it on the CPU")))?;
    let epilogue = group.epilogue();
    let chain = if epilogue.is_empty() { None } else { Some(chain(epilogue, &group.writes)?) };
    Ok(Kernel { prologues, product: Some(product), chain })
}

/// A validated plan places every value that crosses groups.
fn placed(program: &Program, v: ValueId) -> Place {
    match program.place(v) {
        Some(place) => place,
        None => unreachable!("%{} of {} has no place in a validated plan", v.0, program.phase.name()),
    }
}

/// A device binds only so many operands at once.
fn within(gpu: &Gpu, root: &Node, chain: Chain) -> Result<Chain, ExecError> {
    let (given, most) = (chain.operands.len(), gpu.limits.bindings);
    if given <= most {
        return Ok(chain);
    }
    let problem = format!("its group has {given} operands, but a kernel takes at most {most}; plan every node alone");
    Err(unsupported(root, problem))
}

fn unsupported(node: &Node, problem: String) -> ExecError {
    ExecError::Unsupported { op: node.op.name(), layer: node.scope.clone(), problem }
}

impl Kernel {
    pub fn launch(&self, client: &Client, arena: &Arena<GpuMemory>) {
        self.prologues.iter().for_each(|chain| launch_chain(client, arena, chain));
        if let Some(product) = &self.product {
            product.launch(client, arena);
        }
        if let Some(chain) = &self.chain {
            launch_chain(client, arena, chain);
        }
    }
}

fn launch_chain(client: &Client, arena: &Arena<GpuMemory>, c: &Chain) {
    // SAFETY: a slice has as many elements as its place.
    let buffer =
        |p: &Place| unsafe { BufferArg::from_raw_parts(arena.segment(*p).slice(*p), (p.size / WORD) as usize) };
    let buffers: SequenceArg<Box<[f32]>> = c.operands.iter().map(buffer).collect();
    let numbers: SequenceArg<u32> = c.numbers.iter().copied().collect();
    let dim = cube_dim(client);
    let count = calculate_cube_count_elemwise(client, c.elements, dim);
    // SAFETY: units beyond the elements end at once, and broadcast positions lie inside of their operand.
    unsafe { chain::launch_unchecked(client, count, dim, buffers, numbers, c.elements, c.tape.clone()) };
}

/// Sets every byte of a place, up to the end of its last word.
pub fn launch_fill(client: &Client, memory: &GpuMemory, place: Place, byte: u8) {
    let words = place.size.div_ceil(WORD) as usize;
    if words == 0 {
        return;
    }
    let dim = cube_dim(client);
    let count = calculate_cube_count_elemwise(client, words, dim);
    // SAFETY: the slice has as many words, and units beyond them end at once.
    unsafe {
        let output = BufferArg::from_raw_parts(memory.slice(place), words);
        fill::launch_unchecked(client, count, dim, output, u32::from_ne_bytes([byte; 4]), words);
    }
}

fn cube_dim(client: &Client) -> CubeDim {
    CubeDim::new_1d(UNITS.min(client.properties().hardware.max_units_per_cube))
}
