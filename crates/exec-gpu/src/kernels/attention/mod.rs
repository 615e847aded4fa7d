//! Attention without the matrix of scores: a cube has a tile of queries and passes over the tiles of keys that they see, or
//! the other way round. What a tile gives is summed up by itself and then added, so that no sum is longer than a tile.
//!
//! Barriers stand where all units of a cube come by: whatever decides about them is the same for all.

#[cfg(test)]
mod tests;
mod tile;

use cubecl::prelude::*;

use crate::kernels::probe::answer;
use crate::kernels::word::{Buffers, load, load_bits, load_inside, store};
use crate::lower::attention::{
    BATCH, DIM, EACH, Forward, HEADS, KEYS, Kernel, KeyGrad, QUERIES, QueryGrad, REACH, Rows, SCALE, SCORE_PITCH, SIDE,
    STAGE, Scores, TILE,
};
use tile::*;

/// Launches the kernel that a key names.
///
/// # Safety
/// The buffers have what the numbers say.
pub unsafe fn launch(
    client: &Client,
    count: CubeCount,
    dim: CubeDim,
    buffers: SequenceArg<Box<[u32]>>,
    numbers: SequenceArg<u32>,
    probe: u32,
    kernel: Kernel,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match kernel {
            Kernel::Forward(key) => attend::launch_unchecked(client, count, dim, buffers, numbers, probe, key),
            Kernel::QueryGrad(key) => {
                differentiate_queries::launch_unchecked(client, count, dim, buffers, numbers, probe, key)
            }
            Kernel::KeyGrad(key) => {
                differentiate_keys::launch_unchecked(client, count, dim, buffers, numbers, probe, key)
            }
            Kernel::Move { from, to } => {
                move_rows::launch_unchecked(client, count, dim, buffers, numbers, probe, from, to);
            }
        }
    }
}

#[cube]
fn negative_infinity() -> f32 {
    f32::reinterpret(0xff80_0000u32.runtime())
}

/// Whether a query sees a key, and what is added to its score.
#[derive(CubeType)]
struct Sight {
    visible: bool,
    bias: f32,
}

#[cube]
fn sight(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    query: usize,
    key: usize,
    #[comptime] mask: Option<Rows>,
) -> Sight {
    let inside = query < numbers[QUERIES] as usize && key < numbers[KEYS] as usize;
    let mut visible = inside && key < query + numbers[REACH] as usize;
    let mut bias = 0.0f32;
    if comptime!(mask.is_some()) {
        let rows = comptime!(mask.unwrap());
        let head = rows_of(numbers, work, rows);
        let at = head.first + query * head.stride + key * (numbers[comptime!(rows.first + 4)] as usize);
        if comptime!(rows.buffer.dtype.is_float()) {
            bias = load_inside(buffers, at, inside, comptime!(rows.buffer));
        } else {
            visible = visible && load_bits(buffers, select(inside, at, 0), comptime!(rows.buffer)) != 0;
        }
    }
    Sight { visible, bias }
}

