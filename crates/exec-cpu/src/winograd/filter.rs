//! The gradient by the filter: 16 products of the transformed tiles of the image, turned, with those of the gradient, summed
//! up over all tiles, and transformed into taps at the end. Threads share out products and columns, never a sum.

use std::ops::Range;

use super::gradient::{RowPanels, filter_taps, gradient_rows, input_rows};
use super::lines::{Lines, window_len};
use super::tiles::Tiles;
use super::{Geometry, PRODUCTS};
use crate::Cpu;
use crate::gemm::{Micro, Operands, PackedA, Patches, Scratch, Tile};
use crate::pool::part;
use crate::prefetch::BlockPrefetch;

/// Elements of all the sums at once (4 MiB).
const SUMS: usize = 1 << 20;
/// Tiles that are summed up in registers.
const DEPTH: usize = 256;
/// The most channels whose tiles are transformed at once, before rounding down to a multiple of MR.
const CHANNELS: usize = 140;
/// Channels whose taps are made before the epilogue follows.
const TAPS_AT_ONCE: usize = 16;

/// How the work is cut into blocks.
struct Blocks {
    tiles: usize,
    channels: usize,
    columns: usize,
}

impl Blocks {
    fn new(micro: &Micro, g: &Geometry) -> Blocks {
        let whole = g.columns.next_multiple_of(micro.nr);
        let most = (SUMS / (PRODUCTS * g.channels) / micro.nr * micro.nr).clamp(micro.nr, whole);
        let columns = g.columns.div_ceil(g.columns.div_ceil(most)).next_multiple_of(micro.nr);
        let channels = (CHANNELS / micro.mr * micro.mr).min(g.channels.next_multiple_of(micro.mr));
        Blocks { tiles: DEPTH.min(g.all_tiles()), channels, columns }
    }

    /// Elements from one channel's sums to the next one's: no power of two, so that channels do not share cache sets.
    fn line(&self) -> usize {
        self.columns + 16
    }

    /// Elements from the sums of a product to those of the next.
    fn plane(&self, g: &Geometry) -> usize {
        g.channels * self.line() + 16
    }

    /// Where a row of left sides goes.
    fn left(&self, micro: &Micro, start: *mut f32) -> RowPanels {
        self.panels(self.channels, micro.mr, start)
    }

    /// Where a row of right sides goes.
    fn right(&self, micro: &Micro, start: *mut f32) -> RowPanels {
        self.panels(self.columns, micro.nr, start)
    }

    fn panels(&self, n: usize, width: usize, start: *mut f32) -> RowPanels {
        // Neither panels nor products are a power of two apart.
        let panel = (self.tiles * width).next_multiple_of(16) + 16;
        RowPanels { start, plane: n / width * panel + 16, panel, width }
    }
}

/// The parts of the scratch, in elements.
struct Room {
    sums: usize,
    sides: [usize; 2],
    windows: [usize; 2],
    each: usize,
}

impl Room {
    fn new(micro: &Micro, g: &Geometry, blocks: &Blocks, prologues: [bool; 2]) -> Room {
        let none = std::ptr::null_mut();
        let window =
            |computed: bool, p: Patches| if computed { window_len(&p, blocks.tiles, g.all_tiles()) } else { 0 };
        let windows = [window(prologues[0], g.reading()), window(prologues[1], g.making())];
        let sides = [blocks.left(micro, none), blocks.right(micro, none)].map(|side| 4 * side.plane);
        let each = sides[0] + sides[1] + windows[0] + windows[1];
        Room { sums: (PRODUCTS * blocks.plane(g)).next_multiple_of(16), sides, windows, each }
    }
}

/// Elements of scratch for [`run_filter`], of whose operands some may have prologues.
pub(crate) fn filter_scratch_len(micro: &Micro, g: &Geometry, prologues: [bool; 2], threads: usize) -> usize {
    let room = Room::new(micro, g, &Blocks::new(micro, g), prologues);
    room.sums + threads * room.each
}

