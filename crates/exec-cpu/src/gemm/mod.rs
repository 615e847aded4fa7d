//! Matrix multiplication in BLIS form: A and B are packed into planned scratch, and a micro-kernel multiplies panels in
//! registers. Convolutions are the same product with A packed straight from the image.
//!
//! A sum is split along the depth into blocks that depend on the depth alone: every schedule, and every number of threads,
//! adds the same numbers in the same order.

mod feed;
mod micro;
mod pack;
pub(crate) mod vector;

use std::ops::Range;

use crate::Cpu;
use crate::pool::part;
use feed::Packer;
pub(crate) use feed::fill_lines;
pub use feed::{Fed, Feed, Feeds};
pub use micro::{KC, Micro};
pub(crate) use micro::{PackedA, ROW_STRIDE, Tile};
use pack::Walk;
pub(crate) use pack::pack_turned;
pub use pack::{A, B, Patches, Taps};

/// C = A·B with A of `m`×`k` and B of `k`×`n`.
#[derive(Clone, Copy)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: A,
    pub b: B,
    pub c: *mut f32,
    pub rows: Rows,
}

// SAFETY: the pointers name memory of the arena; the schedule below gives each thread its own part of C and of scratch.
unsafe impl Sync for Gemm {}
// SAFETY: as above.
unsafe impl Send for Gemm {}

/// Where the rows of C lie: row (n, i, j) of a grid at `n·image + i·line + j·pixel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Height and width of the grid.
    pub grid: [usize; 2],
    pub image: usize,
    pub line: usize,
    pub pixel: usize,
}

impl Rows {
    /// Row i at `i·stride`.
    pub fn plain(stride: usize) -> Rows {
        Rows { grid: [1, usize::MAX], image: 0, line: 0, pixel: stride }
    }

    /// Of this row and all behind it.
    fn offsets(&self, row: usize) -> impl Iterator<Item = usize> {
        let Rows { grid, image, line, pixel } = *self;
        Walk::new(grid, row).map(move |[n, i, j]| n * image + i * line + j * pixel)
    }
}

/// Rows of A in a block, before rounding down to a multiple of MR.
const MC: usize = 224;
/// Columns of B in a block: 1 MiB at full depth.
const NC: usize = 1024;
/// B is packed whole when it has no more elements than this (2 MiB): then a block of C is finished while it is in cache.
const WHOLE_B: usize = 512 << 10;

/// How the work is cut into parts; each part has its own scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    Rows,
    Columns,
}

/// What a size means for blocks and scratch.
struct Shape {
    mc: usize,
    nc: usize,
    /// Depth of a block: all blocks but the last are equal.
    kc: usize,
    whole_b: bool,
}

impl Shape {
    fn new(micro: &Micro, g: &Gemm, fed: Fed) -> Shape {
        let Gemm { m, n, k, .. } = *g;
        let blocks = k.div_ceil(KC).max(1);
        let kc = k.div_ceil(blocks);
        let nc = NC.min(n.next_multiple_of(micro.nr));
        let mc = (MC / micro.mr * micro.mr).min(m.next_multiple_of(micro.mr));
        let most = match g.a {
            // A window over depths would start anew for every block of rows.
            A::PatchColumns(_) if fed.a => 0,
            // And one over rows for every block of depths: worth a larger B, if that is small beside the image.
            A::Patches(ref p) if fed.a && k * nc <= p.elements(m) / 2 => 2 * WHOLE_B,
            A::Rows { .. } | A::Columns { .. } | A::Patches(_) | A::PatchColumns(_) => WHOLE_B,
        };
        Shape { mc, nc, kc, whole_b: k * nc <= most }
    }

    fn a_len(&self) -> usize {
        self.mc * ROW_STRIDE
    }

    fn b_len(&self, k: usize) -> usize {
        self.nc * if self.whole_b { k } else { self.kc }
    }
}

fn split_of(m: usize, n: usize) -> Split {
    // Each part packs the other side whole: let that be the smaller one.
    if m >= n { Split::Rows } else { Split::Columns }
}

/// Whether each thread makes whole rows, one after the other where their columns fit into one block.
pub fn makes_rows(m: usize, n: usize) -> bool {
    split_of(m, n) == Split::Rows
}

/// Elements of scratch for [`run`] on a number of threads. The pointers of the product do not matter.
pub fn scratch_len(micro: &Micro, g: &Gemm, fed: Fed, threads: usize) -> usize {
    let shape = Shape::new(micro, g, fed);
    (shape.a_len() + shape.b_len(g.k) + feed::strip_len(g, &shape, fed)) * threads
}

/// Runs a product on all threads. `finish(thread, rows, columns)` is called once for every block of C when it is complete and
/// still in the cache. Where threads make rows, each makes a multiple of `rows_at_once`, but for the last.
///
/// # Safety
/// The pointers of `g` cover its sizes or start at null where the operand is fed, C overlaps neither A nor B, and `scratch` has
/// [`scratch_len`] elements.
pub unsafe fn run(
    cpu: &Cpu,
    g: &Gemm,
    feeds: Feeds,
    rows_at_once: usize,
    scratch: *mut f32,
    finish: &(dyn Fn(usize, Range<usize>, Range<usize>) + Sync),
) {
    let micro = Micro::new(cpu.isa);
    let threads = cpu.pool.threads();
    let each = scratch_len(&micro, g, feeds.fed(), 1);
    let scratch = Scratch(scratch);
    cpu.pool.run(&|t| {
        let (rows, columns) = match split_of(g.m, g.n) {
            Split::Rows => (part(g.m, rows_at_once.max(micro.mr), threads, t), 0..g.n),
            Split::Columns => (0..g.m, part(g.n, micro.nr, threads, t)),
        };
        if !rows.is_empty() && !columns.is_empty() {
            let one = Part { thread: t, rows, columns };
            // SAFETY: each thread has its own part of C and of the scratch.
            unsafe { run_part(&micro, g, feeds, one, scratch.at(t * each), &|r, c| finish(t, r, c)) };
        }
    });
}

