//! A register of floats, for what is written by hand: the micro-kernels of the GEMM, the transforms of Winograd's
//! convolutions and depthwise convolutions.
//!
//! Whoever makes a register promises that its instruction set is available; what is computed from one needs no further
//! promise, since it exists.

/// A vector register of an instruction set.
///
/// # Safety
/// `load` and `store` touch `WIDTH` elements and no others; `load_first` and `store_first` at most the first `n` of them.
/// There is no way to a value but through the unsafe functions and through other values.
pub(crate) unsafe trait Vector: Copy {
    /// Elements of a register.
    const WIDTH: usize;

    /// # Safety
    /// The instruction set is available.
    unsafe fn zero() -> Self;

    /// The element at `x` everywhere.
    ///
    /// # Safety
    /// The instruction set is available, and `x` can be read.
    unsafe fn splat(x: *const f32) -> Self;

    /// # Safety
    /// The instruction set is available, and `WIDTH` elements can be read from `p` on.
    unsafe fn load(p: *const f32) -> Self;

    /// The first `n` elements; zero in the others.
    ///
    /// # Safety
    /// The instruction set is available, and the lesser of `n` and `WIDTH` elements can be read from `p` on.
    unsafe fn load_first(p: *const f32, n: usize) -> Self;

    /// # Safety
    /// `WIDTH` elements can be written from `p` on.
    unsafe fn store(self, p: *mut f32);

    /// The first `n` elements.
    ///
    /// # Safety
    /// The lesser of `n` and `WIDTH` elements can be written from `p` on.
    unsafe fn store_first(self, p: *mut f32, n: usize);

    /// self + a·b
    fn fma(self, a: Self, b: Self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    /// The first halves of both, element by element in turns, and the second halves.
    fn interleave(self, other: Self) -> [Self; 2];

    /// Prefetches the cache line at `p`, which need not be valid.
    #[inline(always)]
    fn prefetch(_p: *const f32) {}
}

/// `left` elements, or a whole register.
///
/// # Safety
/// The instruction set is available, and the lesser of `left` and a register's elements can be read from `p` on.
#[inline(always)]
pub(crate) unsafe fn load<V: Vector>(p: *const f32, left: usize) -> V {
    // SAFETY: where `left` covers a register the whole of it can be read, else `left` elements: the caller's promise.
    unsafe { if left >= V::WIDTH { V::load(p) } else { V::load_first(p, left) } }
}

/// `left` elements, or a whole register.
///
/// # Safety
/// The lesser of `left` and a register's elements can be written from `p` on.
#[inline(always)]
pub(crate) unsafe fn store<V: Vector>(v: V, p: *mut f32, left: usize) {
    // SAFETY: where `left` covers a register the whole of it can be written, else `left` elements: the caller's promise.
    unsafe { if left >= V::WIDTH { v.store(p) } else { v.store_first(p, left) } }
}

/// x ÷ 2
#[inline(always)]
pub(crate) fn half<V: Vector>(x: V) -> V {
    // SAFETY: there is a register of this kind, so its instruction set is available; the constant can be read.
    unsafe { V::zero().fma(V::splat(&0.5), x) }
}

/// −x, as 0 − x: a zero stays positive.
#[inline(always)]
pub(crate) fn negated<V: Vector>(x: V) -> V {
    // SAFETY: there is a register of this kind, so its instruction set is available.
    unsafe { V::zero() }.sub(x)
}

/// Row `i` of columns.
#[inline(always)]
pub(crate) fn across<V: Copy, const N: usize, const M: usize>(columns: &[[V; N]; M], i: usize) -> [V; M] {
    std::array::from_fn(|j| columns[j][i])
}

/// Plain arrays: what the compiler's baseline makes of them.
#[derive(Clone, Copy)]
pub(crate) struct Plain<const N: usize>([f32; N]);

// SAFETY: a register is an array of N elements, read and written as such.
unsafe impl<const N: usize> Vector for Plain<N> {
    const WIDTH: usize = N;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Plain([0.0; N])
    }

