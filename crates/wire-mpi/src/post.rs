//! A communicator as the way of words: says them to all others and hears theirs. It decides nothing.

use ferrompi::{Communicator, MpiDatatype, Request, Scope, Source};
use memfit_exec::WireError;

use crate::line::Line;
use crate::word::{LONGEST, Word};

/// Of words; collective calls have no tags.
const TAG: i32 = 1;

pub(crate) struct Post {
    pub communicator: Communicator,
    pub line: Line,
    /// Who has gone: from which round on, and why.
    gone: Vec<(u64, WireError)>,
}

impl Post {
    pub fn new(communicator: Communicator, line: Line) -> Post {
        let gone = Vec::with_capacity(communicator.size() as usize);
        Post { communicator, line, gone }
    }

    pub fn rank(&self) -> usize {
        self.communicator.rank() as usize
    }

    pub fn size(&self) -> usize {
        self.communicator.size() as usize
    }

    /// Starts to say a word to all others. Whoever it cannot be said to has to find out by itself.
    pub fn say<'s>(&self, scope: &'s Scope<'s, '_>, word: &'s [u8], said: &mut Vec<Request<'s>>) {
        say(&self.communicator, &self.line, scope, word, TAG, said);
    }

    /// Whether MPI has taken all these words, and needs their bytes no more. One that it failed to send is none of them.
    pub fn sent(&self, said: &mut Vec<Request<'_>>) -> bool {
        sent(&self.line, said)
    }

    /// Takes in what others said since the last time; `is_there` is told the rank of whoever is, and the round
    /// in which it waits, if it does.
    pub fn hear(&mut self, mut is_there: impl FnMut(usize, Option<u64>)) -> Result<(), WireError> {
        let mut bytes = [0u8; LONGEST];
        // Open MPI answers first and then looks at what has come, so that one question may be one too few.
        let ask = || self.communicator.iprobe::<u8>(Source::Any, TAG);
        let ask_twice = || ask().and_then(|status| status.map_or_else(ask, |status| Ok(Some(status))));
        while let Some(status) = self.line.call(ask_twice)? {
            // It has come, and nobody else takes it, so this does not wait.
            let word = self.line.call(|| self.communicator.recv(&mut bytes, status.source, TAG))?;
            let Source::Rank(rank) = word.source else { continue };
            match Word::decode(&bytes[..word.count.unwrap_or(0).min(LONGEST)]) {
                Some(Word::Waits { round }) => is_there(rank as usize, Some(round)),
                Some(Word::Works) => is_there(rank as usize, None),
                Some(Word::Goes { completed, why }) => self.gone.push((completed, why)),
                None => return Err(WireError::Failed(format!("replica {rank} says what is no word"))),
            }
        }
        Ok(())
    }

    /// Why a round will not end, if somebody has gone before it.
    pub fn concerns(&self, round: u64) -> Result<(), WireError> {
        let gone = self.gone.iter().find(|(completed, _)| *completed <= round);
        gone.map_or(Ok(()), |(_, why)| Err(why.clone()))
    }

    /// Whether nobody is left to say anything.
    pub fn all_others_gone(&self) -> bool {
        self.gone.len() + 1 >= self.size()
    }
}

/// Starts to say a word to all others of a communicator, with a tag. Whoever it cannot be said to has to find out by itself.
pub(crate) fn say<'s, T: MpiDatatype>(
    communicator: &Communicator,
    line: &Line,
    scope: &'s Scope<'s, '_>,
    word: &'s [T],
    tag: i32,
    said: &mut Vec<Request<'s>>,
) {
    let others = (0..communicator.size()).filter(|rank| *rank != communicator.rank());
    said.extend(others.filter_map(|rank| line.call(|| communicator.isend(scope, word, rank, tag)).ok()));
}

/// Whether MPI has taken all these words, and needs their bytes no more. One that it failed to send is none of them.
pub(crate) fn sent(line: &Line, said: &mut Vec<Request<'_>>) -> bool {
    said.retain_mut(|request| {
        let _ = line.call(|| request.test());
        !request.is_completed()
    });
    said.is_empty()
}
