//! An image from an image and a filter: forward, and by the input. For some columns at a time the filters are transformed
//! once for all threads; then each thread takes rows of tiles, in blocks that stay in its cache from the transform of the
//! image to that of the products.

use std::ops::Range;

use super::lines::{Lines, window_len};
use super::tiles::Tiles;
use super::transform::{Panels, Places, Taps3x3, filters, input_tiles, output_tiles};
use super::{Geometry, PRODUCTS};
use crate::Cpu;
use crate::gemm::{
    Columns, KC, Micro, Operands, PackedA, Prologue, ROW_STRIDE, Scratch, Source, Tile, compute_lines, pack_turned,
};
use crate::pool::part;
use crate::prefetch::BlockPrefetch;

/// Elements of all transformed filters at once (4 MiB).
const FILTERS: usize = 1 << 20;
/// Tiles of a block, before rounding down to a multiple of MR. With more, blocks of 128 channels leave the second-level cache;
/// with fewer, the filters of 512 channels come from the third level too often.
const TILES: usize = 56;
/// Columns of the products that a block makes at once.
const COLUMNS: usize = 128;
/// Depths of a filter that are brought into order at once.
const TURNED: usize = 256;
/// Elements of a filter that a prologue computes at once.
const STRIP: usize = 9 * 1024;

/// How a pass is cut into blocks.
struct Blocks {
    /// Depth of a product, a multiple of the lanes: all but the last of a sum are equal.
    depth: usize,
    /// Products of a sum.
    depths: usize,
    tiles: usize,
    /// Columns whose filters are transformed at once.
    columns: usize,
    /// Of which so many are multiplied at once.
    at_once: usize,
}

impl Blocks {
    fn new(micro: &Micro, g: &Geometry, threads: usize) -> Blocks {
        let depths = g.channels.div_ceil(KC);
        let depth = g.channels.div_ceil(depths).next_multiple_of(16);
        let whole = g.columns.next_multiple_of(micro.nr);
        let most = (FILTERS / (PRODUCTS * g.channels) / micro.nr * micro.nr).clamp(micro.nr, whole);
        let columns = g.columns.div_ceil(g.columns.div_ceil(most)).next_multiple_of(micro.nr);
        let at_once = columns.min(COLUMNS);
        let tiles = (TILES / micro.mr * micro.mr).min(g.all_tiles().div_ceil(threads).next_multiple_of(micro.mr));
        Blocks { depth, depths, tiles: tiles.max(micro.mr), columns, at_once }
    }

    /// Parts of a row of the left sides that stand side by side.
    fn side_by_side(&self) -> usize {
        ROW_STRIDE / self.depth
    }

    /// Where product ξ has the first row of its left side at some depth.
    fn left(&self, product: usize, depth: usize) -> usize {
        let (i, n) = (product * self.depths + depth, self.side_by_side());
        i / n * self.tiles * ROW_STRIDE + i % n * self.depth
    }

    fn left_len(&self) -> usize {
        (PRODUCTS * self.depths).div_ceil(self.side_by_side()) * self.tiles * ROW_STRIDE
    }

    /// Elements from a tile's products to the next tile's: no power of two, so that tiles do not share cache sets.
    fn made(&self) -> usize {
        PRODUCTS * self.at_once + 16
    }

    fn made_len(&self) -> usize {
        self.tiles * self.made()
    }

    /// Elements from the filters of a product to those of the next.
    fn plane(&self, g: &Geometry) -> usize {
        g.channels * self.columns + 16
    }
}

/// How threads share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// Rows of tiles, cut at multiples.
    Rows(usize),
    Columns,
}

impl Split {
    /// With the results of each thread starting at a multiple of as many pixels, if that leaves all threads busy.
    fn new(micro: &Micro, g: &Geometry, pixels_at_once: usize, threads: usize) -> Split {
        let rows = g.tile_rows();
        if rows < 2 * threads && rows < g.columns / micro.nr {
            return Split::Columns;
        }
        let grain = grain(g, pixels_at_once);
        // At most a tenth more than an equal share.
        let largest = (0..threads).map(|t| part(rows, grain, threads, t).len()).max().unwrap_or(rows);
        let balanced = largest * threads * 10 <= rows * 11;
        Split::Rows(if balanced { grain } else { 1 })
    }
}

