//! Which device a run computes on, and what of it a run may take.

use anyhow::Result;
use memfit::exec::{Device, Growth};

use crate::failure::usage;
use crate::spec::MemorySpec;

/// The devices that this process may use, by name; all if it is not set.
pub const VISIBLE: &str = "MEMFIT_VISIBLE_DEVICES";

/// The host's memory, whole and in parts. Runs of one process share it.
pub struct Devices {
    whole: Device,
    parts: Vec<Device>,
}

impl Devices {
    /// Splits the host's memory into parts with these limits.
    pub fn new(limits: &[u64]) -> Result<Devices> {
        let whole = Device::host();
        check_visible(whole.name(), std::env::var(VISIBLE).ok().as_deref())?;
        if let Some(i) = limits.iter().position(|&limit| limit == 0) {
            return Err(usage(format!("logical device {}/{i} would have no memory; give each a size", whole.name())));
        }
        let parts = whole.split(limits)?;
        Ok(Devices { whole, parts })
    }

    /// All of them, the whole first.
    pub fn all(&self) -> impl Iterator<Item = &Device> {
        std::iter::once(&self.whole).chain(&self.parts)
    }

    /// The device of the `index`-th run, by the name that it says; without one, the logical device of its number.
    pub fn of_run(&self, said: Option<&str>, index: usize) -> Result<Device> {
        let Some(name) = said else {
            return match (self.parts.get(index), self.parts.len()) {
                (Some(part), _) => Ok(part.clone()),
                (None, 0) => Ok(self.whole.clone()),
                (None, n) => Err(usage(format!(
                    "run {} has no logical device: there are {n}; give more --logical sizes, or say memory.device in each \
                     run file",
                    index + 1
                ))),
            };
        };
        let wanted = if name == "cpu" { self.whole.name() } else { name };
        self.all().find(|d| d.name() == wanted).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.all().map(Device::name).collect();
            let gpu = if wanted.starts_with("gpu") { " (a GPU cannot train yet)" } else { "" };
            usage(format!("there is no device \"{name}\" to train on{gpu}; there are {}", known.join(", ")))
        })
    }
}

/// What is not named is not there, as with the variables that people know from GPUs.
fn check_visible(device: &str, visible: Option<&str>) -> Result<()> {
    let Some(list) = visible else { return Ok(()) };
    let names: Vec<&str> = list.split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
    let is_known = |n: &&str| matches!(n.split(':').next(), Some("cpu" | "gpu"));
    if let Some(unknown) = names.iter().find(|n| !is_known(n)) {
        return Err(usage(format!("{VISIBLE} names \"{unknown}\", which is no device; such names are cpu:0, gpu:1")));
    }
    match names.iter().any(|n| *n == device || *n == "cpu") {
        true => Ok(()),
        false => Err(usage(format!("{VISIBLE} is \"{list}\" and hides {device}, the only device that trains; add it"))),
    }
}

pub fn growth(memory: &MemorySpec) -> Growth {
    match memory.growth.as_deref() {
        Some("lazy") => Growth::Lazy,
        _ => Growth::Commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_find_their_devices() {
        let devices = Devices { whole: Device::new("cpu:0", 100), parts: Vec::new() };
        assert_eq!(devices.of_run(None, 3).unwrap().name(), "cpu:0");
        let parts = devices.whole.split(&[40, 50]).unwrap();
        let devices = Devices { parts, ..devices };
        assert_eq!(devices.of_run(None, 1).unwrap().name(), "cpu:0/1");
        assert_eq!(devices.of_run(Some("cpu"), 1).unwrap().name(), "cpu:0");
        assert_eq!(devices.of_run(Some("cpu:0/0"), 1).unwrap().limit(), 40);
        for (said, index, expected) in [
            (None, 2, "run 3 has no logical device: there are 2"),
            (Some("cpu:0/2"), 0, "there are cpu:0, cpu:0/0, cpu:0/1"),
            (Some("gpu:0"), 0, "a GPU cannot train yet"),
        ] {
            let problem = devices.of_run(said, index).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn what_is_hidden_is_not_there() {
        assert!(check_visible("cpu:0", None).is_ok());
        assert!(check_visible("cpu:0", Some("gpu:0, cpu:0")).is_ok());
        assert!(check_visible("cpu:0", Some("cpu")).is_ok());
        assert!(check_visible("cpu:0", Some("gpu:0")).unwrap_err().to_string().contains("hides cpu:0"));
        assert!(check_visible("cpu:0", Some("")).is_err());
        assert!(check_visible("cpu:0", Some("tpu:0")).unwrap_err().to_string().contains("no device"));
    }
}
