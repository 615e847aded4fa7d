//! What a measurement was made on, in words. Measures nothing.

use std::fs;

/// Cores, processor and memory.
pub fn describe() -> String {
    let field = |path: &str, name: &str| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or("a processor without a name".to_string());
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|m| m.trim_end_matches("kB").trim().parse::<f64>().ok());
    let memory = memory.map_or(String::new(), |kib| format!(", {:.0} GiB", kib / 1048576.0));
    format!("{cores} cores of {cpu}{memory}")
}
