//! From a planned group to launches, as plain data: which kernels run, on which places, and what scratch they take. The same
//! function answers the planner (how much scratch, how long) and makes what runs, so that the two cannot differ.

pub mod attention;
mod batch_update;
mod cells;
pub mod contract;
pub mod fold;
pub mod gather;
pub mod layout;
mod norm;
pub mod problem;
mod reduce;
mod softmax;
pub mod update;
pub mod window;

use memfit_ir::op::Contraction;
use memfit_ir::{Graph, Node, Op, TensorType, ValueId};
use memfit_plan::{Place, Segment};
use memfit_transform::Group;

use crate::call::Call;
use crate::chain::chain;

/// What runs one after the other for a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Call(Call),
    /// By cubek, which makes its own kernels.
    Product(Product),
}

/// A matrix product: places and shapes of a, b and the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    pub op: memfit_ir::op::MatMul,
    pub operands: [(Place, Vec<usize>); 3],
    pub flops: u64,
}

impl Step {
    /// Floating-point operations, and bytes that must be read and written.
    pub fn work(&self) -> (u64, u64) {
        match self {
            Step::Call(call) => (call.flops, call.bytes),
            Step::Product(p) => (p.flops, p.operands.iter().map(|(place, _)| place.size).sum()),
        }
    }
}

/// A group as launches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lowered {
    pub steps: Vec<Step>,
    /// Bytes of scratch that they take.
    pub scratch: u64,
}

/// Lowers a group of nodes that [`crate::support::supports`] knows, over values that `place` finds. The scratch begins where
/// that of the launch does.
pub fn lower(
    graph: &Graph,
    group: &Group,
    alignment: u64,
    place: &dyn Fn(ValueId) -> Place,
    scratch: Place,
) -> Lowered {
    let root = graph.node(group.root());
    let mut lowering = Lowering { graph, group, place, alignment, base: scratch, lowered: Lowered::default() };
    // A tensor of no elements is there without any work.
    if root.outputs.iter().any(|&v| graph.ty(v).elements() > 0) {
        lowering.root(root);
    }
    lowering.lowered
}

/// The same with made-up places, for the planner's questions.
pub fn estimate(graph: &Graph, group: &Group, alignment: u64) -> Lowered {
    let far_apart =
        |v: ValueId| Place { segment: Segment::State, offset: u64::from(v.0) << 40, size: graph.ty(v).bytes() };
    let scratch = Place { segment: Segment::Transient, offset: 0, size: u64::MAX };
    lower(graph, group, alignment, &far_apart, scratch)
}

/// A group while it is lowered.
struct Lowering<'a> {
    graph: &'a Graph,
    group: &'a Group,
    place: &'a dyn Fn(ValueId) -> Place,
    alignment: u64,
    base: Place,
    lowered: Lowered,
}

impl<'a> Lowering<'a> {
    fn root(&mut self, root: &Node) {
        match &root.op {
            Op::Input(_) | Op::State(_) => unreachable!("{} is in no group", root.op.name()),
            Op::Fill(fill) => self.constant(root.outputs[0], fill),
            Op::Unary(_) | Op::UnaryGrad(_) | Op::Mask(_) | Op::MaskGrad(_) => self.chain(),
            Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Dropout(_) => self.chain(),
            Op::BatchApply(_) | Op::BatchGradInput(_) => self.chain(),
            Op::Reduce(reduce) => self.reduce(root, reduce),
            Op::BatchStats => self.batch_stats(root),
            Op::BatchGradReduce(eps) => self.batch_grad_reduce(root, *eps),
            Op::Concat(axis) => self.concat(root, *axis),
            Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Pad(_) | Op::Broadcast(_) => self.layout(root),
            Op::MatMul(op) => self.contraction(Contraction::MatMul(*op)),
            Op::Conv(op) => self.contraction(Contraction::Conv(*op)),
            Op::ConvTranspose(op) => self.contraction(Contraction::ConvTranspose(*op)),
            Op::ConvFilter(op) => self.contraction(Contraction::ConvFilter(*op)),
            Op::Attention(op) => self.attention_forward(*op, root),
            Op::AttentionGrad(op) => self.attention_grad(*op, root),
            Op::MaxPool(_) | Op::MaxPoolGrad(_) | Op::AvgPool(_) | Op::AvgPoolGrad(_) => self.window(root),
            Op::Upsample(_) | Op::UpsampleGrad(_) => self.window(root),
            Op::LayerNorm(_) | Op::RmsNorm(_) | Op::GroupNorm(_) => self.norm(root),
            Op::LayerNormGrad | Op::RmsNormGrad | Op::GroupNormGrad(_) => self.norm(root),
            Op::Softmax(op) => self.softmax(root, *op),
            Op::SoftmaxGrad(op) => self.softmax_grad(root, *op),
            Op::CrossEntropy(op) => self.cross_entropy(root, *op),
            Op::CrossEntropyGrad(op) => self.cross_entropy_grad(root, *op),
            Op::Gather => self.gathered_rows(root),
            Op::GatherGrad(_) => self.gather_grad(root),
            Op::BatchUpdate(op) => self.batch_update(root, *op),
            Op::Update(op) => self.update(root, *op),
            // Replicas meet on the host, between two kernels.
            Op::Join(_) | Op::Replicate(_) => {}
        }
    }

    fn chain(&mut self) {
        self.push(chain(self.graph, &self.group.nodes, &self.group.writes, self.place));
    }

    fn push(&mut self, call: Call) {
        self.lowered.steps.push(Step::Call(call));
    }

    fn place(&self, v: ValueId) -> Place {
        (self.place)(v)
    }

    fn ty(&self, v: ValueId) -> &'a TensorType {
        self.graph.ty(v)
    }

    /// So many bytes of scratch for the whole group.
    fn scratch(&mut self, bytes: u64) -> Place {
        let start = self.lowered.scratch.next_multiple_of(self.alignment);
        self.lowered.scratch = start + bytes;
        Place { offset: self.base.offset + start, size: bytes, ..self.base }
    }
}
