//! How much memory this process really has, as the system counts it; nothing where it does not say.

/// Now, in bytes.
pub fn now() -> Option<u64> {
    field("VmRSS:")
}

/// The most so far, in bytes.
pub fn peak() -> Option<u64> {
    field("VmHWM:")
}

/// Hands back to the system what planning took and freed, so that it does not stand beside the arena.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: a function of the C library that every program of this target is linked to; it takes a number, may be
        // called at any time, and touches free memory only.
        unsafe { malloc_trim(0) };
    }
}

fn field(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
