//! A profile in a page of Markdown: for a pull request, an issue, or a terminal.

use std::collections::HashMap;
use std::fmt::Write;

use memfit_ir::bytes::Bytes;

use crate::model::*;

/// How much of the peak is listed.
const PEAK_ROWS: usize = 8;
/// How many ops are listed by their time.
const TIME_ROWS: usize = 8;

/// The profile in short: what it needs, where the peak is and what is there, what the planner did, where the time goes.
pub fn markdown(profile: &Profile) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, profile);
    text
}

fn write_all(out: &mut String, profile: &Profile) -> std::fmt::Result {
    let run = &profile.run;
    writeln!(out, "# {}, batch {}\n", cell(&run.model), run.batch)?;
    writeln!(out, "{}\n", headline(profile))?;
    writeln!(out, "{}", settings(run))?;
    write_memory(out, profile)?;
    write_peak(out, profile)?;
    write_tools(out, profile)?;
    write_time(out, profile)?;
    write_pipeline(out, profile)
}

fn headline(profile: &Profile) -> String {
    let m = &profile.memory;
    let mut text = format!("**Peak {}", Bytes(m.peak_bytes));
    if let Some(budget) = m.budget_bytes {
        text += &format!(" of a budget of {}", Bytes(budget));
    }
    text += "**";
    if m.keep_all_bytes > m.peak_bytes {
        let share = 100.0 * (1.0 - m.peak_bytes as f64 / m.keep_all_bytes as f64);
        text += &format!(", {share:.0} % less than keeping everything ({})", Bytes(m.keep_all_bytes));
    }
    match profile.median_step_ms() {
        Some(ms) => text += &format!("; a step takes {} (predicted {})", time(ms), time(m.predicted_step_ms)),
        None => text += &format!("; a step is predicted to take {}", time(m.predicted_step_ms)),
    }
    text + "."
}

fn settings(run: &Run) -> String {
    let micro_batches = match run.accumulate {
        0 | 1 => String::new(),
        k => format!("{k} micro-batches of {}", run.micro_batch),
    };
    let memfit = format!("memfit {}", run.memfit);
    let words = [&run.input, &run.precision, &run.optimizer, &micro_batches, &run.device, &memfit];
    let words: Vec<String> = words.into_iter().filter(|w| !w.is_empty()).map(|w| cell(w)).collect();
    words.join(", ") + "\n"
}

fn write_memory(out: &mut String, profile: &Profile) -> std::fmt::Result {
    let m = &profile.memory;
    writeln!(out, "| memory | |\n|---|---:|")?;
    // It is a bound of both.
    let bound = if m.staging_bytes > 0 { "no plan goes below, with its copies" } else { "no plan goes below" };
    let rows = [
        ("arena, taken before the first step", m.arena_bytes),
        ("most that is live at once", m.peak_bytes),
        ("states", m.state_bytes),
        ("transient", m.transient_bytes),
        ("keeping everything", m.keep_all_bytes),
        (bound, m.lower_bound_bytes),
    ];
    for (name, bytes) in rows {
        writeln!(out, "| {name} | {} |", Bytes(bytes))?;
    }
    if m.staging_bytes > 0 {
        writeln!(out, "| beside the arena, for copies and kernels | {} |", Bytes(m.staging_bytes))?;
    }
    let steps = profile.measured.as_ref().map_or(&[][..], |m| &m.steps);
    if let Some(bytes) = steps.iter().filter_map(|s| s.arena_resident_bytes).max() {
        writeln!(out, "| measured, arena in the system's pages | {} |", Bytes(bytes))?;
    }
    if let Some(bytes) = steps.iter().filter_map(|s| s.process_resident_bytes).max() {
        writeln!(out, "| measured, whole process | {} |", Bytes(bytes))?;
    }
    writeln!(out)
}

fn write_peak(out: &mut String, profile: &Profile) -> std::fmt::Result {
    let peak = &profile.peak;
    let Some(program) = profile.programs.get(peak.program) else { return Ok(()) };
    let Some(launch) = program.launches.get(peak.launch) else { return Ok(()) };
    writeln!(out, "## The peak\n")?;
    let (number, count) = (peak.launch + 1, program.launches.len());
    let place = format!("Kernel {number} of {count} in `{}`", cell(&program.phase));
    writeln!(out, "{place}: {} of {} ({}).\n", cell(&launch.op), cell(&launch.layer), launch.part.name())?;
    writeln!(out, "| bytes | class | op | layer | type | to recompute |\n|---:|---|---|---|---|---:|")?;
    for e in peak.live.iter().take(PEAK_ROWS) {
        let recompute = e.recompute_ms.map_or("–".to_string(), time);
        let (op, layer, ty) = (cell(&e.op), cell(&e.layer), cell(&e.ty));
        writeln!(out, "| {} | {} | {op} | {layer} | {ty} | {recompute} |", Bytes(e.bytes), e.class.name())?;
    }
    if let Some(rest) = peak.live.get(PEAK_ROWS..).filter(|r| !r.is_empty()) {
        let bytes = rest.iter().map(|e| e.bytes).fold(0, u64::saturating_add);
        writeln!(out, "| {} | | {} more | | | |", Bytes(bytes), rest.len())?;
    }
    writeln!(out)
}

