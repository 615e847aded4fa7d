//! Operands that have no memory: packing asks a [`Feed`] for their elements. What is packed is what packing from memory
//! would give: zeros around an image are put there by packing, after the feed.
//!
//! Pointers of a fed operand start at null: their address is the number of an element.

use std::ops::Range;
use std::ptr::copy_nonoverlapping;

use super::ahead::Ahead;
use super::micro::{KC, Micro, ROW_STRIDE};
use super::pack::{A, B, Patches, pack_columns, pack_patch};
use super::panel::{Columns, pack_rows, pack_turned};
use super::{Gemm, Order, Shape};

/// Computes elements of an operand.
pub trait Feed: Sync {
    /// Writes the elements with these numbers.
    ///
    /// # Safety
    /// There is room for them, and no other thread calls with the same `thread` at once.
    unsafe fn fill(&self, thread: usize, elements: Range<usize>, to: *mut f32);
}

/// The feeds of a product, where an operand has one.
#[derive(Clone, Copy, Default)]
pub struct Feeds<'a> {
    pub a: Option<&'a dyn Feed>,
    pub b: Option<&'a dyn Feed>,
}

/// Which operands are fed: what scratch depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    pub a: bool,
    pub b: bool,
}

impl Feeds<'_> {
    pub fn fed(&self) -> Fed {
        Fed { a: self.a.is_some(), b: self.b.is_some() }
    }
}

/// Elements that a feed is asked for at once where they are packed at once: they stay in the first-level cache.
const STRIP: usize = 8192;

/// How a fed left side is read.
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
            A::Rows { stride, .. } if stride == g.k && stride <= KC => Reading::Strip(STRIP.min(g.m * g.k)),
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

/// Elements of scratch for fed operands on one thread.
pub fn strip_len(g: &Gemm, shape: &Shape, fed: Fed) -> usize {
    let a = if fed.a { Reading::new(g, shape).len() } else { 0 };
    a + if fed.b { STRIP.min(shape.nc * shape.kc) } else { 0 }
}

impl Patches {
    /// Of all images together, whose grids have this many pixels.
    pub fn elements(&self, pixels: usize) -> usize {
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

/// Scratch that holds some neighbouring elements of a fed operand and moves along with what is read, so that each element is
/// computed once.
pub(crate) struct Window {
    start: *mut f32,
    room: usize,
    held: Range<usize>,
}

impl Window {
    pub fn new(start: *mut f32, room: usize) -> Window {
        Window { start, room, held: 0..0 }
    }

    /// Moves to these elements, of which those that are held stay. Gives where element 0 would be.
    ///
    /// # Safety
    /// Nobody else uses the scratch, nor the feed with this thread's number.
    pub unsafe fn slide(&mut self, feed: &dyn Feed, thread: usize, wanted: Range<usize>) -> *mut f32 {
        if !(self.held.start <= wanted.start && wanted.end <= self.held.end) {
            assert!(wanted.len() <= self.room, "the window is too small");
            let kept = if self.held.contains(&wanted.start) { wanted.start..self.held.end } else { 0..0 };
            let next = if kept.is_empty() { wanted.start } else { kept.end };
            // SAFETY: the window has room for what is wanted, and what is kept is inside of it.
            unsafe {
                if !kept.is_empty() {
                    std::ptr::copy(self.start.add(kept.start - self.held.start), self.start, kept.len());
                }
                feed.fill(thread, next..wanted.end, self.start.add(kept.len()));
            }
            self.held = wanted;
        }
        self.start.wrapping_sub(self.held.start)
    }
}

/// Packs the operands of a product on one thread, from memory or from their feeds.
pub struct Packer<'a> {
    pub micro: &'a Micro,
    pub g: &'a Gemm,
    feeds: Feeds<'a>,
    thread: usize,
    reading: Reading,
    strip_a: *mut f32,
    strip_b: *mut f32,
    window: Window,
}

impl<'a> Packer<'a> {
    /// `strips` is scratch of the length that [`strip_len`] says.
    pub fn new(
        micro: &'a Micro,
        g: &'a Gemm,
        shape: &Shape,
        feeds: Feeds<'a>,
        thread: usize,
        strips: *mut f32,
    ) -> Self {
        let reading = Reading::new(g, shape);
        let strip_b = strips.wrapping_add(if feeds.a.is_some() { reading.len() } else { 0 });
        Packer {
            micro,
            g,
            feeds,
            thread,
            reading,
            strip_a: strips,
            strip_b,
            window: Window::new(strips, reading.len()),
        }
    }

    /// As [`A::pack`].
    ///
    /// # Safety
    /// As there; and nobody else uses this thread's strips.
    pub unsafe fn a(&mut self, rows: Range<usize>, depths: Range<usize>, to: *mut f32) {
        // SAFETY: passed on; a strip has room for what its reading says.
        unsafe {
            match self.feeds.a {
                None => self.g.a.pack(self.micro, rows, depths, to),
                Some(_) if depths.is_empty() => {}
                Some(feed) => self.fed_a(feed, rows, depths, to),
            }
        }
    }

