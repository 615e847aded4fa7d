//! A partial placement that grows from below, with everything that follows from it, and the way back.
//!
//! Every section has a floor, below which nothing more can be put. It rises when a buffer is placed on it, and when it is
//! decided that a gap stays empty. Bytes of a section that are still to come must fit between floor and capacity.

use std::cmp::Ordering;

use super::cover::Cover;
use super::orders::Side;
use super::sections::Core;

/// The floor of a section in which everything is placed.
const DONE: u64 = u64::MAX;

/// What a decision changed, so that it can be taken back.
enum TrailEntry {
    Floor { section: u32, was: u64 },
    Lowest { buffer: u32, was: u64 },
    Support { buffer: u32, was: u64 },
    Placed { buffer: u32 },
}

pub struct State<'a> {
    pub core: &'a Core,
    capacity: u64,
    cover: Cover,
    /// By section: no unplaced buffer can lie lower; `DONE` where none is left.
    floor: Vec<u64>,
    /// By section: bytes of its unplaced buffers.
    rest: Vec<u64>,
    /// By section: how many unplaced buffers live in it and in the next one.
    crossing: Vec<u32>,
    /// By section: a buffer that could lie on the floor when it was last looked for.
    witness: Vec<u32>,
    /// By section: how often it had no room.
    failures: Vec<u64>,
    /// The buffers by their first section, and where those of a section start.
    starting: Vec<u32>,
    starts: Vec<u32>,
    /// By buffer: the lowest offset that it can have; its offset once it is placed.
    lowest: Vec<u64>,
    /// By buffer: the top of the placed buffers under it. Less than `lowest` where a gap under it was left empty.
    support: Vec<u64>,
    placed: Vec<bool>,
    trail: Vec<TrailEntry>,
}

