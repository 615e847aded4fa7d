//! The limits of this process, each in what it counts: how much there is, how much of it is taken, and how much is to be kept
//! for what no plan has a place for: code that has not run yet, stacks, small heaps, what the system keeps of files that are
//! written. What is left of the tightest is for arenas and pipelines.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::machine;

/// Who says how much a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// The memory that is built in.
    Machine,
    /// A control group: of a container, or of a job.
    Group,
    /// `ulimit -v`: all that is mapped, whether it is touched or not.
    AddressSpace,
    /// `ulimit -d`: all that is mapped to be written.
    Data,
    /// Whoever started it.
    Said,
}

/// One limit of a process. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub limiter: Limiter,
    pub bytes: u64,
    /// By this process; of a group, by all that are in it.
    pub used: u64,
    /// Of the program's own files, what is mapped but was not touched yet.
    untouched: u64,
    /// Processes among which it is shared out equally: all of them stand where this one does.
    sharers: u64,
    /// Stacks of threads that have ended, which the C library keeps mapped for the next ones.
    idle_stacks: u64,
}

/// What a process will still take that no plan and no pipeline counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ToCome {
    /// Threads that will be started.
    pub threads: usize,
    /// Bytes of small things: a plan and its kernels, names, buffers for writing.
    pub heap: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What a thread touches of its stack and of its heap. Measured: 60 to 200 KiB.
const TOUCHED: u64 = 256 * KIB;
/// What the system keeps for a thread.
const KERNEL: u64 = 32 * KIB;
/// The smallest heap that grows in whole pieces, and what is freed but not given back.
const HEAP: u64 = MIB;
/// Of a file that is written, what a group has in memory until the disk has it: see [`SYNC_AFTER`].
const WRITTEN: u64 = 4 * MIB;
/// A file is handed to the disk piece by piece where its pages count for a group that has not much left.
pub(crate) const SYNC_AFTER: u64 = 2 * MIB;
/// What a group must have left for a file to be written without that.
pub(crate) const PLENTY: u64 = 256 * MIB;
/// Of a group, what the program counts as when it starts; the system counts in batches for each core, so less may be seen.
/// Measured: 0.8 to 1.3 MiB.
const STARTED: u64 = 2 * MIB;
/// What libraries that are in use will touch besides. Measured: 0.3 MiB with Open MPI 4.1, 0.6 with MPICH 4.0, from when MPI had begun
/// to the end of a training.
const LIBRARIES: u64 = 2 * MIB;
/// Bytes of mapped memory for one byte of page tables, at least.
const PER_PAGE_TABLE: u64 = 448;

impl Limit {
    /// What is left for arenas and pipelines when all that is to come is there.
    pub fn room(&self, coming: &ToCome) -> u64 {
        let left = self.share().saturating_sub(self.kept(coming));
        match self.limiter {
            Limiter::Group => left - left / PER_PAGE_TABLE,
            Limiter::Machine | Limiter::AddressSpace | Limiter::Data | Limiter::Said => left,
        }
    }

    /// The same limit for one of so many processes that have it together.
    pub fn shared_by(self, processes: usize) -> Limit {
        Limit { sharers: processes.max(1) as u64, ..self }
    }

    /// What this process may have of it.
    pub fn share(&self) -> u64 {
        self.bytes / self.sharers
    }

    /// What one thread more takes of it.
    pub fn of_thread(&self) -> u64 {
        let fresh = Limit { idle_stacks: 0, ..*self };
        fresh.counts(&ToCome { threads: 1, heap: 0 }) - fresh.counts(&ToCome::default())
    }

    /// What is there and what is to come of the program itself, even where it is more than the limit.
    pub fn kept(&self, coming: &ToCome) -> u64 {
        // Of a group all its processes are counted together, and each has a part of that.
        let (least, parts) = if self.limiter == Limiter::Group { (STARTED, self.sharers) } else { (0, 1) };
        (self.used / parts).max(least).saturating_add(self.counts(coming))
    }

