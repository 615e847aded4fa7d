//! The sums of batch norm over a matrix that is still being made: what was finished is summed up while it is in the cache.
//! Rows are cut as in `batch_norm.rs`, so that the bits are the same.

use std::ops::Range;

use super::batch_norm::{grad_block, stat_block};
use super::columns::{self, Accumulator, Split, WIDEST, Walk};
use crate::isa::simd;
use crate::pool::Parts;

/// Rows that one thread has to finish if it is to sum them up while they are in its cache.
pub(crate) fn rows_at_once(rows: usize, channels: usize) -> usize {
    Split::new(1, rows, channels).chunks.each
}

/// The blocks of rows whose last row is among the finished ones.
fn finished_blocks(split: &Split, walk: Walk, finished: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (each, chunks, end) = (walk.block_rows(), split.chunks, finished.end);
    let first = finished.start / chunks.each.max(1);
    let of_chunk = move |chunk: usize| {
        let rows = chunks.range(chunk);
        let starts = rows.clone().step_by(each);
        starts.map(move |start| (chunk, start..rows.end.min(start + each)))
    };
    (first..chunks.count)
        .flat_map(of_chunk)
        .skip_while(move |(_, b)| b.end <= finished.start)
        .take_while(move |(_, b)| b.end <= end)
}

simd! {
    /// What the statistics of `batch_norm.rs` do, for the blocks of x that were finished with these rows. All of a chunk is
    /// finished in order and by one thread.
    ///
    /// # Safety
    /// As for [`Finished::rows`], of the finished rows; both parts of the scratch hold `channels` elements for each chunk, and no
    /// other thread looks at those of the same chunk.
    pub(crate) unsafe fn stat_finished<FMA>(
        isa, rows: usize, channels: usize, x: Finished, finished: Range<usize>, scratch: &[Parts<f32>; 2],
    ) {
        let split = Split::new(1, rows, channels);
        let (mut center, mut acc): (Accumulator, Accumulator) = ([0.0; WIDEST], [0.0; WIDEST]);
        for col in (0..channels).step_by(columns::TILE) {
            let walk = Walk { stride: channels, width: split.width(col) };
            for (chunk, block) in finished_blocks(&split, walk, finished.clone()) {
                let place = chunk * channels + col..chunk * channels + col + walk.width;
                // SAFETY: a chunk has places of its own, which no other thread looks at, as the caller promises.
                let (mean, m2) = unsafe { (scratch[0].range(place.clone()), scratch[1].range(place)) };
                let seen = block.start - split.chunks.range(chunk).start;
                if seen == 0 {
                    mean.fill(0.0);
                    m2.fill(0.0);
                }
                // SAFETY: a block ends with the finished rows, and starts in the same chunk.
                let x = unsafe { x.rows(channels, &block, col) };
                stat_block::<FMA>(walk, [seen, block.len()], x, [&mut center, &mut acc], mean, m2);
            }
        }
    }
}

simd! {
    /// What the sums of a gradient do for the blocks of dy that were finished with these rows, as [`stat_finished`].
    ///
    /// # Safety
    /// As there, with dy in the place of x.
    pub(crate) unsafe fn grad_finished<FMA>(
        isa, rows: usize, mean: &[f32], x: &[f32], dy: Finished, finished: Range<usize>, scratch: &[Parts<f32>; 2],
    ) {
        let channels = mean.len();
        let split = Split::new(1, rows, channels);
        let mut center: Accumulator = [0.0; WIDEST];
        let (mut sum, mut product): (Accumulator, Accumulator) = ([0.0; WIDEST], [0.0; WIDEST]);
        for col in (0..channels).step_by(columns::TILE) {
            let walk = Walk { stride: channels, width: split.width(col) };
            center[..walk.width].copy_from_slice(&mean[col..col + walk.width]);
            for (chunk, block) in finished_blocks(&split, walk, finished.clone()) {
                let place = chunk * channels + col..chunk * channels + col + walk.width;
                // SAFETY: a chunk has places of its own, which no other thread looks at, as the caller promises.
                let (plain, weighted) = unsafe { (scratch[0].range(place.clone()), scratch[1].range(place)) };
                if block.start == split.chunks.range(chunk).start {
                    plain.fill(0.0);
                    weighted.fill(0.0);
                }
                // SAFETY: a block ends with the finished rows, and starts in the same chunk.
                let dy = unsafe { dy.rows(channels, &block, col) };
                let x_dy = [&x[block.start * channels + col..], dy];
                let room = [&mut center, &mut sum, &mut product];
                grad_block::<FMA>(walk, block.len(), x_dy, room, plain, weighted);
            }
        }
    }
}

/// A matrix of which other threads may be writing other rows.
#[derive(Clone, Copy)]
pub(crate) struct Finished(*const f32);

impl Finished {
    /// The matrix that starts here.
    pub(crate) fn new(x: *const f32) -> Finished {
        Finished(x)
    }

    /// Whole rows from a column of the first one on.
    ///
    /// # Safety
    /// The matrix has these rows of `channels` elements, and they are written for good.
    #[inline(always)]
    unsafe fn rows<'a>(self, channels: usize, rows: &Range<usize>, col: usize) -> &'a [f32] {
        // SAFETY: from the column on, the rows have as many elements, which nobody writes any more.
        unsafe { std::slice::from_raw_parts(self.0.add(rows.start * channels + col), rows.len() * channels - col) }
    }
}
