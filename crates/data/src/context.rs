//! What a map function gets beside its example: the pool, and random numbers that depend on nothing but the seed, the
//! verb, the epoch and the number of the example. There is no state: whoever makes an element again draws the same.

use std::sync::atomic::{AtomicBool, Ordering};

use memfit_ir::philox;

use crate::memory::BytePool;

/// What a [map](crate::Dataset::map) function gets beside its example.
///
/// Random numbers depend on the seed, the number of the map in the pipeline, the epoch, the index of the element and the
/// stream, and on nothing else: neither on the order in which threads call the function nor on how often.
///
/// ```
/// use memfit_data::{BytePool, Context};
///
/// let pool = BytePool::new(0);
/// let draw = |seed, epoch, element| Context::new(&pool, seed, epoch, element).random(0).uniform();
/// assert_eq!(draw(7, 0, 3), draw(7, 0, 3));
/// assert_ne!(draw(7, 0, 3), draw(7, 1, 3));
/// ```
pub struct Context<'a> {
    /// The pool from which everything that the function holds is drawn, its result and its working memory.
    pub pool: &'a BytePool,
    key: [u32; 2],
    element: u64,
    location: &'a dyn Fn() -> String,
    /// Whether a random number was asked for, which a cache on disk wants to know.
    drew_random: Option<&'a AtomicBool>,
}

impl<'a> Context<'a> {
    /// For calling a map function by hand, as tests do; in a pipeline the loader makes it.
    pub fn new(pool: &'a BytePool, seed: u64, epoch: u64, element: u64) -> Context<'a> {
        Context {
            pool,
            key: key(seed, MAP, 0, epoch),
            element,
            location: &|| "an example".to_string(),
            drew_random: None,
        }
    }

    pub(crate) fn for_map(pool: &'a BytePool, call: MapCall<'a>) -> Context<'a> {
        let key = key(call.seed, MAP, call.verb, call.epoch);
        Context { pool, key, element: call.element, location: call.location, drew_random: Some(call.drew_random) }
    }

    /// Where this example comes from, as a person would say it in an error: its file, its row.
    pub fn location(&self) -> String {
        (self.location)()
    }

    /// The index of the example among those that the map got in this epoch.
    pub fn element(&self) -> u64 {
        self.element
    }

    /// The random numbers of this example. Each stream has its own: functions that are put together into one map take
    /// different streams. [`augment`](crate::augment) uses 1 to 25.
    pub fn random(&self, stream: u32) -> Random {
        self.random_part(stream, 0)
    }

    /// The same of a part of an example, of which each draws its own. The first has those of the whole.
    pub(crate) fn random_part(&self, stream: u32, part: u32) -> Random {
        if let Some(drew_random) = self.drew_random {
            drew_random.store(true, Ordering::Relaxed);
        }
        Random::new(self.key, stream, self.element, part)
    }
}

/// Which call of which map function.
pub(crate) struct MapCall<'a> {
    pub seed: u64,
    pub verb: u32,
    pub epoch: u64,
    pub element: u64,
    pub location: &'a dyn Fn() -> String,
    pub drew_random: &'a AtomicBool,
}

/// A sequence of random numbers, by the counter-based generator Philox.
///
/// ```
/// use memfit_data::{BytePool, Context};
///
/// let pool = BytePool::new(0);
/// let mut random = Context::new(&pool, 0, 0, 0).random(0);
/// assert!((0.0..1.0).contains(&random.uniform()));
/// assert!((-2.0..3.0).contains(&random.range(-2.0, 3.0)));
/// assert!(random.below(6) < 6);
/// assert!(random.normal().is_finite());
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    key: [u32; 2],
    counter: [u32; 4],
    words: [u32; 4],
    left: usize,
}

impl Random {
    fn new(key: [u32; 2], stream: u32, element: u64, part: u32) -> Random {
        Random {
            key,
            counter: [part << DRAWS_OF_PART, stream, element as u32, (element >> 32) as u32],
            words: [0; 4],
            left: 0,
        }
    }

