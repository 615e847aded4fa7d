//! Which device a run computes on, and where its memory is taken: the arena of a plan on the device, and all else of a run, its
//! data pipeline and its plan, on the host. On the CPU both are one.

use memfit::exec::{Device, Growth};
use memfit::{AnyExecutor, ExecError};

use crate::config::MemoryConfig;
use crate::error::{Result, RunError};
use crate::replicas::Crew;

/// The devices that this process may use, by name; all if it is not set.
pub const VISIBLE: &str = "MEMFIT_VISIBLE_DEVICES";

const CPU: &str = "cpu";
const GPU: &str = "gpu";

/// The devices of this machine, one of which may be split into parts. Runs of one process share them.
pub struct Devices {
    /// The memory of this process, which is the CPU's.
    host: Device,
    gpus: Gpus,
    split: Option<Split>,
    /// What [`VISIBLE`] names.
    visible: Option<Vec<String>>,
}

struct Split {
    whole: Device,
    parts: Vec<Device>,
}

/// The GPUs of this machine. They are only asked for when a run wants one: that may take a driver a while.
#[derive(Clone, Copy)]
struct Gpus {
    /// None where this build knows of none.
    count: fn() -> Option<usize>,
    open: fn(usize) -> Result<Device, ExecError>,
}

const MACHINE: Gpus = Gpus { count: AnyExecutor::gpu_count, open: AnyExecutor::gpu_memory };

/// Where the memory of a run is.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Of its arena.
    pub device: Device,
    /// Of all else. The same device, where that is the CPU or a part of it.
    pub host: Device,
}

impl Placement {
    /// Whether arena and data pipeline are taken of the same memory.
    pub fn is_on_host(&self) -> bool {
        self.device.name() == self.host.name()
    }
}

impl Devices {
    /// Splits the device that runs name into parts with these limits; the CPU where none is named.
    pub fn new(host: Device, limits: &[u64], said: &[Option<&str>]) -> Result<Devices> {
        Devices { host, gpus: MACHINE, split: None, visible: visible()? }.split(limits, said)
    }

    /// The memory of a run that is alone, and may be on a smaller machine than it was trained on: of its split, its own part
    /// and no more than there is.
    pub fn of_one(host: Device, memory: &MemoryConfig) -> Result<Placement> {
        let mut devices = Devices { host, gpus: MACHINE, split: None, visible: visible()? };
        let said = memory.device.as_deref();
        let own = said.and_then(part).unwrap_or(0);
        if !memory.logical.is_empty() {
            let whole = devices.whole(said)?;
            let limit = |(i, &limit): (usize, &u64)| if i == own { limit.min(whole.free()) } else { 0 };
            let parts = whole.split(&memory.logical.iter().enumerate().map(limit).collect::<Vec<_>>())?;
            devices.split = Some(Split { whole, parts });
        }
        devices.of_run(said, own)
    }

    /// Opens the GPUs that runs name. Drivers take memory of the process, and that is to be there when its limit is shared out;
    /// what is wrong with a name is said when it is looked for.
    pub fn load_drivers(said: &[Option<&str>]) -> Result<()> {
        let devices = Devices { host: Device::host(), gpus: MACHINE, split: None, visible: visible()? };
        said.iter().for_each(|name| drop(devices.whole(*name)));
        Ok(())
    }

    fn split(mut self, limits: &[u64], said: &[Option<&str>]) -> Result<Devices> {
        if limits.is_empty() {
            return Ok(self);
        }
        let mut wholes = Vec::new();
        for name in said.iter().flatten() {
            wholes.push(self.whole(Some(name))?);
        }
        let whole = wholes.first().cloned().map_or_else(|| self.whole(None), Ok)?;
        if let Some(other) = wholes.iter().find(|other| other.name() != whole.name()) {
            return Err(RunError::Conflict(format!(
                "memory.logical splits one device, and the runs name {} and {}; name one of them in all",
                whole.name(),
                other.name()
            )));
        }
        if let Some(i) = limits.iter().position(|&limit| limit == 0) {
            let name = whole.name();
            return Err(RunError::Conflict(format!(
                "memory.logical: device {name}/{i} would have no memory; give each a size"
            )));
        }
        self.split = Some(Split { parts: whole.split(limits)?, whole });
        Ok(self)
    }

    /// The CPU, and the parts of the device that is split; and whether each may be used.
    pub fn all(&self) -> impl Iterator<Item = (&Device, bool)> {
        let parts = self.split.iter().flat_map(|split| &split.parts);
        std::iter::once(&self.host).chain(parts).map(|d| (d, self.is_visible(d.name())))
    }

