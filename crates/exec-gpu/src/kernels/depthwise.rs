//! Convolutions with a filter for each channel, or some: nothing is shared between channels, so a unit has some pixels of a
//! line of the result in registers, or a row of taps of the filter. Neighbouring units go on with the channels.
//!
//! What costs is reading: of the pixels that several taps meet each is read once.

use cubecl::prelude::*;

use crate::kernels::elementwise::{run, store_all};
use crate::kernels::gemm::read;
use crate::kernels::probe::answer;
use crate::kernels::word::Buffers;
use crate::lower::contract::{DepthwiseKey, TapRow};
use crate::lower::problem::{Source, number::*};

/// The numbers are those of [`crate::lower::problem::number`], then those of tapes.
#[cube(launch_unchecked)]
pub fn depthwise(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: DepthwiseKey) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.result.stores[0].buffer.index));
        terminate!();
    }
    // Of channels, the first of the unit; and the unit among those that have the same.
    let across = numbers[Y_ROW] / comptime!(key.width as u32);
    let unit = ABSOLUTE_POS as u32;
    let channel = unit % across * comptime!(key.width as u32);
    match (key.source, key.taps) {
        (Source::Lines, Some(row)) => filter_row(buffers, numbers, channel, unit / across, row, comptime!(key.clone())),
        (_, Some(row)) => pixels(buffers, numbers, channel, unit / across, row, comptime!(key.clone())),
        (_, None) => strided_pixel(buffers, numbers, channel, unit / across, comptime!(key.clone())),
    }
}

/// Some pixels of a line of the result of a convolution, or of a transposed one that leaves none out.
#[cube]
fn pixels(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    channel: u32,
    place: u32,
    #[comptime] row: TapRow,
    #[comptime] key: DepthwiseKey,
) {
    let (count, width) = comptime!((key.pixels, key.width));
    let tiles = numbers[OTHER_WIDTH].div_ceil(comptime!(count as u32));
    let column = place % tiles * comptime!(count as u32);
    let line = place / tiles;
    if line >= numbers[ELEMENTS] / numbers[Y_ROW] / numbers[OTHER_WIDTH] {
        terminate!();
    }
    let mut sums = Array::<f32>::new(comptime!(count * width));
    #[unroll]
    for i in 0..comptime!(count * width) {
        sums[i] = 0.0;
    }
    #[unroll]
    for i in 0..width {
        let filter = channel + comptime!(i as u32);
        for tap_row in 0..numbers[TAPS] / numbers[TAPS_WIDE] {
            add_tap_row(buffers, numbers, &mut sums, filter, line, column, tap_row, i, row, comptime!(key.clone()));
        }
    }
    let there = min(count, (numbers[OTHER_WIDTH] - column) as usize);
    let mut words = Array::<u32>::new(comptime!(key.result.stores.len()));
    for p in 0..there {
        let first = ((line * numbers[OTHER_WIDTH] + column) as usize + p) * numbers[Y_ROW] as usize + channel as usize;
        finish(buffers, numbers, &sums, p * width, first, &mut words, comptime!(key.clone()));
    }
}

/// Runs the tape over the sums of a unit's channels, of which the first is number `from`, and stores them at `first` and behind.
#[cube]
fn finish(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    sums: &Array<f32>,
    from: usize,
    first: usize,
    words: &mut Array<u32>,
    #[comptime] key: DepthwiseKey,
) {
    for i in 0..comptime!(key.width) {
        let given = u32::reinterpret(sums[from + i]);
        let registers = run(buffers, numbers, first + i, given, comptime!(key.result.clone()));
        store_all(buffers, &registers, words, first + i, false, comptime!(key.result.clone()));
    }
}

