//! Max and average pooling over images, channels last, and their gradients. Padding is skipped: it is never a maximum and
//! never counted in a mean. For a gradient, each row of dx looks for the windows that cover it, so that threads write their
//! own rows only.

use super::Image;
use super::tiles::for_channels;
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use memfit_ir::op::Window;
use std::ops::Range;

/// Elements that are worth a thread of their own.
const GRAIN: usize = 4096;

/// What pooling makes of an image.
pub(crate) fn pooled(x: Image, w: &Window) -> Image {
    let out = |size: usize, pad: usize, axis: usize| (size + pad - w.size[axis]) / w.stride[axis] + 1;
    Image { h: out(x.h, w.pad.top + w.pad.bottom, 0), w: out(x.w, w.pad.left + w.pad.right, 1), ..x }
}

/// y ← the maximum of each window, index ← the place of the first one in it: row·width + column of the window.
pub(crate) fn max_pool(cpu: &Cpu, window: &Window, shape: Image, x: &[f32], y: &mut [f32], index: &mut [u8]) {
    let to = pooled(shape, window);
    let (y, index) = (Parts::new(y), Parts::new(index));
    for_rows(cpu, to, window.size[0] * window.size[1], |rows, flat| {
        // SAFETY: each row belongs to one thread.
        let (y, index) = unsafe { (y.range(flat.clone()), index.range(flat)) };
        max_rows(cpu.isa, Geometry { window, from: shape, to }, x, rows, y, index);
    });
}

/// dx ← the gradient of [`max_pool`] by its input, an image of `shape`.
pub(crate) fn max_pool_grad(cpu: &Cpu, window: &Window, shape: Image, index: &[u8], dy: &[f32], dx: &mut [f32]) {
    let (to, dx) = (pooled(shape, window), Parts::new(dx));
    for_rows(cpu, shape, 4, |rows, flat| {
        // SAFETY: each row belongs to one thread.
        let dx = unsafe { dx.range(flat) };
        max_grad_rows(cpu.isa, Geometry { window, from: shape, to }, index, dy, rows, dx);
    });
}

/// y ← the mean of each window.
pub(crate) fn avg_pool(cpu: &Cpu, window: &Window, shape: Image, x: &[f32], y: &mut [f32]) {
    let (to, y) = (pooled(shape, window), Parts::new(y));
    for_rows(cpu, to, window.size[0] * window.size[1], |rows, flat| {
        // SAFETY: each row belongs to one thread.
        let y = unsafe { y.range(flat) };
        avg_rows(cpu.isa, Geometry { window, from: shape, to }, x, rows, y);
    });
}

/// dx ← the gradient of [`avg_pool`] by its input, an image of `shape`.
pub(crate) fn avg_pool_grad(cpu: &Cpu, window: &Window, shape: Image, dy: &[f32], dx: &mut [f32]) {
    let (to, dx) = (pooled(shape, window), Parts::new(dx));
    for_rows(cpu, shape, 4, |rows, flat| {
        // SAFETY: each row belongs to one thread.
        let dx = unsafe { dx.range(flat) };
        avg_grad_rows(cpu.isa, Geometry { window, from: shape, to }, dy, rows, dx);
    });
}

/// Runs `body(rows, elements)` on all rows of all images; `work` is the cost of an element.
pub(super) fn for_rows(cpu: &Cpu, image: Image, work: usize, body: impl Fn(Range<usize>, Range<usize>) + Sync) {
    let row = image.w * image.c;
    if row == 0 {
        return;
    }
    let grain = GRAIN.div_ceil(row * work.max(1));
    cpu.pool.split(image.n * image.h, grain, |rows| body(rows.clone(), rows.start * row..rows.end * row));
}

#[derive(Clone, Copy)]
struct Geometry<'a> {
    window: &'a Window,
    from: Image,
    to: Image,
}

impl Geometry<'_> {
    /// The window's rows that lie inside the image, and the image's row of the first of them.
    #[inline(always)]
    fn rows_of(&self, y: usize) -> (Range<usize>, usize) {
        inside(y * self.window.stride[0], self.window.pad.top, self.window.size[0], self.from.h)
    }

    #[inline(always)]
    fn cols_of(&self, x: usize) -> (Range<usize>, usize) {
        inside(x * self.window.stride[1], self.window.pad.left, self.window.size[1], self.from.w)
    }

    /// The windows that cover a row of the image.
    #[inline(always)]
    fn rows_over(&self, y: usize) -> Range<usize> {
        covering(y + self.window.pad.top, self.window.stride[0], self.window.size[0], self.to.h)
    }
}

