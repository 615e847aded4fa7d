//! Products of tiles: rows of two views into a tile of scores, and a tile of scores over the rows of a view. 16×16 units have
//! four rows and four columns of a tile each, a sixteenth of it apart; what they share passes through shared memory.

use cubecl::prelude::*;

use crate::kernels::word::{Buffers, load_inside, store};
use crate::lower::attention::{DEPTH, DIM, EACH, HEADS, PITCH, REACH, Rows, SCORE_PITCH, SIDE, TILE};

/// What a cube works on: a tile of the rows of one head, and some columns of the result.
#[derive(CubeType)]
pub struct Work {
    pub batch: usize,
    pub head: usize,
    /// The first row of the tile, and the first column.
    pub row: usize,
    pub column: usize,
    /// Whether there is such a tile: there may be more cubes than work.
    pub exists: bool,
}

/// The work of this cube: tiles of a head are the work of neighbours.
#[cube]
pub fn work(numbers: &Sequence<u32>, batch: usize, rows: usize, #[comptime] columns: usize) -> Work {
    let width = comptime!(columns * SIDE);
    let slices = (numbers[DIM] as usize).div_ceil(width);
    let tiles = rows.div_ceil(TILE);
    let heads = numbers[HEADS] as usize;
    let which = CUBE_POS / slices;
    let head = which / tiles;
    Work {
        batch: head / heads,
        head: head % heads,
        row: (which % tiles) * TILE,
        column: (CUBE_POS % slices) * width,
        exists: head / heads < batch,
    }
}

/// Of this unit, in its cube: along the rows and along the columns.
#[cube]
pub fn unit_row() -> usize {
    UNIT_POS as usize / SIDE
}

#[cube]
pub fn unit_column() -> usize {
    UNIT_POS as usize % SIDE
}

/// Where the rows of a head lie.
#[derive(CubeType)]
pub struct HeadRows {
    pub first: usize,
    pub stride: usize,
}

#[cube]
pub fn rows_of(numbers: &Sequence<u32>, work: &Work, #[comptime] rows: Rows) -> HeadRows {
    let (batch, head) = (numbers[comptime!(rows.first + 1)] as usize, numbers[comptime!(rows.first + 2)] as usize);
    HeadRows {
        first: numbers[comptime!(rows.first)] as usize + work.batch * batch + work.head * head,
        stride: numbers[comptime!(rows.first + 3)] as usize,
    }
}

/// Brings so many elements of a tile's rows into shared memory; 0 where there are none.
#[cube]
fn stage_rows(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    first: usize,
    count: usize,
    depth: usize,
    stage: &mut Shared<[f32]>,
    #[comptime] to: usize,
    #[comptime] rows: Rows,
) {
    let from = rows_of(numbers, work, rows);
    let dim = numbers[DIM] as usize;
    let d = unit_column();
    #[unroll]
    for i in 0..EACH {
        let row = unit_row() + comptime!(i * SIDE);
        let inside = first + row < count && depth + d < dim;
        let at = from.first + (first + row) * from.stride + depth + d;
        stage[to + row * PITCH + d] = load_inside(buffers, at, inside, comptime!(rows.buffer));
    }
}

/// A side of a tile: which rows of a view, of how many.
#[derive(CubeType)]
pub struct Side {
    pub first: usize,
    pub count: usize,
}

/// The dot products of a tile's rows of a with those of b.
#[cube]
pub fn across(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    a_side: &Side,
    b_side: &Side,
    stage: &mut Shared<[f32]>,
    #[comptime] a: Rows,
    #[comptime] b: Rows,
) -> Array<f32> {
    let mut sums = Array::<f32>::new(comptime!(EACH * EACH));
    #[unroll]
    for i in 0..comptime!(EACH * EACH) {
        sums[i] = 0.0;
    }
    let dim = numbers[DIM] as usize;
    let (row, column) = (unit_row(), unit_column());
    for chunk in 0..dim.div_ceil(DEPTH) {
        let depth = chunk * DEPTH;
        sync_cube();
        stage_rows(buffers, numbers, work, a_side.first, a_side.count, depth, stage, 0usize, a);
        stage_rows(buffers, numbers, work, b_side.first, b_side.count, depth, stage, comptime!(TILE * PITCH), b);
        sync_cube();
        for d in 0..min(DEPTH, dim - depth) {
            let mut right = Array::<f32>::new(EACH);
            #[unroll]
            for j in 0..EACH {
                right[j] = stage[comptime!(TILE * PITCH) + (column + comptime!(j * SIDE)) * PITCH + d];
            }
            #[unroll]
            for i in 0..EACH {
                let left = stage[(row + comptime!(i * SIDE)) * PITCH + d];
                #[unroll]
                for j in 0..EACH {
                    sums[comptime!(i * EACH + j)] += left * right[j];
                }
            }
        }
    }
    sums
}

/// What the rows of a tile are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowsAre {
    Queries,
    Keys,
}

/// Whether any of sixteen rows of a tile and any of sixteen of its columns see each other.
#[cube]
fn sees(numbers: &Sequence<u32>, row: usize, column: usize, #[comptime] rows: RowsAre) -> bool {
    let reach = numbers[REACH] as usize;
    match rows {
        RowsAre::Queries => column < row + comptime!(SIDE - 1) + reach,
        RowsAre::Keys => row < column + comptime!(DEPTH - 1) + reach,
    }
}

