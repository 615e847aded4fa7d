//! A plan in five lines, as it stands before a training.

use memfit::ir::op::StateClass;
use memfit::plan::bytes::Bytes;
use memfit::{Phase, Plan};

use crate::output::outln;
use memfit_run::RunResources;
use memfit_run::planning::Planned;
use memfit_run::text::count;

pub fn print(run: &RunResources, planned: &Planned, is_shared: bool) {
    let plan = &planned.plan;
    outln!("{}", head(run, plan, is_shared));
    let class = |c: StateClass| plan.states.iter().filter(|s| s.class == c).map(|s| s.place.size).sum::<u64>();
    let [params, slots, statistics, accumulators] = StateClass::ALL.map(class);
    let mut state = format!("parameters {}, optimizer {}", Bytes(params), Bytes(slots));
    if statistics > 0 {
        state += &format!(", statistics {}", Bytes(statistics));
    }
    outln!("  state      {:>10}  {state}", Bytes(plan.state_bytes).to_string());
    let mut transient = format!("of it input {}", Bytes(plan.input_bytes()));
    if accumulators > 0 {
        transient += &format!(", sums of gradients {}", Bytes(accumulators));
    }
    outln!("  transient  {:>10}  {transient}", Bytes(plan.transient_bytes).to_string());
    let when = if is_shared { "if it were alone" } else { "taken before the first step" };
    outln!(
        "  arena      {:>10}  {when}; at most {} are live at once",
        Bytes(plan.arena_bytes()).to_string(),
        Bytes(plan.peak_bytes)
    );
    if plan.staging_bytes > 0 {
        let copies = Bytes(plan.staging_bytes).to_string();
        outln!(
            "  copies     {copies:>10}  at most, beside it and of the same budget: batches, results, parameters of kernels"
        );
    }
    if let Some(frozen) = planned.frozen {
        let saved = Bytes(frozen.saved_bytes);
        outln!(
            "  frozen     {:>10}  saved by not training {}",
            saved.to_string(),
            count(frozen.parameters, "parameter")
        );
    }
    let made = match planned.planning_ms {
        Some(ms) => format!("planned in {ms:.0} ms"),
        None => "planned before".into(),
    };
    let recomputed = if plan.recomputed_ops > 0 {
        format!(", {} recomputed", count(plan.recomputed_ops, "op"))
    } else {
        String::new()
    };
    outln!(
        "  predicted  {:>7.1} ms  a step of {}{recomputed}; {made}",
        plan.predicted_step_seconds * 1e3,
        count(kernels(plan), "kernel")
    );
}

/// Of all programs that a step runs.
pub fn kernels(plan: &Plan) -> usize {
    let of_step = |phase: Phase| matches!(phase, Phase::Step | Phase::Accumulate | Phase::Apply);
    plan.programs.iter().filter(|p| of_step(p.phase)).map(|p| p.launches.len()).sum()
}

/// What was planned, in one line.
pub fn head(run: &RunResources, plan: &Plan, is_shared: bool) -> String {
    let none = if is_shared { "no budget of its own" } else { "no budget given" };
    let budget = run.request.budget.map_or(none.into(), |b| format!("budget {}", Bytes(b)));
    let micro = match plan.accumulate() {
        1 => String::new(),
        _ => format!(" in micro-batches of {}", plan.micro_batch),
    };
    let precision = run.training.precision.name();
    // A plan of an older version does not say it.
    let unsaid = || format!("cpu with {}", count(run.threads, "thread"));
    let device = plan.made_for.as_ref().map_or_else(unsaid, ToString::to_string);
    format!("{}, batch {}{micro}, {precision}, {device}; {budget}", run.name, plan.batch)
}