#[inline(always)]
fn inside(start: usize, pad: usize, size: usize, n: usize) -> (Range<usize>, usize) {
    let first = pad.saturating_sub(start);
    (first..size.min((n + pad).saturating_sub(start)), start + first - pad)
}

#[inline(always)]
fn covering(place: usize, stride: usize, size: usize, n: usize) -> Range<usize> {
    let end = (place / stride + 1).min(n);
    (place + 1).saturating_sub(size).div_ceil(stride).min(end)..end
}

simd! {
    fn max_rows<FMA>(isa, g: Geometry, x: &[f32], rows: Range<usize>, y: &mut [f32], index: &mut [u8]) {
        let pixels = y.chunks_exact_mut(g.to.c).zip(index.chunks_exact_mut(g.to.c));
        let places = rows.flat_map(|row| (0..g.to.w).map(move |x| (row, x)));
        for ((y, index), (row, px)) in pixels.zip(places) {
            let (kh, top) = g.rows_of(row % g.to.h);
            let (kw, left) = g.cols_of(px);
            let image = &x[g.from.row(row / g.to.h, top) + left * g.from.c..];
            for_channels!(g.to.c, |L, c| {
                let mut best = [f32::NEG_INFINITY; L];
                let mut place = [(kh.start * g.window.size[1] + kw.start) as u32; L];
                for i in 0..kh.len() {
                    for j in 0..kw.len() {
                        let at = (i * g.from.w + j) * g.from.c + c;
                        let k = ((kh.start + i) * g.window.size[1] + kw.start + j) as u32;
                        let x = &image[at..at + L];
                        for l in 0..L {
                            let wins = x[l] > best[l] || x[l].is_nan();
                            best[l] = if wins { x[l] } else { best[l] };
                            place[l] = if wins { k } else { place[l] };
                        }
                    }
                }
                y[c..c + L].copy_from_slice(&best);
                index[c..c + L].copy_from_slice(&place.map(|k| k as u8));
            });
        }
    }
}

simd! {
    fn max_grad_rows<FMA>(isa, g: Geometry, index: &[u8], dy: &[f32], rows: Range<usize>, dx: &mut [f32]) {
        let c = g.from.c;
        for (dx, row) in dx.chunks_exact_mut(g.from.w * c).zip(rows) {
            let (n, py) = (row / g.from.h, row % g.from.h);
            dx.fill(0.0);
            for oy in g.rows_over(py) {
                let kh = py + g.window.pad.top - oy * g.window.stride[0];
                for ox in 0..g.to.w {
                    let (cols, left) = g.cols_of(ox);
                    let at = g.to.row(n, oy) + ox * c;
                    let (index, dy) = (&index[at..at + c], &dy[at..at + c]);
                    let first = kh * g.window.size[1] + cols.start;
                    for (j, dx) in dx[left * c..].chunks_exact_mut(c).take(cols.len()).enumerate() {
                        let k = (first + j) as u8;
                        for ((dx, &dy), &index) in dx.iter_mut().zip(dy).zip(index) {
                            *dx += if index == k { dy } else { 0.0 };
                        }
                    }
                }
            }
        }
    }
}

simd! {
    fn avg_rows<FMA>(isa, g: Geometry, x: &[f32], rows: Range<usize>, y: &mut [f32]) {
        let places = rows.flat_map(|row| (0..g.to.w).map(move |x| (row, x)));
        for (y, (row, px)) in y.chunks_exact_mut(g.to.c).zip(places) {
            let (kh, top) = g.rows_of(row % g.to.h);
            let (kw, left) = g.cols_of(px);
            let image = &x[g.from.row(row / g.to.h, top) + left * g.from.c..];
            let count = (kh.len() * kw.len()) as f32;
            for_channels!(g.to.c, |L, c| {
                let mut sum = [0.0; L];
                for i in 0..kh.len() {
                    for j in 0..kw.len() {
                        let at = (i * g.from.w + j) * g.from.c + c;
                        let x = &image[at..at + L];
                        for l in 0..L { sum[l] += x[l]; }
                    }
                }
                y[c..c + L].copy_from_slice(&sum.map(|s| s / count));
            });
        }
    }
}