    #[inline(always)]
    unsafe fn splat(x: *const f32) -> Self {
        // SAFETY: the caller promises that x can be read.
        Plain([unsafe { *x }; N])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller promises N elements.
        Plain(unsafe { p.cast::<[f32; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self {
        let mut v = [0.0; N];
        // SAFETY: the caller promises as many elements, and the array has N.
        unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n.min(N)) };
        Plain(v)
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises room for N elements.
        unsafe { p.cast::<[f32; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize) {
        // SAFETY: the caller promises room for as many elements, and the array has N.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), p, n.min(N)) };
    }

    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        Plain(std::array::from_fn(|i| crate::isa::fma::<{ cfg!(target_arch = "aarch64") }>(a.0[i], b.0[i], self.0[i])))
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] - other.0[i]))
    }

    #[inline(always)]
    fn interleave(self, other: Self) -> [Self; 2] {
        let half = |at: usize| Plain(std::array::from_fn(|i| [self.0, other.0][i % 2][at + i / 2]));
        [half(0), half(N / 2)]
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{V256, V512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    /// A register of AVX-512.
    #[derive(Clone, Copy)]
    pub(crate) struct V512(__m512);

    // SAFETY: loads and stores are of one register or masked to its first elements; the field is private.
    unsafe impl Vector for V512 {
        const WIDTH: usize = 16;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller promises AVX-512.
            unsafe { V512(_mm512_setzero_ps()) }
        }

        #[inline(always)]
        unsafe fn splat(x: *const f32) -> Self {
            // SAFETY: the caller promises AVX-512, and that x can be read.
            unsafe { V512(_mm512_set1_ps(*x)) }
        }

        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            // SAFETY: the caller promises AVX-512 and 16 elements.
            unsafe { V512(_mm512_loadu_ps(p)) }
        }

        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> Self {
            // SAFETY: the caller promises AVX-512 and n elements; those that are masked out are not touched.
            unsafe { V512(_mm512_maskz_loadu_ps(mask(n), p)) }
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            // SAFETY: the caller promises room for 16 elements; self exists, so AVX-512 is available.
            unsafe { _mm512_storeu_ps(p, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, p: *mut f32, n: usize) {
            // SAFETY: the caller promises room for n elements, and those that are masked out are not touched; self exists,
            // so AVX-512 is available.
            unsafe { _mm512_mask_storeu_ps(p, mask(n), self.0) }
        }

        #[inline(always)]
        fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: self exists, so AVX-512 is available.
            unsafe { V512(_mm512_fmadd_ps(a.0, b.0, self.0)) }
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: self exists, so AVX-512 is available.
            unsafe { V512(_mm512_add_ps(self.0, other.0)) }
        }

        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            // SAFETY: self exists, so AVX-512 is available.
            unsafe { V512(_mm512_sub_ps(self.0, other.0)) }
        }

        #[inline(always)]
        fn interleave(self, other: Self) -> [Self; 2] {
            // SAFETY: self exists, so AVX-512 is available.
            unsafe {
                let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
                [low, high].map(|order| V512(_mm512_permutex2var_ps(self.0, order, other.0)))
            }
        }

        #[inline(always)]
        fn prefetch(p: *const f32) {
            // SAFETY: a hint reads nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
    }

    #[inline(always)]
    fn mask(n: usize) -> u16 {
        if n >= 16 { u16::MAX } else { (1u16 << n) - 1 }
    }

    /// A register of AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct V256(__m256);

    // SAFETY: loads and stores are of one register or masked to its first elements; the field is private.
    unsafe impl Vector for V256 {
        const WIDTH: usize = 8;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller promises AVX2.
            unsafe { V256(_mm256_setzero_ps()) }
        }

        #[inline(always)]
        unsafe fn splat(x: *const f32) -> Self {
            // SAFETY: the caller promises AVX2, and that x can be read.
            unsafe { V256(_mm256_broadcast_ss(&*x)) }
        }

        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            // SAFETY: the caller promises AVX2 and 8 elements.
            unsafe { V256(_mm256_loadu_ps(p)) }
        }

        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> Self {
            // SAFETY: the caller promises AVX2 and n elements; those that are masked out are not touched.
            unsafe { V256(_mm256_maskload_ps(p, lanes(n))) }
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            // SAFETY: the caller promises room for 8 elements; self exists, so AVX2 is available.
            unsafe { _mm256_storeu_ps(p, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, p: *mut f32, n: usize) {
            // SAFETY: the caller promises room for n elements, and those that are masked out are not touched; self exists,
            // so AVX2 is available.
            unsafe { _mm256_maskstore_ps(p, lanes(n), self.0) }
        }

        #[inline(always)]
        fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: self exists, so AVX2 and FMA are available.
            unsafe { V256(_mm256_fmadd_ps(a.0, b.0, self.0)) }
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: self exists, so AVX2 is available.
            unsafe { V256(_mm256_add_ps(self.0, other.0)) }
        }

        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            // SAFETY: self exists, so AVX2 is available.
            unsafe { V256(_mm256_sub_ps(self.0, other.0)) }
        }

