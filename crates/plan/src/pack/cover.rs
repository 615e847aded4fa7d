//! Which unplaced buffers live in a section, kept through placing and taking back. Each section has its buffers in a row,
//! the unplaced ones in front; a placed one is swapped behind them, so that taking it back is a count.

use super::sections::Core;

pub struct Cover {
    /// The buffers of all sections, row after row.
    rows: Vec<u32>,
    /// Where the row of a section starts.
    row: Vec<usize>,
    /// How many of its row are unplaced.
    unplaced: Vec<u32>,
    /// Where a buffer stands in the row of each of its sections, buffer after buffer.
    stands: Vec<u32>,
    /// Where the numbers of a buffer start, less its first section.
    stand: Vec<isize>,
}

/// Beyond this many entries (the sections of all buffers together) the rows take too much memory: 64 MiB.
const MOST_ENTRIES: usize = 1 << 23;

impl Cover {
    /// None where the rows would be too long.
    pub fn new(core: &Core) -> Option<Cover> {
        let entries = core.buffers.iter().map(|b| b.end - b.first).sum::<usize>();
        if entries > MOST_ENTRIES {
            return None;
        }
        let mut row = vec![0; core.sections + 1];
        for b in &core.buffers {
            (b.first..b.end).for_each(|s| row[s + 1] += 1);
        }
        for s in 0..core.sections {
            row[s + 1] += row[s];
        }
        let mut cover = Cover {
            rows: vec![0; entries],
            row,
            unplaced: vec![0; core.sections],
            stands: Vec::new(),
            stand: Vec::new(),
        };
        cover.stands.reserve(entries);
        for (i, b) in core.buffers.iter().enumerate() {
            cover.stand.push(cover.stands.len() as isize - b.first as isize);
            for s in b.first..b.end {
                cover.stands.push(cover.unplaced[s]);
                cover.rows[cover.row[s] + cover.unplaced[s] as usize] = i as u32;
                cover.unplaced[s] += 1;
            }
        }
        Some(cover)
    }

    /// The unplaced buffers that live in a section.
    pub fn unplaced(&self, section: usize) -> &[u32] {
        &self.rows[self.row[section]..][..self.unplaced[section] as usize]
    }

    /// Takes a placed buffer out of a section. Returns how many unplaced ones are left there.
    pub fn remove(&mut self, buffer: usize, section: usize) -> u32 {
        self.unplaced[section] -= 1;
        let left = self.unplaced[section];
        let row = self.row[section];
        let (from, to) = (self.stand_of(buffer, section), left as usize);
        let other = self.rows[row + to] as usize;
        self.rows.swap(row + from, row + to);
        self.set_stand(buffer, section, to);
        self.set_stand(other, section, from);
        left
    }

    /// Takes back the last removal from a section that was not yet taken back.
    pub fn restore(&mut self, section: usize) {
        self.unplaced[section] += 1;
    }

    fn stand_of(&self, buffer: usize, section: usize) -> usize {
        self.stands[(self.stand[buffer] + section as isize) as usize] as usize
    }

    fn set_stand(&mut self, buffer: usize, section: usize, to: usize) {
        self.stands[(self.stand[buffer] + section as isize) as usize] = to as u32;
    }
}
