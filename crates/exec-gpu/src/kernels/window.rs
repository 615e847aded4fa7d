//! Pooling, upsampling and their gradients: see [`crate::lower::window`]. Padding is skipped: it is never a maximum and never
//! counted in a mean. Sums go row by row, so that those of large windows stay exact.

use cubecl::prelude::*;
use memfit_ir::DType;
use memfit_ir::op::UpsampleMode;

use crate::kernels::probe::answer;
use crate::kernels::word::{Buffers, is_nan_bits, load_bits, store_word};
use crate::lower::window::WindowKey;
use crate::tape::Buffer;

/// The first number is how many elements the result has.
#[cube(launch_unchecked)]
pub fn window(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: WindowKey) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.result()));
        terminate!();
    }
    let first = ABSOLUTE_POS * comptime!(key.lanes());
    if first >= numbers[0] as usize {
        terminate!();
    }
    match key {
        WindowKey::MaxPool { x, y, index, width } => max_pool(buffers, numbers, first, x, y, index, width),
        WindowKey::MaxPoolGrad { index, dy, dx, width } => max_pool_grad(buffers, numbers, first, index, dy, dx, width),
        WindowKey::AvgPool { x, y } => avg_pool(buffers, numbers, first, x, y),
        WindowKey::AvgPoolGrad { dy, dx } => avg_pool_grad(buffers, numbers, first, dy, dx),
        WindowKey::Upsample { mode, x, y } => upsample(buffers, numbers, first, mode, x, y),
        WindowKey::UpsampleGrad { mode, dy, dx } => upsample_grad(buffers, numbers, first, mode, dy, dx),
    }
}

/// An element of an image, by its axes.
#[derive(CubeType, Clone, Copy)]
struct Pixel {
    sample: usize,
    row: usize,
    column: usize,
    channel: usize,
}

#[cube]
fn pixel_of(element: usize, height: usize, width: usize, channels: usize) -> Pixel {
    let place = element / channels;
    let line = place / width;
    Pixel { sample: line / height, row: line % height, column: place % width, channel: element % channels }
}

/// A part of an axis.
#[derive(CubeType, Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
}

/// The positions of a window on one axis that lie inside of an image: the window begins at `start` of the padded axis.
#[cube]
fn seen(start: usize, pad: usize, size: usize, extent: usize) -> Span {
    let first = select(pad > start, pad - start, 0);
    Span { start: first, end: min(size, extent + pad - start) }
}

/// The windows on one axis that a place of the padded axis lies in, of `count`.
#[cube]
fn covering(place: usize, stride: usize, size: usize, count: usize) -> Span {
    let end = min(place / stride + 1, count);
    let before = select(place + 1 > size, place + 1 - size, 0);
    Span { start: min(before.div_ceil(stride), end), end }
}

/// The numbers of a pool.
#[derive(CubeType, Clone, Copy)]
struct Pool {
    height: usize,
    width: usize,
    channels: usize,
    pooled_height: usize,
    pooled_width: usize,
    rows: usize,
    columns: usize,
    down: usize,
    right: usize,
    top: usize,
    left: usize,
}

#[cube]
fn pool_of(numbers: &Sequence<u32>) -> Pool {
    Pool {
        height: numbers[1] as usize,
        width: numbers[2] as usize,
        channels: numbers[3] as usize,
        pooled_height: numbers[4] as usize,
        pooled_width: numbers[5] as usize,
        rows: numbers[6] as usize,
        columns: numbers[7] as usize,
        down: numbers[8] as usize,
        right: numbers[9] as usize,
        top: numbers[10] as usize,
        left: numbers[11] as usize,
    }
}

#[cube]
fn read(buffers: &mut Buffers, at: usize, #[comptime] index: usize) -> f32 {
    let words = buffers.index(index);
    f32::reinterpret(words[at])
}

/// Four elements, whose indices are one word.
#[cube]
fn max_pool(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    first: usize,
    #[comptime] x: usize,
    #[comptime] y: usize,
    #[comptime] index: usize,
    #[comptime] width: usize,
) {
    let mut word = 0u32;
    for i in 0..min(4usize, numbers[0] as usize - first) / width {
        let lane = i * width;
        let places = maxima_of(buffers, numbers, first + lane, x, y, width);
        word |= places << (8 * lane as u32);
    }
    store_word(buffers, first / 4, word, index);
}

