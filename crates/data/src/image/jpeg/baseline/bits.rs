//! The entropy-coded segment bit by bit, most significant first, without the zero bytes that are stuffed behind 0xff.

use super::super::header::marker;

/// Passed by value to what is seldom called, so that it stays in registers.
#[derive(Clone, Copy)]
pub(super) struct BitReader<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits from the top.
    word: u64,
    /// How many of them there are.
    available: u32,
    /// How many of them are zeroes that stand for what lies behind a marker or the end.
    padding: u32,
}

impl<'a> BitReader<'a> {
    pub fn new(data: &'a [u8], at: usize) -> BitReader<'a> {
        BitReader { data, at, word: 0, available: 0, padding: 0 }
    }

    /// Makes at least 32 bits available: a Huffman code and the bits that follow it have 31 at most.
    #[inline(always)]
    pub fn refill(&mut self) {
        if self.available >= 32 {
            return;
        }
        if let Some(&[a, b, c, d, e, f, g, h]) = self.data.get(self.at..self.at + 8) {
            let next = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            // Whether a byte of it is 0xff: then the byte of the complement is 0, and only of such does this
            // subtraction borrow first.
            if (!next).wrapping_sub(0x0101_0101_0101_0101) & next & 0x8080_8080_8080_8080 == 0 {
                self.word |= next >> self.available;
                self.at += ((63 - self.available) / 8) as usize;
                self.available |= 56;
                return;
            }
        }
        *self = self.refilled_by_bytes();
    }

    #[cold]
    #[inline(never)]
    fn refilled_by_bytes(mut self) -> BitReader<'a> {
        while self.available <= 56 {
            let byte = match (self.data.get(self.at), self.data.get(self.at + 1)) {
                (Some(0xff), Some(0)) => {
                    self.at += 2;
                    0xff
                }
                (Some(0xff), _) | (None, _) => {
                    self.padding += 8;
                    0
                }
                (Some(byte), _) => {
                    self.at += 1;
                    *byte
                }
            };
            self.word |= (byte as u64) << (56 - self.available);
            self.available += 8;
        }
        self
    }

    /// The next `count` bits, 1 to 16 of them.
    #[inline(always)]
    pub fn peek(&self, count: u32) -> usize {
        (self.word >> (64 - count)) as usize
    }

    #[inline(always)]
    pub fn skip(&mut self, count: u32) {
        self.word <<= count;
        self.available -= count;
    }

    /// RECEIVE and EXTEND of T.81, F.2.2.1: the next `size` bits (1 to 16) as a signed number.
    #[inline(always)]
    pub fn receive_extend(&mut self, size: u32) -> i32 {
        let bits = self.peek(size) as i32;
        self.skip(size);
        extend(bits, size)
    }

    /// Whether more was read than there is.
    #[inline(always)]
    pub fn overrun(&self) -> bool {
        self.padding > self.available
    }

    /// Behind the restart marker, if there is one.
    pub fn after_restart_marker(self) -> Option<BitReader<'a>> {
        // Bytes that were read ahead of the marker would be data that nobody asked for.
        if self.overrun() || self.available - self.padding >= 8 {
            return None;
        }
        let mut at = self.at;
        while self.data.get(at) == Some(&0xff) && self.data.get(at + 1) == Some(&0xff) {
            at += 1;
        }
        let found = matches!(self.data.get(at..at + 2), Some([0xff, marker::RST0..=marker::RST7]));
        found.then(|| BitReader::new(self.data, at + 2))
    }
}

/// EXTEND of T.81, F.2.2.1: bits with a zero in front are negative.
#[inline(always)]
pub(super) fn extend(bits: i32, size: u32) -> i32 {
    let half = 1 << (size - 1);
    if bits < half { bits - 2 * half + 1 } else { bits }
}
