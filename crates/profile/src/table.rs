//! Tables of Markdown that read as text too.

use crate::markdown::cell;

/// A table whose columns stand under each other; the first is at the left, the others at the right. What stands in it may hold
/// anything.
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|text| cell(text))).collect();
    let length = |s: &str| s.chars().count();
    let mut widths = head.map(|h| length(h).max(3));
    for row in &rows {
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

/// By how much something grew, for a reader.
pub fn change(before: f64, after: f64) -> String {
    if before == after {
        String::new()
    } else if before == 0.0 {
        "new".into()
    } else if after > 10.0 * before {
        format!("{:.0} ×", after / before)
    } else {
        format!("{:+.1} %", (after / before - 1.0) * 100.0)
    }
}

/// What a list leaves out.
pub fn more(count: usize, shown: usize) -> String {
    if count > shown { format!("\n… and {} more; the JSON has all.\n", count - shown) } else { String::new() }
}
