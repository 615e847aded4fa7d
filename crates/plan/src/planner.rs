//! The pipeline: programs → candidates → the fastest that fits → places → validated plan, or a refusal.
//!
//! Candidates come first and never look at the budget ([`survey`]). So a larger budget never gives a slower plan, and the
//! whole range of budgets costs no more than one.

use memfit_ir::op::{CLOCK, has_row_per_sample};
use memfit_ir::{Graph, Replica, verify};
use memfit_transform::{BatchNorm, Exchange, StepGraph, batch_dependence};

use crate::baseline::{keep_all, savings};
use crate::draft::{Optimizations, PlanContext};
use crate::error::PlanError;
use crate::memory::check_room;
use crate::micro_programs::MicroPrograms;
use crate::recompute::Depth;
use crate::request::{MicroBatch, Programs, Request, Source};
use crate::sizes::{check_batch_norm, check_cut, micro_batches};
use crate::state_slots::place_states;
use crate::survey::Survey;
use crate::target::Target;
use crate::types::{Phase, Plan};

/// Plans a model for a device under a budget. Pure: the same arguments give the same plan.
pub fn plan(source: &Source, target: &dyn Target, request: &Request) -> Result<Plan, PlanError> {
    survey(source, target, request)?.plan(request.budget)
}

/// Looks for candidates of every size and speed. The source is asked again when a plan of them is made.
pub fn survey<'a>(
    source: impl Fn(usize) -> Programs + 'a,
    target: &'a dyn Target,
    request: &Request,
) -> Result<Survey<'a>, PlanError> {
    let source: Box<Source<'a>> = Box::new(source);
    let Request { batch, exchange: Exchange { replica, batch_norm, .. }, .. } = *request;
    let cost_model = request.cost_model.clone().unwrap_or_else(|| target.cost_model());
    let cx =
        PlanContext { target, grouping: request.grouping, cost_model: &cost_model, optimizations: Optimizations::ALL };
    let first = match request.micro_batch {
        MicroBatch::Exactly(n) => n,
        MicroBatch::Auto | MicroBatch::Off | MicroBatch::Allow => batch / replica.lanes.max(1),
    };
    check_cut(batch, first, replica)?;
    check_batch_norm(batch_norm, batch, first, replica)?;
    let graphs = programs(&source, first)?;
    let is_cut = match request.micro_batch {
        _ if replica != Replica::ALONE || batch_norm == BatchNorm::Synchronised => false,
        MicroBatch::Allow => true,
        MicroBatch::Auto => !mixes(&graphs, batch),
        MicroBatch::Off | MicroBatch::Exactly(_) => false,
    };
    let smaller: Vec<usize> = micro_batches(batch).into_iter().filter(|&n| is_cut && n < batch).collect();
    check_room(&graphs, 1 + smaller.len(), request.planning_room)?;
    // First, for it asks whether the device can run them at all.
    let mut sizes = vec![MicroPrograms::new(first, &graphs, &cx, Depth::Full)?];
    let rows = batch / replica.lanes * replica.own_lanes().len();
    let keep_all_bytes = keep_all_bytes(&source, rows, &graphs, first, &cx)?;
    let savings = savings(&graphs, &cx)?;
    let shared = shared_inputs(&graphs, batch);
    drop(graphs);
    for n in smaller {
        // Nobody asked for this size: a model that cannot be built or cut so does without it.
        let Ok(graphs) = programs(&source, n) else { continue };
        if can_be_cut(&graphs, &shared, n) {
            // What does not fit one sample at a time fits with no size, so that one is searched as if it were asked for.
            let depth = if n == 1 { Depth::Full } else { Depth::Sketch };
            sizes.push(MicroPrograms::new(n, &graphs, &cx, depth)?);
        }
    }
    let mut survey = Survey {
        source,
        target,
        grouping: request.grouping,
        batch,
        replica,
        cost_model,
        keep_all_bytes,
        sharded_bytes: 0,
        savings,
        sizes,
        options: Vec::new(),
    };
    survey.options = survey.efficient(|_| true);
    if survey.options.is_empty() { Err(survey.too_large()) } else { Ok(survey) }
}

/// The inputs that are the same for all samples of a batch, such as weights of classes.
fn shared_inputs(graphs: &[(Phase, StepGraph)], batch: usize) -> Vec<String> {
    let inputs =
        graphs.iter().flat_map(|(_, step)| step.graph.inputs().map(move |(name, v)| (name, step.graph.shape(v))));
    let shared = inputs.filter(|(name, shape)| *name != CLOCK && !has_row_per_sample(name, shape, batch));
    shared.map(|(name, _)| name.to_string()).collect()
}

/// Whether programs of a micro-batch of `n` are a batch cut into parts. A source that knows whole steps only has nothing to be
/// cut; and an input that is the same for all samples must not look as if it had a row for each.
fn can_be_cut(graphs: &[(Phase, StepGraph)], shared: &[String], n: usize) -> bool {
    let has_rows =
        |graph: &Graph, name: &str| graph.input(name).is_some_and(|v| has_row_per_sample(name, graph.shape(v), n));
    let is_clear = |graph: &Graph| !shared.iter().any(|name| has_rows(graph, name));
    graphs.iter().all(|(phase, step)| *phase != Phase::Step && is_clear(&step.graph))
}

/// What a plain eager framework would hold for all rows of a replica, whatever the micro-batch; for the micro-batch where
/// these are too many to be built at once. `graphs` are those of a micro-batch of `size`.
fn keep_all_bytes(
    source: &Source,
    rows: usize,
    graphs: &[(Phase, StepGraph)],
    size: usize,
    cx: &PlanContext,
) -> Result<u64, PlanError> {
    let whole = if size == rows { None } else { programs(source, rows).ok() };
    let graphs = whole.as_deref().unwrap_or(graphs);
    let (_, state_bytes, _) = place_states(graphs, cx.target.alignment())?;
    Ok(state_bytes + keep_all(graphs, cx)?)
}

pub(crate) fn programs(source: &Source, micro_batch: usize) -> Result<Vec<(Phase, StepGraph)>, PlanError> {
    let graphs = source(micro_batch).map_err(PlanError::Source)?;
    for (phase, step) in &graphs {
        verify(&step.graph).map_err(|e| PlanError::Graph { phase: *phase, problem: e.to_string() })?;
    }
    let total: u128 = graphs.iter().flat_map(|(_, g)| g.graph.values()).map(|v| v.ty.bytes() as u128).sum();
    if total > i64::MAX as u128 / 4 {
        return Err(PlanError::TooLarge);
    }
    Ok(graphs)
}

fn mixes(graphs: &[(Phase, StepGraph)], batch: usize) -> bool {
    graphs.iter().any(|(_, g)| g.forward_end.is_some_and(|end| batch_dependence(&g.graph, end, batch).is_some()))
}