    /// What is to come, as this limit counts it.
    fn counts(&self, coming: &ToCome) -> u64 {
        let threads = coming.threads as u64;
        let heap = HEAP + coming.heap;
        match self.limiter {
            Limiter::Machine | Limiter::Said => heap + threads * TOUCHED + self.untouched,
            // Its own files go when something else is wanted.
            Limiter::Group => heap + threads * (TOUCHED + KERNEL) + WRITTEN,
            // Those that are kept are used already.
            Limiter::AddressSpace | Limiter::Data => heap + threads.saturating_sub(self.idle_stacks) * stack(),
        }
    }
}

/// What is mapped for a thread.
fn stack() -> u64 {
    let said = std::env::var("RUST_MIN_STACK").ok().and_then(|s| s.parse::<u64>().ok());
    said.unwrap_or(2 * MIB) + 64 * KIB
}

/// Stacks of threads that are mapped, less those of so many that run: a page that nobody may touch, and a stack above it.
fn idle_stacks(maps: &str, running: u64) -> u64 {
    let least = stack() - 64 * KIB;
    let mut guard_end = None;
    let mut stacks: u64 = 0;
    for mapping in maps.lines().filter_map(Mapping::of_line) {
        let is_stack = mapping.access == "rw-p" && !mapping.is_file && mapping.bytes() >= least;
        stacks += u64::from(is_stack && guard_end == Some(mapping.start));
        let is_guard = mapping.access == "---p" && mapping.bytes() == page_size();
        guard_end = is_guard.then_some(mapping.end);
    }
    stacks.saturating_sub(running)
}

/// Threads of this process besides its first, whose stack is another kind of mapping.
fn running_threads() -> u64 {
    std::fs::read_dir("/proc/self/task").map_or(0, |threads| (threads.count() as u64).saturating_sub(1))
}

/// Bytes of this process that are in memory now, as the system counts them; none where it does not say.
pub fn resident() -> Option<u64> {
    // Pages: all that is mapped, and of that what is in memory. It is read without allocating a line for each field.
    let mut text = [0; 128];
    let length = std::io::Read::read(&mut std::fs::File::open("/proc/self/statm").ok()?, &mut text).ok()?;
    let pages: u64 = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size())
}

#[cfg(target_os = "linux")]
fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(not(target_os = "linux"))]
fn page_size() -> u64 {
    4096
}

/// All limits that hold now, with one that was said.
pub fn limits(said: Option<u64>) -> Vec<Limit> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = field(&status, "VmRSS:").unwrap_or(0);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let (files, idle_stacks) = (mapped_files(&maps), idle_stacks(&maps, running_threads()));
    let untouched = match ARE_LIBRARIES_IN_USE.load(Ordering::Relaxed) {
        true => untouched_of_program() + LIBRARIES,
        false => files.saturating_sub(field(&status, "RssFile:").unwrap_or(0)),
    };
    let limit = |limiter, bytes: Option<u64>, used: Option<u64>| {
        Some(Limit { limiter, bytes: bytes?, used: used?, untouched, sharers: 1, idle_stacks })
    };
    let group = machine::tightest_group();
    let found = [
        limit(Limiter::Machine, machine::built_in(), Some(resident)),
        limit(Limiter::Group, group.map(|g| g.0), group.map(|g| g.1)),
        limit(Limiter::AddressSpace, address_space(), field(&status, "VmSize:")),
        limit(Limiter::Data, data(), field(&status, "VmData:")),
        limit(Limiter::Said, said, Some(resident)),
    ];
    found.into_iter().flatten().collect()
}

/// Whether the libraries of this process are in use, and have touched what they need.
static ARE_LIBRARIES_IN_USE: AtomicBool = AtomicBool::new(false);

