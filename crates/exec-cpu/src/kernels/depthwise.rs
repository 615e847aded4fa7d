//! Depthwise convolution: a filter [height, width, 1, channels] with one filter a channel. Forward and the gradient by the
//! input are one walk over taps; `depthwise_lines.rs` has its inner loops, [`super::depthwise_filter`] the filter's gradient.
//!
//! Pixels are made in the order of memory, a few rows at a time, so that what follows can look at them in the cache.

use super::Image;
use super::depthwise_lines::make_pixels;
use crate::Cpu;
use crate::pool::part;
use memfit_ir::op::Conv;
use std::ops::Range;

/// Elements of the rows that are made at once: channels are walked through one tile after the other, and the rows that they
/// read stay in the second-level cache meanwhile.
const AT_ONCE: usize = 32 << 10;
/// Multiplications that are worth another thread.
const GRAIN: usize = 4096;

/// A depthwise convolution of an image: its geometry, and the height and width of the filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depthwise {
    pub(crate) conv: Conv,
    pub(crate) filter: [usize; 2],
}

impl Depthwise {
    /// What the convolution makes of an image.
    pub(crate) fn output(&self, x: Image) -> Image {
        let pad = [self.conv.pad.top + self.conv.pad.bottom, self.conv.pad.left + self.conv.pad.right];
        let out = |n: usize, i: usize| {
            (n + pad[i] - (self.filter[i] - 1) * self.conv.dilation[i] - 1) / self.conv.stride[i] + 1
        };
        Image { h: out(x.h, 0), w: out(x.w, 1), ..x }
    }

    /// y ← the convolution of x, an image of `shape`.
    pub(crate) fn forward(&self, shape: Image) -> Pass {
        Pass { axes: Axis::both(self, shape, false), width: self.filter[1], from: shape, to: self.output(shape) }
    }

    /// dx, an image of `shape`, ← the gradient of [`Depthwise::forward`] by its input.
    pub(crate) fn backward(&self, shape: Image) -> Pass {
        let from = self.output(shape);
        Pass { axes: Axis::both(self, from, true), width: self.filter[1], from, to: shape }
    }
}

/// One walk over an image: pixels of `to` are sums over pixels of `from`.
#[derive(Clone, Copy)]
pub(crate) struct Pass {
    pub(super) axes: [Axis; 2],
    /// Of the filter.
    pub(super) width: usize,
    pub(super) from: Image,
    pub(super) to: Image,
}

/// Where the images of a pass and its filter start.
#[derive(Clone, Copy)]
pub(crate) struct Tensors {
    pub(crate) from: *const f32,
    pub(crate) filter: *const f32,
    pub(crate) to: *mut f32,
}

// SAFETY: it gives nothing but addresses; threads write different pixels behind them, and nobody writes what is read.
unsafe impl Sync for Tensors {}

impl Pass {
    /// Makes all pixels, and calls `epilogue(thread, pixels)` for some at a time when they are complete, each thread in order.
    /// One thread makes `together` pixels, counted from the first one on.
    ///
    /// # Safety
    /// The tensors have the lengths that the shapes say, what is written overlaps nothing that is read, and nobody else touches a
    /// pixel before it is complete.
    pub(crate) unsafe fn run(
        &self,
        cpu: &Cpu,
        t: Tensors,
        together: usize,
        epilogue: &(dyn Fn(usize, Range<usize>) + Sync),
    ) {
        let (pixels, work) = (self.to.n * self.to.h * self.to.w, self.axes[0].size * self.axes[1].size * self.to.c);
        if work == 0 || pixels == 0 {
            return;
        }
        let grain = together * GRAIN.div_ceil(work * together);
        let at_once = AT_ONCE.div_ceil(self.to.w * self.to.c) * self.to.w;
        let tensors = &t;
        let make = |thread: usize, range: Range<usize>| {
            let mut start = range.start;
            while start < range.end {
                let end = range.end.min((start / at_once + 1) * at_once);
                // SAFETY: the tensors are as the caller promises, and threads have different pixels.
                unsafe { make_pixels(cpu.isa, self, *tensors, start..end) };
                epilogue(thread, start..end);
                start = end;
            }
        };
        if pixels <= grain {
            return make(0, 0..pixels);
        }
        let threads = cpu.pool.threads();
        cpu.pool.run(&|thread| make(thread, part(pixels, grain, threads, thread)));
    }
}

