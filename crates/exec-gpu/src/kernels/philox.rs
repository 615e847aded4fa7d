//! Philox 4×32-10 as the host draws it: the same counter and key give the same words.

use cubecl::prelude::*;

use crate::kernels::word::Buffers;
use crate::tape::Buffer;

/// Whether dropout keeps an element of a sample of this micro-batch.
#[cube]
pub fn dropout_keeps(
    buffers: &mut Buffers,
    sample: usize,
    element: usize,
    #[comptime] rate: f32,
    #[comptime] stream: u32,
    #[comptime] clock: Buffer,
) -> bool {
    let ticks = buffers.index(comptime!(clock.index));
    let word = philox_word(
        (element >> 2) as u32,
        ticks[1] + sample as u32,
        ticks[0],
        u32::new(comptime!(i64::from(stream))),
        ticks[2],
        ticks[3],
        (element & 3) as u32,
    );
    f32::cast_from(word >> 8) * 5.960_464_5e-8 >= f32::new(rate)
}

/// One of the four words for a counter and a key.
#[cube]
fn philox_word(c0: u32, c1: u32, c2: u32, c3: u32, k0: u32, k1: u32, which: u32) -> u32 {
    let (mut x0, mut x1, mut x2, mut x3) = (c0, c1, c2, c3);
    let (mut key0, mut key1) = (k0, k1);
    #[unroll]
    for _ in 0..10 {
        let high_a = x0.mul_hi(0xD251_1F53);
        let low_a = x0 * 0xD251_1F53;
        let high_b = x2.mul_hi(0xCD9E_8D57);
        let low_b = x2 * 0xCD9E_8D57;
        let y0 = high_b ^ x1 ^ key0;
        let y2 = high_a ^ x3 ^ key1;
        x0 = y0;
        x1 = low_b;
        x2 = y2;
        x3 = low_a;
        key0 += 0x9E37_79B9;
        key1 += 0xBB67_AE85;
    }
    select(which < 2, select(which == 0, x0, x1), select(which == 2, x2, x3))
}
