//! How much memory this process really has, as the system counts it; nothing where it does not say.

/// Now, in bytes.
pub fn now() -> Option<u64> {
    memfit::exec::process::resident()
}

/// The most so far, in bytes.
pub fn peak() -> Option<u64> {
    field("VmHWM:")
}

/// Hands back to the system what planning took and freed, so that it does not stand beside the arena.
pub fn trim_heap() {
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

/// Has the allocator hand every large buffer back to the system as soon as it is freed. By itself it raises the size from
/// which it does so to that of the largest buffer it saw, and every thread keeps a few of them: with large photos that
/// is many times what the data pipeline holds.
pub fn set_mmap_threshold() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn mallopt(param: i32, value: i32) -> i32;
        }
        const M_MMAP_THRESHOLD: i32 = -3;
        // SAFETY: a function of the C library that every program of this target is linked to; it takes two numbers, and
        // no other thread runs yet. If it does not know the parameter, nothing changes.
        unsafe { mallopt(M_MMAP_THRESHOLD, 128 * 1024) };
    }
}

/// Has all threads allocate from one heap where all that is mapped counts, for every heap of a thread maps 64 MiB.
pub fn set_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if memfit::exec::process::is_mapping_limited() {
        unsafe extern "C" {
            fn mallopt(param: i32, value: i32) -> i32;
        }
        const M_ARENA_MAX: i32 = -8;
        // SAFETY: as above.
        unsafe { mallopt(M_ARENA_MAX, 1) };
    }
}

fn field(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
