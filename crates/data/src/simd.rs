//! Loops for vector units. [`multiversion`] compiles a function twice: for what every machine has, and for AVX2 with BMI2.
//! [`F32x4`] is four numbers in a register, for loops that the compiler does not vectorise by itself. There is no FMA in
//! either and no sum is split differently, so all give the same bits.

/// Wraps functions whose loops the compiler vectorises. Helpers that the body calls must be `#[inline(always)]`.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($g:ident: $bound:path),*>)? ($($arg:ident: $ty:ty),* $(,)?)
     $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($g: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body $(<$($g: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                ///
                /// The machine must have AVX2 and BMI2.
                #[target_feature(enable = "avx2,bmi2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2 $(<$($g: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
                    // SAFETY: the machine has both, as was just found.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

pub(crate) use multiversion;

pub(crate) use f32x4::F32x4;

/// SSE2, which every x86-64 has.
#[cfg(target_arch = "x86_64")]
mod f32x4 {
    use std::arch::x86_64::*;

    /// Calls of SSE2's functions.
    macro_rules! sse {
        ($call:expr) => {
            // SAFETY: every x86-64 has SSE2, and none of these functions takes a pointer.
            unsafe { $call }
        };
    }

    #[derive(Clone, Copy)]
    pub(crate) struct F32x4(__m128);

    impl F32x4 {
        #[inline(always)]
        pub fn load(values: &[f32; 4]) -> F32x4 {
            F32x4(bytemuck::cast(*values))
        }

        #[inline(always)]
        pub fn splat(value: f32) -> F32x4 {
            F32x4(sse!(_mm_set1_ps(value)))
        }

        #[inline(always)]
        pub fn add(self, other: F32x4) -> F32x4 {
            F32x4(sse!(_mm_add_ps(self.0, other.0)))
        }

        #[inline(always)]
        pub fn sub(self, other: F32x4) -> F32x4 {
            F32x4(sse!(_mm_sub_ps(self.0, other.0)))
        }

        #[inline(always)]
        pub fn mul(self, other: F32x4) -> F32x4 {
            F32x4(sse!(_mm_mul_ps(self.0, other.0)))
        }

        #[inline(always)]
        pub fn to_array(self) -> [f32; 4] {
            bytemuck::cast(self.0)
        }

        /// The nearest whole numbers, cut to 0..=255.
        #[inline(always)]
        pub fn to_u8(self) -> [u8; 4] {
            let bytes = sse!({
                let words = _mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(self.0, _mm_setzero_ps()), _mm_set1_ps(255.0)));
                let halves = _mm_packs_epi32(words, words);
                _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves))
            });
            bytes.to_le_bytes()
        }

        /// Rows become columns.
        #[inline(always)]
        pub fn transpose([a, b, c, d]: [F32x4; 4]) -> [F32x4; 4] {
            sse!({
                let (ab, cd) = (_mm_unpacklo_ps(a.0, b.0), _mm_unpacklo_ps(c.0, d.0));
                let (ab_high, cd_high) = (_mm_unpackhi_ps(a.0, b.0), _mm_unpackhi_ps(c.0, d.0));
                let (first, second) = (_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
                let (third, fourth) = (_mm_movelh_ps(ab_high, cd_high), _mm_movehl_ps(cd_high, ab_high));
                [F32x4(first), F32x4(second), F32x4(third), F32x4(fourth)]
            })
        }
    }
}

/// What the compiler makes of it.
#[cfg(not(target_arch = "x86_64"))]
mod f32x4 {
    use std::array::from_fn;

    #[derive(Clone, Copy)]
    pub(crate) struct F32x4([f32; 4]);

    impl F32x4 {
        #[inline(always)]
        pub fn load(values: &[f32; 4]) -> F32x4 {
            F32x4(*values)
        }

        #[inline(always)]
        pub fn splat(value: f32) -> F32x4 {
            F32x4([value; 4])
        }

        #[inline(always)]
        pub fn add(self, other: F32x4) -> F32x4 {
            F32x4(from_fn(|i| self.0[i] + other.0[i]))
        }

        #[inline(always)]
        pub fn sub(self, other: F32x4) -> F32x4 {
            F32x4(from_fn(|i| self.0[i] - other.0[i]))
        }

        #[inline(always)]
        pub fn mul(self, other: F32x4) -> F32x4 {
            F32x4(from_fn(|i| self.0[i] * other.0[i]))
        }

        #[inline(always)]
        pub fn to_array(self) -> [f32; 4] {
            self.0
        }

        /// The nearest whole numbers, cut to 0..=255.
        #[inline(always)]
        pub fn to_u8(self) -> [u8; 4] {
            self.0.map(|v| v.round_ties_even() as u8)
        }

        /// Rows become columns.
        #[inline(always)]
        pub fn transpose(rows: [F32x4; 4]) -> [F32x4; 4] {
            from_fn(|i| F32x4(from_fn(|j| rows[j].0[i])))
        }
    }
}
