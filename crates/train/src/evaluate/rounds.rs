//! What replicas tell each other while they evaluate a model together. In every round each has a record: a few words, and the
//! numbers of the rows that it has evaluated. All have the same records after it, in the same order, and so the same sums.

use memfit_data::{Buffer, BytePool};
use memfit_exec::Executor;

use super::room;
use crate::error::{Result, TrainError};
use crate::session::Session;

/// The records of a round.
pub(super) struct Rounds {
    replicas: usize,
    /// Numbers of a row.
    width: usize,
    /// The most rows of a record.
    most_rows: usize,
    /// So many words for what this replica sends, and behind them as many for each that it hears of.
    part: usize,
    words: Buffer,
}

/// What a replica says beside its rows, as bits of a word.
pub(super) const MORE: u64 = 1;
/// Its observer wants an end.
pub(super) const STOP: u64 = 2;
/// It cannot go on.
pub(super) const FAILED: u64 = 4;

/// What a record begins with: what is said, and the number of its rows.
const HEAD: usize = 2;
/// Counts are exchanged by so many at least.
const LEAST_PART: usize = 512;

impl Rounds {
    /// For rows of so many numbers; none where nobody else is there.
    pub fn new<E: Executor>(session: &Session<E>, width: usize, pool: &BytePool) -> Result<Option<Rounds>> {
        let (replicas, most_rows) = (session.plan().replica.count, session.plan().micro_batch);
        if replicas == 1 {
            return Ok(None);
        }
        let part = (HEAD + most_rows * width).max(LEAST_PART);
        let words = room(pool, (1 + replicas) * part * size_of::<u64>(), "what replicas tell each other")?;
        Ok(Some(Rounds { replicas, width, most_rows, part, words }))
    }

    fn words(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(self.words.bytes_mut())
    }

    /// Begins a record without rows.
    pub fn begin(&mut self) {
        self.words()[..HEAD].fill(0);
    }

    pub fn say(&mut self, bits: u64) {
        self.words()[0] |= bits;
    }

    /// Adds the numbers of a row to the record.
    pub fn push(&mut self, numbers: &[f64]) -> Result<()> {
        let (width, most_rows) = (self.width, self.most_rows);
        let words = self.words();
        let row = words[1] as usize;
        if row == most_rows {
            return Err(TrainError::TestRows { rows: row + 1, micro_batch: most_rows });
        }
        words[HEAD + row * width..][..width].copy_from_slice(bytemuck::cast_slice(numbers));
        words[1] += 1;
        Ok(())
    }

    /// Tells the others, and hears what they have.
    pub fn exchange<E: Executor>(&mut self, session: &Session<E>) -> Result<Heard<'_>> {
        let (record, width) = (HEAD + self.most_rows * self.width, self.width);
        let words = self.gather(session, record)?;
        Ok(Heard { words, record, width })
    }

    /// Adds up what all have counted.
    pub fn add_up<E: Executor>(&mut self, session: &Session<E>, counts: &mut [u64]) -> Result<()> {
        for counts in counts.chunks_mut(self.part) {
            self.words()[..counts.len()].copy_from_slice(counts);
            counts.fill(0);
            for other in self.gather(session, counts.len())?.chunks_exact(counts.len()) {
                counts.iter_mut().zip(other).for_each(|(all, more)| *all += more);
            }
        }
        Ok(())
    }

    /// So many words of each.
    fn gather<E: Executor>(&mut self, session: &Session<E>, count: usize) -> Result<&[u64]> {
        let (part, all) = (self.part, self.replicas * count);
        let (send, receive) = self.words().split_at_mut(part);
        let receive = &mut receive[..all];
        session.all_gather(bytemuck::cast_slice(&send[..count]), bytemuck::cast_slice_mut(receive))?;
        Ok(receive)
    }
}

/// The records of all replicas.
pub(super) struct Heard<'a> {
    words: &'a [u64],
    /// Words of each.
    record: usize,
    width: usize,
}

impl<'a> Heard<'a> {
    /// Who says this first.
    pub fn who_says(&self, bit: u64) -> Option<usize> {
        self.words.chunks_exact(self.record).position(|record| record[0] & bit != 0)
    }

    /// The numbers of each row, in the order of the test set.
    pub fn rows(&self) -> impl Iterator<Item = &'a [f64]> {
        let width = self.width;
        self.words
            .chunks_exact(self.record)
            .flat_map(move |record| bytemuck::cast_slice(&record[HEAD..]).chunks_exact(width).take(record[1] as usize))
    }
}
