//! The transforms of the gradient by the filter, in the notation of [`super::transform`]: with g a 2×2 tile of the gradient of
//! what the convolution makes, the gradient by the filter is the sum of Gᵀ[(Bᵀ d B) ⊙ (A g Aᵀ)]G over all tiles.
//!
//! Tiles are made a row of four products at a time, so that few of them are in the cache at once.

use super::TILE;
use super::tiles::{Run, Tiles};
use super::transform::input;
use crate::isa::simd;
use crate::vector::{Vector, across, half, load, negated, store};

/// Where a row of four products goes: product j, panel q and tile t at `start + j·plane + q·panel + t·width`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPanels {
    pub(crate) start: *mut f32,
    pub(crate) plane: usize,
    pub(crate) panel: usize,
    pub(crate) width: usize,
}

simd! {
    /// Row `i` of Bᵀ d B, of `n` channels of 4×4 tiles from channel `first` on.
    ///
    /// # Safety
    /// The tiles' pixels inside of the image hold the channels, and there is room for whole panels of all tiles, which nobody else
    /// uses.
    pub(crate) unsafe fn input_rows<V>(isa, from: &Tiles, i: usize, first: usize, n: usize, to: RowPanels) {
        // SAFETY: the caller's promise is that of `input_row`; the register is of the instruction set that was dispatched to.
        unsafe {
            match i {
                0 => input_row::<V>(from, [0, 2], first, n, to, |a, b| a.sub(b)),
                1 => input_row::<V>(from, [1, 2], first, n, to, |a, b| a.add(b)),
                2 => input_row::<V>(from, [2, 1], first, n, to, |a, b| a.sub(b)),
                _ => input_row::<V>(from, [1, 3], first, n, to, |a, b| a.sub(b)),
            }
        }
    }
}

/// `join` makes the row of Bᵀ d from two lines of a tile.
///
/// # Safety
/// As for [`input_rows`]; the instruction set of `V` is available.
#[inline(always)]
unsafe fn input_row<V: Vector>(
    from: &Tiles,
    lines: [usize; 2],
    first: usize,
    n: usize,
    to: RowPanels,
    join: impl Fn(V, V) -> V,
) {
    for run in from.runs() {
        let to = RowPanels { start: to.start.wrapping_add(run.first * to.width), ..to };
        for at in (0..n).step_by(to.width) {
            for within in (0..to.width).step_by(V::WIDTH) {
                // Zeros fill up the last panel: whatever else stood there might be slow to multiply with.
                let left = n.saturating_sub(at + within).min(to.width - within).min(V::WIDTH);
                let room = (to.width - within).min(V::WIDTH);
                let start = to.start.wrapping_add(at / to.width * to.panel + within);
                // SAFETY: `left` of the n channels are read, and `room` elements written, which end with their panel.
                unsafe {
                    input_panel(&run, lines, first + at + within, [left, room], RowPanels { start, ..to }, &join);
                }
            }
        }
    }
}

/// Reads `left` channels and writes `room` of them. Neighbours share two columns of pixels.
///
/// # Safety
/// The run's pixels inside of the image have `left` channels from `at` on, and each of its tiles has room for `room` elements
/// in all four products; the instruction set of `V` is available.
#[inline(always)]
unsafe fn input_panel<V: Vector>(
    run: &Run,
    lines: [usize; 2],
    at: usize,
    [left, room]: [usize; 2],
    to: RowPanels,
    join: &impl Fn(V, V) -> V,
) {
    // SAFETY: the caller's promise, for pixels and for each tile's place.
    unsafe {
        let mut kept = [joined(run, lines, 0, at, left, join), joined(run, lines, 1, at, left, join)];
        for t in 0..run.count {
            let x = t * TILE + 2;
            let new = [joined(run, lines, x, at, left, join), joined(run, lines, x + 1, at, left, join)];
            for (j, v) in input([kept[0], kept[1], new[0], new[1]]).into_iter().enumerate() {
                store(v, to.start.wrapping_add(t * to.width + j * to.plane), room);
            }
            kept = new;
        }
    }
}

