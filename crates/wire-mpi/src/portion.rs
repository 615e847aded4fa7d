//! A piece of an ordered sum on its way: filled with a replica's own sums, added up with those of the others, and emptied with the
//! sum of all. First every replica gets its share of every sum, then all get every share. It moves nothing itself.

use std::ops::Range;
use std::sync::Arc;

use memfit_exec::{Numbers, Part, Sum, WireError, shares};

use crate::cut::{Call, HEADER, Round};
use crate::desk::Room;

/// A piece, as it is given to a courier.
#[derive(Clone, Debug)]
pub(crate) struct Portion {
    pub sum: Arc<Sum>,
    /// Which bytes of each sum.
    pub range: Range<usize>,
    /// Bytes that each replica adds up.
    pub share: usize,
    /// Of the round that brings every replica its share; the next one brings all shares to all, and the next piece its shares.
    pub number: u64,
}

impl Portion {
    /// The round from `send` to `receive`.
    pub fn scatter(&self) -> Round {
        Round { call: Call::Scatter, number: self.number, total: self.sum.total, block: self.sum.rounds * self.share }
    }

    /// The round within `send`.
    pub fn gather(&self) -> Round {
        Round { call: Call::Gather, number: self.number + 1, total: self.sum.total, block: self.share }
    }

    /// Copies this replica's sums to where they are sent from.
    pub fn fill(&self, rank: usize, numbers: &mut dyn Numbers, room: &mut Room) -> Result<(), WireError> {
        let (round, size) = (self.scatter(), self.sum.size());
        room.reserve(size * round.stride(), size * round.stride());
        let blocks = room.send.chunks_exact_mut(round.stride());
        for (block, range) in blocks.zip(self.shares()) {
            let places = round.begin(block).chunks_exact_mut(self.share);
            for (i, place) in places.enumerate().take(self.sum.count(rank)) {
                let (filled, rest) = place.split_at_mut(range.len());
                numbers.load(i, range.clone(), filled)?;
                // What is only there to make the shares equal is nobody's.
                rest.fill(0);
            }
        }
        Ok(())
    }

    /// Adds this replica's share up of what has come of all, and puts it where it is sent from.
    pub fn add_up(&self, rank: usize, room: &mut Room) {
        let (stride, gather) = (self.scatter().stride(), self.gather());
        let Room { send, receive } = room;
        let total = gather.begin(&mut send[rank * gather.stride()..][..gather.stride()]);
        let place = |part: Part| part.rank * stride + HEADER + part.round * self.share;
        self.sum.add_up(self.share, |parts, range, add| {
            let [left, right] = parts.map(|part| place(part) + range.start);
            let [left, right] = two(receive, left, right, range.len());
            add(left, right);
        });
        total.copy_from_slice(&receive[place(Part::FIRST)..][..self.share]);
    }

    /// Gives away the sum of all.
    pub fn empty(&self, numbers: &mut dyn Numbers, room: &Room) {
        let blocks = room.send.chunks_exact(self.gather().stride());
        for (block, range) in blocks.zip(self.shares()) {
            numbers.store(range.clone(), &block[HEADER..][..range.len()]);
        }
    }

    /// By replica; those that have nothing of the last piece come last.
    fn shares(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        shares(self.range.clone(), self.share).take(self.sum.size())
    }
}

/// Two parts of so many bytes, which lie apart; the first may be changed.
fn two(bytes: &mut [u8], first: usize, second: usize, len: usize) -> [&mut [u8]; 2] {
    if first < second {
        let (before, after) = bytes.split_at_mut(second);
        [&mut before[first..][..len], &mut after[..len]]
    } else {
        let (before, after) = bytes.split_at_mut(first);
        [&mut after[..len], &mut before[second..][..len]]
    }
}
