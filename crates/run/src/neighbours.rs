//! Processes that share a machine: each says where it sits, and from what all say each knows with how many it shares cores and memory.

use std::fs;

use memfit::exec::process;
use serde::{Deserialize, Serialize};

/// The processes of a launcher that are on the machine of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// How many they are with this one, ...
    pub count: usize,
    /// ... and which of them it is.
    pub index: usize,
    /// Those that run on the same cores, ...
    pub core_sharers: usize,
    /// ... and which of them it is.
    pub core_index: usize,
    /// Those that are in the control group which limits its memory.
    pub group_sharers: usize,
    /// Whether the first of all processes is one of them.
    pub have_first: bool,
}

/// Where a process sits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The machine, and what it is called: containers of one machine have names of their own.
    machine: [String; 2],
    /// The numbers of the cores that it may use.
    cores: Vec<usize>,
    /// The control group that lets it use less than that.
    quota: Option<String>,
    /// The one that limits its memory.
    group: Option<String>,
}

impl Seat {
    /// Of this process.
    pub fn own() -> Seat {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let status = read("/proc/self/status");
        let cores = cores(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default());
        // A container sees its own group as the first of all.
        let space = fs::read_link("/proc/self/ns/cgroup").unwrap_or_default().display().to_string();
        let in_space = |group: String| format!("{space} {group}");
        let is_quota = std::thread::available_parallelism().is_ok_and(|n| n.get() < cores.len());
        Seat {
            machine: [read("/proc/sys/kernel/random/boot_id"), read("/proc/sys/kernel/hostname")],
            quota: is_quota.then(|| in_space(read("/proc/self/cgroup"))),
            group: process::limiting_group().map(|folder| in_space(folder.display().to_string())),
            cores,
        }
    }

    pub fn to_words(&self) -> Vec<u8> {
        // Of texts and numbers: there is nothing that cannot be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn is_beside(&self, other: &Seat) -> bool {
        self.machine == other.machine
    }

    fn shares_cores_with(&self, other: &Seat) -> bool {
        let overlap = || self.cores.is_empty() || self.cores.iter().any(|core| other.cores.contains(core));
        self.is_beside(other) && self.quota == other.quota && overlap()
    }

    fn shares_group_with(&self, other: &Seat) -> bool {
        self.is_beside(other) && self.group == other.group
    }
}

impl Neighbours {
    /// Of a process that is alone.
    pub const NONE: Neighbours =
        Neighbours { count: 1, index: 0, core_sharers: 1, core_index: 0, group_sharers: 1, have_first: true };

    /// From what all processes say, in the order of their ranks. What cannot be read is somewhere else.
    pub fn of(words: &[Vec<u8>], rank: usize) -> Neighbours {
        let seats: Vec<Option<Seat>> = words.iter().map(|words| serde_json::from_slice(words).ok()).collect();
        let Some(Some(own)) = seats.get(rank) else { return Neighbours::NONE };
        let those = |are: &dyn Fn(&Seat) -> bool| {
            let found = || seats.iter().enumerate().filter(|(_, seat)| seat.as_ref().is_some_and(are));
            (found().count(), found().filter(|(other, _)| *other < rank).count())
        };
        let (count, index) = those(&|seat| own.is_beside(seat));
        let (core_sharers, core_index) = those(&|seat| own.shares_cores_with(seat));
        let (group_sharers, _) = those(&|seat| own.shares_group_with(seat));
        let have_first = seats[0].as_ref().is_some_and(|first| own.is_beside(first));
        Neighbours { count, index, core_sharers, core_index, group_sharers, have_first }
    }

    /// This process's share of so many cores: one at least.
    pub fn cores(&self, all: usize) -> usize {
        (all / self.core_sharers + usize::from(self.core_index < all % self.core_sharers)).max(1)
    }
}

/// The numbers of a list such as "0-3,8".
fn cores(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(host: &str, cores: &str, quota: Option<&str>, group: Option<&str>) -> Seat {
        let [quota, group] = [quota, group].map(|group| group.map(String::from));
        Seat { machine: ["boot".into(), host.into()], cores: super::cores(cores), quota, group }
    }

    fn check(seats: &[Seat], rank: usize, [count, index, core_sharers, core_index, group_sharers]: [usize; 5]) {
        let words: Vec<Vec<u8>> = seats.iter().map(Seat::to_words).collect();
        let have_first = seats[0].machine == seats[rank].machine;
        let expected = Neighbours { count, index, core_sharers, core_index, group_sharers, have_first };
        assert_eq!(Neighbours::of(&words, rank), expected, "{rank} of {seats:?}");
    }

    #[test]
    fn processes_share_what_the_machine_gives_them_together() {
        let [a, b] = ["a", "b"].map(|host| seat(host, "0-3", None, None));
        let two_hosts = [a.clone(), b.clone(), a.clone()];
        check(&two_hosts, 0, [2, 0, 2, 0, 2]);
        check(&two_hosts, 1, [1, 0, 1, 0, 1]);
        check(&two_hosts, 2, [2, 1, 2, 1, 2]);
        // Each is bound to cores of its own.
        let bound = [seat("a", "0-1", None, None), seat("a", "2-3", None, None), seat("a", "1,3", None, None)];
        check(&bound, 0, [3, 0, 2, 0, 3]);
        check(&bound, 1, [3, 1, 2, 0, 3]);
        check(&bound, 2, [3, 2, 3, 2, 3]);
        let groups = [seat("a", "0-3", Some("x"), Some("x")), seat("a", "0-3", Some("y"), Some("y")), a];
        check(&groups, 1, [3, 1, 1, 0, 1]);
        assert_eq!(Neighbours::of(&[b"?".to_vec(), b.to_words()], 0), Neighbours::NONE);
        check(&[b], 0, [1, 0, 1, 0, 1]);
    }

    #[test]
    fn cores_are_dealt_out_evenly() {
        let of = |core_sharers, all| {
            let one = |core_index| Neighbours { core_sharers, core_index, ..Neighbours::NONE }.cores(all);
            (0..core_sharers).map(one).collect::<Vec<_>>()
        };
        assert_eq!([of(1, 8), of(3, 8), of(4, 2)], [vec![8], vec![3, 3, 2], vec![1; 4]]);
        assert_eq!(cores(" 0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(cores("none"), [0usize; 0]);
    }

    #[test]
    fn this_process_sits_somewhere() {
        let own = Seat::own().to_words();
        let both = Neighbours::of(&[own.clone(), own], 1);
        assert_eq!((both.count, both.index, both.core_sharers, both.core_index), (2, 1, 2, 1));
    }
}
