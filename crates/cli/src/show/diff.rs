//! What changed between two plans, profiles or runs: Markdown that reads as text too, made for a pull request.

use memfit::Plan;
use memfit::plan::bytes::Bytes;
use memfit::plan::compare::{Comparison as PlanComparison, MovedValue, compare as compare_plans};
use memfit::profile::Run;
use memfit::profile::compare::{Comparison, Number};
use memfit::profile::table::{more, table};
use serde_json::{Value, json};

/// Lines of a list that a person still reads.
const LINES: usize = 20;

/// The same as data; with what was moved, where both are plans.
pub fn event(runs: [&Run; 2], comparison: &Comparison, plans: Option<[&Plan; 2]>) -> Value {
    let pair = |name: &str, before: Value, after: Value| json!({ "what": name, "before": before, "after": after });
    let one = |m: &MovedValue| {
        json!({ "layer": m.layer, "op": m.op, "type": m.ty, "bytes": m.bytes,
                "now": if m.kept_now { "kept" } else { "recomputed" } })
    };
    let of_number = |n: &Number| pair(n.key, number(n.before), number(n.after));
    let mut event = json!({
        "event": "diff",
        "runs": { "before": runs[0], "after": runs[1] },
        "labels": comparison.labels,
        "numbers": comparison.numbers.iter().map(of_number).collect::<Vec<_>>(),
        "classes": comparison.classes.iter().map(|c| pair(c.class.name(), c.before.into(), c.after.into())).collect::<Vec<_>>(),
        "layers": comparison.layers,
        "kernels": comparison.kernels,
        "times": if comparison.is_measured { "measured" } else { "predicted" },
    });
    if let Some([a, b]) = plans {
        let PlanComparison { recomputed, moved, .. } = compare_plans(a, b);
        event["recomputed_ops"] =
            recomputed.iter().map(|p| pair(&p.what, p.before.into(), p.after.into())).collect::<Vec<_>>().into();
        event["moved"] = moved.iter().map(one).collect::<Vec<_>>().into();
    }
    event
}

/// Bytes and counts are whole.
fn number(x: f64) -> Value {
    if x.fract() == 0.0 { json!(x as u64) } else { json!(x) }
}

/// For people.
pub fn markdown(names: [&str; 2], comparison: &Comparison, plans: Option<[&Plan; 2]>) -> String {
    let mut out = comparison.markdown(names);
    if let Some([a, b]) = plans {
        let plans = compare_plans(a, b);
        out += &(moved(&plans) + &recomputed(&plans));
    }
    out
}

fn moved(comparison: &PlanComparison) -> String {
    if comparison.moved.is_empty() {
        return String::new();
    }
    let count = |kept: bool| comparison.moved.iter().filter(|m| m.kept_now == kept).count();
    let bytes = |kept| Bytes(comparison.moved.iter().filter(|m| m.kept_now == kept).map(|m| m.bytes).sum());
    let mut out = format!(
        "\nValues that are saved now and were recomputed: {} ({}); the other way round: {} ({}):\n\n",
        count(true),
        bytes(true),
        count(false),
        bytes(false)
    );
    let line = |m: &MovedValue| {
        let now = if m.kept_now { "saved" } else { "recomputed" };
        [layer(&m.layer), m.op.to_string(), m.ty.clone(), Bytes(m.bytes).to_string(), now.to_string()]
    };
    let rows: Vec<_> = comparison.moved.iter().take(LINES).map(line).collect();
    out += &table(["layer", "op", "type", "bytes", "now"], &rows);
    out + &more(comparison.moved.len(), LINES)
}

fn recomputed(comparison: &PlanComparison) -> String {
    if comparison.recomputed.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = comparison
        .recomputed
        .iter()
        .take(LINES)
        .map(|p| [layer(&p.what), p.before.to_string(), p.after.to_string()])
        .collect();
    let table = table(["layer", "before", "after"], &rows);
    format!("\nRecomputed ops, by layer:\n\n{table}{}", more(comparison.recomputed.len(), LINES))
}

fn layer(name: &str) -> String {
    if name.is_empty() { "(model)".into() } else { name.into() }
}
