//! Constants and copies. Elements move as they are, whatever their type: a unit owns a word of the result.

use cubecl::prelude::*;

use crate::kernels::probe::answer;
use crate::kernels::word::{Buffers, encode, load_field, store_word};
use crate::lower::layout::{ConcatKey, CopyKey, LayoutKey};
use crate::tape::{Buffer, per_word};

/// The first number is how many elements the result has.
#[cube(launch_unchecked)]
pub fn layout(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: LayoutKey) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.result()));
        terminate!();
    }
    match comptime!(key.clone()) {
        LayoutKey::Fill(buffer) => fill_word(buffers, numbers, buffer),
        LayoutKey::Copy(key) => copy_word(buffers, numbers, key),
        LayoutKey::Concat(key) => concat_word(buffers, numbers, key),
    }
}

#[cube]
fn fill_word(buffers: &mut Buffers, numbers: &Sequence<u32>, #[comptime] to: Buffer) {
    if ABSOLUTE_POS < numbers[0] as usize {
        let field = encode(numbers[1], comptime!(to.dtype));
        let mut word = field;
        #[unroll]
        for i in 1..comptime!(per_word(to.dtype)) {
            word |= field << comptime!((i * to.dtype.bits()) as u32);
        }
        store_word(buffers, ABSOLUTE_POS, word, comptime!(to.index));
    }
}

#[cube]
fn copy_word(buffers: &mut Buffers, numbers: &Sequence<u32>, #[comptime] key: CopyKey) {
    let elements = numbers[0] as usize;
    let lanes = comptime!(32 / key.bits);
    let first = ABSOLUTE_POS * lanes;
    if first < elements {
        if comptime!(lanes == 1) {
            let word = copied_field(buffers, numbers, first, key);
            store_word(buffers, ABSOLUTE_POS, word, comptime!(key.to));
        } else {
            let mut word = 0u32;
            for lane in 0..min(lanes, elements - first) {
                let field = copied_field(buffers, numbers, first + lane, key);
                word |= field << (lane * key.bits) as u32;
            }
            store_word(buffers, ABSOLUTE_POS, word, comptime!(key.to));
        }
    }
}

/// The field of the source that an element of the result is; 0 in the padding.
#[cube]
fn copied_field(buffers: &mut Buffers, numbers: &Sequence<u32>, element: usize, #[comptime] key: CopyKey) -> u32 {
    let mut rest = element;
    let mut from = numbers[1] as usize;
    let mut inside = true;
    #[unroll]
    for i in 0..comptime!(key.rank) {
        // From the last axis to the first.
        let axis = comptime!(2 + (key.rank - 1 - i) * if key.padded { 4 } else { 2 });
        let extent = numbers[axis] as usize;
        let stride = numbers[comptime!(axis + 1)] as usize;
        let at = rest % extent;
        rest /= extent;
        if comptime!(key.padded) {
            // Before the source this wraps around to a large number.
            let place = at - numbers[comptime!(axis + 2)] as usize;
            inside = inside && place < numbers[comptime!(axis + 3)] as usize;
            from += place * stride;
        } else {
            from += at * stride;
        }
    }
    if comptime!(key.padded) {
        let field = load_field(buffers, select(inside, from, 0), comptime!(key.from), comptime!(key.bits));
        select(inside, field, 0u32)
    } else {
        load_field(buffers, from, comptime!(key.from), comptime!(key.bits))
    }
}

#[cube]
fn concat_word(buffers: &mut Buffers, numbers: &Sequence<u32>, #[comptime] key: ConcatKey) {
    let elements = numbers[0] as usize;
    let row = numbers[1] as usize;
    let lanes = comptime!(32 / key.bits);
    let bits = comptime!(key.bits as u32);
    let first = ABSOLUTE_POS * lanes;
    if first < elements {
        let mut word = 0u32;
        // The bits that this launch writes.
        let mut own = 0u32;
        for lane in 0..min(lanes, elements - first) {
            let element = first + lane;
            let (line, at) = (element / row, element % row);
            let shift = lane as u32 * bits;
            #[unroll]
            for p in 0..comptime!(key.parts.len()) {
                // Before the part this wraps around to a large number.
                let place = at - numbers[comptime!(2 + 2 * p)] as usize;
                let length = numbers[comptime!(3 + 2 * p)] as usize;
                if place < length {
                    let field =
                        load_field(buffers, line * length + place, comptime!(key.parts[p]), comptime!(key.bits));
                    word |= field << shift;
                    own |= u32::new(comptime!(i64::from(u32::MAX >> (32 - bits)))) << shift;
                }
            }
        }
        if own != 0 {
            if comptime!(key.keeps) {
                let kept = load_field(buffers, ABSOLUTE_POS, comptime!(key.to), 32usize);
                word |= kept & !own;
            }
            store_word(buffers, ABSOLUTE_POS, word, comptime!(key.to));
        }
    }
}
