//! The inverse cosine transform of a block, in f32: down the columns, with rows and columns exchanged, and again.
//! Without fused operations, so that every machine has the same bits.

use crate::simd::Four;

/// 64 coefficients by columns, each multiplied with its quantiser.
pub(super) type Block = [f32; 64];

/// BASIS[k][x] = c(k) ÷ 2 · cos((2x + 1) k π ÷ 16), with c(0) = √½.
static BASIS: [[f32; 8]; 8] = {
    const A: f32 = 0.353_553_39;
    const B: f32 = 0.490_392_64;
    const C: f32 = 0.461_939_77;
    const D: f32 = 0.415_734_8;
    const E: f32 = 0.277_785_12;
    const F: f32 = 0.191_341_72;
    const G: f32 = 0.097_545_16;
    [
        [A, A, A, A, A, A, A, A],
        [B, D, E, G, -G, -E, -D, -B],
        [C, F, -F, -C, -C, -F, F, C],
        [D, -G, -B, -E, E, B, G, -D],
        [A, -A, -A, A, A, -A, -A, A],
        [E, -B, G, D, -D, -G, B, -E],
        [F, -C, C, -F, -F, C, -C, F],
        [G, -E, D, -B, B, -D, E, -G],
    ]
};

/// The pixels of a block, written to rows of `stride` bytes.
#[inline(always)]
pub(super) fn inverse(block: &Block, out: &mut [u8], stride: usize) {
    let (quads, _) = block.as_chunks::<4>();
    let (mut first, mut second) = ([Four::all(0.0); 8], [Four::all(0.0); 8]);
    for k in 0..8 {
        (first[k], second[k]) = (Four::new(&quads[2 * k]), Four::new(&quads[2 * k + 1]));
    }
    let (upper, lower) = (turned(down(first)), turned(down(second)));
    let (left, right) = (down(joined(upper[0], lower[0])), down(joined(upper[1], lower[1])));
    for ((left, right), out) in left.iter().zip(&right).zip(out.chunks_mut(stride)) {
        // What is added is the middle of the range.
        out[..4].copy_from_slice(&left.plus(Four::all(128.0)).bytes());
        out[4..8].copy_from_slice(&right.plus(Four::all(128.0)).bytes());
    }
}

/// Eight rows of four as columns: their first halves and their second.
#[inline(always)]
fn turned([a, b, c, d, e, f, g, h]: [Four; 8]) -> [[Four; 4]; 2] {
    [Four::transposed([a, b, c, d]), Four::transposed([e, f, g, h])]
}

#[inline(always)]
fn joined([a, b, c, d]: [Four; 4], [e, f, g, h]: [Four; 4]) -> [Four; 8] {
    [a, b, c, d, e, f, g, h]
}

/// A block that is nothing but its mean.
#[inline(always)]
pub(super) fn flat(first: f32, out: &mut [u8], stride: usize) {
    let value = ((first * 0.125 + 128.0).clamp(0.0, 255.0) + 12_582_912.0).to_bits() as u8;
    for row in out.chunks_mut(stride).take(8) {
        row[..8].fill(value);
    }
}

/// The transform down four columns: what is symmetric about the middle, plus or minus what is not.
#[inline(always)]
fn down(rows: [Four; 8]) -> [Four; 8] {
    let mut out = rows;
    for y in 0..4 {
        let (even, odd) = (part::<0>(&rows, y), part::<1>(&rows, y));
        out[y] = even.plus(odd);
        out[7 - y] = even.minus(odd);
    }
    out
}

/// The sum over every second frequency.
#[inline(always)]
fn part<const FROM: usize>(rows: &[Four; 8], y: usize) -> Four {
    let one = |k: usize| rows[k].times(Four::all(BASIS[k][y]));
    one(FROM).plus(one(FROM + 2)).plus(one(FROM + 4).plus(one(FROM + 6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_transform_of_the_standard() {
        let mut block = [0f32; 64];
        for (i, v) in block.iter_mut().enumerate() {
            *v = ((i * 37 % 41) as f32 - 20.0) * 3.0 / (1.0 + i as f32 / 8.0);
        }
        let mut out = [0u8; 64];
        let columns = std::array::from_fn(|i| block[i % 8 * 8 + i / 8]);
        inverse(&columns, &mut out, 8);
        let scale = |k: usize| if k == 0 { 0.5f64.sqrt() } else { 1.0 };
        let cosine = |x: usize, k: usize| ((2 * x + 1) as f64 * k as f64 * std::f64::consts::PI / 16.0).cos();
        for (i, got) in out.iter().enumerate() {
            let (y, x) = (i / 8, i % 8);
            let sum: f64 = (0..64)
                .map(|j| scale(j / 8) * scale(j % 8) / 4.0 * block[j] as f64 * cosine(y, j / 8) * cosine(x, j % 8))
                .sum();
            assert!((*got as f64 - (sum + 128.0).clamp(0.0, 255.0)).abs() <= 0.501, "{y} {x}: {got}, not {sum}");
        }
        let mut mean = [0u8; 64];
        flat(block[0], &mut mean, 8);
        inverse(&std::array::from_fn(|i| if i == 0 { block[0] } else { 0.0 }), &mut out, 8);
        assert_eq!(mean, out);
    }
}
