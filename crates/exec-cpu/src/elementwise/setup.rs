//! What a chain sets before its first tile: numbers and vectors that every tile reads, repeated so that a tile may start
//! anywhere.

use memfit_ir::{DType, ValueId};

use super::TILE;
use super::operand::{load_lanes, repeat};
use crate::isa::Isa;

#[derive(Clone, Debug)]
pub(super) enum Setup {
    /// A number, as lane bits.
    Number { bits: u32, at: usize },
    /// One element of memory.
    Scalar { value: ValueId, dtype: DType, at: usize },
    /// A vector of memory, repeated.
    Vector { value: ValueId, dtype: DType, period: usize, at: usize },
    /// scale ÷ √(var + eps), repeated.
    Factor { var: ValueId, scale: ValueId, eps: f32, period: usize, at: usize },
    /// The three factors of the batch-norm gradient, repeated, one after the other.
    GradFactors { inputs: [ValueId; 4], eps: f32, batch_stats: bool, rows: usize, period: usize, at: usize },
}

impl Setup {
    /// The values it reads.
    pub(super) fn values(&self) -> [Option<ValueId>; 4] {
        match *self {
            Setup::Number { .. } => [None; 4],
            Setup::Scalar { value, .. } | Setup::Vector { value, .. } => [Some(value), None, None, None],
            Setup::Factor { var, scale, .. } => [Some(var), Some(scale), None, None],
            Setup::GradFactors { inputs, .. } => inputs.map(Some),
        }
    }

    /// Sets its lanes of the shared part from the operands, which start here.
    ///
    /// # Safety
    /// `from` holds the values that [`Setup::values`] names, each whole; `scratch` has what this step shares of it, at its offsets,
    /// and nobody else uses it.
    pub(super) unsafe fn run(&self, from: [*mut u8; 4], tile: usize, scratch: *mut f32) {
        let vector = |i: usize, n: usize| -> &[f32] {
            // SAFETY: the shape rules give each of these operands as many elements as channels, which are the period.
            unsafe { std::slice::from_raw_parts(from[i].cast(), n) }
        };
        // SAFETY: at its offset the scratch has a tile, or a period and a tile for each vector.
        unsafe {
            match *self {
                Setup::Number { bits, at } => {
                    (0..tile).for_each(|i| *scratch.add(at + i) = f32::from_bits(bits));
                }
                Setup::Scalar { dtype, at, .. } => {
                    load_lanes(Isa::Portable, from[0], dtype, 1, scratch.add(at));
                    let lane = *scratch.add(at);
                    (0..tile).for_each(|i| *scratch.add(at + i) = lane);
                }
                Setup::Vector { dtype, period, at, .. } => {
                    load_lanes(Isa::Portable, from[0], dtype, period, scratch.add(at));
                    repeat(scratch.add(at), period);
                }
                Setup::Factor { eps, period, at, .. } => {
                    let (var, scale) = (vector(0, period), vector(1, period));
                    for i in 0..period {
                        *scratch.add(at + i) = scale[i] / (var[i] + eps).sqrt();
                    }
                    repeat(scratch.add(at), period);
                }
                Setup::GradFactors { eps, batch_stats, rows, period, at, .. } => {
                    let v = [0, 1, 2, 3].map(|i| vector(i, period));
                    let [a, b, c] = [0, 1, 2].map(|i| scratch.add(at + i * (period + TILE)));
                    grad_factors(v, eps, batch_stats, rows, [a, b, c]);
                    [a, b, c].into_iter().for_each(|p| repeat(p, period));
                }
            }
        }
    }
}

/// dx = a·dy + b·(x − mean) + c, from (var, scale, dscale, dbias).
///
/// # Safety
/// `to` has room for as many lanes as there are channels, three times.
unsafe fn grad_factors(v: [&[f32]; 4], eps: f32, batch_stats: bool, rows: usize, to: [*mut f32; 3]) {
    let [var, scale, dscale, dbias] = v;
    let per_row = if batch_stats { 1.0 / rows as f32 } else { 0.0 };
    for i in 0..var.len() {
        let rstd = 1.0 / (var[i] + eps).sqrt();
        let a = scale[i] * rstd;
        // SAFETY: i is below the number of channels.
        unsafe {
            *to[0].add(i) = a;
            *to[1].add(i) = -a * rstd * dscale[i] * per_row;
            *to[2].add(i) = -a * dbias[i] * per_row;
        }
    }
}
