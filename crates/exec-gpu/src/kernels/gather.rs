//! Rows of a table by their ids, and sums of rows by ids: see [`crate::lower::gather`].

use cubecl::prelude::*;

use crate::kernels::probe::answer;
use crate::kernels::word::{Buffers, store_word};
use crate::lower::gather::{GatherKey, SORTED_BLOCK, Sorted};

/// What stands where an id is outside of the table.
const NAN: u32 = 0x7fc0_0000;

/// The first number is how many units there are.
#[cube(launch_unchecked)]
pub fn gather(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: GatherKey) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.result()));
        terminate!();
    }
    if ABSOLUTE_POS >= numbers[0] as usize {
        terminate!();
    }
    match key {
        GatherKey::Rows { table, ids, rows } => copy_row(buffers, numbers, table, ids, rows),
        GatherKey::SortBlocks { ids, keys, positions } => sort_blocks(buffers, numbers, ids, keys, positions),
        GatherKey::Merge { keys, positions, sorted_keys, sorted_positions } => {
            merge(buffers, numbers, keys, positions, sorted_keys, sorted_positions)
        }
        GatherKey::SumBlocks { ids, sorted, gradient, heads, tails, result } => {
            sum_blocks(buffers, numbers, ids, sorted, gradient, heads, tails, result)
        }
        GatherKey::JoinBlocks { sorted, heads, tails, result } => {
            join_blocks(buffers, numbers, sorted, heads, tails, result)
        }
    }
}

#[cube]
fn word(buffers: &mut Buffers, at: usize, #[comptime] index: usize) -> u32 {
    let words = buffers.index(index);
    words[at]
}

#[cube]
fn float(buffers: &mut Buffers, at: usize, #[comptime] index: usize) -> f32 {
    f32::reinterpret(word(buffers, at, index))
}

#[cube]
fn copy_row(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    #[comptime] table: usize,
    #[comptime] ids: usize,
    #[comptime] rows: usize,
) {
    let columns = numbers[1] as usize;
    // A negative one is a large one.
    let id = word(buffers, ABSOLUTE_POS / columns, ids);
    let inside = id < numbers[2];
    let from = select(inside, id as usize * columns + ABSOLUTE_POS % columns, 0);
    let value = word(buffers, from, table);
    store_word(buffers, ABSOLUTE_POS, select(inside, value, NAN), rows);
}

/// Each position finds its place in its block by counting who comes before it.
#[cube]
fn sort_blocks(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    #[comptime] ids: usize,
    #[comptime] keys: usize,
    #[comptime] positions: usize,
) {
    let count = numbers[0] as usize;
    let block = ABSOLUTE_POS / SORTED_BLOCK * SORTED_BLOCK;
    let own = key_of(buffers, ABSOLUTE_POS, numbers[1], ids);
    let mut place = block;
    for other in block..min(block + SORTED_BLOCK, count) {
        let key = key_of(buffers, other, numbers[1], ids);
        place += select(key < own || (key == own && other < ABSOLUTE_POS), 1usize, 0usize);
    }
    store_word(buffers, place, own, keys);
    store_word(buffers, place, ABSOLUTE_POS as u32, positions);
}

/// The row of an id; of one outside of the table the first, which is NaN for it.
#[cube]
fn key_of(buffers: &mut Buffers, at: usize, rows: u32, #[comptime] ids: usize) -> u32 {
    let id = word(buffers, at, ids);
    select(id < rows, id, 0)
}