    /// A part is visible with the whole, or by itself.
    pub fn is_visible(&self, device: &str) -> bool {
        let whole = device.split('/').next().unwrap_or_default();
        let kind = whole.split(':').next().unwrap_or_default();
        let is_named = |n: &String| n == kind || n == whole || n == device;
        self.visible.as_ref().is_none_or(|names| names.iter().any(is_named))
    }

    /// Whether it, or a part of it, may be used.
    fn is_any_visible(&self, whole: &str) -> bool {
        let is_part = |n: &String| n.split_once('/').is_some_and(|(of, _)| of == whole);
        self.is_visible(whole) || self.visible.as_ref().is_some_and(|names| names.iter().any(is_part))
    }

    /// The memory of the `index`-th run, by the device that it says. Where that has no number, it is the first one that may be
    /// used; and of one that is split, the logical device of the run's number.
    pub fn of_run(&self, said: Option<&str>, index: usize) -> Result<Placement> {
        let whole = match (&self.split, said) {
            (Some(split), None) => split.whole.clone(),
            _ => self.whole(said)?,
        };
        let split = self.split.as_ref().filter(|split| split.whole.name() == whole.name());
        let parts = split.map_or(&[][..], |split| &split.parts);
        let device = match said.filter(|name| name.contains(':')) {
            Some(name) => self.by_name(name, &whole, parts)?,
            None => self.by_number(index, &whole, parts)?,
        };
        let host = if whole.name() == self.host.name() { device.clone() } else { self.host.clone() };
        Ok(Placement { device, host })
    }

    /// The memory of a replica of the `run`-th run: of a device that is split, the logical device of its number; of GPUs of which
    /// none is named, the one of its number; else what is named, which replicas of one process share out.
    pub fn of_replica(&self, said: Option<&str>, run: usize, crew: &Crew, index: usize) -> Result<Placement> {
        let is_kind = said.is_none_or(|name| !name.contains(':'));
        match &self.split {
            Some(split) if crew.are_threads() => {
                let visible: Vec<&Device> = split.parts.iter().filter(|d| self.is_visible(d.name())).collect();
                let Some(device) = visible.get(index).map(|part| (*part).clone()) else {
                    let (number, devices) = (crew.first + index, list(&visible));
                    return Err(RunError::NoDeviceForReplica { number, devices });
                };
                let is_host = split.whole.name() == self.host.name();
                let host = if is_host { device.clone() } else { self.host.clone() };
                Ok(Placement { device, host })
            }
            None if crew.size > 1 && is_kind && self.whole(said)?.name() != self.host.name() => {
                let number = if crew.are_threads() { index } else { crew.neighbours.index };
                let count = (self.gpus.count)().unwrap_or(0);
                let visible: Vec<String> =
                    (0..count).map(|n| format!("{GPU}:{n}")).filter(|name| self.is_visible(name)).collect();
                let Some(name) = visible.get(number) else {
                    let (number, devices) = (crew.first + index, visible.join(", "));
                    return Err(RunError::NoDeviceForReplica { number, devices });
                };
                self.of_run(Some(name), run)
            }
            _ => self.of_run(said, run),
        }
    }

    pub fn is_split(&self) -> bool {
        self.split.is_some()
    }

    /// The device that a name is of, whether it may be used or not.
    fn whole(&self, said: Option<&str>) -> Result<Device> {
        match said.map(|name| (name, kind_and_number(name))) {
            None if self.is_any_visible(self.host.name()) => Ok(self.host.clone()),
            None if (self.gpus.count)().is_none() => Err(self.hidden(self.host.name())),
            None => self.gpu(GPU, None),
            Some((_, Some((CPU, None | Some(0))))) => Ok(self.host.clone()),
            Some((name, Some((GPU, number)))) => self.gpu(name, number),
            Some((name, _)) => Err(self.unknown(name)),
        }
    }

    fn gpu(&self, name: &str, number: Option<usize>) -> Result<Device> {
        let Some(count) = (self.gpus.count)() else { return Err(RunError::WithoutGpus { name: name.into() }) };
        let first_visible = || (0..count).find(|n| self.is_any_visible(&format!("{GPU}:{n}")));
        Ok((self.gpus.open)(number.or_else(first_visible).unwrap_or(0))?)
    }

    fn by_number(&self, index: usize, whole: &Device, parts: &[Device]) -> Result<Device> {
        let visible: Vec<&Device> = parts.iter().filter(|d| self.is_visible(d.name())).collect();
        match visible.get(index) {
            Some(part) => Ok((*part).clone()),
            None if parts.is_empty() && self.is_visible(whole.name()) => Ok(whole.clone()),
            None if visible.is_empty() => Err(self.hidden(whole.name())),
            None => Err(RunError::NoLogicalDevice { number: index + 1, devices: list(&visible) }),
        }
    }

