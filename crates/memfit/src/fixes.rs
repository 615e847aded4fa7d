//! What would make a refused run fit. Every fix is planned before it is named, so that doing what it says works.

use memfit_ir::Replica;
use memfit_plan::bytes::round_up;
use memfit_plan::{
    Change, Effect, Fix, Member, MicroBatch, Plan, PlanError, Request, Survey, Together, divisors, plan_together,
};
use memfit_transform::{Exchange, Half, Precision, Shard, Training};

use crate::instead::Ladder;
use crate::replicas::largest_replica;
use crate::search::largest_batch;
use crate::subject::Subject;

/// Plans, and where that is refused, adds what would fit to the refusal. `progress` is given each change that is tried.
pub fn plan_or_fixes(
    subject: &Subject,
    survey: &Survey,
    budget: Option<u64>,
    progress: &mut dyn FnMut(&Change),
) -> Result<Plan, PlanError> {
    plan_or_fixes_among(subject, survey, budget, &Vec::new, progress)
}

/// The same, with models among the fixes that could be trained instead; they are asked for only where there is a refusal.
pub fn plan_or_fixes_among(
    subject: &Subject,
    survey: &Survey,
    budget: Option<u64>,
    ladders: &dyn Fn() -> Vec<Ladder>,
    progress: &mut dyn FnMut(&Change),
) -> Result<Plan, PlanError> {
    match (survey.plan(budget), budget) {
        (Err(PlanError::Refused(mut refusal)), Some(budget)) => {
            refusal.fixes.extend(larger_budget(survey));
            refusal.fixes.extend(fixes(subject, survey, budget, &ladders(), progress));
            rank(&mut refusal.fixes);
            Err(PlanError::Refused(refusal))
        }
        (result, _) => result,
    }
}

/// The same for models that share a device: subjects, their names and surveys, in one order.
pub fn plan_together_or_fixes(
    subjects: &[Subject],
    members: &[Member],
    budget: Option<u64>,
    progress: &mut dyn FnMut(&Change),
) -> Result<Together, PlanError> {
    plan_together_or_fixes_among(subjects, members, budget, &|_| Vec::new(), progress)
}

/// The same, with models that could be trained instead of each.
pub fn plan_together_or_fixes_among(
    subjects: &[Subject],
    members: &[Member],
    budget: Option<u64>,
    ladders: &dyn Fn(usize) -> Vec<Ladder>,
    progress: &mut dyn FnMut(&Change),
) -> Result<Together, PlanError> {
    plan_together(members, budget).map_err(|e| match e {
        PlanError::TogetherRefused(mut refusal) => {
            let most_staging = refusal.most_staging;
            let rooms: Vec<u64> = refusal.members.iter().map(|need| refusal.room(need)).collect();
            for (i, need) in refusal.members.iter_mut().enumerate().filter(|(i, n)| n.device_bytes() > rooms[*i]) {
                need.fixes = fixes(&subjects[i], members[i].survey, rooms[i], &ladders(i), progress);
                need.fixes.retain(|fix| fix.staging_bytes <= most_staging);
                rank(&mut need.fixes);
            }
            PlanError::TogetherRefused(refusal)
        }
        other => other,
    })
}

fn rank(fixes: &mut [Fix]) {
    fixes.sort_by(|a, b| a.seconds_per_sample.total_cmp(&b.seconds_per_sample));
}

/// What would fit into the budget. A fix that cannot be planned is none.
fn fixes(
    subject: &Subject,
    survey: &Survey,
    budget: u64,
    ladders: &[Ladder],
    progress: &mut dyn FnMut(&Change),
) -> Vec<Fix> {
    let mut found: Vec<Fix> = Vec::new();
    found.extend(sibling(subject, budget, progress));
    found.extend(ladders.iter().flat_map(|ladder| ladder.fixes(subject, budget, progress)));
    found.extend(sharded(subject, budget, progress));
    // What changes only activations cannot help where the states alone are too large.
    if survey.state_bytes() < budget {
        found.extend(mixed(subject, budget, progress));
        found.extend(smaller_micro_batch(subject, budget, progress));
        found.extend(smaller_batch(subject, survey, budget, progress));
    }
    found
}

/// The smallest budget of three digits.
fn larger_budget(survey: &Survey) -> Option<Fix> {
    let needed = survey.frontier().last()?.device_bytes();
    let budget = round_up(needed);
    let plan = survey.plan(Some(budget)).ok()?;
    Some(Fix::new(vec![Change::Budget(budget)], None, &plan))
}

fn mixed(subject: &Subject, budget: u64, progress: &mut dyn FnMut(&Change)) -> Option<Fix> {
    if subject.training.precision != Precision::F32 {
        return None;
    }
    let precision = Precision::Mixed(Half::Bf16);
    let change = Change::Precision(precision);
    progress(&change);
    let training = Training { precision, ..subject.training.clone() };
    let plan = Subject { training: &training, ..*subject }.survey().ok()?.plan(Some(budget)).ok()?;
    Some(Fix::new(vec![change], Some(Effect::StoredIn(Half::Bf16)), &plan))
}

