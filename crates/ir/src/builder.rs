//! The builder: appends nodes to a graph under a scope. One method per thing a model says; anything else goes through
//! [`Builder::op`]. It only builds: layers, initialisers and models live in the `nn` crate.

use std::collections::HashSet;

use crate::dtype::{DType, Shape, TensorType};
use crate::error::{Error, Result};
use crate::graph::{Donation, Graph, ValueId};
use crate::op::*;

#[derive(Debug, Default)]
pub struct Builder {
    graph: Graph,
    scope: Vec<String>,
    names: HashSet<String>,
    next_stream: u32,
    clock: Option<ValueId>,
}

impl Builder {
    pub fn new() -> Self {
        Builder::default()
    }

    pub fn finish(self) -> Graph {
        self.graph
    }

    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub fn ty(&self, v: ValueId) -> &TensorType {
        self.graph.ty(v)
    }

    pub fn shape(&self, v: ValueId) -> &[usize] {
        self.graph.shape(v)
    }

    // ---- scopes and names ------------------------------------------------------------------------------------------

    /// Everything that `f` builds belongs to the layer `name` inside the current one.
    pub fn scope<T>(&mut self, name: impl ToString, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.scope.push(name.to_string());
        let result = f(self);
        self.scope.pop();
        result
    }

    /// The path of the current layer: "layer3/2/conv1".
    pub fn path(&self) -> String {
        self.scope.join("/")
    }

    fn named(&mut self, name: String) -> Result<String> {
        if !self.names.insert(name.clone()) {
            return Err(Error::DuplicateName { name });
        }
        Ok(name)
    }

    /// An error that names the current layer.
    pub fn fail<T>(&self, problem: impl Into<String>) -> Result<T> {
        let path = self.path();
        Err(Error::Model { scope: if path.is_empty() { "model".into() } else { path }, problem: problem.into() })
    }

    // ---- nodes -------------------------------------------------------------------------------------------------------

    /// Appends a node and gives its first output.
    pub fn op(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        Ok(self.op_outputs(op, inputs)?[0])
    }

    /// Appends a node and gives all of its outputs.
    pub fn op_outputs(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let path = self.path();
        let node = self.graph.push(op, inputs, &path)?;
        Ok(self.graph.node(node).outputs.clone())
    }

    pub fn output(&mut self, name: impl Into<String>, value: ValueId) {
        self.graph.outputs.push((name.into(), value));
    }

    /// When the run ends, `new` is the state that was `old`.
    pub fn donate(&mut self, old: ValueId, new: ValueId) {
        self.graph.donations.push(Donation { old, new });
    }

    // ---- sources -----------------------------------------------------------------------------------------------------

    /// What the host gives for every run. Input names stand outside the scopes.
    pub fn input(&mut self, name: &str, ty: TensorType) -> Result<ValueId> {
        let name = self.named(name.to_string())?;
        self.op(Op::Input(Input { name, dtype: ty.dtype, shape: ty.shape }), &[])
    }

    /// The input that tells step, first sample and seed; there is one in a graph.
    pub fn clock(&mut self) -> Result<ValueId> {
        if let Some(v) = self.clock {
            return Ok(v);
        }
        let scope = std::mem::take(&mut self.scope);
        let made = self.input(CLOCK, TensorType::i32([4]));
        self.scope = scope;
        self.clock = Some(made.clone()?);
        made
    }

    pub fn state(&mut self, name: &str, class: StateClass, ty: TensorType, init: Init) -> Result<ValueId> {
        let path = self.path();
        let full = if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
        let name = self.named(full)?;
        self.op(Op::State(State { name, class, dtype: ty.dtype, shape: ty.shape, init }), &[])
    }

    /// A trained f32 tensor, named by the current layer and `name`.
    pub fn param(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<ValueId> {
        self.state(name, StateClass::Param, TensorType::f32(shape), init)
    }

    pub fn fill(&mut self, value: f32, ty: TensorType) -> Result<ValueId> {
        self.op(Op::Fill(Fill { value, dtype: ty.dtype, shape: ty.shape }), &[])
    }

    /// An f32 scalar, broadcast wherever it is used.
    pub fn constant(&mut self, value: f32) -> Result<ValueId> {
        self.fill(value, TensorType::f32([]))
    }

    // ---- elementwise -------------------------------------------------------------------------------------------------

    pub fn unary(&mut self, u: Unary, x: ValueId) -> Result<ValueId> {
        self.op(Op::Unary(u), &[x])
    }

    pub fn binary(&mut self, b: Binary, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.op(Op::Binary(b), &[x, y])
    }

    pub fn add(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Add, x, y)
    }