    fn by_name(&self, name: &str, whole: &Device, parts: &[Device]) -> Result<Device> {
        match std::iter::once(whole).chain(parts).find(|d| d.name() == name) {
            Some(found) if self.is_visible(name) => Ok(found.clone()),
            Some(_) => Err(RunError::Device(format!("{VISIBLE} hides {name}; add it"))),
            None if parts.is_empty() && part(name).is_some() => Err(RunError::NotSplit { name: name.into() }),
            None => Err(self.unknown(name)),
        }
    }

    fn hidden(&self, name: &str) -> RunError {
        RunError::Device(format!("{VISIBLE} hides {name}, which is what trains; add it"))
    }

    fn unknown(&self, name: &str) -> RunError {
        let gpus = (0..(self.gpus.count)().unwrap_or(0)).map(|n| format!("{GPU}:{n}"));
        let all: Vec<String> = self.all().map(|(d, _)| d.name().to_string()).chain(gpus).collect();
        let visible: Vec<String> = all.into_iter().filter(|d| self.is_visible(d)).collect();
        RunError::Device(format!("there is no device \"{name}\" to train on; there are {}", visible.join(", ")))
    }
}

fn list(devices: &[&Device]) -> String {
    devices.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ")
}

/// Of `gpu`, `gpu:1` or `gpu:1/0`; none of what is no such name.
fn kind_and_number(name: &str) -> Option<(&str, Option<usize>)> {
    let Some((kind, rest)) = name.split_once(':') else { return Some((name, None)) };
    let (number, part) = rest.split_once('/').map_or((rest, None), |(number, part)| (number, Some(part)));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if part.is_some_and(|part| !is_number(part)) || !is_number(number) {
        return None;
    }
    Some((kind, Some(number.parse().ok()?)))
}

/// What is not named is not there, as with the variables that people know from GPUs. Numbers stay as they are.
fn visible() -> Result<Option<Vec<String>>> {
    let Some(list) = std::env::var_os(VISIBLE) else { return Ok(None) };
    let list = list.to_str().ok_or_else(|| RunError::Device(format!("{VISIBLE} is no text")))?;
    names(list).map(Some)
}

fn names(list: &str) -> Result<Vec<String>> {
    let names: Vec<String> = list.split(',').map(|n| n.trim().to_string()).filter(|n| !n.is_empty()).collect();
    let is_known = |n: &&String| matches!(kind_and_number(n), Some((CPU | GPU, _)));
    match names.iter().find(|n| !is_known(n)) {
        Some(unknown) => Err(RunError::Device(format!(
            "{VISIBLE} names \"{unknown}\", which is no device; such names are cpu:0, cpu:0/1, gpu:1"
        ))),
        None => Ok(names),
    }
}

