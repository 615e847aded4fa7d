//! Kernels over plain slices: one file a family. They never allocate: temporary memory is an argument whose length the
//! companion function `…_scratch` gives. Every element of an output is written, whatever it held before.
//!
//! How a sum is split depends on shapes only. A long sum is cut into chunks whose number follows from the shape, each
//! chunk leaves its partial result in scratch, and partial results are joined in the order of the chunks: the number of
//! threads changes no bit.

pub(crate) mod attention;
pub(crate) mod attention_grad;
pub(crate) mod batch_finished;
pub(crate) mod batch_norm;
pub(crate) mod cross_entropy;
pub(crate) mod depthwise;
pub(crate) mod depthwise_filter;
pub(crate) mod gather;
pub(crate) mod group_norm;
pub(crate) mod heads;
pub(crate) mod layer_norm;
pub(crate) mod layout;
pub(crate) mod reduce;
pub(crate) mod softmax;
pub(crate) mod transpose;
pub(crate) mod update;
pub(crate) mod upsample;
pub(crate) mod window;

mod columns;
mod depthwise_lines;
mod lanes;
mod product;
mod strided;
mod tiles;

#[cfg(test)]
pub(crate) mod check;

/// An id or a label outside of its table. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index {index} at position {position} is not below {limit}")]
pub(crate) struct BadIndex {
    pub(crate) index: i64,
    pub(crate) limit: usize,
    /// Where the index stands among the ids or labels, counted from 0.
    pub(crate) position: usize,
}

/// All indices lie in `0..limit`.
fn check_indices(indices: &[i32], limit: usize) -> Result<(), BadIndex> {
    let inside = |&i: &i32| usize::try_from(i).is_ok_and(|i| i < limit);
    match indices.iter().position(|i| !inside(i)) {
        Some(position) => Err(BadIndex { index: indices[position] as i64, limit, position }),
        None => Ok(()),
    }
}

/// The extents of a batch of images, channels last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) n: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
    pub(crate) c: usize,
}

impl Image {
    pub(crate) fn new(n: usize, h: usize, w: usize, c: usize) -> Image {
        Image { n, h, w, c }
    }

    /// Number of elements.
    pub(crate) fn len(self) -> usize {
        self.n * self.h * self.w * self.c
    }

    /// Where row `y` of image `n` starts.
    fn row(self, n: usize, y: usize) -> usize {
        (n * self.h + y) * self.w * self.c
    }
}

/// `n` things cut into chunks of equal length, the last one shorter. Depends on shapes only.
#[derive(Clone, Copy, Debug)]
struct Chunks {
    n: usize,
    each: usize,
    count: usize,
}

impl Chunks {
    /// At most `most` chunks of at least `least` things.
    fn new(n: usize, least: usize, most: usize) -> Chunks {
        let each = least.max(n.div_ceil(most.max(1))).max(1);
        Chunks { n, each, count: n.div_ceil(each).max(1) }
    }

    fn range(self, i: usize) -> std::ops::Range<usize> {
        (i * self.each).min(self.n)..((i + 1) * self.each).min(self.n)
    }
}
