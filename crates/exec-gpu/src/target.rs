//! What the planner may ask of a GPU. It follows from a few numbers, so that plans can be made for devices that are not here.

use memfit_ir::{Family, Graph, Node, NodeId, Op, ValueId};
use memfit_plan::{CostModel, MadeFor, StagedProgram, Target, exchange};
use memfit_transform::{Fusion, Group};

use crate::adapters::Kind;
use crate::fusion::fusion;
use crate::lower::attention::may_overwrite;
use crate::lower::contract::writes_product_first;
use crate::lower::{Step, estimate};
use crate::sizes::staging_bytes;
use crate::support;

/// A GPU as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuTarget {
    /// "vulkan", "metal", "dx12"
    pub api: String,
    pub kind: Kind,
    pub limits: Limits,
    /// Whether kernels can be timed with it, which takes memory.
    pub has_clock: bool,
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

impl Target for GpuTarget {
    fn fusion(&self) -> Fusion {
        fusion(self.limits.bindings)
    }

    fn describe(&self) -> MadeFor {
        MadeFor::new("gpu", self.api.as_str())
    }

    /// Of the order of magnitude of such devices, not measured on any: drivers do not say how fast they are.
    fn cost_model(&self) -> CostModel {
        match self.kind {
            Kind::Discrete | Kind::Virtual => CostModel::new("discrete gpu", 5000.0, 300.0, 10.0),
            Kind::Integrated | Kind::Other => CostModel::new("integrated gpu", 500.0, 30.0, 20.0),
            Kind::Software => CostModel::new("software gpu", 10.0, 5.0, 50.0),
        }
    }

    fn supports(&self, graph: &Graph, node: NodeId) -> Result<(), String> {
        support::supports(graph, node)
    }

    fn scratch_bytes(&self, graph: &Graph, group: &Group) -> u64 {
        estimate(graph, group, self.limits.alignment).scratch
    }

    fn seconds(&self, graph: &Graph, group: &Group, _: u64, cost_model: &CostModel) -> f64 {
        if let Some(seconds) = exchange::seconds(graph, group, cost_model) {
            return seconds;
        }
        let seconds = |step: &Step| {
            let (flops, bytes) = step.work();
            let (compute, memory) =
                (flops as f64 / (cost_model.gflops * 1e9), bytes as f64 / (cost_model.gbytes * 1e9));
            cost_model.launch_us * 1e-6 + compute.max(memory)
        };
        estimate(graph, group, self.limits.alignment).steps.iter().map(seconds).sum()
    }

    fn kernels(&self, graph: &Graph, group: &Group) -> u64 {
        estimate(graph, group, self.limits.alignment).steps.len() as u64
    }

    fn staging_bytes(&self, programs: &[StagedProgram]) -> u64 {
        staging_bytes(programs, self)
    }

    fn alignment(&self) -> u64 {
        self.limits.alignment
    }

    fn largest_binding(&self) -> u64 {
        self.limits.binding
    }

    fn largest_segment(&self) -> u64 {
        self.limits.buffer
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
