//! A contraction as one product of matrices: which element of which operand meets which, by shapes alone. How its sum is
//! split follows from this and nothing else, so that a product has the same bits whatever is fused with it.
//!
//! Rows and columns are those of one matrix of the result; `outer` counts matrices: those of a batch, or the groups of
//! channels. The terms of a sum stand in segments of `inner` each: the channels of a tap, or the pixels of a line.

use memfit_ir::op::{Contraction, Conv, MatMul};
use memfit_ir::{Graph, Node};

use super::contract::TapRow;

/// How the left operand is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A batch of matrices.
    Matrix,
    /// The patches of an image: a row for each pixel of a convolution's result, a segment for each tap.
    Patches,
    /// Those of the result of a convolution, for each pixel of its image; for each phase of the stride on its own, which
    /// meets the same taps everywhere.
    TransposedPatches,
    /// A row for each channel of an image moved by a tap, a segment for each line of the convolution's result.
    Lines,
}

/// Numbers of a launch, by their position.
pub mod number {
    pub const ROWS: usize = 0;
    pub const COLUMNS: usize = 1;
    /// Matrices of the result.
    pub const OUTER: usize = 2;
    /// Terms of a segment.
    pub const INNER: usize = 3;
    /// Of a sum.
    pub const TERMS: usize = 4;
    /// Of a part of a sum.
    pub const PART: usize = 5;
    pub const PARTS: usize = 6;
    /// Of the whole result: parts of sums lie so far apart.
    pub const ELEMENTS: usize = 7;
    /// From a row of the left operand to the next, from a term to the next, and from a matrix or group to the next.
    pub const A_ROW: usize = 8;
    pub const A_TERM: usize = 9;
    pub const A_OUTER: usize = 10;
    pub const B_COLUMN: usize = 11;
    pub const B_TERM: usize = 12;
    pub const B_OUTER: usize = 13;
    pub const B_SEGMENT: usize = 14;
    pub const Y_ROW: usize = 15;
    pub const Y_OUTER: usize = 16;
    /// The image that the left operand is: its extents.
    pub const HEIGHT: usize = 17;
    pub const WIDTH: usize = 18;
    pub const CHANNELS: usize = 19;
    /// The image of the rows, or for lines that of the terms.
    pub const OTHER_HEIGHT: usize = 20;
    pub const OTHER_WIDTH: usize = 21;
    pub const TAPS: usize = 22;
    pub const TAPS_WIDE: usize = 23;
    pub const STRIDE_H: usize = 24;
    pub const STRIDE_W: usize = 25;
    pub const DILATION_H: usize = 26;
    pub const DILATION_W: usize = 27;
    pub const TOP: usize = 28;
    pub const LEFT: usize = 29;
}

/// Sizes and strides of a product. Strides are in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub source: Source,
    pub rows: usize,
    pub columns: usize,
    /// Matrices of a batch, or groups of channels.
    pub outer: usize,
    /// Taps or phases, which are also matrices.
    pub phases: usize,
    pub segments: usize,
    pub inner: usize,
    /// Of the result.
    pub elements: usize,
    /// Of both operands.
    pub operands: usize,
    a: [usize; 3],
    b: [usize; 4],
    y: [usize; 2],
    image: Option<Image>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Image {
    conv: Conv,
    /// Of the left operand.
    extents: [usize; 3],
    other: [usize; 2],
    taps: [usize; 2],
}

impl Problem {
    pub fn new(graph: &Graph, op: Contraction, node: &Node) -> Problem {
        let [a, b, y] = [node.inputs[0], node.inputs[1], node.outputs[0]].map(|v| graph.shape(v));
        let product = match op {
            Contraction::MatMul(op) => matrix(op, a, b, y),
            Contraction::Conv(conv) => patches(conv, a, b, y),
            Contraction::ConvTranspose(c) => transposed_patches(c.conv, a, b, y),
            Contraction::ConvFilter(c) => lines(c.conv, a, b, y),
        };
        let elements = |shape: &[usize]| shape.iter().product::<usize>();
        Problem { elements: elements(y), operands: elements(a) + elements(b), ..product }
    }

    /// Terms of each sum.
    pub fn terms(&self) -> usize {
        self.segments * self.inner
    }

    /// Terms of each part of a sum. Parts are made where there are few sums of many terms: enough to keep a device busy, and
    /// no more than a part of what the operands take as memory.
    pub fn part(&self) -> usize {
        let wanted = BUSY.div_ceil(self.elements.div_ceil(64).max(1));
        let longest = self.terms() / SHORTEST_PART;
        let room = self.operands / (8 * self.elements.max(1));
        let parts = wanted.min(longest).min(room).max(1);
        let part = self.terms().div_ceil(parts).max(1);
        // Whole segments, where there are several in a part.
        if part > self.inner { part.next_multiple_of(self.inner.max(1)) } else { part }
    }