/// Scratch shared between threads, each of which uses its own part.
#[derive(Clone, Copy)]
pub(crate) struct Scratch(pub *mut f32);

// SAFETY: users take disjoint parts by their thread's number.
unsafe impl Sync for Scratch {}
// SAFETY: as above.
unsafe impl Send for Scratch {}

impl Scratch {
    /// # Safety
    /// The offset is inside the scratch.
    pub unsafe fn at(&self, offset: usize) -> *mut f32 {
        // SAFETY: passed on.
        unsafe { self.0.add(offset) }
    }
}

/// What one thread computes of a product.
#[derive(Clone, Debug)]
pub struct Part {
    pub thread: usize,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

/// Runs rows × columns of a product on the calling thread.
///
/// # Safety
/// As for [`run`], with the scratch of one thread.
pub unsafe fn run_part(
    micro: &Micro,
    g: &Gemm,
    feeds: Feeds,
    part: Part,
    scratch: *mut f32,
    finish: &dyn Fn(Range<usize>, Range<usize>),
) {
    let s = Shape::new(micro, g, feeds.fed());
    let Part { thread, rows, columns } = part;
    // SAFETY: the scratch holds a block of A, then the block of B, then what feeds need.
    let (a, b, strips) = unsafe { (scratch, scratch.add(s.a_len()), scratch.add(s.a_len() + s.b_len(g.k))) };
    let packer = Packer::new(micro, g, &s, feeds, thread, strips);
    let mut block = Block { micro, g, a, packer };
    for j0 in columns.clone().step_by(s.nc) {
        let columns = j0..columns.end.min(j0 + s.nc);
        let width = columns.len().next_multiple_of(micro.nr);
        let row_blocks = || rows.clone().step_by(s.mc).map(|i0| i0..rows.end.min(i0 + s.mc));
        if s.whole_b {
            for depths in blocks(g.k, s.kc) {
                // SAFETY: the packed block of these depths starts after those before it.
                unsafe { block.packer.b(columns.clone(), depths.clone(), b.add(depths.start * width)) };
            }
            for rows in row_blocks() {
                for depths in blocks(g.k, s.kc) {
                    // SAFETY: as packed above.
                    unsafe { block.multiply(&rows, &columns, &depths, b.add(depths.start * width)) };
                }
                finish(rows, columns.clone());
            }
        } else {
            for depths in blocks(g.k, s.kc) {
                // SAFETY: a block of B fits its part of the scratch.
                unsafe { block.packer.b(columns.clone(), depths.clone(), b) };
                for rows in row_blocks() {
                    // SAFETY: as packed above.
                    unsafe { block.multiply(&rows, &columns, &depths, b) };
                    if depths.end >= g.k {
                        finish(rows, columns.clone());
                    }
                }
            }
        }
    }
}

/// The blocks along the depth; one empty block where there is no depth, so that C becomes zero.
fn blocks(k: usize, kc: usize) -> impl Iterator<Item = Range<usize>> {
    (0..k.max(1)).step_by(kc.max(1)).map(move |p| p..k.min(p + kc))
}

struct Block<'a> {
    micro: &'a Micro,
    g: &'a Gemm,
    a: *mut f32,
    packer: Packer<'a>,
}

impl Block<'_> {
    /// Packs a block of A and multiplies it with a packed block of B.
    unsafe fn multiply(&mut self, rows: &Range<usize>, columns: &Range<usize>, depths: &Range<usize>, b: *const f32) {
        let Micro { mr, nr, .. } = *self.micro;
        let (m, n, depth) = (rows.len(), columns.len(), depths.len());
        let packed = self.g.a.packed();
        let mut offsets = [0usize; MC];
        for (o, row) in offsets.iter_mut().zip(self.g.rows.offsets(rows.start)).take(m) {
            *o = row + columns.start;
        }
        // SAFETY: the caller's promise for sizes; A's block has room for MC rows.
        unsafe {
            self.packer.a(rows.clone(), depths.clone(), self.a);
            for j in (0..n).step_by(nr) {
                for i in (0..m).step_by(mr) {
                    let a = match packed {
                        PackedA::Rows => self.a.add(i * ROW_STRIDE),
                        PackedA::Panels => self.a.add(i * depth),
                    };
                    let tile = Tile {
                        a,
                        b: b.add(j * depth),
                        c: self.g.c.add(j),
                        rows: offsets.as_ptr().add(i),
                        depth,
                        m: mr.min(m - i),
                        n: nr.min(n - j),
                        accumulate: depths.start > 0,
                    };
                    self.micro.run(packed, &tile);
                }
            }
        }
    }
}
