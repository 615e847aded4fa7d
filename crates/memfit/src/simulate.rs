//! Replicas that are not there: what each would hold and how long a step would take, on paper, for any number of them and any
//! link between them.

use memfit_ir::Replica;
use memfit_plan::{CostModel, Link, Phase, Plan, PlanError, Program, Request};
use memfit_transform::Exchange;

use crate::replicas::largest_replica;
use crate::subject::Subject;

/// One number of replicas, by the plan of the one that holds the most.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedRanks {
    /// How many there are.
    pub ranks: usize,
    /// Of all of them together.
    pub batch: usize,
    /// Of parameters, optimizer and statistics.
    pub state_bytes: u64,
    /// With all of a step.
    pub arena_bytes: u64,
    /// The most that an exchange has under way.
    pub exchange_room_bytes: u64,
    /// Predicted.
    pub step_seconds: f64,
    /// What of that are exchanges.
    pub exchange_seconds: f64,
    /// How many there are in a step.
    pub exchanges: usize,
}

/// Plans one replica of each number of them: the batch of the subject is what each has, in one lane, and the batch of all grows
/// with their number. A number of 1 exchanges nothing.
pub fn simulate(subject: &Subject, link: Link, ranks: &[usize]) -> Result<Vec<SimulatedRanks>, PlanError> {
    let cost_model = subject.request.cost_model.clone().unwrap_or_else(|| subject.target.cost_model()).with_link(link);
    ranks.iter().map(|&ranks| simulate_one(subject, &cost_model, ranks)).collect()
}

fn simulate_one(subject: &Subject, cost_model: &CostModel, ranks: usize) -> Result<SimulatedRanks, PlanError> {
    let replica = Replica { lanes: ranks, count: ranks, rank: 0 };
    let mut request = Request {
        batch: subject.request.batch.saturating_mul(ranks),
        exchange: Exchange { replica, ..subject.request.exchange },
        cost_model: Some(cost_model.clone()),
        ..subject.request.clone()
    };
    // A piece has a number for each.
    request.exchange.piece = request.exchange.piece.max(ranks * size_of::<f32>());
    let replicas = Subject { request: &request, ..*subject }.replicas()?;
    request.exchange.replica.rank = largest_replica(&replicas).map_or(0, |largest| largest.rank);
    let plan = Subject { request: &request, ..*subject }.survey()?.plan(request.budget)?;
    let (exchange_seconds, exchanges) = exchange_seconds(&plan);
    Ok(SimulatedRanks {
        ranks,
        batch: plan.batch,
        state_bytes: plan.state_bytes,
        arena_bytes: plan.arena_bytes(),
        exchange_room_bytes: exchange_room_bytes(&plan),
        step_seconds: plan.predicted_step_seconds,
        exchange_seconds,
        exchanges,
    })
}

/// Predicted seconds of a step that are exchanges, and how many these are.
fn exchange_seconds(plan: &Plan) -> (f64, usize) {
    let of_program = |p: &Program| {
        let times = if p.phase == Phase::Accumulate { plan.accumulate() } else { 1 };
        let exchanges = exchanges(p).map(|l| l.seconds);
        exchanges.fold((0.0, 0), |(seconds, count), s| (seconds + times as f64 * s, count + times))
    };
    let of_step = plan.programs.iter().filter(|p| matches!(p.phase, Phase::Step | Phase::Accumulate | Phase::Apply));
    of_step.map(of_program).fold((0.0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

fn exchange_room_bytes(plan: &Plan) -> u64 {
    let room = |l: &memfit_plan::Launch| l.scratch.map_or(0, |place| place.size);
    plan.programs.iter().flat_map(|p| exchanges(p).map(room)).max().unwrap_or(0)
}

fn exchanges(program: &Program) -> impl Iterator<Item = &memfit_plan::Launch> {
    program.launches.iter().filter(|l| program.graph.node(l.group.root()).op.is_exchange())
}
