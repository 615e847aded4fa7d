//! Devices and who holds their memory. A device has a capacity and may be split into logical devices with limits of their
//! own. Whoever wants memory of a device takes it here first: so no limit is ever passed, and a refusal says who holds what.
//! Nothing is allocated here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use memfit_ir::bytes::{Bytes, told_apart};

use crate::error::ExecError;

/// Who holds what the program itself needs, which nobody can make smaller.
pub const PROGRAM: &str = "the program itself";

/// A device, or a part of one. Copies are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    name: String,
    limit: u64,
    ledger: Mutex<Ledger>,
    /// What a logical device holds of the one that it is a part of.
    share: Option<Reservation>,
    /// What this device is, but with a limit of its own: whatever is taken here is taken there too.
    whole: Option<Device>,
}

/// Who holds how much.
#[derive(Default)]
struct Ledger {
    used: u64,
    high_water: u64,
    next: u64,
    holders: BTreeMap<u64, Holder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub name: String,
    pub bytes: u64,
}

/// Memory that somebody holds; given back when it is dropped.
#[must_use = "memory is given back when this is dropped; to ask only whether there is room, use `Device::check_room`"]
pub struct Reservation {
    device: Device,
    id: u64,
    of_whole: Option<Box<Reservation>>,
}

impl Device {
    /// A device of so many bytes.
    pub fn new(name: impl Into<String>, limit: u64) -> Device {
        Device(Arc::new(Inner { name: name.into(), limit, ledger: Mutex::default(), share: None, whole: None }))
    }

    /// The same device for somebody who may take no more than so much of it. Nothing is taken of it for that.
    pub fn limited(&self, limit: u64) -> Device {
        let (name, limit) = (self.0.name.clone(), limit.min(self.limit()));
        Device(Arc::new(Inner { name, limit, ledger: Mutex::default(), share: None, whole: Some(self.clone()) }))
    }

    /// The memory of this machine, as far as this process may have it. There is one: whoever asks gets the same device, so
    /// its limit holds for all within the process. Of what other processes hold it knows nothing.
    pub fn host() -> Device {
        static HOST: OnceLock<Device> = OnceLock::new();
        HOST.get_or_init(|| Device::new("cpu:0", crate::machine::capacity().unwrap_or(u64::MAX))).clone()
    }

    /// Logical devices with these limits, one after the other. What they may take is taken from this device at once, so
    /// that each of them can always give all that its limit says.
    pub fn split(&self, limits: &[u64]) -> Result<Vec<Device>, ExecError> {
        let part = |(i, &limit): (usize, &u64)| {
            let name = format!("{}/{i}", self.name());
            let share = self.take(&format!("logical device {name}"), limit)?;
            Ok(Device(Arc::new(Inner { name, limit, ledger: Mutex::default(), share: Some(share), whole: None })))
        };
        limits.iter().enumerate().map(part).collect()
    }

    /// Takes memory for a holder of this name, or says who has it.
    pub fn take(&self, holder: &str, bytes: u64) -> Result<Reservation, ExecError> {
        let of_whole = self.0.whole.as_ref().map(|whole| whole.take(holder, bytes).map(Box::new)).transpose()?;
        let mut ledger = self.ledger();
        ledger.used = self.used_with(&ledger, holder, bytes)?;
        ledger.high_water = ledger.high_water.max(ledger.used);
        assert!(ledger.high_water <= self.limit(), "{} gave more than it has", self.name());
        let id = ledger.next;
        ledger.next += 1;
        ledger.holders.insert(id, Holder { name: holder.to_string(), bytes });
        Ok(Reservation { device: self.clone(), id, of_whole })
    }

    /// Whether [`Device::take`] would give so much now. Nothing is taken.
    pub fn check_room(&self, holder: &str, bytes: u64) -> Result<(), ExecError> {
        self.0.whole.as_ref().map_or(Ok(()), |whole| whole.check_room(holder, bytes))?;
        self.used_with(&self.ledger(), holder, bytes).map(|_| ())
    }

