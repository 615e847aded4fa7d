//! Depthwise convolution: a filter [height, width, 1, channels] with one filter a channel. Forward and the gradient by the
//! input are one loop over taps that walks forwards or backwards; [`super::depthwise_filter`] has the filter's gradient.

use super::Image;
use super::tiles::for_channels;
use super::window::for_rows;
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use memfit_ir::op::Conv;
use std::ops::Range;

/// Neighbouring pixels that share the loads of the filter.
const BLOCK: usize = 4;

/// A depthwise convolution of an image: its geometry, and the height and width of the filter.
#[derive(Clone, Copy, Debug)]
pub struct Depthwise {
    pub conv: Conv,
    pub filter: [usize; 2],
}

impl Depthwise {
    /// What the convolution makes of an image.
    pub fn output(&self, x: Image) -> Image {
        let pad = [self.conv.pad.top + self.conv.pad.bottom, self.conv.pad.left + self.conv.pad.right];
        let out = |n: usize, i: usize| {
            (n + pad[i] - (self.filter[i] - 1) * self.conv.dilation[i] - 1) / self.conv.stride[i] + 1
        };
        Image { h: out(x.h, 0), w: out(x.w, 1), ..x }
    }
}

/// y ← the convolution of x, an image of `shape`, with w.
pub fn depthwise(cpu: &Cpu, d: &Depthwise, shape: Image, x: &[f32], w: &[f32], y: &mut [f32]) {
    let to = d.output(shape);
    let axes = Axis::both(d, shape, false);
    run(cpu, Pass { axes, width: d.filter[1], from: shape, to }, x, w, y);
}

/// dx ← the gradient of [`depthwise`] by its input, an image of `shape`.
pub fn depthwise_input_grad(cpu: &Cpu, d: &Depthwise, shape: Image, dy: &[f32], w: &[f32], dx: &mut [f32]) {
    let from = d.output(shape);
    let axes = Axis::both(d, from, true);
    run(cpu, Pass { axes, width: d.filter[1], from, to: shape }, dy, w, dx);
}

fn run(cpu: &Cpu, pass: Pass, x: &[f32], w: &[f32], y: &mut [f32]) {
    let y = Parts::new(y);
    for_rows(cpu, pass.to, pass.axes[0].size * pass.axes[1].size, |rows, flat| {
        // SAFETY: each row belongs to one thread.
        let y = unsafe { y.range(flat) };
        pass_rows(cpu.isa, &pass, x, w, rows, y);
    });
}

/// One walk over an image: pixels of `to` are sums over pixels of `from`.
struct Pass {
    axes: [Axis; 2],
    /// Of the filter.
    width: usize,
    from: Image,
    to: Image,
}

/// Which places an output reads on one axis.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
    /// Extent of what is read.
    extent: usize,
    /// From the outputs of the convolution to its inputs.
    back: bool,
}

/// Taps of the filter that one output uses: tap `first + i·step` reads place `place + i·stride`.
#[derive(Clone, Copy)]
struct Taps {
    first: usize,
    step: usize,
    count: usize,
    place: isize,
    stride: isize,
}

impl Axis {
    fn both(d: &Depthwise, from: Image, back: bool) -> [Axis; 2] {
        let (pad, extent) = ([d.conv.pad.top, d.conv.pad.left], [from.h, from.w]);
        [0, 1].map(|i| Axis {
            size: d.filter[i],
            stride: d.conv.stride[i],
            dilation: d.conv.dilation[i],
            pad: pad[i],
            extent: extent[i],
            back,
        })
    }

    /// Outputs that use the same taps are this far apart …
    fn phases(self) -> usize {
        if self.back { self.stride } else { 1 }
    }

    /// … and read places that are this far apart.
    fn advance(self) -> usize {
        if self.back { 1 } else { self.stride }
    }

