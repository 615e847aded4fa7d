//! What a map function gets beside its example: the pool, and random numbers that depend on nothing but the seed, the epoch
//! and the number of the example.

use memfit_ir::philox;

use crate::memory::BytePool;

pub struct Context<'a> {
    pub pool: &'a BytePool,
    seed: [u32; 2],
    epoch: u32,
    element: u32,
}

impl<'a> Context<'a> {
    pub fn new(pool: &'a BytePool, seed: u64, epoch: u32, element: u32) -> Context<'a> {
        Context { pool, seed: [seed as u32, (seed >> 32) as u32], epoch, element }
    }

    /// Random numbers of their own for each stream.
    pub fn random(&self, stream: u32) -> Random {
        Random { seed: self.seed, counter: [0, self.element, self.epoch, stream], words: [0; 4], left: 0 }
    }
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    seed: [u32; 2],
    counter: [u32; 4],
    words: [u32; 4],
    left: usize,
}

impl Random {
    fn word(&mut self) -> u32 {
        if self.left == 0 {
            self.words = philox::philox(self.counter, self.seed);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.left = 4;
        }
        self.left -= 1;
        self.words[3 - self.left]
    }

    /// In [0, 1).
    pub fn uniform(&mut self) -> f32 {
        philox::unit(self.word())
    }

    /// In [lo, hi).
    pub fn range(&mut self, lo: f32, hi: f32) -> f32 {
        lo + (hi - lo) * self.uniform()
    }

    /// In 0..n.
    pub fn below(&mut self, n: u32) -> u32 {
        ((self.word() as u64 * n as u64) >> 32) as u32
    }

    /// Of a standard normal distribution.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (self.word() as f64 + 1.0).ln() + 2.0 * 4_294_967_296f64.ln()).sqrt();
        let angle = std::f64::consts::TAU * (self.word() as f64 / 4_294_967_296.0);
        (radius * angle.cos()) as f32
    }
}
