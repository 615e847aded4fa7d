//! Replicas that train a model together: how a batch is dealt to them, and what each takes where they differ.

use memfit::Plan;
use memfit::plan::bytes::Bytes;
use memfit::replicas::ReplicaBytes;
use memfit::transform::{BatchDependence, BatchNorm, Shard};
use memfit_run::RunResources;
use memfit_run::planning::Planned;
use memfit_run::text::count;
use serde_json::{Value, json};

use crate::output::outln;

/// A few lines under a plan; nothing where one replica adds up everything in order.
pub fn print(run: &RunResources, planned: &Planned, others: &[&Planned]) {
    let crew = &run.crew;
    if crew.lanes == 1 {
        return;
    }
    outln!("  replicas   {:>10}  {}", crew.size, dealt(run, planned));
    if crew.has_share_of_cores(&run.config) {
        let (here, threads) = (crew.neighbours.count, count(run.threads, "thread"));
        outln!("  on machine {here:>10}  of the processes, which share its cores out: {threads} for this one");
    }
    if let Some([below, above]) = crew.even_batches(planned.plan.batch) {
        let (lanes, size, batch) = (crew.lanes, crew.size, planned.plan.batch);
        outln!(
            "  warning                {size} replicas have {lanes} lanes, for {batch} samples are no multiple of {size}: with \
             {below} or {above} samples each has one, which takes less time a sample"
        );
    }
    if let Some(room) = exchange_bytes(&planned.plan).filter(|_| crew.size > 1) {
        let sharded = if crew.shard == Shard::Optimizer { "; the optimizer's states are dealt out" } else { "" };
        outln!(
            "  exchange   {:>10}  of the transient at a time, for pieces under way{sharded}",
            Bytes(room).to_string()
        );
    }
    let on_host = run.exchange_bytes_of_host();
    if on_host > 0 {
        outln!(
            "  on host    {:>10}  through which it is exchanged, beside the data pipeline",
            Bytes(on_host).to_string()
        );
    }
    let own = planned.plan.device_bytes();
    for (i, other) in others.iter().enumerate().filter(|(_, other)| other.plan.device_bytes() != own) {
        let (name, arena) = (format!("replica {}", run.rank() + 1 + i), Bytes(other.plan.arena_bytes()).to_string());
        outln!("  {name:<11}{arena:>10}  arena; state {}", Bytes(other.plan.state_bytes));
    }
}

/// How a batch is dealt, in words.
fn dealt(run: &RunResources, Planned { plan, batch_dependence, .. }: &Planned) -> String {
    let (crew, of_lane) = (&run.crew, plan.batch / plan.replica.lanes);
    let leaves = match plan.leaves() {
        1 => String::new(),
        n => format!(" in {n} micro-batches"),
    };
    let mut text = format!("{} of {}{leaves}", count(crew.lanes, "lane"), count(of_lane, "sample"));
    let most = crew.lanes.div_ceil(crew.size);
    if crew.size > 1 && !crew.lanes.is_multiple_of(crew.size) {
        text += &format!("; some replicas have {most}, and those with {} wait for them", most - 1);
    }
    if let Some(BatchDependence::BatchStatistics { .. }) = batch_dependence {
        let is_leaf = crew.batch_norm == BatchNorm::Leaf;
        let samples = if is_leaf { plan.micro_batch } else { plan.batch };
        text += &format!("; batch statistics are those of {}", count(samples, "sample"));
    }
    text
}

/// The most room that exchanges of a plan take.
fn exchange_bytes(plan: &Plan) -> Option<u64> {
    let programs = plan.programs.iter();
    let rooms = programs.flat_map(|program| {
        let is_exchange = |root| program.graph.node(root).op.is_exchange();
        program.launches.iter().filter(move |l| is_exchange(l.group.root())).filter_map(|l| Some(l.scratch?.size))
    });
    rooms.max()
}

/// The states of each replica, where these are not the same for all.
pub fn print_each(replicas: &[ReplicaBytes]) {
    let differ = |r: &ReplicaBytes| (r.lanes, r.bytes()) != (replicas[0].lanes, replicas[0].bytes());
    if !replicas.iter().any(differ) {
        return;
    }
    outln!("");
    outln!("  replica    lanes       state  sums of gradients");
    for r in replicas.iter().take(MOST_SHOWN) {
        let (state, sums) = (Bytes(r.state_bytes).to_string(), Bytes(r.accumulator_bytes).to_string());
        outln!("  {:>7}  {:>7}  {state:>10}  {sums:>17}", r.rank, r.lanes);
    }
    if let Some(more) = replicas.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0) {
        outln!("  and {more} more, none of which holds more than the one that is planned");
    }
}

/// Of many, so many are shown.
const MOST_SHOWN: usize = 16;

/// What each takes of its own part of the device, where they have such.
pub fn print_parts(parts: &[(&RunResources, &Planned)]) {
    if parts.is_empty() {
        return;
    }
    outln!("");
    outln!("  replica  device         may take       takes     predicted");
    for (run, Planned { plan, .. }) in in_order(parts) {
        let may = run.request.budget.map_or(String::new(), |budget| Bytes(budget).to_string());
        let (takes, ms) = (Bytes(plan.device_bytes()).to_string(), plan.predicted_step_seconds * 1e3);
        outln!("  {:>7}  {:<10} {may:>12}  {takes:>10}  {ms:>7.1} ms a step", run.rank(), run.device.name());
    }
}

fn in_order<'a>(parts: &[(&'a RunResources, &'a Planned)]) -> Vec<(&'a RunResources, &'a Planned)> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|(run, _)| run.rank());
    parts
}

/// The same as data: what each holds, and takes of its own part of the device where they have such.
pub fn each(replicas: &[ReplicaBytes], parts: &[(&RunResources, &Planned)]) -> Value {
    let one = |r: &ReplicaBytes| {
        let mut each = json!({ "rank": r.rank, "lanes": r.lanes, "state_bytes": r.state_bytes,
                               "accumulator_bytes": r.accumulator_bytes });
        if let Some((run, Planned { plan, .. })) = parts.iter().find(|(run, _)| run.rank() == r.rank) {
            each["device"] = run.device.name().into();
            each["budget_bytes"] = run.request.budget.into();
            each["arena_bytes"] = plan.arena_bytes().into();
            each["device_bytes"] = plan.device_bytes().into();
            each["predicted_step_ms"] = (plan.predicted_step_seconds * 1e3).into();
        }
        each
    };
    replicas.iter().map(one).collect()
}

/// What an event of a plan says of its replica.
pub fn event(run: &RunResources, plan: &Plan) -> Value {
    json!({ "count": run.crew.size, "on_machine": run.crew.neighbours.count, "rank": plan.replica.rank, "lanes": plan.replica.lanes, "leaves": plan.leaves(),
            "shard": if run.crew.shard == Shard::Optimizer { "optimizer" } else { "none" },
            "piece_bytes": run.crew.piece, "exchange_bytes": exchange_bytes(plan),
            "even_batches": run.crew.even_batches(plan.batch) })
}
