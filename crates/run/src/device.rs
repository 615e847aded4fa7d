//! Which device a run computes on, and what of it a run may take.

use memfit::exec::process::Limiter;
use memfit::exec::{Device, Growth, Holder};
use memfit::plan::Change;
use memfit::plan::bytes::Bytes;

use crate::config::MemoryConfig;
use crate::error::{Result, RunError};
use crate::process::{ProcessMemory, limiter_words};

/// The devices that this process may use, by name; all if it is not set.
pub const VISIBLE: &str = "MEMFIT_VISIBLE_DEVICES";

/// The host's memory, whole and in parts. Runs of one process share it.
pub struct Devices {
    whole: Device,
    parts: Vec<Device>,
    /// What [`VISIBLE`] names.
    visible: Option<Vec<String>>,
}

impl Devices {
    /// Splits the memory of the process into parts with these limits.
    pub fn new(whole: Device, limits: &[u64]) -> Result<Devices> {
        if let Some(i) = limits.iter().position(|&limit| limit == 0) {
            let name = whole.name();
            return Err(RunError::Conflict(format!(
                "memory.logical: device {name}/{i} would have no memory; give each a size"
            )));
        }
        let parts = whole.split(limits)?;
        Ok(Devices { whole, parts, visible: visible()? })
    }

    /// The device of a run that is alone, and may be on a smaller machine than it was trained on: of its split, its own part
    /// and no more than there is.
    pub fn of_one(whole: Device, memory: &MemoryConfig) -> Result<Device> {
        let own = memory.device.as_deref().and_then(part).unwrap_or(0);
        let limit = |(i, &limit): (usize, &u64)| if i == own { limit.min(whole.free()) } else { 0 };
        let parts = whole.split(&memory.logical.iter().enumerate().map(limit).collect::<Vec<_>>())?;
        Devices { whole, parts, visible: visible()? }.of_run(memory.device.as_deref(), own)
    }

    /// All of them, the whole first, and whether each may be used.
    pub fn all(&self) -> impl Iterator<Item = (&Device, bool)> {
        std::iter::once(&self.whole).chain(&self.parts).map(|d| (d, self.is_visible(d)))
    }

    /// A part is visible with the whole, or by itself.
    fn is_visible(&self, device: &Device) -> bool {
        let is_named = |n: &String| n == "cpu" || n == self.whole.name() || n == device.name();
        self.visible.as_ref().is_none_or(|names| names.iter().any(is_named))
    }

    /// The device of the `index`-th run, by the name that it says; without one, the logical device of its number.
    pub fn of_run(&self, said: Option<&str>, index: usize) -> Result<Device> {
        let visible: Vec<&Device> = self.all().filter(|(_, is_visible)| *is_visible).map(|(d, _)| d).collect();
        match said {
            Some(name) => self.by_name(name, &visible),
            None => self.by_number(index, &visible),
        }
    }

    fn by_number(&self, index: usize, visible: &[&Device]) -> Result<Device> {
        let parts: Vec<&Device> = visible.iter().filter(|d| d.name() != self.whole.name()).copied().collect();
        let hidden =
            || RunError::Device(format!("{VISIBLE} hides {}, which is what trains; add it", self.whole.name()));
        match (parts.get(index), self.parts.is_empty()) {
            (Some(part), _) => Ok((*part).clone()),
            (None, true) => visible.first().map(|d| (*d).clone()).ok_or_else(hidden),
            (None, false) if parts.is_empty() => Err(hidden()),
            (None, false) => Err(RunError::NoLogicalDevice { number: index + 1, devices: list(&parts) }),
        }
    }

    fn by_name(&self, name: &str, visible: &[&Device]) -> Result<Device> {
        let wanted = if name == "cpu" { self.whole.name() } else { name };
        if let Some(found) = visible.iter().find(|d| d.name() == wanted) {
            return Ok((*found).clone());
        }
        Err(if self.all().any(|(d, _)| d.name() == wanted) {
            RunError::Device(format!("{VISIBLE} hides {wanted}; add it"))
        } else if wanted.starts_with("gpu") {
            RunError::Device(format!("{wanted} cannot train yet; there are {}", list(visible)))
        } else if self.parts.is_empty() && wanted.contains('/') {
            RunError::NotSplit { name: name.into() }
        } else {
            RunError::Device(format!("there is no device \"{name}\" to train on; there are {}", list(visible)))
        })
    }
}

fn list(devices: &[&Device]) -> String {
    devices.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ")
}

/// What is not named is not there, as with the variables that people know from GPUs.
fn visible() -> Result<Option<Vec<String>>> {
    let Some(list) = std::env::var_os(VISIBLE) else { return Ok(None) };
    let list = list.to_str().ok_or_else(|| RunError::Device(format!("{VISIBLE} is no text")))?;
    names(list).map(Some)
}

