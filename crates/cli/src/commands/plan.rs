//! `memfit plan`: the plan of a model, and where each byte goes.

use anyhow::Result;
use memfit::exec::Executor;
use memfit::ir::op::StateClass;
use memfit::plan::bytes::Bytes;
use memfit::{CpuExecutor, Phase, Plan};
use serde_json::json;

use crate::commands::devices::describe;
use crate::planning;
use crate::run::Run;
use crate::say::say;

pub fn plan(run: &Run) -> Result<()> {
    let executor = CpuExecutor::new(run.threads)?;
    let planned = planning::plan(run, executor.target())?;
    print(run, &planned.plan, planned.planning_ms);
    Ok(())
}

/// The plan as a few lines, or as one event.
pub fn print(run: &Run, plan: &Plan, planning_ms: f64) {
    let class = |c: StateClass| plan.states.iter().filter(|s| s.class == c).map(|s| s.place.size).sum::<u64>();
    let [params, slots, statistics, accumulators] = StateClass::ALL.map(class);
    let input = input_bytes(plan);
    if run.json {
        let event = json!({
            "event": "plan", "model": run.name, "batch": plan.batch, "micro_batch": plan.micro_batch,
            "accumulate": plan.accumulate(), "precision": run.training.precision.name(), "device": "cpu",
            "budget_bytes": run.request.budget, "arena_bytes": plan.arena_bytes(), "peak_bytes": plan.peak_bytes,
            "state_bytes": plan.state_bytes, "transient_bytes": plan.transient_bytes, "input_bytes": input,
            "parameter_bytes": params, "optimizer_bytes": slots, "statistic_bytes": statistics,
            "accumulator_bytes": accumulators,
            "predicted_step_ms": plan.predicted_step_seconds * 1e3, "planning_ms": planning_ms,
            "profile": describe(&run.request.profile, run.profile_file.as_deref()),
        });
        say!("{event}");
        return;
    }
    let budget = run.request.budget.map_or("no budget given".into(), |b| format!("budget {}", Bytes(b)));
    say!(
        "{}, batch {}{}, {}, cpu with {} threads; {budget}",
        run.name,
        plan.batch,
        if plan.micro_batch < plan.batch {
            format!(" in micro-batches of {}", plan.micro_batch)
        } else {
            String::new()
        },
        run.training.precision.name(),
        run.threads,
    );
    let mut state = format!("parameters {}, optimizer {}", Bytes(params), Bytes(slots));
    if statistics > 0 {
        state += &format!(", statistics {}", Bytes(statistics));
    }
    say!("  state      {:>10}  {state}", Bytes(plan.state_bytes).to_string());
    say!("  transient  {:>10}  of it input {}", Bytes(plan.transient_bytes).to_string(), Bytes(input));
    say!(
        "  arena      {:>10}  taken before the first step; at most {} are live at once",
        Bytes(plan.arena_bytes()).to_string(),
        Bytes(plan.peak_bytes)
    );
    let kernels: usize = plan.programs.iter().filter(|p| p.phase != Phase::Eval).map(|p| p.steps.len()).sum();
    say!(
        "  predicted  {:>7.1} ms  a step of {kernels} kernels; planned in {planning_ms:.0} ms",
        plan.predicted_step_seconds * 1e3
    );
}

fn input_bytes(plan: &Plan) -> u64 {
    let of = |p: &memfit::plan::Program| p.graph.inputs().map(|(_, v)| p.graph.ty(v).bytes()).sum::<u64>();
    plan.programs.iter().filter(|p| p.phase != Phase::Eval).map(of).max().unwrap_or(0)
}
