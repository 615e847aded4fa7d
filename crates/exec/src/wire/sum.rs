//! What a wire adds up: which sums there are and in which order they become one. Every wire takes the order and the addition from
//! here, so they are the same bits on each, however it cuts the numbers.

use std::ops::Range;

use memfit_ir::Replica;

use super::WireError;

/// Bytes of a number: an f32.
const NUMBER: usize = 4;

/// How many bytes of every sum are added up before the next ones are: they stay in the cache meanwhile.
const BLOCK: usize = 8 << 10;

/// Numbers that all replicas add up.
#[derive(Clone, Debug)]
pub struct Sum {
    /// Bytes of one sum.
    pub total: usize,
    /// Bytes of it that are under way at a time, at most.
    pub piece: usize,
    /// The most sums that one replica has.
    pub rounds: usize,
    /// How many sums each replica has, by rank.
    counts: Vec<usize>,
    /// In this order; the first one takes the sum of both. The very first sum of all has everything in the end.
    joins: Vec<[Part; 2]>,
}

/// One of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose it is, ...
    pub rank: usize,
    /// ... and which of its own.
    pub round: usize,
}

/// The numbers of one replica: where they are, and where their sums go.
pub trait Numbers {
    /// Copies some bytes of one of the sums that this replica has.
    fn load(&mut self, round: usize, range: Range<usize>, into: &mut [u8]) -> Result<(), WireError>;

    /// Takes these bytes of the sum of all. They have been loaded before, in every round.
    fn store(&mut self, range: Range<usize>, from: &[u8]);
}

impl Part {
    /// What has everything in the end.
    pub const FIRST: Part = Part { rank: 0, round: 0 };
}

impl Sum {
    /// Of so many bytes, in pieces, over the lanes of these replicas.
    pub fn new(total: usize, piece: usize, replica: Replica) -> Sum {
        let mut counts = vec![0; replica.count];
        let part = |(_, rank, round)| {
            counts[rank] += 1;
            Part { rank, round }
        };
        let parts: Vec<Part> = replica.all_subtrees().into_iter().map(part).collect();
        let joins = replica.joins().into_iter().map(|(left, right)| [parts[left], parts[right]]).collect();
        Sum { total, piece, rounds: replica.most_subtrees(), counts, joins }
    }

    /// How many replicas there are.
    pub fn size(&self) -> usize {
        self.counts.len()
    }

    /// How many sums this replica has.
    pub fn count(&self, rank: usize) -> usize {
        self.counts[rank]
    }

    /// Bytes of a piece that each replica adds up for all, where that is at most so many.
    pub fn share(&self, most: usize) -> usize {
        let size = self.size();
        let most = (most.min(self.piece / size) / NUMBER * NUMBER).max(NUMBER);
        // As many pieces as there must be, and none of them nearly empty.
        let pieces = self.total.div_ceil(most * size).max(1);
        self.total.div_ceil(pieces * size).next_multiple_of(NUMBER).max(NUMBER)
    }

    /// The pieces of such shares; the last one may be shorter.
    pub fn pieces(&self, share: usize) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let (piece, total) = (share * self.size(), self.total);
        (0..total.div_ceil(piece)).map(move |i| i * piece..total.min((i + 1) * piece))
    }

    /// Adds up a share. `both` shows two sums of some bytes of it; the first may be changed.
    pub fn add_up(&self, share: usize, mut both: impl FnMut([Part; 2], Range<usize>, fn(&mut [u8], &[u8]))) {
        for start in (0..share).step_by(BLOCK) {
            let range = start..share.min(start + BLOCK);
            self.joins.iter().for_each(|parts| both(*parts, range.clone(), add));
        }
    }
}

/// What each replica adds up of a piece, where it stands there. Empty where the last piece has nothing for it.
pub fn shares(piece: Range<usize>, share: usize) -> impl Iterator<Item = Range<usize>> {
    let cut = move |start: usize| start.min(piece.end)..(start + share).min(piece.end);
    (piece.start..).step_by(share).map(cut)
}

/// Adds f32 numbers as kernels do: a sum that is too small to be a normal number is zero.
fn add(left: &mut [u8], right: &[u8]) {
    let (left, _) = left.as_chunks_mut::<NUMBER>();
    let (right, _) = right.as_chunks::<NUMBER>();
    for (l, r) in left.iter_mut().zip(right) {
        *l = flushed(flushed(f32::from_ne_bytes(*l)) + flushed(f32::from_ne_bytes(*r))).to_ne_bytes();
    }
}

/// The exponent of an f32.
const EXPONENT: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

fn flushed(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & EXPONENT == 0 { bits & SIGN } else { bits })
}
