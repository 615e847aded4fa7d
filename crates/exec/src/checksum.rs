//! A checksum of bytes as they pass by. It finds damage, not forgery.

/// Words of 64 bits are mixed in one after the other. Every step is a bijection of the word: a change within one word
/// is always seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    hash: u64,
    bytes: u64,
    /// The last bytes, up to a word.
    rest: [u8; WORD],
}

const WORD: usize = 8;

impl Default for Checksum {
    fn default() -> Self {
        Checksum { hash: 0xcbf2_9ce4_8422_2325, bytes: 0, rest: [0; WORD] }
    }
}

impl Checksum {
    pub fn of_bytes(bytes: &[u8]) -> u64 {
        let mut sum = Checksum::default();
        sum.update(bytes);
        sum.finish()
    }

    /// How the bytes come in pieces does not matter.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let used = (self.bytes % WORD as u64) as usize;
        self.bytes += bytes.len() as u64;
        if used > 0 {
            let (first, others) = bytes.split_at(bytes.len().min(WORD - used));
            self.rest[used..][..first.len()].copy_from_slice(first);
            if used + first.len() < WORD {
                return;
            }
            self.hash = mixed(self.hash, u64::from_le_bytes(self.rest));
            bytes = others;
        }
        let (words, rest) = bytes.as_chunks::<WORD>();
        self.hash = words.iter().fold(self.hash, |hash, word| mixed(hash, u64::from_le_bytes(*word)));
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(&self) -> u64 {
        let mut last = [0; WORD];
        let used = (self.bytes % WORD as u64) as usize;
        last[..used].copy_from_slice(&self.rest[..used]);
        // The length tells zeroes at the end from none.
        mixed(mixed(self.hash, u64::from_le_bytes(last)), self.bytes)
    }
}

/// Two products with a shift between them, so that a high bit reaches low ones and these reach all above.
fn mixed(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter() {
        let bytes: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(37)).collect();
        for size in [1, 2, 3, 7, 8, 9, 64, 100] {
            let mut sum = Checksum::default();
            bytes.chunks(size).for_each(|piece| sum.update(piece));
            assert_eq!((sum.finish(), sum.bytes()), (Checksum::of_bytes(&bytes), 100), "pieces of {size}");
        }
    }

    #[test]
    fn every_flipped_bit_every_pair_of_high_bits_and_every_length_is_seen() {
        let bytes = [0u8; 24];
        let mut seen = vec![Checksum::of_bytes(&bytes)];
        for at in 0..24 * 8 {
            let mut changed = bytes;
            changed[at / 8] ^= 1 << (at % 8);
            seen.push(Checksum::of_bytes(&changed));
        }
        for (a, b) in [(7, 15), (7, 23), (15, 23), (3, 7), (3, 11)] {
            let mut changed = bytes;
            changed[a] ^= 0x80;
            changed[b] ^= 0x80;
            seen.push(Checksum::of_bytes(&changed));
        }
        seen.extend((0..24).map(|length| Checksum::of_bytes(&bytes[..length])));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
