//! Matrix multiplication in BLIS form: A and B are packed into planned scratch, and a micro-kernel multiplies panels in
//! registers. Convolutions are the same product with A packed straight from the image.
//!
//! A sum is split along the depth into blocks that depend on the depth alone: every schedule, and every number of threads,
//! adds the same numbers in the same order.

mod micro;
mod operand;
mod pack;
mod packer;
mod panel;
mod stream;

use std::ops::Range;

use crate::Cpu;
use crate::pool::part;
use crate::prefetch::BlockPrefetch;
pub(crate) use micro::{KC, Micro, PackedA, ROW_STRIDE, Tile};
pub(crate) use operand::{Operands, Prologue, Source, Window, compute_lines};
use pack::Walk;
pub(crate) use pack::{A, B, Patches, Taps};
use packer::Packer;
pub(crate) use panel::{Columns, pack_turned};

/// C = A·B with A of `m`×`k` and B of `k`×`n`.
#[derive(Clone, Copy)]
pub(crate) struct Gemm<'a> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// How A and B lie, and the rows of C.
    pub(crate) a: A,
    pub(crate) b: B,
    pub(crate) rows: Rows,
    pub(crate) operands: Operands<'a>,
}

/// Where the rows of C lie: row (n, i, j) of a grid at `n·image + i·line + j·pixel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Height and width of the grid.
    pub(crate) grid: [usize; 2],
    pub(crate) image: usize,
    pub(crate) line: usize,
    pub(crate) pixel: usize,
}

impl Rows {
    /// Row i at `i·stride`.
    pub(crate) fn plain(stride: usize) -> Rows {
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
/// Columns of B in a block: 2 MiB at full depth.
const NC: usize = 1024;
/// A side is packed whole when it has no more elements than this (2 MiB): then a block of C is finished while it is in cache.
const WHOLE: usize = 512 << 10;

/// How the work is cut into parts; each part has its own scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    Rows,
    Columns,
}

/// In which order blocks are packed and multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// For a block of columns, all of B is packed, and then block after block of rows is made.
    Rows,
    /// For a block of columns, block after block of the depth is added to all rows; A is packed anew for each block of B.
    Depths,
    /// All of A is packed, and panel after panel of B streams by: for few rows. See [`stream`].
    Panels,
}

/// What a size means for blocks and scratch.
struct Shape {
    mc: usize,
    nc: usize,
    /// Depth of a block: all blocks but the last are equal.
    kc: usize,
    order: Order,
}

impl Shape {
    fn new(micro: &Micro, g: &Gemm) -> Shape {
        let Gemm { m, n, k, .. } = *g;
        let blocks = k.div_ceil(KC).max(1);
        let kc = k.div_ceil(blocks);
        let mc = (MC / micro.mr * micro.mr).min(m.next_multiple_of(micro.mr));
        let nc = NC.min(n.next_multiple_of(micro.nr));
        let computed = g.operands.a.has_prologue();
        let most = match g.a {
            // A window over depths would start anew for every block of rows.
            A::PatchColumns(_) if computed => 0,
            // And one over rows for every block of depths: worth a larger B, if that is small beside the image.
            A::Patches(ref p) if computed && k * nc <= p.elements(m) / 2 => 2 * WHOLE,
            A::Rows { .. } | A::Columns { .. } | A::Patches(_) | A::PatchColumns(_) => WHOLE,
        };
        let is_matrix = matches!(g.a, A::Rows { .. } | A::Columns { .. });
        let order = if k * nc <= most {
            Order::Rows
        } else if is_matrix && m > 0 && !makes_rows(m, n) && m * k <= 2 * WHOLE {
            Order::Panels
        } else {
            Order::Depths
        };
        Shape { mc, nc: if order == Order::Panels { micro.nr } else { nc }, kc, order }
    }

    /// Elements of a packed block of A.
    fn a_block(&self) -> usize {
        self.mc * ROW_STRIDE
    }

    fn a_len(&self, g: &Gemm) -> usize {
        match self.order {
            Order::Rows | Order::Depths => self.a_block(),
            Order::Panels => g.m.div_ceil(self.mc) * blocks(g.k, self.kc).count() * self.a_block(),
        }
    }

    /// Whether threads share what is packed of A: all of it, for each their own columns.
    fn shares_a(&self) -> bool {
        self.order == Order::Panels
    }

    /// Elements that each thread has for itself besides A.
    fn own_len(&self, g: &Gemm) -> usize {
        self.b_len(g) + packer::strip_len(g, self)
    }

    fn b_len(&self, g: &Gemm) -> usize {
        match self.order {
            Order::Rows => self.nc * g.k,
            Order::Depths => self.nc * self.kc,
            Order::Panels => 2 * self.nc * self.kc,
        }
    }
}