/// y and lse of a tile of queries: tile by tile of keys, relative to the largest score so far.
#[cube(launch_unchecked)]
fn attend(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: Forward) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.y.buffer.index));
        terminate!();
    }
    let (queries, keys) = (numbers[QUERIES] as usize, numbers[KEYS] as usize);
    let columns = comptime!(key.scores.columns);
    let work = work(numbers, numbers[BATCH] as usize, queries, columns);
    if !work.exists {
        terminate!();
    }
    let mut scores = Shared::<[f32]>::new_slice(comptime!(TILE * SCORE_PITCH));
    let mut stage = Shared::<[f32]>::new_slice(STAGE);
    let mut out = zeros(comptime!(EACH * columns));
    let mut sums = zeros(EACH);
    let mut largest = zeros(EACH);
    #[unroll]
    for i in 0..EACH {
        largest[i] = negative_infinity();
    }
    let rows = Side { first: work.row, count: queries };
    let seen = min(keys, min(work.row + TILE, queries) - 1 + numbers[REACH] as usize);
    for t in 0..seen.div_ceil(TILE) {
        let side = Side { first: t * TILE, count: keys };
        let q = comptime!(key.scores.q);
        let k = comptime!(key.scores.k);
        let mut weights = across(buffers, numbers, &work, &rows, &side, &mut stage, q, k);
        let mut shrink = zeros(EACH);
        see(buffers, numbers, &work, side.first, &mut weights, comptime!(key.scores));
        softmax_tile(&mut weights, &mut largest, &mut shrink, &mut sums, &mut scores);
        let v = comptime!(key.scores.v);
        let part = over(buffers, numbers, &work, &side, &scores, &mut stage, v, RowsAre::Queries, columns);
        #[unroll]
        for i in 0..EACH {
            #[unroll]
            for j in 0..columns {
                let at = comptime!(i * columns + j);
                out[at] = out[at] * shrink[i] + part[at];
            }
        }
    }
    row_sums(&mut sums, &mut scores);
    let lse = rows_of(numbers, &work, comptime!(key.lse));
    #[unroll]
    for i in 0..EACH {
        let share = 1.0 / sums[i];
        #[unroll]
        for j in 0..columns {
            out[comptime!(i * columns + j)] *= share;
        }
        let row = work.row + unit_row() + comptime!(i * SIDE);
        if row < queries && unit_column() == 0 && work.column == 0 {
            // Where nothing is seen there is no distribution.
            let nan = f32::reinterpret(0x7fc0_0000u32.runtime());
            let total = select(sums[i] == 0.0, nan, largest[i] + sums[i].ln());
            store(buffers, lse.first + row * lse.stride, total, comptime!(key.lse.buffer));
        }
    }
    write(buffers, numbers, &work, queries, &out, comptime!(key.y), columns);
}

#[cube]
fn zeros(#[comptime] n: usize) -> Array<f32> {
    let mut all = Array::<f32>::new(n);
    #[unroll]
    for i in 0..n {
        all[i] = 0.0;
    }
    all
}

/// Products become scores, −∞ where a query does not see a key.
#[cube]
fn see(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    first_key: usize,
    scores: &mut Array<f32>,
    #[comptime] key: Scores,
) {
    let scale = f32::reinterpret(numbers[SCALE]);
    #[unroll]
    for i in 0..EACH {
        let query = work.row + unit_row() + comptime!(i * SIDE);
        #[unroll]
        for j in 0..EACH {
            let at = comptime!(i * EACH + j);
            let key_at = first_key + unit_column() + comptime!(j * SIDE);
            let sight = sight(buffers, numbers, work, query, key_at, comptime!(key.mask));
            scores[at] = select(sight.visible, scores[at] * scale + sight.bias, negative_infinity());
        }
    }
}

/// Scores become weights e^(score − largest so far) and go where all see them; `shrink` is what earlier weights are
/// multiplied with. Each unit has the sums of its own columns.
#[cube]
fn softmax_tile(
    weights: &mut Array<f32>,
    largest: &mut Array<f32>,
    shrink: &mut Array<f32>,
    sums: &mut Array<f32>,
    scores: &mut Shared<[f32]>,
) {
    #[unroll]
    for i in 0..EACH {
        shrink[i] = largest[i];
        #[unroll]
        for j in 0..EACH {
            let score = weights[comptime!(i * EACH + j)];
            largest[i] = select(score > largest[i], score, largest[i]);
        }
    }
    row_maxima(largest, scores);
    #[unroll]
    for i in 0..EACH {
        // Where nothing was seen so far, e^(−∞ − 0) is 0; −∞ less itself would be nothing.
        let zero_point = select(largest[i] == negative_infinity(), 0.0, largest[i]);
        shrink[i] = (shrink[i] - zero_point).exp();
        let mut sum = 0.0f32;
        #[unroll]
        for j in 0..EACH {
            let at = comptime!(i * EACH + j);
            weights[at] = (weights[at] - zero_point).exp();
            sum += weights[at];
        }
        sums[i] = sums[i] * shrink[i] + sum;
    }
    share(weights, scores);
}

