//! Elements of every type in buffers of 32-bit words: devices differ in which small types they know, and all know these.
//!
//! A register has 32 bits: floats as f32, integers as i32, bits as 0 or 1. Whoever stores elements of fewer bits stores the
//! whole word: no two units may write to one.

use cubecl::prelude::*;
use memfit_ir::DType;

use crate::tape::Buffer;

/// What a kernel is given.
pub type Buffers = Sequence<Box<[u32]>>;

/// An element as the bits of a register.
#[cube]
pub fn load_bits(buffers: &mut Buffers, element: usize, #[comptime] from: Buffer) -> u32 {
    let field = load_field(buffers, element, comptime!(from.index), comptime!(from.dtype.bits()));
    decode(field, comptime!(from.dtype))
}

/// An element of so many bits as it lies in its word.
#[cube]
pub fn load_field(buffers: &mut Buffers, element: usize, #[comptime] index: usize, #[comptime] bits: usize) -> u32 {
    let words = buffers.index(index);
    let elements = comptime!(32 / bits);
    if comptime!(elements == 1) {
        words[element]
    } else {
        let part = (element % elements) as u32;
        (words[element / elements] >> (part * comptime!(bits as u32))) & comptime!((1u32 << bits) - 1)
    }
}

/// A float, whatever its type.
#[cube]
pub fn load(buffers: &mut Buffers, element: usize, #[comptime] from: Buffer) -> f32 {
    f32::reinterpret(load_bits(buffers, element, from))
}

/// A float where `inside` holds, else 0. Nothing is read outside.
#[cube]
pub fn load_inside(buffers: &mut Buffers, element: usize, inside: bool, #[comptime] from: Buffer) -> f32 {
    let value = load(buffers, select(inside, element, 0), from);
    select(inside, value, 0.0)
}

/// Stores an element of 32 bits.
#[cube]
pub fn store(buffers: &mut Buffers, element: usize, value: f32, #[comptime] to: Buffer) {
    store_word(buffers, element, u32::reinterpret(value), comptime!(to.index));
}

#[cube]
pub fn store_word(buffers: &mut Buffers, at: usize, word: u32, #[comptime] index: usize) {
    let words = buffers.index_mut(index);
    words[at] = word;
}

/// The field of a word as the bits of a register.
#[cube]
fn decode(field: u32, #[comptime] dtype: DType) -> u32 {
    match dtype {
        DType::BF16 => field << 16,
        DType::F16 => f16_to_f32(field),
        DType::F32 | DType::I32 | DType::U8 | DType::Bit => field,
    }
}

/// The bits of a register as the field of a word.
#[cube]
pub fn encode(register: u32, #[comptime] dtype: DType) -> u32 {
    match dtype {
        DType::BF16 => f32_to_bf16(register),
        DType::F16 => f32_to_f16(register),
        DType::U8 => register & 255,
        DType::F32 | DType::I32 | DType::Bit => register,
    }
}

/// What a type of fewer bits holds of a register.
#[cube]
pub fn round(register: u32, #[comptime] dtype: DType) -> u32 {
    decode(encode(register, dtype), dtype)
}

#[cube]
pub fn is_nan_bits(bits: u32) -> bool {
    bits & 0x7fff_ffff > 0x7f80_0000
}

/// To the nearest, and to even between two.
#[cube]
fn f32_to_bf16(bits: u32) -> u32 {
    let rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    select(is_nan_bits(bits), (bits >> 16) | 0x40, rounded)
}

/// To the nearest, and to even between two.
#[cube]
fn f32_to_f16(bits: u32) -> u32 {
    let sign = (bits >> 16) & 0x8000;
    let size = bits & 0x7fff_ffff;
    // Normal ones: another bias, and 13 bits fewer.
    let biased = size - 0x3800_0000;
    let normal = (biased + 0xfff + ((biased >> 13) & 1)) >> 13;
    // Subnormal ones: half a unit of 2⁻¹⁴ has their spacing as its last bit, and the sum rounds to it.
    let subnormal = u32::reinterpret(f32::reinterpret(size) + 0.5) - 0x3f00_0000;
    let small = select(size < 0x3880_0000, subnormal, normal);
    let finite = select(size >= 0x4780_0000, 0x7c00, small);
    sign | select(is_nan_bits(bits), 0x7e00, finite)
}

#[cube]
fn f16_to_f32(half: u32) -> u32 {
    let sign = (half & 0x8000) << 16;
    let size = half & 0x7fff;
    let normal = (size << 13) + 0x3800_0000;
    let subnormal = u32::reinterpret(f32::cast_from(size) * 5.960_464_5e-8);
    let special = (size << 13) | 0x7f80_0000;
    let finite = select(size < 0x400, subnormal, normal);
    sign | select(size >= 0x7c00, special, finite)
}
