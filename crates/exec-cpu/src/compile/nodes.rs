//! Kernels of single nodes: everything that is neither an elementwise chain nor a contraction. A line an op.

use bytemuck::Pod;
use memfit_exec::KernelError;
use memfit_ir::op::{Fill, Op, Slice};
use memfit_ir::{DType, Graph, Node, Shape};
use memfit_plan::{Launch, Place, Program, Segment};

use super::placed;
use crate::Cpu;
use crate::kernels::attention;
use crate::kernels::attention_grad::{self, AttentionSaved};
use crate::kernels::batch_norm::{self, Stats};
use crate::kernels::cross_entropy::{self, Labels};
use crate::kernels::group_norm::{self, GroupNormSaved, GroupShape};
use crate::kernels::heads::AttentionShape;
use crate::kernels::layer_norm::{self, LayerNormSaved, RmsNormSaved};
use crate::kernels::{BadIndex, Image, gather, layout, reduce, softmax, transpose, update, upsample, window};
use crate::memory::Memory;

impl From<BadIndex> for KernelError {
    fn from(e: BadIndex) -> KernelError {
        KernelError::Index { index: e.index, position: e.position, limit: e.limit }
    }
}

/// Rows and the extent of the last axis.
pub(super) fn rows_and_last(shape: &[usize]) -> (usize, usize) {
    let last = shape.last().copied().unwrap_or(1);
    (shape.iter().product::<usize>() / last.max(1), last)
}

fn image(shape: &[usize]) -> Image {
    Image::new(shape[0], shape[1], shape[2], shape[3])
}

fn group_shape(x: &[usize], groups: usize) -> GroupShape {
    let (rows, channels) = rows_and_last(x);
    GroupShape { samples: x[0], places: rows / x[0].max(1), channels, groups }
}

fn attention_shape(qkv: &[usize]) -> AttentionShape {
    AttentionShape { batch: qkv[0], sequence: qkv[1], heads: qkv[3], dim: qkv[4] }
}

