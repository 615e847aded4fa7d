//! The schema of a snapshot, as `torch/cuda/memory.py` and `torch/csrc/cuda/memory_snapshot.cpp` of PyTorch 2 have it:
//!
//! ```text
//! {"device_traces": [[{"action", "addr", "size", "frames", …}, …], …],       a list a device, the oldest event first
//!  "segments": [{"device", "total_size", "blocks": [{"address", "size", "requested_size", "state", "frames"}, …], …}, …], …}
//! ```
//!
//! Of an allocation or free, `size` is what was requested; of a segment, what the device gave. `segments` are as they were when
//! the snapshot was taken, after the last event. Keys that are not named here are not looked at.

use std::io::Read;
use std::path::Path;

use super::error::TorchError;
use super::replay::{DeviceTrace, replay};
use memfit_files::pickle::{MOST_BYTES, Pickle, PickleError, PickleProblem, Value};

/// A dictionary of the schema has no more entries than this; there are about ten.
const MOST_KEYS: usize = 64;

/// A snapshot.
#[derive(Debug)]
pub struct Snapshot {
    pickle: Pickle,
    /// By device: the list of its events.
    traces: Vec<Value>,
    segments: Vec<Value>,
}

/// What the allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    /// More was reserved: `segment_alloc` or `segment_map`.
    Reserve,
    /// Less: `segment_free` or `segment_unmap`.
    Release,
    OutOfMemory,
    /// Nothing that moves memory, such as `snapshot`.
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub action: Action,
    /// 0 where it has none.
    pub address: u64,
    pub bytes: u64,
    pub frames: Value,
}

/// A block that was not free when the snapshot was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: u64,
    /// As the allocator rounded it.
    pub bytes: u64,
    pub requested: Option<u64>,
    pub frames: Value,
}

impl Snapshot {
    /// Reads a regular file.
    ///
    /// # Errors
    /// It cannot be read, or is no snapshot.
    pub fn read(path: &Path) -> Result<Snapshot, TorchError> {
        let mut bytes = Vec::new();
        let file = memfit_files::open(path)?;
        let len = file.metadata()?.len();
        if len > MOST_BYTES {
            return Err(PickleError { at: 0, problem: PickleProblem::TooLarge }.into());
        }
        bytes.reserve_exact(len as usize + 1);
        // A file that grows while it is read is read no further than this.
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        Snapshot::parse(bytes)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// They are no snapshot.
    pub fn parse(bytes: Vec<u8>) -> Result<Snapshot, TorchError> {
        let pickle = Pickle::parse(bytes)?;
        let root = pickle.root();
        let Some(entries) = pickle.entries(root) else {
            return schema("the whole", format!("is {}, and no dictionary", root.kind()));
        };
        if entries.len() > 2 * MOST_KEYS {
            return schema("the whole", format!("has {} keys", entries.len() / 2));
        }
        let list =
            |key: &str| pickle.get(root, key).map(|value| (value, pickle.elements(value).map(<[Value]>::to_vec)));
        let traces = match list("device_traces") {
            Some((_, Some(traces))) => traces,
            Some((other, None)) => return schema("\"device_traces\"", format!("is {}, and no list", other.kind())),
            None => return schema("the whole", "has no \"device_traces\"".into()),
        };
        let segments = match list("segments") {
            Some((_, Some(segments))) => segments,
            Some((other, None)) => return schema("\"segments\"", format!("is {}, and no list", other.kind())),
            None => return schema("the whole", "has no \"segments\"".into()),
        };
        let snapshot = Snapshot { pickle, traces, segments };
        for device in 0..snapshot.traces.len() {
            snapshot.trace(device)?;
        }
        Ok(snapshot)
    }

    /// How many events each device has.
    pub fn events(&self) -> Vec<usize> {
        self.traces.iter().map(|&trace| self.pickle.elements(trace).map_or(0, <[Value]>::len)).collect()
    }

    /// What happened on a device; where none is named, on the one with the most events.
    ///
    /// # Errors
    /// There is no such device, or it has no events, or one that is none.
    pub fn device(&self, device: Option<usize>) -> Result<DeviceTrace<'_>, TorchError> {
        let events = self.events();
        let with_events: Vec<usize> = (0..events.len()).filter(|&d| events[d] > 0).collect();
        // Of several with as many, the first.
        let chosen = device.or(with_events.iter().copied().rev().max_by_key(|&d| events[d]));
        match chosen {
            Some(device) if device >= events.len() => Err(TorchError::NoDevice { device, devices: events.len() }),
            Some(chosen) if events[chosen] > 0 => replay(self, chosen),
            _ => Err(TorchError::NoEvents { device, others: with_events }),
        }
    }

    pub(super) fn pickle(&self) -> &Pickle {
        &self.pickle
    }

    fn trace(&self, device: usize) -> Result<&[Value], TorchError> {
        let trace = self.traces[device];
        let of_a_kind = || schema(&format!("device_traces[{device}]"), format!("is {}, and no list", trace.kind()));
        self.pickle.elements(trace).map_or_else(of_a_kind, Ok)
    }