simd! {
    fn avg_grad_rows<FMA>(isa, g: Geometry, dy: &[f32], rows: Range<usize>, dx: &mut [f32]) {
        let c = g.from.c;
        for (dx, row) in dx.chunks_exact_mut(g.from.w * c).zip(rows) {
            dx.fill(0.0);
            for oy in g.rows_over(row % g.from.h) {
                let height = g.rows_of(oy).0.len();
                for ox in 0..g.to.w {
                    let (cols, left) = g.cols_of(ox);
                    let share = 1.0 / (height * cols.len()) as f32;
                    let at = g.to.row(row / g.from.h, oy) + ox * c;
                    let dy = &dy[at..at + c];
                    for dx in dx[left * c..].chunks_exact_mut(c).take(cols.len()) {
                        for (dx, &dy) in dx.iter_mut().zip(dy) {
                            *dx = fma::<FMA>(dy, share, *dx);
                        }
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
    use memfit_ir::op::Pad2;

    fn cases() -> Vec<(Image, Window)> {
        let window = |size, stride, pad| Window { size, stride, pad };
        let odd = Pad2 { top: 1, bottom: 0, left: 0, right: 2 };
        vec![
            (Image::new(1, 1, 1, 1), window([1, 1], [1, 1], Pad2::NONE)),
            (Image::new(2, 8, 6, 3), window([2, 2], [2, 2], Pad2::NONE)),
            (Image::new(2, 9, 7, 17), window([3, 3], [2, 2], Pad2::all(1))),
            (Image::new(1, 12, 12, 64), window([3, 3], [2, 2], Pad2::all(1))),
            (Image::new(3, 5, 6, 33), window([2, 3], [1, 2], odd)),
            (Image::new(1, 1, 1, 16), window([3, 3], [1, 1], Pad2::all(1))),
            (Image::new(1, 7, 7, 20), window([2, 2], [3, 3], Pad2::NONE)),
            (Image::new(2, 30, 31, 24), window([5, 4], [1, 1], Pad2::all(2))),
        ]
    }

    /// All (output, window place, input) of a pooling whose input lies inside of the image, in the window's order.
    fn taps(shape: Image, w: &Window) -> Vec<(usize, usize, usize)> {
        let to = pooled(shape, w);
        let mut taps = Vec::new();
        for o in 0..to.len() {
            let (c, ox, oy, n) = (o % to.c, o / to.c % to.w, o / to.c / to.w % to.h, o / to.c / to.w / to.h);
            for k in 0..w.size[0] * w.size[1] {
                let y = (oy * w.stride[0] + k / w.size[1]).wrapping_sub(w.pad.top);
                let x = (ox * w.stride[1] + k % w.size[1]).wrapping_sub(w.pad.left);
                if y < shape.h && x < shape.w {
                    taps.push((o, k, shape.row(n, y) + x * shape.c + c));
                }
            }
        }
        taps
    }

    #[test]
    fn max_pool_and_its_gradient() {
        for (shape, w) in cases() {
            // Few different values, so that there are ties; and whole windows below zero.
            let x: Vec<f32> = random(shape.len(), 1).iter().map(|v| (v * 4.0).round() - 5.0).collect();
            let to = pooled(shape, &w);
            let dy = random(to.len(), 2);
            let mut best = vec![(f64::NEG_INFINITY, 0, 0); to.len()];
            for (o, k, i) in taps(shape, &w) {
                if x[i] as f64 > best[o].0 {
                    best[o] = (x[i] as f64, k, i);
                }
            }
            let mut dx = vec![0.0; shape.len()];
            best.iter().zip(&dy).for_each(|(b, &dy)| dx[b.2] += dy as f64);
            let want = [best.iter().map(|b| b.0).collect(), best.iter().map(|b| b.1 as f64).collect(), dx];
            check(&format!("max pool {shape:?} {w:?}"), 1e-6, &want, |cpu| {
                let (mut y, mut index, mut dx) = (nans(to.len()), vec![255; to.len()], nans(shape.len()));
                max_pool(cpu, &w, shape, &x, &mut y, &mut index);
                max_pool_grad(cpu, &w, shape, &index, &dy, &mut dx);
                vec![y, index.iter().map(|&i| i as f32).collect(), dx]
            });
        }
    }

    #[test]
    fn avg_pool_and_its_gradient() {
        for (shape, w) in cases() {
            let to = pooled(shape, &w);
            let (x, dy) = (random(shape.len(), 1), random(to.len(), 2));
            let (mut count, mut y, mut dx) = (vec![0.0; to.len()], vec![0.0; to.len()], vec![0.0; shape.len()]);
            for (o, _, i) in taps(shape, &w) {
                count[o] += 1.0;
                y[o] += x[i] as f64;
            }
            y.iter_mut().zip(&count).for_each(|(y, n)| *y /= n);
            taps(shape, &w).iter().for_each(|&(o, _, i)| dx[i] += dy[o] as f64 / count[o]);
            check(&format!("average pool {shape:?} {w:?}"), 1e-6, &[y, dx], |cpu| {
                let (mut y, mut dx) = (nans(to.len()), nans(shape.len()));
                avg_pool(cpu, &w, shape, &x, &mut y);
                avg_pool_grad(cpu, &w, shape, &dy, &mut dx);
                vec![y, dx]
            });
        }
    }
}
