//! The processes of this machine that the same launcher started, and which of them have come to meet the others, as the system
//! shows them: before MPI has begun nobody can be asked. Reads only what the system says of processes.

use std::fs;
use std::path::Path;

use crate::launched::rank_variables;

/// What the thread is called that begins MPI: whoever has it has come.
pub(crate) const COMES: &str = "memfit-mpi";

/// What a thread is called of a process that gives up, ...
const LEAVES: &str = "memfit-leaves";

/// ... and that has told why.
const HAS_TOLD: &str = "memfit-told";

/// A process of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sibling {
    pub rank: usize,
    pub pid: u32,
    /// Whether it has come, and is not stopped.
    pub has_come: bool,
    pub gives_up: Option<GivesUp>,
}

/// A process that waits for the others no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivesUp {
    Leaves,
    HasTold,
}

impl GivesUp {
    const ALL: [GivesUp; 2] = [GivesUp::HasTold, GivesUp::Leaves];

    fn name(self) -> &'static str {
        match self {
            GivesUp::Leaves => LEAVES,
            GivesUp::HasTold => HAS_TOLD,
        }
    }

    /// Has the others see it.
    #[cfg(feature = "mpi")]
    pub fn show(self) {
        if let Ok(name) = std::ffi::CString::new(self.name()) {
            // Where it cannot be seen they wait for a moment.
            let _ = rustix::thread::set_name(&name);
        }
    }
}

/// This process and those that its launcher started beside it: none where that cannot be found out.
#[cfg(feature = "mpi")]
pub(crate) fn siblings() -> Vec<Sibling> {
    of(Path::new("/proc"), std::process::id())
}

/// Of all ranks up to `size`, where they are all on this machine, or else of those that are here: who has not come.
pub(crate) fn missing(siblings: &[Sibling], size: Option<usize>) -> Vec<usize> {
    let ranks = siblings.iter().map(|s| s.rank).max().map_or(0, |most| size.unwrap_or(0).max(most + 1));
    let is_known = |rank: &usize| size.is_some() || siblings.iter().any(|s| s.rank == *rank);
    let has_come = |rank: &usize| siblings.iter().any(|s| s.rank == *rank && s.has_come);
    (0..ranks).filter(|rank| is_known(rank) && !has_come(rank)).collect()
}

/// Of those that have come, the one that tells why they leave: whoever has told, or else the first.
pub(crate) fn teller(siblings: &[Sibling]) -> Option<&Sibling> {
    let come = || siblings.iter().filter(|sibling| sibling.has_come);
    come().find(|sibling| sibling.gives_up == Some(GivesUp::HasTold)).or(come().next())
}

fn of(proc: &Path, own: u32) -> Vec<Sibling> {
    let all: Vec<Process> =
        fs::read_dir(proc).into_iter().flatten().flatten().filter_map(|e| read(&e.path())).collect();
    let find = |pid: u32| all.iter().find(|process| process.pid == pid);
    // Programs that start others between the launcher and this process know its rank too.
    let launcher_of = |process: &Process| {
        let mut ancestor = process.parent;
        while let Some(process) = find(ancestor).filter(|process| process.rank.is_some()) {
            ancestor = process.parent;
        }
        ancestor
    };
    let Some(launcher) = find(own).filter(|process| process.rank.is_some()).map(launcher_of) else { return Vec::new() };
    let mut siblings: Vec<Sibling> = Vec::new();
    for process in all.iter().filter(|process| process.rank.is_some() && launcher_of(process) == launcher) {
        let Process { pid, rank, has_come, gives_up, .. } = *process;
        let sibling = Sibling { rank: rank.unwrap_or(0), pid, has_come, gives_up };
        match siblings.iter_mut().find(|known| known.rank == sibling.rank) {
            Some(known) if sibling.has_come => *known = sibling,
            Some(_) => {}
            None => siblings.push(sibling),
        }
    }
    siblings.sort_by_key(|sibling| sibling.rank);
    siblings
}

