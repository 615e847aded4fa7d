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

/// Which of several sections is decided first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    First,
    Last,
}

/// The orders, each by its keys in turn. Every public instance and every training step of the zoo has several among them
/// that solve it, and none of them solves all: so the first few are as different as can be.
const ORDERS: [(&[Key], Side); 10] = [
    (&[Key::Area, Key::Length], Side::First),
    (&[Key::Area, Key::Length], Side::Last),
    (&[Key::Size, Key::Short], Side::First),
    (&[Key::Start, Key::Size], Side::Last),
    (&[Key::Size, Key::Length], Side::First),
    (&[Key::End, Key::Size], Side::First),
    (&[Key::Length, Key::Area], Side::Last),
    (&[Key::Contention, Key::Length, Key::Area], Side::First),
    (&[Key::Short, Key::Size], Side::First),
    (&[Key::Random], Side::Last),
];

/// By how many thousandths the values of a buffer are shaken, in turn.
const SHAKES: [u64; 5] = [0, 150, 300, 50, 600];

/// What is tried first.
#[derive(Debug, PartialEq)]
pub struct Order {
    /// By buffer: the lowest is tried first.
    pub ranks: Vec<u32>,
    pub side: Side,
}

/// An endless row of orders for a core.
pub struct Orders<'a> {
    core: &'a Core,
    contention: Vec<u64>,
}

impl<'a> Orders<'a> {
    pub fn new(core: &'a Core) -> Orders<'a> {
        Orders { core, contention: contention(&core.buffers, core.sections) }
    }

    /// The order of this number, from 0.
    pub fn order(&self, number: usize) -> Order {
        let (keys, side) = ORDERS[number % ORDERS.len()];
        let round = number / ORDERS.len();
        let shake = SHAKES[round % SHAKES.len()];
        // Every other round from the other side.
        let side = if round.is_multiple_of(2) == (side == Side::First) { Side::First } else { Side::Last };
        let mut random = Random::new(number);
        let mut row: Vec<([u64; 3], usize)> = Vec::with_capacity(self.core.buffers.len());
        for i in 0..self.core.buffers.len() {
            // The same for all keys of a buffer.
            let share = 1000 - random.below(shake + 1);
            let mut values = [0; 3];
            for (value, &key) in values.iter_mut().zip(keys) {
                *value = (u128::from(self.value(key, i, &mut random)) * u128::from(share) / 1000) as u64;
            }
            row.push((values, i));
        }
        row.sort_by_key(|&(values, i)| (std::cmp::Reverse(values), i));
        let mut ranks = vec![0; row.len()];
        for (rank, (_, i)) in row.into_iter().enumerate() {
            ranks[i] = rank as u32;
        }
        Order { ranks, side }
    }

    fn value(&self, key: Key, buffer: usize, random: &mut Random) -> u64 {
        let b = &self.core.buffers[buffer];
        match key {
            Key::Size => b.size,
            Key::Length => b.length,
            Key::Area => b.size.saturating_mul(b.length),
            Key::Contention => self.contention[buffer],
            Key::Start => (self.core.sections - b.first) as u64,
            Key::End => b.end as u64,
            Key::Short => u64::MAX / b.length,
            Key::Random => random.below(1 << 32),
        }
    }
}

/// Xorshift: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Random {
        let mut random = Random((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Small seeds differ little in the first numbers.
        for _ in 0..8 {
            random.below(1);
        }
        random
    }

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
            let orders = Orders::new(&core);
            (0..30).map(|number| orders.order(number)).collect::<Vec<_>>()
        };
        for order in draw() {
            let mut sorted = order.ranks;
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        }
        assert_eq!(draw(), draw());
    }
}
