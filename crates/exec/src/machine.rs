//! How much memory this machine has for this process: what is built in, or less where a control group says so.

use std::path::{Path, PathBuf};

/// All that this process may ever have, where the system says it.
pub fn capacity() -> Option<u64> {
    [built_in(), group_limit()].into_iter().flatten().min()
}

/// What the system could give now without ending another process, where it says so. A page that it promised and cannot give
/// would otherwise end this process without a word.
pub fn available() -> Option<u64> {
    [meminfo("MemAvailable"), group_free()].into_iter().flatten().min()
}

fn meminfo(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn group_limit() -> Option<u64> {
    groups().iter().filter_map(|g| g.limit()).min()
}

/// What the control groups of this process leave it; none where none of them has a limit.
pub(crate) fn group_free() -> Option<u64> {
    tightest(&groups()).map(|(limit, used)| limit.saturating_sub(used))
}

/// Limit and use of the control group of this process that leaves the least.
pub(crate) fn tightest_group() -> Option<(u64, u64)> {
    tightest(&groups())
}

/// The folder of that group.
pub(crate) fn tightest_folder() -> Option<PathBuf> {
    let groups = groups();
    let known = groups.iter().filter_map(|g| Some((g.limit()?.saturating_sub(g.used()?), &g.folder)));
    known.min_by_key(|(left, _)| *left).map(|(_, folder)| folder.clone())
}

fn tightest(groups: &[Group]) -> Option<(u64, u64)> {
    let known = groups.iter().filter_map(|g| Some((g.limit()?, g.used()?)));
    known.min_by_key(|(limit, used)| limit.saturating_sub(*used))
}

pub(crate) fn built_in() -> Option<u64> {
    meminfo("MemTotal")
}

/// A control group: its folder, and what its files are called.
struct Group {
    folder: PathBuf,
    limit: &'static str,
    used: &'static str,
}

impl Group {
    fn limit(&self) -> Option<u64> {
        // "max" and, in old systems, a number larger than any memory mean none.
        read_number(&self.folder.join(self.limit)).filter(|&n| n < 1 << 60)
    }

    /// Without what the system keeps of files, which it gives back when asked.
    fn used(&self) -> Option<u64> {
        let used = read_number(&self.folder.join(self.used))?;
        let stat = std::fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let of =
            |key: &str| stat.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse::<u64>().ok());
        // Old systems say what is of the group alone first, and with all groups inside of it after that.
        let files = |key: &str| of(&format!("total_{key}")).or(of(key)).unwrap_or(0);
        Some(used.saturating_sub(files("inactive_file")).saturating_sub(files("active_file")))
    }
}

fn read_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The control groups that this process is in, each inside of the one before; a limit of any of them holds.
fn groups() -> Vec<Group> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_of(&text, Path::new("/sys/fs/cgroup"))
}

fn groups_of(text: &str, root: &Path) -> Vec<Group> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (top, limit, used) = match kinds {
            "" => (root.to_path_buf(), "memory.max", "memory.current"),
            k if k.split(',').any(|k| k == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let mut folder = top.clone();
        found.push(Group { folder: folder.clone(), limit, used });
        for part in Path::new(path.trim_start_matches('/')).components() {
            folder.push(part);
            found.push(Group { folder: folder.clone(), limit, used });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_of_all_groups_counts() {
        let root = std::env::temp_dir().join(format!("memfit-groups-{}", std::process::id()));
        let inner = root.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(root.join("a/memory.max"), "5000\n").unwrap();
        std::fs::write(root.join("a/memory.current"), "4000\n").unwrap();
        std::fs::write(root.join("a/memory.stat"), "anon 1\ninactive_file 1500\n").unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        let found = groups_of("1:cpu:/x\n0::/a/b\n", &root);
        assert_eq!(found.len(), 3);
        assert_eq!(found.iter().filter_map(Group::limit).collect::<Vec<_>>(), [5000]);
        assert_eq!(found.iter().find_map(Group::used), Some(2500));
        assert_eq!(tightest(&found), Some((5000, 2500)));
        let old = groups_of("4:memory,cpu:/c\n", &root);
        assert_eq!(old[1].folder, root.join("memory/c"));
        std::fs::create_dir_all(&old[1].folder).unwrap();
        for (folder, limit, used) in [("memory", "9223372036854771712", "90000"), ("memory/c", "8000", "7000")] {
            std::fs::write(root.join(folder).join("memory.limit_in_bytes"), limit).unwrap();
            std::fs::write(root.join(folder).join("memory.usage_in_bytes"), used).unwrap();
        }
        let stat = "inactive_file 1\nactive_file 2\ntotal_inactive_file 500\ntotal_active_file 250\n";
        std::fs::write(old[1].folder.join("memory.stat"), stat).unwrap();
        assert_eq!(tightest(&old), Some((8000, 6250)), "a number larger than any memory is no limit");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn this_machine_has_memory() {
        if let (Some(capacity), Some(available)) = (capacity(), available()) {
            assert!(available <= capacity, "{available} of {capacity}");
        }
    }
}
