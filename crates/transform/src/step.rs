//! The training step: a forward graph and its loss become one graph that also differentiates, clips and updates
//! ([`step`]), or two that share the work of a batch in micro-batches ([`split_step`]).
//!
//! Which parameters are trained and how is all that is decided here; layers, initial values and learning-rate
//! schedules are the model's and the caller's.

mod exchange;
mod split;
mod synchronise;
mod update;

use std::collections::HashSet;

use memfit_ir::op::{State, StateClass, Update};
use memfit_ir::{Graph, NodeId, Op, TensorType, ValueId};

use crate::error::{Error, Result};
use crate::grad::{Cotangent, gradients};
use crate::passes;
use crate::precision::Precision;
use crate::precision::scale::{self, Scaling};
use crate::scope::matches;
use crate::step_graph::StepGraph;

pub use exchange::{BatchNorm, Exchange, Shard, parameter_owners};
pub(crate) use exchange::{join, last_token, replicate};
pub use split::{Split, exchanging_split, split_step};
pub(crate) use split::{accumulate, start_from_sums};
pub(crate) use synchronise::{synchronise, synchronised};
pub(crate) use update::{SCOPE, clip, scalar, sum_of_squares, update};

/// How the parameters of a model are trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    pub update: Update,
    pub clip: Clip,
    /// The names of the parameters that stay as they are. A batch norm with none else keeps its running statistics too.
    pub frozen: HashSet<String>,
    pub precision: Precision,
    /// Losses of their own for parts of the model; all else is trained by the loss.
    pub objectives: Vec<Objective>,
}

/// A second loss, as a generator's against its discriminator: some parameters follow it, and no others.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// The output of the forward graph that is the loss, `f32[]`. It is an output of the step too.
    pub loss: String,
    /// What it trains: patterns as of [`crate::scope::matches`].
    pub trains: Vec<String>,
}

impl Training {
    /// All parameters in f32 by one loss, gradients as they are.
    pub fn new(update: Update) -> Training {
        let (clip, precision) = (Clip::None, Precision::F32);
        Training { update, clip, frozen: HashSet::new(), precision, objectives: Vec::new() }
    }
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

/// The whole training step of one replica, which trains alone. It keeps the outputs and donations of `forward`, gives the loss as "loss", and updates
/// every parameter that is not frozen from the inputs `lr` and `clock`.
pub fn step(forward: &Graph, loss: ValueId, training: &Training) -> Result<StepGraph> {
    exchanging_step(forward, loss, training, 1.0, &Exchange::ALONE)
}

/// The same of a replica whose samples, `share` of the batch, are one lane of it: gradients, losses, numbers and batch statistics
/// are added up over the lanes before anything is updated.
pub fn exchanging_step(
    forward: &Graph,
    loss: ValueId,
    training: &Training,
    share: f32,
    exchange: &Exchange,
) -> Result<StepGraph> {
    check_share(share)?;
    let mut job = Job::new(forward, loss, training, share, exchange)?;
    passes::run(passes::STEP, &mut job)?;
    Ok(job.finish())
}

/// A graph on its way through the passes, with the values that they look for in it. Whoever renumbers its values renumbers
/// these; after pruning only the graph and the notes are of use.
pub(crate) struct Job<'a> {
    pub(crate) task: Task<'a>,
    pub(crate) graph: Graph,
    /// The loss, then those of the objectives.
    pub(crate) losses: Vec<ValueId>,
    /// The parameters to train, in the order of the graph.
    pub(crate) params: Vec<ValueId>,
    /// One for each parameter, once they are known.
    pub(crate) grads: Vec<ValueId>,
    pub(crate) notes: Notes,
}

/// What is asked: no pass changes it.
#[derive(Clone)]
pub(crate) struct Task<'a> {
    pub(crate) training: &'a Training,
    /// How much of the batch's loss this graph's loss is.
    pub(crate) share: f32,
    pub(crate) exchange: &'a Exchange,
    /// By parameter, which of the losses it follows.
    pub(crate) follows: Vec<usize>,
}

/// What passes leave to later ones.
#[derive(Default)]
pub(crate) struct Notes {
    /// By `round`: an activation, and what its readers read instead.
    pub(crate) stored: Vec<(ValueId, ValueId)>,
    /// By `differentiate`: a forward value and what flowed into it.
    pub(crate) arrivals: Vec<(ValueId, ValueId)>,
    /// By `differentiate`, where the loss is scaled: one over the scale.
    pub(crate) unscale: Option<ValueId>,
    /// By `unscale`, where the loss was scaled.
    pub(crate) scaling: Option<Scaling>,
    /// By the first that asks for it: the sum of the squares of all gradients.
    pub(crate) squares: Option<ValueId>,
    /// By the last exchange.
    pub(crate) token: Option<ValueId>,
    /// By `prune`.
    pub(crate) forward_end: Option<NodeId>,
}

