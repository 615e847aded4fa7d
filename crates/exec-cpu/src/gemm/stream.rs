//! Products of few rows. Packing B is as much as a fifth of the work if it is done by itself, mostly waiting for memory. Here
//! all of A is packed, and B streams by in panels: while the tiles of one are multiplied, the next one is prefetched and packed
//! bit by bit.

use std::ops::Range;

use super::packer::Packer;
use super::{Block, Part, Shape, blocks, multiply, steps};
use crate::pool::part;
use crate::prefetch::BlockPrefetch;

/// Depths that are packed at once, at least.
const PIECE: usize = 16;

/// Panels that go through one block of depths before the next.
const PANELS: usize = 8;

/// Packs all of A, or one of several `parts` of it.
///
/// # Safety
/// As for [`super::run_part`], with room for all of A.
pub(crate) unsafe fn pack(packer: &mut Packer, s: &Shape, a: *mut f32, parts: usize, index: usize) {
    let g = packer.g;
    let of_depths = |depths: Range<usize>| steps(0..g.m, s.mc).map(move |rows| (rows, depths.clone()));
    let list = || blocks(g.k, s.kc).flat_map(of_depths).enumerate();
    let mine = part(list().count(), 1, parts, index);
    for (i, (rows, depths)) in list().skip(mine.start).take(mine.len()) {
        // SAFETY: block i has its own place among those of A, for all of which there is room.
        unsafe { packer.a(rows, depths, a.add(i * s.a_block())) };
    }
}

/// Makes some columns of all rows.
///
/// # Safety
/// As for [`super::run_part`], with A packed and room for two panels of B.
pub(crate) unsafe fn run(
    packer: &Packer,
    s: &Shape,
    made: &Part,
    [a, b]: [*mut f32; 2],
    epilogue: &dyn Fn(Range<usize>, Range<usize>),
) {
    let (micro, g) = (packer.micro, packer.g);
    let row_blocks = || steps(0..g.m, s.mc).enumerate();
    let count = row_blocks().count();
    let a_at = |i: usize, p: usize| a.wrapping_add((p * count + i) * s.a_block());
    let panel = |u: usize| b.wrapping_add(u % 2 * s.nc * s.kc);
    let unit = |u: usize| Unit::nth(s, g.k, &made.columns, u);
    // SAFETY: a panel is packed whole before its tiles, into the half of B that no tile reads meanwhile; all of A is packed, and
    // the columns of C are of this part.
    unsafe {
        let mut next = unit(0);
        if let Some(first) = &next {
            packer.b(first.columns.clone(), first.depths.clone(), panel(0));
        }
        for u in 0.. {
            let Some(Unit { group, columns, p, depths }) = next else { return };
            next = unit(u + 1);
            let mut coming = next.as_ref().map(|n| PanelPacking::new(packer, n, panel(u + 1), micro.tiles(g.m, s.nc)));
            for (i, rows) in row_blocks() {
                let block = Block { rows: &rows, columns: &columns, depths: &depths, a: a_at(i, p), b: panel(u) };
                multiply(micro, g, &block, || coming.as_mut().map_or(BlockPrefetch::NOTHING, PanelPacking::step));
            }
            if let Some(mut c) = coming {
                c.rest();
            }
            if depths.end >= g.k && columns.end == group.end {
                row_blocks().for_each(|(_, rows)| epilogue(rows, group.clone()));
            }
        }
    }
}

/// A panel of B at a block of depths, the `p`-th.
struct Unit {
    /// The columns of a few panels: they are made together.
    group: Range<usize>,
    columns: Range<usize>,
    p: usize,
    depths: Range<usize>,
}

impl Unit {
    /// The `u`-th of those of some columns. A group goes through one block of depths after the other, so that the block of A
    /// stays in the cache, and what the group makes of C too.
    fn nth(s: &Shape, k: usize, columns: &Range<usize>, u: usize) -> Option<Unit> {
        let depth_blocks = k.div_ceil(s.kc);
        let (index, within) = (u / (PANELS * depth_blocks), u % (PANELS * depth_blocks));
        let group = steps(columns.clone(), PANELS * s.nc).nth(index)?;
        let panels = group.len().div_ceil(s.nc);
        let p = within / panels;
        let depths = blocks(k, s.kc).nth(p)?;
        let columns = steps(group.clone(), s.nc).nth(within % panels)?;
        Some(Unit { group, columns, p, depths })
    }
}

/// A panel of B that is being packed.
struct PanelPacking<'a> {
    packer: &'a Packer<'a>,
    columns: Range<usize>,
    depths: Range<usize>,
    to: *mut f32,
    /// Depths that are packed at once.
    piece: usize,
    /// Up to where it is packed, and prefetched.
    packed: usize,
    prefetched: usize,
}

impl<'a> PanelPacking<'a> {
    /// # Safety
    /// As for [`Packer::b`] of this panel, for as long as it lives.
    unsafe fn new(packer: &'a Packer<'a>, unit: &Unit, to: *mut f32, tiles: usize) -> Self {
        let Unit { columns, depths, .. } = unit;
        let piece = depths.len().div_ceil(tiles).next_multiple_of(PIECE);
        let (packed, prefetched) = (depths.start, depths.start);
        PanelPacking { packer, columns: columns.clone(), depths: depths.clone(), to, piece, packed, prefetched }
    }

    /// Packs what was prefetched, and says what to prefetch next.
    fn step(&mut self) -> BlockPrefetch {
        self.pack(self.prefetched);
        let next = self.prefetched..self.depths.end.min(self.prefetched + self.piece);
        self.prefetched = next.end;
        self.packer.prefetch_b(&self.columns, &next)
    }

    /// Packs all that is left.
    fn rest(&mut self) {
        self.pack(self.depths.end);
    }

    fn pack(&mut self, end: usize) {
        if self.packed < end {
            let at = (self.packed - self.depths.start) * self.packer.micro.nr;
            // SAFETY: the panel has room and its operand is there, as was promised to `new`; its depths are one after the other.
            unsafe { self.packer.b(self.columns.clone(), self.packed..end, self.to.wrapping_add(at)) };
            self.packed = end;
        }
    }
}
