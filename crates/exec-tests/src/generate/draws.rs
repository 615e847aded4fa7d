//! Choices from a list of numbers.

use memfit_ir::{fingerprint, philox};

pub struct Draws {
    list: Vec<u32>,
    at: usize,
}

impl Draws {
    pub fn new(list: &[u32]) -> Draws {
        Draws { list: if list.is_empty() { vec![0] } else { list.to_vec() }, at: 0 }
    }

    pub fn draw(&mut self, below: usize) -> usize {
        let (round, at) = (self.at / self.list.len(), self.at % self.list.len());
        self.at += 1;
        // A list that is used again is shifted, so that a short one does not repeat itself.
        let word = self.list[at].wrapping_add((round as u32).wrapping_mul(0x9E37_79B9));
        ((u64::from(word) * below as u64) >> 32) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.draw(from.len())]
    }

    pub fn flip(&mut self) -> bool {
        self.draw(2) == 1
    }

    /// Once in `n`, but never for a draw of 0: an example shrinks towards what is usual.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.draw(n) == n - 1
    }
}

/// A list like any other, the same for the same number and name.
pub fn numbered(number: u32, name: &str) -> Vec<u32> {
    let key = fingerprint(name);
    (0..24).flat_map(|i| philox::philox([i, number, 0, 0], [key as u32, (key >> 32) as u32])).collect()
}
