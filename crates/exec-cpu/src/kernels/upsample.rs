//! Upsampling of images by whole factors, nearest or bilinear with half-pixel centres and clamped edges, and the
//! gradients. Gradients are gathered, so that threads write their own rows only.

use super::Image;
use super::tiles::for_channels;
use super::window::for_rows;
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use memfit_ir::op::{Upsample, UpsampleMode};
use std::ops::Range;

/// What upsampling makes of an image.
pub(crate) fn upsampled(x: Image, u: &Upsample) -> Image {
    Image { h: x.h * u.factor[0], w: x.w * u.factor[1], ..x }
}

/// y ← x, an image of `shape`, with height and width times the factors.
pub(crate) fn upsample(cpu: &Cpu, u: &Upsample, shape: Image, x: &[f32], y: &mut [f32]) {
    let (to, y) = (upsampled(shape, u), Parts::new(y));
    for_rows(cpu, to, 1, |rows, flat| {
        // SAFETY: each row belongs to one thread.
        let y = unsafe { y.range(flat) };
        let g = Geometry { factor: u.factor, from: shape, to };
        match u.mode {
            UpsampleMode::Nearest => nearest_rows(g, x, rows, y),
            UpsampleMode::Bilinear => bilinear_rows(cpu.isa, g, x, rows, y),
        }
    });
}

/// dx ← the gradient of [`upsample`] by its input, an image of `shape`.
pub(crate) fn upsample_grad(cpu: &Cpu, u: &Upsample, shape: Image, dy: &[f32], dx: &mut [f32]) {
    let (to, dx) = (upsampled(shape, u), Parts::new(dx));
    for_rows(cpu, shape, u.factor[0] * u.factor[1], |rows, flat| {
        // SAFETY: each row belongs to one thread.
        let dx = unsafe { dx.range(flat) };
        let g = Geometry { factor: u.factor, from: shape, to };
        match u.mode {
            UpsampleMode::Nearest => nearest_grad_rows(cpu.isa, g, dy, rows, dx),
            UpsampleMode::Bilinear => bilinear_grad_rows(cpu.isa, g, dy, rows, dx),
        }
    });
}

#[derive(Clone, Copy)]
struct Geometry {
    factor: [usize; 2],
    from: Image,
    to: Image,
}

/// The two places that an output reads on one axis, and the weight of the second.
#[derive(Clone, Copy)]
struct LinearTaps {
    low: usize,
    high: usize,
    weight: f32,
}

/// Output `o` looks at (o + ½)/factor − ½, not before the first and not behind the last of `n`.
#[inline(always)]
fn between(o: usize, factor: usize, n: usize) -> LinearTaps {
    // The same in units of 1/(2·factor), exactly.
    let place = (2 * o + 1).saturating_sub(factor);
    let (low, rest) = (place / (2 * factor), place % (2 * factor));
    LinearTaps { low, high: (low + 1).min(n - 1), weight: rest as f32 / (2 * factor) as f32 }
}

impl LinearTaps {
    /// The weight of place `i`.
    #[inline(always)]
    fn weight_of(self, i: usize) -> f32 {
        let low = if self.low == i { 1.0 - self.weight } else { 0.0 };
        low + if self.high == i { self.weight } else { 0.0 }
    }
}

/// Outputs that may read place `i` of `n`.
#[inline(always)]
fn readers(i: usize, factor: usize, n: usize) -> Range<usize> {
    let centre = 2 * factor * i;
    centre.saturating_sub(factor + 1) / 2..((centre + 3 * factor) / 2).min(n * factor)
}

fn nearest_rows(g: Geometry, x: &[f32], rows: Range<usize>, y: &mut [f32]) {
    let c = g.from.c;
    for (y, row) in y.chunks_exact_mut(g.to.w * c).zip(rows) {
        let from = g.from.row(row / g.to.h, row % g.to.h / g.factor[0]);
        let pixels = x[from..from + g.from.w * c].chunks_exact(c);
        for (x, y) in pixels.zip(y.chunks_exact_mut(g.factor[1] * c)) {
            y.chunks_exact_mut(c).for_each(|y| y.copy_from_slice(x));
        }
    }
}

simd! {
    fn nearest_grad_rows<FMA>(isa, g: Geometry, dy: &[f32], rows: Range<usize>, dx: &mut [f32]) {
        let places = rows.flat_map(|row| (0..g.from.w).map(move |x| (row, x)));
        for (dx, (row, px)) in dx.chunks_exact_mut(g.from.c).zip(places) {
            let (n, py) = (row / g.from.h, row % g.from.h);
            let block = &dy[g.to.row(n, py * g.factor[0]) + px * g.factor[1] * g.to.c..];
            for_channels!(g.from.c, |L, c| {
                let mut sum = [0.0; L];
                for i in 0..g.factor[0] {
                    for j in 0..g.factor[1] {
                        let at = (i * g.to.w + j) * g.to.c + c;
                        let dy = &block[at..at + L];
                        for l in 0..L { sum[l] += dy[l]; }
                    }
                }
                dx[c..c + L].copy_from_slice(&sum);
            });
        }
    }
}