/// Stores the maxima of a window in some channels and says where in it the first such stands, a byte for each. The first NaN
/// is above all.
#[cube]
fn maxima_of(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    #[comptime] x: usize,
    #[comptime] y: usize,
    #[comptime] width: usize,
) -> u32 {
    let pool = pool_of(numbers);
    let to = pixel_of(element, pool.pooled_height, pool.pooled_width, pool.channels);
    let rows = seen(to.row * pool.down, pool.top, pool.rows, pool.height);
    let columns = seen(to.column * pool.right, pool.left, pool.columns, pool.width);
    let mut best = Array::<f32>::new(width);
    let mut place = Array::<u32>::new(width);
    #[unroll]
    for k in 0..width {
        best[k] = f32::reinterpret(0xff80_0000u32.runtime());
        place[k] = (rows.start * pool.columns + columns.start) as u32;
    }
    for i in rows.start..rows.end {
        let line = (to.sample * pool.height + to.row * pool.down + i - pool.top) * pool.width;
        for j in columns.start..columns.end {
            let at = (line + to.column * pool.right + j - pool.left) * pool.channels + to.channel;
            #[unroll]
            for k in 0..width {
                let value = read(buffers, at + k, x);
                let nan = is_nan_bits(u32::reinterpret(value)) && !is_nan_bits(u32::reinterpret(best[k]));
                let wins = value > best[k] || nan;
                best[k] = select(wins, value, best[k]);
                place[k] = select(wins, (i * pool.columns + j) as u32, place[k]);
            }
        }
    }
    let mut places = 0u32;
    #[unroll]
    for k in 0..width {
        store_word(buffers, element + k, u32::reinterpret(best[k]), y);
        places |= place[k] << comptime!(8 * k as u32);
    }
    places
}

#[cube]
fn max_pool_grad(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    #[comptime] index: usize,
    #[comptime] dy: usize,
    #[comptime] dx: usize,
    #[comptime] width: usize,
) {
    let pool = pool_of(numbers);
    let from = pixel_of(element, pool.height, pool.width, pool.channels);
    let (row, column) = (from.row + pool.top, from.column + pool.left);
    let rows = covering(row, pool.down, pool.rows, pool.pooled_height);
    let columns = covering(column, pool.right, pool.columns, pool.pooled_width);
    let mut sums = Array::<f32>::new(width);
    #[unroll]
    for k in 0..width {
        sums[k] = 0.0;
    }
    for i in rows.start..rows.end {
        for j in columns.start..columns.end {
            let place = (row - i * pool.down) * pool.columns + column - j * pool.right;
            let line = (from.sample * pool.pooled_height + i) * pool.pooled_width;
            let at = (line + j) * pool.channels + from.channel;
            #[unroll]
            for k in 0..width {
                let chosen = load_bits(buffers, at + k, comptime!(Buffer { index, dtype: DType::U8 }));
                let value = read(buffers, at + k, dy);
                sums[k] += select(chosen == place as u32, value, 0.0f32);
            }
        }
    }
    #[unroll]
    for k in 0..width {
        store_word(buffers, element + k, u32::reinterpret(sums[k]), dx);
    }
}

#[cube]
fn avg_pool(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    #[comptime] x: usize,
    #[comptime] y: usize,
) {
    let pool = pool_of(numbers);
    let to = pixel_of(element, pool.pooled_height, pool.pooled_width, pool.channels);
    let rows = seen(to.row * pool.down, pool.top, pool.rows, pool.height);
    let columns = seen(to.column * pool.right, pool.left, pool.columns, pool.width);
    let mut sum = 0.0f32;
    for i in rows.start..rows.end {
        let line = (to.sample * pool.height + to.row * pool.down + i - pool.top) * pool.width;
        let mut of_row = 0.0f32;
        for j in columns.start..columns.end {
            let at = (line + to.column * pool.right + j - pool.left) * pool.channels + to.channel;
            of_row += read(buffers, at, x);
        }
        sum += of_row;
    }
    let count = (rows.end - rows.start) * (columns.end - columns.start);
    store_word(buffers, element, u32::reinterpret(sum / f32::cast_from(count as u32)), y);
}

#[cube]
fn avg_pool_grad(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    #[comptime] dy: usize,
    #[comptime] dx: usize,
) {
    let pool = pool_of(numbers);
    let from = pixel_of(element, pool.height, pool.width, pool.channels);
    let rows = covering(from.row + pool.top, pool.down, pool.rows, pool.pooled_height);
    let columns = covering(from.column + pool.left, pool.right, pool.columns, pool.pooled_width);
    let mut sum = 0.0f32;
    for i in rows.start..rows.end {
        let high = seen(i * pool.down, pool.top, pool.rows, pool.height);
        let line = (from.sample * pool.pooled_height + i) * pool.pooled_width;
        let mut of_row = 0.0f32;
        for j in columns.start..columns.end {
            let wide = seen(j * pool.right, pool.left, pool.columns, pool.width);
            let value = read(buffers, (line + j) * pool.channels + from.channel, dy);
            of_row += value / f32::cast_from(((high.end - high.start) * (wide.end - wide.start)) as u32);
        }
        sum += of_row;
    }
    store_word(buffers, element, u32::reinterpret(sum), dx);
}