    pub fn sub(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Sub, x, y)
    }

    pub fn mul(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Mul, x, y)
    }

    pub fn div(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.binary(Binary::Div, x, y)
    }

    pub fn scale(&mut self, x: ValueId, factor: f32) -> Result<ValueId> {
        let c = self.constant(factor)?;
        self.mul(x, c)
    }

    pub fn relu(&mut self, x: ValueId) -> Result<ValueId> {
        self.unary(Unary::Relu, x)
    }

    pub fn compare(&mut self, c: Compare, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.op(Op::Compare(c), &[x, y])
    }

    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.op(Op::Select, &[condition, a, b])
    }

    pub fn cast(&mut self, x: ValueId, to: DType) -> Result<ValueId> {
        self.op(Op::Cast(to), &[x])
    }

    /// Dropout with a stream of its own. The first axis is the sample.
    pub fn dropout(&mut self, x: ValueId, rate: f32) -> Result<ValueId> {
        let clock = self.clock()?;
        let stream = self.next_stream;
        self.next_stream += 1;
        self.op(Op::Dropout(Dropout { rate, stream }), &[x, clock])
    }

    // ---- reduce and layout -------------------------------------------------------------------------------------------

    pub fn reduce(&mut self, kind: ReduceKind, x: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        self.op(Op::Reduce(Reduce { kind, axes, keep }), &[x])
    }

    /// The mean of all elements.
    pub fn mean(&mut self, x: ValueId) -> Result<ValueId> {
        let axes: Vec<usize> = (0..self.shape(x).len()).collect();
        self.reduce(ReduceKind::Mean, x, &axes, false)
    }

    pub fn reshape(&mut self, x: ValueId, shape: impl Into<Shape>) -> Result<ValueId> {
        self.op(Op::Reshape(shape.into()), &[x])
    }

    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId> {
        self.op(Op::Transpose(perm.to_vec()), &[x])
    }

    pub fn slice(&mut self, x: ValueId, start: &[usize], stop: &[usize]) -> Result<ValueId> {
        self.op(Op::Slice(Slice { start: start.to_vec(), stop: stop.to_vec() }), &[x])
    }

    pub fn concat(&mut self, inputs: &[ValueId], axis: usize) -> Result<ValueId> {
        self.op(Op::Concat(axis), inputs)
    }

    pub fn pad(&mut self, x: ValueId, pads: &[(usize, usize)]) -> Result<ValueId> {
        self.op(Op::Pad(pads.to_vec()), &[x])
    }

    pub fn broadcast(&mut self, x: ValueId, shape: impl Into<Shape>) -> Result<ValueId> {
        self.op(Op::Broadcast(shape.into()), &[x])
    }

    // ---- contractions ------------------------------------------------------------------------------------------------

    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.matmul_with(a, b, MatMul { transpose_a: false, transpose_b: false })
    }

    pub fn matmul_with(&mut self, a: ValueId, b: ValueId, m: MatMul) -> Result<ValueId> {
        self.op(Op::MatMul(m), &[a, b])
    }

    pub fn conv(&mut self, x: ValueId, w: ValueId, c: Conv) -> Result<ValueId> {
        self.op(Op::Conv(c), &[x, w])
    }

    pub fn conv_transpose(&mut self, x: ValueId, w: ValueId, c: ConvTranspose) -> Result<ValueId> {
        self.op(Op::ConvTranspose(c), &[x, w])
    }

    /// Softmax self-attention with scale 1/√dim, from (batch, sequence, 3, heads, dim) to (batch, sequence, heads, dim).
    pub fn attention(&mut self, qkv: ValueId, causal: bool) -> Result<ValueId> {
        let dim = self.shape(qkv).last().copied().unwrap_or(1).max(1);
        let scale = 1.0 / (dim as f32).sqrt();
        self.op(Op::Attention(Attention { causal, scale }), &[qkv])
    }

    // ---- windows -----------------------------------------------------------------------------------------------------

    pub fn max_pool(&mut self, x: ValueId, w: Window) -> Result<ValueId> {
        self.op(Op::MaxPool(w), &[x])
    }

    pub fn avg_pool(&mut self, x: ValueId, w: Window) -> Result<ValueId> {
        self.op(Op::AvgPool(w), &[x])
    }

    /// The mean over height and width: N,H,W,C → N,C.
    pub fn global_avg_pool(&mut self, x: ValueId) -> Result<ValueId> {
        self.reduce(ReduceKind::Mean, x, &[1, 2], false)
    }

    /// The maximum over height and width: N,H,W,C → N,C.
    pub fn global_max_pool(&mut self, x: ValueId) -> Result<ValueId> {
        self.reduce(ReduceKind::Max, x, &[1, 2], false)
    }

    pub fn upsample(&mut self, x: ValueId, mode: UpsampleMode, factor: [usize; 2]) -> Result<ValueId> {
        self.op(Op::Upsample(Upsample { mode, factor }), &[x])
    }

    // ---- norms, softmax, losses --------------------------------------------------------------------------------------

    /// Normalised by the statistics of this batch; gives (y, mean, var).
    pub fn batch_norm(&mut self, x: ValueId, scale: ValueId, bias: ValueId, eps: f32) -> Result<[ValueId; 3]> {
        let stats = self.op_outputs(Op::BatchStats, &[x])?;
        let y = self.op(Op::BatchApply(Eps(eps)), &[x, stats[0], stats[1], scale, bias])?;
        Ok([y, stats[0], stats[1]])
    }

    pub fn layer_norm(&mut self, x: ValueId, scale: ValueId, bias: ValueId, eps: f32) -> Result<ValueId> {
        self.op(Op::LayerNorm(Eps(eps)), &[x, scale, bias])
    }

    pub fn rms_norm(&mut self, x: ValueId, scale: ValueId, eps: f32) -> Result<ValueId> {
        self.op(Op::RmsNorm(Eps(eps)), &[x, scale])
    }

    pub fn group_norm(
        &mut self,
        x: ValueId,
        scale: ValueId,
        bias: ValueId,
        groups: usize,
        eps: f32,
    ) -> Result<ValueId> {
        self.op(Op::GroupNorm(GroupNorm { groups, eps }), &[x, scale, bias])
    }

    /// Softmax or its logarithm over any axis; other axes than the last are turned there and back.
    pub fn softmax(&mut self, x: ValueId, axis: usize, log: bool) -> Result<ValueId> {
        let rank = self.shape(x).len();
        if axis + 1 >= rank {
            if axis >= rank {
                return self.fail(format!("softmax over axis {axis} of {}", self.ty(x)));
            }
            return self.op(Op::Softmax(Softmax { log }), &[x]);
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(axis, rank - 1);
        let turned = self.transpose(x, &perm)?;
        let y = self.op(Op::Softmax(Softmax { log }), &[turned])?;
        self.transpose(y, &perm)
    }

    /// Per row: −Σ label · log softmax(logits). Labels are i32 classes or f32 distributions.
    pub fn cross_entropy(&mut self, logits: ValueId, labels: ValueId, smoothing: f32) -> Result<ValueId> {
        self.op(Op::CrossEntropy(CrossEntropy { smoothing }), &[logits, labels])
    }

    /// Per element, from logits and labels in 0…1.
    pub fn sigmoid_cross_entropy(&mut self, logits: ValueId, labels: ValueId) -> Result<ValueId> {
        self.binary(Binary::SigmoidCrossEntropy, logits, labels)
    }

    /// The mean of (x − y)².
    pub fn mean_squared_error(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        let d = self.sub(x, y)?;
        let square = self.mul(d, d)?;
        self.mean(square)
    }

    /// Rows of a table: an embedding.
    pub fn gather(&mut self, table: ValueId, ids: ValueId) -> Result<ValueId> {
        self.op(Op::Gather, &[table, ids])
    }
}