/// How often each thread of [`run_filter`] reads both images: once for the columns that are summed up at once.
pub(crate) fn filter_times_read(micro: &Micro, g: &Geometry) -> usize {
    g.columns.div_ceil(Blocks::new(micro, g).columns)
}

/// The gradient by the filter on all threads, from the image and the gradient of what the convolution makes.
/// `epilogue(thread, rows, columns)` is called once for every block of it when it is complete and still in the cache; rows are
/// taps and channels.
///
/// # Safety
/// Operands that are in memory and the result cover their sizes, the result overlaps nothing else and nobody else touches it, and
/// `scratch` has [`filter_scratch_len`] elements that nobody else uses.
pub(crate) unsafe fn run_filter(
    cpu: &Cpu,
    g: &Geometry,
    operands: Operands,
    scratch: *mut f32,
    epilogue: &(dyn Fn(usize, Range<usize>, Range<usize>) + Sync),
) {
    let micro = Micro::new(cpu.isa);
    let threads = cpu.pool.threads();
    let blocks = Blocks::new(&micro, g);
    let room = Room::new(&micro, g, &blocks, operands.prologues());
    let pass = Pass { g, micro, blocks, room, operands, scratch: Scratch(scratch) };
    for start in (0..g.columns).step_by(pass.blocks.columns) {
        let columns = start..g.columns.min(start + pass.blocks.columns);
        cpu.pool.run(&|t| {
            let panels = columns.len().div_ceil(pass.micro.nr);
            let work = Work::new(part(PRODUCTS * panels, 1, threads, t), panels, columns.len(), pass.micro.nr);
            // SAFETY: the operands and the scratch are as the caller promises; the work of threads is of different products or
            // columns.
            unsafe { pass.sum_up(t, columns.start, &work) };
        });
        cpu.pool.run(&|t| {
            // SAFETY: the first fork has made the sums; threads have different channels of the filter.
            unsafe { pass.make_taps(part(g.channels, 1, threads, t), &columns, &|r, c| epilogue(t, r, c)) };
        });
    }
}

/// The columns of each product that a thread sums up.
struct Work([Range<usize>; PRODUCTS]);

impl Work {
    /// From units of a panel, product after product.
    fn new(units: Range<usize>, panels: usize, columns: usize, nr: usize) -> Work {
        Work(std::array::from_fn(|product| {
            let of = |unit: usize| (unit.clamp(product * panels, (product + 1) * panels) - product * panels) * nr;
            of(units.start).min(columns)..of(units.end).min(columns)
        }))
    }

    /// The columns of any product of a row of four.
    fn row(&self, i: usize) -> Range<usize> {
        let some = || self.0[4 * i..4 * i + 4].iter().filter(|c| !c.is_empty());
        some().map(|c| c.start).min().unwrap_or(0)..some().map(|c| c.end).max().unwrap_or(0)
    }
}

/// A gradient under way.
struct Pass<'a> {
    g: &'a Geometry,
    micro: Micro,
    blocks: Blocks,
    room: Room,
    operands: Operands<'a>,
    scratch: Scratch,
}

