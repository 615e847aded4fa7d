//! Packs the operands of a product on one thread: from memory, or from their prologues through a strip or a window of
//! scratch.

use std::ops::Range;
use std::ptr::copy_nonoverlapping;

use super::micro::{KC, Micro, ROW_STRIDE};
use super::operand::{Prologue, Source, Window, compute_lines};
use super::pack::{A, B, Patches, pack_columns, pack_patch};
use super::panel::{Columns, pack_rows, pack_turned};
use super::{Gemm, Order, Shape};
use crate::prefetch::BlockPrefetch;

/// Elements that a prologue computes at once where they are packed at once: they stay in the first-level cache.
const STRIP: usize = 8192;

/// How a computed left side is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// Straight to its packed place.
    Direct,
    /// Through a strip of as many elements.
    Strip(usize),
    /// From a window over the lines of the image, which moves along with rows or depths, and in which each element is
    /// computed once; of at most as many elements.
    Window(usize),
}

impl Reading {
    fn new(g: &Gemm, shape: &Shape) -> Reading {
        match g.a {
            // Rows that are one after the other are computed together.
            A::Rows { stride } if stride == g.k && stride <= KC => Reading::Strip(STRIP.min(g.m * g.k)),
            A::Rows { .. } => Reading::Direct,
            A::Columns { .. } => Reading::Strip(shape.mc * shape.kc),
            A::Patches(ref p) if shape.order == Order::Rows => Reading::Window(p.window(shape.mc).min(p.elements(g.m))),
            // Each depth reads all rows, so that a window would start anew for each.
            A::Patches(_) => Reading::Direct,
            A::PatchColumns(ref p) => Reading::Window(p.window(shape.kc).min(p.elements(g.k))),
        }
    }

    fn len(self) -> usize {
        match self {
            Reading::Direct => 0,
            Reading::Strip(n) | Reading::Window(n) => n.next_multiple_of(16),
        }
    }
}

/// Elements of scratch for computed operands on one thread.
pub(super) fn strip_len(g: &Gemm, shape: &Shape) -> usize {
    let a = if g.operands.a.has_prologue() { Reading::new(g, shape).len() } else { 0 };
    a + if g.operands.b.has_prologue() { STRIP.min(shape.nc * shape.kc) } else { 0 }
}

impl Patches {
    /// Of all images together, whose grids have this many pixels.
    pub(crate) fn elements(&self, pixels: usize) -> usize {
        pixels / (self.grid[0] * self.grid[1]).max(1) * self.size[0] * self.size[1] * self.channels
    }

    /// Most elements between the first and the last line that `pixels` neighbouring pixels of the grid read.
    pub(crate) fn window(&self, pixels: usize) -> usize {
        let ([rows, across], [height, width]) = (self.grid, self.size);
        let reach = self.taps[0].saturating_sub(1) * self.dilation[0] + 1;
        // Lines of the grid from the first pixel to the last, and images begun on the way.
        let lines = pixels.saturating_sub(1).div_ceil(across.max(1));
        let images = lines.div_ceil(rows.max(1));
        // What an image has more than its grid steps over is passed with each image.
        let passed = images * height.saturating_sub(rows * self.stride[0]);
        (lines * self.stride[0] + reach + passed) * width * self.channels
    }

    /// The elements of the lines that these pixels read.
    pub(crate) fn lines(&self, pixels: Range<usize>) -> Range<usize> {
        let corner = |pixel| self.corners(pixel).next().unwrap_or_default();
        let (first, last) = (corner(pixels.start), corner(pixels.end - 1));
        let reach = (self.taps[0].saturating_sub(1) * self.dilation[0]) as isize;
        let height = self.size[0] as isize;
        let line = |image: usize, y: isize| image * self.size[0] + y.clamp(0, height) as usize;
        let (start, end) = (line(first.image, first.y), line(last.image, last.y + reach + 1));
        let elements = self.size[1] * self.channels;
        start * elements..end.max(start) * elements
    }
}

/// Packs the operands of a product on one thread.
pub(super) struct Packer<'a> {
    pub(super) micro: &'a Micro,
    pub(super) g: &'a Gemm<'a>,
    thread: usize,
    reading: Reading,
    strip_a: *mut f32,
    strip_b: *mut f32,
    window: Window,
}

