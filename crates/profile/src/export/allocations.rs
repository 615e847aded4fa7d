//! The memory of one training step as an allocator would tell it: what is taken and given back, and when. The arena is taken once
//! and nothing is allocated in a step; what is told here is which part of it holds something.

use std::collections::BTreeMap;

use super::timeline::{LaunchId, Timeline};
use crate::model::{Buffer, Class, Launch, Profile, State};

/// Something that lies in the arena for a while.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// From the start of the arena; the transient segment begins where the state segment ends.
    pub address: u64,
    /// What it takes.
    pub bytes: u64,
    /// What of it is used.
    pub requested_bytes: u64,
    pub class: Class,
    /// What made it; `state` or `scratch`.
    pub op: &'a str,
    /// The path of its layer, or its name.
    pub layer: &'a str,
    /// Element type and shape; empty for scratch.
    pub ty: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Allocation,
    Deallocation,
}

/// A block that comes or goes.
#[derive(Clone, Debug)]
pub struct MemoryEvent<'a> {
    pub activity: Activity,
    pub block: Block<'a>,
    /// No two are at the same time: readers sort by it.
    pub at_ps: u64,
    /// What is live after it.
    pub live_bytes: u64,
    /// The most that was live so far.
    pub peak_bytes: u64,
    /// When all that happens at its launch has happened: of the free bytes, the part that is not in the largest hole.
    pub fragmentation: f64,
}

/// In their order. What goes at a launch goes before what comes, so that nothing counts twice.
pub fn memory_events<'a>(timeline: &Timeline<'a>) -> Vec<MemoryEvent<'a>> {
    let profile = timeline.profile;
    let mut heap = Heap::new(profile);
    profile.padded_states().for_each(|s| heap.push(Activity::Allocation, &state(s)));
    let accumulators: Blocks = accumulators(profile).collect();
    for begin in &timeline.begins {
        heap.change_to(begin.begin_ns, at_launch(profile, &accumulators, begin.id));
    }
    heap.change_to(timeline.end_ns, Blocks::new());
    heap.events
}

/// What a block is, to tell whether it is still the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Accumulator(usize),
    /// Of one run of a program, which are its number and the micro-batch.
    Buffer(usize, usize, usize),
    Scratch(usize, usize, usize),
}

type Blocks<'a> = BTreeMap<Key, Block<'a>>;

fn state<'a>((state, bytes): (&'a State, u64)) -> Block<'a> {
    Block {
        address: state.offset,
        bytes,
        requested_bytes: state.bytes,
        class: state.class,
        op: "state",
        layer: &state.name,
        ty: &state.ty,
    }
}

fn accumulators(profile: &Profile) -> impl Iterator<Item = (Key, Block<'_>)> {
    let accumulators = profile.states.iter().filter(|s| s.class == Class::Accumulators).enumerate();
    accumulators.map(|(i, s)| {
        let block = state((s, s.bytes));
        (Key::Accumulator(i), Block { address: transient_address(profile, s.offset), ..block })
    })
}

/// All that is live while a launch runs, without the state segment.
fn at_launch<'a>(profile: &'a Profile, accumulators: &Blocks<'a>, id: LaunchId) -> Blocks<'a> {
    let program = &profile.programs[id.program];
    let mut blocks = if program.accumulator_bytes > 0 { accumulators.clone() } else { Blocks::new() };
    let live = program.buffers.iter().enumerate().filter(|(_, b)| b.first <= id.launch && id.launch < b.end);
    blocks.extend(live.map(|(i, b)| (Key::Buffer(id.program, id.micro_batch, i), buffer(profile, b))));
    let launch = &program.launches[id.launch];
    if launch.scratch_bytes > 0 {
        blocks.insert(Key::Scratch(id.program, id.micro_batch, id.launch), scratch(profile, launch));
    }
    blocks
}

fn buffer<'a>(profile: &Profile, buffer: &'a Buffer) -> Block<'a> {
    Block {
        address: transient_address(profile, buffer.offset),
        bytes: buffer.bytes,
        requested_bytes: buffer.bytes,
        class: buffer.class,
        op: &buffer.op,
        layer: &buffer.layer,
        ty: &buffer.ty,
    }
}

fn scratch<'a>(profile: &Profile, launch: &'a Launch) -> Block<'a> {
    Block {
        address: transient_address(profile, launch.scratch_offset),
        bytes: launch.scratch_bytes,
        requested_bytes: launch.scratch_bytes,
        class: Class::Scratch,
        op: "scratch",
        layer: &launch.layer,
        ty: "",
    }
}

fn transient_address(profile: &Profile, offset: u64) -> u64 {
    profile.memory.state_bytes.saturating_add(offset)
}

/// What is live, and all that happened so far.
struct Heap<'a> {
    profile: &'a Profile,
    /// Of the transient segment.
    blocks: Blocks<'a>,
    live_bytes: u64,
    peak_bytes: u64,
    next_ps: u64,
    events: Vec<MemoryEvent<'a>>,
}

impl<'a> Heap<'a> {
    fn new(profile: &'a Profile) -> Heap<'a> {
        Heap { profile, blocks: Blocks::new(), live_bytes: 0, peak_bytes: 0, next_ps: 0, events: Vec::new() }
    }

    /// From now on these are live beside the states.
    fn change_to(&mut self, at_ns: u64, blocks: Blocks<'a>) {
        self.next_ps = self.next_ps.max(at_ns.saturating_mul(1000));
        let first = self.events.len();
        let before = std::mem::take(&mut self.blocks);
        for (_, block) in before.iter().filter(|(key, _)| !blocks.contains_key(key)) {
            self.push(Activity::Deallocation, block);
        }
        for (_, block) in blocks.iter().filter(|(key, _)| !before.contains_key(key)) {
            self.push(Activity::Allocation, block);
        }
        self.blocks = blocks;
        let fragmentation = self.fragmentation();
        self.events[first..].iter_mut().for_each(|event| event.fragmentation = fragmentation);
    }

    fn push(&mut self, activity: Activity, block: &Block<'a>) {
        self.live_bytes = match activity {
            Activity::Allocation => self.live_bytes.saturating_add(block.bytes),
            Activity::Deallocation => self.live_bytes.saturating_sub(block.bytes),
        };
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        self.events.push(MemoryEvent {
            activity,
            block: block.clone(),
            at_ps: self.next_ps,
            live_bytes: self.live_bytes,
            peak_bytes: self.peak_bytes,
            fragmentation: 0.0,
        });
        self.next_ps += 1;
    }

    fn fragmentation(&self) -> f64 {
        let mut places: Vec<(u64, u64)> = self.blocks.values().map(|b| (b.address, b.bytes)).collect();
        places.sort_unstable();
        places.push((self.profile.memory.arena_bytes, 0));
        let (mut end, mut free, mut largest) = (self.profile.memory.state_bytes, 0u64, 0u64);
        for (address, bytes) in places {
            let hole = address.saturating_sub(end);
            free = free.saturating_add(hole);
            largest = largest.max(hole);
            end = end.max(address.saturating_add(bytes));
        }
        if free == 0 { 0.0 } else { (free - largest) as f64 / free as f64 }
    }
}