impl Pass<'_> {
    /// The sums of a thread's products over all tiles, for columns from `column` on.
    ///
    /// # Safety
    /// As for [`run_filter`]; no other thread has the same number, nor sums of the same columns of the same products.
    unsafe fn sum_up(&self, thread: usize, column: usize, work: &Work) {
        let all = self.g.all_tiles();
        let (reading, making) = (self.g.reading(), self.g.making());
        let [left_len, right_len] = self.room.sides;
        let [image_room, gradient_room] = self.room.windows;
        // SAFETY: the thread's scratch has these parts one after the other, which `Room` counted for whole blocks of tiles, channels
        // and columns; both images cover their tiles.
        unsafe {
            let left = self.scratch.at(self.room.sums + thread * self.room.each);
            let right = left.add(left_len);
            let window = right.add(right_len);
            let mut image = Lines::new(&reading, self.operands.a, thread, window, image_room);
            let mut gradient = Lines::new(&making, self.operands.b, thread, window.add(image_room), gradient_room);
            // Where there are no tiles, one empty block makes the sums zero.
            for start in (0..all.max(1)).step_by(self.blocks.tiles.max(1)) {
                let tiles = start..all.min(start + self.blocks.tiles);
                let image = Tiles { patches: &reading, image: image.of(tiles.clone()), tiles: tiles.clone() };
                let gradient = Tiles { patches: &making, image: gradient.of(tiles.clone()), tiles: tiles.clone() };
                for i in 0..4 {
                    let columns = work.row(i);
                    if columns.is_empty() {
                        continue;
                    }
                    let to = self.blocks.right(&self.micro, right);
                    gradient_rows(self.micro.isa, &gradient, i, column + columns.start, columns.len(), to);
                    for first in (0..self.g.channels).step_by(self.blocks.channels) {
                        let n = self.blocks.channels.min(self.g.channels - first);
                        input_rows(self.micro.isa, &image, i, first, n, self.blocks.left(&self.micro, left));
                        for product in 4 * i..4 * i + 4 {
                            let mine = work.0[product].clone();
                            self.multiply(product, first..first + n, mine, columns.start, &tiles, [left, right]);
                        }
                    }
                }
            }
        }
    }

    /// Adds a product over a block of tiles to its sums; the right side starts with column `origin`.
    ///
    /// # Safety
    /// Both sides hold the row of four products that this one is of, for these tiles, channels and columns, up to whole panels;
    /// no other thread has sums of the same columns of this product.
    unsafe fn multiply(
        &self,
        product: usize,
        channels: Range<usize>,
        columns: Range<usize>,
        origin: usize,
        tiles: &Range<usize>,
        [left, right]: [*mut f32; 2],
    ) {
        let Micro { mr, nr, .. } = self.micro;
        let (a, b) = (self.blocks.left(&self.micro, left), self.blocks.right(&self.micro, right));
        let mut rows = [0; CHANNELS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = i * self.blocks.line();
        }
        // SAFETY: panels start where `RowPanels` says, and the sums have room for all channels, and for columns up to whole panels.
        unsafe {
            let sums = self.scratch.at(product * self.blocks.plane(self.g) + channels.start * self.blocks.line());
            for j in columns.clone().step_by(nr) {
                for i in (0..channels.len()).step_by(mr) {
                    let (m, n) = (mr.min(channels.len() - i), nr.min(columns.end - j));
                    let tile = Tile {
                        a: a.start.add(product % 4 * a.plane + i / mr * a.panel),
                        b: b.start.add(product % 4 * b.plane + (j - origin) / nr * b.panel),
                        c: sums.add(j),
                        rows: rows.as_ptr().add(i),
                        depth: tiles.len(),
                        m,
                        n,
                        accumulate: tiles.start > 0,
                        prefetch_c: true,
                        prefetch: BlockPrefetch::NOTHING,
                    };
                    self.micro.run(PackedA::Panels, &tile);
                }
            }
        }
    }

    /// Gᵀ u G of the sums, for some channels.
    ///
    /// # Safety
    /// As for [`run_filter`]; the sums of these columns are complete, and no other thread has the same channels.
    unsafe fn make_taps(
        &self,
        channels: Range<usize>,
        columns: &Range<usize>,
        epilogue: &dyn Fn(Range<usize>, Range<usize>),
    ) {
        let g = self.g;
        for start in channels.clone().step_by(TAPS_AT_ONCE) {
            let some = start..channels.end.min(start + TAPS_AT_ONCE);
            for channel in some.clone() {
                // SAFETY: each plane of sums has a line of these columns for the channel, and so has each tap of the filter.
                unsafe {
                    let sums = self.scratch.at(channel * self.blocks.line());
                    let to = self.operands.c.add(channel * g.columns + columns.start);
                    let plane = self.blocks.plane(g);
                    filter_taps(self.micro.isa, sums, plane, columns.len(), to, g.channels * g.columns);
                }
            }
            for tap in 0..9 {
                epilogue(tap * g.channels + some.start..tap * g.channels + some.end, columns.clone());
            }
        }
    }
}