impl<'a> State<'a> {
    /// None where the core is too large to be searched.
    pub fn new(core: &'a Core, capacity: u64) -> Option<State<'a>> {
        let (sections, buffers) = (core.sections, core.buffers.len());
        let cover = Cover::new(core)?;
        let witness = (0..sections).map(|s| cover.unplaced(s)[0]).collect();
        let mut state = State {
            core,
            capacity,
            cover,
            floor: vec![0; sections],
            rest: vec![0; sections],
            crossing: vec![0; sections],
            witness,
            failures: vec![0; sections],
            starting: (0..buffers as u32).collect(),
            starts: Vec::with_capacity(sections + 1),
            lowest: vec![0; buffers],
            support: vec![0; buffers],
            placed: vec![false; buffers],
            trail: Vec::new(),
        };
        for b in &core.buffers {
            state.rest[b.first..b.end].iter_mut().for_each(|r| *r += b.size);
            state.crossing[b.first..b.end - 1].iter_mut().for_each(|c| *c += 1);
        }
        state.starting.sort_by_key(|&i| core.buffers[i as usize].first);
        for s in 0..=sections {
            let start = state.starting.partition_point(|&i| core.buffers[i as usize].first < s);
            state.starts.push(start as u32);
        }
        Some(state)
    }

    /// Forgets every decision.
    pub fn restart(&mut self) {
        self.take_back(0);
        self.failures.fill(0);
    }

    /// Whether every section has room for what lives in it.
    pub fn has_room(&self) -> bool {
        self.rest.iter().all(|&r| r <= self.capacity)
    }

    pub fn offset(&self, buffer: usize) -> u64 {
        self.lowest[buffer]
    }

    /// How far to take back.
    pub fn mark(&self) -> usize {
        self.trail.len()
    }

    pub fn take_back(&mut self, mark: usize) {
        while self.trail.len() > mark
            && let Some(change) = self.trail.pop()
        {
            match change {
                TrailEntry::Floor { section, was } => self.floor[section as usize] = was,
                TrailEntry::Lowest { buffer, was } => self.lowest[buffer as usize] = was,
                TrailEntry::Support { buffer, was } => self.support[buffer as usize] = was,
                TrailEntry::Placed { buffer } => self.unplace(buffer as usize),
            }
        }
    }

    fn unplace(&mut self, buffer: usize) {
        let b = self.core.buffers[buffer];
        self.placed[buffer] = false;
        for s in b.first..b.end {
            self.rest[s] += b.size;
            self.cover.restore(s);
        }
        self.crossing[b.first..b.end - 1].iter_mut().for_each(|c| *c += 1);
    }

    /// Places a buffer on the floor of the lowest section of a part, so of all its sections. False where something has no
    /// room any more.
    pub fn place_buffer(&mut self, buffer: usize) -> bool {
        let b = self.core.buffers[buffer];
        let top = self.lowest[buffer] + b.size;
        self.placed[buffer] = true;
        self.trail.push(TrailEntry::Placed { buffer: buffer as u32 });
        for s in b.first..b.end {
            self.rest[s] -= b.size;
            let left = self.cover.remove(buffer, s);
            self.set_floor(s, if left == 0 { DONE } else { top });
        }
        self.crossing[b.first..b.end - 1].iter_mut().for_each(|c| *c -= 1);
        let mut touched = (b.first, b.end);
        for at in 0..self.cover.unplaced(b.first).len() {
            self.lift(self.cover.unplaced(b.first)[at], top, &mut touched);
        }
        for at in self.starts[b.first + 1]..self.starts[b.end] {
            let other = self.starting[at as usize];
            if !self.placed[other as usize] {
                self.lift(other, top, &mut touched);
            }
        }
        self.settle(touched)
    }

    /// A neighbour now ends at `top` below this buffer.
    fn lift(&mut self, buffer: u32, top: u64, touched: &mut (usize, usize)) {
        let i = buffer as usize;
        if self.support[i] < top {
            self.trail.push(TrailEntry::Support { buffer, was: self.support[i] });
            self.support[i] = top;
        }
        if self.lowest[i] < top {
            self.set_lowest(buffer, top, touched);
        }
    }

    /// Decides that nothing more begins in a section below `floor`. False where that cannot be, or need not be tried.
    pub fn raise(&mut self, section: usize, floor: u64) -> bool {
        self.set_floor(section, floor);
        let mut touched = (section, section + 1);
        for at in 0..self.cover.unplaced(section).len() {
            let buffer = self.cover.unplaced(section)[at];
            let i = buffer as usize;
            if self.lowest[i] < floor {
                self.set_lowest(buffer, floor, &mut touched);
            }
            if self.could_drop(i) {
                return false;
            }
        }
        self.settle(touched)
    }

    /// Whether a buffer would fit into the gap that was left under it: then, whatever follows, to drop it there is as good,
    /// and was tried before.
    fn could_drop(&self, buffer: usize) -> bool {
        let b = &self.core.buffers[buffer];
        let top = self.support[buffer] + b.size;
        top <= self.lowest[buffer] && self.floor[b.first..b.end].iter().all(|&f| top <= f)
    }

    fn set_floor(&mut self, section: usize, floor: u64) {
        self.trail.push(TrailEntry::Floor { section: section as u32, was: self.floor[section] });
        self.floor[section] = floor;
    }

    fn set_lowest(&mut self, buffer: u32, lowest: u64, touched: &mut (usize, usize)) {
        self.trail.push(TrailEntry::Lowest { buffer, was: self.lowest[buffer as usize] });
        self.lowest[buffer as usize] = lowest;
        let b = &self.core.buffers[buffer as usize];
        *touched = (touched.0.min(b.first), touched.1.max(b.end));
    }

    /// False where a section has no room any more: what is to come does not fit above the lowest of it. Floors are lifted
    /// to that lowest only where it matters now; `select` lifts the others when they are the lowest.
    fn settle(&mut self, (first, end): (usize, usize)) -> bool {
        for s in first..end {
            let (floor, witness) = (self.floor[s], self.lowest[self.witness[s] as usize]);
            // A placed buffer lies below the floor, so it does not pass for one that is still to come.
            let fits = witness >= floor && witness + self.rest[s] <= self.capacity;
            if floor != DONE && !fits {
                let lowest = self.find_witness(s);
                if lowest + self.rest[s] > self.capacity {
                    self.failures[s] += 1;
                    return false;
                }
                if lowest > floor {
                    self.set_floor(s, lowest);
                }
            }
        }
        true
    }

    /// The lowest offset that an unplaced buffer of the section can have.
    fn find_witness(&mut self, section: usize) -> u64 {
        let floor = self.floor[section];
        let mut best = u64::MAX;
        for &i in self.cover.unplaced(section) {
            let lowest = self.lowest[i as usize];
            if lowest < best {
                best = lowest;
                self.witness[section] = i;
                if lowest == floor {
                    break;
                }
            }
        }
        best
    }

    /// The parts of a range of sections that still have unplaced buffers, cut where none lives across.
    pub fn parts(&self, range: (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
        let mut at = range.0;
        std::iter::from_fn(move || {
            while at < range.1 && self.floor[at] == DONE {
                at += 1;
            }
            let first = at;
            while at < range.1 && self.crossing[at] > 0 {
                at += 1;
            }
            at += 1;
            (first < range.1).then_some((first, at.min(range.1)))
        })
    }

    /// The section to decide next: of the lowest, the one that had no room most often; of equals, the one on that side.
    pub fn select(&mut self, (first, end): (usize, usize), side: Side) -> usize {
        // Floors are looked for only where they can be the lowest: start with one that can.
        let mut best = (first..end).min_by_key(|&s| self.floor[s]).unwrap_or(first);
        let mut lowest = self.lift_floor(best);
        for s in first..end {
            if self.floor[s] > lowest {
                continue;
            }
            let floor = self.lift_floor(s);
            let wins = match self.failures[s].cmp(&self.failures[best]) {
                Ordering::Less => false,
                Ordering::Equal => (side == Side::Last) == (s > best),
                Ordering::Greater => true,
            };
            if floor < lowest || floor == lowest && wins {
                (best, lowest) = (s, floor);
            }
        }
        best
    }

    /// Lifts the floor of a section to the lowest offset that an unplaced buffer of it can have.
    fn lift_floor(&mut self, section: usize) -> u64 {
        let floor = self.floor[section];
        if self.lowest[self.witness[section] as usize] == floor {
            return floor;
        }
        let lowest = self.find_witness(section);
        if lowest > floor {
            self.set_floor(section, lowest);
        }
        lowest
    }

    /// The buffers that can be placed right on the floor of the lowest section of a part.
    pub fn candidates(&self, section: usize) -> impl Iterator<Item = u32> {
        let floor = self.floor[section];
        let fits = move |i: usize| self.lowest[i] == floor && self.support[i] == floor;
        self.cover.unplaced(section).iter().copied().filter(move |&i| fits(i as usize))
    }

    /// How far the floor of a section rises if no buffer is put on it, in a part of which it is the lowest: to the lowest
    /// place that is left for one. None where there is no room for that.
    pub fn next_floor(&self, section: usize, part: (usize, usize)) -> Option<u64> {
        let floor = self.floor[section];
        let mut next = u64::MAX;
        let mut kept_out = false;
        for &i in self.cover.unplaced(section) {
            match self.lowest[i as usize] {
                l if l > floor => next = next.min(l),
                _ => kept_out = true,
            }
        }
        if kept_out {
            // What is kept out can come back only on top of another buffer.
            next = next.min(self.lowest_top(part));
        }
        (next != u64::MAX && next + self.rest[section] <= self.capacity).then_some(next)
    }

    fn lowest_top(&self, (first, end): (usize, usize)) -> u64 {
        let starting = &self.starting[self.starts[first] as usize..self.starts[end] as usize];
        let unplaced = starting.iter().map(|&i| i as usize).filter(|&i| !self.placed[i]);
        unplaced.map(|i| self.lowest[i] + self.core.buffers[i].size).min().unwrap_or(u64::MAX)
    }
}
