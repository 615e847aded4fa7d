//! Who holds memory on this machine: every training says so in a small file that is locked as long as it lives, and
//! `memfit devices` reads them all. A file that nobody locks is of a process that is gone. Where no such file can be written,
//! nothing is lost but this.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memfit::exec::{Device, Holder};
use serde::{Deserialize, Serialize};

/// What a process says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub devices: Vec<DeviceUsage>,
}

/// A device of a process, which may be a logical one, and what is taken of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUsage {
    pub device: String,
    /// None where nobody knows how much it has.
    pub limit_bytes: Option<u64>,
    pub holders: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    pub name: String,
    pub bytes: u64,
}

impl DeviceUsage {
    fn of(device: &Device) -> DeviceUsage {
        let name = |h: Holder| Name { name: h.name, bytes: h.bytes };
        let holders = device.holders().into_iter().map(name).collect();
        let limit_bytes = device.has_known_limit().then(|| device.limit());
        DeviceUsage { device: device.name().to_string(), limit_bytes, holders }
    }

    pub fn used(&self) -> u64 {
        self.holders.iter().map(|h| h.bytes).sum()
    }
}

/// The file of this process; gone when it is dropped.
pub struct Announcement {
    path: PathBuf,
    _lock: File,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // What stays is of a process that is gone, and the next one who looks removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Says what this process holds of these devices.
pub fn announce<'a>(devices: impl Iterator<Item = &'a Device>) -> Option<Announcement> {
    announce_in(&folder()?, Process { pid: std::process::id(), devices: devices.map(DeviceUsage::of).collect() })
}

/// Locked before it has the name under which others look for it.
fn announce_in(folder: &Path, process: Process) -> Option<Announcement> {
    DirBuilder::new().recursive(true).create(folder).ok()?;
    // A number of its own, because processes of different containers may have the same.
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let path = folder.join(format!("{}-{moment}.json", process.pid));
    let beside = path.with_extension("new");
    let mut file = memfit_files::create_new(&beside).ok()?;
    let written = file.try_lock().ok().and_then(|()| {
        file.write_all(serde_json::to_string(&process).ok()?.as_bytes()).ok()?;
        std::fs::rename(&beside, &path).ok()
    });
    if written.is_none() {
        let _ = std::fs::remove_file(&beside);
    }
    written.map(|()| Announcement { path, _lock: file })
}

/// All processes that hold something, by their number.
pub fn processes() -> Vec<Process> {
    folder().map_or(Vec::new(), |f| processes_in(&f))
}

fn processes_in(folder: &Path) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_announcement = |path: &PathBuf| path.extension().is_some_and(|e| e == "json");
    let mut found: Vec<Process> =
        entries.flatten().map(|e| e.path()).filter(is_announcement).filter_map(|path| read(&path)).collect();
    found.sort_by_key(|p| p.pid);
    found
}

/// What a live process said. What a dead one said is removed; what no process said is not ours, and stays.
fn read(path: &Path) -> Option<Process> {
    let file = memfit_files::open_own(path).ok()?;
    let lock = file.try_lock_shared();
    let said = serde_json::from_reader((&file).take(LONGEST)).ok()?;
    match lock {
        // Whoever wrote it still holds it.
        Err(TryLockError::WouldBlock) => Some(said),
        Err(TryLockError::Error(_)) => None,
        Ok(()) => {
            let _ = std::fs::remove_file(path);
            None
        }
    }
}

/// More bytes no process says of itself.
const LONGEST: u64 = 1 << 20;

/// Of this user; on a machine where others train, they are seen by what the system says is available.
fn folder() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    runtime.or_else(cache).map(|p| p.join("memfit").join("processes"))
}

fn cache() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    cache.or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_processes_are_listed_and_dead_ones_swept() {
        let folder = std::env::temp_dir().join(format!("memfit-announce-{}", std::process::id()));
        let device = Device::new("cpu:0", 1000);
        let _held = device.take("weights of a", 300).unwrap();
        let process = |pid| Process { pid, devices: vec![DeviceUsage::of(&device)] };
        let live = announce_in(&folder, process(7)).unwrap();
        drop(announce_in(&folder, process(8)).unwrap());
        // As a process leaves it that was killed.
        std::fs::write(folder.join("9.json"), serde_json::to_string(&process(9)).unwrap()).unwrap();
        std::fs::write(folder.join("10.json"), "no JSON").unwrap();
        let found = processes_in(&folder);
        assert_eq!(found, [process(7)]);
        assert_eq!(found[0].devices[0].used(), 300);
        assert!(!folder.join("9.json").exists() && folder.join("10.json").exists() && live.path.exists());
        drop(live);
        assert_eq!(processes_in(&folder), []);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
