//! Orders of preference among buffers. The search tries buffers in such an order; greedy placement goes through one. None
//! is best everywhere, so several are tried, first as they are, then shaken.

use super::sections::{Core, contention};

/// Numbers by which buffers are compared, the larger first.
#[derive(Clone, Copy, Debug)]
enum Key {
    /// Bytes.
    Size,
    /// Steps that it lives.
    Length,
    /// Bytes × steps.
    Area,
    /// The most bytes that live at once during its life.
    Contention,
    /// The earliest first.
    Start,
    /// The last to end first.
    End,
    /// The shortest life first.
    Short,
    Random,
}

/// The orders, each by its keys in turn. Every public instance and every training step of the zoo has several among them
/// that solve it; none of them solves all.
const ORDERS: [&[Key]; 8] = [
    &[Key::Area, Key::Length],
    &[Key::Size, Key::Length],
    &[Key::Contention, Key::Length, Key::Area],
    &[Key::End, Key::Size],
    &[Key::Start, Key::Size],
    &[Key::Short, Key::Size],
    &[Key::Length, Key::Area],
    &[Key::Random],
];

/// By how many thousandths the values of a buffer are shaken, in turn.
const SHAKES: [u64; 4] = [150, 300, 50, 600];

/// An endless row of orders for a core.
pub struct Orders<'a> {
    core: &'a Core,
    contention: Vec<u64>,
    tried: usize,
    random: Random,
}

impl<'a> Orders<'a> {
    pub fn new(core: &'a Core) -> Orders<'a> {
        let contention = contention(&core.buffers, core.sections);
        Orders { core, contention, tried: 0, random: Random(1) }
    }

    /// The next order, as the rank of every buffer.
    pub fn next_ranks(&mut self) -> Vec<u32> {
        let keys = ORDERS[self.tried % ORDERS.len()];
        let shake = match self.tried / ORDERS.len() {
            0 => 0,
            shaken => SHAKES[shaken % SHAKES.len()],
        };
        self.tried += 1;
        let mut row: Vec<([u64; 3], usize)> = Vec::with_capacity(self.core.buffers.len());
        for i in 0..self.core.buffers.len() {
            // The same for all keys of a buffer.
            let share = 1000 - self.random.below(shake + 1);
            let mut values = [0; 3];
            for (value, &key) in values.iter_mut().zip(keys) {
                *value = (u128::from(self.value(key, i)) * u128::from(share) / 1000) as u64;
            }
            row.push((values, i));
        }
        row.sort_by_key(|&(values, i)| (std::cmp::Reverse(values), i));
        let mut ranks = vec![0; row.len()];
        for (rank, (_, i)) in row.into_iter().enumerate() {
            ranks[i] = rank as u32;
        }
        ranks
    }

    fn value(&mut self, key: Key, buffer: usize) -> u64 {
        let b = &self.core.buffers[buffer];
        match key {
            Key::Size => b.size,
            Key::Length => b.length,
            Key::Area => b.size.saturating_mul(b.length),
            Key::Contention => self.contention[buffer],
            Key::Start => (self.core.sections - b.first) as u64,
            Key::End => b.end as u64,
            Key::Short => u64::MAX / b.length,
            Key::Random => self.random.below(1 << 32),
        }
    }
}

/// Xorshift: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[cfg(test)]
mod tests {
    use super::super::sections::Buffer;
    use super::*;

    #[test]
    fn orders_are_permutations_and_the_same_every_time() {
        let buffer = |i: usize| Buffer { item: i, first: i % 3, end: i % 3 + 1, size: 1 + i as u64 % 5, length: 1 };
        let core = Core { base: 0, sections: 3, buffers: (0..50).map(buffer).collect() };
        let draw = || {
            let mut orders = Orders::new(&core);
            (0..20).map(|_| orders.next_ranks()).collect::<Vec<_>>()
        };
        for ranks in draw() {
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        }
        assert_eq!(draw(), draw());
    }
}