/// The libraries of this process are loaded and have begun: most of their files, of which MPI maps many, is never touched.
pub fn libraries_are_in_use() {
    ARE_LIBRARIES_IN_USE.store(true, Ordering::Relaxed);
}

/// The control group whose limit of memory is the tightest of this process, if any has one.
pub fn limiting_group() -> Option<PathBuf> {
    machine::tightest_folder()
}

/// Whether all that is mapped counts, so that nothing should be mapped that is not used.
pub fn is_mapping_limited() -> bool {
    address_space().is_some()
}

/// Whether files of a folder, which may be still to be made, lie in memory and count for a control group as long as they are
/// there.
#[cfg(target_os = "linux")]
pub fn is_in_memory(folder: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    let found = whole.ancestors().find_map(|path| rustix::fs::statfs(path).ok());
    found.is_some_and(|fs| [TMPFS, RAMFS].contains(&(fs.f_type as u64 & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
pub fn is_in_memory(_: &Path) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn address_space() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

#[cfg(target_os = "linux")]
fn data() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Data).current
}

#[cfg(not(target_os = "linux"))]
fn address_space() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn data() -> Option<u64> {
    None
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(KIB)
}

/// Bytes of the program's own file that are mapped and not in memory.
fn untouched_of_program() -> u64 {
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    untouched(&maps, &program.to_string_lossy())
}

/// The same of any file, from what the system says of each mapping in some lines.
fn untouched(maps: &str, file: &str) -> u64 {
    let (mut is_of_file, mut size, mut resident) = (false, 0, 0);
    for line in maps.lines() {
        if let Some(mapping) = Mapping::of_line(line) {
            is_of_file = mapping.is_file && line.ends_with(file);
            size += if is_of_file { mapping.bytes() } else { 0 };
        } else if is_of_file {
            resident += field(line, "Rss:").unwrap_or(0);
        }
    }
    size.saturating_sub(resident)
}

/// Bytes of the mappings of files.
fn mapped_files(maps: &str) -> u64 {
    maps.lines().filter_map(Mapping::of_line).filter(|m| m.is_file).map(|m| m.bytes()).sum()
}

/// A line of `/proc/self/maps`.
struct Mapping<'a> {
    start: u64,
    end: u64,
    /// Such as `rw-p`.
    access: &'a str,
    is_file: bool,
}

impl Mapping<'_> {
    fn of_line(line: &str) -> Option<Mapping<'_>> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let access = rest.split(' ').next()?;
        (start <= end).then_some(Mapping { start, end, access, is_file: rest.contains(" /") })
    }

    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_come_counts_as_its_limit_counts() {
        let limit = |limiter| Limit {
            limiter,
            bytes: 100 * MIB,
            used: 10 * MIB,
            untouched: 3 * MIB,
            sharers: 1,
            idle_stacks: 0,
        };
        let coming = ToCome { threads: 4, heap: 2 * MIB };
        let room = |limiter| limit(limiter).room(&coming);
        assert_eq!(room(Limiter::Said), (90 - 1 - 2 - 1 - 3) * MIB);
        assert_eq!(room(Limiter::Machine), room(Limiter::Said));
        assert_eq!(room(Limiter::AddressSpace), (90 - 1 - 2) * MIB - 4 * stack());
        let group = (90 - 1 - 2 - 1 - 4) * MIB - 4 * KERNEL;
        assert_eq!(room(Limiter::Group), group - group / PER_PAGE_TABLE);
        assert_eq!(Limit { used: 200 * MIB, ..limit(Limiter::Group) }.room(&coming), 0);
        let kept = Limit { idle_stacks: 3, ..limit(Limiter::AddressSpace) };
        assert_eq!(kept.room(&coming), (90 - 1 - 2) * MIB - stack());
        assert_eq!(kept.of_thread(), stack());
        // Of two processes each has half, and of what both have taken half is its own.
        let of_two = |limiter| limit(limiter).shared_by(2).room(&coming);
        assert_eq!(of_two(Limiter::Machine), (50 - 10 - 1 - 2 - 1 - 3) * MIB);
        let group = (50 - 5 - 1 - 2 - 1 - 4) * MIB - 4 * KERNEL;
        assert_eq!(of_two(Limiter::Group), group - group / PER_PAGE_TABLE);
        // A few pages more or less make no difference where a program has just started.
        let started = |used| Limit { used, ..limit(Limiter::Group) }.room(&coming);
        assert_eq!(started(MIB), started(MIB + 300 * KIB));
    }

    #[test]
    fn files_are_told_from_the_rest_of_what_is_mapped() {
        let maps =
            "55e0-65e0 r-xp 0 fe:00 12  /usr/bin/a b\n7000-9000 rw-p 0 00:00 0 [heap]\n9000-a000 rw-p 0 00:00 0\n";
        assert_eq!(mapped_files(maps), 0x1000);
        assert_eq!(field("VmRSS:\t  12 kB\nVmSize: 3 kB", "VmSize:"), Some(3 * KIB));
    }

    #[test]
    fn what_was_not_touched_of_a_file_is_told_from_other_files() {
        let of = |range: &str, rss: u64, path: &str| {
            format!("{range} r-xp 00000000 fe:00 12  {path}\nSize:  9 kB\nRss:   {rss} kB\nVmFlags: rd ex\n")
        };
        let maps = of("1000-4000", 8, "/bin/a") + &of("4000-9000", 4, "/lib/b") + &of("9000-a000", 0, "/bin/a");
        assert_eq!(untouched(&maps, "/bin/a"), (12 - 8 + 4) * KIB);
        assert_eq!(untouched("", "/bin/a"), 0);
        if Path::new("/proc/self/smaps").exists() {
            let all = mapped_files(&std::fs::read_to_string("/proc/self/maps").unwrap());
            assert!(untouched_of_program() > 0 && untouched_of_program() < all);
        }
    }

    #[test]
    fn stacks_of_threads_that_ended_are_told_from_those_in_use_and_from_other_memory() {
        let (page, bytes) = (page_size(), stack() - 64 * KIB);
        let first = 0x7f00_0000_0000;
        let stack_at = |at: u64| {
            let base = at + page;
            format!("{at:x}-{base:x} ---p 00000000 00:00 0 \n{base:x}-{:x} rw-p 00000000 00:00 0 \n", base + bytes)
        };
        let two = stack_at(first) + &stack_at(first + page + bytes);
        // A buffer without a guard, and a heap whose rest is not open yet.
        let others =
            "10000000-20000000 rw-p 0 00:00 0\n20000000-24000000 ---p 0 00:00 0\n24000000-28000000 rw-p 0 00:00 0\n";
        let maps = format!("{others}{two}");
        assert_eq!([0, 1, 2, 3].map(|running| idle_stacks(&maps, running)), [2, 1, 0, 0]);
    }

    #[test]
    fn a_folder_in_memory_is_known_before_it_is_made() {
        if Path::new("/proc/self/status").exists() {
            assert!(!is_in_memory(Path::new("/proc/none/such")), "that is no memory");
        }
        let shm = Path::new("/dev/shm");
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        if mounts.lines().any(|l| l.starts_with("tmpfs /dev/shm ") || l.contains(" /dev/shm tmpfs ")) {
            assert!(is_in_memory(&shm.join("not/there/yet")));
        }
    }

    #[test]
    fn the_tightest_limit_is_the_one_that_was_said_where_it_is_small() {
        let limits = limits(Some(MIB)).into_iter();
        let tightest = limits.min_by_key(|limit| limit.room(&ToCome::default()));
        let found = tightest.map(|limit| (limit.limiter, limit.bytes));
        if cfg!(target_os = "linux") {
            assert_eq!(found, Some((Limiter::Said, MIB)));
        }
    }
}
