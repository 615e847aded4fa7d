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

use std::ops::Range;

use crate::gemm::vector::{Plain, Vector};
use crate::gemm::{Corner, Patches};
use crate::isa::Isa;

/// Compiles a function once for each instruction set, with a register of its as `V`, and picks by its first argument.
/// Helpers that the body calls must be `#[inline(always)]`.
macro_rules! by_vectors {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<V>(isa $(, $arg:ident: $ty:ty)* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name(isa: Isa $(, $arg: $ty)*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body<V: Vector>($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512($($arg: $ty),*) {
                // SAFETY: passed on.
                unsafe { body::<crate::gemm::vector::V512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2($($arg: $ty),*) {
                // SAFETY: passed on.
                unsafe { body::<crate::gemm::vector::V256>($($arg),*) }
            }
            // SAFETY: passed on; an `Isa` is one that this machine has.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => avx2($($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => body::<crate::gemm::vector::V128>($($arg),*),
                    _ => body::<Plain<4>>($($arg),*),
                }
            }
        }
    };
}

/// Some tiles of an image whose element 0 is, or would be, at `image`.
#[derive(Clone, Debug)]
pub struct Tiles<'a> {
    pub patches: &'a Patches,
    pub image: *mut f32,
    pub tiles: Range<usize>,
}

impl Tiles<'_> {
    /// The pixels of each.
    #[inline(always)]
    fn squares(&self) -> impl Iterator<Item = Square> {
        let corners = self.patches.corners(self.tiles.start).take(self.tiles.len());
        corners.map(|corner| Square::new(self.patches, self.image, corner))
    }
}

/// A square of pixels of an image: pixel (i, j) at `start + i·line + j·pixel`. Those in `rows` × `columns` are inside.
struct Square {
    start: *mut f32,
    line: usize,
    pixel: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Square {
    /// The pixels of a patch from this corner on, in an image whose element 0 is, or would be, at `image`.
    #[inline(always)]
    fn new(p: &Patches, image: *mut f32, corner: Corner) -> Square {
        let line = p.size[1] * p.channels;
        let row = (corner.image * p.size[0]) as isize + corner.y;
        let within = |at: isize, size: usize, side: usize| {
            let end = (size as isize - at).clamp(0, side as isize) as usize;
            ((-at).max(0) as usize).min(end)..end
        };
        Square {
            start: image.wrapping_offset(row * line as isize + corner.x * p.channels as isize),
            line,
            pixel: p.channels,
            rows: within(corner.y, p.size[0], p.taps[0]),
            columns: within(corner.x, p.size[1], p.taps[1]),
        }
    }

    #[inline(always)]
    fn is_inside(&self, side: usize) -> bool {
        self.rows == (0..side) && self.columns == (0..side)
    }

    /// `left` channels of pixel (i, j) from channel `at` on, or zeros outside of the image.
    #[inline(always)]
    unsafe fn load<V: Vector, const INSIDE: bool>(&self, [i, j]: [usize; 2], at: usize, left: usize) -> V {
        // SAFETY: the caller's promise covers the pixels inside.
        unsafe {
            if !INSIDE && !(self.rows.contains(&i) && self.columns.contains(&j)) {
                return V::zero();
            }
            load(self.start.wrapping_add(i * self.line + j * self.pixel + at), left)
        }
    }
}

#[inline(always)]
unsafe fn load<V: Vector>(p: *const f32, left: usize) -> V {
    // SAFETY: passed on.
    unsafe { if left >= V::WIDTH { V::load(p) } else { V::load_first(p, left) } }
}

#[inline(always)]
unsafe fn store<V: Vector>(v: V, p: *mut f32, left: usize) {
    // SAFETY: passed on.
    unsafe { if left >= V::WIDTH { v.store(p) } else { v.store_first(p, left) } }
}

/// Bᵀ times a column.
#[inline(always)]
unsafe fn input<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 4] {
    // SAFETY: passed on.
    unsafe { [a.sub(c), b.add(c), c.sub(b), b.sub(d)] }
}

