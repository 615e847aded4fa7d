//! The reference as an executor of plans: each op as its definition, on the bytes of an arena. It stands between the
//! reference and a real device: what is wrong here is wrong in the plan or in the engine, not in a kernel.

use std::collections::HashMap;
use std::convert::Infallible;

use memfit_exec::{Arena, Device, ExecError, Executor, Growth, HostMemory, KernelError};
use memfit_ir::{Graph, Node, NodeId, Op, TensorType, ValueId};
use memfit_plan::{CostModel, Launch, MadeFor, Place, Program, Target};
use memfit_transform::{Fusion, Group};

use super::run_node;
use crate::error::Error;
use crate::tensor::Tensor;

#[derive(Clone, Debug)]
pub struct ReferenceExecutor {
    device: Device,
}

impl Default for ReferenceExecutor {
    fn default() -> Self {
        ReferenceExecutor { device: Device::host() }
    }
}

/// The nodes of a group, with what crosses its border.
pub struct Kernel {
    nodes: Vec<Node>,
    /// Of every value that the nodes read or make.
    types: HashMap<ValueId, TensorType>,
    reads: Vec<(ValueId, Place)>,
    /// Constants that have no place.
    constants: Vec<(ValueId, f32)>,
    writes: Vec<(ValueId, Place)>,
}

impl Executor for ReferenceExecutor {
    type Memory = HostMemory;
    type Kernel = Kernel;
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

    fn compile(&self, program: &Program, launch: &Launch) -> Result<Kernel, ExecError> {
        let graph = &program.graph;
        let nodes: Vec<Node> = launch.group.nodes.iter().map(|&id| graph.node(id).clone()).collect();
        let named = nodes.iter().flat_map(|n| n.inputs.iter().chain(&n.outputs));
        let types = named.map(|&v| (v, graph.ty(v).clone())).collect();
        let placed = |v: ValueId| (v, program.place(v).expect("a value that crosses groups has a place"));
        let mut kernel = Kernel { types, reads: Vec::new(), constants: Vec::new(), writes: Vec::new(), nodes };
        for &v in kernel.nodes.iter().flat_map(|n| &n.inputs) {
            if launch.group.contains(graph.producer(v)) {
                continue;
            }
            if let (Op::Fill(f), None) = (graph.producer_op(v), program.place(v)) {
                kernel.constants.push((v, f.value));
            } else {
                kernel.reads.push(placed(v));
            }
        }
        kernel.writes = launch.group.writes.iter().map(|&v| placed(v)).collect();
        Ok(kernel)
    }

    fn launch(&self, kernel: &Kernel, arena: &mut Arena<HostMemory>) -> Result<(), KernelError> {
        let mut values: HashMap<ValueId, Tensor> = HashMap::new();
        for &(v, place) in &kernel.reads {
            values.insert(v, stored(&kernel.types[&v], arena.segment_mut(place).bytes(place)));
        }
        for &(v, value) in &kernel.constants {
            values.insert(v, Tensor::filled(&kernel.types[&v], f64::from(value)));
        }
        for node in &kernel.nodes {
            let given: Vec<&Tensor> = node.inputs.iter().map(|v| &values[v]).collect();
            let types: Vec<&TensorType> = node.outputs.iter().map(|v| &kernel.types[v]).collect();
            let made = run_node(node, &given, &types, &HashMap::new(), &HashMap::new());
            let made = made.map_err(|e| kernel_error(e, &given))?;
            // Through bytes, so that a value inside of a group is rounded as one that is stored.
            let rounded = made.into_iter().map(|t| stored(&t.ty, &t.to_bytes()));
            values.extend(node.outputs.iter().copied().zip(rounded));
        }
        for &(v, place) in &kernel.writes {
            arena.segment_mut(place).bytes_mut(place).copy_from_slice(&values[&v].to_bytes());
        }
        Ok(())
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

fn stored(ty: &TensorType, bytes: &[u8]) -> Tensor {
    Tensor::from_bytes(ty, bytes).expect("a place has the size of its type")
}

/// The only thing that data can do to a node is to point outside of its table.
fn kernel_error(error: Error, given: &[&Tensor]) -> KernelError {
    let Error::IdOutOfRange { id, limit, .. } = error else { unreachable!("{error}") };
    let position = given.iter().find_map(|t| t.data.iter().position(|&x| x == id && !t.ty.dtype.is_float()));
    KernelError::Index { index: id as i64, position: position.unwrap_or(0), limit }
}

impl Target for ReferenceExecutor {
    fn fusion(&self) -> Fusion {
        Fusion::FULL
    }

    fn describe(&self) -> MadeFor {
        MadeFor::new("reference", "f64")
    }

    fn cost_model(&self) -> CostModel {
        CostModel::new("reference", 1.0, 1.0, 1.0)
    }

    fn supports(&self, _: &Graph, _: NodeId) -> Result<(), String> {
        Ok(())
    }

    fn scratch_bytes(&self, _: &Graph, _: &Group) -> u64 {
        0
    }

    fn seconds(&self, _: &Graph, _: &Group, _: u64, _: &CostModel) -> f64 {
        0.0
    }

    fn alignment(&self) -> u64 {
        64
    }

    fn largest_binding(&self) -> u64 {
        u64::MAX
    }

    fn largest_segment(&self) -> u64 {
        u64::MAX
    }

    /// Everything is read before the first byte is written.
    fn can_run_in_place(&self, _: &Graph, _: &Group, _: ValueId, _: ValueId) -> bool {
        true
    }
}