/// Pixel x of two lines, joined.
///
/// # Safety
/// As for [`Run::load`].
#[inline(always)]
unsafe fn joined<V: Vector>(
    run: &Run,
    [a, b]: [usize; 2],
    x: usize,
    at: usize,
    left: usize,
    join: &impl Fn(V, V) -> V,
) -> V {
    // SAFETY: the caller's promise is that of `Run::load`.
    unsafe { join(run.load([a, x], at, left), run.load([b, x], at, left)) }
}

simd! {
    /// Row `i` of A g Aᵀ, of `n` channels of 2×2 tiles from channel `first` on.
    ///
    /// # Safety
    /// The tiles' pixels inside of the image hold the channels, and there is room for whole panels of all tiles, which nobody else
    /// uses.
    pub(crate) unsafe fn gradient_rows<V>(isa, from: &Tiles, i: usize, first: usize, n: usize, to: RowPanels) {
        // SAFETY: the caller's promise is that of `gradient_row`; the register is of the instruction set that was dispatched to.
        unsafe {
            match i {
                0 => gradient_row::<V>(from, first, n, to, |a, _| a),
                1 => gradient_row::<V>(from, first, n, to, |a, b| a.add(b)),
                2 => gradient_row::<V>(from, first, n, to, |a, b| a.sub(b)),
                _ => gradient_row::<V>(from, first, n, to, |_, b| negated(b)),
            }
        }
    }
}

/// `join` makes the row of A g from the two lines of a tile.
///
/// # Safety
/// As for [`gradient_rows`]; the instruction set of `V` is available.
#[inline(always)]
unsafe fn gradient_row<V: Vector>(from: &Tiles, first: usize, n: usize, to: RowPanels, join: impl Fn(V, V) -> V) {
    for run in from.runs() {
        for t in 0..run.count {
            for at in (0..n).step_by(V::WIDTH) {
                let left = (n - at).min(V::WIDTH);
                let place = (run.first + t) * to.width + at / to.width * to.panel + at % to.width;
                let place = to.start.wrapping_add(place);
                let (x, at) = (t * TILE, first + at);
                // SAFETY: `left` of the n channels are read; a panel is a whole number of registers wide, so that one can be stored.
                unsafe {
                    let a = joined(&run, [0, 1], x, at, left, &join);
                    let b = joined(&run, [0, 1], x + 1, at, left, &join);
                    for (j, v) in [a, a.add(b), a.sub(b), negated(b)].into_iter().enumerate() {
                        v.store(place.wrapping_add(j * to.plane));
                    }
                }
            }
        }
    }
}

/// Gᵀ times a column.
#[inline(always)]
fn taps<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 3] {
    let even = half(b.add(c));
    [a.add(even), half(b.sub(c)), even.add(d)]
}

simd! {
    /// Gᵀ u G of `n` columns: product ξ at `u + ξ·plane`, tap t to `to + t·tap`.
    ///
    /// # Safety
    /// All 16 products hold the columns, and all nine taps have room for them, which nobody else touches.
    pub(crate) unsafe fn filter_taps<V>(isa, u: *const f32, plane: usize, n: usize, to: *mut f32, tap: usize) {
        for at in (0..n).step_by(V::WIDTH) {
            let left = (n - at).min(V::WIDTH);
            // SAFETY: `left` of the n columns are taken, in products and taps.
            unsafe {
                let mut columns = [[V::zero(); 3]; 4];
                for (j, column) in columns.iter_mut().enumerate() {
                    let u = |i: usize| load(u.add((4 * i + j) * plane + at), left);
                    *column = taps([u(0), u(1), u(2), u(3)]);
                }
                for i in 0..3 {
                    let row = taps(across(&columns, i));
                    for (j, v) in row.into_iter().enumerate() {
                        store(v, to.add((3 * i + j) * tap + at), left);
                    }
                }
            }
        }
    }
}
