//! How a chain reads its operands: straight from memory, converted, repeated, or gathered by strides.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use memfit_ir::DType;

use super::{TILE, narrow};
use crate::isa::Isa;

/// A broadcast operand as axes of the chain's shape: extent, and distance in elements (0 where it is repeated). Neighbouring
/// axes that step alike are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Strides(pub(super) Vec<(usize, usize)>);

impl Strides {
    /// How a tensor of shape `from` is read along `to`, to which it broadcasts.
    pub(super) fn new(from: &[usize], to: &[usize]) -> Strides {
        let lead = to.len() - from.len();
        let mut axes: Vec<(usize, usize)> = Vec::new();
        let mut stride = 1;
        for i in (0..to.len()).rev() {
            let extent = if i >= lead { from[i - lead] } else { 1 };
            let step = if extent == 1 { 0 } else { stride };
            stride *= extent;
            if to[i] == 1 {
                continue;
            }
            match axes.last_mut() {
                // The axis inside steps so that its end meets the start of this one's next element.
                Some((n, inner)) if (*inner == 0 && step == 0) || (*inner != 0 && step == *n * *inner) => *n *= to[i],
                _ => axes.push((to[i], step)),
            }
        }
        axes.reverse();
        if axes.is_empty() {
            axes.push((1, 0));
        }
        Strides(axes)
    }

    /// The length after which the operand repeats from its start, if it is read contiguously until then.
    pub(super) fn period(&self) -> Option<usize> {
        match self.0[..] {
            [(_, 0), (n, 1)] => Some(n),
            _ => None,
        }
    }

    /// Fills a tile with elements `e0..e0+n` of the broadcast operand.
    ///
    /// # Safety
    /// `from` holds the whole operand, aligned as its type, and `to` has room for n lanes that nobody else uses.
    pub(super) unsafe fn gather(&self, isa: Isa, from: *const u8, dtype: DType, e0: usize, n: usize, to: *mut f32) {
        let (inner, step) = self.0[self.0.len() - 1];
        let outer = &self.0[..self.0.len() - 1];
        let mut done = 0;
        while done < n {
            let e = e0 + done;
            let (mut rest, within) = (e / inner, e % inner);
            let mut offset = within * step;
            for &(extent, stride) in outer.iter().rev() {
                offset += rest % extent * stride;
                rest /= extent;
            }
            let run = (inner - within).min(n - done);
            // SAFETY: the offset is that of element e, which the operand has, and so are those of the run behind it; `done + run` is at
            // most n.
            unsafe {
                let source = from.add(dtype.bytes(offset));
                let to = to.add(done);
                match step {
                    0 => {
                        let mut lane = 0.0;
                        load_lanes(isa, source, dtype, 1, &mut lane);
                        for i in 0..run {
                            *to.add(i) = lane;
                        }
                    }
                    1 => load_lanes(isa, source, dtype, run, to),
                    _ => {
                        for i in 0..run {
                            load_lanes(isa, source.add(dtype.bytes(i * step)), dtype, 1, to.add(i));
                        }
                    }
                }
            }
            done += run;
        }
    }
}

/// Repeats a vector of lanes until `period + TILE` lanes are full: a tile may then start anywhere in the period.
///
/// # Safety
/// There is room for `period + TILE` lanes that nobody else uses.
pub(super) unsafe fn repeat(lanes: *mut f32, period: usize) {
    let mut filled = period;
    while filled < period + TILE {
        let n = filled.min(period + TILE - filled);
        // SAFETY: filled + n is at most period + TILE, for which there is room; n ≤ filled, so that the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(lanes, lanes.add(filled), n) };
        filled += n;
    }
}