/// What a row of taps adds to the pixels of a line, for one filter.
#[cube]
fn add_tap_row(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    sums: &mut Array<f32>,
    filter: u32,
    line: u32,
    column: u32,
    tap_row: u32,
    #[comptime] which: usize,
    #[comptime] row: TapRow,
    #[comptime] key: DepthwiseKey,
) {
    let (count, width) = comptime!((key.pixels, key.width));
    let offsets = comptime!(row.offsets(count));
    let in_image = line % numbers[OTHER_HEIGHT];
    // Before the image is far beyond it.
    let (down, left) = if comptime!(row.flipped) {
        let reach = comptime!(((row.taps - 1) * row.dilation) as u32);
        (in_image + numbers[TOP] - tap_row * numbers[DILATION_H], column + numbers[LEFT] - reach)
    } else {
        let left = column * comptime!(row.step as u32) - numbers[LEFT];
        (in_image * numbers[STRIDE_H] + tap_row * numbers[DILATION_H] - numbers[TOP], left)
    };
    if down < numbers[HEIGHT] {
        let start = (line / numbers[OTHER_HEIGHT] * numbers[HEIGHT] + down) * numbers[WIDTH];
        let channel = if comptime!(row.flipped) { filter } else { filter / numbers[COLUMNS] };
        let mut x = Sequence::<f32>::new();
        let mut inside = Sequence::<bool>::new();
        #[unroll]
        for n in 0..comptime!(offsets.len()) {
            let right = left + comptime!(row.offsets(count)[n] as u32);
            let is_inside = right < numbers[WIDTH];
            let at = (start + select(is_inside, right, 0)) * numbers[CHANNELS] + channel;
            x.push(read(buffers, numbers, at, comptime!(key.a.clone())));
            inside.push(is_inside);
        }
        #[unroll]
        for k in 0..comptime!(row.taps) {
            let w_at = (tap_row * numbers[TAPS_WIDE] + comptime!(k as u32)) * numbers[B_SEGMENT] + filter;
            let w = read(buffers, numbers, w_at, comptime!(key.b.clone()));
            #[unroll]
            for p in 0..count {
                let n = comptime!(offsets.iter().position(|&o| o == row.offset(p, k)).unwrap_or_default());
                let at = comptime!(p * width + which);
                sums[at] = select(inside[n], fma(x[n], w, sums[at]), sums[at]);
            }
        }
    }
}

/// Some channels of a pixel that a transposed convolution makes.
#[cube]
fn strided_pixel(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    channel: u32,
    pixel: u32,
    #[comptime] key: DepthwiseKey,
) {
    if pixel >= numbers[ELEMENTS] / numbers[Y_ROW] {
        terminate!();
    }
    let sums = transposed_sums(buffers, numbers, channel, pixel, comptime!(key.clone()));
    let mut words = Array::<u32>::new(comptime!(key.result.stores.len()));
    let first = pixel as usize * numbers[Y_ROW] as usize + channel as usize;
    finish(buffers, numbers, &sums, 0, first, &mut words, comptime!(key.clone()));
}

#[cube]
fn transposed_sums(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    channel: u32,
    pixel: u32,
    #[comptime] key: DepthwiseKey,
) -> Array<f32> {
    let filters = numbers[INNER];
    let mut sums = Array::<f32>::new(comptime!(key.width));
    #[unroll]
    for j in 0..comptime!(key.width) {
        sums[j] = 0.0;
    }
    let line = pixel / numbers[OTHER_WIDTH];
    let image = line / numbers[OTHER_HEIGHT] * numbers[HEIGHT];
    // Before the image is far beyond it.
    let mut down = line % numbers[OTHER_HEIGHT] + numbers[TOP];
    let left = pixel % numbers[OTHER_WIDTH] + numbers[LEFT];
    let mut tap = 0u32.runtime();
    while tap < numbers[TAPS] {
        let steps_h = steps(down, numbers[STRIDE_H], numbers[HEIGHT]);
        if steps_h < numbers[HEIGHT] {
            for k in 0..numbers[TAPS_WIDE] {
                let steps_w = steps(left - k * numbers[DILATION_W], numbers[STRIDE_W], numbers[WIDTH]);
                if steps_w < numbers[WIDTH] {
                    let at = ((image + steps_h) * numbers[WIDTH] + steps_w) * numbers[CHANNELS] + channel * filters;
                    let w_at = (tap + k) * numbers[B_SEGMENT] + channel * filters;
                    #[unroll]
                    for j in 0..comptime!(key.width) {
                        for i in 0..filters {
                            let filter = comptime!(j as u32) * filters + i;
                            let dy = read(buffers, numbers, at + filter, comptime!(key.a.clone()));
                            let w = read(buffers, numbers, w_at + filter, comptime!(key.b.clone()));
                            sums[j] = fma(dy, w, sums[j]);
                        }
                    }
                }
            }
        }
        tap += numbers[TAPS_WIDE];
        down -= numbers[DILATION_H];
    }
    sums
}

