//! A plan as one JSON object.

use memfit::ir::op::StateClass;
use memfit::plan::report::classes_at_peak;
use serde_json::{Map, Value, json};

use crate::commands::devices::describe;
use crate::show::brief::kernels;
use crate::show::replicas;
use memfit_run::RunResources;
use memfit_run::planning::Planned;

pub fn plan(run: &RunResources, planned: &Planned) -> Value {
    let plan = &planned.plan;
    let class = |c: StateClass| plan.states.iter().filter(|s| s.class == c).map(|s| s.place.size).sum::<u64>();
    let [params, slots, statistics, accumulators] = StateClass::ALL.map(class);
    let classes: Map<String, Value> =
        classes_at_peak(plan).into_iter().map(|(c, bytes)| (c.name().replace(' ', "_"), bytes.into())).collect();
    let tools: Vec<Value> =
        plan.savings.iter().map(|s| json!({ "tool": s.tool.name(), "saved_bytes": s.bytes })).collect();
    let mut event = json!({
        "event": "plan", "model": run.name, "batch": plan.batch, "micro_batch": plan.micro_batch,
        "accumulate": plan.accumulate(), "precision": run.training.precision.name(), "optimizer": run.optimizer,
        "device": device(run), "threads": run.threads,
        "instruction_set": plan.made_for.as_ref().map(|m| &m.instruction_set),
        "budget_bytes": run.request.budget, "arena_bytes": plan.arena_bytes(), "peak_bytes": plan.peak_bytes,
        "state_bytes": plan.state_bytes, "transient_bytes": plan.transient_bytes,
        "staging_bytes": plan.staging_bytes, "input_bytes": plan.input_bytes(),
        "parameter_bytes": params, "optimizer_bytes": slots, "statistic_bytes": statistics,
        "accumulator_bytes": accumulators, "classes": classes,
        "keep_all_bytes": plan.keep_all_bytes, "free_tools_bytes": planned.free_tools_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes, "packing_optimal": is_packed_best(planned),
        "predicted_step_ms": plan.predicted_step_seconds * 1e3, "fastest_step_ms": plan.fastest_step_seconds * 1e3,
        "planning_ms": planned.planning_ms, "kernels": kernels(plan), "recomputed_ops": plan.recomputed_ops,
        "tools": tools, "batch_dependence": planned.batch_dependence.as_ref().map(ToString::to_string),
        "profile": describe(&run.cost_model, run.cost_model_file.as_deref()),
        "frozen_parameters": planned.frozen.map_or(0, |f| f.parameters),
        "frozen_saved_bytes": planned.frozen.map(|f| f.saved_bytes),
        "plan_file": planned.file, "moved_from": planned.moved_from, "fits_here": planned.too_large_here.is_none(),
        "process_limit_bytes": run.process.as_ref().map(|p| p.bytes),
        "outside_bytes": run.process.as_ref().map(|p| p.outside),
    });
    event["device_bytes"] = plan.device_bytes().into();
    if run.crew.lanes > 1 {
        event["replicas"] = replicas::event(run, plan);
    }
    event
}

/// The name of a run's device. Of the CPU, whose memory it has without a limit, the kind alone.
pub fn device(run: &RunResources) -> &str {
    if run.is_on_host() && run.room.is_none() { "cpu" } else { run.device.name() }
}

/// Whether no packing of these lifetimes takes less: the segments are as large as what is live at once.
pub fn is_packed_best(planned: &Planned) -> bool {
    planned.plan.arena_bytes() == planned.plan.peak_bytes
}

/// An event of one of several runs says of which.
pub fn of_run(run: &RunResources, mut event: Value) -> Value {
    if run.is_one_of_several {
        event["run"] = run.run_label.as_str().into();
    }
    event
}

/// With which a line of a run begins.
pub fn prefix(run: &RunResources) -> String {
    if run.is_one_of_several { format!("{}  ", run.label) } else { String::new() }
}