fn names(list: &str) -> Result<Vec<String>> {
    let names: Vec<String> = list.split(',').map(|n| n.trim().to_string()).filter(|n| !n.is_empty()).collect();
    let is_known = |n: &&String| matches!(n.split(':').next(), Some("cpu" | "gpu"));
    match names.iter().find(|n| !is_known(n)) {
        Some(unknown) => Err(RunError::Device(format!(
            "{VISIBLE} names \"{unknown}\", which is no device; such names are cpu:0, cpu:0/1, gpu:1"
        ))),
        None => Ok(names),
    }
}

/// The number of a logical device, by its name.
fn part(name: &str) -> Option<usize> {
    name.rsplit_once('/')?.1.parse().ok()
}

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
    /// And who says the limit.
    process: Option<Limiter>,
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
        }
    }

    /// Of a process whose limit is what there is.
    pub fn of_process(device: &Device, process: &ProcessMemory) -> Room {
        Room { process: Some(process.limiter), ..Room::of_whole(device) }
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
        let held: Vec<String> = self.holders.iter().map(|h| format!("{} ({})", h.name, Bytes(h.bytes))).collect();
        let held = if held.is_empty() { "nothing".into() } else { held.join(", ") };
        match self.process {
            None => format!("of the {} of {} is held: {held}", Bytes(self.limit), self.device),
            Some(limiter) => {
                let words = limiter_words(limiter);
                format!("of the {} that the process may have ({words}) is held: {held}", Bytes(self.limit))
            }
        }
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
        if let Some(limiter) = self.process {
            return larger_process(limiter, needed);
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
    needed.saturating_add(needed / 200).saturating_add(256 << 10)
}

pub fn growth(memory: &MemoryConfig) -> Growth {
    match memory.growth.as_deref() {
        Some("lazy") => Growth::Lazy,
        _ => Growth::Commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(limits: &[u64], visible: Option<&str>) -> Devices {
        let whole = Device::new("cpu:0", 100);
        let parts = whole.split(limits).expect("they fit");
        Devices { whole, parts, visible: visible.map(|v| names(v).expect("names")) }
    }

    fn check(devices: &Devices, said: Option<&str>, index: usize, expected: Result<&str, &str>) {
        match (devices.of_run(said, index), expected) {
            (Ok(device), Ok(name)) => assert_eq!(device.name(), name),
            (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{e}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn runs_find_their_devices() {
        let whole = devices(&[], None);
        check(&whole, None, 3, Ok("cpu:0"));
        check(&whole, Some("cpu:0/0"), 0, Err("memory.logical does not split"));
        let split = devices(&[40, 50], None);
        check(&split, None, 1, Ok("cpu:0/1"));
        check(&split, Some("cpu"), 1, Ok("cpu:0"));
        check(&split, Some("cpu:0/0"), 1, Ok("cpu:0/0"));
        check(&split, None, 2, Err("run 3 has no logical device: there are cpu:0/0, cpu:0/1"));
        check(&split, Some("cpu:0/2"), 0, Err("there are cpu:0, cpu:0/0, cpu:0/1"));
        check(&split, Some("gpu:0"), 0, Err("gpu:0 cannot train yet"));
    }

    #[test]
    fn what_is_hidden_is_not_there() {
        check(&devices(&[], Some("gpu:0, cpu:0")), None, 0, Ok("cpu:0"));
        check(&devices(&[], Some("cpu")), None, 0, Ok("cpu:0"));
        check(&devices(&[], Some("gpu:0")), None, 0, Err("hides cpu:0"));
        check(&devices(&[], Some("")), Some("cpu:0"), 0, Err("hides cpu:0"));
        let second = devices(&[40, 50], Some("cpu:0/1"));
        check(&second, None, 0, Ok("cpu:0/1"));
        check(&second, Some("cpu:0/0"), 0, Err("hides cpu:0/0"));
        check(&second, None, 1, Err("there are cpu:0/1"));
        assert!(names("tpu:0").unwrap_err().to_string().contains("no device"));
    }

    #[test]
    fn a_room_says_who_has_the_rest_and_what_would_fit() {
        let whole = Device::new("cpu:0", 100 << 20);
        let parts = whole.split(&[8 << 20, 4 << 20]).expect("they fit");
        let held = parts[1].take("the data pipeline of a", 3 << 20).expect("it fits");
        let memory = MemoryConfig { logical: vec![8 << 20, 4 << 20], ..MemoryConfig::default() };
        let room = Room::of_part(&parts[1], &memory).expect("a part");
        assert_eq!(room.bytes, 1 << 20);
        assert_eq!(room.words(), "of the 4.00 MiB of cpu:0/1 is held: the data pipeline of a (3.00 MiB)");
        assert_eq!(room.cure(5 << 19), Some(Change::Split(vec![8 << 20, 11 << 19])));
        // A pipeline that gave way left the rest.
        held.shrink(1 << 20);
        assert_eq!(room.now(&parts[1]).cure(5 << 19), Some(Change::Split(vec![8 << 20, 7 << 19])));
        assert!(Room::of_part(&whole, &memory).is_none() && Room::of_whole(&whole).cure(1).is_none());
    }
}