    unsafe fn fed_a(&mut self, feed: &dyn Feed, rows: Range<usize>, depths: Range<usize>, to: *mut f32) {
        let (t, strip) = (self.thread, self.strip_a);
        let (m, depth) = (rows.len(), depths.len());
        // SAFETY: passed on.
        unsafe {
            match self.g.a {
                A::Rows { start, stride } if self.reading == Reading::Direct => {
                    for i in 0..m {
                        let at = number(start) + (rows.start + i) * stride + depths.start;
                        feed.fill(t, at..at + depth, to.add(i * ROW_STRIDE));
                    }
                }
                A::Rows { start, stride } => {
                    let at_once = (STRIP / stride).min(self.g.m);
                    for i0 in (0..m).step_by(at_once) {
                        let n = at_once.min(m - i0);
                        let at = number(start) + (rows.start + i0) * stride;
                        feed.fill(t, at..at + n * stride, strip);
                        for i in 0..n {
                            copy_nonoverlapping(strip.add(i * stride), to.add((i0 + i) * ROW_STRIDE), depth);
                        }
                    }
                }
                A::Columns { start, stride } => {
                    let at = number(start) + depths.start * stride + rows.start;
                    fill_lines(feed, t, at, stride, [depth, m], strip);
                    pack_columns(self.micro, strip, m, m, depth, to);
                }
                A::Patches(ref p) if self.reading == Reading::Direct => {
                    let copy = |at: usize, n: usize, to: *mut f32| feed.fill(t, at..at + n, to);
                    for (i, corner) in p.corners(rows.start).take(m).enumerate() {
                        pack_patch(p, corner, depths.start, depth, to.add(i * ROW_STRIDE), copy);
                    }
                }
                A::Patches(p) => {
                    let image = self.window.slide(feed, t, p.lines(rows.clone()));
                    A::Patches(Patches { image, ..p }).pack(self.micro, rows, depths, to);
                }
                A::PatchColumns(p) => {
                    let image = self.window.slide(feed, t, p.lines(depths.clone()));
                    A::PatchColumns(Patches { image, ..p }).pack(self.micro, rows, depths, to);
                }
            }
        }
    }

    /// What will be read for a block of A.
    pub fn ahead_a(&self, rows: &Range<usize>, depths: &Range<usize>) -> Ahead {
        if self.feeds.a.is_some() { Ahead::NOTHING } else { Ahead::of_a(&self.g.a, rows, depths) }
    }

    /// What will be read for a block of B.
    pub fn ahead_b(&self, columns: &Range<usize>, depths: &Range<usize>) -> Ahead {
        if self.feeds.b.is_some() { Ahead::NOTHING } else { Ahead::of_b(&self.g.b, columns, depths) }
    }

    /// As [`B::pack`].
    ///
    /// # Safety
    /// As there; and nobody else uses this thread's strips.
    pub unsafe fn b(&self, columns: Range<usize>, depths: Range<usize>, to: *mut f32) {
        // SAFETY: passed on; a strip has room for STRIP elements, which are at least a row of a block.
        unsafe {
            match self.feeds.b {
                None => self.g.b.pack(self.micro, columns, depths, to),
                Some(feed) => self.fed_b(feed, columns, depths, to),
            }
        }
    }

    unsafe fn fed_b(&self, feed: &dyn Feed, columns: Range<usize>, depths: Range<usize>, to: *mut f32) {
        let (t, strip, nr) = (self.thread, self.strip_b, self.micro.nr);
        let (n, depth) = (columns.len(), depths.len());
        let panels = || (0..n).step_by(nr).map(|j| (j, nr.min(n - j)));
        // SAFETY: passed on.
        unsafe {
            match self.g.b {
                B::Rows { start, stride } => {
                    let at_once = (STRIP / n).min(depth).max(1);
                    for p in (0..depth).step_by(at_once) {
                        let rows = at_once.min(depth - p);
                        let at = number(start) + (depths.start + p) * stride + columns.start;
                        fill_lines(feed, t, at, stride, [rows, n], strip);
                        for (j, width) in panels() {
                            let columns = Columns { start: strip.add(j), stride: n, count: width };
                            pack_rows(self.micro, columns, rows, to.add(j * depth + p * nr));
                        }
                    }
                }
                B::Taps { start, stride, per_tap, ref taps } => {
                    for (j, width) in panels() {
                        let mut done = 0;
                        while done < depth {
                            let (tap, within) = ((depths.start + done) / per_tap, (depths.start + done) % per_tap);
                            let d = (per_tap - within).min(depth - done).min(STRIP / nr);
                            let at = number(start) + taps.offset(tap) + within + (columns.start + j) * stride;
                            fill_lines(feed, t, at, stride, [width, d], strip);
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

/// The number of the element that a pointer of a fed operand names.
fn number(p: *const f32) -> usize {
    p.addr() / size_of::<f32>()
}

/// Lines of `n` elements, `stride` apart from `at` on, one after the other.
pub(crate) unsafe fn fill_lines(
    feed: &dyn Feed,
    thread: usize,
    at: usize,
    stride: usize,
    [lines, n]: [usize; 2],
    to: *mut f32,
) {
    // SAFETY: passed on.
    unsafe {
        if n == stride {
            return feed.fill(thread, at..at + lines * n, to);
        }
        for i in 0..lines {
            feed.fill(thread, at + i * stride..at + i * stride + n, to.add(i * n));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_ir::op::{Conv, Pad2};

    use crate::conv::{ConvShape, Product, Tensors};

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
        let none = std::ptr::null_mut();
        // A transposed convolution with a stride is never fed.
        let is_fed = |s: &ConvShape, p: Product| p == Product::Forward || s.conv.stride == [1, 1];
        let products = shapes().flat_map(|s| [(s, Product::Forward), (s, Product::Transposed)]);
        for (shape, product) in products.filter(|(s, p)| is_fed(s, *p)) {
            shape.products(product, Tensors { x: none, w: none, y: none }, |g| {
                let A::Patches(p) = g.a else { return };
                for (start, end) in (1..=g.m).flat_map(|end| (0..end).map(move |start| (start, end))) {
                    let room = p.window(end - start).min(p.elements(g.m));
                    assert!(p.lines(start..end).len() <= room, "{start}..{end} of {p:?}");
                }
            });
        }
    }
}
