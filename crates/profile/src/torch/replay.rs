//! What becomes of the events of a device: buffers with lifetimes, and what was reserved for them.
//!
//! Time is counted in events: before the first it is 0, after event `i` it is `i + 1`. The segments of a snapshot are those at
//! its end, so what was reserved before is counted back from there.

use std::collections::HashMap;

use memfit_plan::pack::Item;

use super::error::TorchError;
use super::frames::{Frame, user_frame};
use super::snapshot::{Action, Block, Event, Snapshot};
use memfit_files::pickle::Value;

/// Something that was allocated, and lived for the times `lower ≤ t < upper`.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// When it was allocated; 0 where that was before recording began.
    pub lower: usize,
    /// When it was free again; one past the last event where it was not.
    pub upper: usize,
    /// As requested.
    pub bytes: u64,
    frames: Value,
}

/// Which event counts as the end of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedAt {
    /// When its memory could be used again.
    Completed,
    /// When somebody asked for it, as nothing else was recorded.
    Requested,
}

/// What the allocator took from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The most at once while events were recorded.
    pub peak: u64,
    /// When the snapshot was taken.
    pub at_snapshot: u64,
}

/// What was live when the snapshot was taken, in the allocator's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotBlocks {
    /// How many blocks were not free.
    pub blocks: usize,
    /// As requested.
    pub requested: u64,
    /// As the allocator rounded them.
    pub bytes: u64,
}

/// Requests that could not be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfMemory {
    /// How many.
    pub events: usize,
    /// Bytes of the largest.
    pub largest: u64,
}

/// The most that lives at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// As requested.
    pub bytes: u64,
    /// When it is first so much.
    pub time: usize,
}

/// What happened on a device.
#[derive(Debug)]
pub struct DeviceTrace<'a> {
    snapshot: &'a Snapshot,
    /// Its number.
    pub device: usize,
    /// How many events it has.
    pub events: usize,
    /// In the order of their allocations, those from before first.
    pub buffers: Vec<Buffer>,
    /// Which event counts as the end of a buffer.
    pub freed_at: FreedAt,
    /// What was reserved; none where segments and events contradict each other.
    pub reserved: Option<Reserved>,
    /// What was live at the end; none where it is not known how much of it was requested.
    pub blocks: Option<SnapshotBlocks>,
    /// How many of the buffers were allocated before recording began.
    pub before: usize,
    /// Allocations of no bytes, which are no buffers.
    pub empty: usize,
    /// Events that cannot be: a second allocation or free of the same address.
    pub contradictions: usize,
    /// Requests that could not be met.
    pub out_of_memory: OutOfMemory,
}

/// Sizes may not add up to this, so that no offset does.
const TOO_MANY_BYTES: u64 = 1 << 62;

impl DeviceTrace<'_> {
    /// The buffers as they are packed.
    pub fn items(&self) -> Vec<Item> {
        self.buffers.iter().map(|b| Item { lower: b.lower, upper: b.upper, size: b.bytes }).collect()
    }

    /// The most that lives at once, of sizes that are rounded up to multiples of `unit`.
    pub fn peak(&self, unit: u64) -> Peak {
        let (mut begins, mut ends) = (vec![0u64; self.events + 2], vec![0u64; self.events + 2]);
        for b in &self.buffers {
            // They add up to little enough, see `finish`.
            let bytes = b.bytes.next_multiple_of(unit.max(1));
            begins[b.lower] += bytes;
            ends[b.upper] += bytes;
        }
        let (mut live, mut peak) = (0, Peak::default());
        for time in 0..begins.len() {
            live = live + begins[time] - ends[time];
            if live > peak.bytes {
                peak = Peak { bytes: live, time };
            }
        }
        peak
    }

    /// What lives at a time, the largest first.
    pub fn live_at(&self, time: usize) -> Vec<&Buffer> {
        let mut live: Vec<&Buffer> = self.buffers.iter().filter(|b| b.lower <= time && time < b.upper).collect();
        live.sort_by_key(|b| std::cmp::Reverse(b.bytes));
        live
    }

    /// Who asked for a buffer, where that was recorded.
    pub fn frame(&self, buffer: &Buffer) -> Option<Frame> {
        user_frame(self.snapshot.pickle(), buffer.frames)
    }
}

/// A buffer that is not free yet.
struct Living {
    buffer: usize,
    /// When somebody asked for it to be freed.
    requested: Option<usize>,
}

#[derive(Default)]
struct Replay {
    buffers: Vec<Buffer>,
    /// By address; none where it is free again.
    at: HashMap<u64, Option<Living>>,
    /// One past the last event.
    end: usize,
    completed: usize,
    requested: usize,
    empty: usize,
    contradictions: usize,
    out_of_memory: OutOfMemory,
    /// Bytes that were reserved after each event that changed it, against those before the first.
    reserved: i128,
    most_reserved: i128,
}

