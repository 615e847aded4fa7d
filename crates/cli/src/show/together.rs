//! Runs that share a device: the plan of each, and what they take together.

use memfit::plan::bytes::Bytes;
use memfit_run::RunResources;
use memfit_run::planning::Planned;
use memfit_run::together::SharedMemory;
use serde_json::json;

use crate::output::outln;
use crate::show::{brief, event};

/// What the runs of one device take there.
pub fn print(shared: &SharedMemory, as_json: bool) {
    let SharedMemory { labels, device, state_bytes, transient_bytes, sum_of_arenas, staging_bytes, budget, .. } =
        shared;
    let (name, arena) = (device.name(), shared.arena_bytes());
    if as_json {
        outln!(
            "{}",
            json!({ "event": "together", "runs": labels, "device": name, "budget_bytes": budget,
                    "state_bytes": state_bytes, "transient_bytes": transient_bytes, "arena_bytes": arena,
                    "sum_of_arenas_bytes": sum_of_arenas, "staging_bytes": staging_bytes })
        );
        return;
    }
    let budget = budget.map_or(String::new(), |b| format!("; budget {}", Bytes(b)));
    outln!("together on {name}: {}{budget}", labels.join(", "));
    outln!("  state      {:>10}  side by side", Bytes(*state_bytes).to_string());
    outln!("  transient  {:>10}  in turns", Bytes(*transient_bytes).to_string());
    outln!("  arena      {:>10}  instead of {}", Bytes(arena).to_string(), Bytes(*sum_of_arenas));
    if *staging_bytes > 0 {
        outln!("  copies     {:>10}  beside it, side by side; of the same budget", Bytes(*staging_bytes).to_string());
    }
}

/// The plan of one of several runs, and what it costs to fit in.
pub fn print_plan(run: &RunResources, planned: &Planned, is_shared: bool, as_json: bool) {
    let (plan, alone) = (&planned.plan, planned.micro_batch_alone);
    if as_json {
        let mut event = event::of_run(run, event::plan(run, planned));
        event["micro_batch_alone"] = alone.into();
        return outln!("{event}");
    }
    outln!("{}:", run.label);
    brief::print(run, planned, is_shared);
    if plan.predicted_step_seconds > plan.fastest_step_seconds {
        let times = plan.predicted_step_seconds / plan.fastest_step_seconds;
        outln!("  cost       {times:>9.2}×  the time of its fastest plan, for fitting in");
    }
    if alone.is_some_and(|n| n != plan.micro_batch) {
        outln!(
            "  rounding               in micro-batches of {}, sums round in another order than alone",
            plan.micro_batch
        );
    }
}