/// The rows of tiles after which the pixels are a multiple of `at_once` again.
fn grain(g: &Geometry, at_once: usize) -> usize {
    let down = g.tiles()[0];
    let (rows, pixels) = if g.to[0].is_multiple_of(2) { (1, g.first_pixel(1)) } else { (down, g.first_pixel(down)) };
    rows * (at_once / gcd(at_once, pixels)).max(1)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether [`run`] gives each thread whole rows, from a multiple of `at_once` pixels on.
pub(crate) fn fits_rows(cpu: &Cpu, g: &Geometry, at_once: usize) -> bool {
    let threads = cpu.pool.threads();
    match Split::new(&Micro::new(cpu.isa), g, at_once, threads) {
        Split::Rows(rows) => threads == 1 || rows.is_multiple_of(grain(g, at_once)),
        Split::Columns => threads == 1,
    }
}

/// What each thread has of the scratch, in elements.
struct Room {
    filters: usize,
    left: usize,
    made: usize,
    window: usize,
    each: usize,
}

impl Room {
    fn new(micro: &Micro, g: &Geometry, blocks: &Blocks, [image, filter]: [bool; 2]) -> Room {
        let (left, made) = (blocks.left_len(), blocks.made_len());
        let window = if image { window_len(&g.reading(), blocks.tiles, g.all_tiles()) } else { 0 };
        // Filters are brought into order before any image is read.
        let strips = match (g.turned, filter) {
            (false, false) => 0,
            (false, true) => 9 * strip_depths(blocks.columns) * blocks.columns,
            (true, false) => 9 * TURNED * micro.nr,
            (true, true) => 10 * TURNED * micro.nr,
        };
        let each = (left + made + window).max(strips).next_multiple_of(16);
        Room { filters: PRODUCTS * blocks.plane(g), left, made, window, each }
    }
}

/// Elements of scratch for [`run`], of whose operands some may have prologues.
pub(crate) fn scratch_len(micro: &Micro, g: &Geometry, prologues: [bool; 2], threads: usize) -> usize {
    let room = Room::new(micro, g, &Blocks::new(micro, g, threads), prologues);
    room.filters + threads * room.each
}

/// How often [`run`] reads the image: once for the columns that are made at once.
pub(crate) fn times_read(micro: &Micro, g: &Geometry, threads: usize) -> usize {
    g.columns.div_ceil(Blocks::new(micro, g, threads).columns)
}

/// Makes an image from an image and a filter on all threads. `epilogue(thread, pixels, columns)` is called once for every block
/// of results when it is complete and still in the cache; a thread's pixels come in the order of memory.
///
/// # Safety
/// Operands that are in memory and the result cover their sizes, the result overlaps nothing else and nobody else touches it, and
/// `scratch` has [`scratch_len`] elements that nobody else uses.
pub(crate) unsafe fn run(
    cpu: &Cpu,
    g: &Geometry,
    operands: Operands,
    pixels_at_once: usize,
    scratch: *mut f32,
    epilogue: &(dyn Fn(usize, Range<usize>, Range<usize>) + Sync),
) {
    let micro = Micro::new(cpu.isa);
    let threads = cpu.pool.threads();
    let blocks = Blocks::new(&micro, g, threads);
    let room = Room::new(&micro, g, &blocks, operands.prologues());
    let split = Split::new(&micro, g, pixels_at_once, threads);
    let pass = Pass { g, micro, blocks, room, operands, scratch: Scratch(scratch) };
    for start in (0..g.columns).step_by(pass.blocks.columns) {
        let columns = start..g.columns.min(start + pass.blocks.columns);
        cpu.pool.run(&|t| {
            let depths = part(g.channels, 16, threads, t);
            // SAFETY: the operands and the scratch are as the caller promises; threads have different depths.
            unsafe { pass.transform_filters(t, &columns, depths) };
        });
        cpu.pool.run(&|t| {
            let (rows, mine) = match split {
                Split::Rows(grain) => (part(g.tile_rows(), grain, threads, t), 0..columns.len()),
                Split::Columns => (0..g.tile_rows(), part(columns.len(), pass.micro.nr, threads, t)),
            };
            if !rows.is_empty() && !mine.is_empty() {
                // SAFETY: the first fork has transformed the filters of these columns; threads make different pixels or columns.
                unsafe { pass.make(t, rows, &columns, mine, &|pixels, columns| epilogue(t, pixels, columns)) };
            }
        });
    }
}

/// Depths of a filter of so many columns that a prologue computes at once.
fn strip_depths(columns: usize) -> usize {
    (STRIP / 9 / columns).max(1)
}

/// A pass under way.
struct Pass<'a> {
    g: &'a Geometry,
    micro: Micro,
    blocks: Blocks,
    room: Room,
    operands: Operands<'a>,
    scratch: Scratch,
}

