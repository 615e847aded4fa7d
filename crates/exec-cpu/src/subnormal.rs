//! Subnormal numbers, those below 1.2e-38, are zero while kernels run. Arithmetic on them takes a hundred times as long on
//! many processors, and a model that has learnt its data well has gradients full of them. Every thread that runs kernels
//! is in this mode, so that bits do not depend on which thread computes what.

/// While one lives, this thread's arithmetic takes and gives zero for subnormal numbers.
pub(crate) struct FlushSubnormals {
    before: u64,
}

impl FlushSubnormals {
    #[inline]
    pub(crate) fn new() -> FlushSubnormals {
        let before = control::read();
        control::write(before | control::FLUSH);
        FlushSubnormals { before }
    }
}

impl Drop for FlushSubnormals {
    #[inline]
    fn drop(&mut self) {
        control::write(self.before);
    }
}

#[cfg(target_arch = "x86_64")]
mod control {
    use std::arch::asm;

    /// Results and operands.
    pub(crate) const FLUSH: u64 = 1 << 15 | 1 << 6;

    #[inline]
    pub(crate) fn read() -> u64 {
        let mut word = 0u32;
        // SAFETY: writes the register's 32 bits to `word`.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word.into()
    }

    #[inline]
    pub(crate) fn write(word: u64) {
        let word = word as u32;
        // SAFETY: the word was read from the register, with or without FLUSH: no reserved bit is set, and rounding and
        // exceptions stay. The compiler takes subnormals for ordinary numbers; kernels compute nothing that relies on it.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod control {
    use std::arch::asm;

    /// Results and operands.
    pub(crate) const FLUSH: u64 = 1 << 24;

    #[inline]
    pub(crate) fn read() -> u64 {
        let word;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word
    }

    #[inline]
    pub(crate) fn write(word: u64) {
        // SAFETY: the word was read from the register, with or without FLUSH: rounding and exceptions stay. The compiler
        // takes subnormals for ordinary numbers; kernels compute nothing that relies on it.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod control {
    pub(crate) const FLUSH: u64 = 0;

    pub(crate) fn read() -> u64 {
        0
    }

    pub(crate) fn write(_: u64) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn subnormals_are_zero_as_operands_and_as_results_and_only_meanwhile() {
        let product = || black_box(1e-20f32) * black_box(1e-20f32);
        let raised = || black_box(1e-40f32) * black_box(1e20f32);
        assert!(product() > 0.0 && raised() > 0.0);
        {
            let _flushed = FlushSubnormals::new();
            assert_eq!((product(), raised()), (0.0, 0.0));
            {
                let _again = FlushSubnormals::new();
            }
            assert_eq!(product(), 0.0);
        }
        assert!(product() > 0.0 && raised() > 0.0);
    }
}