fn split_of(m: usize, n: usize) -> Split {
    // Each part packs the other side whole: let that be the smaller one.
    if m >= n { Split::Rows } else { Split::Columns }
}

/// Whether each thread makes whole rows, one after the other where their columns fit into one block.
pub(crate) fn makes_rows(m: usize, n: usize) -> bool {
    split_of(m, n) == Split::Rows
}

/// Elements of scratch for [`run`] on a number of threads. Where the operands lie does not matter.
pub(crate) fn scratch_len(micro: &Micro, g: &Gemm, threads: usize) -> usize {
    let s = Shape::new(micro, g);
    let own = s.own_len(g) * threads;
    if s.shares_a() { s.a_len(g) + own } else { s.a_len(g) * threads + own }
}

/// Runs a product on all threads. `epilogue(thread, rows, columns)` is called once for every block of C when it is complete and
/// still in the cache. Where threads make rows, each makes a multiple of `rows_at_once`, but for the last.
///
/// # Safety
/// Operands that are in memory and C cover the sizes of `g`, C overlaps neither A nor B, nobody else touches C, and `scratch`
/// has [`scratch_len`] elements that nobody else uses.
pub(crate) unsafe fn run(
    cpu: &Cpu,
    g: &Gemm,
    rows_at_once: usize,
    scratch: *mut f32,
    epilogue: &(dyn Fn(usize, Range<usize>, Range<usize>) + Sync),
) {
    let micro = Micro::new(cpu.isa);
    let threads = cpu.pool.threads();
    let s = Shape::new(&micro, g);
    let (a_len, own_len) = (s.a_len(g), s.own_len(g));
    let scratch = Scratch(scratch);
    let part_of = |t: usize| {
        let (rows, columns) = match split_of(g.m, g.n) {
            Split::Rows => (part(g.m, rows_at_once.max(micro.mr), threads, t), 0..g.n),
            Split::Columns => (0..g.m, part(g.n, micro.nr, threads, t)),
        };
        Part { thread: t, rows, columns }
    };
    // SAFETY: the scratch is as long as `scratch_len` says: a packed A that all threads read, or one for each, and `own_len` for
    // each. Threads make different parts of C.
    unsafe {
        if s.shares_a() {
            let own = |t: usize| scratch.at(a_len + t * own_len);
            cpu.pool.run(&|t| {
                let mut packer = Packer::new(&micro, g, &s, t, own(t).add(s.b_len(g)));
                stream::pack(&mut packer, &s, scratch.at(0), threads, t);
            });
            cpu.pool.run(&|t| {
                let packer = Packer::new(&micro, g, &s, t, own(t).add(s.b_len(g)));
                stream::run(&packer, &s, &part_of(t), [scratch.at(0), own(t)], &|r, c| epilogue(t, r, c));
            });
        } else {
            cpu.pool.run(&|t| {
                let own = scratch.at(t * (a_len + own_len));
                run_part(&micro, g, part_of(t), own, &|r, c| epilogue(t, r, c));
            });
        }
    }
}

/// Scratch shared between threads, each of which uses its own part.
#[derive(Clone, Copy)]
pub(crate) struct Scratch(pub(crate) *mut f32);

// SAFETY: it gives nothing but addresses; whoever uses one takes a part by his thread's number.
unsafe impl Sync for Scratch {}
// SAFETY: it gives nothing but addresses, on whatever thread.
unsafe impl Send for Scratch {}

impl Scratch {
    /// # Safety
    /// The scratch has at least as many elements as the offset.
    pub(crate) unsafe fn at(&self, offset: usize) -> *mut f32 {
        // SAFETY: inside of the scratch or at its end, as the caller promises.
        unsafe { self.0.add(offset) }
    }
}

/// What one thread computes of a product.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) thread: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
}

/// Runs rows × columns of a product on the calling thread.
///
/// # Safety
/// As for [`run`], with the scratch of one thread; nobody else touches these rows × columns of C.
pub(crate) unsafe fn run_part(
    micro: &Micro,
    g: &Gemm,
    part: Part,
    scratch: *mut f32,
    epilogue: &dyn Fn(Range<usize>, Range<usize>),
) {
    if part.rows.is_empty() || part.columns.is_empty() {
        return;
    }
    let s = Shape::new(micro, g);
    // SAFETY: the scratch of a thread is what is packed of A, then of B, then the strips.
    let (a, b, strips) = unsafe { (scratch, scratch.add(s.a_len(g)), scratch.add(s.a_len(g) + s.b_len(g))) };
    let mut packer = Packer::new(micro, g, &s, part.thread, strips);
    // SAFETY: the operands are as the caller promises, and `a` and `b` have the room that this order packs into.
    unsafe {
        match s.order {
            Order::Panels => {
                stream::pack(&mut packer, &s, a, 1, 0);
                stream::run(&packer, &s, &part, [a, b], epilogue);
            }
            Order::Rows | Order::Depths => run_blocks(&mut packer, &s, &part, [a, b], epilogue),
        }
    }
}

