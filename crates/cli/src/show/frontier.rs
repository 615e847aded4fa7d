//! Step time against budget, as a table and as JSON.

use memfit::plan::bytes::{self, Bytes};
use memfit::plan::{Point, Survey};
use serde_json::{Value, json};

use crate::commands::devices::describe;
use crate::output::outln;
use crate::show::event::device;
use memfit_run::RunResources;
use memfit_run::text::count;

/// Lines that a person reads.
const LINES: usize = 24;

pub fn event(run: &RunResources, survey: &Survey, planning_ms: f64) -> Value {
    let point = |p: &Point| {
        json!({
            "arena_bytes": p.arena_bytes, "transient_bytes": p.transient_bytes, "staging_bytes": p.staging_bytes,
            "device_bytes": p.device_bytes(), "predicted_step_ms": p.seconds * 1e3, "micro_batch": p.micro_batch, "recomputed_ops": p.recomputed_ops,
        })
    };
    json!({
        "event": "frontier", "model": run.name, "batch": run.request.batch,
        "precision": run.training.precision.name(), "device": device(run), "budget_bytes": run.request.budget,
        "free_tools_bytes": survey.free_tools_bytes(), "lower_bound_bytes": survey.lower_bound_bytes(),
        "points": survey.frontier().iter().map(point).collect::<Vec<_>>(), "planning_ms": planning_ms,
        "profile": describe(&run.cost_model, run.cost_model_file.as_deref()),
    })
}

pub fn print(run: &RunResources, survey: &Survey, planning_ms: f64) {
    let points = survey.frontier();
    let precision = run.training.precision.name();
    outln!("{}, batch {}, {precision}, {}", run.name, run.request.batch, survey.made_for());
    outln!("");
    outln!("  {:>10}  {:>12}  {:>6}  {:>11}  {:>10}", "budget", "ms a step", "time", "micro-batch", "recomputed");
    let fastest = points.first().map_or(1.0, |p| p.seconds);
    let fits = run.request.budget.and_then(|b| points.iter().find(|p| p.device_bytes() <= b).copied());
    let shown = thinned(&points, fits);
    for p in &shown {
        let micro = if p.micro_batch < run.request.batch { p.micro_batch.to_string() } else { "-".into() };
        let mark = if Some(*p) == fits { "  fits the budget" } else { "" };
        outln!(
            "  {:>10}  {:>12.1}  {:>5.2}×  {micro:>11}  {:>10}{mark}",
            bytes::rounded_up(p.device_bytes()),
            p.seconds * 1e3,
            p.seconds / fastest,
            p.recomputed_ops,
        );
    }
    outln!("");
    outln!("  lower bound {}: no plan can take less", Bytes(survey.lower_bound_bytes()));
    let left = points.len() - shown.len();
    if run.request.budget.is_some() && fits.is_none() {
        outln!("  none of them fits the budget; leave out --frontier to see what would");
    }
    let left = if left > 0 { format!(", {left} of them left out here (--json has all)") } else { String::new() };
    outln!("  {}{left}; planned in {planning_ms:.0} ms", count(points.len(), "plan"));
}

/// So many points as can be read, spread evenly over the bytes; the first, the last and the wanted one always.
fn thinned(points: &[Point], wanted: Option<Point>) -> Vec<Point> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    if points.len() <= LINES {
        return points.to_vec();
    }
    let gap = (first.device_bytes() - last.device_bytes()) / LINES as u64;
    let mut shown: Vec<Point> = vec![*first];
    for p in &points[1..points.len() - 1] {
        let previous = shown[shown.len() - 1].device_bytes();
        let apart = previous - p.device_bytes() >= gap && p.device_bytes() - last.device_bytes() >= gap / 2;
        if apart || Some(*p) == wanted {
            shown.push(*p);
        }
    }
    shown.push(*last);
    shown
}
