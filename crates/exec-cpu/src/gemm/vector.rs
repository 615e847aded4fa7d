//! A register of floats, for what is written by hand: the inner loop of the GEMM, and the transforms of Winograd's
//! convolutions.

/// A vector register of an instruction set.
///
/// # Safety
/// Methods may only be called where the instruction set is available, and pointers must be valid for the elements named.
pub unsafe trait Vector: Copy {
    const WIDTH: usize;

    unsafe fn zero() -> Self;
    unsafe fn splat(x: *const f32) -> Self;
    unsafe fn load(p: *const f32) -> Self;
    unsafe fn store(self, p: *mut f32);
    /// The first `n` elements; zero in the others.
    unsafe fn load_first(p: *const f32, n: usize) -> Self;
    unsafe fn store_first(self, p: *mut f32, n: usize);
    /// self + a·b
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    /// The first halves of both, element by element in turns, and the second halves.
    unsafe fn interleave(self, other: Self) -> [Self; 2];
    unsafe fn sub(self, other: Self) -> Self;
    /// Asks for the cache line at `p`, which need not be valid.
    #[inline(always)]
    fn prefetch(_p: *const f32) {}
}

/// Plain arrays: what the compiler's baseline makes of them.
#[derive(Clone, Copy)]
pub struct Plain<const N: usize>([f32; N]);

// SAFETY: no instruction set is assumed.
unsafe impl<const N: usize> Vector for Plain<N> {
    const WIDTH: usize = N;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Plain([0.0; N])
    }

    #[inline(always)]
    unsafe fn splat(x: *const f32) -> Self {
        // SAFETY: by the caller's promise.
        Plain([unsafe { *x }; N])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: by the caller's promise.
        Plain(unsafe { p.cast::<[f32; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: by the caller's promise.
        unsafe { p.cast::<[f32; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self {
        let mut v = [0.0; N];
        // SAFETY: by the caller's promise for n elements.
        unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n.min(N)) };
        Plain(v)
    }

    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize) {
        // SAFETY: by the caller's promise for n elements.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), p, n.min(N)) };
    }

    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        Plain(std::array::from_fn(|i| crate::isa::fma::<{ cfg!(target_arch = "aarch64") }>(a.0[i], b.0[i], self.0[i])))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }

    #[inline(always)]
    unsafe fn interleave(self, other: Self) -> [Self; 2] {
        let half = |at: usize| Plain(std::array::from_fn(|i| [self.0, other.0][i % 2][at + i / 2]));
        [half(0), half(N / 2)]
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] - other.0[i]))
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{V256, V512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub struct V512(__m512);

    // SAFETY: every method needs AVX-512 F, as the trait's contract says.
    #[allow(clippy::undocumented_unsafe_blocks)]
    unsafe impl Vector for V512 {
        const WIDTH: usize = 16;

        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { V512(_mm512_setzero_ps()) }
        }
        #[inline(always)]
        unsafe fn splat(x: *const f32) -> Self {
            unsafe { V512(_mm512_set1_ps(*x)) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            unsafe { V512(_mm512_loadu_ps(p)) }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            unsafe { _mm512_storeu_ps(p, self.0) }
        }
        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> Self {
            unsafe { V512(_mm512_maskz_loadu_ps(mask(n), p)) }
        }
        #[inline(always)]
        unsafe fn store_first(self, p: *mut f32, n: usize) {
            unsafe { _mm512_mask_storeu_ps(p, mask(n), self.0) }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            unsafe { V512(_mm512_fmadd_ps(a.0, b.0, self.0)) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { V512(_mm512_add_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn interleave(self, other: Self) -> [Self; 2] {
            unsafe {
                let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
                [low, high].map(|order| V512(_mm512_permutex2var_ps(self.0, order, other.0)))
            }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { V512(_mm512_sub_ps(self.0, other.0)) }
        }
        #[inline(always)]
        fn prefetch(p: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
    }

    #[inline(always)]
    fn mask(n: usize) -> u16 {
        if n >= 16 { u16::MAX } else { (1u16 << n) - 1 }
    }

    #[derive(Clone, Copy)]
    pub struct V256(__m256);

    // SAFETY: every method needs AVX2 and FMA, as the trait's contract says.
    #[allow(clippy::undocumented_unsafe_blocks)]
    unsafe impl Vector for V256 {
        const WIDTH: usize = 8;

        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { V256(_mm256_setzero_ps()) }
        }
        #[inline(always)]
        unsafe fn splat(x: *const f32) -> Self {
            unsafe { V256(_mm256_broadcast_ss(&*x)) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            unsafe { V256(_mm256_loadu_ps(p)) }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            unsafe { _mm256_storeu_ps(p, self.0) }
        }
        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> Self {
            unsafe { V256(_mm256_maskload_ps(p, lanes(n))) }
        }
        #[inline(always)]
        unsafe fn store_first(self, p: *mut f32, n: usize) {
            unsafe { _mm256_maskstore_ps(p, lanes(n), self.0) }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            unsafe { V256(_mm256_fmadd_ps(a.0, b.0, self.0)) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { V256(_mm256_add_ps(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn interleave(self, other: Self) -> [Self; 2] {
            unsafe {
                let (even, odd) = (_mm256_unpacklo_ps(self.0, other.0), _mm256_unpackhi_ps(self.0, other.0));
                [V256(_mm256_permute2f128_ps::<0x20>(even, odd)), V256(_mm256_permute2f128_ps::<0x31>(even, odd))]
            }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { V256(_mm256_sub_ps(self.0, other.0)) }
        }
        #[inline(always)]
        fn prefetch(p: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
    }

    #[inline(always)]
    unsafe fn lanes(n: usize) -> __m256i {
        const BITS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: n ≤ 8 leaves at least 8 numbers behind the start.
        unsafe { _mm256_loadu_si256(BITS.as_ptr().add(8 - n.min(8)).cast()) }
    }
}

#[cfg(target_arch = "aarch64")]
pub use arm::V128;

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::Vector;
    use std::arch::aarch64::*;

    #[derive(Clone, Copy)]
    pub struct V128(float32x4_t);

    // SAFETY: NEON is part of the baseline of 64-bit ARM.
    #[allow(clippy::undocumented_unsafe_blocks)]
    unsafe impl Vector for V128 {
        const WIDTH: usize = 4;

        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { V128(vdupq_n_f32(0.0)) }
        }
        #[inline(always)]
        unsafe fn splat(x: *const f32) -> Self {
            unsafe { V128(vld1q_dup_f32(x)) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            unsafe { V128(vld1q_f32(p)) }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            unsafe { vst1q_f32(p, self.0) }
        }
        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> Self {
            let mut v = [0.0; 4];
            unsafe {
                std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n.min(4));
                V128(vld1q_f32(v.as_ptr()))
            }
        }
        #[inline(always)]
        unsafe fn store_first(self, p: *mut f32, n: usize) {
            let mut v = [0.0; 4];
            unsafe {
                vst1q_f32(v.as_mut_ptr(), self.0);
                std::ptr::copy_nonoverlapping(v.as_ptr(), p, n.min(4));
            }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            unsafe { V128(vfmaq_f32(self.0, a.0, b.0)) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { V128(vaddq_f32(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn interleave(self, other: Self) -> [Self; 2] {
            unsafe { [V128(vzip1q_f32(self.0, other.0)), V128(vzip2q_f32(self.0, other.0))] }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { V128(vsubq_f32(self.0, other.0)) }
        }
    }
}