/// The optimizer's states shared out, where that is enough for the replica with the largest share too.
fn sharded(subject: &Subject, budget: u64, progress: &mut dyn FnMut(&Change)) -> Option<Fix> {
    let exchange = subject.request.exchange;
    let has_slots = !subject.training.update.slots().is_empty();
    if exchange.shard != Shard::None || !exchange.replica.has_others() || !has_slots {
        return None;
    }
    let change = Change::Shard(Shard::Optimizer);
    progress(&change);
    let of_rank = |rank: usize| Request {
        exchange: Exchange { shard: Shard::Optimizer, replica: exchange.replica.with_rank(rank), ..exchange },
        ..subject.request.clone()
    };
    let plan_of = |rank: usize| {
        let request = of_rank(rank);
        Subject { request: &request, ..*subject }.survey().ok()?.plan(Some(budget)).ok()
    };
    let request = of_rank(exchange.replica.rank);
    let replicas = Subject { request: &request, ..*subject }.replicas().ok()?;
    let (largest, own) = (largest_replica(&replicas)?.rank, exchange.replica.rank);
    let plan = plan_of(largest)?;
    if largest != own {
        plan_of(own)?;
    }
    Some(Fix::new(vec![change], None, &plan))
}

/// The largest micro-batch that fits, where the planner was not free to take one.
fn smaller_micro_batch(subject: &Subject, budget: u64, progress: &mut dyn FnMut(&Change)) -> Option<Fix> {
    let Request { batch, exchange: Exchange { replica, .. }, .. } = *subject.request;
    let (lane, is_alone) = (batch / replica.lanes.max(1), replica == Replica::ALONE);
    let dependence = subject.batch_dependence().ok()?;
    let below = match subject.request.micro_batch {
        MicroBatch::Exactly(n) => n,
        // With lanes the planner takes none of its own accord: all replicas must have the same.
        _ if !is_alone => lane,
        MicroBatch::Allow => return None,
        MicroBatch::Auto if dependence.is_none() => return None,
        MicroBatch::Auto | MicroBatch::Off => batch,
    };
    let sizes: Vec<usize> = divisors(lane).into_iter().filter(|n| *n < below).collect();
    let plan_with = |n: usize| {
        let request = Request { micro_batch: MicroBatch::Exactly(n), ..subject.request.clone() };
        Subject { request: &request, ..*subject }.survey().ok()?.plan(Some(budget)).ok()
    };
    // The first size that fits, by bisection: smaller ones take less.
    let (mut low, mut high, mut best) = (0, sizes.len(), None);
    while low < high {
        let middle = low.midpoint(high);
        progress(&Change::MicroBatch(MicroBatch::Exactly(sizes[middle])));
        match plan_with(sizes[middle]) {
            Some(plan) => (high, best) = (middle, Some(plan)),
            None => low = middle + 1,
        }
    }
    let plan = best?;
    let change = Change::MicroBatch(MicroBatch::Exactly(plan.micro_batch));
    let effect = if is_alone { Effect::of_micro_batches } else { Effect::of_leaves };
    let effect = effect(plan.micro_batch, dependence.as_ref());
    Some(Fix::new(vec![change], Some(effect), &plan))
}

fn smaller_batch(subject: &Subject, survey: &Survey, budget: u64, progress: &mut dyn FnMut(&Change)) -> Option<Fix> {
    let Request { batch, micro_batch, exchange: Exchange { replica, .. }, .. } = *subject.request;
    // Where the micro-batch is given, the batch takes no memory.
    if matches!(micro_batch, MicroBatch::Exactly(n) if n < batch / replica.lanes.max(1)) {
        return None;
    }
    // A micro-batch that is the batch, or a lane of it, divides no other: unless it goes too, the fix would be refused when it is done.
    let (micro_batch, off) = match micro_batch {
        MicroBatch::Exactly(_) => (MicroBatch::Off, Some(Change::MicroBatch(MicroBatch::Off))),
        other => (other, None),
    };
    let request = Request { micro_batch, ..subject.request.clone() };
    let subject = Subject { request: &request, ..*subject };
    let needed = survey.frontier().last()?.device_bytes();
    let plan = largest_batch(&subject, budget, Some((batch, needed)), progress).ok()?.plan?;
    Some(Fix::new([Change::Batch(plan.batch)].into_iter().chain(off).collect(), None, &plan))
}

/// The largest of the smaller models of the family that fits, with the same batch, input and classes.
fn sibling(subject: &Subject, budget: u64, progress: &mut dyn FnMut(&Change)) -> Option<Fix> {
    let mut smaller = subject.model.smaller();
    while let Some(model) = smaller {
        let change = Change::Model(model.name().to_string());
        progress(&change);
        let plan = Subject { model: &*model, ..*subject }.survey().and_then(|s| s.plan(Some(budget)));
        if let Ok(plan) = plan {
            return Some(Fix::new(vec![change], Some(Effect::SmallerModel), &plan));
        }
        smaller = model.smaller();
    }
    None
}
