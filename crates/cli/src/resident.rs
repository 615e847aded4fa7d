//! How much memory this process really has, as the system counts it; nothing where it does not say.

/// Now, in bytes.
pub fn now() -> Option<u64> {
    field("VmRSS:")
}

/// The most so far, in bytes.
pub fn peak() -> Option<u64> {
    field("VmHWM:")
}

fn field(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