/// Aᵀ times a column.
#[inline(always)]
unsafe fn output<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 2] {
    // SAFETY: passed on.
    unsafe { [a.add(b).add(c), b.sub(c).sub(d)] }
}

#[inline(always)]
unsafe fn half<V: Vector>(x: V) -> V {
    // SAFETY: passed on.
    unsafe { V::zero().fma(V::splat(&0.5), x) }
}

/// G times a column.
#[inline(always)]
unsafe fn filter<V: Vector>([a, b, c]: [V; 3]) -> [V; 4] {
    // SAFETY: passed on.
    unsafe {
        let (outer, inner) = (half(a.add(c)), half(b));
        [a, outer.add(inner), outer.sub(inner), c]
    }
}

/// Where the products of tiles go, or are: tile t's product ξ at `start + t·tile + places[ξ]`.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub start: *mut f32,
    pub tile: usize,
    pub places: &'a [usize; 16],
}

by_vectors! {
    /// Bᵀ d B of `n` channels of 4×4 tiles from channel `first` on.
    ///
    /// # Safety
    /// The pixels inside and the places have room for the channels.
    pub unsafe fn input_tiles<V>(isa, from: &Tiles, first: usize, n: usize, to: Places) {
        let whole = n - n % V::WIDTH;
        for (t, d) in from.squares().enumerate() {
            let (d, to, places) = (&d, to.start.wrapping_add(t * to.tile), to.places);
            // SAFETY: passed on.
            unsafe {
                if d.is_inside(4) {
                    for at in (0..whole).step_by(V::WIDTH) {
                        input_channels::<V, true>(d, first + at, V::WIDTH, to.wrapping_add(at), places);
                    }
                } else {
                    for at in (0..whole).step_by(V::WIDTH) {
                        input_channels::<V, false>(d, first + at, V::WIDTH, to.wrapping_add(at), places);
                    }
                }
                if whole < n {
                    input_channels::<V, false>(d, first + whole, n - whole, to.wrapping_add(whole), places);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn input_channels<V: Vector, const INSIDE: bool>(
    d: &Square,
    at: usize,
    left: usize,
    to: *mut f32,
    places: &[usize; 16],
) {
    // SAFETY: passed on.
    unsafe {
        let mut columns = [[V::zero(); 4]; 4];
        for (j, column) in columns.iter_mut().enumerate() {
            *column = input([
                d.load::<V, INSIDE>([0, j], at, left),
                d.load::<V, INSIDE>([1, j], at, left),
                d.load::<V, INSIDE>([2, j], at, left),
                d.load::<V, INSIDE>([3, j], at, left),
            ]);
        }
        for i in 0..4 {
            let row = input([columns[0][i], columns[1][i], columns[2][i], columns[3][i]]);
            for (j, v) in row.into_iter().enumerate() {
                store(v, to.wrapping_add(places[4 * i + j]), left);
            }
        }
    }
}

by_vectors! {
    /// Aᵀ m A of `n` channels to the pixels of 2×2 tiles that are inside; tile t's product ξ at `m + t·tile + ξ·plane`.
    ///
    /// # Safety
    /// The products hold the channels, and the pixels inside have room for them.
    pub unsafe fn output_tiles<V>(isa, m: *const f32, tile: usize, plane: usize, n: usize, to: &Tiles) {
        let whole = n - n % V::WIDTH;
        for (t, to) in to.squares().enumerate() {
            let (m, to) = (m.wrapping_add(t * tile), &to);
            // SAFETY: passed on.
            unsafe {
                if to.is_inside(2) {
                    for at in (0..whole).step_by(V::WIDTH) {
                        output_channels::<V, true>(m.add(at), plane, at, V::WIDTH, to);
                    }
                } else {
                    for at in (0..whole).step_by(V::WIDTH) {
                        output_channels::<V, false>(m.add(at), plane, at, V::WIDTH, to);
                    }
                }
                if whole < n {
                    output_channels::<V, false>(m.add(whole), plane, whole, n - whole, to);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn output_channels<V: Vector, const INSIDE: bool>(
    m: *const f32,
    plane: usize,
    at: usize,
    left: usize,
    to: &Square,
) {
    // SAFETY: passed on.
    unsafe {
        let mut columns = [[V::zero(); 2]; 4];
        for (j, column) in columns.iter_mut().enumerate() {
            let m = |i: usize| load(m.add((4 * i + j) * plane), left);
            *column = output([m(0), m(1), m(2), m(3)]);
        }
        for i in 0..2 {
            let row = output([columns[0][i], columns[1][i], columns[2][i], columns[3][i]]);
            for (j, v) in row.into_iter().enumerate() {
                if INSIDE || to.rows.contains(&i) && to.columns.contains(&j) {
                    store(v, to.start.wrapping_add(i * to.line + j * to.pixel + at), left);
                }
            }
        }
    }
}

/// A filter's taps: element (tap, depth, column) at `start + tap·tap_stride + depth·stride + column`, the taps backwards
/// where they are `flipped`.
#[derive(Clone, Copy, Debug)]
pub struct Taps3x3 {
    pub start: *const f32,
    pub tap: usize,
    pub stride: usize,
    pub flipped: bool,
}

/// Where transformed filters go: product ξ, depth p and column j at `start + ξ·plane + (j ÷ nr)·panel + p·nr + j mod nr`.
#[derive(Clone, Copy, Debug)]
pub struct Panels {
    pub start: *mut f32,
    pub plane: usize,
    pub panel: usize,
    pub nr: usize,
}

by_vectors! {
    /// G w Gᵀ for some depths and columns.
    ///
    /// # Safety
    /// The filter holds them, and there is room for whole panels.
    pub unsafe fn filters<V>(isa, w: Taps3x3, depths: usize, columns: usize, to: Panels) {
        // SAFETY: passed on.
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

#[inline(always)]
unsafe fn filter_columns<V: Vector>(w: Taps3x3, left: usize, to: Panels) {
    // SAFETY: passed on; a panel is a whole number of registers wide.
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
            let row = filter([columns[0][i], columns[1][i], columns[2][i]]);
            for (j, v) in row.into_iter().enumerate() {
                v.store(to.start.add((4 * i + j) * to.plane));
            }
        }
    }
}

/// Where a row of four products goes: product j, panel q and tile t at `start + j·plane + q·panel + t·width`.
#[derive(Clone, Copy, Debug)]
pub struct RowPanels {
    pub start: *mut f32,
    pub plane: usize,
    pub panel: usize,
    pub width: usize,
}

by_vectors! {
    /// Row `i` of Bᵀ d B, of `n` channels of 4×4 tiles from channel `first` on.
    ///
    /// # Safety
    /// The pixels inside hold the channels, and the panels have room for them.
    pub unsafe fn input_rows<V>(isa, from: &Tiles, i: usize, first: usize, n: usize, to: RowPanels) {
        // SAFETY: passed on.
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
#[inline(always)]
unsafe fn input_row<V: Vector>(
    from: &Tiles,
    lines: [usize; 2],
    first: usize,
    n: usize,
    to: RowPanels,
    join: impl Fn(V, V) -> V,
) {
    for (t, d) in from.squares().enumerate() {
        let to = RowPanels { start: to.start.wrapping_add(t * to.width), ..to };
        // SAFETY: passed on.
        unsafe {
            if d.is_inside(4) {
                input_panels::<V, true>(&d, lines, first, n, to, &join);
            } else {
                input_panels::<V, false>(&d, lines, first, n, to, &join);
            }
        }
    }
}

#[inline(always)]
unsafe fn input_panels<V: Vector, const INSIDE: bool>(
    d: &Square,
    [a, b]: [usize; 2],
    first: usize,
    n: usize,
    to: RowPanels,
    join: &impl Fn(V, V) -> V,
) {
    for at in (0..n).step_by(to.width) {
        let panel = to.start.wrapping_add(at / to.width * to.panel);
        for within in (0..to.width.min(n - at)).step_by(V::WIDTH) {
            let left = (to.width.min(n - at) - within).min(V::WIDTH);
            // SAFETY: passed on.
            unsafe {
                let mut columns = [V::zero(); 4];
                for (j, column) in columns.iter_mut().enumerate() {
                    let from = first + at + within;
                    *column = join(d.load::<V, INSIDE>([a, j], from, left), d.load::<V, INSIDE>([b, j], from, left));
                }
                for (j, v) in input(columns).into_iter().enumerate() {
                    store(v, panel.wrapping_add(j * to.plane + within), left);
                }
            }
        }
    }
}

by_vectors! {
    /// Row `i` of A d Aᵀ, of `n` channels of 2×2 tiles from channel `first` on.
    ///
    /// # Safety
    /// The pixels inside hold the channels, and there is room for whole panels.
    pub unsafe fn gradient_rows<V>(isa, from: &Tiles, i: usize, first: usize, n: usize, to: RowPanels) {
        // SAFETY: passed on.
        unsafe {
            match i {
                0 => gradient_row::<V>(from, first, n, to, |a, _| a),
                1 => gradient_row::<V>(from, first, n, to, |a, b| a.add(b)),
                2 => gradient_row::<V>(from, first, n, to, |a, b| a.sub(b)),
                _ => gradient_row::<V>(from, first, n, to, |_, b| V::zero().sub(b)),
            }
        }
    }
}

/// `join` makes the row of A d from the two lines of a tile.
#[inline(always)]
unsafe fn gradient_row<V: Vector>(from: &Tiles, first: usize, n: usize, to: RowPanels, join: impl Fn(V, V) -> V) {
    for (t, d) in from.squares().enumerate() {
        let to = RowPanels { start: to.start.wrapping_add(t * to.width), ..to };
        // SAFETY: passed on.
        unsafe {
            if d.is_inside(2) {
                gradient_panels::<V, true>(&d, first, n, to, &join);
            } else {
                gradient_panels::<V, false>(&d, first, n, to, &join);
            }
        }
    }
}

#[inline(always)]
unsafe fn gradient_panels<V: Vector, const INSIDE: bool>(
    d: &Square,
    first: usize,
    n: usize,
    to: RowPanels,
    join: &impl Fn(V, V) -> V,
) {
    for at in (0..n).step_by(V::WIDTH) {
        let left = (n - at).min(V::WIDTH);
        let place = to.start.wrapping_add(at / to.width * to.panel + at % to.width);
        // SAFETY: passed on; a panel is a whole number of registers wide.
        unsafe {
            let column = |j: usize| {
                let pixel = |i: usize| d.load::<V, INSIDE>([i, j], first + at, left);
                join(pixel(0), pixel(1))
            };
            let (a, b) = (column(0), column(1));
            for (j, v) in [a, a.add(b), a.sub(b), V::zero().sub(b)].into_iter().enumerate() {
                v.store(place.wrapping_add(j * to.plane));
            }
        }
    }
}

/// Gᵀ times a column.
#[inline(always)]
unsafe fn taps<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 3] {
    // SAFETY: passed on.
    unsafe {
        let even = half(b.add(c));
        [a.add(even), half(b.sub(c)), even.add(d)]
    }
}

by_vectors! {
    /// Gᵀ u G of `n` columns: product ξ at `u + ξ·plane`, tap t to `to + t·tap`.
    ///
    /// # Safety
    /// The products hold the columns, and the taps have room for them.
    pub unsafe fn filter_taps<V>(isa, u: *const f32, plane: usize, n: usize, to: *mut f32, tap: usize) {
        for at in (0..n).step_by(V::WIDTH) {
            let left = (n - at).min(V::WIDTH);
            // SAFETY: passed on.
            unsafe {
                let mut columns = [[V::zero(); 3]; 4];
                for (j, column) in columns.iter_mut().enumerate() {
                    let u = |i: usize| load(u.add((4 * i + j) * plane + at), left);
                    *column = taps([u(0), u(1), u(2), u(3)]);
                }
                for i in 0..3 {
                    let row = taps([columns[0][i], columns[1][i], columns[2][i], columns[3][i]]);
                    for (j, v) in row.into_iter().enumerate() {
                        store(v, to.add((3 * i + j) * tap + at), left);
                    }
                }
            }
        }
    }
}