/// dq of a tile of queries, and their Σ dy·y.
#[cube(launch_unchecked)]
fn differentiate_queries(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: QueryGrad) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.dq.buffer.index));
        terminate!();
    }
    let (queries, keys) = (numbers[QUERIES] as usize, numbers[KEYS] as usize);
    let columns = comptime!(key.scores.columns);
    let work = work(numbers, numbers[BATCH] as usize, queries, columns);
    if !work.exists {
        terminate!();
    }
    let mut scores = Shared::<[f32]>::new_slice(comptime!(TILE * SCORE_PITCH));
    let mut stage = Shared::<[f32]>::new_slice(STAGE);
    let mut out = zeros(comptime!(EACH * columns));
    let delta = deltas(buffers, numbers, &work, &mut scores, key);
    let mut lse = zeros(EACH);
    let saved = rows_of(numbers, &work, comptime!(key.lse));
    #[unroll]
    for i in 0..EACH {
        let row = work.row + unit_row() + comptime!(i * SIDE);
        lse[i] = load_inside(buffers, saved.first + row * saved.stride, row < queries, comptime!(key.lse.buffer));
    }
    let rows = Side { first: work.row, count: queries };
    let seen = min(keys, min(work.row + TILE, queries) - 1 + numbers[REACH] as usize);
    let scale = f32::reinterpret(numbers[SCALE]);
    for t in 0..seen.div_ceil(TILE) {
        let side = Side { first: t * TILE, count: keys };
        let q = comptime!(key.scores.q);
        let k = comptime!(key.scores.k);
        let v = comptime!(key.scores.v);
        let products = across(buffers, numbers, &work, &rows, &side, &mut stage, q, k);
        let mut slopes = across(buffers, numbers, &work, &rows, &side, &mut stage, comptime!(key.dy), v);
        #[unroll]
        for i in 0..EACH {
            let query = work.row + unit_row() + comptime!(i * SIDE);
            #[unroll]
            for j in 0..EACH {
                let at = comptime!(i * EACH + j);
                let key_at = side.first + unit_column() + comptime!(j * SIDE);
                let sight = sight(buffers, numbers, &work, query, key_at, comptime!(key.scores.mask));
                let weight = (products[at] * scale + sight.bias - lse[i]).exp();
                slopes[at] = select(sight.visible, weight * (slopes[at] - delta[i]) * scale, 0.0);
            }
        }
        share(&mut slopes, &mut scores);
        let part = over(buffers, numbers, &work, &side, &scores, &mut stage, k, RowsAre::Queries, columns);
        add(&mut out, &part, comptime!(EACH * columns));
    }
    write(buffers, numbers, &work, queries, &out, comptime!(key.dq), columns);
}

#[cube]
fn add(sums: &mut Array<f32>, part: &Array<f32>, #[comptime] n: usize) {
    #[unroll]
    for i in 0..n {
        sums[i] += part[i];
    }
}

/// Σ dy·y of a unit's rows, which are written down for the gradients of keys and values.
#[cube]
fn deltas(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    scores: &mut Shared<[f32]>,
    #[comptime] key: QueryGrad,
) -> Array<f32> {
    let (queries, dim) = (numbers[QUERIES] as usize, numbers[DIM] as usize);
    let (y, dy) = (rows_of(numbers, work, comptime!(key.y)), rows_of(numbers, work, comptime!(key.dy)));
    let mut sums = zeros(EACH);
    for chunk in 0..dim.div_ceil(SIDE) {
        let d = chunk * SIDE + unit_column();
        #[unroll]
        for i in 0..EACH {
            let row = work.row + unit_row() + comptime!(i * SIDE);
            let inside = row < queries && d < dim;
            let left = load_inside(buffers, y.first + row * y.stride + d, inside, comptime!(key.y.buffer));
            let right = load_inside(buffers, dy.first + row * dy.stride + d, inside, comptime!(key.dy.buffer));
            sums[i] += left * right;
        }
    }
    row_sums(&mut sums, scores);
    let to = rows_of(numbers, work, comptime!(key.delta));
    #[unroll]
    for i in 0..EACH {
        let row = work.row + unit_row() + comptime!(i * SIDE);
        if row < queries && unit_column() == 0 && work.column == 0 {
            store(buffers, to.first + row * to.stride, sums[i], comptime!(key.delta.buffer));
        }
    }
    sums
}

