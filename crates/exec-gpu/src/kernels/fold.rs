//! Folds of terms to a few numbers a cell, and what is done to each element with them. A cube has `WIDTH` cells and `LANES` units
//! for each: a unit folds its part of the terms one after the other, and the parts are joined in a tree in shared memory, whose
//! form the launch's numbers decide. Then each unit goes over the same terms again.

use cubecl::prelude::*;

use crate::call::Grid;
use crate::kernels::apply::{Results, apply, finish};
use crate::kernels::probe::answer;
use crate::kernels::terms::{Accumulator, Term, accumulate, join, only, origin, settle, start, term_of};
use crate::kernels::word::{Buffers, load, store};
use crate::lower::fold::{Fold, Kind, Sink, Source, number};
use crate::tape::Buffer;

#[cube(launch_unchecked)]
pub fn fold_terms(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: Fold) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.written().index));
        terminate!();
    }
    let share = share(numbers);
    let base = offset(share.cell, numbers, number::AXES, comptime!(key.cell_axes));
    match comptime!(key.sink) {
        Sink::Parts(to) => {
            let folded = fold(buffers, numbers, &share, base, key);
            if share.leads {
                store_parts(buffers, numbers, &share, &folded, to, comptime!(key.kind.accumulators()));
            }
        }
        Sink::Results { finish: how, results: wanted, apply: then } => {
            let results = match comptime!(key.source) {
                Source::Results(known) => load_results(buffers, share.cell, known),
                Source::Terms(_) | Source::Parts(_) => {
                    let folded = fold(buffers, numbers, &share, base, key);
                    let results = finish(buffers, numbers, &folded, share.cell, how);
                    if share.leads {
                        store_results(buffers, share.cell, &results, wanted);
                    }
                    results
                }
            };
            if comptime!(then.is_some()) {
                for index in range_stepped(share.first, share.end, share.lanes) {
                    let term = locate(index, share.cell, base, numbers, key);
                    apply(buffers, numbers, &term, &results, comptime!(then.unwrap()));
                }
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
        // What is no cell has no terms, and looks at the first one.
        cell: select(is_cell, cell, 0),
        part,
        first: part * part_terms + lane,
        end: select(is_cell, end, 0),
        lanes,
        width,
        slot: lane * width + column,
        leads: is_cell && lane == 0,
    }
}

/// Where a term lies.
#[cube]
fn locate(index: usize, cell: usize, base: usize, numbers: &Sequence<u32>, #[comptime] key: Fold) -> Term {
    let axes = comptime!(number::AXES + 2 * key.cell_axes);
    let element = base + offset(index, numbers, axes, comptime!(key.term_axes));
    Term { element, index, cell }
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

/// The fold of all terms of the cell in this cube, for each of its units.
#[cube]
fn fold(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    share: &Share,
    base: usize,
    #[comptime] key: Fold,
) -> Accumulator {
    let mut folded = start(comptime!(key.kind));
    match comptime!(key.source) {
        Source::Terms(terms) => {
            if comptime!(key.kind == Kind::Moments) {
                // The unit's own origin, and that of the whole cell.
                let last = numbers[comptime!(number::TERMS)] as usize - 1;
                let own = locate(min(share.first, last), share.cell, base, numbers, key);
                let first = locate(0usize.runtime(), share.cell, base, numbers, key);
                folded.a = origin(term_of(buffers, numbers, &own, terms).a);
                folded.d = origin(term_of(buffers, numbers, &first, terms).a);
            }
            for index in range_stepped(share.first, share.end, share.lanes) {
                let term = locate(index, share.cell, base, numbers, key);
                let values = term_of(buffers, numbers, &term, terms);
                accumulate(&mut folded, &values, comptime!(key.kind));
            }
            let count = (share.end + share.lanes - 1 - share.first) / share.lanes;
            settle(&mut folded, select(share.first < share.end, count, 0), comptime!(key.kind));
        }
        Source::Parts(parts) => {
            for index in range_stepped(share.first, share.end, share.lanes) {
                let term = locate(index, share.cell, base, numbers, key);
                let part = load_part(buffers, numbers, term.element, parts, comptime!(key.kind.accumulators()));
                join(&mut folded, &part, comptime!(key.kind));
            }
        }
        Source::Results(_) => {}
    }
    tree(&folded, share, comptime!(key.kind))
}

/// The fold of all lanes of a cell, for each of its units.
#[cube]
fn tree(own: &Accumulator, share: &Share, #[comptime] kind: Kind) -> Accumulator {
    let count = comptime!(kind.accumulators());
    let units = comptime!(Grid::UNITS);
    let mut shared = Shared::<[f32]>::new_slice(comptime!(count * units));
    put(&mut shared, share.slot, own, count);
    sync_cube();
    let unit = UNIT_POS as usize;
    let mut step = comptime!(units / 2).runtime();
    while step >= share.width {
        if unit < step {
            let mut folded = get(&shared, unit, count);
            join(&mut folded, &get(&shared, unit + step, count), kind);
            put(&mut shared, unit, &folded, count);
        }
        sync_cube();
        step /= 2;
    }
    get(&shared, share.slot % share.width, count)
}

#[cube]
fn put(shared: &mut Shared<[f32]>, at: usize, value: &Accumulator, #[comptime] count: usize) {
    shared[at] = value.a;
    if comptime!(count > 1) {
        shared[at + comptime!(Grid::UNITS)] = value.b;
    }
    if comptime!(count > 2) {
        shared[at + comptime!(2 * Grid::UNITS)] = value.c;
        shared[at + comptime!(3 * Grid::UNITS)] = value.d;
    }
}

#[cube]
fn get(shared: &Shared<[f32]>, at: usize, #[comptime] count: usize) -> Accumulator {
    let mut value = only(shared[at]);
    if comptime!(count > 1) {
        value.b = shared[at + comptime!(Grid::UNITS)];
    }
    if comptime!(count > 2) {
        value.c = shared[at + comptime!(2 * Grid::UNITS)];
        value.d = shared[at + comptime!(3 * Grid::UNITS)];
    }
    value
}

#[cube]
fn store_parts(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    share: &Share,
    folded: &Accumulator,
    #[comptime] to: Buffer,
    #[comptime] count: usize,
) {
    let cells = numbers[comptime!(number::CELLS)] as usize;
    let all = cells * (numbers[comptime!(number::PARTS)] as usize);
    let at = share.part * cells + share.cell;
    store(buffers, at, folded.a, to);
    if comptime!(count > 1) {
        store(buffers, at + all, folded.b, to);
    }
    if comptime!(count > 2) {
        store(buffers, at + 2 * all, folded.c, to);
        store(buffers, at + 3 * all, folded.d, to);
    }
}

/// What a launch before this one stored.
#[cube]
fn load_part(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    at: usize,
    #[comptime] from: Buffer,
    #[comptime] count: usize,
) -> Accumulator {
    let all = (numbers[comptime!(number::CELLS)] * numbers[comptime!(number::TERMS)]) as usize;
    let mut part = only(load(buffers, at, from));
    if comptime!(count > 1) {
        part.b = load(buffers, at + all, from);
    }
    if comptime!(count > 2) {
        part.c = load(buffers, at + 2 * all, from);
        part.d = load(buffers, at + 3 * all, from);
    }
    part
}

#[cube]
fn store_results(buffers: &mut Buffers, cell: usize, results: &Results, #[comptime] to: [Option<Buffer>; 2]) {
    if comptime!(to[0].is_some()) {
        store(buffers, cell, results.a, comptime!(to[0].unwrap()));
    }
    if comptime!(to[1].is_some()) {
        store(buffers, cell, results.b, comptime!(to[1].unwrap()));
    }
}

#[cube]
fn load_results(buffers: &mut Buffers, cell: usize, #[comptime] from: [Option<Buffer>; 2]) -> Results {
    let mut results = Results { a: 0.0f32.runtime(), b: 0.0f32.runtime() };
    if comptime!(from[0].is_some()) {
        results.a = load(buffers, cell, comptime!(from[0].unwrap()));
    }
    if comptime!(from[1].is_some()) {
        results.b = load(buffers, cell, comptime!(from[1].unwrap()));
    }
    results
}
