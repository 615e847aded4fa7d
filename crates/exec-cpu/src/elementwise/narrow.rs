//! Between f32 and the floats of 16 bits, sixteen at a time: integer arithmetic without branches, which the compiler
//! vectorises for every instruction set. To nearest, ties to even; what is too large for f16 becomes infinite, and a NaN
//! stays one.

use super::lanes::{W, by_vectors, load, map1, store};
use crate::isa::simd;

const SIGN: u32 = 0x8000_0000;
/// The exponent bits of f32: infinity, and every NaN is above.
const INFINITE: u32 = 0x7f80_0000;

#[inline(always)]
pub(super) fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits((h as u32) << 16)
}

#[inline(always)]
pub(super) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let odd = bits >> 16 & 1;
    let rounded = bits.wrapping_add(0x7fff + odd) >> 16;
    // The quiet bit keeps a NaN whose other bits are all cut off.
    let nan = bits >> 16 | 0x40;
    (if bits & !SIGN > INFINITE { nan } else { rounded }) as u16
}

/// The exponents of f16 and f32 differ by 112.
const BIAS: u32 = 112 << 23;
/// 2⁻¹⁴ in f32: the smallest f16 that is not subnormal.
const SMALLEST_NORMAL: u32 = 113 << 23;

#[inline(always)]
pub(super) fn f16_to_f32(h: u16) -> f32 {
    let sign = (h as u32 & 0x8000) << 16;
    let magnitude = (h as u32 & 0x7fff) << 13;
    let normal = magnitude + BIAS;
    // The fraction of a subnormal counts steps of 2⁻²⁴: put behind a leading 1, which is then taken away.
    let subnormal = (f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL)).to_bits();
    let infinite = magnitude + BIAS + BIAS;
    let bits = if magnitude < 0x400 << 13 { subnormal } else { normal };
    let bits = if magnitude >= 0x7c00 << 13 { infinite } else { bits };
    f32::from_bits(bits | sign)
}

#[inline(always)]
pub(super) fn f32_to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() & SIGN) >> 16;
    let magnitude = x.to_bits() & !SIGN;
    let odd = magnitude >> 13 & 1;
    // What rounds up beyond the largest f16 carries into the exponent of infinity.
    let normal = magnitude.wrapping_sub(BIAS).wrapping_add(0xfff + odd) >> 13;
    // Next to a half, an f32 has steps of 2⁻²⁴: adding one rounds to a subnormal f16.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = 0x7e00 | magnitude >> 13 & 0x3ff;
    let bits = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
    // 65520 and above.
    let bits = if magnitude >= 0x477f_f000 { 0x7c00 } else { bits };
    let bits = if magnitude > INFINITE { nan } else { bits };
    (bits | sign) as u16
}

simd! {
    pub(super) fn widen_bf16<FMA>(isa, x: &[u16], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        // SAFETY: both slices have as many elements, and do not overlap.
        unsafe { map1!(x.as_ptr(), y.as_mut_ptr(), x.len(), |x| bf16_to_f32(x)) }
    }
}

simd! {
    pub(super) fn narrow_bf16<FMA>(isa, x: &[f32], y: &mut [u16]) {
        assert_eq!(x.len(), y.len());
        // SAFETY: both slices have as many elements, and do not overlap.
        unsafe { map1!(x.as_ptr(), y.as_mut_ptr(), x.len(), |x| f32_to_bf16(x)) }
    }
}

simd! {
    /// To what the type can hold.
    pub(super) fn round_bf16<FMA>(isa, x: &mut [f32]) {
        let (start, n) = (x.as_mut_ptr(), x.len());
        // SAFETY: the slice has n elements, and results lie where their inputs lay.
        unsafe { map1!(start.cast_const(), start, n, |x| bf16_to_f32(f32_to_bf16(x))) }
    }
}

simd! {
    pub(super) fn widen_f16<FMA>(isa, x: &[u16], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        // SAFETY: both slices have as many elements, and do not overlap.
        unsafe { map1!(x.as_ptr(), y.as_mut_ptr(), x.len(), |x| f16_to_f32(x)) }
    }
}