/// Each position finds its place among all by looking into every other block.
#[cube]
fn merge(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    #[comptime] keys: usize,
    #[comptime] positions: usize,
    #[comptime] sorted_keys: usize,
    #[comptime] sorted_positions: usize,
) {
    let count = numbers[0] as usize;
    let own_block = ABSOLUTE_POS / SORTED_BLOCK;
    let own = word(buffers, ABSOLUTE_POS, keys);
    let mut place = ABSOLUTE_POS - own_block * SORTED_BLOCK;
    for block in 0..count.div_ceil(SORTED_BLOCK) {
        if block != own_block {
            let start = block * SORTED_BLOCK;
            // Equal ones of earlier blocks come before.
            let limit = own + select(block < own_block, 1u32, 0u32);
            let mut low = start;
            let mut high = min(start + SORTED_BLOCK, count);
            while low < high {
                let middle = (low + high) / 2;
                if word(buffers, middle, keys) < limit {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            place += low - start;
        }
    }
    let position = word(buffers, ABSOLUTE_POS, positions);
    store_word(buffers, place, own, sorted_keys);
    store_word(buffers, place, position, sorted_positions);
}

/// One column of one block of sorted positions. A sum that begins and ends in the block is a row of the result; one that
/// came from the block before is the head, and one that goes on in the next is the tail.
#[cube]
fn sum_blocks(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    #[comptime] ids: usize,
    #[comptime] sorted: Sorted,
    #[comptime] gradient: usize,
    #[comptime] heads: usize,
    #[comptime] tails: usize,
    #[comptime] result: usize,
) {
    let columns = numbers[1] as usize;
    let count = numbers[2] as usize;
    let length = numbers[3] as usize;
    let column = ABSOLUTE_POS % columns;
    let start = ABSOLUTE_POS / columns * length;
    let end = min(start + length, count);
    let mut came = goes_on(buffers, start, count, comptime!(sorted.keys));
    let mut sum = 0.0f32;
    for at in start..end {
        let position = word(buffers, at, comptime!(sorted.positions)) as usize;
        let inside = word(buffers, position, ids) < numbers[4];
        let value = word(buffers, position * columns + column, gradient);
        sum += f32::reinterpret(select(inside, value, NAN));
        let more = goes_on(buffers, at + 1, count, comptime!(sorted.keys));
        if !more || at + 1 == end {
            if came {
                store_word(buffers, ABSOLUTE_POS, u32::reinterpret(sum), heads);
            } else if more {
                store_word(buffers, ABSOLUTE_POS, u32::reinterpret(sum), tails);
            } else {
                let row = word(buffers, at, comptime!(sorted.keys)) as usize;
                store_word(buffers, row * columns + column, u32::reinterpret(sum), result);
            }
            sum = 0.0f32;
            came = false;
        }
    }
}

/// Whether a sorted position has the key of the one before it.
#[cube]
fn goes_on(buffers: &mut Buffers, at: usize, count: usize, #[comptime] keys: usize) -> bool {
    let known = at > 0 && at < count;
    let here = select(known, at, 0);
    let before = select(known, at - 1, 0);
    known && word(buffers, here, keys) == word(buffers, before, keys)
}

/// One column of a row that begins in one block and ends in another: the tail of the first, and the heads of all to the end.
#[cube]
fn join_blocks(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    #[comptime] sorted: Sorted,
    #[comptime] heads: usize,
    #[comptime] tails: usize,
    #[comptime] result: usize,
) {
    let columns = numbers[1] as usize;
    let count = numbers[2] as usize;
    let length = numbers[3] as usize;
    let column = ABSOLUTE_POS % columns;
    let start = ABSOLUTE_POS / columns * length;
    let end = start + length;
    if goes_on(buffers, end, count, comptime!(sorted.keys)) {
        let row = word(buffers, end, comptime!(sorted.keys));
        let first = word(buffers, start, comptime!(sorted.keys));
        let came = goes_on(buffers, start, count, comptime!(sorted.keys)) && first == row;
        if !came {
            let mut sum = float(buffers, ABSOLUTE_POS, tails);
            let mut next = end;
            let mut more = true;
            while more {
                sum += float(buffers, next / length * columns + column, heads);
                next += length;
                // The next block begins with this row only if all of this one was its.
                more = goes_on(buffers, next, count, comptime!(sorted.keys));
                if more {
                    more = word(buffers, next, comptime!(sorted.keys)) == row;
                }
            }
            store_word(buffers, row as usize * columns + column, u32::reinterpret(sum), result);
        }
    }
}