    /// What would be held together with so much more.
    fn used_with(&self, ledger: &Ledger, holder: &str, bytes: u64) -> Result<u64, ExecError> {
        ledger.used.checked_add(bytes).filter(|&used| used <= self.limit()).ok_or_else(|| {
            let (device, holder, limit) = (self.name().to_string(), holder.to_string(), self.limit());
            let (is_logical, holders) = (self.0.share.is_some(), ledger.holders.values().cloned().collect());
            ExecError::DeviceFull(Box::new(DeviceFull { device, is_logical, holder, bytes, limit, holders }))
        })
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Whether anybody knows how much it has; else all that is asked for is found out when it is allocated.
    pub fn has_known_limit(&self) -> bool {
        self.limit() < u64::MAX
    }

    pub fn used(&self) -> u64 {
        self.ledger().used
    }

    pub fn free(&self) -> u64 {
        let own = self.limit() - self.used();
        self.0.whole.as_ref().map_or(own, |whole| own.min(whole.free()))
    }

    /// The most that was ever held at once.
    pub fn high_water(&self) -> u64 {
        self.ledger().high_water
    }

    /// Who holds memory, in the order in which they came.
    pub fn holders(&self) -> Vec<Holder> {
        self.ledger().holders.values().cloned().collect()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({} of {})", self.name(), Bytes(self.used()), Bytes(self.limit()))
    }
}

impl Reservation {
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn bytes(&self) -> u64 {
        self.device.ledger().holders.get(&self.id).map_or(0, |h| h.bytes)
    }