/// The two places that an output reads on one axis, and the weight of the second.
#[derive(CubeType, Clone, Copy)]
struct Taps {
    low: usize,
    high: usize,
    weight: f32,
}

/// Bilinear: output `o` looks at (o + ½) ÷ factor − ½, not before the first and not behind the last of `extent`.
#[cube]
fn taps(o: usize, factor: usize, extent: usize, #[comptime] mode: UpsampleMode) -> Taps {
    match mode {
        UpsampleMode::Nearest => {
            let low = o / factor;
            Taps { low, high: low, weight: 0.0f32.runtime() }
        }
        UpsampleMode::Bilinear => {
            // The same in units of 1 ÷ (2·factor), exactly.
            let place = select(2 * o + 1 > factor, 2 * o + 1 - factor, 0);
            let low = place / (2 * factor);
            let weight = f32::cast_from((place % (2 * factor)) as u32) / f32::cast_from((2 * factor) as u32);
            Taps { low, high: min(low + 1, extent - 1), weight }
        }
    }
}

/// Outputs that may read place `i` of `extent`.
#[cube]
fn readers(i: usize, factor: usize, extent: usize, #[comptime] mode: UpsampleMode) -> Span {
    match mode {
        UpsampleMode::Nearest => Span { start: i * factor, end: (i + 1) * factor },
        UpsampleMode::Bilinear => {
            let centre = 2 * factor * i;
            let start = select(centre > factor + 1, centre - factor - 1, 0) / 2;
            Span { start, end: min((centre + 3 * factor) / 2, extent * factor) }
        }
    }
}

/// The weight of place `i` among two.
#[cube]
fn weight_of(taps: Taps, i: usize) -> f32 {
    select(taps.low == i, 1.0 - taps.weight, 0.0f32) + select(taps.high == i, taps.weight, 0.0f32)
}

#[cube]
fn upsample(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    #[comptime] mode: UpsampleMode,
    #[comptime] x: usize,
    #[comptime] y: usize,
) {
    let (height, width, channels) = (numbers[1] as usize, numbers[2] as usize, numbers[3] as usize);
    let (down, right) = (numbers[4] as usize, numbers[5] as usize);
    let to = pixel_of(element, height * down, width * right, channels);
    let v = taps(to.row, down, height, mode);
    let h = taps(to.column, right, width, mode);
    let low = (to.sample * height + v.low) * width;
    let value = read(buffers, (low + h.low) * channels + to.channel, x);
    if comptime!(mode == UpsampleMode::Nearest) {
        store_word(buffers, element, u32::reinterpret(value), y);
    } else {
        let high = (to.sample * height + v.high) * width;
        let b = read(buffers, (low + h.high) * channels + to.channel, x);
        let c = read(buffers, (high + h.low) * channels + to.channel, x);
        let d = read(buffers, (high + h.high) * channels + to.channel, x);
        let above = (1.0 - h.weight) * value + h.weight * b;
        let below = (1.0 - h.weight) * c + h.weight * d;
        store_word(buffers, element, u32::reinterpret((1.0 - v.weight) * above + v.weight * below), y);
    }
}

#[cube]
fn upsample_grad(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    #[comptime] mode: UpsampleMode,
    #[comptime] dy: usize,
    #[comptime] dx: usize,
) {
    let (height, width, channels) = (numbers[1] as usize, numbers[2] as usize, numbers[3] as usize);
    let (down, right) = (numbers[4] as usize, numbers[5] as usize);
    let from = pixel_of(element, height, width, channels);
    let rows = readers(from.row, down, height, mode);
    let columns = readers(from.column, right, width, mode);
    let mut sum = 0.0f32;
    for i in rows.start..rows.end {
        let line = (from.sample * height * down + i) * width * right;
        let mut of_row = 0.0f32;
        for j in columns.start..columns.end {
            let weight = weight_of(taps(j, right, width, mode), from.column);
            of_row += weight * read(buffers, (line + j) * channels + from.channel, dy);
        }
        sum += weight_of(taps(i, down, height, mode), from.row) * of_row;
    }
    store_word(buffers, element, u32::reinterpret(sum), dx);
}