/// Block after block.
///
/// # Safety
/// As for [`run_part`], with room for a packed block of A and for what is packed of B at once.
unsafe fn run_blocks(
    packer: &mut Packer,
    s: &Shape,
    part: &Part,
    [a, b]: [*mut f32; 2],
    epilogue: &dyn Fn(Range<usize>, Range<usize>),
) {
    let (micro, g) = (packer.micro, packer.g);
    for columns in steps(part.columns.clone(), s.nc) {
        let width = columns.len().next_multiple_of(micro.nr);
        // How much of B is packed before the rows go through it.
        let most = if s.order == Order::Rows { g.k } else { s.kc };
        for packed in blocks(g.k, most) {
            let place = |depths: &Range<usize>| b.wrapping_add((depths.start - packed.start) * width);
            let depth_blocks = || blocks(packed.len(), s.kc).map(|d| packed.start + d.start..packed.start + d.end);
            // SAFETY: blocks of A are at most mc × kc, and those of B together `most` × nc, for which there is room; each is
            // packed into its place before it is multiplied, and its rows × columns of C are of this part.
            unsafe {
                depth_blocks().for_each(|d| packer.b(columns.clone(), d.clone(), place(&d)));
                let rows = steps(part.rows.clone(), s.mc);
                let mut pairs = rows.flat_map(|r| depth_blocks().map(move |d| (r.clone(), d))).peekable();
                while let Some((rows, depths)) = pairs.next() {
                    packer.a(rows.clone(), depths.clone(), a);
                    let mut next = pairs.peek().map_or(BlockPrefetch::NOTHING, |(r, d)| packer.prefetch_a(r, d));
                    let lines = next.lines().div_ceil(micro.tiles(rows.len(), columns.len()));
                    let block = Block { rows: &rows, columns: &columns, depths: &depths, a, b: place(&depths) };
                    multiply(micro, g, &block, || next.split_off(lines));
                    if depths.end >= g.k {
                        epilogue(rows, columns.clone());
                    }
                }
            }
        }
    }
}

fn steps(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(step).map(move |start| start..end.min(start + step))
}

/// The blocks along the depth; one empty block where there is no depth, so that C becomes zero.
fn blocks(k: usize, kc: usize) -> impl Iterator<Item = Range<usize>> {
    (0..k.max(1)).step_by(kc.max(1)).map(move |p| p..k.min(p + kc))
}

/// A packed block of A and a packed block of B.
struct Block<'a> {
    rows: &'a Range<usize>,
    columns: &'a Range<usize>,
    depths: &'a Range<usize>,
    a: *const f32,
    b: *const f32,
}

/// Multiplies two packed blocks. For each tile, `prefetch` says what shall be prefetched meanwhile.
///
/// # Safety
/// The blocks are packed, up to whole panels, and have at most MC rows; C covers these rows and columns, and nobody else touches
/// them.
unsafe fn multiply(micro: &Micro, g: &Gemm, block: &Block, mut prefetch: impl FnMut() -> BlockPrefetch) {
    let Micro { mr, nr, .. } = *micro;
    let (m, n, depth) = (block.rows.len(), block.columns.len(), block.depths.len());
    let packed = g.a.packed();
    let mut offsets = [0usize; MC];
    for (o, row) in offsets.iter_mut().zip(g.rows.offsets(block.rows.start)).take(m) {
        *o = row + block.columns.start;
    }
    for j in (0..n).step_by(nr) {
        for i in (0..m).step_by(mr) {
            let (height, width) = (mr.min(m - i), nr.min(n - j));
            // SAFETY: the tile is one of the block's: its panels are packed, and its rows and columns are inside of C.
            unsafe {
                let a = match packed {
                    PackedA::Rows => block.a.add(i * ROW_STRIDE),
                    PackedA::Panels => block.a.add(i * depth),
                };
                let tile = Tile {
                    a,
                    b: block.b.add(j * depth),
                    c: g.operands.c.add(j),
                    rows: offsets.as_ptr().add(i),
                    depth,
                    m: height,
                    n: width,
                    accumulate: block.depths.start > 0,
                    prefetch_c: true,
                    prefetch: prefetch(),
                };
                micro.run(packed, &tile);
            }
        }
    }
}
