//! Which of the adapters that a driver lists are devices, and in which order they are numbered. Plain data: nothing is asked of
//! a driver here.

/// Of what kind an adapter is, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Discrete,
    Integrated,
    Virtual,
    Other,
    /// A rasteriser that runs on the CPU: right, but slow.
    Software,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Discrete, Kind::Integrated, Kind::Virtual, Kind::Other, Kind::Software];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Discrete => "discrete",
            Kind::Integrated => "integrated",
            Kind::Virtual => "virtual",
            Kind::Other => "other",
            Kind::Software => "software",
        }
    }
}

/// An adapter as a driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    pub kind: Kind,
    pub name: String,
    /// Such as `0000:01:00.0`; empty where the driver does not say, or there is no bus.
    pub bus: String,
}

/// A device: the adapter, and how many of its kind stand before it in the driver's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub adapter: Adapter,
    pub of_kind: usize,
}

/// The devices, in the order of their numbers: the strongest kind first, each kind in the order of its driver. A card that two
/// drivers list is one device, and of rasterisers in software there is one, which is all that the runtime can tell apart.
pub fn numbered(listed: &[Adapter]) -> Vec<Numbered> {
    let mut devices: Vec<Numbered> = Vec::new();
    for kind in Kind::ALL {
        for (of_kind, adapter) in listed.iter().filter(|a| a.kind == kind).enumerate() {
            let is_known = devices.iter().any(|d| !adapter.bus.is_empty() && d.adapter.bus == adapter.bus);
            if !is_known && (kind != Kind::Software || of_kind == 0) {
                devices.push(Numbered { adapter: adapter.clone(), of_kind });
            }
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(kind: Kind, name: &str, bus: &str) -> Adapter {
        Adapter { kind, name: name.into(), bus: bus.into() }
    }

    fn check(listed: &[Adapter], expected: &[(&str, usize)]) {
        let devices = numbered(listed);
        let found: Vec<(&str, usize)> = devices.iter().map(|d| (d.adapter.name.as_str(), d.of_kind)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_strongest_come_first_whatever_the_driver_lists_first() {
        let (slow, fast) = (adapter(Kind::Software, "slow", ""), adapter(Kind::Discrete, "fast", "0000:01:00.0"));
        let inside = adapter(Kind::Integrated, "inside", "0000:00:02.0");
        check(&[slow.clone(), inside, fast], &[("fast", 0), ("inside", 0), ("slow", 0)]);
        check(&[slow], &[("slow", 0)]);
        check(&[], &[]);
    }

    #[test]
    fn a_card_that_two_drivers_list_is_one_device_and_the_next_keeps_its_place_in_the_list() {
        let card = |name: &str, bus: &str| adapter(Kind::Discrete, name, bus);
        let listed =
            [card("a", "0000:01:00.0"), card("a by another driver", "0000:01:00.0"), card("b", "0000:02:00.0")];
        check(&listed, &[("a", 0), ("b", 2)]);
        // Where no bus is said, nobody can tell.
        check(&[card("a", ""), card("a", "")], &[("a", 0), ("a", 1)]);
    }

    #[test]
    fn of_rasterisers_there_is_one() {
        check(&[adapter(Kind::Software, "first", ""), adapter(Kind::Software, "second", "")], &[("first", 0)]);
    }
}