/// Scores over the rows of a view: for each row of the tile, the sum of all rows of the view by their scores, of which a unit
/// has every sixteenth column of the cube's. Where none of sixteen rows sees any of sixteen others, nothing is added: nor is
/// the NaN that 0 times one would be.
#[cube]
pub fn over(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    side: &Side,
    scores: &Shared<[f32]>,
    stage: &mut Shared<[f32]>,
    #[comptime] rows: Rows,
    #[comptime] rows_are: RowsAre,
    #[comptime] columns: usize,
) -> Array<f32> {
    let mut sums = Array::<f32>::new(comptime!(EACH * columns));
    #[unroll]
    for i in 0..comptime!(EACH * columns) {
        sums[i] = 0.0;
    }
    let width = comptime!(columns * SIDE);
    let from = rows_of(numbers, work, rows);
    let dim = numbers[DIM] as usize;
    let (row, column) = (unit_row(), unit_column());
    let length = min(TILE, side.count - side.first);
    for chunk in 0..length.div_ceil(DEPTH) {
        let depth = chunk * DEPTH;
        sync_cube();
        #[unroll]
        for j in 0..columns {
            // One row of the view for each row of units.
            let (at, to) = (work.column + column + comptime!(j * SIDE), column + comptime!(j * SIDE));
            let inside = depth + row < length && at < dim;
            let element = from.first + (side.first + depth + row) * from.stride + at;
            stage[row * width + to] = load_inside(buffers, element, inside, comptime!(rows.buffer));
        }
        sync_cube();
        let mut seen = Sequence::<bool>::new();
        #[unroll]
        for i in 0..EACH {
            seen.push(sees(numbers, work.row + comptime!(i * SIDE), side.first + depth, rows_are));
        }
        for d in 0..min(DEPTH, length - depth) {
            let mut right = Array::<f32>::new(columns);
            #[unroll]
            for j in 0..columns {
                right[j] = stage[d * width + column + comptime!(j * SIDE)];
            }
            #[unroll]
            for i in 0..EACH {
                if seen[i] {
                    let left = scores[(row + comptime!(i * SIDE)) * SCORE_PITCH + depth + d];
                    #[unroll]
                    for j in 0..columns {
                        sums[comptime!(i * columns + j)] += left * right[j];
                    }
                }
            }
        }
    }
    sums
}

/// Writes what a unit has of a tile of a result.
#[cube]
pub fn write(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    count: usize,
    values: &Array<f32>,
    #[comptime] to: Rows,
    #[comptime] columns: usize,
) {
    let head = rows_of(numbers, work, to);
    let dim = numbers[DIM] as usize;
    #[unroll]
    for i in 0..EACH {
        let row = work.row + unit_row() + comptime!(i * SIDE);
        #[unroll]
        for j in 0..columns {
            let column = work.column + unit_column() + comptime!(j * SIDE);
            if row < count && column < dim {
                let at = head.first + row * head.stride + column;
                store(buffers, at, values[comptime!(i * columns + j)], comptime!(to.buffer));
            }
        }
    }
}

/// Of each row of the tile, what all units along it have, so that `join` sees it in a fixed order. The scores of before are
/// gone.
#[cube]
pub fn exchange(values: &mut Array<f32>, scores: &mut Shared<[f32]>) {
    sync_cube();
    #[unroll]
    for i in 0..EACH {
        scores[(unit_row() + comptime!(i * SIDE)) * SCORE_PITCH + unit_column()] = values[i];
    }
    sync_cube();
}

/// The sum along the rows of the tile of what each unit has.
#[cube]
pub fn row_sums(values: &mut Array<f32>, scores: &mut Shared<[f32]>) {
    exchange(values, scores);
    #[unroll]
    for i in 0..EACH {
        let first = (unit_row() + comptime!(i * SIDE)) * SCORE_PITCH;
        let mut sum = 0.0f32;
        for t in 0..SIDE {
            sum += scores[first + t];
        }
        values[i] = sum;
    }
}

/// The largest along the rows of the tile.
#[cube]
pub fn row_maxima(values: &mut Array<f32>, scores: &mut Shared<[f32]>) {
    exchange(values, scores);
    #[unroll]
    for i in 0..EACH {
        let first = (unit_row() + comptime!(i * SIDE)) * SCORE_PITCH;
        let mut largest = scores[first];
        for t in 1..SIDE {
            let other = scores[first + t];
            largest = select(other > largest, other, largest);
        }
        values[i] = largest;
    }
}

/// Puts a unit's part of a tile of scores where all see it.
#[cube]
pub fn share(values: &mut Array<f32>, scores: &mut Shared<[f32]>) {
    sync_cube();
    #[unroll]
    for i in 0..EACH {
        #[unroll]
        for j in 0..EACH {
            let at = (unit_row() + comptime!(i * SIDE)) * SCORE_PITCH + unit_column() + comptime!(j * SIDE);
            scores[at] = values[comptime!(i * EACH + j)];
        }
    }
}
