//! Mixed precision: activations and their gradients are stored in 16 bits; everything is computed and added up in f32, and
//! parameters, their gradients, statistics, the loss and the optimizer stay in f32 throughout.
//!
//! It is three changes of the graph, all independent of budget and plan, all made of explicit casts:
//!
//! - `round` runs on the forward graph: an activation that leaves its chain (see `points`) goes through a pair of
//!   casts, to 16 bits and back, and all of its readers read the pair's end. The gradient of the pair rounds the activation's
//!   gradient in the same place, after it was summed in f32.
//! - `round_gradients` runs after differentiation: what the first left of activation gradients that leave their chains is
//!   rounded likewise, and gradients that read their op's own result read what was stored of it.
//! - `widen` runs last: the cast back to f32 is repeated directly before each reader, so that what lives from one kernel
//!   to the next, and above all from forward to backward, is 16 bits.
//!
//! f16 has five bits of exponent, so that small gradients would vanish: `scale` keeps the loss's scale.

pub(crate) mod points;
pub(crate) mod scale;
pub(crate) mod widen;

use memfit_ir::{DType, Donation, Graph, Op, ValueId};

use crate::error::Result;
use crate::prune::prune_forward;
use crate::step::Job;
use points::{Points, Role};

pub use scale::SKIPPED_STEPS;

/// In what the numbers of a training are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Precision {
    #[default]
    F32,
    /// Activations and their gradients in 16 bits, all else in f32.
    Mixed(Half),
}

/// A float of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The range of f32 with 8 bits of precision.
    Bf16,
    /// 11 bits of precision up to 65504; the loss is scaled, and steps that overflow are skipped.
    F16,
}

impl Precision {
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)];

    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Mixed(Half::Bf16) => "mixed",
            Precision::Mixed(Half::F16) => "mixed-f16",
        }
    }

    pub fn from_name(name: &str) -> Option<Precision> {
        Precision::ALL.into_iter().find(|p| p.name() == name)
    }

    /// What activations are stored in, where it is not f32.
    fn half(self) -> Option<DType> {
        match self {
            Precision::F32 => None,
            Precision::Mixed(Half::Bf16) => Some(DType::BF16),
            Precision::Mixed(Half::F16) => Some(DType::F16),
        }
    }
}

/// A forward graph that rounds as the training step of the same precision does: what evaluation runs.
pub fn forward_in(graph: &Graph, precision: Precision) -> Result<Graph> {
    let Some(half) = precision.half() else { return Ok(graph.clone()) };
    let points = Points::new(graph);
    let rounded = rounded(graph, half, &points.activations(), &[])?;
    Ok(prune_forward(&widen::widened(&rounded.graph)?.graph))
}

// ---- passes ----------------------------------------------------------------------------------------------------------

pub(crate) fn round(job: &mut Job) -> Result<()> {
    let Some(half) = job.task.training.precision.half() else { return Ok(()) };
    let points = Points::new(&job.graph);
    let found = rounded(&job.graph, half, &points.activations(), &[])?;
    job.params.iter_mut().chain(&mut job.losses).for_each(|v| *v = found.of[v.index()]);
    job.notes.stored = found.pairs;
    job.graph = found.graph;
    Ok(())
}

pub(crate) fn round_gradients(job: &mut Job) -> Result<()> {
    let Some(half) = job.task.training.precision.half() else { return Ok(()) };
    let points = Points::new(&job.graph);
    let mut flows = vec![false; job.graph.values().len()];
    for &(value, gradient) in &job.notes.arrivals {
        let of_activation = points.role(value) == Role::Activation;
        // What a cast has just widened is stored already.
        let stored = matches!(job.graph.producer_op(gradient), Op::Cast(_));
        flows[gradient.index()] |= of_activation && !stored && job.graph.ty(gradient).dtype == DType::F32;
    }
    let at: Vec<bool> = flows.iter().enumerate().map(|(i, f)| *f && points.leaves_chain(ValueId(i as u32))).collect();
    let found = rounded(&job.graph, half, &at, &job.notes.stored)?;
    // A parameter's gradient is never rounded, even where it is an activation's too.
    for v in job.grads.iter_mut().chain(&mut job.params).chain(&mut job.losses).chain(&mut job.notes.unscale) {
        *v = found.of[v.index()];
    }
    job.graph = found.graph;
    Ok(())
}

pub(crate) fn widen(job: &mut Job) -> Result<()> {
    if job.task.training.precision.half().is_some() {
        let found = widen::widened(&job.graph)?;
        job.losses.iter_mut().for_each(|v| *v = found.stored[v.index()]);
        job.graph = found.graph;
    }
    Ok(())
}

// ---- pairs of casts --------------------------------------------------------------------------------------------------

/// A graph with pairs of casts in it.
struct RoundedGraph {
    graph: Graph,
    /// Where each value of the old graph is, before any rounding.
    of: Vec<ValueId>,
    /// A value, and what its readers read instead.
    pairs: Vec<(ValueId, ValueId)>,
}

/// Puts a pair of casts behind every value of `at`. Of the pairs that the graph has already, `known`, whatever comes behind
/// one reads its end.
fn rounded(graph: &Graph, half: DType, at: &[bool], known: &[(ValueId, ValueId)]) -> Result<RoundedGraph> {
    let mut end_of: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    known.iter().for_each(|&(v, end)| end_of[v.index()] = Some(end));
    let mut out = RoundedGraph { graph: Graph::new(), of: Vec::with_capacity(at.len()), pairs: Vec::new() };
    // What the readers of each value read.
    let mut read: Vec<ValueId> = Vec::with_capacity(at.len());
    for node in graph.nodes() {
        let behind = |v: ValueId| end_of[v.index()].filter(|end| end.index() < read.len()).unwrap_or(v);
        let inputs: Vec<ValueId> = node.inputs.iter().map(|&v| read[behind(v).index()]).collect();
        let id = out.graph.push(node.op.clone(), &inputs, &node.scope)?;
        for (&old, new) in node.outputs.iter().zip(out.graph.node(id).outputs.clone()) {
            out.of.push(new);
            let end = if at[old.index()] { pair(&mut out.graph, half, new, &node.scope)? } else { new };
            if end != new {
                out.pairs.push((new, end));
            }
            read.push(end);
        }
    }
    let behind = |v: ValueId| read[end_of[v.index()].unwrap_or(v).index()];
    out.graph.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), behind(*v))).collect();
    let moved = |d: &Donation| Donation { old: out.of[d.old.index()], new: out.of[d.new.index()] };
    out.graph.donations = graph.donations.iter().map(moved).collect();
    Ok(out)
}

fn pair(graph: &mut Graph, half: DType, v: ValueId, scope: &str) -> Result<ValueId> {
    let narrow = graph.push(Op::Cast(half), &[v], scope)?;
    let narrow = graph.node(narrow).outputs[0];
    let wide = graph.push(Op::Cast(DType::F32), &[narrow], scope)?;
    Ok(graph.node(wide).outputs[0])
}