    fn word(&mut self) -> u32 {
        if self.left == 0 {
            self.words = philox::philox(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.left = 4;
        }
        self.left -= 1;
        self.words[3 - self.left]
    }

    /// Uniform in \[0, 1).
    pub fn uniform(&mut self) -> f32 {
        philox::unit(self.word())
    }

    /// Uniform in \[lo, hi).
    pub fn range(&mut self, lo: f32, hi: f32) -> f32 {
        lo + (hi - lo) * self.uniform()
    }

    /// Uniform in 0..n, and 0 for n = 0. No number is likelier than another by more than n ÷ 2³².
    pub fn below(&mut self, n: u32) -> u32 {
        ((self.word() as u64 * n as u64) >> 32) as u32
    }

    /// From the standard normal distribution (Box–Muller).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * ((self.word() as f64 + 1.0) / 4_294_967_296.0).ln()).sqrt();
        let angle = std::f64::consts::TAU * (self.word() as f64 / 4_294_967_296.0);
        (radius * angle.cos()) as f32
    }
}

/// The draws of one shuffle in one epoch.
#[derive(Clone, Debug)]
pub(crate) struct ShuffleDraws {
    key: [u32; 2],
    next: u64,
}

impl ShuffleDraws {
    pub(crate) fn new(seed: u64, verb: u32, epoch: u64) -> ShuffleDraws {
        ShuffleDraws { key: key(seed, SHUFFLE, verb, epoch), next: 0 }
    }

    /// The next one in 0..n: 64 random bits × n ÷ 2⁶⁴, so that no place is likelier than another by more than n ÷ 2⁶⁴.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let words = philox::philox([self.next as u32, (self.next >> 32) as u32, 0, 0], self.key);
        self.next += 1;
        let bits = (words[0] as u64) << 32 | words[1] as u64;
        ((bits as u128 * n as u128) >> 64) as usize
    }
}

/// A part of an example draws fewer than 2 to this, of four words each.
const DRAWS_OF_PART: u32 = 16;

const MAP: u32 = 0;
const SHUFFLE: u32 = 1;

/// One key for (seed, kind of verb, its number, epoch), which do not fit into a counter beside what is counted.
fn key(seed: u64, kind: u32, verb: u32, epoch: u64) -> [u32; 2] {
    let words = philox::philox([verb, kind, epoch as u32, (epoch >> 32) as u32], [seed as u32, (seed >> 32) as u32]);
    [words[0], words[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_every_part_of_the_key_and_on_nothing_else() {
        let pool = BytePool::new(0);
        let first = |seed, epoch, element, stream| Context::new(&pool, seed, epoch, element).random(stream).word();
        let base = first(1, 2, 3, 4);
        assert_eq!(base, first(1, 2, 3, 4));
        for other in
            [first(0, 2, 3, 4), first(1, 0, 3, 4), first(1, 2, 0, 4), first(1, 2, 3, 0), first(1, 2, 3 << 32, 4)]
        {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn numbers_lie_where_they_should() {
        let pool = BytePool::new(0);
        let mut random = Context::new(&pool, 7, 0, 0).random(0);
        let (mut mean, mut square, mut counts) = (0.0, 0.0, [0; 3]);
        const N: usize = 30_000;
        for _ in 0..N {
            assert!((0.0..1.0).contains(&random.uniform()) && (-2.0..3.0).contains(&random.range(-2.0, 3.0)));
            counts[random.below(3) as usize] += 1;
            let x = random.normal() as f64;
            (mean, square) = (mean + x / N as f64, square + x * x / N as f64);
        }
        assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.05, "mean {mean}, square {square}");
        assert!(counts.iter().all(|&c| (c as f64 / N as f64 - 1.0 / 3.0).abs() < 0.02), "{counts:?}");
    }
}
