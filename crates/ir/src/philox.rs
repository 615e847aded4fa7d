//! Philox 4×32-10, the counter-based generator behind every random number: the same counter and key give the same
//! bits on every thread, under every plan, whenever it is asked again.

use std::ops::Range;

use crate::hash::fingerprint;

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for a counter and a key.
#[inline(always)]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = counter[0] as u64 * MULTIPLIER[0] as u64;
        let b = counter[2] as u64 * MULTIPLIER[1] as u64;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A word as a number in [0, 1): 24 bits, exact in f32.
#[inline(always)]
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// The word that decides whether dropout keeps an element: keyed by (seed, stream, step, global sample, element).
#[inline(always)]
pub fn dropout_word(seed: [u32; 2], stream: u32, step: u32, sample: u32, element: u32) -> u32 {
    philox([element >> 2, sample, step, stream], seed)[(element & 3) as usize]
}

/// `count` numbers of a standard normal distribution (Box–Muller), keyed by seed and name.
pub fn normal(seed: u64, name: &str, count: usize) -> impl Iterator<Item = f32> {
    normal_at(seed, name, 0..count)
}

/// Some of these numbers.
pub fn normal_at(seed: u64, name: &str, range: Range<usize>) -> impl Iterator<Item = f32> {
    numbers(seed, name, range, |w| {
        let pair = |a: u32, b: u32| {
            let radius = (-2.0 * ((a as f64 + 1.0) / 4_294_967_296.0).ln()).sqrt();
            let angle = std::f64::consts::TAU * (b as f64 / 4_294_967_296.0);
            [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
        };
        let ([a, b], [c, d]) = (pair(w[0], w[1]), pair(w[2], w[3]));
        [a, b, c, d]
    })
}

/// `count` numbers in [−1, 1), keyed by seed and name.
pub fn uniform(seed: u64, name: &str, count: usize) -> impl Iterator<Item = f32> {
    uniform_at(seed, name, 0..count)
}

/// Some of these numbers.
pub fn uniform_at(seed: u64, name: &str, range: Range<usize>) -> impl Iterator<Item = f32> {
    numbers(seed, name, range, |w| w.map(|x| 2.0 * unit(x) - 1.0))
}

/// Four numbers of each block; those before the range are not made, but for the first of its first block.
fn numbers(
    seed: u64,
    name: &str,
    range: Range<usize>,
    four: impl Fn([u32; 4]) -> [f32; 4],
) -> impl Iterator<Item = f32> {
    let key = [seed as u32, (seed >> 32) as u32];
    // So that a tensor's initial values depend on its name and not on the order of building.
    let stream = fingerprint(name);
    let block = move |i: u64| philox([i as u32, (i >> 32) as u32, stream as u32, (stream >> 32) as u32], key);
    let blocks = (range.start / 4) as u64..range.end.div_ceil(4) as u64;
    blocks.flat_map(move |i| four(block(i))).skip(range.start % 4).take(range.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_numbers_is_that_part() {
        let all: (Vec<f32>, Vec<f32>) = (normal(7, "w", 40).collect(), uniform(7, "w", 40).collect());
        for range in [0..40, 0..0, 3..3, 1..2, 4..9, 7..40, 38..40] {
            assert!(normal_at(7, "w", range.clone()).eq(all.0[range.clone()].iter().copied()), "{range:?}");
            assert!(uniform_at(7, "w", range.clone()).eq(all.1[range.clone()].iter().copied()), "{range:?}");
        }
    }

    // The published known-answer vectors of Random123.
    #[test]
    fn matches_the_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn normal_has_mean_zero_and_deviation_one() {
        let v: Vec<f32> = normal(7, "w", 100_000).collect();
        let mean = v.iter().map(|&x| x as f64).sum::<f64>() / v.len() as f64;
        let var = v.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / v.len() as f64;
        assert!(mean.abs() < 0.02 && (var - 1.0).abs() < 0.02, "mean {mean}, variance {var}");
    }
}
