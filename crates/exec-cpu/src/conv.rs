//! Convolutions as matrix products: forward, transposed (the gradient by the input) and by the filter. Patches are packed
//! straight from the image; nothing is materialised.

use memfit_ir::op::Conv;

use crate::gemm::{A, B, Gemm, Micro, Operands, Patches, Rows, Taps, scratch_len};
use crate::winograd::{self, Geometry};

/// The sizes of `y = conv(x, w)`; the three products of a convolution share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvShape {
    pub(crate) batch: usize,
    /// Height and width of x.
    pub(crate) image: [usize; 2],
    pub(crate) channels_in: usize,
    pub(crate) channels_out: usize,
    pub(crate) filter: [usize; 2],
    /// Height and width of y.
    pub(crate) out: [usize; 2],
    pub(crate) conv: Conv,
}

/// Which of the three is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// y = x·w
    Forward,
    /// x = y·w
    Transposed,
    /// w = x·y
    Filter,
}

impl ConvShape {
    /// One filter a channel: these have kernels of their own.
    pub(crate) fn is_depthwise(&self) -> bool {
        self.conv.groups == self.channels_in && self.channels_in == self.channels_out && self.conv.groups > 1
    }

    fn group_in(&self) -> usize {
        self.channels_in / self.conv.groups
    }

    fn group_out(&self) -> usize {
        self.channels_out / self.conv.groups
    }

