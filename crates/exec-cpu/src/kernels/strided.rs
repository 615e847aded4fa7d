//! A strided view of a tensor, collapsed to as few axes as possible, and the copy of it row by row. It owns no data.

use super::layout::GRAIN;
use crate::Cpu;
use crate::pool::Parts;

/// Axes of a view after collapsing.
pub(crate) const MAX_AXES: usize = 16;

/// The elements of a view in order: each axis has an extent and the distance of neighbours in the source, which is 0
/// where the axis repeats.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Strided {
    pub(crate) base: usize,
    /// (extent, stride), the innermost first.
    axes: [(usize, usize); MAX_AXES],
    n: usize,
}

impl Strided {
    /// Adds an axis outside of those before; merges it with its neighbour where both walk the source in one stride.
    pub(crate) fn push_outer(&mut self, extent: usize, stride: usize) {
        if extent == 1 {
            return;
        }
        if let Some((inner, inner_stride)) = self.axes[..self.n].last_mut()
            && *inner * *inner_stride == stride
        {
            *inner *= extent;
            return;
        }
        assert!(self.n < MAX_AXES, "a view of more than {MAX_AXES} axes");
        self.axes[self.n] = (extent, stride);
        self.n += 1;
    }

    /// The axes as (extent, stride), the innermost first.
    pub(crate) fn axes(&self) -> &[(usize, usize)] {
        &self.axes[..self.n]
    }

    /// The innermost axis, and the view of the others.
    pub(crate) fn split_inner(&self) -> ((usize, usize), Strided) {
        let mut outer = *self;
        if self.n == 0 {
            return ((1, 1), outer);
        }
        outer.axes.copy_within(1..self.n, 0);
        outer.n -= 1;
        (self.axes[0], outer)
    }

    /// Where the `i`-th element stands in the source.
    pub(crate) fn offset(&self, mut i: usize) -> usize {
        let mut offset = self.base;
        for &(extent, stride) in self.axes() {
            offset += i % extent * stride;
            i /= extent;
        }
        offset
    }
}

/// y ← the view of x, one innermost axis after the other.
pub(crate) fn copy_rows<T: Copy + Send + Sync>(cpu: &Cpu, view: &Strided, x: &[T], y: &mut [T]) {
    if y.is_empty() {
        return;
    }
    let ((extent, stride), outer) = view.split_inner();
    let (rows, y) = (y.len() / extent, Parts::new(y));
    if rows == 1 {
        return cpu.pool.split(extent, GRAIN, |r| {
            // SAFETY: split gives disjoint ranges.
            copy_row(&x[outer.base + r.start * stride..], stride, unsafe { y.range(r) });
        });
    }
    cpu.pool.split(rows, GRAIN.div_ceil(extent), |r| {
        // SAFETY: each row belongs to one thread.
        let y = unsafe { y.range(r.start * extent..r.end * extent) };
        for (y, row) in y.chunks_exact_mut(extent).zip(r) {
            copy_row(&x[outer.offset(row)..], stride, y);
        }
    });
}

fn copy_row<T: Copy>(x: &[T], stride: usize, y: &mut [T]) {
    match stride {
        0 => y.fill(x[0]),
        1 => y.copy_from_slice(&x[..y.len()]),
        _ => y.iter_mut().zip(x.iter().step_by(stride)).for_each(|(y, &x)| *y = x),
    }
}