impl<'a> Packer<'a> {
    /// `strips` is scratch of the length that [`strip_len`] says.
    pub(super) fn new(micro: &'a Micro, g: &'a Gemm<'a>, shape: &Shape, thread: usize, strips: *mut f32) -> Self {
        let reading = Reading::new(g, shape);
        let strip_b = strips.wrapping_add(if g.operands.a.has_prologue() { reading.len() } else { 0 });
        let window = Window::new(strips, reading.len());
        Packer { micro, g, thread, reading, strip_a: strips, strip_b, window }
    }

    /// As [`A::pack`].
    ///
    /// # Safety
    /// As there, of an operand in memory. Of a computed one, the strips are as long as [`strip_len`] says, and nobody else uses
    /// them, nor the prologue with this thread's number.
    pub(super) unsafe fn a(&mut self, rows: Range<usize>, depths: Range<usize>, to: *mut f32) {
        match self.g.operands.a {
            // SAFETY: the caller's promise for an operand in memory.
            Source::Memory(from) => unsafe { self.g.a.pack(self.micro, from, rows, depths, to) },
            Source::Prologue { .. } if depths.is_empty() => {}
            // SAFETY: the caller's promise for a computed operand.
            Source::Prologue { chain, first } => unsafe { self.computed_a(chain, first, rows, depths, to) },
        }
    }

    /// # Safety
    /// As for [`Packer::a`] of a computed operand.
    unsafe fn computed_a(
        &mut self,
        chain: &dyn Prologue,
        first: usize,
        rows: Range<usize>,
        depths: Range<usize>,
        to: *mut f32,
    ) {
        let (t, strip) = (self.thread, self.strip_a);
        let (m, depth) = (rows.len(), depths.len());
        // SAFETY: a row of `to` has room for the depth, and strip and window for what `Reading::new` counted: some whole rows,
        // a block of columns, the lines of a block's pixels. Nobody else uses them.
        unsafe {
            match self.g.a {
                A::Rows { stride } if self.reading == Reading::Direct => {
                    for i in 0..m {
                        let at = first + (rows.start + i) * stride + depths.start;
                        chain.compute(t, at..at + depth, to.add(i * ROW_STRIDE));
                    }
                }
                A::Rows { stride } => {
                    let at_once = (STRIP / stride).min(self.g.m);
                    for i0 in (0..m).step_by(at_once) {
                        let n = at_once.min(m - i0);
                        let at = first + (rows.start + i0) * stride;
                        chain.compute(t, at..at + n * stride, strip);
                        for i in 0..n {
                            copy_nonoverlapping(strip.add(i * stride), to.add((i0 + i) * ROW_STRIDE), depth);
                        }
                    }
                }
                A::Columns { stride } => {
                    let at = first + depths.start * stride + rows.start;
                    compute_lines(chain, t, at, stride, [depth, m], strip);
                    pack_columns(self.micro, strip, m, m, depth, to);
                }
                A::Patches(ref p) if self.reading == Reading::Direct => {
                    let copy = |at: usize, n: usize, to: *mut f32| chain.compute(t, first + at..first + at + n, to);
                    for (i, corner) in p.corners(rows.start).take(m).enumerate() {
                        pack_patch(p, corner, depths.start, depth, to.add(i * ROW_STRIDE), copy);
                    }
                }
                A::Patches(ref p) => {
                    let image = self.window.slide(chain, t, p.lines(rows.clone()));
                    self.g.a.pack(self.micro, image.wrapping_add(first), rows, depths, to);
                }
                A::PatchColumns(ref p) => {
                    let image = self.window.slide(chain, t, p.lines(depths.clone()));
                    self.g.a.pack(self.micro, image.wrapping_add(first), rows, depths, to);
                }
            }
        }
    }

    /// What will be read for a block of A.
    pub(super) fn prefetch_a(&self, rows: &Range<usize>, depths: &Range<usize>) -> BlockPrefetch {
        match self.g.operands.a {
            Source::Memory(from) => self.g.a.prefetch(from, rows, depths),
            Source::Prologue { .. } => BlockPrefetch::NOTHING,
        }
    }

    /// What will be read for a block of B.
    pub(super) fn prefetch_b(&self, columns: &Range<usize>, depths: &Range<usize>) -> BlockPrefetch {
        match self.g.operands.b {
            Source::Memory(from) => self.g.b.prefetch(from, columns, depths),
            Source::Prologue { .. } => BlockPrefetch::NOTHING,
        }
    }

