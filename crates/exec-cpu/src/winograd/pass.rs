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
    Ahead, Columns, Fed, Feed, Feeds, KC, Micro, PackedA, ROW_STRIDE, Scratch, Tile, fill_lines, pack_turned,
};
use crate::pool::part;

/// Elements of all transformed filters at once (4 MiB).
const FILTERS: usize = 1 << 20;
/// Tiles of a block, before rounding down to a multiple of MR. With more, blocks of 128 channels leave the second-level cache;
/// with fewer, the filters of 512 channels come from the third level too often.
const TILES: usize = 56;
/// Columns of the products that a block makes at once.
const COLUMNS: usize = 128;
/// Depths of a filter that are brought into order at once.
const TURNED: usize = 256;
/// Elements of a filter that a feed is asked for at once.
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
pub fn fits_rows(cpu: &Cpu, g: &Geometry, at_once: usize) -> bool {
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
    fn new(micro: &Micro, g: &Geometry, blocks: &Blocks, fed: Fed) -> Room {
        let reading = g.reading(std::ptr::null());
        let (left, made) = (blocks.left_len(), blocks.made_len());
        let window = if fed.a { window_len(&reading, blocks.tiles, g.all_tiles()) } else { 0 };
        // Filters are brought into order before any image is read.
        let strips = match (g.turned, fed.b) {
            (false, false) => 0,
            (false, true) => 9 * strip_depths(blocks.columns) * blocks.columns,
            (true, false) => 9 * TURNED * micro.nr,
            (true, true) => 10 * TURNED * micro.nr,
        };
        let each = (left + made + window).max(strips).next_multiple_of(16);
        Room { filters: PRODUCTS * blocks.plane(g), left, made, window, each }
    }
}

/// Elements of scratch for [`run`].
pub fn scratch_len(micro: &Micro, g: &Geometry, fed: Fed, threads: usize) -> usize {
    let room = Room::new(micro, g, &Blocks::new(micro, g, threads), fed);
    room.filters + threads * room.each
}

/// How often [`run`] reads the image: once for the columns that are made at once.
pub fn times_read(micro: &Micro, g: &Geometry, threads: usize) -> usize {
    g.columns.div_ceil(Blocks::new(micro, g, threads).columns)
}

/// Where a pass reads and writes; a fed operand starts at null.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    pub from: *const f32,
    pub filter: *const f32,
    pub to: *mut f32,
}

/// Runs a pass on all threads. `finish(thread, pixels, columns)` is called once for every block of results when it is complete
/// and still in the cache; a thread's pixels come in the order of memory.
///
/// # Safety
/// The images cover their sizes, what is written overlaps nothing else, and `scratch` has [`scratch_len`] elements.
pub unsafe fn run(
    cpu: &Cpu,
    g: &Geometry,
    images: Images,
    feeds: Feeds,
    pixels_at_once: usize,
    scratch: *mut f32,
    finish: &(dyn Fn(usize, Range<usize>, Range<usize>) + Sync),
) {
    let micro = Micro::new(cpu.isa);
    let threads = cpu.pool.threads();
    let blocks = Blocks::new(&micro, g, threads);
    let room = Room::new(&micro, g, &blocks, feeds.fed());
    let split = Split::new(&micro, g, pixels_at_once, threads);
    let pass = Pass { g, micro, blocks, room, feeds, images, scratch: Scratch(scratch) };
    for start in (0..g.columns).step_by(pass.blocks.columns) {
        let columns = start..g.columns.min(start + pass.blocks.columns);
        cpu.pool.run(&|t| {
            let depths = part(g.channels, 16, threads, t);
            // SAFETY: each thread writes its own depths, and has its own part of the scratch.
            unsafe { pass.transform_filters(t, &columns, depths) };
        });
        cpu.pool.run(&|t| {
            let (rows, mine) = match split {
                Split::Rows(grain) => (part(g.tile_rows(), grain, threads, t), 0..columns.len()),
                Split::Columns => (0..g.tile_rows(), part(columns.len(), pass.micro.nr, threads, t)),
            };
            if !rows.is_empty() && !mine.is_empty() {
                // SAFETY: each thread makes its own pixels or columns, and has its own part of the scratch.
                unsafe { pass.make(t, rows, &columns, mine, &|pixels, columns| finish(t, pixels, columns)) };
            }
        });
    }
}

