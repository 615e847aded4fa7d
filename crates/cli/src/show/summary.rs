//! A plan as a page: what it takes against what it could take, where the bytes are at the peak, what it cost, and the
//! live bytes over the step.

use memfit::Plan;
use memfit::plan::bytes::Bytes;
use memfit::plan::report::classes_at_peak;
use memfit::plan::{Effect, Saving, Tool};

use crate::output::outln;
use crate::show::brief::{head, kernels};
use crate::show::chart::chart;
use crate::show::event::is_packed_best;
use crate::show::replicas;
use memfit_run::RunResources;
use memfit_run::planning::{Planned, TooLargeHere};
use memfit_run::text::count;

/// Columns of the largest bar.
const BAR: u64 = 24;

pub fn print(run: &RunResources, planned: &Planned, columns: usize) {
    let plan = &planned.plan;
    outln!("{}", head(run, plan, false));
    outln!("");
    sizes(run, planned);
    outln!("");
    classes(plan);
    outln!("");
    costs(run, planned);
    replicas::print(run, planned, &[]);
    let lines = chart(plan, run.request.budget, columns);
    if !lines.is_empty() {
        outln!("");
        outln!("  live bytes over the {} of a step; ░ is the state", count(kernels(plan), "kernel"));
        lines.iter().for_each(|line| outln!("{line}"));
    }
}

fn row(what: &str, size: impl ToString, note: &str) {
    outln!("{}", format!("  {what:<22}{:>10}  {note}", size.to_string()).trim_end());
}

/// This plan between what a framework without a planner takes and what none can go below.
fn sizes(run: &RunResources, planned: &Planned) {
    let plan = &planned.plan;
    let spare = match run.request.budget {
        Some(budget) => format!("; {} of the budget are left", Bytes(budget.saturating_sub(plan.device_bytes()))),
        None => String::new(),
    };
    row("keep everything", Bytes(plan.keep_all_bytes), "what a framework without a planner holds");
    if let Some(bytes) = planned.free_tools_bytes {
        row("free tools", Bytes(bytes), "nothing recomputed, one batch in one piece");
    }
    row("this plan", Bytes(plan.arena_bytes()), &format!("taken before the first step{spare}"));
    let mut bound = "proved: no plan can take less";
    if plan.staging_bytes > 0 {
        let note = "beside it, of the same budget: batches on their way, results, parameters of kernels";
        row("copies, at most", Bytes(plan.staging_bytes), note);
        bound = "proved: no plan can take less, with its copies";
    }
    row("lower bound", Bytes(plan.lower_bound_bytes), bound);
}

/// Bytes at the peak.
fn classes(plan: &Plan) {
    let classes = classes_at_peak(plan);
    let most = classes.iter().map(|c| c.1).max().unwrap_or(1).max(1);
    for (class, bytes) in &classes {
        row(class.name(), Bytes(*bytes), &bar(*bytes, most));
    }
    row("live at the peak", Bytes(plan.peak_bytes), "");
}

/// A bar of full cells and a last one in eighths.
fn bar(bytes: u64, most: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (bytes as u128 * 8 * BAR as u128).div_ceil(most as u128) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn costs(run: &RunResources, planned: &Planned) {
    let plan = &planned.plan;
    let packing = if is_packed_best(planned) {
        "optimal: the arena is what is live at the peak".into()
    } else {
        let over = plan.arena_bytes() - plan.peak_bytes;
        let share = over as f64 / plan.peak_bytes as f64 * 100.0;
        format!("the arena is {} ({share:.2} %) more than what is live at the peak", Bytes(over))
    };
    line("packing", &packing);
    let slower = plan.predicted_step_seconds / plan.fastest_step_seconds;
    let against = if slower > 1.0005 {
        format!("{slower:.2} × the {:.1} ms of the fastest plan", plan.fastest_step_seconds * 1e3)
    } else {
        "the fastest plan there is".into()
    };
    line("step", &format!("{:.1} ms predicted, {against}", plan.predicted_step_seconds * 1e3));
    line("tools", &tools(plan));
    if let Some(frozen) = planned.frozen {
        let saved = Bytes(frozen.saved_bytes);
        line("frozen", &format!("not training {} saves {saved}", count(frozen.parameters, "parameter")));
    }
    if plan.accumulate() > 1 {
        let samples = count(plan.micro_batch, "sample");
        let effect = match Effect::of_micro_batches(plan.micro_batch, planned.batch_dependence.as_ref()) {
            Effect::BatchStatistics { .. } => format!("batch statistics come from {samples}"),
            Effect::MayChange(why) => format!("the result may change: {why}"),
            other => other.to_string(),
        };
        line("micro-batches", &format!("{} of {samples}; {effect}", plan.accumulate()));
    }
    if let Some(TooLargeHere { room, is_there_a_smaller_one }) = &planned.too_large_here {
        let what = if *is_there_a_smaller_one { "takes a smaller plan" } else { "would refuse it" };
        line("here", &format!("`memfit train` {what}: {}", room.words()));
    }
    let from = run.cost_model_file.as_ref().map_or("ships with memfit".into(), |f| format!("from {}", f.display()));
    let made = planned.planning_ms.map_or(String::new(), |ms| format!("; planned in {ms:.0} ms"));
    line("cost model", &format!("\"{}\", {from}{made}", run.cost_model.name));
}

fn line(what: &str, text: &str) {
    outln!("  {what:<15}{text}");
}

/// What each tool saved at the peak.
fn tools(plan: &Plan) -> String {
    let one = |s: &Saving| {
        let bytes = Bytes(s.bytes.unsigned_abs());
        let recomputed = match s.tool {
            Tool::Recompute => format!(" ({} recomputed)", count(plan.recomputed_ops, "op")),
            Tool::Groups | Tool::InPlace | Tool::Masks | Tool::Order | Tool::MicroBatches | Tool::Shard => {
                String::new()
            }
        };
        let verb = if s.bytes < 0 { "cost" } else { "saved" };
        format!("{} {verb} {bytes}{recomputed}", s.tool.name())
    };
    let all: Vec<String> = plan.savings.iter().map(one).collect();
    if all.is_empty() { "none was needed".into() } else { all.join(", ") }
}