struct Process {
    pid: u32,
    parent: u32,
    rank: Option<usize>,
    has_come: bool,
    gives_up: Option<GivesUp>,
}

fn read(folder: &Path) -> Option<Process> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let (state, parent) = state_and_parent(&stat)?;
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    let is_stopped = matches!(state, 'T' | 't' | 'Z' | 'X');
    let rank = rank(&environment).filter(|_| state != 'X');
    let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten().filter(|_| rank.is_some());
    let names: Vec<String> = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok()).collect();
    let is_there = |name: &str| names.iter().any(|n| n.trim_end() == name);
    let gives_up = GivesUp::ALL.into_iter().find(|how| is_there(how.name()));
    Some(Process { pid, parent, rank, has_come: !is_stopped && is_there(COMES), gives_up })
}

/// Behind the program's name, which is in brackets and may have any letters.
fn state_and_parent(stat: &str) -> Option<(char, u32)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn rank(environment: &[u8]) -> Option<usize> {
    let value = |name: &str| {
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables.find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    };
    rank_variables().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process as the system shows it: its number, that of its parent, its state, its rank, and whether it has come.
    type Shown = (u32, u32, char, Option<usize>, bool);

    fn show(name: &str, processes: &[Shown], own: u32) -> Vec<Sibling> {
        let proc = std::env::temp_dir().join(format!("memfit-siblings-{name}-{}", std::process::id()));
        for (pid, parent, state, rank, has_come) in processes {
            let folder = proc.join(pid.to_string());
            fs::create_dir_all(folder.join("task/1")).expect("a folder");
            fs::write(folder.join("stat"), format!("{pid} (a) b) {state} {parent} 1 1\n")).expect("a file");
            let rank = rank.map_or(String::new(), |rank| format!("PMI_RANK={rank}\0"));
            fs::write(folder.join("environ"), format!("HOME=/\0{rank}A=B")).expect("a file");
            let thread = if *has_come { COMES } else { "main" };
            fs::write(folder.join("task/1/comm"), format!("{thread}\n")).expect("a file");
        }
        fs::create_dir_all(proc.join("self")).expect("a folder");
        let found = of(&proc, own);
        fs::remove_dir_all(proc).expect("it was made here");
        found
    }

    #[test]
    fn whoever_is_stopped_or_has_not_begun_has_not_come() {
        let processes = [
            (1, 0, 'S', None, false),
            (10, 1, 'S', None, false),
            (11, 10, 'S', Some(0), true),
            (12, 10, 'T', Some(1), true),
            (13, 10, 'S', Some(2), false),
            // Rank 3 is started by a script, ...
            (14, 10, 'S', Some(3), false),
            (15, 14, 'S', Some(3), true),
            // ... and here is another launcher.
            (20, 1, 'S', None, false),
            (21, 20, 'S', Some(4), true),
        ];
        for own in [11, 15] {
            let found = show(&format!("stopped-{own}"), &processes, own);
            let come: Vec<_> = found.iter().map(|s| (s.rank, s.pid, s.has_come)).collect();
            assert_eq!(come, [(0, 11, true), (1, 12, false), (2, 13, false), (3, 15, true)]);
            assert_eq!(teller(&found).map(|s| s.rank), Some(0));
            let mut told = found.clone();
            told[3].gives_up = Some(GivesUp::HasTold);
            assert_eq!(teller(&told).map(|s| s.rank), Some(3));
            assert_eq!(missing(&found, None), [1, 2]);
            // One of them has gone without a trace.
            assert_eq!(missing(&found, Some(6)), [1, 2, 4, 5]);
        }
        assert_eq!(missing(&[], Some(2)), [0usize; 0], "nothing is known");
    }

    #[test]
    fn a_process_that_no_launcher_started_has_no_siblings() {
        assert!(show("none", &[(1, 0, 'S', None, false), (2, 1, 'S', None, true)], 2).is_empty());
    }
}
