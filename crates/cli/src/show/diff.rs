//! What changed between two saved plans: Markdown that reads as text too, made for a pull request.

use memfit::plan::bytes::Bytes;
use memfit::plan::compare::{Comparison, MovedValue, compare};
use memfit::plan::save::SavedPlan;
use serde_json::{Value, json};

use crate::show::brief::kernels;

/// Lines of a list that a person still reads.
const LINES: usize = 20;

/// A quantity with its name, in both plans, as text and as data.
struct Row {
    what: &'static str,
    key: &'static str,
    before: f64,
    after: f64,
    show: fn(f64) -> String,
}

fn rows(a: &SavedPlan, b: &SavedPlan) -> Vec<Row> {
    let row =
        |what, key, show, value: &dyn Fn(&SavedPlan) -> f64| Row { what, key, before: value(a), after: value(b), show };
    let size: fn(f64) -> String = |x| Bytes(x as u64).to_string();
    let count: fn(f64) -> String = |x| format!("{x}");
    let time: fn(f64) -> String = |x| format!("{x:.1} ms");
    vec![
        row("arena", "arena_bytes", size, &|s| s.plan.arena_bytes() as f64),
        row("peak", "peak_bytes", size, &|s| s.plan.peak_bytes as f64),
        row("state", "state_bytes", size, &|s| s.plan.state_bytes as f64),
        row("transient", "transient_bytes", size, &|s| s.plan.transient_bytes as f64),
        row("keep everything", "keep_all_bytes", size, &|s| s.plan.keep_all_bytes as f64),
        row("lower bound", "lower_bound_bytes", size, &|s| s.plan.lower_bound_bytes as f64),
        row("step, predicted", "predicted_step_ms", time, &|s| s.plan.predicted_step_seconds * 1e3),
        row("kernels", "kernels", count, &|s| kernels(&s.plan) as f64),
        row("recomputed ops", "recomputed_ops", count, &|s| s.plan.recomputed_ops as f64),
        row("micro-batch", "micro_batch", count, &|s| s.plan.micro_batch as f64),
    ]
}

pub fn event(a: &SavedPlan, b: &SavedPlan) -> Value {
    let Comparison { classes, recomputed, moved } = compare(&a.plan, &b.plan);
    let pair = |name: &str, before: Value, after: Value| json!({ "what": name, "before": before, "after": after });
    let one = |m: &MovedValue| {
        json!({ "layer": m.layer, "op": m.op, "type": m.ty, "bytes": m.bytes,
                "now": if m.kept_now { "kept" } else { "recomputed" } })
    };
    json!({
        "event": "diff",
        "runs": { "before": a.labels, "after": b.labels },
        "numbers": rows(a, b).iter().map(|r| pair(r.key, number(r.before), number(r.after))).collect::<Vec<_>>(),
        "classes": classes.iter().map(|p| pair(p.what.name(), p.before.into(), p.after.into())).collect::<Vec<_>>(),
        "recomputed_ops": recomputed.iter().map(|p| pair(&p.what, p.before.into(), p.after.into())).collect::<Vec<_>>(),
        "moved": moved.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Bytes and counts are whole.
fn number(x: f64) -> Value {
    if x.fract() == 0.0 { json!(x as u64) } else { json!(x) }
}

pub fn markdown(names: [&str; 2], a: &SavedPlan, b: &SavedPlan) -> String {
    let mut out = format!("### Plan: {} → {}\n", names[0], names[1]);
    let differs = a.labels.keys().chain(b.labels.keys().filter(|k| !a.labels.contains_key(*k)));
    let text = |s: &SavedPlan, key: &str| s.labels.get(key).cloned().unwrap_or("-".into());
    let mut labels: Vec<[String; 3]> =
        differs.map(|k| [k.clone(), text(a, k), text(b, k)]).filter(|r| r[1] != r[2]).collect();
    if a.plan.cost_model_hash != b.plan.cost_model_hash {
        let hash = |s: &SavedPlan| format!("{:016x}", s.plan.cost_model_hash);
        labels.push(["cost model".into(), hash(a), hash(b)]);
    }
    if !labels.is_empty() {
        out += "\nThese plans are for different runs:\n\n";
        out += &table(["", "before", "after"], &labels);
    }
    if a.plan == b.plan {
        return out + "\nThe plans are the same.\n";
    }
    out += "\n";
    let numbers = rows(a, b).into_iter().map(|r| {
        let (before, after) = ((r.show)(r.before), (r.show)(r.after));
        [r.what.to_string(), before, after, change(r.before, r.after)]
    });
    out += &table(["", "before", "after", "change"], &numbers.collect::<Vec<_>>());
    let comparison = compare(&a.plan, &b.plan);
    out += "\nBytes at the peak:\n\n";
    let classes = comparison.classes.iter().map(|p| {
        let [before, after] = [p.before, p.after].map(|n| Bytes(n).to_string());
        [p.what.name().to_string(), before, after, change(p.before as f64, p.after as f64)]
    });
    out += &table(["", "before", "after", "change"], &classes.collect::<Vec<_>>());
    out + &moved(&comparison) + &recomputed(&comparison)
}

fn moved(comparison: &Comparison) -> String {
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
    out + &more(comparison.moved.len())
}

fn recomputed(comparison: &Comparison) -> String {
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
    format!("\nRecomputed ops, by layer:\n\n{table}{}", more(comparison.recomputed.len()))
}

fn layer(name: &str) -> String {
    if name.is_empty() { "(model)".into() } else { name.into() }
}

fn more(count: usize) -> String {
    if count > LINES { format!("\n… and {} more; --json has all.\n", count - LINES) } else { String::new() }
}

fn change(before: f64, after: f64) -> String {
    match (before == after, before == 0.0) {
        (true, _) => String::new(),
        (false, true) => "new".into(),
        (false, false) if after > 10.0 * before => format!("{:.0} ×", after / before),
        (false, false) => format!("{:+.1} %", (after / before - 1.0) * 100.0),
    }
}

/// A table of Markdown whose columns stand under each other; the first is at the left, the others at the right.
fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let length = |s: &str| s.chars().count();
    let mut widths = head.map(|h| length(h).max(3));
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(cell));
        }
    }
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(i, (cell, w))| if i == 0 { format!("{cell:<w$}") } else { format!("{cell:>w$}") })
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(i, &w)| if i == 0 { "-".repeat(w) } else { format!("{}:", "-".repeat(w - 1)) })
        .collect();
    let body: String = rows.iter().map(|r| line(r)).collect();
    line(&head.map(String::from)) + &format!("| {} |\n", rule.join(" | ")) + &body
}