    pub fn parts(&self) -> usize {
        self.terms().div_ceil(self.part())
    }

    /// How often an element of the left and of the right operand is read, by tiles of rows and columns.
    pub fn reads(&self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        let taps = self.image.map_or(1, |image| image.taps.iter().product());
        // Every tap of a filter's gradient meets the whole result.
        let by_taps = if self.source == Source::Lines { taps } else { 1 };
        [self.columns.div_ceil(columns) * taps, self.rows.div_ceil(rows) * by_taps]
    }

    /// One filter for each channel, or some.
    pub fn is_depthwise(&self) -> bool {
        let Some(image) = self.image else { return false };
        let channels = match self.source {
            Source::Matrix => return false,
            Source::Patches => self.inner,
            Source::TransposedPatches => self.columns,
            Source::Lines => self.rows,
        };
        image.conv.groups > 1 && channels == 1
    }

    /// Of the result.
    pub fn channels(&self) -> usize {
        self.y[0]
    }

    /// Pixels of a line of the image that is made.
    pub fn line_width(&self) -> usize {
        self.image.map_or(1, |image| image.other[1])
    }

    /// The taps of a depthwise convolution that a unit meets with one line; none for a transposed one that leaves pixels out,
    /// or that has several filters for a channel.
    pub fn tap_row(&self) -> Option<TapRow> {
        let Image { conv, taps, .. } = self.image?;
        let row = TapRow { taps: taps[1], step: conv.stride[1], dilation: conv.dilation[1], flipped: false };
        match self.source {
            Source::Matrix => None,
            Source::Patches | Source::Lines => Some(row),
            Source::TransposedPatches => {
                (conv.stride == [1, 1] && self.inner == 1).then_some(TapRow { flipped: true, ..row })
            }
        }
    }

    /// As [`number`] has them.
    pub fn numbers(&self) -> Vec<usize> {
        let sizes = [self.rows, self.columns, self.outer * self.phases, self.inner];
        let terms = [self.terms(), self.part(), self.parts(), self.elements];
        let mut numbers = [&sizes[..], &terms, &self.a, &self.b, &self.y].concat();
        if let Some(Image { conv, extents, other, taps }) = self.image {
            numbers.extend(extents);
            numbers.extend(other);
            numbers.extend([taps[0] * taps[1], taps[1]]);
            numbers.extend(conv.stride);
            numbers.extend(conv.dilation);
            numbers.extend([conv.pad.top, conv.pad.left]);
        }
        numbers
    }
}

/// Tiles that keep a device busy.
const BUSY: usize = 8192;
/// Terms that a part has at least.
const SHORTEST_PART: usize = 256;

fn matrix(op: MatMul, a: &[usize], b: &[usize], y: &[usize]) -> Problem {
    let rank = y.len();
    let (mut outer, mut rows) = (y[..rank - 2].iter().product::<usize>(), y[rank - 2]);
    let columns = y[rank - 1];
    let inner = if op.transpose_b { b[b.len() - 1] } else { b[b.len() - 2] };
    let shared = b.len() < a.len();
    // The right side is the same for all: the rows of all matrices are those of one.
    if shared && !op.transpose_a {
        (outer, rows) = (1, outer * rows);
    }
    let turned = |turn: bool, [near, far]: [usize; 2]| if turn { [1, far] } else { [near, 1] };
    let [a_row, a_term] = turned(op.transpose_a, [inner, rows]);
    let [b_term, b_column] = turned(op.transpose_b, [columns, inner]);
    Problem {
        source: Source::Matrix,
        rows,
        columns,
        outer,
        phases: 1,
        segments: 1,
        inner,
        elements: 0,
        operands: 0,
        a: [a_row, a_term, rows * inner],
        b: [b_column, b_term, if shared { 0 } else { inner * columns }, 0],
        y: [columns, rows * columns],
        image: None,
    }
}

fn patches(conv: Conv, x: &[usize], w: &[usize], y: &[usize]) -> Problem {
    let (channels, filters) = (w[2], w[3]);
    let columns = filters / conv.groups;
    Problem {
        source: Source::Patches,
        rows: y[0] * y[1] * y[2],
        columns,
        outer: conv.groups,
        phases: 1,
        segments: w[0] * w[1],
        inner: channels,
        elements: 0,
        operands: 0,
        a: [0, 1, channels],
        b: [1, filters, columns, channels * filters],
        y: [filters, columns],
        image: Some(Image { conv, extents: [x[1], x[2], x[3]], other: [y[1], y[2]], taps: [w[0], w[1]] }),
    }
}