/// Depths of a filter of so many columns that a feed is asked for at once.
fn strip_depths(columns: usize) -> usize {
    (STRIP / 9 / columns).max(1)
}

/// A pass under way.
struct Pass<'a> {
    g: &'a Geometry,
    micro: Micro,
    blocks: Blocks,
    room: Room,
    feeds: Feeds<'a>,
    images: Images,
    scratch: Scratch,
}

// SAFETY: the pointers name memory of the arena, of which each thread writes its own part.
unsafe impl Sync for Pass<'_> {}

impl Pass<'_> {
    unsafe fn scratch_of(&self, thread: usize) -> *mut f32 {
        // SAFETY: the scratch has the filters and then a part for every thread.
        unsafe { self.scratch.at(self.room.filters + thread * self.room.each) }
    }

    /// Where the filters of a product stand at some depths.
    unsafe fn right(&self, width: usize, product: usize, depth: usize) -> *mut f32 {
        // SAFETY: inside of the filters' part.
        unsafe { self.scratch.at(product * self.blocks.plane(self.g) + depth * self.blocks.depth * width) }
    }

    /// G w Gᵀ of some depths, for all of these columns.
    unsafe fn transform_filters(&self, thread: usize, columns: &Range<usize>, depths: Range<usize>) {
        let mut at = depths.start;
        while at < depths.end {
            let block = at / self.blocks.depth;
            let end = depths.end.min((block + 1) * self.blocks.depth);
            // SAFETY: passed on.
            unsafe {
                match (self.g.turned, self.feeds.b) {
                    (false, None) => {
                        let start = self.images.filter.add(at * self.g.columns + columns.start);
                        let w = Taps3x3 {
                            start,
                            tap: self.g.channels * self.g.columns,
                            stride: self.g.columns,
                            flipped: false,
                        };
                        self.to_panels(w, at..end, 0..columns.len(), columns.len());
                    }
                    (false, Some(feed)) => self.fed_filters(thread, feed, columns, at..end),
                    (true, _) => self.turned_filters(thread, columns, at..end),
                }
            }
            at = end;
        }
    }

    /// Transforms depths of one block to their places, for those of `width` columns that `columns` names.
    unsafe fn to_panels(&self, w: Taps3x3, depths: Range<usize>, columns: Range<usize>, width: usize) {
        let (nr, block) = (self.micro.nr, depths.start / self.blocks.depth);
        let first = block * self.blocks.depth;
        let depth = self.blocks.depth.min(self.g.channels - first);
        // SAFETY: passed on.
        unsafe {
            let start = self.right(width.next_multiple_of(nr), 0, block);
            let start = start.add(columns.start * depth + (depths.start - first) * nr);
            let to = Panels { start, plane: self.blocks.plane(self.g), panel: depth * nr, nr };
            filters(self.micro.isa, w, depths.len(), columns.len(), to);
        }
    }

    unsafe fn fed_filters(&self, thread: usize, feed: &dyn Feed, columns: &Range<usize>, depths: Range<usize>) {
        let n = columns.len();
        let at_once = strip_depths(self.blocks.columns);
        // SAFETY: the strip has room for as many depths of all taps.
        unsafe {
            let strip = self.scratch_of(thread);
            for p in depths.clone().step_by(at_once) {
                let part = p..depths.end.min(p + at_once);
                for tap in 0..9 {
                    let at = (tap * self.g.channels + p) * self.g.columns + columns.start;
                    let to = strip.add(tap * at_once * n);
                    fill_lines(feed, thread, at, self.g.columns, [part.len(), n], to);
                }
                let w = Taps3x3 { start: strip, tap: at_once * n, stride: n, flipped: false };
                self.to_panels(w, part, 0..n, n);
            }
        }
    }

    /// The filter has its depths side by side and its columns as lines.
    unsafe fn turned_filters(&self, thread: usize, columns: &Range<usize>, depths: Range<usize>) {
        let nr = self.micro.nr;
        let line = self.g.channels;
        // SAFETY: the strip has room for a panel of all taps, and one tap more.
        unsafe {
            let strip = self.scratch_of(thread);
            let unturned = strip.add(9 * TURNED * nr);
            for p in depths.clone().step_by(TURNED) {
                let part = p..depths.end.min(p + TURNED);
                for j in (0..columns.len()).step_by(nr) {
                    let n = nr.min(columns.len() - j);
                    for tap in 0..9 {
                        let at = (tap * self.g.columns + columns.start + j) * line + p;
                        let (from, stride) = match self.feeds.b {
                            Some(feed) => {
                                fill_lines(feed, thread, at, line, [n, part.len()], unturned);
                                (unturned.cast_const(), part.len())
                            }
                            None => (self.images.filter.add(at), line),
                        };
                        let lines = Columns { start: from, stride, count: n };
                        pack_turned(&self.micro, lines, part.len(), strip.add(tap * TURNED * nr));
                    }
                    let w = Taps3x3 { start: strip, tap: TURNED * nr, stride: nr, flipped: true };
                    self.to_panels(w, part.clone(), j..j + n, columns.len());
                }
            }
        }
    }

    /// Makes `mine` of the columns whose filters are transformed, for some rows of tiles.
    unsafe fn make(
        &self,
        thread: usize,
        rows: Range<usize>,
        columns: &Range<usize>,
        mine: Range<usize>,
        finish: &dyn Fn(Range<usize>, Range<usize>),
    ) {
        let across = self.g.tiles()[1];
        let (reading, making) = (self.g.reading(self.images.from), self.g.making(self.images.to));
        let named = columns.start + mine.start..columns.start + mine.end;
        let tiles = rows.start * across..rows.end * across;
        let mut done = rows.start;
        // SAFETY: the thread's scratch has these parts, one after the other.
        unsafe {
            let left = self.scratch_of(thread);
            let made = left.add(self.room.left);
            let window = made.add(self.room.made);
            let mut lines = Lines::new(&reading, self.feeds.a, thread, window, self.room.window);
            for start in tiles.clone().step_by(self.blocks.tiles) {
                let block = start..tiles.end.min(start + self.blocks.tiles);
                let image = lines.of(block.clone());
                self.transform_tiles(&Tiles { patches: &reading, image, tiles: block.clone() }, left);
                for j in mine.clone().step_by(self.blocks.at_once) {
                    let part = j..mine.end.min(j + self.blocks.at_once);
                    self.multiply(block.len(), left, columns.len(), &part, made);
                    let image = self.images.to.wrapping_add(columns.start + j);
                    let to = Tiles { patches: &making, image, tiles: block.clone() };
                    output_tiles(self.micro.isa, made, self.blocks.made(), self.blocks.at_once, part.len(), &to);
                }
                let complete = block.end / across;
                if complete > done {
                    finish(self.g.first_pixel(done)..self.g.first_pixel(complete), named.clone());
                    done = complete;
                }
            }
        }
    }

    /// Bᵀ d B of a block of tiles.
    unsafe fn transform_tiles(&self, tiles: &Tiles, left: *mut f32) {
        for depth in 0..self.blocks.depths {
            let places = std::array::from_fn(|product| self.blocks.left(product, depth));
            let first = depth * self.blocks.depth;
            let n = self.blocks.depth.min(self.g.channels - first);
            let to = Places { start: left, tile: ROW_STRIDE, places: &places };
            // SAFETY: a row of the left sides has room for the depth.
            unsafe { input_tiles(self.micro.isa, tiles, first, n, to) };
        }
    }

    /// The 16 products of a block of tiles with the filters of some columns.
    unsafe fn multiply(&self, tiles: usize, left: *const f32, width: usize, columns: &Range<usize>, made: *mut f32) {
        let Micro { mr, nr, .. } = self.micro;
        let mut rows = [0; TILES];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = i * self.blocks.made();
        }
        for product in 0..PRODUCTS {
            for d in 0..self.blocks.depths {
                let depth = self.blocks.depth.min(self.g.channels - d * self.blocks.depth);
                // SAFETY: as transformed; the products have room for whole blocks.
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
                                far: false,
                                ahead: Ahead::NOTHING,
                            };
                            self.micro.run(PackedA::Rows, &tile);
                        }
                    }
                }
            }
        }
    }
}