simd! {
    pub(super) fn narrow_f16<FMA>(isa, x: &[f32], y: &mut [u16]) {
        assert_eq!(x.len(), y.len());
        // SAFETY: both slices have as many elements, and do not overlap.
        unsafe { map1!(x.as_ptr(), y.as_mut_ptr(), x.len(), |x| f32_to_f16(x)) }
    }
}

simd! {
    /// To what the type can hold.
    pub(super) fn round_f16<FMA>(isa, x: &mut [f32]) {
        let (start, n) = (x.as_mut_ptr(), x.len());
        // SAFETY: the slice has n elements, and results lie where their inputs lay.
        unsafe { map1!(start.cast_const(), start, n, |x| f16_to_f32(f32_to_f16(x))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    /// Every 16 bits, to f32 and back.
    #[test]
    fn all_of_16_bits_are_exact_in_f32() {
        for h in 0..=u16::MAX {
            let (b, f) = (half::bf16::from_bits(h), half::f16::from_bits(h));
            if b.is_nan() {
                assert!(bf16_to_f32(h).is_nan());
                assert!(half::bf16::from_bits(f32_to_bf16(bf16_to_f32(h))).is_nan());
            } else {
                assert_eq!(bf16_to_f32(h).to_bits(), b.to_f32().to_bits(), "{h:#x}");
                assert_eq!(f32_to_bf16(bf16_to_f32(h)), h);
            }
            if f.is_nan() {
                assert!(f16_to_f32(h).is_nan());
                assert!(half::f16::from_bits(f32_to_f16(f16_to_f32(h))).is_nan());
            } else {
                assert_eq!(f16_to_f32(h).to_bits(), f.to_f32().to_bits(), "{h:#x}");
                assert_eq!(f32_to_f16(f16_to_f32(h)), h);
            }
        }
    }

    /// Numbers around every f16 and bf16 and halfway between them, and a walk through all of f32, as long vectors on every
    /// instruction set.
    #[test]
    fn rounds_to_nearest_even() {
        let near =
            |x: f32| [-1i64, 0, 1].map(|d| f32::from_bits((x.to_bits() as i64 + d).clamp(0, u32::MAX as i64) as u32));
        let mut numbers: Vec<f32> = (0..u32::MAX).step_by(65_521 / 3).map(f32::from_bits).collect();
        for h in 0..=u16::MAX {
            let halfway = f32::from_bits((h as u32) << 16 | 0x8000);
            let (a, b) = (half::f16::from_bits(h).to_f64(), half::f16::from_bits(h.wrapping_add(1)).to_f64());
            numbers.extend(near(halfway));
            numbers.extend(near(((a + b) / 2.0) as f32));
        }
        let n = numbers.len();
        for isa in Isa::available() {
            let (mut f, mut b) = (vec![0u16; n], vec![0u16; n]);
            narrow_f16(isa, &numbers, &mut f);
            narrow_bf16(isa, &numbers, &mut b);
            let (mut rounded_f, mut rounded_b) = (numbers.clone(), numbers.clone());
            round_f16(isa, &mut rounded_f);
            round_bf16(isa, &mut rounded_b);
            for (i, &x) in numbers.iter().enumerate() {
                let (want_f, want_b) = (half::f16::from_f32_const(x), half::bf16::from_f32(x));
                if x.is_nan() {
                    assert!(half::f16::from_bits(f[i]).is_nan() && half::bf16::from_bits(b[i]).is_nan());
                    continue;
                }
                assert_eq!(f[i], want_f.to_bits(), "{x:e} to f16 on {}", isa.name());
                assert_eq!(b[i], want_b.to_bits(), "{x:e} to bf16 on {}", isa.name());
                assert_eq!(rounded_f[i].to_bits(), want_f.to_f32().to_bits());
                assert_eq!(rounded_b[i].to_bits(), want_b.to_f32().to_bits());
            }
        }
        assert_eq!(f32_to_f16(65520.0), 0x7c00, "too large is infinite");
        assert_eq!(f32_to_f16(-65519.0), 0xfbff, "the largest");
    }
}
