//! Masks: from lanes to bits, and gradients by bits. A register of bits holds them as memory does, eight to a byte.

use memfit_ir::op::Unary;

use super::lanes::{W, by_vectors, load, store};
use crate::isa::{Isa, simd};

/// The bit that the gradient of u reads of its output: whether that lies above 0 and below the limit, if there is one.
/// What is over in the last byte is 0.
///
/// # Safety
/// There are n lanes at `y`, and room for n bits at `bits`, which nobody else uses.
pub(super) unsafe fn mask(isa: Isa, u: Unary, y: *const f32, bits: *mut u8, n: usize) {
    let limit = match u {
        // Nothing reaches a NaN.
        Unary::Relu | Unary::LeakyRelu(_) => f32::NAN,
        Unary::Relu6 => 6.0,
        Unary::HardSigmoid => 1.0,
        u => unreachable!("{} has no mask", u.name()),
    };
    // SAFETY: lanes and room are as the caller promises; a kernel's `Isa` is one that `Isa::available` found on this machine.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::avx512(y, bits, n, limit),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::avx2(y, bits, n, limit),
            _ => pack::<Plain>(y, bits, n, limit),
        }
    }
}

/// How an instruction set compares 16 lanes: left to itself, the compiler takes them apart.
trait Words {
    /// Bit i is whether lane i is above 0 and does not reach the limit.
    ///
    /// # Safety
    /// The instruction set is available, and there are 16 lanes at `y`.
    unsafe fn word(y: *const f32, limit: f32) -> u16;
}

/// # Safety
/// As for [`mask`]; the instruction set of `I` is available.
#[inline(always)]
unsafe fn pack<I: Words>(y: *const f32, bits: *mut u8, n: usize, limit: f32) {
    // SAFETY: whole words of lanes end at n, and so do their bits; the rest goes through an array, and its bits fill the last bytes.
    unsafe {
        for at in (0..n - n % W).step_by(W) {
            bits.add(at / 8).cast::<[u8; 2]>().write(I::word(y.add(at), limit).to_le_bytes());
        }
        let (at, rest) = (n - n % W, n % W);
        if rest > 0 {
            // Lanes beyond the end are 0, whose bit is 0.
            let lanes: [f32; W] = load(y, at, n);
            let bytes = I::word(lanes.as_ptr(), limit).to_le_bytes();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), bits.add(at / 8), rest.div_ceil(8));
        }
    }
}

struct Plain;

impl Words for Plain {
    #[inline(always)]
    unsafe fn word(y: *const f32, limit: f32) -> u16 {
        let mut word = 0;
        for i in 0..W {
            // SAFETY: there are 16 lanes.
            let y = unsafe { *y.add(i) };
            // Not the same as y < limit, which nothing is below NaN.
            let reaches = y >= limit;
            word |= u16::from(y > 0.0 && !reaches) << i;
        }
        word
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Words, pack};

    struct Avx512;
    struct Avx2;

    impl Words for Avx512 {
        #[inline(always)]
        unsafe fn word(y: *const f32, limit: f32) -> u16 {
            // SAFETY: the caller promises AVX-512 and 16 lanes.
            unsafe {
                let y = _mm512_loadu_ps(y);
                let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(y, _mm512_setzero_ps());
                _mm512_mask_cmp_ps_mask::<_CMP_NGE_UQ>(above, y, _mm512_set1_ps(limit))
            }
        }
    }

    impl Words for Avx2 {
        #[inline(always)]
        unsafe fn word(y: *const f32, limit: f32) -> u16 {
            // SAFETY: the caller promises AVX2 and 16 lanes, of which each half reads 8.
            unsafe {
                let half = |at: usize| {
                    let y = _mm256_loadu_ps(y.add(at));
                    let above = _mm256_cmp_ps::<_CMP_GT_OQ>(y, _mm256_setzero_ps());
                    let below = _mm256_cmp_ps::<_CMP_NGE_UQ>(y, _mm256_set1_ps(limit));
                    _mm256_movemask_ps(_mm256_and_ps(above, below)) as u16
                };
                half(0) | half(8) << 8
            }
        }
    }

    /// # Safety
    /// As for [`super::mask`]; AVX-512 is available.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn avx512(y: *const f32, bits: *mut u8, n: usize, limit: f32) {
        // SAFETY: the caller promises lanes, room and instruction set.
        unsafe { pack::<Avx512>(y, bits, n, limit) }
    }

    /// # Safety
    /// As for [`super::mask`]; AVX2 is available.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(y: *const f32, bits: *mut u8, n: usize, limit: f32) {
        // SAFETY: the caller promises lanes, room and instruction set.
        unsafe { pack::<Avx2>(y, bits, n, limit) }
    }
}

/// `dx[i]` is what is made of `on` where the bit is set, else of `off`. A macro for the reason of the loops of [`super::lanes`].
macro_rules! map_masked {
    ($bits:expr, $dy:expr, $dx:expr, $n:expr, |$d:ident, $chosen:ident| $made:expr, $on:expr, $off:expr) => {{
        let (bits, dy, dx): (*const u8, *const f32, *mut f32) = ($bits, $dy, $dx);
        by_vectors!($n, |at, end| {
            let high = if end - at > 8 { *bits.add(at / 8 + 1) } else { 0 };
            let word = u32::from(u16::from_le_bytes([*bits.add(at / 8), high]));
            let d = load(dy, at, end);
            let mut r = [0f32; W];
            for i in 0..W {
                let $d = d[i];
                let $chosen = if word & (1 << i) != 0 { $on } else { $off };
                r[i] = $made;
            }
            store(dx, at, end, r);
        });
    }};
}

simd! {
    /// What [`super::lanes::unary_grad`] gives, from the bit instead of from the output.
    ///
    /// # Safety
    /// As for [`super::lanes::unary`], with n bits at `bits`.
    pub(super) unsafe fn mask_grad<FMA>(isa, u: Unary, bits: *const u8, dy: *const f32, dx: *mut f32, n: usize) {
        // SAFETY: loads and stores end at n, and the bytes of bits with them.
        unsafe {
            match u {
                Unary::Relu | Unary::Relu6 => map_masked!(bits, dy, dx, n, |d, chosen| chosen, d, 0.0),
                // As in `unary_grad`, where it says why.
                Unary::LeakyRelu(slope) => map_masked!(bits, dy, dx, n, |d, chosen| d * chosen, 1.0, slope),
                Unary::HardSigmoid => map_masked!(bits, dy, dx, n, |d, chosen| chosen, d * (1.0 / 6.0), 0.0),
                u => unreachable!("{} has no mask", u.name()),
            }
        }
    }
}