pub(super) fn replay(snapshot: &Snapshot, device: usize) -> Result<DeviceTrace<'_>, TorchError> {
    let events = snapshot.events()[device];
    let mut replay = Replay { end: events + 1, ..Replay::default() };
    for (i, event) in snapshot.events_of(device)?.enumerate() {
        replay.follow(i + 1, event?);
    }
    let freed_at = if replay.completed == 0 && replay.requested > 0 { FreedAt::Requested } else { FreedAt::Completed };
    if freed_at == FreedAt::Requested {
        replay.free_what_was_asked_for();
    }
    let (at_snapshot, blocks) = snapshot.blocks_of(device)?;
    replay.take_over(&blocks);
    replay.finish(snapshot, device, freed_at, at_snapshot, &blocks)
}

impl Replay {
    fn follow(&mut self, time: usize, event: Event) {
        match event.action {
            Action::Alloc => self.alloc(time, event),
            Action::FreeRequested => {
                self.requested += 1;
                if let Some(living) = self.living(event) {
                    living.requested.get_or_insert(time);
                }
            }
            Action::FreeCompleted => {
                self.completed += 1;
                if let Some(Living { buffer, .. }) = self.living(event) {
                    let buffer = *buffer;
                    self.buffers[buffer].upper = time;
                    self.at.insert(event.address, None);
                }
            }
            Action::Reserve => self.reserve(event.bytes.into()),
            Action::Release => self.reserve(-i128::from(event.bytes)),
            Action::OutOfMemory => {
                let OutOfMemory { events, largest } = self.out_of_memory;
                self.out_of_memory = OutOfMemory { events: events + 1, largest: largest.max(event.bytes) };
            }
            Action::Other => {}
        }
    }

    fn alloc(&mut self, time: usize, event: Event) {
        let buffer = self.add(time, event.bytes, event.frames);
        let living = Living { buffer, requested: None };
        if let Some(Some(last)) = self.at.insert(event.address, Some(living)) {
            // Its end was not recorded. If somebody had asked for it, it was free from then on.
            self.buffers[last.buffer].upper = last.requested.unwrap_or(time);
            self.contradictions += usize::from(last.requested.is_none());
        }
    }

    /// What lives at the address of an event. What was never allocated lives from before recording began; what is free already
    /// cannot be freed.
    fn living(&mut self, event: Event) -> Option<&mut Living> {
        if !self.at.contains_key(&event.address) {
            // Who frees it is not who asked for it.
            let buffer = self.add(0, event.bytes, Value::None);
            self.at.insert(event.address, Some(Living { buffer, requested: None }));
        }
        let living = self.at.get_mut(&event.address).and_then(Option::as_mut);
        self.contradictions += usize::from(living.is_none());
        living
    }

    fn add(&mut self, lower: usize, bytes: u64, frames: Value) -> usize {
        self.buffers.push(Buffer { lower, upper: self.end, bytes, frames });
        self.buffers.len() - 1
    }

    fn reserve(&mut self, bytes: i128) {
        self.reserved += bytes;
        self.most_reserved = self.most_reserved.max(self.reserved);
    }

    fn free_what_was_asked_for(&mut self) {
        for living in self.at.values_mut() {
            if let Some(Living { buffer, requested: Some(time) }) = *living {
                self.buffers[buffer].upper = time;
                *living = None;
            }
        }
    }

    /// Blocks that are there at the end, and that no event speaks of, were there all the time.
    fn take_over(&mut self, blocks: &[Block]) {
        for block in blocks {
            if !self.at.contains_key(&block.address) {
                let buffer = self.add(0, block.requested.unwrap_or(block.bytes), block.frames);
                self.at.insert(block.address, Some(Living { buffer, requested: None }));
            }
        }
    }

    fn finish<'a>(
        mut self,
        snapshot: &'a Snapshot,
        device: usize,
        freed_at: FreedAt,
        at_snapshot: u64,
        blocks: &[Block],
    ) -> Result<DeviceTrace<'a>, TorchError> {
        self.empty = self.buffers.iter().filter(|b| b.bytes == 0).count();
        self.buffers.retain(|b| b.bytes > 0);
        self.buffers.sort_by_key(|b| b.lower);
        let of_blocks = blocks.iter().map(|b| b.bytes.max(b.requested.unwrap_or(0)));
        let sizes = self.buffers.iter().map(|b| b.bytes).chain(of_blocks);
        let total = sizes.map(u128::from).sum::<u128>() + (1 << 20) * self.buffers.len() as u128;
        if total >= u128::from(TOO_MANY_BYTES) {
            return Err(TorchError::TooManyBytes);
        }
        // What was there before the first event; less than nothing cannot have been.
        let before = i128::from(at_snapshot) - self.reserved;
        let peak = u64::try_from(before + self.most_reserved).ok().filter(|_| before >= 0);
        let sum = |of: fn(&Block) -> Option<u64>| blocks.iter().map(of).sum::<Option<u64>>();
        Ok(DeviceTrace {
            snapshot,
            device,
            events: self.end - 1,
            freed_at,
            reserved: peak.map(|peak| Reserved { peak, at_snapshot }),
            blocks: sum(|b| b.requested).zip(sum(|b| Some(b.bytes))).map(|(requested, bytes)| SnapshotBlocks {
                blocks: blocks.len(),
                requested,
                bytes,
            }),
            before: self.buffers.iter().filter(|b| b.lower == 0).count(),
            empty: self.empty,
            contradictions: self.contradictions,
            out_of_memory: self.out_of_memory,
            buffers: self.buffers,
        })
    }
}
