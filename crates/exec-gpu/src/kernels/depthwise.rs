//! Convolutions with a filter for each channel, or some: nothing is shared between channels, so a unit sums up elements of
//! the result one by one. Neighbouring units have neighbouring channels.

use cubecl::prelude::*;

use crate::kernels::elementwise::{run, store_all};
use crate::kernels::gemm::{line_of, read};
use crate::kernels::probe::answer;
use crate::kernels::word::Buffers;
use crate::lower::contract::DepthwiseKey;
use crate::lower::problem::{Source, number::*};

/// The numbers are those of [`crate::lower::problem::number`], then those of tapes.
#[cube(launch_unchecked)]
pub fn depthwise(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: DepthwiseKey) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.result.stores[0].buffer.index));
        terminate!();
    }
    let lanes = comptime!(key.result.lanes());
    let elements = numbers[ELEMENTS] as usize;
    let units = (elements + comptime!(lanes - 1)) / lanes;
    let part = ABSOLUTE_POS / units;
    if part >= numbers[PARTS] as usize {
        terminate!();
    }
    let first = ABSOLUTE_POS % units * lanes;
    let mut words = Array::<u32>::new(comptime!(key.result.stores.len()));
    for lane in 0..min(lanes, elements - first) {
        let sum = match key.source {
            Source::Matrix | Source::Patches => patch(buffers, numbers, (first + lane) as u32, comptime!(key.clone())),
            Source::TransposedPatches => {
                transposed_patch(buffers, numbers, (first + lane) as u32, comptime!(key.clone()))
            }
            Source::Lines => lines(buffers, numbers, (first + lane) as u32, part as u32, comptime!(key.clone())),
        };
        let element = part * elements + first + lane;
        let registers = run(buffers, numbers, element, u32::reinterpret(sum), comptime!(key.result.clone()));
        let last = first + lane == elements - 1;
        store_all(buffers, &registers, &mut words, element, last, comptime!(key.result.clone()));
    }
}

/// The convolution at a pixel and channel of its result.
#[cube]
fn patch(buffers: &mut Buffers, numbers: &Sequence<u32>, element: u32, #[comptime] key: DepthwiseKey) -> f32 {
    let (filter, pixel) = (element % numbers[Y_ROW], element / numbers[Y_ROW]);
    let channel = filter / numbers[COLUMNS];
    let line = pixel / numbers[OTHER_WIDTH];
    let image = line / numbers[OTHER_HEIGHT] * numbers[HEIGHT];
    let down = line % numbers[OTHER_HEIGHT] * numbers[STRIDE_H] - numbers[TOP];
    let right = pixel % numbers[OTHER_WIDTH] * numbers[STRIDE_W] - numbers[LEFT];
    let mut sum = 0.0f32;
    for tap in 0..numbers[TAPS] {
        // Before the image is far beyond it.
        let down = down + tap / numbers[TAPS_WIDE] * numbers[DILATION_H];
        let right = right + tap % numbers[TAPS_WIDE] * numbers[DILATION_W];
        if down < numbers[HEIGHT] && right < numbers[WIDTH] {
            let at = ((image + down) * numbers[WIDTH] + right) * numbers[CHANNELS] + channel;
            let x = read(buffers, numbers, at, comptime!(key.a.clone()));
            let w = read(buffers, numbers, tap * numbers[B_SEGMENT] + filter, comptime!(key.b.clone()));
            sum = fma(x, w, sum);
        }
    }
    sum
}

/// The transposed convolution at a pixel and channel of the image that it makes.
#[cube]
fn transposed_patch(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: u32,
    #[comptime] key: DepthwiseKey,
) -> f32 {
    let (channel, pixel) = (element % numbers[Y_ROW], element / numbers[Y_ROW]);
    let filters = numbers[INNER];
    let line = pixel / numbers[OTHER_WIDTH];
    let image = line / numbers[OTHER_HEIGHT] * numbers[HEIGHT];
    let down = line % numbers[OTHER_HEIGHT] + numbers[TOP];
    let right = pixel % numbers[OTHER_WIDTH] + numbers[LEFT];
    let mut sum = 0.0f32;
    for tap in 0..numbers[TAPS] {
        // Before the image is far beyond it.
        let down = down - tap / numbers[TAPS_WIDE] * numbers[DILATION_H];
        let right = right - tap % numbers[TAPS_WIDE] * numbers[DILATION_W];
        let (steps_h, steps_w) = (down / numbers[STRIDE_H], right / numbers[STRIDE_W]);
        let meets = steps_h * numbers[STRIDE_H] == down && steps_w * numbers[STRIDE_W] == right;
        if meets && steps_h < numbers[HEIGHT] && steps_w < numbers[WIDTH] {
            let at = ((image + steps_h) * numbers[WIDTH] + steps_w) * numbers[CHANNELS] + channel * filters;
            let filter = tap * numbers[B_SEGMENT] + channel * filters;
            for i in 0..filters {
                let dy = read(buffers, numbers, at + i, comptime!(key.a.clone()));
                let w = read(buffers, numbers, filter + i, comptime!(key.b.clone()));
                sum = fma(dy, w, sum);
            }
        }
    }
    sum
}

/// The gradient of a tap of a filter, over a part of the lines of the result: a sum for each line, then one of these.
#[cube]
fn lines(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: u32,
    part: u32,
    #[comptime] key: DepthwiseKey,
) -> f32 {
    let (filter, tap) = (element % numbers[Y_ROW], element / numbers[Y_ROW]);
    let channel = filter / numbers[COLUMNS];
    let inner = numbers[INNER];
    let begin = part * numbers[PART];
    let end = min(begin + numbers[PART], numbers[TERMS]);
    let mut sum = 0.0f32;
    for number in begin / inner..(end + inner - 1) / inner {
        let line = line_of(numbers, tap, number);
        let start = number * inner;
        let from = max(max(begin, start) - start, line.from);
        let to = min(min(end - start, inner), line.to);
        let a = line.first * numbers[CHANNELS] + channel;
        let b = number * numbers[B_SEGMENT] + filter;
        let mut of_line = 0.0f32;
        for term in from..max(from, to) {
            let x = read(buffers, numbers, a + term * numbers[A_TERM], comptime!(key.a.clone()));
            let dy = read(buffers, numbers, b + term * numbers[B_TERM], comptime!(key.b.clone()));
            of_line = fma(x, dy, of_line);
        }
        sum += of_line;
    }
    sum
}
