//! Folds of terms to one number a cell. A cube has `WIDTH` cells and `LANES` units for each: a unit folds its part of the
//! terms one after the other, and the parts are joined in a tree in shared memory, whose form the launch's numbers decide.

use cubecl::prelude::*;

use crate::kernels::math::maximum;
use crate::kernels::probe::answer;
use crate::kernels::word::{Buffers, load, store};
use crate::lower::fold::{Fold, Terms, To, number};

/// Units of a cube; must be those of [`crate::call::Grid::UNITS`].
const UNITS: usize = crate::call::Grid::UNITS;

#[cube(launch_unchecked)]
pub fn fold_terms(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: Fold) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.to.buffer().index));
        terminate!();
    }
    let work = share(numbers);
    let base = offset(work.cell, numbers, number::AXES, comptime!(key.cell_axes));
    let mut sum = start(key.terms);
    for term in range_stepped(work.first, work.end, work.lanes) {
        let axes = comptime!(number::AXES + 2 * key.cell_axes);
        let element = base + offset(term, numbers, axes, comptime!(key.term_axes));
        if comptime!(key.parts.is_some()) {
            join(&mut sum, load(buffers, element, comptime!(key.parts.unwrap())), key.terms);
        } else {
            step(&mut sum, buffers, element, key.terms);
        }
    }
    let sum = tree(sum, work.slot, work.width, key.terms);
    if work.leads {
        match key.to {
            To::Parts(to) => {
                let cells = numbers[comptime!(number::CELLS)] as usize;
                store(buffers, work.part * cells + work.cell, sum, to);
            }
            To::Element(to) => {
                let divisor = f32::cast_from(numbers[comptime!(number::DIVISOR)]);
                store(buffers, work.cell, sum / divisor, to);
            }
        }
    }
}

/// What one unit has to do.
#[derive(CubeType)]
struct Share {
    cell: usize,
    part: usize,
    /// Its terms, one of so many as there are lanes.
    first: usize,
    end: usize,
    lanes: usize,
    width: usize,
    /// Where its fold goes in shared memory: lane by lane.
    slot: usize,
    /// Whether it stores what becomes of the cell.
    leads: bool,
}

#[cube]
fn share(numbers: &Sequence<u32>) -> Share {
    let cells = numbers[comptime!(number::CELLS)] as usize;
    let width = numbers[comptime!(number::WIDTH)] as usize;
    let lanes = numbers[comptime!(number::LANES)] as usize;
    let parts = numbers[comptime!(number::PARTS)] as usize;
    let part_terms = numbers[comptime!(number::PART_TERMS)] as usize;
    let lanes_first = numbers[comptime!(number::LANES_FIRST)] != 0;
    let unit = UNIT_POS as usize;
    let lane = select(lanes_first, unit % lanes, unit / width);
    let column = select(lanes_first, unit / lanes, unit % width);
    let cell = CUBE_POS / parts * width + column;
    let part = CUBE_POS % parts;
    let is_cell = cell < cells;
    let end = min((part + 1) * part_terms, numbers[comptime!(number::TERMS)] as usize);
    Share {
        cell,
        part,
        first: part * part_terms + lane,
        // What is no cell has no terms.
        end: select(is_cell, end, 0),
        lanes,
        width,
        slot: lane * width + column,
        leads: is_cell && lane == 0,
    }
}

/// Where an index of several axes lies.
#[cube]
fn offset(index: usize, numbers: &Sequence<u32>, #[comptime] axes: usize, #[comptime] rank: usize) -> usize {
    let mut rest = index;
    let mut offset = 0usize.runtime();
    #[unroll]
    for i in 0..rank {
        // From the last axis to the first, which needs no division.
        let axis = comptime!(axes + 2 * (rank - 1 - i));
        let stride = numbers[comptime!(axis + 1)] as usize;
        if comptime!(i + 1 == rank) {
            offset += rest * stride;
        } else {
            let extent = numbers[axis] as usize;
            offset += (rest % extent) * stride;
            rest /= extent;
        }
    }
    offset
}

#[cube]
fn start(#[comptime] terms: Terms) -> f32 {
    match terms {
        Terms::Sum(_) | Terms::SumSquares(_) => 0.0f32.runtime(),
        Terms::Max(_) => f32::reinterpret(0xff80_0000u32.runtime()),
    }
}

#[cube]
fn step(sum: &mut f32, buffers: &mut Buffers, element: usize, #[comptime] terms: Terms) {
    match terms {
        Terms::Sum(x) => *sum += load(buffers, element, x),
        Terms::SumSquares(x) => {
            let x = load(buffers, element, x);
            *sum += x * x;
        }
        Terms::Max(x) => *sum = maximum(*sum, load(buffers, element, x)),
    }
}

#[cube]
fn join(sum: &mut f32, other: f32, #[comptime] terms: Terms) {
    match terms {
        Terms::Sum(_) | Terms::SumSquares(_) => *sum += other,
        Terms::Max(_) => *sum = maximum(*sum, other),
    }
}

/// The fold of all lanes of a cell, for each of its units.
#[cube]
fn tree(sum: f32, slot: usize, width: usize, #[comptime] terms: Terms) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    shared[slot] = sum;
    sync_cube();
    let unit = UNIT_POS as usize;
    let mut step = comptime!(UNITS / 2).runtime();
    while step >= width {
        if unit < step {
            let mut sum = shared[unit];
            join(&mut sum, shared[unit + step], terms);
            shared[unit] = sum;
        }
        sync_cube();
        step /= 2;
    }
    shared[slot % width]
}