/// `dy` is the image that is read, `x` the one that is made.
fn transposed_patches(conv: Conv, dy: &[usize], w: &[usize], x: &[usize]) -> Problem {
    let (channels, filters) = (w[2], w[3]);
    let inner = filters / conv.groups;
    let [h, wd] = [0, 1].map(|i| x[i + 1].div_ceil(conv.stride[i]));
    Problem {
        source: Source::TransposedPatches,
        rows: x[0] * h * wd,
        columns: channels,
        outer: conv.groups,
        phases: conv.stride[0] * conv.stride[1],
        segments: w[0] * w[1],
        inner,
        elements: 0,
        operands: 0,
        a: [0, 1, inner],
        b: [filters, 1, inner, channels * filters],
        y: [x[3], channels],
        image: Some(Image { conv, extents: [dy[1], dy[2], dy[3]], other: [x[1], x[2]], taps: [w[0], w[1]] }),
    }
}

fn lines(conv: Conv, x: &[usize], dy: &[usize], w: &[usize]) -> Problem {
    let (channels, filters) = (w[2], w[3]);
    let columns = filters / conv.groups;
    Problem {
        source: Source::Lines,
        rows: channels,
        columns,
        outer: conv.groups,
        phases: w[0] * w[1],
        segments: dy[0] * dy[1],
        inner: dy[2],
        elements: 0,
        operands: 0,
        a: [1, conv.stride[1] * x[3], channels],
        b: [1, filters, columns, dy[2] * filters],
        y: [filters, columns],
        image: Some(Image { conv, extents: [x[1], x[2], x[3]], other: [dy[1], dy[2]], taps: [w[0], w[1]] }),
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::op::{ConvFilter, Pad2};
    use memfit_ir::{Builder, Op, TensorType};

    use super::*;

    fn problem(a: &[usize], b: &[usize], op: Op) -> Problem {
        let mut builder = Builder::new();
        let operands = [("a", a), ("b", b)].map(|(name, shape)| builder.input(name, TensorType::f32(shape)).unwrap());
        let y = builder.op(op, &operands).unwrap();
        let graph = builder.finish();
        let node = graph.node(graph.producer(y));
        Problem::new(&graph, node.op.contraction().unwrap(), node)
    }

    fn product(rows: usize, inner: usize, columns: usize) -> Problem {
        problem(&[rows, inner], &[inner, columns], Op::MatMul(MatMul { transpose_a: false, transpose_b: false }))
    }

    #[test]
    fn sums_are_split_where_they_are_few_and_long() {
        for (rows, inner, columns, parts) in
            [(4096, 4096, 512, 1), (32, 100, 10, 1), (8, 100_000, 8, 390), (32, 784, 256, 3), (64, 65_536, 64, 128)]
        {
            assert_eq!(product(rows, inner, columns).parts(), parts, "{rows} {inner} {columns}");
        }
    }

    #[test]
    fn parts_of_sums_take_a_small_part_of_what_the_operands_take() {
        for inner in [1, 255, 256, 1000, 5000, 100_000] {
            for (rows, columns) in [(1, 1), (3, 1000), (700, 2), (100, 100), (1000, 1000)] {
                let p = product(rows, inner, columns);
                assert!(p.parts() == 1 || p.parts() * p.elements * 8 <= p.operands, "{p:?}");
                assert!(p.part() * p.parts() >= p.terms() && p.part() * (p.parts() - 1) < p.terms(), "{p:?}");
            }
        }
    }

    /// Or a unit would begin in the middle of a line.
    #[test]
    fn parts_of_a_filters_gradient_are_whole_lines() {
        let conv = Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups: 1 };
        let p = problem(&[16, 58, 58, 3], &[16, 56, 56, 8], Op::ConvFilter(ConvFilter { conv, size: [3, 3] }));
        assert!(p.parts() > 1 && p.part().is_multiple_of(56), "{p:?}");
    }

    #[test]
    fn one_filter_a_channel_is_depthwise_in_every_direction() {
        for groups in [1, 6] {
            let conv = Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups };
            let gradient = Op::ConvFilter(ConvFilter { conv, size: [3, 3] });
            let transposed = Op::ConvTranspose(memfit_ir::op::ConvTranspose { conv, size: [5, 5] });
            let (image, filter, result) = ([2, 5, 5, 6], [3, 3, 6 / groups, 12], [2, 3, 3, 12]);
            for (a, b, op) in [(image, filter, Op::Conv(conv)), (result, filter, transposed), (image, result, gradient)]
            {
                assert_eq!(problem(&a, &b, op.clone()).is_depthwise(), groups == 6, "{op:?}");
            }
        }
    }
}
