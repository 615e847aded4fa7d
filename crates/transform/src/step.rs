//! The training step: a forward graph and its loss become one graph that also differentiates, clips and updates
//! ([`step`]), or two that share the work of a batch in micro-batches ([`split_step`]).
//!
//! Which parameters are trained and how is all that is decided here; layers, initial values and learning-rate
//! schedules are the model's and the caller's.

mod split;
mod update;

use std::collections::HashSet;

use memfit_ir::op::{State, StateClass, Update};
use memfit_ir::{Graph, Op, TensorType, ValueId};

use crate::error::{Error, Result};
use crate::grad::{Cotangent, gradients};
use crate::passes;
use crate::precision::Precision;
use crate::precision::scale::{self, Scaling};

pub(crate) use split::accumulate;
pub use split::{Split, split_step};
pub(crate) use update::{SCOPE, clip, scalar, sum_of_squares, update};

/// How the parameters of a model are trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    pub update: Update,
    pub clip: Clip,
    /// The names of the parameters that stay as they are.
    pub frozen: HashSet<String>,
    pub precision: Precision,
}

/// A limit on the gradients; positive and finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clip {
    None,
    /// Each element is held between −limit and limit.
    Value(f32),
    /// All gradients are scaled by one factor, so that their common Euclidean norm is at most the limit.
    GlobalNorm(f32),
}

impl Clip {
    fn check(self) -> Result<()> {
        match self {
            Clip::None => Ok(()),
            Clip::Value(limit) | Clip::GlobalNorm(limit) if limit > 0.0 && limit.is_finite() => Ok(()),
            Clip::Value(limit) | Clip::GlobalNorm(limit) => Err(Error::Clip { limit }),
        }
    }
}

/// The name of the output that is the loss.
pub(crate) const LOSS: &str = "loss";
/// What the names of the sums over micro-batches begin with.
pub(crate) const ACCUMULATE: &str = "accumulate/";

/// The whole training step. It keeps the outputs and donations of `forward`, gives the loss as "loss", and updates
/// every parameter that is not frozen from the inputs `lr` and `clock`.
pub fn step(forward: &Graph, loss: ValueId, training: &Training) -> Result<Graph> {
    let mut job = Job::new(forward, loss, training, 1.0)?;
    if job.graph.output(LOSS).is_none() {
        job.graph.outputs.push((LOSS.into(), loss));
    }
    passes::run(passes::STEP, &mut job)?;
    Ok(job.graph)
}

/// What the passes hand on to each other. After pruning only the graph is of use.
pub(crate) struct Job<'a> {
    pub(crate) graph: Graph,
    pub(crate) training: &'a Training,
    pub(crate) loss: ValueId,
    /// How much of the batch's loss this graph's loss is.
    pub(crate) share: f32,
    /// The parameters to train, in the order of the graph.
    pub(crate) params: Vec<ValueId>,
    /// One for each parameter, once they are known.
    pub(crate) grads: Vec<ValueId>,
    /// Of mixed precision: an activation, and what its readers read instead.
    pub(crate) stored: Vec<(ValueId, ValueId)>,
    /// A forward value and what flowed into it.
    pub(crate) arrivals: Vec<(ValueId, ValueId)>,
    /// Where the loss is scaled: one over the scale, once there are gradients.
    pub(crate) unscale: Option<ValueId>,
    /// Where the loss is scaled, once the gradients are not any more.
    pub(crate) scaling: Option<Scaling>,
    /// The sum of the squares of all gradients, once somebody asked for it.
    pub(crate) squares: Option<ValueId>,
}

impl<'a> Job<'a> {
    fn new(forward: &Graph, loss: ValueId, training: &'a Training, share: f32) -> Result<Job<'a>> {
        training.clip.check()?;
        check_loss(forward, loss)?;
        let params = trained(forward, &training.frozen)?;
        Ok(Job::at(forward.clone(), training, loss, share, params))
    }

    fn at(graph: Graph, training: &'a Training, loss: ValueId, share: f32, params: Vec<ValueId>) -> Job<'a> {
        let (grads, stored, arrivals) = (Vec::new(), Vec::new(), Vec::new());
        let (unscale, scaling, squares) = (None, None, None);
        Job { graph, training, loss, share, params, grads, stored, arrivals, unscale, scaling, squares }
    }
}

fn check_loss(forward: &Graph, loss: ValueId) -> Result<()> {
    match forward.values().get(loss.index()) {
        None => Err(Error::NotDifferentiable { value: loss.0, problem: "does not exist".into() }),
        Some(value) if value.ty != TensorType::f32([]) => Err(Error::Loss { ty: value.ty.clone() }),
        Some(_) => Ok(()),
    }
}

/// A misspelt name would train what should stay frozen, so an unknown one is an error.
fn trained(forward: &Graph, frozen: &HashSet<String>) -> Result<Vec<ValueId>> {
    let params = || forward.states().filter(|(s, _)| s.class == StateClass::Param);
    let known: HashSet<&str> = params().map(|(s, _)| s.name.as_str()).collect();
    if let Some(name) = frozen.iter().filter(|n| !known.contains(n.as_str())).min() {
        return Err(Error::UnknownFrozen { name: name.clone() });
    }
    let trained: Vec<ValueId> = params().filter(|(s, _)| !frozen.contains(&s.name)).map(|(_, v)| v).collect();
    if trained.is_empty() { Err(Error::NothingToTrain) } else { Ok(trained) }
}

pub(crate) fn differentiate(job: &mut Job) -> Result<()> {
    let seed = scale::seed(job)?.map_or(Cotangent::Constant(job.share), Cotangent::Value);
    let found = gradients(&job.graph, &[(job.loss, seed)], &job.params)?;
    let given =
        job.params.iter().zip(&found.of).map(|(&param, grad)| {
            grad.ok_or_else(|| Error::Unreached { param: state_of(&job.graph, param).name.clone() })
        });
    job.grads = given.collect::<Result<_>>()?;
    job.arrivals = found.arrivals;
    job.graph = found.graph;
    Ok(())
}

/// The state that a value is; for values known to be one.
pub(crate) fn state_of(graph: &Graph, v: ValueId) -> &State {
    match graph.producer_op(v) {
        Op::State(s) => s,
        other => unreachable!("%{} is a state, not the output of {}", v.0, other.name()),
    }
}

pub(crate) fn scope_of(graph: &Graph, v: ValueId) -> String {
    graph.node(graph.producer(v)).scope.clone()
}

/// Appends a node and gives its first output.
pub(crate) fn push(graph: &mut Graph, op: Op, inputs: &[ValueId], scope: &str) -> Result<ValueId> {
    let node = graph.push(op, inputs, scope)?;
    Ok(graph.node(node).outputs[0])
}
