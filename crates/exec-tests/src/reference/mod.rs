//! The naive reference executor: every op as its definition, in f64, with plain loops. It is meant to be trusted by
//! reading, and it never reorders, fuses, reuses or plans anything.

#![deny(clippy::wildcard_enum_match_arm)]

mod contract;
mod elementwise;
mod executor;
mod layout;
mod loss;
mod norm;
mod rounding;
mod update;
mod window;

use std::collections::HashMap;
use std::ops::Index;

use memfit_ir::op::{Init, State};
use memfit_ir::{Graph, Node, Op, TensorType, ValueId, philox};

pub use executor::ReferenceExecutor;
use rounding::Noise;
pub use rounding::Rounding;

use crate::error::{Error, Result};
use crate::tensor::{Tensor, round_to};

/// Every value of a graph after a run.
#[derive(Clone, Debug)]
pub struct Values(Vec<Tensor>);

impl Index<ValueId> for Values {
    type Output = Tensor;
    fn index(&self, v: ValueId) -> &Tensor {
        &self.0[v.index()]
    }
}

/// Runs the graph once on inputs and states given by name.
pub fn evaluate(graph: &Graph, inputs: &HashMap<String, Tensor>, states: &HashMap<String, Tensor>) -> Result<Values> {
    walk(graph, |node, given, types| run_node(node, given, types, inputs, states))
}

/// The same with the rounding that a device may add, drawn at random: how much a result moves under it says how exactly
/// a device can be expected to know the result.
pub fn evaluate_rounded(
    graph: &Graph,
    inputs: &HashMap<String, Tensor>,
    states: &HashMap<String, Tensor>,
    rounding: Rounding,
    seed: u32,
) -> Result<Values> {
    let mut noise = Noise::new(rounding, seed);
    walk(graph, |node, given, types| {
        let results: Vec<usize> = types.iter().map(|ty| ty.elements()).collect();
        let rounded = noise.before(node, given, &results);
        let made = run_node(node, &rounded.iter().collect::<Vec<_>>(), types, inputs, states)?;
        Ok(noise.after(node, made))
    })
}

fn walk(
    graph: &Graph,
    mut run: impl FnMut(&Node, &[&Tensor], &[&TensorType]) -> Result<Vec<Tensor>>,
) -> Result<Values> {
    let mut values: Vec<Tensor> = Vec::with_capacity(graph.values().len());
    for node in graph.nodes() {
        let given: Vec<&Tensor> = node.inputs.iter().map(|v| &values[v.index()]).collect();
        let types: Vec<&TensorType> = node.outputs.iter().map(|&v| graph.ty(v)).collect();
        values.extend(run(node, &given, &types)?);
    }
    Ok(Values(values))
}

/// The outputs of one node, stored as their types do.
fn run_node(
    node: &Node,
    given: &[&Tensor],
    types: &[&TensorType],
    inputs: &HashMap<String, Tensor>,
    states: &HashMap<String, Tensor>,
) -> Result<Vec<Tensor>> {
    let mut made = compute(node, given, types, inputs, states)?;
    for (tensor, ty) in made.iter_mut().zip(types) {
        assert_eq!(tensor.ty, **ty, "{} gave another type than its rule", node.op.name());
        tensor.data.iter_mut().for_each(|x| *x = round_to(ty.dtype, *x));
    }
    assert_eq!(made.len(), types.len(), "{} gave another number of outputs than its rule", node.op.name());
    Ok(made)
}

/// The states after a run: each updated one takes its new value, the others stay.
pub fn apply_donations(graph: &Graph, values: &Values, states: &HashMap<String, Tensor>) -> HashMap<String, Tensor> {
    let mut after = states.clone();
    for (state, old) in graph.states() {
        if let Some(d) = graph.donations.iter().find(|d| d.old == old) {
            after.insert(state.name.clone(), values[d.new].clone());
        }
    }
    after
}

/// The states before step one, drawn as their [`Init`] says.
pub fn initial_states(graph: &Graph, seed: u64) -> HashMap<String, Tensor> {
    graph.states().map(|(s, v)| (s.name.clone(), initial_state(s, graph.ty(v), seed))).collect()
}

fn initial_state(state: &State, ty: &TensorType, seed: u64) -> Tensor {
    let count = ty.elements();
    let data: Vec<f32> = match state.init {
        Init::Constant(c) => vec![c; count],
        Init::Normal { std } => philox::normal(seed, &state.name, count).map(|x| x * std).collect(),
        Init::Uniform { limit } => philox::uniform(seed, &state.name, count).map(|x| x * limit).collect(),
    };
    Tensor { ty: ty.clone(), data: data.into_iter().map(|x| round_to(ty.dtype, f64::from(x))).collect() }
}

