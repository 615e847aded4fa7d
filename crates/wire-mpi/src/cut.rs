//! How an exchange is cut into rounds that fit into a courier's room, and what every block of a round begins with: what its sender
//! thinks that this is. So replicas that do not do the same learn it from the first round, and take no bytes for others.

use std::ops::Range;

use memfit_exec::WireError;

/// What a block begins with takes so many bytes.
pub(crate) const HEADER: usize = 32;

/// Which operation of a wire it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The first half of a sum: everybody gets its share of every sum.
    Scatter,
    /// The second half: everybody gets what every other one has added up.
    Gather,
    AllGather,
    Broadcast {
        owner: usize,
    },
}

/// A part of an exchange that is moved at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub call: Call,
    /// Counts the rounds of a wire.
    pub number: u64,
    /// Bytes of the whole exchange.
    pub total: usize,
    /// Bytes of the exchange in each block of this round.
    pub block: usize,
}

impl Round {
    /// Bytes of a block with what it begins with.
    pub fn stride(&self) -> usize {
        HEADER + self.block
    }

    /// Writes what a block begins with, and gives the rest of it.
    pub fn begin<'a>(&self, block: &'a mut [u8]) -> &'a mut [u8] {
        let (header, rest) = block.split_at_mut(HEADER);
        for (place, number) in header.as_chunks_mut::<8>().0.iter_mut().zip(self.numbers()) {
            *place = number.to_le_bytes();
        }
        rest
    }

    /// That a block from this replica belongs to this round.
    pub fn check(&self, rank: usize, block: &[u8]) -> Result<(), WireError> {
        let given: [u64; 4] = std::array::from_fn(|i| u64::from_le_bytes(block.as_chunks::<8>().0[i]));
        let own = self.numbers();
        if given == own {
            return Ok(());
        }
        if given[..2] == own[..2] && given[2] != own[2] {
            return Err(WireError::Differs { rank, expected: self.total, given: given[2] as usize });
        }
        let name = |[code, number, ..]: [u64; 4]| format!("{} in round {number}", operation(code));
        Err(WireError::Failed(format!("replica {rank} does {} where this one does {}", name(given), name(own))))
    }

    /// The same of blocks of so many replicas.
    pub fn check_all(&self, blocks: &[u8], size: usize) -> Result<(), WireError> {
        let mut blocks = blocks.chunks_exact(self.stride()).take(size).enumerate();
        blocks.try_for_each(|(rank, block)| self.check(rank, block))
    }

    fn numbers(&self) -> [u64; 4] {
        let code = match self.call {
            Call::Scatter => 0,
            Call::Gather => 1,
            Call::AllGather => 2,
            Call::Broadcast { owner } => 3 + owner as u64,
        };
        [code, self.number, self.total as u64, self.block as u64]
    }
}

fn operation(code: u64) -> String {
    match code {
        0 | 1 => "a sum".into(),
        2 => "an all-gather".into(),
        _ => format!("a broadcast of replica {}", code - 3),
    }
}

/// Which bytes of a share of so many go with each round, at most so many at once. There is one where there are none: replicas
/// meet in every exchange.
pub(crate) fn ranges(share: usize, most: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    (0..share.div_ceil(most).max(1)).map(move |i| i * most..share.min((i + 1) * most))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Round = Round { call: Call::Scatter, number: 5, total: 800, block: 100 };

    fn check(sent: Round, expected: Result<(), &str>) {
        let mut block = vec![7; sent.stride()];
        assert_eq!(sent.begin(&mut block).len(), sent.block);
        assert_eq!(ROUND.check(3, &block).map_err(|e| e.to_string()), expected.map_err(String::from));
    }

    #[test]
    fn replicas_that_do_not_do_the_same_are_told() {
        check(ROUND, Ok(()));
        check(Round { total: 900, ..ROUND }, Err("replica 3 exchanges 900 bytes where this one has 800"));
        check(
            Round { call: Call::AllGather, ..ROUND },
            Err("replica 3 does an all-gather in round 5 where this one does a sum in round 5"),
        );
        check(
            Round { call: Call::Broadcast { owner: 1 }, number: 6, ..ROUND },
            Err("replica 3 does a broadcast of replica 1 in round 6 where this one does a sum in round 5"),
        );
    }

    #[test]
    fn rounds_have_all_bytes_once() {
        let check = |share, most, expected: &[(usize, usize)]| {
            assert_eq!(ranges(share, most).map(|r| (r.start, r.end)).collect::<Vec<_>>(), expected);
        };
        check(0, 4, &[(0, 0)]);
        check(3, 4, &[(0, 3)]);
        check(4, 4, &[(0, 4)]);
        check(9, 4, &[(0, 4), (4, 8), (8, 9)]);
    }
}