impl<'a> Job<'a> {
    fn new(
        forward: &Graph,
        loss: ValueId,
        training: &'a Training,
        share: f32,
        exchange: &'a Exchange,
    ) -> Result<Job<'a>> {
        training.clip.check()?;
        let mut losses = vec![loss];
        for objective in &training.objectives {
            let name = objective.loss.clone();
            losses.push(forward.output(&name).ok_or(Error::UnknownLoss { name })?);
        }
        losses.iter().try_for_each(|&loss| check_loss(forward, loss))?;
        let params = trained(forward, &training.frozen)?;
        let follows = followed(forward, &params, &training.objectives)?;
        let task = Task { training, share, exchange, follows };
        Ok(Job { task, graph: forward.clone(), losses, params, grads: Vec::new(), notes: Notes::default() })
    }

    fn finish(self) -> StepGraph {
        StepGraph { graph: self.graph, forward_end: self.notes.forward_end }
    }

    /// What the sum of each loss over the micro-batches is called.
    pub(crate) fn loss_names(&self) -> Vec<String> {
        let others = self.task.training.objectives.iter().map(|o| o.loss.clone());
        std::iter::once(LOSS.to_string()).chain(others).collect()
    }
}

fn check_share(share: f32) -> Result<()> {
    if share > 0.0 && share <= 1.0 { Ok(()) } else { Err(Error::Share { share }) }
}

/// Gives the loss out under its name, where the model does not.
pub(crate) fn name_loss(job: &mut Job) -> Result<()> {
    if job.graph.output(LOSS).is_none() {
        job.graph.outputs.push((LOSS.into(), job.losses[0]));
    }
    Ok(())
}

/// By parameter, which loss it follows: the first objective that names it, or the loss itself.
fn followed(forward: &Graph, params: &[ValueId], objectives: &[Objective]) -> Result<Vec<usize>> {
    let means = |o: &Objective, v: ValueId| o.trains.iter().any(|p| matches(p, &state_of(forward, v).name));
    if let Some(o) = objectives.iter().find(|o| !params.iter().any(|&v| means(o, v))) {
        return Err(Error::IdleObjective { loss: o.loss.clone(), trains: o.trains.join(", ") });
    }
    let of = |&v: &ValueId| objectives.iter().position(|o| means(o, v)).map_or(0, |i| i + 1);
    Ok(params.iter().map(of).collect())
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
    let seed = scale::seed(job)?.map_or(Cotangent::Constant(job.task.share), Cotangent::Value);
    let mut grads = vec![None; job.params.len()];
    for (i, &loss) in job.losses.iter().enumerate() {
        let of: Vec<usize> = (0..job.params.len()).filter(|&p| job.task.follows[p] == i).collect();
        let params: Vec<ValueId> = of.iter().map(|&p| job.params[p]).collect();
        let found = gradients(&job.graph, &[(loss, seed)], &params)?;
        of.into_iter().zip(found.of).for_each(|(p, grad)| grads[p] = grad);
        job.notes.arrivals.extend(found.arrivals);
        job.graph = found.graph;
    }
    let given =
        job.params.iter().zip(grads).map(|(&param, grad)| {
            grad.ok_or_else(|| Error::Unreached { param: state_of(&job.graph, param).name.clone() })
        });
    job.grads = given.collect::<Result<_>>()?;
    Ok(())
}

/// The state that a value is; for values known to be one.
pub(crate) fn state_of(graph: &Graph, v: ValueId) -> &State {
    let op = graph.producer_op(v);
    let Op::State(state) = op else { unreachable!("%{} is a state, not the output of {}", v.0, op.name()) };
    state
}

pub(crate) fn scope_of(graph: &Graph, v: ValueId) -> String {
    graph.node(graph.producer(v)).scope.clone()
}

/// Appends a node and gives its first output.
pub(crate) fn push(graph: &mut Graph, op: Op, inputs: &[ValueId], scope: &str) -> Result<ValueId> {
    let node = graph.push(op, inputs, scope)?;
    Ok(graph.node(node).outputs[0])
}