/// `x` are the node's inputs, `out` the types of its outputs.
fn compute(
    node: &Node,
    x: &[&Tensor],
    out: &[&TensorType],
    inputs: &HashMap<String, Tensor>,
    states: &HashMap<String, Tensor>,
) -> Result<Vec<Tensor>> {
    let one = |t: Tensor| Ok(vec![t]);
    let located =
        |e: OutOfRange| Error::IdOutOfRange { op: node.op.name(), scope: node.scope.clone(), id: e.id, limit: e.limit };
    match &node.op {
        Op::Input(i) => one(given("input", &i.name, out[0], inputs)?),
        Op::State(s) => one(given("state", &s.name, out[0], states)?),
        Op::Fill(f) => one(Tensor::filled(out[0], f64::from(f.value))),
        Op::Unary(u) => one(elementwise::unary(*u, x[0])),
        Op::UnaryGrad(u) => one(elementwise::unary_grad(*u, x[0], x[1])),
        Op::Mask(u) => one(elementwise::mask(*u, x[0], out[0])),
        Op::MaskGrad(u) => one(elementwise::mask_grad(*u, x[0], x[1])),
        Op::Binary(b) => one(elementwise::binary(*b, x[0], x[1], out[0])),
        Op::Compare(c) => one(elementwise::compare(*c, x[0], x[1], out[0])),
        Op::Select => one(elementwise::select(x[0], x[1], x[2], out[0])),
        Op::Cast(_) => one(Tensor { ty: out[0].clone(), data: x[0].data.clone() }),
        Op::Dropout(d) => one(elementwise::dropout(d, x[0], x[1])),
        Op::Reduce(r) => one(layout::reduce(r, x[0], out[0])),
        Op::Reshape(_) => one(Tensor { ty: out[0].clone(), data: x[0].data.clone() }),
        Op::Transpose(perm) => one(layout::transpose(perm, x[0], out[0])),
        Op::Slice(s) => one(layout::slice(s, x[0], out[0])),
        Op::Concat(axis) => one(layout::concat(*axis, x, out[0])),
        Op::Pad(pads) => one(layout::pad(pads, x[0], out[0])),
        Op::Broadcast(_) => one(Tensor::from_index(out[0], |i| x[0].at_broadcast(i))),
        Op::MatMul(m) => one(contract::matmul(*m, x[0], x[1], out[0])),
        Op::Conv(c) => one(contract::conv(c, x[0], x[1], out[0])),
        Op::ConvTranspose(c) => one(contract::conv_transpose(&c.conv, x[0], x[1], out[0])),
        Op::ConvFilter(c) => one(contract::conv_filter(&c.conv, x[0], x[1], out[0])),
        Op::Attention(a) => Ok(contract::attention(*a, x, out)),
        Op::AttentionGrad(a) => Ok(contract::attention_grad(*a, x, out)),
        Op::MaxPool(w) => Ok(window::max_pool(w, x[0], out)),
        Op::MaxPoolGrad(w) => one(window::max_pool_grad(&w.window, x[0], x[1], out[0])),
        Op::AvgPool(w) => one(window::avg_pool(w, x[0], out[0])),
        Op::AvgPoolGrad(w) => one(window::avg_pool_grad(&w.window, x[0], out[0])),
        Op::Upsample(u) => one(window::upsample(u, x[0], out[0])),
        Op::UpsampleGrad(u) => one(window::upsample_grad(u, x[0], out[0])),
        Op::BatchStats => Ok(norm::batch_stats(x[0], out)),
        Op::BatchApply(eps) => one(norm::batch_apply(*eps, x, out[0])),
        Op::BatchGradReduce(eps) => Ok(norm::batch_grad_reduce(*eps, x, out)),
        Op::BatchGradInput(b) => one(norm::batch_grad_input(b, x, out[0])),
        Op::BatchUpdate(u) => Ok(norm::batch_update(u, x, out)),
        Op::LayerNorm(eps) => Ok(norm::layer_norm(*eps, x, out)),
        Op::LayerNormGrad => Ok(norm::layer_norm_grad(x, out)),
        Op::RmsNorm(eps) => Ok(norm::rms_norm(*eps, x, out)),
        Op::RmsNormGrad => Ok(norm::rms_norm_grad(x, out)),
        Op::GroupNorm(g) => Ok(norm::group_norm(g, x, out)),
        Op::GroupNormGrad(groups) => Ok(norm::group_norm_grad(*groups, x, out)),
        Op::Softmax(s) => one(loss::softmax(*s, x[0])),
        Op::SoftmaxGrad(s) => one(loss::softmax_grad(*s, x[0], x[1])),
        Op::CrossEntropy(c) => loss::cross_entropy(c, x, out).map_err(located),
        Op::CrossEntropyGrad(c) => one(loss::cross_entropy_grad(c, x).map_err(located)?),
        Op::Gather => one(loss::gather(x[0], x[1], out[0]).map_err(located)?),
        Op::GatherGrad(_) => one(loss::gather_grad(x[0], x[1], out[0]).map_err(located)?),
        Op::Update(u) => Ok(update::update(*u, x)),
        Op::Join(_) | Op::Replicate(_) => Err(Error::NeedsOthers { op: node.op.name(), scope: node.scope.clone() }),
    }
}

/// A label or row number outside its table, before it is known in which layer.
struct OutOfRange {
    id: f64,
    limit: usize,
}

fn given(kind: &'static str, name: &str, ty: &TensorType, from: &HashMap<String, Tensor>) -> Result<Tensor> {
    let Some(t) = from.get(name) else {
        return Err(Error::NotGiven { kind, name: name.into(), ty: ty.clone() });
    };
    if t.ty != *ty {
        return Err(Error::WrongType { kind, name: name.into(), expected: ty.clone(), given: t.ty.clone() });
    }
    Tensor::new(t.ty.clone(), t.data.clone())
}
