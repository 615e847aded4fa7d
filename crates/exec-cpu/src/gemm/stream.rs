//! Products of few rows. Packing B is as much as a fifth of the work if it is done by itself, mostly waiting for memory. Here
//! all of A is packed, and B streams by in panels: while the tiles of one are multiplied, the next one is asked for and packed
//! bit by bit.

use std::ops::Range;

use super::ahead::Lines;
use super::feed::Packer;
use super::{Block, Part, Shape, blocks, multiply, steps};

/// Depths that are packed at once, at least.
const PIECE: usize = 16;

/// Panels that go through one block of depths before the next.
const PANELS: usize = 8;

/// # Safety
/// As for [`super::run_part`], with room for all of A and two panels of B.
pub unsafe fn run(
    packer: &mut Packer,
    s: &Shape,
    part: &Part,
    [a, b]: [*mut f32; 2],
    finish: &dyn Fn(Range<usize>, Range<usize>),
) {
    let (micro, g) = (packer.micro, packer.g);
    let row_blocks = || steps(part.rows.clone(), s.mc).enumerate();
    let depth_blocks = || blocks(g.k, s.kc).enumerate();
    let count = row_blocks().count();
    let a_at = |i: usize, p: usize| a.wrapping_add((p * count + i) * s.a_block());
    let panel = |u: usize| b.wrapping_add(u % 2 * s.nc * s.kc);
    let tiles = micro.tiles(part.rows.len(), s.nc);
    // Some panels for each block of depths, so that the block of A stays in the cache; not all, so that C does too.
    let units = || {
        steps(part.columns.clone(), PANELS * s.nc)
            .flat_map(|group| depth_blocks().map(move |(p, d)| (group.clone(), p, d)))
            .flat_map(|(group, p, d)| steps(group, s.nc).map(move |c| (c, p, d.clone())))
    };
    // SAFETY: a panel is packed whole before its tiles, into the half of B that no tile reads meanwhile.
    unsafe {
        for (p, depths) in depth_blocks() {
            row_blocks().for_each(|(i, rows)| packer.a(rows, depths.clone(), a_at(i, p)));
        }
        if let Some((columns, _, depths)) = units().next() {
            packer.b(columns, depths, panel(0));
        }
        let mut next = units().skip(1);
        for (u, (columns, p, depths)) in units().enumerate() {
            let mut coming = next.next().map(|(c, _, d)| Coming::new(packer, c, d, panel(u + 1), tiles));
            for (i, rows) in row_blocks() {
                let block = Block { rows: &rows, columns: &columns, depths: &depths, a: a_at(i, p), b: panel(u) };
                multiply(micro, g, &block, |lines| {
                    if let Some(c) = &mut coming {
                        c.step(lines);
                    }
                });
                if depths.end >= g.k {
                    finish(rows, columns.clone());
                }
            }
            if let Some(mut c) = coming {
                c.rest();
            }
        }
    }
}

/// A panel of B that is being packed.
struct Coming<'a> {
    packer: &'a Packer<'a>,
    columns: Range<usize>,
    depths: Range<usize>,
    to: *mut f32,
    /// Depths that are packed at once.
    piece: usize,
    /// Up to where it is packed, and asked for.
    packed: usize,
    asked: usize,
}

impl<'a> Coming<'a> {
    /// # Safety
    /// There is room for the panel, and nobody else uses it.
    unsafe fn new(
        packer: &'a Packer<'a>,
        columns: Range<usize>,
        depths: Range<usize>,
        to: *mut f32,
        tiles: usize,
    ) -> Self {
        let piece = depths.len().div_ceil(tiles).next_multiple_of(PIECE);
        let start = depths.start;
        Coming { packer, columns, depths, to, piece, packed: start, asked: start }
    }

    /// Packs what was asked for, and names the next piece.
    fn step(&mut self, lines: &mut Lines) {
        self.pack(self.asked);
        let next = self.asked..self.depths.end.min(self.asked + self.piece);
        let mut ahead = self.packer.ahead_b(&self.columns, &next);
        ahead.name(ahead.lines(), lines);
        self.asked = next.end;
    }

    /// Packs all that is left.
    fn rest(&mut self) {
        self.pack(self.depths.end);
    }

    fn pack(&mut self, end: usize) {
        if self.packed < end {
            let at = (self.packed - self.depths.start) * self.packer.micro.nr;
            // SAFETY: by the promise of `new`; a panel has its depths one after the other.
            unsafe { self.packer.b(self.columns.clone(), self.packed..end, self.to.wrapping_add(at)) };
            self.packed = end;
        }
    }
}