simd! {
    fn bilinear_rows<FMA>(isa, g: Geometry, x: &[f32], rows: Range<usize>, y: &mut [f32]) {
        let places = rows.flat_map(|row| (0..g.to.w).map(move |x| (row, x)));
        for (y, (row, px)) in y.chunks_exact_mut(g.to.c).zip(places) {
            let v = between(row % g.to.h, g.factor[0], g.from.h);
            let h = between(px, g.factor[1], g.from.w);
            let n = row / g.to.h;
            let pixel = |py: usize, px: usize| &x[g.from.row(n, py) + px * g.from.c..][..g.from.c];
            let corners = [pixel(v.low, h.low), pixel(v.low, h.high), pixel(v.high, h.low), pixel(v.high, h.high)];
            let [a, b, c, d] = corners;
            for ((((y, &a), &b), &c), &d) in y.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                let top = fma::<FMA>(h.weight, b, (1.0 - h.weight) * a);
                let bottom = fma::<FMA>(h.weight, d, (1.0 - h.weight) * c);
                *y = fma::<FMA>(v.weight, bottom, (1.0 - v.weight) * top);
            }
        }
    }
}

simd! {
    fn bilinear_grad_rows<FMA>(isa, g: Geometry, dy: &[f32], rows: Range<usize>, dx: &mut [f32]) {
        let places = rows.flat_map(|row| (0..g.from.w).map(move |x| (row, x)));
        for (dx, (row, px)) in dx.chunks_exact_mut(g.from.c).zip(places) {
            let (n, py) = (row / g.from.h, row % g.from.h);
            dx.fill(0.0);
            for oy in readers(py, g.factor[0], g.from.h) {
                let wy = between(oy, g.factor[0], g.from.h).weight_of(py);
                for ox in readers(px, g.factor[1], g.from.w) {
                    let weight = wy * between(ox, g.factor[1], g.from.w).weight_of(px);
                    let at = g.to.row(n, oy) + ox * g.to.c;
                    let dy = &dy[at..at + g.to.c];
                    for (dx, &dy) in dx.iter_mut().zip(dy) {
                        *dx = fma::<FMA>(weight, dy, *dx);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    /// Weights of one axis as a matrix [outputs, inputs], from the definition.
    fn weights(mode: UpsampleMode, n: usize, factor: usize) -> Vec<Vec<f64>> {
        (0..n * factor)
            .map(|o| {
                let mut row = vec![0.0; n];
                match mode {
                    UpsampleMode::Nearest => row[o / factor] = 1.0,
                    UpsampleMode::Bilinear => {
                        let place = ((o as f64 + 0.5) / factor as f64 - 0.5).clamp(0.0, (n - 1) as f64);
                        let low = place.floor() as usize;
                        row[low] += 1.0 - (place - low as f64);
                        row[(low + 1).min(n - 1)] += place - low as f64;
                    }
                }
                row
            })
            .collect()
    }

    #[test]
    fn both_modes_and_their_gradients() {
        let shapes = [(1, 1, 1, 1), (2, 3, 4, 5), (1, 1, 3, 17), (1, 2, 1, 33), (2, 9, 7, 24)];
        for (n, h, w, c) in shapes {
            for (mode, factor) in
                UpsampleMode::ALL.iter().flat_map(|&m| [[1, 1], [2, 2], [3, 2], [1, 4]].map(|f| (m, f)))
            {
                let (u, shape) = (Upsample { mode, factor }, Image::new(n, h, w, c));
                let to = upsampled(shape, &u);
                let (x, dy) = (random(shape.len(), 1), random(to.len(), 2));
                let (wy, wx) = (weights(mode, h, factor[0]), weights(mode, w, factor[1]));
                let (mut y, mut dx) = (vec![0.0; to.len()], vec![0.0; shape.len()]);
                for o in 0..to.len() {
                    let (ch, ox, oy, i) = (o % c, o / c % to.w, o / c / to.w % to.h, o / c / to.w / to.h);
                    for (iy, ix) in (0..h).flat_map(|iy| (0..w).map(move |ix| (iy, ix))) {
                        let (at, weight) = (shape.row(i, iy) + ix * c + ch, wy[oy][iy] * wx[ox][ix]);
                        y[o] += weight * x[at] as f64;
                        dx[at] += weight * dy[o] as f64;
                    }
                }
                check(&format!("{u:?} {shape:?}"), 1e-6, &[y, dx], |cpu| {
                    let (mut y, mut dx) = (nans(to.len()), nans(shape.len()));
                    upsample(cpu, &u, shape, &x, &mut y);
                    upsample_grad(cpu, &u, shape, &dy, &mut dx);
                    vec![y, dx]
                });
            }
        }
    }
}
