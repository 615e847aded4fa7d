//! What a device leaves for the arenas of runs, and how it would leave more.

use memfit::exec::process::Limiter;
use memfit::exec::{Device, Holder};
use memfit::plan::Change;
use memfit::plan::bytes::Bytes;

use crate::config::MemoryConfig;
use crate::device::part;
use crate::process::{ProcessMemory, limit_words};

/// What a device leaves for the arenas of its runs, and how it would leave more.
#[derive(Clone, Debug)]
pub struct Room {
    pub bytes: u64,
    pub device: String,
    limit: u64,
    holders: Vec<Holder>,
    /// Of a logical device: all limits, and which of them it is.
    limits: Option<(Vec<u64>, usize)>,
    /// What pipelines would take besides if there were more.
    lack: u64,
    /// Of a process with a limit: with how many threads a run computes, and what each takes.
    threads: Option<(usize, u64)>,
    /// And who says the limit, what it is for the whole process, and how many processes have one like that of it.
    process: Option<(Limiter, u64, usize)>,
    /// Replicas that share the process out, of whom each has so much.
    shares: u64,
}

impl Room {
    /// Of a logical device.
    pub fn of_part(device: &Device, memory: &MemoryConfig) -> Option<Room> {
        let part = part(device.name()).filter(|&part| part < memory.logical.len())?;
        Some(Room { limits: Some((memory.logical.clone(), part)), ..Room::of_whole(device) })
    }

    /// Of a device that cannot become larger.
    pub fn of_whole(device: &Device) -> Room {
        let (bytes, limit, holders) = (device.free(), device.limit(), device.holders());
        Room {
            bytes,
            device: device.name().into(),
            limit,
            holders,
            limits: None,
            lack: 0,
            threads: None,
            process: None,
            shares: 1,
        }
    }

    /// Of a process whose limit is what there is.
    pub fn of_process(device: &Device, process: &ProcessMemory) -> Room {
        Room { process: Some((process.limiter, process.bytes, process.sharers())), ..Room::of_whole(device) }
    }

    /// The same for one of so many replicas, which have equal shares of it.
    pub(crate) fn shared_by(self, replicas: usize) -> Room {
        Room { shares: replicas.max(1) as u64, ..self }
    }

    /// With what pipelines would take besides if there were more.
    pub(crate) fn with_lack(self, lack: u64) -> Room {
        Room { lack, ..self }
    }

    pub(crate) fn with_threads(self, threads: usize, bytes_each: u64) -> Room {
        Room { threads: Some((threads, bytes_each)), ..self }
    }

    /// With what there is now.
    pub(crate) fn now(&self, device: &Device) -> Room {
        Room { bytes: device.free(), holders: device.holders(), ..self.clone() }
    }

    /// Who has the rest.
    pub fn words(&self) -> String {
        let holders = self.holders.iter().filter(|h| h.bytes > 0);
        let held: Vec<String> = holders.map(|h| format!("{} by {}", Bytes(h.bytes), h.name)).collect();
        let whole = match self.process {
            None => format!("the {} of {}", Bytes(self.limit), self.device),
            Some((limiter, bytes, sharers)) if self.shares == 1 => {
                format!("the {} that the process may have ({})", Bytes(bytes), limit_words(limiter, sharers))
            }
            Some((limiter, bytes, sharers)) => format!(
                "the {} that are a replica's share of the {} that the process may have ({})",
                Bytes(self.limit),
                Bytes(bytes),
                limit_words(limiter, sharers)
            ),
        };
        if held.is_empty() {
            format!("all of {whole} is free")
        } else {
            format!("of {whole}, {}", held.join(", ").replacen(" by ", " are held by ", 1))
        }
    }

    /// The same before what follows from it; nothing where there is no such limit.
    pub fn before(room: Option<&Room>) -> String {
        room.map_or(String::new(), |room| format!("{}; ", room.words()))
    }

    /// The most threads with which an arena of so many bytes fits, and what each takes, where fewer would do.
    pub fn fewer_threads(&self, arena: u64) -> Option<(usize, u64)> {
        let (threads, each) = self.threads.filter(|(_, each)| *each > 0)?;
        let missing = with_margin(self.needed(arena)).saturating_sub(self.limit);
        let fewer = usize::try_from(missing.div_ceil(each)).ok()?;
        threads.checked_sub(fewer).filter(|&left| left > 0 && fewer > 0).map(|left| (left, each))
    }

    /// The limit that would do.
    fn needed(&self, arena: u64) -> u64 {
        self.limit.saturating_sub(self.bytes).saturating_add(self.lack).saturating_add(arena)
    }

    /// The split, or the limit, with which an arena of so many bytes fits, if there is one.
    pub fn cure(&self, arena: u64) -> Option<Change> {
        let needed = self.needed(arena);
        if let Some((limiter, bytes, sharers)) = self.process {
            // What the program takes stays, and every replica gets more.
            let more = needed.saturating_sub(self.limit).saturating_mul(self.shares);
            let needed = if self.shares == 1 { needed } else { bytes.saturating_add(more) };
            return larger_process(limiter, needed.saturating_mul(sharers as u64));
        }
        let (limits, part) = self.limits.as_ref()?;
        let size = |(i, &limit): (usize, &u64)| if i == *part { needed } else { limit };
        Some(Change::Split(limits.iter().enumerate().map(size).collect()))
    }
}

/// A limit that is enough for a process that needs so much.
pub fn larger_process(limiter: Limiter, needed: u64) -> Option<Change> {
    let enough = with_margin(needed);
    match limiter {
        Limiter::Machine => None,
        Limiter::Said => Some(Change::Total(enough)),
        Limiter::Group | Limiter::AddressSpace | Limiter::Data => Some(Change::ProcessLimit(enough)),
    }
}

/// And some more: a larger process has larger tables of its pages, and what is measured differs a little from process to
/// process.
fn with_margin(needed: u64) -> u64 {
    needed.saturating_add(needed / 50).saturating_add(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_says_who_has_the_rest_and_what_would_fit() {
        let whole = Device::new("cpu:0", 100 << 20);
        let parts = whole.split(&[8 << 20, 4 << 20]).expect("they fit");
        let held = parts[1].take("the data pipeline of a", 3 << 20).expect("it fits");
        let memory = MemoryConfig { logical: vec![8 << 20, 4 << 20], ..MemoryConfig::default() };
        let room = Room::of_part(&parts[1], &memory).expect("a part");
        assert_eq!(room.bytes, 1 << 20);
        assert_eq!(room.words(), "of the 4.00 MiB of cpu:0/1, 3.00 MiB are held by the data pipeline of a");
        assert_eq!(room.cure(5 << 19), Some(Change::Split(vec![8 << 20, 11 << 19])));
        // A pipeline that gave way left the rest.
        held.shrink(1 << 20);
        assert_eq!(room.now(&parts[1]).cure(5 << 19), Some(Change::Split(vec![8 << 20, 7 << 19])));
        // Nobody holds anything of the other.
        let empty = Room::of_part(&parts[0], &memory).expect("a part");
        assert_eq!(empty.words(), "all of the 8.00 MiB of cpu:0/0 is free");
        assert_eq!(Room::before(Some(&empty)) + "no plan", "all of the 8.00 MiB of cpu:0/0 is free; no plan");
        assert_eq!(Room::before(None), "");
        assert!(Room::of_part(&whole, &memory).is_none() && Room::of_whole(&whole).cure(1).is_none());
    }
}
