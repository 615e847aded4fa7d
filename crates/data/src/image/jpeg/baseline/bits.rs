//! The entropy-coded data bit by bit, most significant first, without the zeroes that are stuffed behind 0xff.

/// Passed by value to what is seldom called, so that it stays in registers.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits from the top.
    word: u64,
    /// How many of them there are.
    have: u32,
    /// How many of them were made up behind a marker or the end.
    made_up: u32,
}

impl<'a> Bits<'a> {
    pub fn new(data: &'a [u8], at: usize) -> Bits<'a> {
        Bits { data, at, word: 0, have: 0, made_up: 0 }
    }

    /// Makes at least 32 bits ready: a code and what follows it have 31 at most.
    #[inline(always)]
    pub fn refill(&mut self) {
        if self.have >= 32 {
            return;
        }
        if let Some(&[a, b, c, d, e, f, g, h]) = self.data.get(self.at..self.at + 8) {
            let next = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            // Whether a byte of it is 0xff: then the byte of the complement is 0, and only of such does this
            // subtraction borrow first.
            if (!next).wrapping_sub(0x0101_0101_0101_0101) & next & 0x8080_8080_8080_8080 == 0 {
                self.word |= next >> self.have;
                self.at += ((63 - self.have) / 8) as usize;
                self.have |= 56;
                return;
            }
        }
        *self = self.refilled_slowly();
    }

    #[cold]
    #[inline(never)]
    fn refilled_slowly(mut self) -> Bits<'a> {
        while self.have <= 56 {
            let byte = match (self.data.get(self.at), self.data.get(self.at + 1)) {
                (Some(0xff), Some(0)) => {
                    self.at += 2;
                    0xff
                }
                (Some(0xff), _) | (None, _) => {
                    self.made_up += 8;
                    0
                }
                (Some(byte), _) => {
                    self.at += 1;
                    *byte
                }
            };
            self.word |= (byte as u64) << (56 - self.have);
            self.have += 8;
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
        self.have -= count;
    }

    /// The next `size` bits (1 to 16) as the difference that they stand for: those with a zero in front are negative.
    #[inline(always)]
    pub fn difference(&mut self, size: u32) -> i32 {
        let bits = self.peek(size) as i32;
        self.skip(size);
        difference(bits, size)
    }

    /// Whether more was read than there is.
    #[inline(always)]
    pub fn overrun(&self) -> bool {
        self.made_up > self.have
    }

    /// Behind the restart marker, if there is one.
    pub fn restarted(self) -> Option<Bits<'a>> {
        // Bytes that were read ahead of the marker would be data that nobody asked for.
        if self.overrun() || self.have - self.made_up >= 8 {
            return None;
        }
        let mut at = self.at;
        while self.data.get(at) == Some(&0xff) && self.data.get(at + 1) == Some(&0xff) {
            at += 1;
        }
        matches!(self.data.get(at..at + 2), Some([0xff, 0xd0..=0xd7])).then(|| Bits::new(self.data, at + 2))
    }
}

#[inline(always)]
pub(super) fn difference(bits: i32, size: u32) -> i32 {
    let half = 1 << (size - 1);
    if bits < half { bits - 2 * half + 1 } else { bits }
}