/// dk and dv of a tile of keys: tiles have keys as rows and queries as columns.
#[cube(launch_unchecked)]
fn differentiate_keys(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] key: KeyGrad) {
    if probe != 0 {
        answer(buffers, probe, comptime!(key.dk.buffer.index));
        terminate!();
    }
    let (queries, keys) = (numbers[QUERIES] as usize, numbers[KEYS] as usize);
    let columns = comptime!(key.scores.columns);
    let work = work(numbers, numbers[BATCH] as usize, keys, columns);
    if !work.exists {
        terminate!();
    }
    let mut scores = Shared::<[f32]>::new_slice(comptime!(TILE * SCORE_PITCH));
    let mut stage = Shared::<[f32]>::new_slice(STAGE);
    let mut dk = zeros(comptime!(EACH * columns));
    let mut dv = zeros(comptime!(EACH * columns));
    let rows = Side { first: work.row, count: keys };
    // No query before this one sees the first of the keys.
    let reach = numbers[REACH] as usize;
    let first = select(work.row + 1 > reach, work.row + 1 - reach, 0);
    let tiles = select(first < queries, (queries - first).div_ceil(TILE), 0);
    for t in 0..tiles {
        let side = Side { first: first + t * TILE, count: queries };
        let q = comptime!(key.scores.q);
        let k = comptime!(key.scores.k);
        let v = comptime!(key.scores.v);
        let dy = comptime!(key.dy);
        let mut weights = across(buffers, numbers, &work, &rows, &side, &mut stage, k, q);
        let mut slopes = across(buffers, numbers, &work, &rows, &side, &mut stage, v, dy);
        weigh(buffers, numbers, &work, side.first, &mut weights, &mut slopes, key);
        share(&mut weights, &mut scores);
        let part = over(buffers, numbers, &work, &side, &scores, &mut stage, dy, RowsAre::Keys, columns);
        add(&mut dv, &part, comptime!(EACH * columns));
        share(&mut slopes, &mut scores);
        let part = over(buffers, numbers, &work, &side, &scores, &mut stage, q, RowsAre::Keys, columns);
        add(&mut dk, &part, comptime!(EACH * columns));
    }
    write(buffers, numbers, &work, keys, &dk, comptime!(key.dk), columns);
    write(buffers, numbers, &work, keys, &dv, comptime!(key.dv), columns);
}

/// Products become weights, and the gradients of weights those of scores: of a tile with keys as rows.
#[cube]
fn weigh(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    work: &Work,
    first_query: usize,
    weights: &mut Array<f32>,
    slopes: &mut Array<f32>,
    #[comptime] key: KeyGrad,
) {
    let queries = numbers[QUERIES] as usize;
    let scale = f32::reinterpret(numbers[SCALE]);
    let (lse, delta) = (rows_of(numbers, work, comptime!(key.lse)), rows_of(numbers, work, comptime!(key.delta)));
    #[unroll]
    for j in 0..EACH {
        let query = first_query + unit_column() + comptime!(j * SIDE);
        let inside = query < queries;
        let total = load_inside(buffers, lse.first + query * lse.stride, inside, comptime!(key.lse.buffer));
        let mean = load_inside(buffers, delta.first + query * delta.stride, inside, comptime!(key.delta.buffer));
        #[unroll]
        for i in 0..EACH {
            let at = comptime!(i * EACH + j);
            let key_at = work.row + unit_row() + comptime!(i * SIDE);
            let sight = sight(buffers, numbers, work, query, key_at, comptime!(key.scores.mask));
            let weight = (weights[at] * scale + sight.bias - total).exp();
            weights[at] = select(sight.visible, weight, 0.0);
            slopes[at] = select(sight.visible, weight * (slopes[at] - mean) * scale, 0.0);
        }
    }
}

/// Copies the rows of the queries from one view to another.
#[cube(launch_unchecked)]
fn move_rows(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] from: Rows, #[comptime] to: Rows) {
    if probe != 0 {
        answer(buffers, probe, comptime!(to.buffer.index));
        terminate!();
    }
    let (heads, queries, dim) = (numbers[HEADS] as usize, numbers[QUERIES] as usize, numbers[DIM] as usize);
    let head = ABSOLUTE_POS / dim % heads;
    let row = ABSOLUTE_POS / dim / heads % queries;
    let batch = ABSOLUTE_POS / dim / heads / queries;
    if batch >= numbers[BATCH] as usize {
        terminate!();
    }
    let work = Work { batch, head, row, column: 0, exists: true };
    let (source, target) = (rows_of(numbers, &work, from), rows_of(numbers, &work, to));
    let d = ABSOLUTE_POS % dim;
    let value = load(buffers, source.first + row * source.stride + d, comptime!(from.buffer));
    store(buffers, target.first + row * target.stride + d, value, comptime!(to.buffer));
}