    /// Calls `each` for every matrix product that makes up a product of the convolution; the operands are in the order in which
    /// [`Product`] names them.
    pub(crate) fn products(&self, product: Product, operands: Operands, mut each: impl FnMut(&Gemm)) {
        for group in 0..self.conv.groups {
            match product {
                Product::Forward => each(&self.forward(operands, group)),
                Product::Filter => each(&self.filter(operands, group)),
                Product::Transposed => {
                    for py in 0..self.conv.stride[0].min(self.image[0]) {
                        for px in 0..self.conv.stride[1].min(self.image[1]) {
                            if let Some(g) = self.transposed(operands, group, [py, px]) {
                                each(&g);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Elements of scratch for a product, of whose operands some may have prologues.
    pub(crate) fn scratch_len(&self, micro: &Micro, product: Product, prologues: [bool; 2], threads: usize) -> usize {
        if let Some(g) = Geometry::new(self, product) {
            return match product {
                Product::Forward | Product::Transposed => winograd::scratch_len(micro, &g, prologues, threads),
                Product::Filter => winograd::filter_scratch_len(micro, &g, prologues, threads),
            };
        }
        let mut most = 0;
        self.products(product, Operands::unplaced(prologues), |g| most = most.max(scratch_len(micro, g, threads)));
        most
    }

    fn patches(&self) -> Patches {
        Patches {
            size: self.image,
            channels: self.channels_in,
            used_channels: self.group_in(),
            grid: self.out,
            taps: self.filter,
            stride: self.conv.stride,
            origin: [-(self.conv.pad.top as isize), -(self.conv.pad.left as isize)],
            dilation: self.conv.dilation,
        }
    }

    fn forward<'a>(&self, x_w_y: Operands<'a>, group: usize) -> Gemm<'a> {
        // Pixels as they stand: no patches to find.
        let plain = self.filter == [1, 1] && self.conv.stride == [1, 1] && self.out == self.image;
        Gemm {
            m: self.batch * self.out[0] * self.out[1],
            n: self.group_out(),
            k: self.filter[0] * self.filter[1] * self.group_in(),
            a: if plain { A::Rows { stride: self.channels_in } } else { A::Patches(self.patches()) },
            b: B::Rows { stride: self.channels_out },
            rows: Rows::plain(self.channels_out),
            operands: x_w_y.skip([self.group_in(), self.group_out(), self.group_out()].map(|n| group * n)),
        }
    }

    fn filter<'a>(&self, x_y_w: Operands<'a>, group: usize) -> Gemm<'a> {
        Gemm {
            m: self.filter[0] * self.filter[1] * self.group_in(),
            n: self.group_out(),
            k: self.batch * self.out[0] * self.out[1],
            a: A::PatchColumns(self.patches()),
            b: B::Rows { stride: self.channels_out },
            rows: Rows::plain(self.channels_out),
            operands: x_y_w.skip([self.group_in(), self.group_out(), self.group_out()].map(|n| group * n)),
        }
    }

    /// The pixels of x whose position is `phase` modulo the stride: for them it is a plain convolution over y with those
    /// taps of the filter that reach them.
    fn transposed<'a>(&self, y_w_x: Operands<'a>, group: usize, phase: [usize; 2]) -> Option<Gemm<'a>> {
        let axis = |i: usize, pad: usize| {
            PhaseAxis::new(self.image[i], phase[i], pad, self.filter[i], self.conv.stride[i], self.conv.dilation[i])
        };
        let (v, h) = (axis(0, self.conv.pad.top)?, axis(1, self.conv.pad.left)?);
        let (group_in, group_out) = (self.group_in(), self.group_out());
        let line = self.image[1] * self.channels_in;
        let patches = Patches {
            size: self.out,
            channels: self.channels_out,
            used_channels: group_out,
            grid: [v.pixels, h.pixels],
            taps: [v.taps, h.taps],
            stride: [1, 1],
            origin: [v.origin, h.origin],
            dilation: [v.dilation, h.dilation],
        };
        let taps = Taps {
            across: h.taps.max(1),
            first: [v.first_tap, h.first_tap],
            step: [-(v.tap_step as isize), -(h.tap_step as isize)],
            filter_width: self.filter[1],
            tap_stride: group_in * self.channels_out,
        };
        Some(Gemm {
            m: self.batch * v.pixels * h.pixels,
            n: group_in,
            k: v.taps * h.taps * group_out,
            a: A::Patches(patches),
            b: B::Taps { stride: self.channels_out, per_tap: group_out, taps },
            rows: Rows {
                grid: [v.pixels, h.pixels],
                image: self.image[0] * line,
                line: self.conv.stride[0] * line,
                pixel: self.conv.stride[1] * self.channels_in,
            },
            operands: y_w_x.skip([
                group * group_out,
                group * group_out,
                group * group_in + phase[0] * line + phase[1] * self.channels_in,
            ]),
        })
    }
}

/// One axis of a phase of a transposed convolution.
struct PhaseAxis {
    /// Pixels of x on this phase.
    pixels: usize,
    /// Taps that reach them; along the depth they stand backwards, so that positions in y ascend.
    taps: usize,
    first_tap: usize,
    tap_step: usize,
    /// Position in y that the first tap reads for pixel 0, and the distance to the next tap's.
    origin: isize,
    dilation: usize,
}

impl PhaseAxis {
    fn new(size: usize, phase: usize, pad: usize, filter: usize, stride: usize, dilation: usize) -> Option<PhaseAxis> {
        if phase >= size {
            return None;
        }
        let pixels = (size - phase).div_ceil(stride);
        // Pixel p of x meets tap k at position (p + pad − k·dilation) ÷ stride of y, where that is whole.
        let meets = |k: usize| (phase + pad + stride * dilation * filter - k * dilation).is_multiple_of(stride);
        let Some(lowest) = (0..filter).find(|&k| meets(k)) else {
            return Some(PhaseAxis { pixels, taps: 0, first_tap: 0, tap_step: 0, origin: 0, dilation: 1 });
        };
        let tap_step = stride / gcd(stride, dilation);
        let taps = (filter - 1 - lowest) / tap_step + 1;
        let first_tap = lowest + (taps - 1) * tap_step;
        let origin = ((phase + pad) as isize - (first_tap * dilation) as isize) / stride as isize;
        Some(PhaseAxis { pixels, taps, first_tap, tap_step, origin, dilation: tap_step * dilation / stride })
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