impl Pass<'_> {
    /// # Safety
    /// The scratch is as long as [`scratch_len`] says, for at least as many threads.
    unsafe fn scratch_of(&self, thread: usize) -> *mut f32 {
        // SAFETY: the scratch has the filters and then a part for every thread.
        unsafe { self.scratch.at(self.room.filters + thread * self.room.each) }
    }

    /// Where the filters of a product stand at some depths.
    ///
    /// # Safety
    /// The scratch is as long as [`scratch_len`] says, and the depths are one of the blocks.
    unsafe fn right(&self, width: usize, product: usize, depth: usize) -> *mut f32 {
        // SAFETY: a plane has room for all depths of all columns that are transformed at once.
        unsafe { self.scratch.at(product * self.blocks.plane(self.g) + depth * self.blocks.depth * width) }
    }

    /// G w Gᵀ of some depths, for all of these columns.
    ///
    /// # Safety
    /// As for [`run`]; no other thread has the same number or the same depths.
    unsafe fn transform_filters(&self, thread: usize, columns: &Range<usize>, depths: Range<usize>) {
        let mut at = depths.start;
        while at < depths.end {
            let block = at / self.blocks.depth;
            let end = depths.end.min((block + 1) * self.blocks.depth);
            // SAFETY: the filter has these depths and columns at all taps; the depths are of one block.
            unsafe {
                match (self.g.turned, self.operands.b) {
                    (false, Source::Memory(filter)) => {
                        let w = Taps3x3 {
                            start: filter.add(at * self.g.columns + columns.start),
                            tap: self.g.channels * self.g.columns,
                            stride: self.g.columns,
                            flipped: false,
                        };
                        self.to_panels(w, at..end, 0..columns.len(), columns.len());
                    }
                    (false, Source::Prologue { chain, first }) => {
                        self.computed_filters(thread, chain, first, columns, at..end);
                    }
                    (true, _) => self.turned_filters(thread, columns, at..end),
                }
            }
            at = end;
        }
    }

    /// Transforms depths of one block to their places, for those of `width` columns that `columns` names.
    ///
    /// # Safety
    /// The filter has these depths and columns at all taps; the scratch is as long as [`scratch_len`] says, and no other thread
    /// has the same depths.
    unsafe fn to_panels(&self, w: Taps3x3, depths: Range<usize>, columns: Range<usize>, width: usize) {
        let (nr, block) = (self.micro.nr, depths.start / self.blocks.depth);
        let first = block * self.blocks.depth;
        let depth = self.blocks.depth.min(self.g.channels - first);
        // SAFETY: a block of depths has its columns in whole panels of `depth` rows, of which these depths are some.
        unsafe {
            let start = self.right(width.next_multiple_of(nr), 0, block);
            let start = start.add(columns.start * depth + (depths.start - first) * nr);
            let to = Panels { start, plane: self.blocks.plane(self.g), panel: depth * nr, nr };
            filters(self.micro.isa, w, depths.len(), columns.len(), to);
        }
    }

    /// The filter is computed, a strip of it at a time.
    ///
    /// # Safety
    /// As for [`Pass::transform_filters`], with depths of one block.
    unsafe fn computed_filters(
        &self,
        thread: usize,
        chain: &dyn Prologue,
        first: usize,
        columns: &Range<usize>,
        depths: Range<usize>,
    ) {
        let n = columns.len();
        let at_once = strip_depths(self.blocks.columns);
        // SAFETY: `Room` counted a strip of as many depths of all taps and columns, in the thread's own scratch.
        unsafe {
            let strip = self.scratch_of(thread);
            for p in depths.clone().step_by(at_once) {
                let part = p..depths.end.min(p + at_once);
                for tap in 0..9 {
                    let at = first + (tap * self.g.channels + p) * self.g.columns + columns.start;
                    let to = strip.add(tap * at_once * n);
                    compute_lines(chain, thread, at, self.g.columns, [part.len(), n], to);
                }
                let w = Taps3x3 { start: strip, tap: at_once * n, stride: n, flipped: false };
                self.to_panels(w, part, 0..n, n);
            }
        }
    }

    /// The filter has its depths side by side and its columns as lines.
    ///
    /// # Safety
    /// As for [`Pass::transform_filters`], with depths of one block.
    unsafe fn turned_filters(&self, thread: usize, columns: &Range<usize>, depths: Range<usize>) {
        let nr = self.micro.nr;
        let line = self.g.channels;
        // SAFETY: `Room` counted a strip of TURNED depths of a panel for all taps, and one tap more where the filter is computed,
        // in the thread's own scratch; a filter in memory has these columns and depths at all taps.
        unsafe {
            let strip = self.scratch_of(thread);
            let unturned = strip.wrapping_add(9 * TURNED * nr);
            for p in depths.clone().step_by(TURNED) {
                let part = p..depths.end.min(p + TURNED);
                for j in (0..columns.len()).step_by(nr) {
                    let n = nr.min(columns.len() - j);
                    for tap in 0..9 {
                        let at = (tap * self.g.columns + columns.start + j) * line + p;
                        let (start, stride) = match self.operands.b {
                            Source::Memory(filter) => (filter.add(at), line),
                            Source::Prologue { chain, first } => {
                                compute_lines(chain, thread, first + at, line, [n, part.len()], unturned);
                                (unturned.cast_const(), part.len())
                            }
                        };
                        let lines = Columns { start, stride, count: n };
                        pack_turned(&self.micro, lines, part.len(), strip.add(tap * TURNED * nr));
                    }
                    let w = Taps3x3 { start: strip, tap: TURNED * nr, stride: nr, flipped: true };
                    self.to_panels(w, part.clone(), j..j + n, columns.len());
                }
            }
        }
    }

    /// Makes `mine` of the columns whose filters are transformed, for some rows of tiles.
    ///
    /// # Safety
    /// As for [`run`]; the filters of these columns are transformed, and no other thread has the same number, nor makes the same
    /// rows of the same columns.
    unsafe fn make(
        &self,
        thread: usize,
        rows: Range<usize>,
        columns: &Range<usize>,
        mine: Range<usize>,
        epilogue: &dyn Fn(Range<usize>, Range<usize>),
    ) {
        let across = self.g.tiles()[1];
        let (reading, making) = (self.g.reading(), self.g.making());
        let named = columns.start + mine.start..columns.start + mine.end;
        let tiles = rows.start * across..rows.end * across;
        let mut done = rows.start;
        // SAFETY: the thread's scratch has these parts one after the other, which `Room` counted for whole blocks of tiles; images
        // cover their tiles.
        unsafe {
            let left = self.scratch_of(thread);
            let made = left.add(self.room.left);
            let window = made.add(self.room.made);
            let mut lines = Lines::new(&reading, self.operands.a, thread, window, self.room.window);
            for start in tiles.clone().step_by(self.blocks.tiles) {
                let block = start..tiles.end.min(start + self.blocks.tiles);
                let image = lines.of(block.clone());
                self.transform_tiles(&Tiles { patches: &reading, image, tiles: block.clone() }, left);
                for j in mine.clone().step_by(self.blocks.at_once) {
                    let part = j..mine.end.min(j + self.blocks.at_once);
                    self.multiply(block.len(), left, columns.len(), &part, made);
                    let image = self.operands.c.wrapping_add(columns.start + j);
                    let to = Tiles { patches: &making, image, tiles: block.clone() };
                    output_tiles(self.micro.isa, made, self.blocks.made(), self.blocks.at_once, part.len(), &to);
                }
                let complete = block.end / across;
                if complete > done {
                    epilogue(self.g.first_pixel(done)..self.g.first_pixel(complete), named.clone());
                    done = complete;
                }
            }
        }
    }

    /// Bᵀ d B of a block of tiles.
    ///
    /// # Safety
    /// The tiles' pixels inside of the image can be read, and `left` has room for the left sides of a block, which nobody else
    /// uses.
    unsafe fn transform_tiles(&self, tiles: &Tiles, left: *mut f32) {
        for depth in 0..self.blocks.depths {
            let places = std::array::from_fn(|product| self.blocks.left(product, depth));
            let first = depth * self.blocks.depth;
            let n = self.blocks.depth.min(self.g.channels - first);
            let to = Places { start: left, tile: ROW_STRIDE, places: &places };
            // SAFETY: the left sides have a row for each tile, with room for a block of depths in each product.
            unsafe { input_tiles(self.micro.isa, tiles, first, n, to) };
        }
    }

    /// The 16 products of a block of tiles with the filters of some columns.
    ///
    /// # Safety
    /// `left` holds the left sides of these tiles, up to whole panels, and the filters of `width` columns are transformed, of which
    /// `columns` are some; `made` has room for the products of a block, which nobody else uses.
    unsafe fn multiply(&self, tiles: usize, left: *const f32, width: usize, columns: &Range<usize>, made: *mut f32) {
        let Micro { mr, nr, .. } = self.micro;
        let mut rows = [0; TILES];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = i * self.blocks.made();
        }
        for product in 0..PRODUCTS {
            for d in 0..self.blocks.depths {
                let depth = self.blocks.depth.min(self.g.channels - d * self.blocks.depth);
                // SAFETY: panels of both sides lie where they were transformed to, and tile i has a row of products.
                unsafe {
                    let right = self.right(width.next_multiple_of(nr), product, d);
                    let a = left.add(self.blocks.left(product, d));
                    for j in columns.clone().step_by(nr) {
                        for i in (0..tiles).step_by(mr) {
                            let tile = Tile {
                                a: a.add(i * ROW_STRIDE),
                                b: right.add(j * depth),
                                c: made.add(product * self.blocks.at_once + j - columns.start),
                                rows: rows.as_ptr().add(i),
                                depth,
                                m: mr.min(tiles - i),
                                n: nr.min(columns.end - j),
                                accumulate: d > 0,
                                prefetch_c: false,
                                prefetch: BlockPrefetch::NOTHING,
                            };
                            self.micro.run(PackedA::Rows, &tile);
                        }
                    }
                }
            }
        }
    }
}
