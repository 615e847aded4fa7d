//! Products of matrices and convolutions as such, in register tiles: a unit sums up a tile of the result on its own, without
//! memory that it shares with others. Neighbouring units have neighbouring columns.
//!
//! A sum is made in blocks, whose sums are then added: so its error stays small however many terms it has.

use cubecl::prelude::*;

use crate::kernels::elementwise::{run, store_all};
use crate::kernels::probe::answer;
use crate::kernels::word::Buffers;
use crate::lower::contract::{GemmKey, Reader};
use crate::lower::problem::{Source, number::*};

/// Terms of a block.
const BLOCK: u32 = 512;

/// Which part of the product a unit computes.
#[derive(CubeType)]
struct Tile {
    row: u32,
    column: u32,
    /// The matrix of the batch, or the group of channels.
    outer: u32,
    /// The tap, or the phase of the stride.
    phase: u32,
    part: u32,
}

/// A range of the terms of a segment, and where the first one would be in the right operand.
#[derive(CubeType)]
struct Segment {
    from: u32,
    to: u32,
    /// For patches: how far the pixel is that a tap reads.
    down: u32,
    right: u32,
}

/// The numbers are those of [`crate::lower::problem::number`], then those of the grid, then those of tapes.
#[cube(launch_unchecked)]
pub fn gemm(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: GemmKey) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.result.stores[0].buffer.index));
        terminate!();
    }
    let tile = own_tile(numbers, comptime!(key.clone()));
    if tile.part >= numbers[PARTS] || tile.row >= numbers[ROWS] || tile.column >= numbers[COLUMNS] {
        terminate!();
    }
    let results = sums(buffers, numbers, &tile, comptime!(key.clone()));
    finish(buffers, numbers, &tile, &results, key);
}

#[cube]
fn own_tile(numbers: &Sequence<u32>, #[comptime] key: GemmKey) -> Tile {
    let across = numbers[comptime!(key.grid)];
    let down = numbers[comptime!(key.grid + 1)];
    let cubes_down = numbers[comptime!(key.grid + 2)];
    let cubes_across = numbers[comptime!(key.grid + 3)];
    let cube = CUBE_POS as u32;
    let cube_column = cube % cubes_across;
    let cube_row = cube / cubes_across % cubes_down;
    let units = across * down;
    let together = comptime!(GemmKey::UNITS as u32) / units;
    let matrix = cube / cubes_across / cubes_down * together + UNIT_POS / units;
    let unit = UNIT_POS % units;
    let matrices = numbers[OUTER];
    let phases = match key.source {
        Source::Matrix | Source::Patches => 1u32.runtime(),
        Source::TransposedPatches => numbers[STRIDE_H] * numbers[STRIDE_W],
        Source::Lines => numbers[TAPS],
    };
    let in_part = matrix % matrices;
    Tile {
        row: (cube_row * down + unit / across) * comptime!(key.tile[0] as u32),
        column: (cube_column * across + unit % across) * comptime!(key.tile[1] as u32),
        outer: in_part / phases,
        phase: in_part % phases,
        part: matrix / matrices,
    }
}

/// The sums of a tile, row by row.
#[cube]
fn sums(buffers: &mut Buffers, numbers: &Sequence<u32>, tile: &Tile, #[comptime] key: GemmKey) -> Array<f32> {
    let [rows, columns] = comptime!(key.tile);
    let size = comptime!(rows * columns);
    let (a_term, b_term, inner) = (numbers[A_TERM], numbers[B_TERM], numbers[INNER]);
    let begin = tile.part * numbers[PART];
    let end = min(begin + numbers[PART], numbers[TERMS]);
    let origins = row_origins(numbers, tile, comptime!(key.clone()));

    let mut results = Array::<f32>::new(size);
    let mut block = Array::<f32>::new(size);
    #[unroll]
    for i in 0..size {
        results[i] = 0.0;
        block[i] = 0.0;
    }
    let mut first = begin;
    while first < end {
        let after = min(first + BLOCK, end);
        for number in first / inner..after.div_ceil(inner) {
            let segment = segment(numbers, tile, number, first, after, comptime!(key.source));
            let a_starts = row_starts(numbers, tile, &origins, &segment, comptime!(key.clone()));
            let b_starts = column_starts(numbers, tile, number, comptime!(key.clone()));
            for term in segment.from..max(segment.from, segment.to) {
                let mut a = Sequence::<f32>::new();
                #[unroll]
                for i in 0..rows {
                    let value = read(buffers, numbers, a_starts.at[i] + term * a_term, comptime!(key.a.clone()));
                    if comptime!(is_padded(key.source)) {
                        a.push(select(a_starts.inside[i] != 0, value, 0.0f32));
                    } else {
                        a.push(value);
                    }
                }
                #[unroll]
                for j in 0..columns {
                    let b = read(buffers, numbers, b_starts[j] + term * b_term, comptime!(key.b.clone()));
                    #[unroll]
                    for i in 0..rows {
                        let at = comptime!(i * columns + j);
                        block[at] = fma(a[i], b, block[at]);
                    }
                }
            }
        }
        #[unroll]
        for i in 0..size {
            results[i] += block[i];
            block[i] = 0.0;
        }
        first = after;
    }
    results
}