/// Which places an output reads on one axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    size: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
    /// Extent of what is read.
    pub(crate) extent: usize,
    /// From the outputs of the convolution to its inputs.
    back: bool,
}

/// Taps of the filter that one output uses, in the order of the places that they read: tap `first + i·step` reads place
/// `place + i·stride`.
#[derive(Clone, Copy)]
pub(super) struct Taps {
    pub(crate) first: isize,
    pub(crate) step: isize,
    pub(crate) count: usize,
    pub(crate) place: isize,
    pub(crate) stride: isize,
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
    pub(crate) fn phases(self) -> usize {
        if self.back { self.stride } else { 1 }
    }

    /// … and read places that are this far apart.
    pub(crate) fn advance(self) -> usize {
        if self.back { 1 } else { self.stride }
    }

    /// The taps of output `o`, whether they lie inside or not.
    pub(crate) fn taps(self, o: usize) -> Taps {
        if !self.back {
            let place = (o * self.stride) as isize - self.pad as isize;
            return Taps { first: 0, step: 1, count: self.size, place, stride: self.dilation as isize };
        }
        // Tap t of the convolution's output p reads p·stride + t·dilation − pad; here that is o. The last tap reads first.
        let reach = o + self.pad;
        let step = self.stride / gcd(self.stride, self.dilation);
        let hits = |t: &usize| t * self.dilation % self.stride == reach % self.stride;
        let lowest = (0..step).find(hits).unwrap_or(self.size);
        let count = self.size.saturating_sub(lowest).div_ceil(step);
        let first = (lowest + count.saturating_sub(1) * step) as isize;
        Taps {
            first,
            step: -(step as isize),
            count,
            place: (reach as isize - first * self.dilation as isize) / self.stride as isize,
            stride: (step * self.dilation / self.stride) as isize,
        }
    }

    /// Those of the taps that read inside.
    pub(crate) fn clip(self, mut taps: Taps) -> Taps {
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
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};
    use memfit_ir::op::Pad2;
    use std::sync::Mutex;

    pub(crate) fn cases() -> Vec<(Image, Depthwise)> {
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
            (Image::new(3, 7, 7, 100), case([5, 5], [1, 1], Pad2::all(2), [1, 1])),
            (Image::new(2, 15, 14, 90), case([3, 3], [2, 2], Pad2::all(1), [1, 1])),
            (Image::new(2, 14, 15, 81), case([5, 5], [2, 2], Pad2::all(2), [1, 1])),
            (Image::new(2, 9, 2, 20), case([5, 5], [1, 1], Pad2::all(3), [1, 1])),
            (Image::new(2, 10, 12, 50), case([4, 4], [1, 1], Pad2::all(1), [1, 1])),
            (Image::new(1, 12, 11, 18), case([7, 7], [1, 2], Pad2::all(3), [1, 1])),
        ]
    }

    /// All (y, x, w) places whose product is in the convolution.
    pub(crate) fn products(shape: Image, d: &Depthwise) -> Vec<[usize; 3]> {
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

    /// What a pass makes, where each pixel is finished once, after the one before of its thread.
    fn run(cpu: &Cpu, pass: Pass, x: &[f32], w: &[f32], together: usize) -> Vec<f32> {
        let mut y = nans(pass.to.len());
        let finished: Vec<Mutex<Vec<usize>>> = (0..cpu.pool.threads()).map(|_| Mutex::default()).collect();
        let finish = |thread: usize, pixels: Range<usize>| finished[thread].lock().unwrap().extend(pixels);
        let tensors = Tensors { from: x.as_ptr(), filter: w.as_ptr(), to: y.as_mut_ptr() };
        // SAFETY: the slices have the lengths of their shapes.
        unsafe { pass.run(cpu, tensors, together, &finish) };
        let mut next = 0;
        for pixels in finished.into_iter().map(|p| p.into_inner().unwrap()) {
            assert!(pixels.is_empty() || next % together == 0, "a thread starts at pixel {next}");
            for pixel in pixels {
                assert_eq!(pixel, next);
                next += 1;
            }
        }
        assert_eq!(next, pass.to.n * pass.to.h * pass.to.w);
        y
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
            for together in [1, 5, 64] {
                check(&format!("{d:?} on {shape:?}"), 2e-6, &[y.clone(), dx.clone()], |cpu| {
                    let y = run(cpu, d.forward(shape), &x, &w, together);
                    let dx = run(cpu, d.backward(shape), &dy, &w, together);
                    vec![y, dx]
                });
            }
        }
    }
}