/// How many strides a distance is; `none` where it is not a number of strides.
#[cube]
fn steps(distance: u32, stride: u32, none: u32) -> u32 {
    let steps = distance / stride;
    select(steps * stride == distance, steps, none)
}

/// The gradient of a row of taps of some filters, over a part of the lines of the result: a sum for each line, then one of
/// these.
#[cube]
fn filter_row(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    channel: u32,
    place: u32,
    #[comptime] row: TapRow,
    #[comptime] key: DepthwiseKey,
) {
    let (taps, width) = comptime!((row.taps, key.width));
    let tap_rows = numbers[TAPS] / numbers[TAPS_WIDE];
    let (tap_row, part) = (place % tap_rows, place / tap_rows);
    if part >= numbers[PARTS] {
        terminate!();
    }
    let begin = part * numbers[PART];
    let end = min(begin + numbers[PART], numbers[TERMS]);
    let mut sums = Array::<f32>::new(comptime!(taps * width));
    #[unroll]
    for i in 0..comptime!(taps * width) {
        sums[i] = 0.0;
    }
    #[unroll]
    for i in 0..width {
        for number in begin / numbers[INNER]..end.div_ceil(numbers[INNER]) {
            let filter = channel + comptime!(i as u32);
            let of_line = line_sums(buffers, numbers, filter, tap_row, number, begin, end, row, comptime!(key.clone()));
            #[unroll]
            for k in 0..taps {
                sums[comptime!(k * width + i)] += of_line[k];
            }
        }
    }
    let mut words = Array::<u32>::new(comptime!(key.result.stores.len()));
    for k in 0..taps {
        let tap = tap_row * numbers[TAPS_WIDE] + k as u32;
        let first = (part * numbers[ELEMENTS] + tap * numbers[Y_ROW] + channel) as usize;
        finish(buffers, numbers, &sums, k * width, first, &mut words, comptime!(key.clone()));
    }
}

/// What a line of the result adds to the gradient of each tap of a row.
#[cube]
fn line_sums(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    filter: u32,
    tap_row: u32,
    number: u32,
    begin: u32,
    end: u32,
    #[comptime] row: TapRow,
    #[comptime] key: DepthwiseKey,
) -> Array<f32> {
    let taps = comptime!(row.taps);
    let mut sums = Array::<f32>::new(taps);
    let mut x = Array::<f32>::new(taps);
    #[unroll]
    for k in 0..taps {
        sums[k] = 0.0;
        x[k] = 0.0;
    }
    let (image, in_image) = (number / numbers[OTHER_HEIGHT], number % numbers[OTHER_HEIGHT]);
    // Before the image is far beyond it.
    let down = in_image * numbers[STRIDE_H] + tap_row * numbers[DILATION_H] - numbers[TOP];
    if down < numbers[HEIGHT] {
        let start = number * numbers[INNER];
        let from = max(begin, start) - start;
        let to = min(end - start, numbers[INNER]);
        let line = (image * numbers[HEIGHT] + down) * numbers[WIDTH];
        let channel = filter / numbers[COLUMNS];
        // Where each tap meets what the next one met a pixel before, only the last one reads.
        let slides = comptime!(row.step == 1 && row.dilation == 1);
        if comptime!(slides) {
            #[unroll]
            for k in 1..taps {
                let right = from + comptime!(k as u32 - 1) - numbers[LEFT];
                let at = (line + select(right < numbers[WIDTH], right, 0)) * numbers[CHANNELS] + channel;
                x[k] = read(buffers, numbers, at, comptime!(key.a.clone()));
            }
        }
        for term in from..max(from, to) {
            let dy_at = number * numbers[B_SEGMENT] + term * numbers[B_TERM] + filter;
            let dy = read(buffers, numbers, dy_at, comptime!(key.b.clone()));
            let left = term * comptime!(row.step as u32) - numbers[LEFT];
            #[unroll]
            for k in 0..taps {
                let right = left + comptime!((k * row.dilation) as u32);
                let inside = right < numbers[WIDTH];
                if comptime!(slides && k + 1 < taps) {
                    x[k] = x[comptime!(k + 1)];
                } else {
                    let at = (line + select(inside, right, 0)) * numbers[CHANNELS] + channel;
                    x[k] = read(buffers, numbers, at, comptime!(key.a.clone()));
                }
                sums[k] = select(inside, fma(x[k], dy, sums[k]), sums[k]);
            }
        }
    }
    sums
}
