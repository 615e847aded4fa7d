//! Sets every word of a slice.

use cubecl::prelude::*;

#[cube(launch_unchecked)]
pub fn fill(output: &mut [u32], word: u32, length: usize) {
    if ABSOLUTE_POS < length {
        output[ABSOLUTE_POS] = word;
    }
}