/// An element of an operand.
#[cube]
pub fn read(buffers: &mut Buffers, numbers: &Sequence<u32>, element: u32, #[comptime] reader: Reader) -> f32 {
    let registers = run(buffers, numbers, element as usize, 0u32, comptime!(reader.tape));
    f32::reinterpret(registers[comptime!(reader.register)])
}

fn is_padded(source: Source) -> bool {
    matches!(source, Source::Patches | Source::TransposedPatches)
}

/// For each row of a tile, what its place in the left operand is found from; rows beyond the last one are the last one.
#[derive(CubeType)]
struct Origins {
    /// Its first element, or for patches the first pixel of its image.
    first: Array<u32>,
    down: Array<u32>,
    right: Array<u32>,
}

#[cube]
fn row_origins(numbers: &Sequence<u32>, tile: &Tile, #[comptime] key: GemmKey) -> Origins {
    let rows = comptime!(key.tile[0]);
    let mut first = Array::<u32>::new(rows);
    let mut down = Array::<u32>::new(rows);
    let mut right = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        let row = min(tile.row + comptime!(i as u32), numbers[ROWS] - 1);
        match key.source {
            Source::Matrix | Source::Lines => {
                first[i] = tile.outer * numbers[A_OUTER] + row * numbers[A_ROW];
            }
            Source::Patches => {
                let line = row / numbers[OTHER_WIDTH];
                first[i] = line / numbers[OTHER_HEIGHT] * numbers[HEIGHT] * numbers[WIDTH];
                down[i] = line % numbers[OTHER_HEIGHT] * numbers[STRIDE_H];
                right[i] = row % numbers[OTHER_WIDTH] * numbers[STRIDE_W];
            }
            Source::TransposedPatches => {
                let pixel = phase_pixel(numbers, row);
                first[i] = pixel.image * numbers[HEIGHT] * numbers[WIDTH];
                down[i] = pixel.down;
                right[i] = pixel.right;
            }
        }
    }
    Origins { first, down, right }
}

/// A pixel among those of one phase.
#[derive(CubeType)]
struct Pixel {
    image: u32,
    down: u32,
    right: u32,
}

#[cube]
fn phase_pixel(numbers: &Sequence<u32>, row: u32) -> Pixel {
    let height = numbers[OTHER_HEIGHT].div_ceil(numbers[STRIDE_H]);
    let width = numbers[OTHER_WIDTH].div_ceil(numbers[STRIDE_W]);
    Pixel { image: row / width / height, down: row / width % height, right: row % width }
}

/// The terms of a segment that lie in a block of the sum and inside of the image.
#[cube]
fn segment(
    numbers: &Sequence<u32>,
    tile: &Tile,
    number: u32,
    first: u32,
    after: u32,
    #[comptime] source: Source,
) -> Segment {
    let inner = numbers[INNER];
    let start = number * inner;
    let from = max(first, start) - start;
    let to = min(after - start, inner);
    match source {
        Source::Matrix => Segment { from, to, down: 0u32.runtime(), right: 0u32.runtime() },
        Source::Patches => {
            let (down, right) = (number / numbers[TAPS_WIDE], number % numbers[TAPS_WIDE]);
            Segment {
                from,
                to,
                down: down * numbers[DILATION_H] - numbers[TOP],
                right: right * numbers[DILATION_W] - numbers[LEFT],
            }
        }
        Source::TransposedPatches => {
            let (down, right) = (number / numbers[TAPS_WIDE], number % numbers[TAPS_WIDE]);
            let (phase_h, phase_w) = (tile.phase / numbers[STRIDE_W], tile.phase % numbers[STRIDE_W]);
            let down = i32::cast_from(phase_h + numbers[TOP]) - i32::cast_from(down * numbers[DILATION_H]);
            let right = i32::cast_from(phase_w + numbers[LEFT]) - i32::cast_from(right * numbers[DILATION_W]);
            let (stride_h, stride_w) = (i32::cast_from(numbers[STRIDE_H]), i32::cast_from(numbers[STRIDE_W]));
            let (steps_h, steps_w) = (down / stride_h, right / stride_w);
            let meets = steps_h * stride_h == down && steps_w * stride_w == right;
            Segment { from, to: select(meets, to, 0), down: u32::cast_from(steps_h), right: u32::cast_from(steps_w) }
        }
        Source::Lines => {
            let line = line_of(numbers, tile.phase, number);
            Segment { from: max(from, line.from), to: min(to, line.to), down: line.first, right: 0u32.runtime() }
        }
    }
}

/// A line of a convolution's result and the line of its image that a tap meets there.
#[derive(CubeType)]
pub struct Line {
    /// The pixels of the result that meet a pixel of the image; none where the line lies outside.
    pub from: u32,
    pub to: u32,
    /// The pixel of the image that the first of the result would meet; may lie before the line.
    pub first: u32,
}

