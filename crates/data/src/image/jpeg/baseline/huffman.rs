//! Huffman tables as look-ups by the next bits: a code, and where it fits the coefficient behind the code, in one go.

use super::super::super::DecodeError;
use super::bits::{BitReader, extend};

/// The bits of a look-up: 4 KiB a table. With 11 or 12 it was not faster on 500×375 pixels of quality 90.
const LOOKUP_BITS: u32 = 10;

/// One table, for DC or for AC coefficients.
pub(super) struct HuffmanTable {
    /// By the next bits.
    lookup: [Entry; 1 << LOOKUP_BITS],
    /// For longer codes, by their length: one more than the largest code (MAXCODE of T.81), aligned to 16 bits.
    max_code: [u32; 18],
    /// What to add to a code of each length to get its index among the symbols.
    value_offset: [i32; 17],
    symbols: [u8; 256],
}

/// What the next bits mean, in one word: the coefficient (16 bits) where the look-up holds it whole; the symbol, which is
/// a run of zeroes (4) and the size of the coefficient behind the code (4); whether it has the coefficient (1); bits to
/// skip (7), where 0 is a code too long for the look-up.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry(u32);

const HAS_COEFFICIENT: u32 = 0x80;

impl Entry {
    fn symbol(symbol: u8, length: u32) -> Entry {
        Entry((symbol as u32) << 8 | length)
    }

    fn with_coefficient(symbol: u8, bits: u32, coefficient: i32) -> Entry {
        Entry((coefficient as u32) << 16 | (symbol as u32) << 8 | HAS_COEFFICIENT | bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0 & 0x7f
    }

    #[inline(always)]
    pub fn has_coefficient(self) -> bool {
        self.0 & HAS_COEFFICIENT != 0
    }

    #[inline(always)]
    pub fn coefficient(self) -> i32 {
        self.0 as i32 >> 16
    }

    /// Zeroes before the coefficient.
    #[inline(always)]
    pub fn run(self) -> usize {
        (self.0 >> 12 & 15) as usize
    }

    /// Bits of the coefficient.
    #[inline(always)]
    pub fn size(self) -> u32 {
        self.0 >> 8 & 15
    }
}

impl HuffmanTable {
    /// From the number of codes of each length (BITS of T.81) and the symbols in the order of their codes (HUFFVAL).
    pub fn new(counts: &[u8; 16], values: &[u8]) -> Result<HuffmanTable, DecodeError> {
        let total: usize = counts.iter().map(|n| *n as usize).sum();
        let mut symbols = [0; 256];
        match (symbols.get_mut(..total), values.get(..total)) {
            (Some(symbols), Some(values)) => symbols.copy_from_slice(values),
            _ => return Err("a Huffman table has more codes than symbols; the file is damaged".into()),
        }
        let lookup = [Entry::default(); 1 << LOOKUP_BITS];
        let mut table = HuffmanTable { lookup, max_code: [0; 18], value_offset: [0; 17], symbols };
        let (mut code, mut index) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = counts[length as usize - 1] as usize;
            table.value_offset[length as usize] = index as i32 - code as i32;
            for symbol in &symbols[index..index + count] {
                if code >> length != 0 {
                    return Err("a Huffman table has more codes than bits; the file is damaged".into());
                }
                table.fill_lookup(code, length, *symbol);
                code += 1;
            }
            index += count;
            table.max_code[length as usize] = code << (16 - length);
            code <<= 1;
        }
        table.max_code[17] = u32::MAX;
        Ok(table)
    }

    /// All look-ups that start with a code.
    fn fill_lookup(&mut self, code: u32, length: u32, symbol: u8) {
        let Some(rest) = LOOKUP_BITS.checked_sub(length) else { return };
        let size = (symbol & 15) as u32;
        for tail in 0..1u32 << rest {
            let entry = match size {
                0 => Entry::symbol(symbol, length),
                size if size > rest => Entry::symbol(symbol, length),
                size => Entry::with_coefficient(symbol, length + size, extend((tail >> (rest - size)) as i32, size)),
            };
            if let Some(slot) = self.lookup.get_mut((code << rest | tail) as usize) {
                *slot = entry;
            }
        }
    }

    /// The entry of the next bits, which are skipped; none where no code starts so.
    #[inline(always)]
    pub fn decode(&self, bits: &mut BitReader) -> Option<Entry> {
        let mut entry = self.lookup[bits.peek(LOOKUP_BITS)];
        if entry.bits() == 0 {
            entry = self.decode_long(bits.peek(16) as u32)?;
        }
        bits.skip(entry.bits());
        Some(entry)
    }

    /// The entry of a code that is longer than the look-up.
    #[cold]
    #[inline(never)]
    fn decode_long(&self, next_bits: u32) -> Option<Entry> {
        let length = (LOOKUP_BITS as usize + 1..=16).find(|length| next_bits < self.max_code[*length])?;
        let index = (next_bits >> (16 - length)) as i32 + self.value_offset[length];
        let symbol = *self.symbols.get(usize::try_from(index).ok()?)?;
        Some(Entry::symbol(symbol, length as u32))
    }
}
