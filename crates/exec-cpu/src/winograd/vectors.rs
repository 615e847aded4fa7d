//! Functions over registers, compiled once for each instruction set.

use crate::gemm::vector::Vector;

/// Compiles a function once for each instruction set, with a register of its as `V`, and picks by its first argument.
/// Helpers that the body calls must be `#[inline(always)]`.
macro_rules! by_vectors {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<V>(isa $(, $arg:ident: $ty:ty)* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name(isa: $crate::isa::Isa $(, $arg: $ty)*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body<V: $crate::gemm::vector::Vector>($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: passed on.
                unsafe { body::<$crate::gemm::vector::V512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: passed on.
                unsafe { body::<$crate::gemm::vector::V256>($($arg),*) }
            }
            // SAFETY: passed on; an `Isa` is one that this machine has.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    $crate::isa::Isa::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::isa::Isa::Avx2 => avx2($($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::isa::Isa::Neon => body::<$crate::gemm::vector::V128>($($arg),*),
                    _ => body::<$crate::gemm::vector::Plain<4>>($($arg),*),
                }
            }
        }
    };
}
pub(crate) use by_vectors;

/// `left` elements, or a whole register.
#[inline(always)]
pub unsafe fn load<V: Vector>(p: *const f32, left: usize) -> V {
    // SAFETY: passed on.
    unsafe { if left >= V::WIDTH { V::load(p) } else { V::load_first(p, left) } }
}

/// `left` elements, or a whole register.
#[inline(always)]
pub unsafe fn store<V: Vector>(v: V, p: *mut f32, left: usize) {
    // SAFETY: passed on.
    unsafe { if left >= V::WIDTH { v.store(p) } else { v.store_first(p, left) } }
}

#[inline(always)]
pub unsafe fn half<V: Vector>(x: V) -> V {
    // SAFETY: passed on.
    unsafe { V::zero().fma(V::splat(&0.5), x) }
}

/// Row `i` of columns.
#[inline(always)]
pub fn across<V: Copy, const N: usize, const M: usize>(columns: &[[V; N]; M], i: usize) -> [V; M] {
    std::array::from_fn(|j| columns[j][i])
}
