//! Convolutions with a filter for each channel, or some: nothing is shared between channels, so a unit sums up some
//! neighbouring channels of a pixel of the result, or of a tap of the filter. Neighbouring units go on with the channels.

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
    let (own, width) = comptime!((key.elements(), key.width));
    let elements = numbers[ELEMENTS] as usize;
    let units = elements.div_ceil(own);
    let part = ABSOLUTE_POS / units;
    if part >= numbers[PARTS] as usize {
        terminate!();
    }
    let first = ABSOLUTE_POS % units * own;
    let mut words = Array::<u32>::new(comptime!(key.result.stores.len()));
    for i in 0..min(own, elements - first) / width {
        let element = first + i * width;
        let sums = match key.source {
            Source::Matrix | Source::Patches => patch(buffers, numbers, element as u32, comptime!(key.clone())),
            Source::TransposedPatches => transposed_patch(buffers, numbers, element as u32, comptime!(key.clone())),
            Source::Lines => lines(buffers, numbers, element as u32, part as u32, comptime!(key.clone())),
        };
        for j in 0..width {
            let (given, at) = (u32::reinterpret(sums[j]), part * elements + element + j);
            let registers = run(buffers, numbers, at, given, comptime!(key.result.clone()));
            let last = element + j == elements - 1;
            store_all(buffers, &registers, &mut words, at, last, comptime!(key.result.clone()));
        }
    }
}

/// For each of some neighbouring filters, 0, and the channel that it reads.
#[derive(CubeType)]
struct Channels {
    sums: Array<f32>,
    channel: Array<u32>,
}

#[cube]
fn channels(numbers: &Sequence<u32>, filter: u32, #[comptime] width: usize) -> Channels {
    let mut sums = Array::<f32>::new(width);
    let mut channel = Array::<u32>::new(width);
    #[unroll]
    for j in 0..width {
        sums[j] = 0.0;
        channel[j] = (filter + comptime!(j as u32)) / numbers[COLUMNS];
    }
    Channels { sums, channel }
}

/// The convolution at a pixel of its result.
#[cube]
fn patch(buffers: &mut Buffers, numbers: &Sequence<u32>, element: u32, #[comptime] key: DepthwiseKey) -> Array<f32> {
    let (filter, pixel) = (element % numbers[Y_ROW], element / numbers[Y_ROW]);
    let mut of = channels(numbers, filter, comptime!(key.width));
    let line = pixel / numbers[OTHER_WIDTH];
    let image = line / numbers[OTHER_HEIGHT] * numbers[HEIGHT];
    // Before the image is far beyond it.
    let mut down = line % numbers[OTHER_HEIGHT] * numbers[STRIDE_H] - numbers[TOP];
    let left = pixel % numbers[OTHER_WIDTH] * numbers[STRIDE_W] - numbers[LEFT];
    let mut tap = 0u32.runtime();
    while tap < numbers[TAPS] {
        let mut right = left;
        for _ in 0..numbers[TAPS_WIDE] {
            if down < numbers[HEIGHT] && right < numbers[WIDTH] {
                let at = ((image + down) * numbers[WIDTH] + right) * numbers[CHANNELS];
                let w_at = tap * numbers[B_SEGMENT] + filter;
                #[unroll]
                for j in 0..comptime!(key.width) {
                    let x = read(buffers, numbers, at + of.channel[j], comptime!(key.a.clone()));
                    let w = read(buffers, numbers, w_at + comptime!(j as u32), comptime!(key.b.clone()));
                    of.sums[j] = fma(x, w, of.sums[j]);
                }
            }
            right += numbers[DILATION_W];
            tap += 1;
        }
        down += numbers[DILATION_H];
    }
    of.sums
}

/// The transposed convolution at a pixel of the image that it makes.
#[cube]
fn transposed_patch(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: u32,
    #[comptime] key: DepthwiseKey,
) -> Array<f32> {
    let (channel, pixel) = (element % numbers[Y_ROW], element / numbers[Y_ROW]);
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
        let steps_h = steps(down, numbers[STRIDE_H], numbers[HEIGHT], comptime!(key.dense));
        let mut right = left;
        for _ in 0..numbers[TAPS_WIDE] {
            let steps_w = steps(right, numbers[STRIDE_W], numbers[WIDTH], comptime!(key.dense));
            if steps_h < numbers[HEIGHT] && steps_w < numbers[WIDTH] {
                let at = ((image + steps_h) * numbers[WIDTH] + steps_w) * numbers[CHANNELS] + channel * filters;
                let w_at = tap * numbers[B_SEGMENT] + channel * filters;
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
            right -= numbers[DILATION_W];
            tap += 1;
        }
        down -= numbers[DILATION_H];
    }
    sums
}

/// How many strides a distance is; `none` where it is not a number of strides.
#[cube]
fn steps(distance: u32, stride: u32, none: u32, #[comptime] dense: bool) -> u32 {
    if comptime!(dense) {
        distance
    } else {
        let steps = distance / stride;
        select(steps * stride == distance, steps, none)
    }
}

/// The gradient of a tap of some filters, over a part of the lines of the result: a sum for each line, then one of these.
#[cube]
fn lines(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: u32,
    part: u32,
    #[comptime] key: DepthwiseKey,
) -> Array<f32> {
    let (filter, tap) = (element % numbers[Y_ROW], element / numbers[Y_ROW]);
    let mut of = channels(numbers, filter, comptime!(key.width));
    let inner = numbers[INNER];
    let begin = part * numbers[PART];
    let end = min(begin + numbers[PART], numbers[TERMS]);
    let mut of_line = Array::<f32>::new(comptime!(key.width));
    #[unroll]
    for j in 0..comptime!(key.width) {
        of_line[j] = 0.0;
    }
    for number in begin / inner..end.div_ceil(inner) {
        let line = line_of(numbers, tap, number);
        let start = number * inner;
        let from = max(max(begin, start) - start, line.from);
        let to = min(min(end - start, inner), line.to);
        let a = line.first * numbers[CHANNELS];
        let b = number * numbers[B_SEGMENT] + filter;
        for term in from..max(from, to) {
            #[unroll]
            for j in 0..comptime!(key.width) {
                let x_at = a + term * numbers[A_TERM] + of.channel[j];
                let x = read(buffers, numbers, x_at, comptime!(key.a.clone()));
                let dy_at = b + term * numbers[B_TERM] + comptime!(j as u32);
                let dy = read(buffers, numbers, dy_at, comptime!(key.b.clone()));
                of_line[j] = fma(x, dy, of_line[j]);
            }
        }
        #[unroll]
        for j in 0..comptime!(key.width) {
            of.sums[j] += of_line[j];
            of_line[j] = 0.0;
        }
    }
    of.sums
}