fn write_tools(out: &mut String, profile: &Profile) -> std::fmt::Result {
    if profile.tools.is_empty() {
        return Ok(());
    }
    writeln!(out, "## What the planner did\n\n| tool | saved | paid |\n|---|---:|---:|")?;
    let mut row = |tool: &str, saved: i64, paid_ms: f64| {
        let sign = if saved < 0 { "−" } else { "" };
        let paid = if paid_ms > 0.0 { time(paid_ms) } else { "–".into() };
        writeln!(out, "| {} | {sign}{} | {paid} |", cell(tool), Bytes(saved.unsigned_abs()))
    };
    // What tools do for each other: the lines add up to what the plan saves.
    let mut rest = (profile.memory.keep_all_bytes as i64).saturating_sub(profile.memory.peak_bytes as i64);
    for t in &profile.tools {
        row(&t.tool, t.saved_bytes, t.paid_ms)?;
        rest = rest.saturating_sub(t.saved_bytes);
    }
    if rest != 0 {
        row("in combination", rest, 0.0)?;
    }
    writeln!(out)
}

/// Time and work of all launches of one op in a step.
#[derive(Default)]
struct OpTime {
    launches: usize,
    us: f64,
    flops: f64,
    bytes: f64,
}

fn write_time(out: &mut String, profile: &Profile) -> std::fmt::Result {
    let ops = times_by_op(profile);
    let all: f64 = ops.iter().map(|(_, t)| t.us).sum();
    if all <= 0.0 {
        return Ok(());
    }
    let how = match profile.measured.as_ref().map(|m| m.clock.note()) {
        Some(Some(note)) => format!("measured, {note}"),
        Some(None) => "measured".into(),
        None => "predicted".into(),
    };
    writeln!(
        out,
        "## Time of a step, {how}\n\n| op | kernels | time | share | GFLOP/s | GB/s |\n|---|---:|---:|---:|---:|---:|"
    )?;
    for (op, t) in ops.iter().take(TIME_ROWS) {
        let share = 100.0 * t.us / all;
        // 10⁹ a second are 10³ a microsecond.
        let (gflops, gbytes) = (t.flops / t.us / 1e3, t.bytes / t.us / 1e3);
        writeln!(
            out,
            "| {} | {} | {} | {share:.1} % | {gflops:.1} | {gbytes:.1} |",
            cell(op),
            t.launches,
            time(t.us / 1e3)
        )?;
    }
    if let Some(limits) = profile.limits {
        writeln!(out, "| *limits of the machine* | | | | {:.1} | {:.1} |", limits.gflops, limits.gbytes)?;
    }
    writeln!(out)
}

/// The longest first.
fn times_by_op(profile: &Profile) -> Vec<(&str, OpTime)> {
    let mut ops: HashMap<&str, OpTime> = HashMap::new();
    for (p, program) in profile.programs.iter().enumerate().filter(|(_, p)| p.repeats > 0) {
        let measured = profile.measured.as_ref().and_then(|m| m.kernels.get(p));
        let repeats = program.repeats as f64;
        for (n, launch) in program.launches.iter().enumerate() {
            let times = measured.and_then(|kernels| kernels.get(n)).filter(|k| k.count > 0);
            let sum = ops.entry(&launch.op).or_default();
            sum.launches += program.repeats;
            sum.us += repeats * times.map_or(launch.predicted_us, |k| k.median_us);
            sum.flops += repeats * launch.flops as f64;
            sum.bytes += repeats * launch.traffic_bytes as f64;
        }
    }
    let mut ops: Vec<_> = ops.into_iter().filter(|(_, t)| t.us > 0.0).collect();
    ops.sort_by(|(a, s), (b, t)| t.us.total_cmp(&s.us).then_with(|| a.cmp(b)));
    ops
}

fn write_pipeline(out: &mut String, profile: &Profile) -> std::fmt::Result {
    let Some(p) = &profile.pipeline else { return Ok(()) };
    writeln!(out, "## Data pipeline\n")?;
    writeln!(
        out,
        "At most {} of {} with {} threads; training waited {} for data, data waited {} for training.",
        Bytes(p.peak_bytes),
        Bytes(p.limit_bytes),
        p.threads,
        time(p.step_waited_ms),
        time(p.data_waited_ms)
    )
}

/// Milliseconds as people read them.
fn time(ms: f64) -> String {
    let (value, unit) = match ms.abs() {
        m if m >= 1e3 => (ms / 1e3, "s"),
        m if m >= 1.0 || m == 0.0 => (ms, "ms"),
        _ => (ms * 1e3, "µs"),
    };
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0} {unit}"),
        v if v >= 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

/// A word of a profile as text in a table: it may hold anything, and names no tag, link or column.
pub(crate) fn cell(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            '|' | '`' | '*' | '\\' => safe.extend(['\\', c]),
            '(' if safe.ends_with(']') => safe.push_str("\\("),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_profile_are_no_markup() {
        assert_eq!(cell("a|b\n<img src=x>[l](u)"), "a\\|b &lt;img src=x>[l]\\(u)");
        assert_eq!(cell("layer3/1/conv_2"), "layer3/1/conv_2");
    }

    #[test]
    fn times_have_three_digits_and_their_unit() {
        let texts = [0.0, 0.01234, 0.5, 1.0, 12.34, 123.4, 1234.5].map(time);
        assert_eq!(texts, ["0.00 ms", "12.3 µs", "500 µs", "1.00 ms", "12.3 ms", "123 ms", "1.23 s"]);
    }
}