/// Elements of scratch of a node's kernel.
pub(super) fn scratch_len(cpu: &Cpu, graph: &Graph, node: &Node) -> usize {
    let threads = cpu.pool.threads();
    let shape = |i: usize| graph.shape(node.inputs[i]);
    let by_rows = |f: fn(usize, usize) -> usize| {
        let (rows, last) = rows_and_last(shape(0));
        f(rows, last)
    };
    match &node.op {
        Op::Reduce(r) => reduce::reduce_scratch(shape(0), &r.axes),
        Op::BatchStats => by_rows(batch_norm::batch_stats_scratch),
        Op::BatchGradReduce(_) => by_rows(batch_norm::batch_grad_reduce_scratch),
        Op::LayerNormGrad => by_rows(layer_norm::layer_norm_grad_scratch),
        Op::RmsNormGrad => by_rows(layer_norm::rms_norm_grad_scratch),
        Op::GroupNorm(g) => group_norm::group_norm_scratch(&group_shape(shape(0), g.groups)),
        Op::GroupNormGrad(groups) => group_norm::group_norm_grad_scratch(&group_shape(shape(0), *groups)),
        Op::Attention(_) => attention::attention_scratch(threads, &attention_shape(shape(0))),
        Op::AttentionGrad(_) => attention_grad::attention_grad_scratch(threads, &attention_shape(shape(0))),
        Op::Input(_)
        | Op::State(_)
        | Op::Fill(_)
        | Op::Unary(_)
        | Op::UnaryGrad(_)
        | Op::Mask(_)
        | Op::MaskGrad(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Dropout(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Slice(_)
        | Op::Concat(_)
        | Op::Pad(_)
        | Op::Broadcast(_)
        | Op::MatMul(_)
        | Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::ConvFilter(_)
        | Op::MaxPool(_)
        | Op::MaxPoolGrad(_)
        | Op::AvgPool(_)
        | Op::AvgPoolGrad(_)
        | Op::Upsample(_)
        | Op::UpsampleGrad(_)
        | Op::BatchApply(_)
        | Op::BatchGradInput(_)
        | Op::BatchUpdate(_)
        | Op::LayerNorm(_)
        | Op::RmsNorm(_)
        | Op::Softmax(_)
        | Op::SoftmaxGrad(_)
        | Op::CrossEntropy(_)
        | Op::CrossEntropyGrad(_)
        | Op::Gather
        | Op::GatherGrad(_)
        | Op::Update(_)
        | Op::Join(_)
        | Op::Replicate(_) => 0,
    }
}

/// A node with its shapes and places.
pub(super) struct NodeKernel {
    op: Op,
    inputs: Vec<(Place, Shape)>,
    outputs: Vec<(Place, Shape)>,
    /// Of the first output.
    dtype: DType,
    scratch: Place,
}

impl NodeKernel {
    pub(super) fn new(program: &Program, launch: &Launch) -> NodeKernel {
        let graph = &program.graph;
        let node = graph.node(launch.group.root());
        let of = |v: &memfit_ir::ValueId| (placed(program, *v), graph.ty(*v).shape.clone());
        let dtype = graph.ty(node.outputs[0]).dtype;
        NodeKernel {
            op: node.op.clone(),
            inputs: node.inputs.iter().map(of).collect(),
            outputs: node.outputs.iter().map(of).collect(),
            dtype,
            scratch: launch.scratch.unwrap_or(Place { segment: Segment::Transient, offset: 0, size: 0 }),
        }
    }

    /// Runs it in an arena that has the places of its group.
    pub(super) fn launch(&self, cpu: &Cpu, memory: &Memory) -> Result<(), KernelError> {
        let shape = |i: usize| &self.inputs[i].1[..];
        let out_shape = |i: usize| &self.outputs[i].1[..];
        // SAFETY: the arena has this place, and the plan keeps what a kernel reads apart from what it writes and from its scratch.
        // Where a result lies in the place of an input, the arm below never looks at that input.
        let x = |i: usize| unsafe { memory.read::<f32>(self.inputs[i].0) };
        // SAFETY: the arena has this place, the plan keeps it apart from all others of the kernel, and each arm takes it once.
        let y = |i: usize| unsafe { memory.write::<f32>(self.outputs[i].0) };
        // SAFETY: the arena has this place, the plan keeps it apart from all others of the kernel, and each arm takes it once.
        let scratch = || unsafe { memory.write::<f32>(self.scratch) };
        // SAFETY: the arena has this place, and no result lies there.
        let ids = |i: usize| unsafe { memory.read::<i32>(self.inputs[i].0) };
        // SAFETY: the arena has this place, and no result lies there.
        let bytes = |i: usize| unsafe { memory.read::<u8>(self.inputs[i].0) };
        let last = |i: usize| rows_and_last(shape(i)).1;
        // An update whose gate is 0 leaves its states as they lie: the new ones are in the same places.
        let held_back = |gate: usize| gate < self.inputs.len() && bytes(gate)[0] == 0;
        match &self.op {
            Op::Fill(f) => self.layout(cpu, memory, Layout::Fill(f)),
            Op::Reshape(_) => self.layout(cpu, memory, Layout::Copy),
            Op::Transpose(perm) => self.layout(cpu, memory, Layout::Transpose(perm)),
            Op::Slice(s) => self.layout(cpu, memory, Layout::Slice(s)),
            Op::Concat(axis) => self.layout(cpu, memory, Layout::Concat(*axis)),
            Op::Pad(pads) => self.layout(cpu, memory, Layout::Pad(pads)),
            Op::Broadcast(to) => self.layout(cpu, memory, Layout::Broadcast(to)),
            Op::Reduce(r) => reduce::reduce(cpu, r.kind, shape(0), &r.axes, x(0), y(0), scratch()),
            Op::MaxPool(w) => {
                // SAFETY: the arena has this place, the plan keeps it apart from all others of the kernel, and it is taken once.
                let index = unsafe { memory.write::<u8>(self.outputs[1].0) };
                window::max_pool(cpu, w, image(shape(0)), x(0), y(0), index);
            }
            Op::MaxPoolGrad(w) => window::max_pool_grad(cpu, &w.window, image(out_shape(0)), bytes(0), x(1), y(0)),
            Op::AvgPool(w) => window::avg_pool(cpu, w, image(shape(0)), x(0), y(0)),
            Op::AvgPoolGrad(w) => window::avg_pool_grad(cpu, &w.window, image(out_shape(0)), x(0), y(0)),
            Op::Upsample(u) => upsample::upsample(cpu, u, image(shape(0)), x(0), y(0)),
            Op::UpsampleGrad(u) => upsample::upsample_grad(cpu, u, image(out_shape(0)), x(0), y(0)),
            Op::BatchStats => batch_norm::batch_stats(cpu, last(0), x(0), y(0), y(1), scratch()),
            Op::BatchGradReduce(e) => {
                let stats = Stats { mean: x(1), var: x(2), eps: e.0 };
                batch_norm::batch_grad_reduce(cpu, stats, x(0), x(3), y(0), y(1), scratch());
            }
            // The new statistics lie where the old ones lay.
            Op::BatchUpdate(_) if held_back(4) => {}
            Op::BatchUpdate(u) => batch_norm::batch_update(cpu, u.momentum, [y(0), y(1)], [x(2), x(3)]),
            Op::LayerNorm(e) => layer_norm::layer_norm(cpu, e.0, x(0), (x(1), x(2)), y(0), (y(1), y(2))),
            Op::LayerNormGrad => {
                let saved = LayerNormSaved { x: x(0), mean: x(1), rstd: x(2), scale: x(3) };
                layer_norm::layer_norm_grad(cpu, saved, x(4), y(0), (y(1), y(2)), scratch());
            }
            Op::RmsNorm(e) => layer_norm::rms_norm(cpu, e.0, x(0), x(1), y(0), y(1)),
            Op::RmsNormGrad => {
                let saved = RmsNormSaved { x: x(0), rstd: x(1), scale: x(2) };
                layer_norm::rms_norm_grad(cpu, saved, x(3), y(0), y(1), scratch());
            }
            Op::GroupNorm(g) => {
                let sizes = group_shape(shape(0), g.groups);
                group_norm::group_norm(cpu, &sizes, g.eps, x(0), (x(1), x(2)), (y(0), y(1), y(2)), scratch());
            }
            Op::GroupNormGrad(groups) => {
                let saved = GroupNormSaved { x: x(0), mean: x(1), rstd: x(2), scale: x(3) };
                let sizes = group_shape(shape(0), *groups);
                group_norm::group_norm_grad(cpu, &sizes, saved, x(4), y(0), (y(1), y(2)), scratch());
            }
            Op::Softmax(s) => softmax::softmax(cpu, s.log, last(0), x(0), y(0)),
            Op::SoftmaxGrad(s) => softmax::softmax_grad(cpu, s.log, last(0), x(0), x(1), y(0)),
            Op::CrossEntropy(c) => {
                let labels = self.labels(ids, x);
                cross_entropy::cross_entropy(cpu, c.smoothing, x(0), labels, y(0), y(1))?;
            }
            Op::CrossEntropyGrad(c) => {
                let labels = self.labels(ids, x);
                let logits = (self.inputs[0].0 != self.outputs[0].0).then(|| x(0));
                cross_entropy::cross_entropy_grad(cpu, c.smoothing, logits, labels, (x(2), x(3)), y(0))?;
            }
            Op::Gather => gather::gather(cpu, last(0), x(0), ids(1), y(0))?,
            Op::GatherGrad(_) => gather::gather_grad(cpu, last(1), ids(0), x(1), y(0))?,
            Op::Attention(a) => {
                attention::attention(cpu, *a, &attention_shape(shape(0)), x(0), y(0), y(1), scratch());
            }
            Op::AttentionGrad(a) => {
                let sizes = attention_shape(shape(0));
                let qkv = (self.inputs[0].0 != self.outputs[0].0).then(|| x(0));
                let saved = AttentionSaved { qkv, y: x(1), lse: x(2) };
                attention_grad::attention_grad(cpu, *a, &sizes, saved, x(3), y(0), scratch());
            }
            Op::Update(rule) if held_back(4 + rule.slots().len()) => {}
            Op::Update(rule) => {
                let slots = rule.slots().len();
                let step = update::Step { learning_rate: x(2 + slots)[0], step: ids(3 + slots)[0] };
                let mut views: [&mut [f32]; 2] = [&mut [], &mut []];
                for (i, view) in views.iter_mut().enumerate().take(slots) {
                    *view = y(1 + i);
                }
                update::update(cpu, *rule, step, y(0), x(1), &mut views[..slots]);
            }
            op @ (Op::Input(_)
            | Op::State(_)
            | Op::Join(_)
            | Op::Replicate(_)
            | Op::Unary(_)
            | Op::UnaryGrad(_)
            | Op::Mask(_)
            | Op::MaskGrad(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Dropout(_)
            | Op::BatchApply(_)
            | Op::BatchGradInput(_)
            | Op::MatMul(_)
            | Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::ConvFilter(_)) => unreachable!("{} has no kernel of its own", op.name()),
        }
        Ok(())
    }

    /// Labels are classes or distributions; in both ops they are the second input.
    fn labels<'a>(&self, ids: impl Fn(usize) -> &'a [i32], x: impl Fn(usize) -> &'a [f32]) -> Labels<'a> {
        if self.inputs[1].1.rank() < self.inputs[0].1.rank() {
            Labels::Classes(ids(1))
        } else {
            Labels::Distributions(x(1))
        }
    }

    /// Ops that only move elements, whatever they mean.
    fn layout(&self, cpu: &Cpu, memory: &Memory, layout: Layout) {
        match self.dtype {
            DType::U8 => self.layout_of::<u8>(cpu, memory, layout),
            DType::F16 | DType::BF16 => self.layout_of::<u16>(cpu, memory, layout),
            DType::F32 | DType::I32 => self.layout_of::<u32>(cpu, memory, layout),
            DType::Bit => unreachable!("the type rules keep bits out of {}", self.op.name()),
        }
    }

    /// The same with elements of one size.
    fn layout_of<T: Pod + Default + Send + Sync>(&self, cpu: &Cpu, memory: &Memory, layout: Layout)
    where
        u32: As<T>,
    {
        let shape = |i: usize| &self.inputs[i].1[..];
        // SAFETY: the arena has this place, and the plan keeps what a kernel reads apart from what it writes.
        let x = |i: usize| unsafe { memory.read::<T>(self.inputs[i].0) };
        // SAFETY: the arena has this place, and the plan keeps it apart from the inputs; each arm takes it once, concat once for
        // each part after the other.
        let y = || unsafe { memory.write::<T>(self.outputs[0].0) };
        match layout {
            Layout::Fill(f) => layout::fill(cpu, bits(f).cast(), y()),
            Layout::Copy => layout::copy(cpu, x(0), y()),
            Layout::Transpose(perm) => transpose::transpose(cpu, shape(0), perm, x(0), y()),
            Layout::Slice(s) => layout::slice(cpu, shape(0), (&s.start, &s.stop), x(0), y()),
            Layout::Pad(pads) => layout::pad(cpu, shape(0), pads, x(0), y()),
            Layout::Broadcast(to) => layout::broadcast(cpu, shape(0), to, x(0), y()),
            Layout::Concat(axis) => {
                let outer: usize = self.outputs[0].1[..axis].iter().product();
                let mut offset = 0;
                for i in 0..self.inputs.len() {
                    layout::concat_part(cpu, outer, offset, x(i), y());
                    offset += x(i).len() / outer.max(1);
                }
            }
        }
    }
}

/// How an op moves elements.
#[derive(Clone, Copy)]
enum Layout<'a> {
    Fill(&'a Fill),
    Copy,
    Transpose(&'a [usize]),
    Slice(&'a Slice),
    Concat(usize),
    Pad(&'a [(usize, usize)]),
    Broadcast(&'a [usize]),
}

/// The bits of a constant, in the low end.
fn bits(f: &Fill) -> u32 {
    match f.dtype {
        DType::F32 => f.value.to_bits(),
        DType::F16 => half::f16::from_f32(f.value).to_bits() as u32,
        DType::BF16 => half::bf16::from_f32(f.value).to_bits() as u32,
        DType::I32 => f.value as i32 as u32,
        DType::U8 => f.value as u8 as u32,
        DType::Bit => unreachable!("the type rules refuse a constant of bits"),
    }
}

/// The low end of a word.
trait As<T> {
    fn cast(self) -> T;
}

impl As<u8> for u32 {
    fn cast(self) -> u8 {
        self as u8
    }
}

impl As<u16> for u32 {
    fn cast(self) -> u16 {
        self as u16
    }
}

impl As<u32> for u32 {
    fn cast(self) -> u32 {
        self
    }
}