    /// The events of a device, in their order.
    pub(super) fn events_of(
        &self,
        device: usize,
    ) -> Result<impl Iterator<Item = Result<Event, TorchError>>, TorchError> {
        let events = self.trace(device)?.iter().enumerate();
        Ok(events.map(move |(i, &event)| {
            self.event(event)
                .map_err(|problem| TorchError::Schema { place: format!("device_traces[{device}][{i}]"), problem })
        }))
    }

    fn event(&self, event: Value) -> Result<Event, String> {
        self.check_dict(event)?;
        let action = self.pickle.get(event, "action").ok_or("has no \"action\"")?;
        let action = match self.pickle.raw(action).ok_or("has an \"action\" that is no string")? {
            b"alloc" => Action::Alloc,
            b"free_requested" => Action::FreeRequested,
            b"free_completed" => Action::FreeCompleted,
            b"segment_alloc" | b"segment_map" => Action::Reserve,
            b"segment_free" | b"segment_unmap" => Action::Release,
            b"oom" => Action::OutOfMemory,
            _ => Action::Other,
        };
        let (address, bytes) = match action {
            Action::Alloc | Action::FreeRequested | Action::FreeCompleted => {
                (self.natural(event, "addr")?, self.natural(event, "size")?)
            }
            Action::Reserve | Action::Release | Action::OutOfMemory => (0, self.natural(event, "size")?),
            Action::Other => (0, 0),
        };
        Ok(Event { action, address, bytes, frames: self.frames(event) })
    }

    /// What the segments of a device have together, and the blocks in them that are not free.
    pub(super) fn blocks_of(&self, device: usize) -> Result<(u64, Vec<Block>), TorchError> {
        let (mut reserved, mut active, mut looked_at) = (0u64, Vec::new(), 0);
        for (i, &segment) in self.segments.iter().enumerate() {
            let of_segment = |problem: String| TorchError::Schema { place: format!("segments[{i}]"), problem };
            self.check_dict(segment).map_err(of_segment)?;
            let of = match self.pickle.get(segment, "device") {
                Some(_) => self.natural(segment, "device").map_err(of_segment)?,
                None => 0,
            };
            if of != device as u64 {
                continue;
            }
            let bytes = self.natural(segment, "total_size").map_err(of_segment)?;
            reserved = reserved.checked_add(bytes).ok_or(TorchError::TooManyBytes)?;
            let blocks = self.pickle.get(segment, "blocks").and_then(|blocks| self.pickle.elements(blocks));
            let blocks = blocks.ok_or_else(|| of_segment("has no list of \"blocks\"".into()))?;
            looked_at += blocks.len();
            if looked_at > self.pickle.len() {
                // Every block takes some bytes, unless one list of them stands for many.
                return schema("\"segments\"", "has the same blocks again and again".into());
            }
            self.active_blocks(i, blocks, &mut active)?;
        }
        Ok((reserved, active))
    }

    fn active_blocks(&self, segment: usize, blocks: &[Value], active: &mut Vec<Block>) -> Result<(), TorchError> {
        for (i, &block) in blocks.iter().enumerate() {
            let read = || -> Result<Option<Block>, String> {
                self.check_dict(block)?;
                let state = self.pickle.get(block, "state").and_then(|state| self.pickle.raw(state));
                if !state.ok_or("has no \"state\"")?.starts_with(b"active")
                    || self.pickle.get(block, "address").is_none()
                {
                    return Ok(None);
                }
                let requested = match self.pickle.get(block, "requested_size") {
                    Some(_) => Some(self.natural(block, "requested_size")?),
                    None => None,
                };
                let (address, bytes) = (self.natural(block, "address")?, self.natural(block, "size")?);
                Ok(Some(Block { address, bytes, requested, frames: self.frames(block) }))
            };
            let of_block =
                |problem| TorchError::Schema { place: format!("segments[{segment}][\"blocks\"][{i}]"), problem };
            active.extend(read().map_err(of_block)?);
        }
        Ok(())
    }

    fn check_dict(&self, value: Value) -> Result<(), String> {
        match self.pickle.entries(value) {
            None => Err(format!("is {}, and no dictionary", value.kind())),
            Some(entries) if entries.len() > 2 * MOST_KEYS => Err(format!("has {} keys", entries.len() / 2)),
            Some(_) => Ok(()),
        }
    }

    fn natural(&self, dict: Value, key: &str) -> Result<u64, String> {
        let value = self.pickle.get(dict, key).ok_or_else(|| format!("has no \"{key}\""))?;
        let number = value.int().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| format!("has a \"{key}\" that is no number of bytes or address"))
    }

    fn frames(&self, dict: Value) -> Value {
        self.pickle.get(dict, "frames").unwrap_or(Value::None)
    }
}

fn schema<T>(place: &str, problem: String) -> Result<T, TorchError> {
    Err(TorchError::Schema { place: place.into(), problem })
}