/// The number of a logical device, by its name.
pub(crate) fn part(name: &str) -> Option<usize> {
    name.rsplit_once('/')?.1.parse().ok()
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

    const NO_GPUS: Gpus = Gpus { count: || None, open: |_| unreachable!("there are none") };
    /// Of which one says how much it has.
    const TWO_GPUS: Gpus = Gpus {
        count: || Some(2),
        open: |n| match n {
            0 => Ok(Device::new("gpu:0", u64::MAX)),
            1 => Ok(Device::new("gpu:1", 500)),
            n => Err(ExecError::Device { device: format!("gpu:{n}"), problem: "not there".into() }),
        },
    };

    fn devices(gpus: Gpus, limits: &[u64], said: &[Option<&str>], visible: Option<&str>) -> Devices {
        let visible = visible.map(|v| names(v).expect("names"));
        let devices = Devices { host: Device::new("cpu:0", 100), gpus, split: None, visible };
        devices.split(limits, said).expect("they fit")
    }

    fn check(devices: &Devices, said: Option<&str>, index: usize, expected: Result<&str, &str>) {
        match (devices.of_run(said, index), expected) {
            (Ok(found), Ok(name)) => assert_eq!(found.device.name(), name),
            (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{e}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn runs_find_their_devices() {
        let whole = devices(NO_GPUS, &[], &[], None);
        check(&whole, None, 3, Ok("cpu:0"));
        check(&whole, Some("cpu:0/0"), 0, Err("memory.logical does not split"));
        let split = devices(NO_GPUS, &[40, 50], &[], None);
        check(&split, None, 1, Ok("cpu:0/1"));
        check(&split, Some("cpu"), 1, Ok("cpu:0/1"));
        check(&split, Some("cpu:0"), 1, Ok("cpu:0"));
        check(&split, Some("cpu:0/0"), 1, Ok("cpu:0/0"));
        check(&split, None, 2, Err("run 3 has no logical device: there are cpu:0/0, cpu:0/1"));
        check(&split, Some("cpu:0/2"), 0, Err("there are cpu:0, cpu:0/0, cpu:0/1"));
        for name in ["cpu:1", "tpu:0", "cpu:", "cpu:x", "cpu:0/x", "cpu:+0", ""] {
            check(&split, Some(name), 0, Err("there is no device"));
        }
        check(&split, Some("gpu:0"), 0, Err("without GPUs"));
    }

    #[test]
    fn gpus_are_found_by_name_and_by_kind() {
        let all = devices(TWO_GPUS, &[], &[], None);
        check(&all, None, 0, Ok("cpu:0"));
        check(&all, Some("gpu"), 5, Ok("gpu:0"));
        check(&all, Some("gpu:1"), 0, Ok("gpu:1"));
        check(&all, Some("gpu:7"), 0, Err("not there"));
        check(&all, Some("gpu:1/0"), 0, Err("memory.logical does not split"));
        check(&all, Some("tpu"), 0, Err("there are cpu:0, gpu:0, gpu:1"));
    }

    #[test]
    fn a_split_is_of_the_device_that_runs_name() {
        let split = devices(TWO_GPUS, &[40, 50], &[None, Some("gpu")], None);
        check(&split, Some("gpu"), 1, Ok("gpu:0/1"));
        check(&split, None, 0, Ok("gpu:0/0"));
        check(&split, Some("gpu:0"), 1, Ok("gpu:0"));
        check(&split, Some("gpu:1"), 1, Ok("gpu:1"));
        let second = devices(TWO_GPUS, &[40, 50], &[Some("gpu:1/1")], None);
        check(&second, Some("gpu:1/1"), 0, Ok("gpu:1/1"));
        let both = Devices { split: None, ..second }.split(&[40], &[Some("gpu:1"), Some("cpu")]);
        assert!(both.is_err_and(|e| e.to_string().contains("the runs name gpu:1 and cpu:0")));
    }

    #[test]
    fn what_is_hidden_is_not_there() {
        let hiding = |visible| devices(TWO_GPUS, &[], &[], Some(visible));
        check(&hiding("gpu:0, cpu:0"), None, 0, Ok("cpu:0"));
        check(&hiding("cpu"), None, 0, Ok("cpu:0"));
        check(&hiding("cpu"), Some("gpu:1"), 0, Err("hides gpu:1"));
        check(&hiding(""), Some("cpu:0"), 0, Err("hides cpu:0"));
        // Without the CPU a GPU is what trains; and its number stays.
        check(&hiding("gpu:0"), None, 0, Ok("gpu:0"));
        check(&hiding("gpu"), None, 0, Ok("gpu:0"));
        check(&hiding("gpu:1"), None, 0, Ok("gpu:1"));
        check(&hiding("gpu:1"), Some("gpu"), 0, Ok("gpu:1"));
        check(&hiding("gpu:1"), Some("gpu:0"), 0, Err("hides gpu:0"));
        check(&devices(NO_GPUS, &[], &[], Some("gpu:0")), None, 0, Err("hides cpu:0"));
        let second = devices(NO_GPUS, &[40, 50], &[], Some("cpu:0/1"));
        check(&second, None, 0, Ok("cpu:0/1"));
        check(&second, Some("cpu:0/0"), 0, Err("hides cpu:0/0"));
        check(&second, None, 1, Err("there are cpu:0/1"));
        for unknown in ["tpu:0", "gpu:x", "gpu:0/"] {
            assert!(names(unknown).unwrap_err().to_string().contains("no device"), "{unknown}");
        }
    }

    #[test]
    fn an_arena_on_a_gpu_leaves_the_host_alone() {
        let split = devices(TWO_GPUS, &[40], &[Some("gpu")], None);
        let run = split.of_run(Some("gpu"), 0).expect("there is one");
        assert!(!run.is_on_host());
        let (arena, pipeline) = (run.device.take("an arena", 40), run.host.take("a pipeline", 100));
        assert!(arena.is_ok() && pipeline.is_ok(), "each has what it asks for");
        assert_eq!((run.device.free(), run.host.free(), run.host.name()), (0, 0, "cpu:0"));
        // On the CPU one limit holds for both.
        let run = devices(TWO_GPUS, &[40], &[], None).of_run(None, 0).expect("there is one");
        assert!(run.is_on_host());
        let _arena = run.device.take("an arena", 30).expect("it fits");
        assert!(run.host.take("a pipeline", 11).is_err());
    }
}