/// Reads elements as lanes: floats as f32, integers as i32.
///
/// # Safety
/// `from` holds n elements of the type, aligned as it, and `to` has room for n lanes, apart from them, that nobody else uses.
pub(super) unsafe fn load_lanes(isa: Isa, from: *const u8, dtype: DType, n: usize, to: *mut f32) {
    // SAFETY: there are n elements and room for n lanes.
    unsafe {
        match dtype {
            DType::F32 | DType::I32 => std::ptr::copy_nonoverlapping(from.cast(), to, n),
            DType::F16 => narrow::widen_f16(isa, from_raw_parts(from.cast(), n), from_raw_parts_mut(to, n)),
            DType::BF16 => narrow::widen_bf16(isa, from_raw_parts(from.cast(), n), from_raw_parts_mut(to, n)),
            DType::U8 => (0..n).for_each(|i| *to.cast::<i32>().add(i) = *from.add(i) as i32),
            DType::Bit => unreachable!("bits are read where they lie"),
        }
    }
}

/// Writes lanes as elements.
///
/// # Safety
/// `from` holds n lanes, and `to` has room for n elements of the type, aligned as it and apart from them, that nobody else uses.
pub(super) unsafe fn store_lanes(isa: Isa, from: *const f32, dtype: DType, n: usize, to: *mut u8) {
    // SAFETY: there are n lanes and room for n elements; of bits, for as many bytes as they fill.
    unsafe {
        match dtype {
            DType::F32 | DType::I32 => std::ptr::copy_nonoverlapping(from, to.cast(), n),
            DType::F16 => narrow::narrow_f16(isa, from_raw_parts(from, n), from_raw_parts_mut(to.cast(), n)),
            DType::BF16 => narrow::narrow_bf16(isa, from_raw_parts(from, n), from_raw_parts_mut(to.cast(), n)),
            DType::U8 => (0..n).for_each(|i| *to.add(i) = *from.cast::<i32>().add(i) as u8),
            // A register of bits holds them as memory does.
            DType::Bit => std::ptr::copy_nonoverlapping(from.cast(), to, n.div_ceil(8)),
        }
    }
}

/// Rounds lanes to what the type can hold, so that a value is the same inside a chain and in memory.
///
/// # Safety
/// `lanes` holds n elements of the type as lanes, which nobody else uses.
pub(super) unsafe fn round_lanes(isa: Isa, lanes: *mut f32, dtype: DType, n: usize) {
    match dtype {
        DType::F32 | DType::I32 | DType::U8 | DType::Bit => {}
        // SAFETY: there are n lanes.
        DType::F16 => narrow::round_f16(isa, unsafe { from_raw_parts_mut(lanes, n) }),
        // SAFETY: there are n lanes.
        DType::BF16 => narrow::round_bf16(isa, unsafe { from_raw_parts_mut(lanes, n) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_step_alike_are_one() {
        for (from, to, want) in [
            (&[2, 3, 4][..], &[2, 3, 4][..], vec![(24, 1)]),
            (&[4], &[2, 3, 4], vec![(6, 0), (4, 1)]),
            (&[3, 1], &[2, 3, 4], vec![(2, 0), (3, 1), (4, 0)]),
            (&[2, 1, 4], &[2, 3, 4], vec![(2, 4), (3, 0), (4, 1)]),
            (&[1, 1, 1], &[2, 3, 4], vec![(24, 0)]),
            (&[2, 3, 1], &[2, 3, 4], vec![(6, 1), (4, 0)]),
            (&[], &[], vec![(1, 0)]),
        ] {
            assert_eq!(Strides::new(from, to).0, want, "{from:?} to {to:?}");
        }
    }

    #[test]
    fn gathers_what_broadcasting_says() {
        let from: Vec<f32> = (0..8).map(|i| i as f32).collect();
        let strides = Strides::new(&[2, 1, 4], &[2, 3, 4]);
        let mut got = [0f32; 10];
        // SAFETY: the operand has 8 elements, the tile room for 10.
        unsafe { strides.gather(Isa::Portable, from.as_ptr().cast(), DType::F32, 7, 10, got.as_mut_ptr()) };
        assert_eq!(got, [3., 0., 1., 2., 3., 4., 5., 6., 7., 4.]);
    }
}