    /// As [`B::pack`].
    ///
    /// # Safety
    /// As there, of an operand in memory. Of a computed one, the strips are as long as [`strip_len`] says, and nobody else uses
    /// them, nor the prologue with this thread's number.
    pub(super) unsafe fn b(&self, columns: Range<usize>, depths: Range<usize>, to: *mut f32) {
        match self.g.operands.b {
            // SAFETY: the caller's promise for an operand in memory.
            Source::Memory(from) => unsafe { self.g.b.pack(self.micro, from, columns, depths, to) },
            // SAFETY: the caller's promise for a computed operand.
            Source::Prologue { chain, first } => unsafe { self.computed_b(chain, first, columns, depths, to) },
        }
    }

    /// # Safety
    /// As for [`Packer::b`] of a computed operand.
    unsafe fn computed_b(
        &self,
        chain: &dyn Prologue,
        first: usize,
        columns: Range<usize>,
        depths: Range<usize>,
        to: *mut f32,
    ) {
        let (t, strip, nr) = (self.thread, self.strip_b, self.micro.nr);
        let (n, depth) = (columns.len(), depths.len());
        let panels = || (0..n).step_by(nr).map(|j| (j, nr.min(n - j)));
        // SAFETY: the strip has room for STRIP elements or for a whole block: for at least one row of it, and for some depths
        // of a panel. The panel of column j starts at `j·depth` of `to`.
        unsafe {
            match self.g.b {
                B::Rows { stride } => {
                    let at_once = (STRIP / n).min(depth).max(1);
                    for p in (0..depth).step_by(at_once) {
                        let rows = at_once.min(depth - p);
                        let at = first + (depths.start + p) * stride + columns.start;
                        compute_lines(chain, t, at, stride, [rows, n], strip);
                        for (j, width) in panels() {
                            let columns = Columns { start: strip.add(j), stride: n, count: width };
                            pack_rows(self.micro, columns, rows, to.add(j * depth + p * nr));
                        }
                    }
                }
                B::Taps { stride, per_tap, ref taps } => {
                    for (j, width) in panels() {
                        let mut done = 0;
                        while done < depth {
                            let (tap, within) = ((depths.start + done) / per_tap, (depths.start + done) % per_tap);
                            let d = (per_tap - within).min(depth - done).min(STRIP / nr);
                            let at = first + taps.offset(tap) + within + (columns.start + j) * stride;
                            compute_lines(chain, t, at, stride, [width, d], strip);
                            let columns = Columns { start: strip, stride: d, count: width };
                            pack_turned(self.micro, columns, d, to.add(j * depth + done * nr));
                            done += d;
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
    use memfit_ir::op::{Conv, Pad2};

    use crate::conv::{ConvShape, Product};
    use crate::gemm::Operands;

    /// Of three images, two pixels wide.
    fn shapes() -> impl Iterator<Item = ConvShape> {
        let sizes = (1..7usize).flat_map(|height| (1..4).map(move |taps| (height, taps)));
        let steps = || (1..5).flat_map(|stride| (1..5).map(move |dilation| (stride, dilation)));
        let pads = || (0..8).flat_map(|top| (0..8).map(move |bottom| (top, bottom)));
        let all = sizes.flat_map(move |s| steps().flat_map(move |t| pads().map(move |p| (s, t, p))));
        all.filter_map(|((height, taps), (stride, dilation), (top, bottom))| {
            let reach = (taps - 1) * dilation + 1;
            let out = (height + top + bottom).checked_sub(reach)? / stride + 1;
            let pad = Pad2 { top, bottom, left: 0, right: 0 };
            Some(ConvShape {
                batch: 3,
                image: [height, 2],
                channels_in: 1,
                channels_out: 1,
                filter: [taps, 1],
                out: [out, 2],
                conv: Conv { stride: [stride, 1], pad, dilation: [dilation, 1], groups: 1 },
            })
        })
    }

    #[test]
    fn a_window_has_room_for_the_lines_of_as_many_pixels() {
        // A transposed convolution with a stride never has a prologue.
        let may_have_prologue = |s: &ConvShape, p: Product| p == Product::Forward || s.conv.stride == [1, 1];
        let products = shapes().flat_map(|s| [(s, Product::Forward), (s, Product::Transposed)]);
        for (shape, product) in products.filter(|(s, p)| may_have_prologue(s, *p)) {
            shape.products(product, Operands::unplaced([false; 2]), |g| {
                let A::Patches(p) = g.a else { return };
                for (start, end) in (1..=g.m).flat_map(|end| (0..end).map(move |start| (start, end))) {
                    let room = p.window(end - start).min(p.elements(g.m));
                    assert!(p.lines(start..end).len() <= room, "{start}..{end} of {p:?}");
                }
            });
        }
    }
}