    /// Gives back all but so many bytes.
    pub fn shrink(&self, bytes: u64) {
        self.of_whole.iter().for_each(|of_whole| of_whole.shrink(bytes));
        let ledger = &mut *self.device.ledger();
        if let Some(holder) = ledger.holders.get_mut(&self.id) {
            ledger.used -= holder.bytes.saturating_sub(bytes);
            holder.bytes = holder.bytes.min(bytes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut ledger = self.device.ledger();
        if let Some(holder) = ledger.holders.remove(&self.id) {
            ledger.used -= holder.bytes;
        }
    }
}

/// A request that would pass a device's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFull {
    pub device: String,
    /// Whether the limit is one that was given, and not all that there is.
    pub is_logical: bool,
    /// Who asked.
    pub holder: String,
    pub bytes: u64,
    pub limit: u64,
    pub holders: Vec<Holder>,
}

impl fmt::Display for DeviceFull {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let DeviceFull { device, is_logical, holder, bytes, limit, holders } = self;
        let [limit, bytes] = told_apart(*limit, *bytes);
        write!(f, "{device} has {limit}, and {holder} asks for {bytes}")?;
        let held: Vec<String> = holders.iter().map(|h| format!("{} ({})", h.name, Bytes(h.bytes))).collect();
        if !held.is_empty() {
            write!(f, " beside what is held: {}", held.join(", "))?;
        }
        let can_shrink = holders.iter().any(|h| h.name != PROGRAM);
        f.write_str(if can_shrink { "; make one of them smaller" } else { "; ask for less" })?;
        if *is_logical { write!(f, ", or give {device} a larger limit") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(result: Result<Reservation, ExecError>) -> DeviceFull {
        match result {
            Err(ExecError::DeviceFull(full)) => *full,
            Err(e) => panic!("{e}"),
            Ok(held) => panic!("{} was given", held.bytes()),
        }
    }

    #[test]
    fn a_limit_is_hard_and_a_refusal_names_the_holders() {
        let device = Device::new("cpu:0", 1000);
        let first = device.take("a", 600).unwrap();
        let second = device.take("b", 400).unwrap();
        let refused = full(device.take("c", 1));
        assert_eq!(refused.holders, device.holders());
        assert_eq!(refused.holders.iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let said =
            "cpu:0 has 1000 B, and c asks for 1 B beside what is held: a (600 B), b (400 B); make one of them smaller";
        assert_eq!(refused.to_string(), said, "of a whole device there is no more");
        drop(first);
        assert_eq!((device.used(), device.free(), device.high_water()), (400, 600, 1000));
        full(device.take("c", 601));
        // Nothing of a refused request stays, nor of a question.
        assert!(device.check_room("c", 600).is_ok());
        let Err(ExecError::DeviceFull(refused)) = device.check_room("c", 601) else { panic!("there is room") };
        assert_eq!(*refused, full(device.take("c", 601)));
        assert_eq!((device.holders().len(), device.used()), (1, 400));
        drop(second);
        assert_eq!(full(device.take("c", 1001)).to_string(), "cpu:0 has 1000 B, and c asks for 1001 B; ask for less");
        full(device.take("c", u64::MAX));
        assert_eq!(device.take("c", 1000).unwrap().bytes(), 1000);
        assert_eq!((device.used(), device.high_water()), (0, 1000));
    }

    #[test]
    fn logical_devices_share_out_what_there_is() {
        let device = Device::new("cpu:0", 1000);
        let parts = device.split(&[700, 200]).unwrap();
        assert_eq!(parts.iter().map(Device::name).collect::<Vec<_>>(), ["cpu:0/0", "cpu:0/1"]);
        let said = full(parts[1].take("a", 201)).to_string();
        let cure = "; ask for less, or give cpu:0/1 a larger limit";
        assert_eq!(said, format!("cpu:0/1 has 200 B, and a asks for 201 B{cure}"));
        let held = parts[0].take("a", 700).unwrap();
        full(device.take("b", 101));
        let said = full(parts[0].take("b", 1)).to_string();
        let cure = "; make one of them smaller, or give cpu:0/0 a larger limit";
        assert_eq!(said, format!("cpu:0/0 has 700 B, and b asks for 1 B beside what is held: a (700 B){cure}"));
        drop(parts);
        // Who holds memory of a logical device holds the device.
        assert_eq!(device.used(), 700);
        drop(held);
        assert_eq!(device.used(), 0);
        assert!(device.split(&[600, 401]).is_err());
        assert_eq!(device.used(), 0, "of a split that fails nothing stays");
    }

    #[test]
    fn a_smaller_limit_of_the_same_device_holds_beside_its_own() {
        let device = Device::new("cpu:0", 1000);
        let small = device.limited(600);
        assert_eq!((small.name(), small.limit(), device.used()), ("cpu:0", 600, 0));
        let held = small.take("a", 500).unwrap();
        assert_eq!((small.free(), device.free()), (100, 500));
        full(small.take("b", 101));
        assert_eq!(device.used(), 500, "of a refused request nothing stays anywhere");
        let other = device.take("b", 450).unwrap();
        assert_eq!(small.free(), 50);
        assert!(small.check_room("c", 51).is_err() && small.take("c", 51).is_err());
        held.shrink(300);
        held.shrink(400);
        assert_eq!((held.bytes(), small.used(), device.used()), (300, 300, 750));
        drop((held, other));
        assert_eq!((small.free(), device.used()), (600, 0));
        assert_eq!(device.limited(5000).limit(), 1000);
    }

    #[test]
    fn there_is_one_host() {
        let held = Device::host().take("a test", 1).unwrap();
        assert!(Device::host().holders().iter().any(|h| h.name == "a test"));
        drop(held);
        assert!(!Device::host().holders().iter().any(|h| h.name == "a test"));
    }

    #[test]
    fn many_threads_never_pass_a_limit() {
        let device = Device::new("cpu:0", 100);
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let device = &device;
                scope.spawn(move || {
                    for i in 0..2000 {
                        let _ = device.take("t", 1 + (i * 7 + t * 13) % 60);
                        assert!(device.used() <= 100);
                    }
                });
            }
        });
        assert_eq!(device.used(), 0);
        assert!(device.high_water() <= 100);
    }
}