        #[inline(always)]
        fn interleave(self, other: Self) -> [Self; 2] {
            // SAFETY: self exists, so AVX2 is available.
            unsafe {
                let (even, odd) = (_mm256_unpacklo_ps(self.0, other.0), _mm256_unpackhi_ps(self.0, other.0));
                [V256(_mm256_permute2f128_ps::<0x20>(even, odd)), V256(_mm256_permute2f128_ps::<0x31>(even, odd))]
            }
        }

        #[inline(always)]
        fn prefetch(p: *const f32) {
            // SAFETY: a hint reads nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
    }

    /// The first `n` lanes.
    ///
    /// # Safety
    /// AVX is available.
    #[inline(always)]
    unsafe fn lanes(n: usize) -> __m256i {
        const BITS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: at most 8 elements are skipped, which leaves 8 to load; the caller promises AVX.
        unsafe { _mm256_loadu_si256(BITS.as_ptr().add(8 - n.min(8)).cast()) }
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) use arm::V128;

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::Vector;
    use std::arch::aarch64::*;

    /// A register of NEON, which is part of the baseline of 64-bit ARM.
    #[derive(Clone, Copy)]
    pub(crate) struct V128(float32x4_t);

    // SAFETY: loads and stores are of one register, or of an array that holds its first elements; the field is private.
    unsafe impl Vector for V128 {
        const WIDTH: usize = 4;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: NEON is part of the baseline.
            unsafe { V128(vdupq_n_f32(0.0)) }
        }

        #[inline(always)]
        unsafe fn splat(x: *const f32) -> Self {
            // SAFETY: the caller promises that x can be read.
            unsafe { V128(vld1q_dup_f32(x)) }
        }

        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            // SAFETY: the caller promises 4 elements.
            unsafe { V128(vld1q_f32(p)) }
        }

        #[inline(always)]
        unsafe fn load_first(p: *const f32, n: usize) -> Self {
            let mut v = [0.0; 4];
            // SAFETY: the caller promises as many elements, and the array has 4.
            unsafe {
                std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n.min(4));
                V128(vld1q_f32(v.as_ptr()))
            }
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            // SAFETY: the caller promises room for 4 elements.
            unsafe { vst1q_f32(p, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, p: *mut f32, n: usize) {
            let mut v = [0.0; 4];
            // SAFETY: the caller promises room for as many elements, and the array has 4.
            unsafe {
                vst1q_f32(v.as_mut_ptr(), self.0);
                std::ptr::copy_nonoverlapping(v.as_ptr(), p, n.min(4));
            }
        }

        #[inline(always)]
        fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: NEON is part of the baseline.
            unsafe { V128(vfmaq_f32(self.0, a.0, b.0)) }
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: NEON is part of the baseline.
            unsafe { V128(vaddq_f32(self.0, other.0)) }
        }

        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            // SAFETY: NEON is part of the baseline.
            unsafe { V128(vsubq_f32(self.0, other.0)) }
        }

        #[inline(always)]
        fn interleave(self, other: Self) -> [Self; 2] {
            // SAFETY: NEON is part of the baseline.
            unsafe { [V128(vzip1q_f32(self.0, other.0)), V128(vzip2q_f32(self.0, other.0))] }
        }
    }
}