    /// The taps of output `o`, whether they lie inside or not.
    fn taps(self, o: usize) -> Taps {
        if !self.back {
            let place = (o * self.stride) as isize - self.pad as isize;
            return Taps { first: 0, step: 1, count: self.size, place, stride: self.dilation as isize };
        }
        // Tap t of the convolution's output p reads p·stride + t·dilation − pad; here that is o.
        let reach = o + self.pad;
        let step = self.stride / gcd(self.stride, self.dilation);
        let hits = |t: &usize| t * self.dilation % self.stride == reach % self.stride;
        let first = (0..step).find(hits).unwrap_or(self.size);
        Taps {
            first,
            step,
            count: self.size.saturating_sub(first).div_ceil(step),
            place: (reach as isize - (first * self.dilation) as isize) / self.stride as isize,
            stride: -((step * self.dilation / self.stride) as isize),
        }
    }

    /// Those of the taps that read inside.
    fn clip(self, mut taps: Taps) -> Taps {
        let inside = |place: isize| place >= 0 && (place as usize) < self.extent;
        while taps.count > 0 && !inside(taps.place) {
            taps.first += taps.step;
            taps.place += taps.stride;
            taps.count -= 1;
        }
        while taps.count > 0 && !inside(taps.place + (taps.count as isize - 1) * taps.stride) {
            taps.count -= 1;
        }
        taps
    }