#[cube]
pub fn line_of(numbers: &Sequence<u32>, tap: u32, number: u32) -> Line {
    let (tap_h, tap_w) = (tap / numbers[TAPS_WIDE], tap % numbers[TAPS_WIDE]);
    let (image, down) = (number / numbers[OTHER_HEIGHT], number % numbers[OTHER_HEIGHT]);
    let line = down * numbers[STRIDE_H] + tap_h * numbers[DILATION_H] - numbers[TOP];
    let moved = tap_w * numbers[DILATION_W];
    let (left, stride) = (numbers[LEFT], numbers[STRIDE_W]);
    let from = select(left > moved, (left - moved).div_ceil(stride), 0);
    // What the image has to the right of the first pixel that is met.
    let beyond = numbers[WIDTH] + left;
    let to = select(beyond > moved, (beyond - moved).div_ceil(stride), 0);
    Line {
        from,
        to: select(line < numbers[HEIGHT], min(to, numbers[OTHER_WIDTH]), 0),
        first: (image * numbers[HEIGHT] + line) * numbers[WIDTH] + moved - left,
    }
}

/// For each row of a tile, the first element of a segment, and whether it is inside of the image.
#[derive(CubeType)]
struct RowStarts {
    at: Array<u32>,
    inside: Array<u32>,
}

#[cube]
fn row_starts(
    numbers: &Sequence<u32>,
    tile: &Tile,
    origins: &Origins,
    segment: &Segment,
    #[comptime] key: GemmKey,
) -> RowStarts {
    let rows = comptime!(key.tile[0]);
    let mut at = Array::<u32>::new(rows);
    let mut inside = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        match key.source {
            Source::Matrix => at[i] = origins.first[i],
            Source::Lines => at[i] = origins.first[i] + segment.down * numbers[CHANNELS],
            Source::Patches | Source::TransposedPatches => {
                // Before the image is far beyond it.
                let (down, right) = (origins.down[i] + segment.down, origins.right[i] + segment.right);
                let is_inside = down < numbers[HEIGHT] && right < numbers[WIDTH];
                let pixel = origins.first[i] + down * numbers[WIDTH] + right;
                let first = pixel * numbers[CHANNELS] + tile.outer * numbers[A_OUTER];
                at[i] = select(is_inside, first, 0);
                inside[i] = u32::cast_from(is_inside);
            }
        }
    }
    RowStarts { at, inside }
}

/// For each column of a tile, the first element of a segment; columns beyond the last one are the last one.
#[cube]
fn column_starts(numbers: &Sequence<u32>, tile: &Tile, number: u32, #[comptime] key: GemmKey) -> Array<u32> {
    let columns = comptime!(key.tile[1]);
    let mut starts = Array::<u32>::new(columns);
    let first = tile.outer * numbers[B_OUTER] + number * numbers[B_SEGMENT];
    #[unroll]
    for j in 0..columns {
        let column = min(tile.column + comptime!(j as u32), numbers[COLUMNS] - 1);
        starts[j] = first + column * numbers[B_COLUMN];
    }
    starts
}

/// Runs the tape over each result of a tile, in a loop: unrolled, it would be most of the code.
#[cube]
fn finish(buffers: &mut Buffers, numbers: &Sequence<u32>, tile: &Tile, results: &Array<f32>, #[comptime] key: GemmKey) {
    let [rows, columns] = comptime!(key.tile);
    let mut words = Array::<u32>::new(comptime!(key.result.stores.len()));
    let there = min(columns, (numbers[COLUMNS] - tile.column) as usize);
    for i in 0..rows {
        let row = tile.row + i as u32;
        if row < numbers[ROWS] {
            let place = row_in_result(numbers, tile, row, comptime!(key.source));
            if place.is_there {
                let first = place.row * numbers[Y_ROW] + tile.outer * numbers[Y_OUTER] + tile.column;
                let first = (tile.part * numbers[ELEMENTS] + first) as usize;
                for j in 0..there {
                    let given = u32::reinterpret(results[i * columns + j]);
                    let registers = run(buffers, numbers, first + j, given, comptime!(key.result.clone()));
                    store_all(buffers, &registers, &mut words, first + j, false, comptime!(key.result.clone()));
                }
            }
        }
    }
}

#[derive(CubeType)]
struct ResultRow {
    row: u32,
    is_there: bool,
}

#[cube]
fn row_in_result(numbers: &Sequence<u32>, tile: &Tile, row: u32, #[comptime] source: Source) -> ResultRow {
    match source {
        Source::Matrix | Source::Patches => ResultRow { row, is_there: true.runtime() },
        Source::Lines => ResultRow { row: tile.phase * numbers[ROWS] + row, is_there: true.runtime() },
        Source::TransposedPatches => {
            let pixel = phase_pixel(numbers, row);
            let down = pixel.down * numbers[STRIDE_H] + tile.phase / numbers[STRIDE_W];
            let right = pixel.right * numbers[STRIDE_W] + tile.phase % numbers[STRIDE_W];
            ResultRow {
                row: (pixel.image * numbers[OTHER_HEIGHT] + down) * numbers[OTHER_WIDTH] + right,
                is_there: down < numbers[OTHER_HEIGHT] && right < numbers[OTHER_WIDTH],
            }
        }
    }
}
