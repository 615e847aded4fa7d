//! The transforms between images, filters and the 16 products that stand for a tile: additions and halvings over channels,
//! in registers. What lies outside of an image is zero on the way in and left out on the way out.
//!
//! With d a 4×4 tile of the image, w the filter and y the 2×2 tile of the result,
//! y = Aᵀ[(G w Gᵀ) ⊙ (Bᵀ d B)]A, where
//!
//! ```text
//! Bᵀ = 1  0 −1  0    G = 1   0   0    Aᵀ = 1  1  1  0
//!      0  1  1  0        ½   ½   ½         0  1 −1 −1
//!      0 −1  1  0        ½  −½   ½
//!      0  1  0 −1        0   0   1
//! ```

use super::TILE;
use super::tiles::{Run, Tiles};
use crate::isa::simd;
use crate::vector::{Vector, across, half, load, store};

/// Bᵀ times a column.
#[inline(always)]
pub(super) fn input<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 4] {
    [a.sub(c), b.add(c), c.sub(b), b.sub(d)]
}

/// Aᵀ times a column.
#[inline(always)]
fn output<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 2] {
    [a.add(b).add(c), b.sub(c).sub(d)]
}

/// G times a column.
#[inline(always)]
fn filter<V: Vector>([a, b, c]: [V; 3]) -> [V; 4] {
    let (outer, inner) = (half(a.add(c)), half(b));
    [a, outer.add(inner), outer.sub(inner), c]
}

/// Where the left sides of products go: tile t's of product ξ at `start + t·tile + places[ξ]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    pub(crate) start: *mut f32,
    pub(crate) tile: usize,
    pub(crate) places: &'a [usize; 16],
}

simd! {
    /// Bᵀ d B of `n` channels of 4×4 tiles from channel `first` on.
    ///
    /// # Safety
    /// The tiles' pixels inside of the image hold the channels, and the places of all tiles have room for them, which nobody else
    /// uses.
    pub(crate) unsafe fn input_tiles<V>(isa, from: &Tiles, first: usize, n: usize, to: Places) {
        let whole = n - n % V::WIDTH;
        for run in from.runs() {
            // SAFETY: registers of channels are taken of the n that pixels and places have, and the last ones by their number.
            unsafe {
                for at in (0..whole).step_by(V::WIDTH) {
                    let to = Places { start: to.start.wrapping_add(run.first * to.tile + at), ..to };
                    input_channels::<V>(&run, first + at, V::WIDTH, to);
                }
                if whole < n {
                    let to = Places { start: to.start.wrapping_add(run.first * to.tile + whole), ..to };
                    input_channels::<V>(&run, first + whole, n - whole, to);
                }
            }
        }
    }
}

/// Bᵀ d B of `left` channels of a run, from channel `at` on. Neighbours share two columns of pixels.
///
/// # Safety
/// As for [`input_tiles`], of these channels; the instruction set of `V` is available.
#[inline(always)]
unsafe fn input_channels<V: Vector>(run: &Run, at: usize, left: usize, to: Places) {
    // SAFETY: the run's pixels inside of the image and the places of its tiles have these channels.
    unsafe {
        let mut kept = [input_column::<V>(run, 0, at, left), input_column::<V>(run, 1, at, left)];
        for t in 0..run.count {
            let x = t * TILE + 2;
            let new = [input_column::<V>(run, x, at, left), input_column::<V>(run, x + 1, at, left)];
            let to_tile = to.start.wrapping_add(t * to.tile);
            for i in 0..4 {
                let row = input([kept[0][i], kept[1][i], new[0][i], new[1][i]]);
                for (j, v) in row.into_iter().enumerate() {
                    store(v, to_tile.wrapping_add(to.places[4 * i + j]), left);
                }
            }
            kept = new;
        }
    }
}

/// Bᵀ times a column of pixels.
///
/// # Safety
/// As for [`Run::load`].
#[inline(always)]
unsafe fn input_column<V: Vector>(run: &Run, x: usize, at: usize, left: usize) -> [V; 4] {
    // SAFETY: the caller's promise is that of `Run::load`.
    let d = |i: usize| unsafe { run.load([i, x], at, left) };
    input([d(0), d(1), d(2), d(3)])
}

