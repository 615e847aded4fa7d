//! The live bytes over a step, as lines of text.

use memfit::plan::bytes::Bytes;
use memfit::{Phase, Plan};

/// Lines of the chart without its axis.
const HEIGHT: usize = 12;
/// Columns of the numbers at the left.
const LABELS: usize = 11;
/// Eighths of a cell, from the bottom.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// What lives as long as the model.
const STATE: char = '░';

/// A stretch of kernels with a name.
struct Part {
    name: &'static str,
    /// Live bytes of the transient segment, kernel by kernel.
    live: Vec<u64>,
}

/// The chart in so many columns; empty for a plan that runs nothing.
pub fn chart(plan: &Plan, budget: Option<u64>, columns: usize) -> Vec<String> {
    let parts = parts(plan);
    let kernels: usize = parts.iter().map(|p| p.live.len()).sum();
    let width = columns.saturating_sub(LABELS + 3).max(8);
    if kernels == 0 {
        return Vec::new();
    }
    // A budget far above would only flatten the curve.
    let budget = budget.filter(|b| *b <= plan.peak_bytes.saturating_mul(3) / 2);
    let top = plan.peak_bytes.max(budget.unwrap_or(0)).max(1);
    let live: Vec<u64> = parts.iter().flat_map(|p| p.live.iter().copied()).collect();
    let heights: Vec<u64> = (0..width).map(|c| plan.state_bytes + column(&live, c, width)).collect();
    let mut lines: Vec<String> = (0..HEIGHT).map(|row| line(row, &heights, plan.state_bytes, top, budget)).collect();
    lines.push(axis(&parts, kernels, width));
    lines
}

/// The most that is live in one column's kernels.
fn column(live: &[u64], column: usize, width: usize) -> u64 {
    let first = column * live.len() / width;
    let last = ((column + 1) * live.len()).div_ceil(width).clamp(first + 1, live.len());
    live[first..last].iter().copied().max().unwrap_or(0)
}

fn line(row: usize, heights: &[u64], state: u64, top: u64, budget: Option<u64>) -> String {
    // Eighths of a line; rows are counted from the top.
    let eighths = |bytes: u64| (bytes as f64 / top as f64 * (8 * HEIGHT) as f64).round() as usize;
    let below = 8 * (HEIGHT - 1 - row);
    let budget = budget.filter(|b| eighths(*b).saturating_sub(1) / 8 == HEIGHT - 1 - row);
    let cell = |&bytes: &u64| match eighths(bytes).saturating_sub(below).min(8) {
        0 if budget.is_some() => '╌',
        0 => ' ',
        _ if eighths(state) >= below + 4 => STATE,
        n => EIGHTHS[n],
    };
    let cells: String = heights.iter().map(cell).collect();
    let at = top as f64 * (below + 8) as f64 / (8 * HEIGHT) as f64;
    let label = match budget {
        Some(budget) => Bytes(budget).to_string(),
        None if row.is_multiple_of(4) => Bytes(at as u64).to_string(),
        None => String::new(),
    };
    let tick = if label.is_empty() { '│' } else { '┤' };
    let cells = if budget.is_some() { named(&cells) } else { cells.trim_end().to_string() };
    format!("{label:>LABELS$} {tick}{cells}")
}

/// The budget's line with its name in the last gap that is wide enough.
fn named(cells: &str) -> String {
    const GAP: &str = "╌╌╌╌╌╌╌╌╌╌";
    match cells.rsplit_once(GAP) {
        Some((before, after)) => format!("{before}╌ budget ╌{after}"),
        None => cells.to_string(),
    }
}

/// The line below, with the names of the parts and a mark where each ends.
fn axis(parts: &[Part], kernels: usize, width: usize) -> String {
    let mut cells = vec!['─'; width];
    let (mut first, mut done) = (0, 0);
    for (i, part) in parts.iter().enumerate() {
        done += part.live.len();
        let end = done * width / kernels;
        let room = end.saturating_sub(first);
        let name = format!(" {} ", part.name);
        if name.chars().count() < room {
            let start = first + (room - name.chars().count()) / 2;
            for (cell, c) in cells[start..].iter_mut().zip(name.chars()) {
                *cell = c;
            }
        }
        if i + 1 < parts.len() && end < width {
            cells[end] = '┴';
        }
        first = end + 1;
    }
    format!("{:>LABELS$} └{}", "0 B", cells.into_iter().collect::<String>())
}

/// Forward and backward, and the update where it is a program of its own.
fn parts(plan: &Plan) -> Vec<Part> {
    let mut parts = Vec::new();
    let of_step = |phase: Phase| matches!(phase, Phase::Step | Phase::Accumulate | Phase::Apply);
    for program in plan.programs.iter().filter(|p| of_step(p.phase)) {
        let live: Vec<u64> = program.launches.iter().map(|s| s.live_bytes).collect();
        let end = program.forward_end.filter(|_| program.phase.is_training());
        let cut = end.and_then(|end| program.launches.iter().position(|s| s.group.contains(end))).map(|i| i + 1);
        match cut {
            Some(cut) => {
                parts.push(Part { name: "forward", live: live[..cut].to_vec() });
                parts.push(Part { name: "backward", live: live[cut..].to_vec() });
            }
            None => parts.push(Part { name: "update", live }),
        }
    }
    parts.retain(|p| !p.live.is_empty());
    parts
}
