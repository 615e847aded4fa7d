//! Which instruction set the kernels use, found at run time: the best that the machine has, or what `MEMFIT_ISA` names of them.
//! Results are bit-identical for one instruction set, whatever the plan and the number of threads; between instruction sets
//! they may differ in rounding.

use std::ffi::OsStr;

use memfit_exec::ExecError;

/// Names the instruction set to use instead of the best one, such as `MEMFIT_ISA=avx2`. Empty is as good as not set.
pub const ISA_VARIABLE: &str = "MEMFIT_ISA";

/// The instruction sets that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Whatever the compiler's baseline has; multiply and add round separately, unless the baseline has FMA.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The baseline of 64-bit ARM.
    Neon,
}

impl Isa {
    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }

    /// The one that [`ISA_VARIABLE`] names, and without it the best.
    pub fn chosen() -> Result<Isa, ExecError> {
        match std::env::var_os(ISA_VARIABLE) {
            Some(name) if !name.is_empty() => Isa::from_name(&name),
            _ => Ok(Isa::best()),
        }
    }

    fn from_name(name: &OsStr) -> Result<Isa, ExecError> {
        let named = Isa::available().into_iter().find(|isa| name.eq_ignore_ascii_case(isa.name()));
        named.ok_or_else(|| lacking(&format!("{ISA_VARIABLE} asks for the instruction set {name:?}")))
    }

    /// Whether this machine has it.
    pub(crate) fn check(isa: Isa) -> Result<(), ExecError> {
        let is_there = Isa::available().contains(&isa);
        if is_there { Ok(()) } else { Err(lacking(&format!("the instruction set {} was asked for", isa.name()))) }
    }

    /// The best one that this machine has.
    pub fn best() -> Isa {
        Isa::available()[0]
    }

    /// All that this machine has, best first.
    pub fn available() -> Vec<Isa> {
        let mut list = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let f16c = is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx2 && f16c && avx512 {
                list.push(Isa::Avx512);
            }
            if avx2 && f16c {
                list.push(Isa::Avx2);
            }
        }
        if cfg!(target_arch = "aarch64") {
            list.push(Isa::Neon);
        }
        list.push(Isa::Portable);
        list
    }
}

fn lacking(asked: &str) -> ExecError {
    let names: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
    ExecError::Device { device: "cpu:0".into(), problem: format!("{asked}, but this machine has {}", names.join(", ")) }
}

/// a·b + c: one rounding where the instruction set has it, two where not. The only FMA in the kernels is where this is
/// written.
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Compiles a function once for each instruction set and picks by its first argument:
///
/// ```text
/// simd! {
///     /// y ← a·x + y
///     fn axpy<FMA>(isa, a: f32, x: &[f32], y: &mut [f32]) {
///         for (y, &x) in y.iter_mut().zip(x) { *y = fma::<FMA>(a, x, *y); }
///     }
/// }
/// axpy(Isa::best(), 2.0, &x, &mut y);
/// ```
///
/// The body is inlined into each version, so that the compiler vectorises it with that version's registers. Helpers that
/// it calls must be `#[inline(always)]`. `FMA` is a const generic of the body; with `<V>` in its place, the body is generic
/// over a [`Vector`](crate::vector::Vector), the register of its instruction set, whose availability it may rely on.
///
/// A body that dereferences pointers of the caller is an `unsafe fn`, with a `# Safety` section as any other.
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<FMA>(isa $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::isa::Isa $(, $arg: $ty)*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<const FMA: bool>($($arg: $ty),*) $(-> $ret)? $body
            /// # Safety
            /// AVX-512 is available.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) $(-> $ret)? { body::<true>($($arg),*) }
            /// # Safety
            /// AVX2, FMA and F16C are available.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $ty),*) $(-> $ret)? { body::<true>($($arg),*) }
            match isa {
                // SAFETY: kernels get an `Isa` that `Isa::available` found on this machine, as `Cpu::new` asserts.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: `Isa::available` found AVX2, FMA and F16C on this machine.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 => unsafe { avx2($($arg),*) },
                _ => body::<{ cfg!(target_arch = "aarch64") }>($($arg),*),
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<FMA>(isa $(, $arg:ident: $ty:ty)* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name(isa: $crate::isa::Isa $(, $arg: $ty)*) {
            /// # Safety
            /// As for the function that is dispatched to it.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body<const FMA: bool>($($arg: $ty),*) $body
            /// # Safety
            /// As for the body; AVX-512 is available.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: the arguments are those that the caller made his promise about.
                unsafe { body::<true>($($arg),*) }
            }
            /// # Safety
            /// As for the body; AVX2 is available.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: the arguments are those that the caller made his promise about.
                unsafe { body::<true>($($arg),*) }
            }
            // SAFETY: the arguments are those that the caller made his promise about; kernels get an `Isa` that
            // `Isa::available` found on this machine, as `Cpu::new` asserts.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    $crate::isa::Isa::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::isa::Isa::Avx2 => avx2($($arg),*),
                    _ => body::<{ cfg!(target_arch = "aarch64") }>($($arg),*),
                }
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<V>(isa $(, $arg:ident: $ty:ty)* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name(isa: $crate::isa::Isa $(, $arg: $ty)*) {
            /// # Safety
            /// As for the function that is dispatched to it; the instruction set of `V` is available.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body<V: $crate::vector::Vector>($($arg: $ty),*) $body
            /// # Safety
            /// As for the body; AVX-512 is available.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: the arguments are those that the caller made his promise about.
                unsafe { body::<$crate::vector::V512>($($arg),*) }
            }
            /// # Safety
            /// As for the body; AVX2 is available.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: the arguments are those that the caller made his promise about.
                unsafe { body::<$crate::vector::V256>($($arg),*) }
            }
            // SAFETY: the arguments are those that the caller made his promise about; kernels get an `Isa` that
            // `Isa::available` found on this machine, as `Cpu::new` asserts.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    $crate::isa::Isa::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::isa::Isa::Avx2 => avx2($($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::isa::Isa::Neon => body::<$crate::vector::V128>($($arg),*),
                    _ => body::<$crate::vector::Plain<4>>($($arg),*),
                }
            }
        }
    };
}
pub(crate) use simd;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_has_can_be_asked_for_by_name() {
        for isa in Isa::available() {
            assert_eq!(Isa::from_name(isa.name().as_ref()).unwrap(), isa);
            assert_eq!(Isa::from_name(isa.name().to_uppercase().as_ref()).unwrap(), isa);
        }
    }

    #[test]
    fn what_it_lacks_is_an_error_that_says_what_there_is() {
        let foreign = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
        for asked in [foreign, "avx 2", "sse9"] {
            let message = Isa::from_name(asked.as_ref()).unwrap_err().to_string();
            for part in ["MEMFIT_ISA", asked, Isa::best().name(), "portable"] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }
}