simd! {
    /// Aᵀ m A of `n` channels to the pixels of 2×2 tiles that are inside; tile t's product ξ at `m + t·tile + ξ·plane`.
    ///
    /// # Safety
    /// The products of all tiles hold the channels, and the pixels inside of the image have room for them, which nobody else
    /// touches.
    pub(crate) unsafe fn output_tiles<V>(isa, m: *const f32, tile: usize, plane: usize, n: usize, to: &Tiles) {
        let whole = n - n % V::WIDTH;
        for run in to.runs() {
            for t in 0..run.count {
                let m = m.wrapping_add((run.first + t) * tile);
                // SAFETY: registers of channels are taken of the n that products and pixels have, and the last ones by their number.
                unsafe {
                    for at in (0..whole).step_by(V::WIDTH) {
                        output_channels::<V>(m.add(at), plane, &run, t, at, V::WIDTH);
                    }
                    if whole < n {
                        output_channels::<V>(m.add(whole), plane, &run, t, whole, n - whole);
                    }
                }
            }
        }
    }
}

/// Aᵀ m A of `left` channels of tile `t` of a run, from channel `at` on.
///
/// # Safety
/// As for [`output_tiles`], of these channels; the instruction set of `V` is available.
#[inline(always)]
unsafe fn output_channels<V: Vector>(m: *const f32, plane: usize, to: &Run, t: usize, at: usize, left: usize) {
    // SAFETY: each of the 16 products has these channels, and so have the tile's pixels that are inside of the image.
    unsafe {
        let mut columns = [[V::zero(); 2]; 4];
        for (j, column) in columns.iter_mut().enumerate() {
            let m = |i: usize| load(m.add((4 * i + j) * plane), left);
            *column = output([m(0), m(1), m(2), m(3)]);
        }
        for i in 0..2 {
            let row = output(across(&columns, i));
            for (j, v) in row.into_iter().enumerate() {
                to.store(v, [i, t * TILE + j], at, left);
            }
        }
    }
}

/// A filter's taps: element (tap, depth, column) at `start + tap·tap_stride + depth·stride + column`, the taps backwards
/// where they are `flipped`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps3x3 {
    pub(crate) start: *const f32,
    pub(crate) tap: usize,
    pub(crate) stride: usize,
    pub(crate) flipped: bool,
}

/// Where transformed filters go: product ξ, depth p and column j at `start + ξ·plane + (j ÷ nr)·panel + p·nr + j mod nr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    pub(crate) start: *mut f32,
    pub(crate) plane: usize,
    pub(crate) panel: usize,
    pub(crate) nr: usize,
}

simd! {
    /// G w Gᵀ for some depths and columns.
    ///
    /// # Safety
    /// The filter holds them at all taps, and there is room for whole panels of NR columns, which nobody else uses.
    pub(crate) unsafe fn filters<V>(isa, w: Taps3x3, depths: usize, columns: usize, to: Panels) {
        // SAFETY: depth and column are among those that the filter holds; a panel's place for them is inside of its room.
        unsafe {
            for p in 0..depths {
                for j in (0..columns).step_by(V::WIDTH) {
                    let from = w.start.add(p * w.stride + j);
                    let to = Panels { start: to.start.add(j / to.nr * to.panel + p * to.nr + j % to.nr), ..to };
                    if columns - j >= V::WIDTH {
                        filter_columns::<V>(Taps3x3 { start: from, ..w }, V::WIDTH, to);
                    } else {
                        filter_columns::<V>(Taps3x3 { start: from, ..w }, columns - j, to);
                    }
                }
            }
        }
    }
}

/// G w Gᵀ of `left` columns.
///
/// # Safety
/// As for [`filters`], of these columns; the instruction set of `V` is available.
#[inline(always)]
unsafe fn filter_columns<V: Vector>(w: Taps3x3, left: usize, to: Panels) {
    // SAFETY: the filter has these columns at each tap; a panel is a whole number of registers wide, so that one can be stored.
    unsafe {
        let mut columns = [[V::zero(); 4]; 3];
        for (j, column) in columns.iter_mut().enumerate() {
            let tap = |i: usize| {
                let tap = if w.flipped { 8 - (3 * i + j) } else { 3 * i + j };
                load(w.start.add(tap * w.tap), left)
            };
            *column = filter([tap(0), tap(1), tap(2)]);
        }
        for i in 0..4 {
            let row = filter(across(&columns, i));
            for (j, v) in row.into_iter().enumerate() {
                v.store(to.start.add((4 * i + j) * to.plane));
            }
        }
    }
}