    /// Whether all the taps of `n` outputs of one phase read inside.
    fn whole(self, taps: Taps, n: usize) -> bool {
        let last = taps.place + (taps.count as isize - 1) * taps.stride;
        let furthest = last.max(taps.place) + ((n - 1) * self.advance()) as isize;
        taps.count > 0 && last.min(taps.place) >= 0 && furthest < self.extent as isize
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

simd! {
    fn pass_rows<FMA>(isa, pass: &Pass, x: &[f32], w: &[f32], rows: Range<usize>, y: &mut [f32]) {
        let (c, axis) = (pass.to.c, pass.axes[1]);
        for (y, row) in y.chunks_exact_mut(pass.to.w * c).zip(rows) {
            let vertical = pass.axes[0].clip(pass.axes[0].taps(row % pass.to.h));
            let image = &x[pass.from.row(row / pass.to.h, 0)..][..pass.from.h * pass.from.w * c];
            for phase in 0..axis.phases().min(pass.to.w) {
                let mut o = phase;
                while o < pass.to.w {
                    let taps = axis.taps(o);
                    let last = o + (BLOCK - 1) * axis.phases();
                    if last < pass.to.w && axis.whole(taps, BLOCK) {
                        pixels::<FMA, BLOCK>(pass, [vertical, taps], image, w, o, y);
                        o = last + axis.phases();
                    } else {
                        pixels::<FMA, 1>(pass, [vertical, axis.clip(taps)], image, w, o, y);
                        o += axis.phases();
                    }
                }
            }
        }
    }
}

/// `N` outputs of one phase from output `o` on, all channels.
#[inline(always)]
fn pixels<const FMA: bool, const N: usize>(
    pass: &Pass,
    [vertical, horizontal]: [Taps; 2],
    image: &[f32],
    w: &[f32],
    o: usize,
    y: &mut [f32],
) {
    let channels = pass.to.c;
    let (x_step, y_step) = (pass.axes[1].advance() * channels, pass.axes[1].phases() * channels);
    for_channels!(channels, |L, c| {
        let mut sum = [[0.0; L]; N];
        for i in 0..vertical.count {
            let py = (vertical.place + i as isize * vertical.stride) as usize;
            let kh = vertical.first + i * vertical.step;
            for j in 0..horizontal.count {
                let px = (horizontal.place + j as isize * horizontal.stride) as usize;
                let kw = horizontal.first + j * horizontal.step;
                let at = (kh * pass.width + kw) * channels + c;
                let w = &w[at..at + L];
                let at = (py * pass.from.w + px) * channels + c;
                let x = &image[at..at + (N - 1) * x_step + L];
                for (n, sum) in sum.iter_mut().enumerate() {
                    // SAFETY: n ≤ N − 1, so that the end is at most that of x.
                    let x = unsafe { x.get_unchecked(n * x_step..n * x_step + L) };
                    for l in 0..L {
                        sum[l] = fma::<FMA>(x[l], w[l], sum[l]);
                    }
                }
            }
        }
        for (n, sum) in sum.iter().enumerate() {
            let at = o * channels + n * y_step + c;
            y[at..at + L].copy_from_slice(sum);
        }
    });
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};
    use memfit_ir::op::Pad2;

    pub fn cases() -> Vec<(Image, Depthwise)> {
        let case =
            |filter, stride, pad, dilation| Depthwise { conv: Conv { stride, pad, dilation, groups: 0 }, filter };
        let odd = Pad2 { top: 1, bottom: 2, left: 0, right: 3 };
        vec![
            (Image::new(1, 1, 1, 1), case([1, 1], [1, 1], Pad2::NONE, [1, 1])),
            (Image::new(1, 1, 1, 17), case([3, 3], [1, 1], Pad2::all(1), [1, 1])),
            (Image::new(2, 8, 9, 6), case([3, 3], [1, 1], Pad2::all(1), [1, 1])),
            (Image::new(2, 11, 10, 17), case([5, 5], [2, 2], Pad2::all(2), [1, 1])),
            (Image::new(1, 14, 13, 33), case([3, 3], [2, 2], Pad2 { top: 0, bottom: 1, left: 0, right: 1 }, [1, 1])),
            (Image::new(1, 15, 16, 3), case([3, 5], [1, 1], Pad2::all(4), [2, 3])),
            (Image::new(1, 20, 21, 16), case([4, 3], [2, 3], odd, [3, 2])),
            (Image::new(1, 20, 21, 24), case([3, 3], [2, 4], odd, [2, 2])),
            (Image::new(3, 6, 7, 72), case([2, 2], [3, 3], Pad2::NONE, [1, 1])),
            (Image::new(2, 28, 30, 40), case([5, 5], [1, 1], Pad2::all(2), [1, 1])),
        ]
    }

    /// All (y, x, w) places whose product is in the convolution.
    pub fn products(shape: Image, d: &Depthwise) -> Vec<[usize; 3]> {
        let to = d.output(shape);
        let mut products = Vec::new();
        for o in 0..to.len() {
            let (c, ox, oy, n) = (o % to.c, o / to.c % to.w, o / to.c / to.w % to.h, o / to.c / to.w / to.h);
            for k in 0..d.filter[0] * d.filter[1] {
                let (kh, kw) = (k / d.filter[1], k % d.filter[1]);
                let y = (oy * d.conv.stride[0] + kh * d.conv.dilation[0]).wrapping_sub(d.conv.pad.top);
                let x = (ox * d.conv.stride[1] + kw * d.conv.dilation[1]).wrapping_sub(d.conv.pad.left);
                if y < shape.h && x < shape.w {
                    products.push([o, shape.row(n, y) + x * shape.c + c, k * shape.c + c]);
                }
            }
        }
        products
    }

    #[test]
    fn forward_and_the_gradient_by_the_input() {
        for (shape, d) in cases() {
            let to = d.output(shape);
            let (x, dy) = (random(shape.len(), 1), random(to.len(), 2));
            let w = random(d.filter[0] * d.filter[1] * shape.c, 3);
            let (mut y, mut dx) = (vec![0.0; to.len()], vec![0.0; shape.len()]);
            for [o, i, k] in products(shape, &d) {
                y[o] += x[i] as f64 * w[k] as f64;
                dx[i] += dy[o] as f64 * w[k] as f64;
            }
            check(&format!("{d:?} on {shape:?}"), 2e-6, &[y, dx], |cpu| {
                let (mut y, mut dx) = (nans(to.len()), nans(shape.len()));
                depthwise(cpu, &d, shape, &x, &w, &mut y);
                depthwise_input_grad(cpu, &d, shape, &dy, &w, &mut dx);
                vec![y, dx]
            });
        }
    }
}
