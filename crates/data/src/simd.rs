//! Loops for vector units. [`wide`] compiles a function twice: for what every machine has, and for AVX2 with BMI2.
//! [`Four`] is four numbers in a register, for loops that the compiler does not vectorise by itself. There is no FMA in
//! either and no sum is split differently, so all give the same bits.

/// Wraps functions whose loops the compiler vectorises. Helpers that the body calls must be `#[inline(always)]`.
macro_rules! wide {
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

pub(crate) use wide;

pub(crate) use four::Four;

/// SSE2, which every x86-64 has.
#[cfg(target_arch = "x86_64")]
mod four {
    use std::arch::x86_64::*;

    /// Calls of SSE2's functions.
    macro_rules! sse {
        ($call:expr) => {
            // SAFETY: every x86-64 has SSE2, and none of these functions takes a pointer.
            unsafe { $call }
        };
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Four(__m128);

    impl Four {
        #[inline(always)]
        pub fn new(values: &[f32; 4]) -> Four {
            Four(bytemuck::cast(*values))
        }

        #[inline(always)]
        pub fn all(value: f32) -> Four {
            Four(sse!(_mm_set1_ps(value)))
        }

        #[inline(always)]
        pub fn plus(self, other: Four) -> Four {
            Four(sse!(_mm_add_ps(self.0, other.0)))
        }

        #[inline(always)]
        pub fn minus(self, other: Four) -> Four {
            Four(sse!(_mm_sub_ps(self.0, other.0)))
        }

        #[inline(always)]
        pub fn times(self, other: Four) -> Four {
            Four(sse!(_mm_mul_ps(self.0, other.0)))
        }

        #[inline(always)]
        pub fn values(self) -> [f32; 4] {
            bytemuck::cast(self.0)
        }

        /// The nearest whole numbers, cut to 0..=255.
        #[inline(always)]
        pub fn bytes(self) -> [u8; 4] {
            let bytes = sse!({
                let words = _mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(self.0, _mm_setzero_ps()), _mm_set1_ps(255.0)));
                let halves = _mm_packs_epi32(words, words);
                _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves))
            });
            bytes.to_le_bytes()
        }

        /// Rows become columns.
        #[inline(always)]
        pub fn transposed([a, b, c, d]: [Four; 4]) -> [Four; 4] {
            sse!({
                let (ab, cd) = (_mm_unpacklo_ps(a.0, b.0), _mm_unpacklo_ps(c.0, d.0));
                let (ab_high, cd_high) = (_mm_unpackhi_ps(a.0, b.0), _mm_unpackhi_ps(c.0, d.0));
                let (first, second) = (_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
                let (third, fourth) = (_mm_movelh_ps(ab_high, cd_high), _mm_movehl_ps(cd_high, ab_high));
                [Four(first), Four(second), Four(third), Four(fourth)]
            })
        }
    }
}

/// What the compiler makes of it.
#[cfg(not(target_arch = "x86_64"))]
mod four {
    use std::array::from_fn;

    #[derive(Clone, Copy)]
    pub(crate) struct Four([f32; 4]);

    impl Four {
        #[inline(always)]
        pub fn new(values: &[f32; 4]) -> Four {
            Four(*values)
        }

        #[inline(always)]
        pub fn all(value: f32) -> Four {
            Four([value; 4])
        }

        #[inline(always)]
        pub fn plus(self, other: Four) -> Four {
            Four(from_fn(|i| self.0[i] + other.0[i]))
        }

        #[inline(always)]
        pub fn minus(self, other: Four) -> Four {
            Four(from_fn(|i| self.0[i] - other.0[i]))
        }

        #[inline(always)]
        pub fn times(self, other: Four) -> Four {
            Four(from_fn(|i| self.0[i] * other.0[i]))
        }

        #[inline(always)]
        pub fn values(self) -> [f32; 4] {
            self.0
        }

        /// The nearest whole numbers, cut to 0..=255.
        #[inline(always)]
        pub fn bytes(self) -> [u8; 4] {
            self.0.map(|v| v.round_ties_even() as u8)
        }

        /// Rows become columns.
        #[inline(always)]
        pub fn transposed(rows: [Four; 4]) -> [Four; 4] {
            from_fn(|i| Four(from_fn(|j| rows[j].0[i])))
        }
    }
}
