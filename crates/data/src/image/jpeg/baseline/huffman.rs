//! Huffman tables as look-ups by the next bits: a code, and where it fits what follows the code, in one step.

use super::super::super::Fault;
use super::bits::{Bits, difference};

/// The bits of a look-up: 4 KiB a table. With 11 or 12 it was not faster on 500×375 pixels of quality 90.
const LOOK: u32 = 10;

/// One table, for first coefficients or for the others.
pub(super) struct Table {
    /// By the next bits.
    entries: [Entry; 1 << LOOK],
    /// For longer codes: the first code beyond those of each length, aligned to 16 bits, and what to add to get its
    /// place.
    beyond: [u32; 18],
    offset: [i32; 17],
    symbols: [u8; 256],
}

/// What the next bits mean, in one word: the coefficient (16 bits) where it is whole; the symbol, which is zeroes
/// before the coefficient (4) and the size of what follows the code (4); whether it is whole (1); bits to skip (7),
/// where 0 is a code too long for the look-up.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry(u32);

const WHOLE: u32 = 0x80;

impl Entry {
    fn code(symbol: u8, length: u32) -> Entry {
        Entry((symbol as u32) << 8 | length)
    }

    fn whole(symbol: u8, bits: u32, value: i32) -> Entry {
        Entry((value as u32) << 16 | (symbol as u32) << 8 | WHOLE | bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0 & 0x7f
    }

    #[inline(always)]
    pub fn is_whole(self) -> bool {
        self.0 & WHOLE != 0
    }

    #[inline(always)]
    pub fn value(self) -> i32 {
        self.0 as i32 >> 16
    }

    #[inline(always)]
    pub fn run(self) -> usize {
        (self.0 >> 12 & 15) as usize
    }

    #[inline(always)]
    pub fn size(self) -> u32 {
        self.0 >> 8 & 15
    }
}

impl Table {
    /// From the number of codes of each length and the symbols in the order of their codes.
    pub fn new(counts: &[u8; 16], given: &[u8]) -> Result<Table, Fault> {
        let total: usize = counts.iter().map(|n| *n as usize).sum();
        let mut symbols = [0; 256];
        match (symbols.get_mut(..total), given.get(..total)) {
            (Some(place), Some(given)) => place.copy_from_slice(given),
            _ => return Err("a Huffman table has more codes than symbols; the file is damaged".into()),
        }
        let entries = [Entry::default(); 1 << LOOK];
        let mut table = Table { entries, beyond: [0; 18], offset: [0; 17], symbols };
        let (mut code, mut place) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = counts[length as usize - 1] as usize;
            table.offset[length as usize] = place as i32 - code as i32;
            for symbol in &symbols[place..place + count] {
                if code >> length != 0 {
                    return Err("a Huffman table has more codes than bits; the file is damaged".into());
                }
                table.enter(code, length, *symbol);
                code += 1;
            }
            place += count;
            table.beyond[length as usize] = code << (16 - length);
            code <<= 1;
        }
        table.beyond[17] = u32::MAX;
        Ok(table)
    }

    /// All look-ups that start with a code.
    fn enter(&mut self, code: u32, length: u32, symbol: u8) {
        let Some(rest) = LOOK.checked_sub(length) else { return };
        let size = (symbol & 15) as u32;
        for tail in 0..1u32 << rest {
            let entry = match size {
                0 => Entry::code(symbol, length),
                size if size > rest => Entry::code(symbol, length),
                size => Entry::whole(symbol, length + size, difference((tail >> (rest - size)) as i32, size)),
            };
            if let Some(place) = self.entries.get_mut((code << rest | tail) as usize) {
                *place = entry;
            }
        }
    }

    /// The entry of the next bits, which are skipped; none where no code starts so.
    #[inline(always)]
    pub fn next(&self, bits: &mut Bits) -> Option<Entry> {
        let mut entry = self.entries[bits.peek(LOOK)];
        if entry.bits() == 0 {
            entry = self.long(bits.peek(16) as u32)?;
        }
        bits.skip(entry.bits());
        Some(entry)
    }

    /// The entry of a code that is longer than the look-up.
    #[cold]
    #[inline(never)]
    fn long(&self, ahead: u32) -> Option<Entry> {
        let length = (LOOK as usize + 1..=16).find(|length| ahead < self.beyond[*length])?;
        let place = (ahead >> (16 - length)) as i32 + self.offset[length];
        let symbol = *self.symbols.get(usize::try_from(place).ok()?)?;
        Some(Entry::code(symbol, length as u32))
    }
}
