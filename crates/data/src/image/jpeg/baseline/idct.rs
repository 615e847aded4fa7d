//! The inverse discrete cosine transform (IDCT) of a block, in f32: over the columns, then transposed over the rows.
//! Without fused operations, so that every machine has the same bits.

use crate::simd::F32x4;

/// 64 dequantized coefficients, column by column.
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

/// The samples of a block, written to rows of `stride` bytes.
#[inline(always)]
pub(super) fn idct(block: &Block, out: &mut [u8], stride: usize) {
    let (quads, _) = block.as_chunks::<4>();
    let (mut first, mut second) = ([F32x4::splat(0.0); 8], [F32x4::splat(0.0); 8]);
    for k in 0..8 {
        (first[k], second[k]) = (F32x4::load(&quads[2 * k]), F32x4::load(&quads[2 * k + 1]));
    }
    let (upper, lower) = (transposed_halves(idct_columns(first)), transposed_halves(idct_columns(second)));
    let (left, right) = (idct_columns(concat(upper[0], lower[0])), idct_columns(concat(upper[1], lower[1])));
    for ((left, right), out) in left.iter().zip(&right).zip(out.chunks_mut(stride)) {
        // The level shift: samples are coded about the middle of their range.
        out[..4].copy_from_slice(&left.add(F32x4::splat(128.0)).to_u8());
        out[4..8].copy_from_slice(&right.add(F32x4::splat(128.0)).to_u8());
    }
}

/// Eight rows of four as columns: their first halves and their second.
#[inline(always)]
fn transposed_halves([a, b, c, d, e, f, g, h]: [F32x4; 8]) -> [[F32x4; 4]; 2] {
    [F32x4::transpose([a, b, c, d]), F32x4::transpose([e, f, g, h])]
}

#[inline(always)]
fn concat([a, b, c, d]: [F32x4; 4], [e, f, g, h]: [F32x4; 4]) -> [F32x4; 8] {
    [a, b, c, d, e, f, g, h]
}

/// A block whose AC coefficients are all zero: every sample is its mean.
#[inline(always)]
pub(super) fn idct_dc_only(dc: f32, out: &mut [u8], stride: usize) {
    let value = ((dc * 0.125 + 128.0).clamp(0.0, 255.0) + 12_582_912.0).to_bits() as u8;
    for row in out.chunks_mut(stride).take(8) {
        row[..8].fill(value);
    }
}

/// The transform of four columns: what the even frequencies give is symmetric about the middle, the odd ones add to one
/// half what they take from the other.
#[inline(always)]
fn idct_columns(rows: [F32x4; 8]) -> [F32x4; 8] {
    let mut out = rows;
    for y in 0..4 {
        let (even, odd) = (half_sum::<0>(&rows, y), half_sum::<1>(&rows, y));
        out[y] = even.add(odd);
        out[7 - y] = even.sub(odd);
    }
    out
}

/// The sum over every second frequency: the even ones or the odd ones.
#[inline(always)]
fn half_sum<const FROM: usize>(rows: &[F32x4; 8], y: usize) -> F32x4 {
    let one = |k: usize| rows[k].mul(F32x4::splat(BASIS[k][y]));
    one(FROM).add(one(FROM + 2)).add(one(FROM + 4).add(one(FROM + 6)))
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
        idct(&columns, &mut out, 8);
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
        idct_dc_only(block[0], &mut mean, 8);
        idct(&std::array::from_fn(|i| if i == 0 { block[0] } else { 0.0 }), &mut out, 8);
        assert_eq!(mean, out);
    }
}
