//! What moves elements and computes nothing: constants with memory of their own, and copies by axes. A transpose, a slice,
//! padding and a broadcast are one kernel with other numbers; a concatenation is one that looks into several operands.
//!
//! Where the elements of 8 or 16 bits move in whole words, whole words are moved: no other shader is needed for them then.

use memfit_ir::op::{Fill, Slice};
use memfit_ir::{DType, Node, Op, ValueId};
use memfit_plan::Place;

use super::Lowering;
use crate::call::{Grid, Key, Operands};
use crate::chain::constant_bits;
use crate::tape::Buffer;

/// What one launch does, with the numbers of its operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LayoutKey {
    /// Numbers: words, the bits of the constant.
    Fill(Buffer),
    Copy(CopyKey),
    Concat(ConcatKey),
}

/// Numbers: elements of the result, the element of the source where it begins, and for each axis its extent, stride and, with
/// padding, where the source begins and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyKey {
    /// Of one element.
    pub bits: usize,
    pub rank: usize,
    pub padded: bool,
    pub from: usize,
    pub to: usize,
}

/// Numbers: elements of the result, elements of its rows, and for each part where it begins in a row and how long it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConcatKey {
    pub bits: usize,
    pub parts: Vec<usize>,
    pub to: usize,
    /// Whether words of the result hold elements of parts that are there already.
    pub keeps: bool,
}

impl LayoutKey {
    pub fn name(&self) -> &'static str {
        match self {
            LayoutKey::Fill(_) => "fill",
            LayoutKey::Copy(_) => "copy",
            LayoutKey::Concat(_) => "concat",
        }
    }

    /// The operand that it writes.
    pub fn result(&self) -> usize {
        match self {
            LayoutKey::Fill(buffer) => buffer.index,
            LayoutKey::Copy(key) => key.to,
            LayoutKey::Concat(key) => key.to,
        }
    }
}

/// Parts of a concatenation in one launch: with the result, as many operands as every device binds.
const PARTS: usize = 7;

impl Lowering<'_> {
    pub(super) fn constant(&mut self, v: ValueId, fill: &Fill) {
        self.fill_bits(v, constant_bits(fill.value, fill.dtype));
    }

    pub(super) fn fill(&mut self, v: ValueId, value: f32) {
        self.fill_bits(v, value.to_bits());
    }

    fn fill_bits(&mut self, v: ValueId, bits: u32) {
        let ty = self.ty(v);
        let words = ty.bytes().div_ceil(4) as usize;
        let mut operands = Operands::default();
        operands.numbers([words, bits as usize]);
        let buffer = operands.buffer(self.place(v), ty.dtype);
        self.push(operands.call(Key::Layout(LayoutKey::Fill(buffer)), Grid::each(words), 0));
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only ops of its family come here")]
    pub(super) fn layout(&mut self, node: &Node) {
        let (graph, y) = (self.graph, node.outputs[0]);
        let (x, to) = (graph.shape(node.inputs[0]), graph.shape(y));
        let bits = graph.ty(y).dtype.bits();
        let copy = match &node.op {
            Op::Reshape(_) => Copy::words(graph.ty(y).bytes().div_ceil(4) as usize),
            Op::Transpose(perm) => Copy::transpose(bits, x, perm),
            Op::Slice(s) => Copy::slice(bits, x, s),
            Op::Pad(pads) => Copy::pad(bits, x, pads),
            Op::Broadcast(_) => Copy::broadcast(bits, x, to),
            op => unreachable!("{} moves no elements", op.name()),
        };
        if graph.ty(node.inputs[0]).elements() == 0 {
            // Padding around nothing.
            return self.fill_bits(y, 0);
        }
        self.copy(copy.simplified(), node.inputs[0], y);
    }

    fn copy(&mut self, copy: Copy, x: ValueId, y: ValueId) {
        let Copy { bits, offset, axes } = copy;
        let elements: usize = axes.iter().map(|a| a.extent).product();
        let padded = axes.iter().any(|a| !a.is_whole());
        let mut operands = Operands::default();
        operands.numbers([elements, offset]);
        for a in &axes {
            operands.numbers([a.extent, a.stride]);
            if padded {
                operands.numbers([a.before, a.size]);
            }
        }
        let [from, to] = [x, y].map(|v| operands.buffer(self.place(v), self.ty(v).dtype).index);
        let key = CopyKey { bits, rank: axes.len(), padded, from, to };
        let grid = Grid::each(elements.div_ceil(32 / bits));
        let mut call = operands.call(Key::Layout(LayoutKey::Copy(key)), grid, 0);
        call.bytes = self.ty(y).bytes() + self.ty(x).bytes().min(self.ty(y).bytes());
        self.push(call);
    }

    pub(super) fn concat(&mut self, node: &Node, axis: usize) {
        let (graph, y) = (self.graph, node.outputs[0]);
        let shape = graph.shape(y);
        let rows: usize = shape[..axis].iter().product();
        let length = |v: &ValueId| graph.shape(*v)[axis..].iter().product::<usize>();
        let mut parts: Vec<Part> = Vec::new();
        let mut start = 0;
        for v in &node.inputs {
            parts.push(Part { place: self.place(*v), start, length: length(v) });
            start += length(v);
        }
        parts.retain(|p| p.length > 0);
        let mut bits = graph.ty(y).dtype.bits();
        while bits < 32 && parts.iter().all(|p| p.length.is_multiple_of(2)) {
            parts.iter_mut().for_each(|p| (p.start, p.length) = (p.start / 2, p.length / 2));
            (bits, start) = (bits * 2, start / 2);
        }
        for (i, parts) in parts.chunks(PARTS).enumerate() {
            let keeps = bits < 32 && i > 0;
            self.concat_parts(parts, Joined { place: self.place(y), rows, row: start, bits }, keeps);
        }
    }

    fn concat_parts(&mut self, parts: &[Part], y: Joined, keeps: bool) {
        let elements = y.rows * y.row;
        let mut operands = Operands::default();
        operands.numbers([elements, y.row]);
        parts.iter().for_each(|p| _ = operands.numbers([p.start, p.length]));
        let mut index = |place: Place| operands.buffer(place, DType::I32).index;
        let key = ConcatKey {
            bits: y.bits,
            parts: parts.iter().map(|p| index(p.place)).collect(),
            to: index(y.place),
            keeps,
        };
        let mut call =
            operands.call(Key::Layout(LayoutKey::Concat(key)), Grid::each(elements.div_ceil(32 / y.bits)), 0);
        call.bytes = 2 * parts.iter().map(|p| (p.length * y.rows * y.bits / 8) as u64).sum::<u64>();
        self.push(call);
    }
}

/// A part of every row of a concatenation.
#[derive(Clone, Copy)]
struct Part {
    place: Place,
    start: usize,
    length: usize,
}

/// What a concatenation makes.
#[derive(Clone, Copy)]
struct Joined {
    place: Place,
    rows: usize,
    row: usize,
    bits: usize,
}

/// Which element of a tensor each element of another one is: the axes of the result from the outermost on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Copy {
    bits: usize,
    offset: usize,
    axes: Vec<Axis>,
}

/// Along an axis of the result: `before` zeros, `size` elements of the source that lie `stride` apart, and zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    extent: usize,
    stride: usize,
    before: usize,
    size: usize,
}

impl Axis {
    fn whole(extent: usize, stride: usize) -> Axis {
        Axis { extent, stride, before: 0, size: extent }
    }

    fn is_whole(self) -> bool {
        self.before == 0 && self.size == self.extent
    }
}

impl Copy {
    fn words(n: usize) -> Copy {
        Copy { bits: 32, offset: 0, axes: vec![Axis::whole(n, 1)] }
    }

    fn transpose(bits: usize, x: &[usize], perm: &[usize]) -> Copy {
        let strides = strides(x);
        Copy { bits, offset: 0, axes: perm.iter().map(|&p| Axis::whole(x[p], strides[p])).collect() }
    }

    fn slice(bits: usize, x: &[usize], s: &Slice) -> Copy {
        let strides = strides(x);
        let offset = s.start.iter().zip(&strides).map(|(a, b)| a * b).sum();
        let axes = (0..x.len()).map(|i| Axis::whole(s.stop[i] - s.start[i], strides[i]));
        Copy { bits, offset, axes: axes.collect() }
    }

    fn pad(bits: usize, x: &[usize], pads: &[(usize, usize)]) -> Copy {
        let axes = x.iter().zip(strides(x)).zip(pads);
        let axes = axes.map(|((&size, stride), &(before, after))| Axis {
            extent: before + size + after,
            stride,
            before,
            size,
        });
        Copy { bits, offset: 0, axes: axes.collect() }
    }

    fn broadcast(bits: usize, x: &[usize], to: &[usize]) -> Copy {
        let (missing, strides) = (to.len() - x.len(), strides(x));
        let stride = |i: usize| if i < missing || x[i - missing] == 1 { 0 } else { strides[i - missing] };
        Copy { bits, offset: 0, axes: to.iter().enumerate().map(|(i, &n)| Axis::whole(n, stride(i))).collect() }
    }

    /// The same with as few axes, and in as large pieces, as it goes.
    fn simplified(self) -> Copy {
        let mut axes: Vec<Axis> = Vec::new();
        for outer in self.axes.into_iter().rev() {
            match axes.last_mut() {
                _ if outer.extent == 1 && outer.is_whole() => {}
                Some(inner) if inner.is_whole() && outer.stride == inner.stride * inner.extent => {
                    let n = inner.extent;
                    let stride = inner.stride;
                    *inner = Axis { extent: outer.extent * n, stride, before: outer.before * n, size: outer.size * n };
                }
                _ => axes.push(outer),
            }
        }
        axes.reverse();
        let mut copy = Copy { axes, ..self };
        while copy.moves_pairs() {
            copy.pair();
        }
        copy
    }

    /// Whether elements move two by two, the first of each an even one.
    fn moves_pairs(&self) -> bool {
        let even = |n: usize| n.is_multiple_of(2);
        self.bits < 32
            && even(self.offset)
            && self.axes.split_last().is_some_and(|(inner, outer)| {
                let whole = inner.stride == 1 && [inner.extent, inner.before, inner.size].into_iter().all(even);
                whole && outer.iter().all(|a| even(a.stride))
            })
    }

    fn pair(&mut self) {
        self.bits *= 2;
        self.offset /= 2;
        if let Some((inner, outer)) = self.axes.split_last_mut() {
            *inner = Axis { extent: inner.extent / 2, stride: 1, before: inner.before / 2, size: inner.size / 2 };
            outer.iter_mut().for_each(|a| a.stride /= 2);
        }
    }
}

fn strides(shape: &[usize]) -> Vec<usize> {
    memfit_ir::Shape::new(shape).strides()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(copy: &Copy) -> Vec<(usize, usize)> {
        copy.axes.iter().map(|a| (a.extent, a.stride)).collect()
    }

    #[test]
    fn axes_that_stay_together_are_one() {
        let check = |perm: &[usize], expected: &[(usize, usize)]| {
            let copy = Copy::transpose(32, &[2, 3, 1, 5], perm).simplified();
            assert_eq!(axes(&copy), expected, "{perm:?}");
        };
        check(&[0, 1, 2, 3], &[(30, 1)]);
        check(&[1, 0, 2, 3], &[(3, 5), (2, 15), (5, 1)]);
        check(&[3, 2, 0, 1], &[(5, 1), (6, 5)]);
    }

    #[test]
    fn elements_that_move_in_whole_words_are_moved_as_words() {
        let slice = |start: [usize; 2], stop: [usize; 2]| {
            let s = Slice { start: start.to_vec(), stop: stop.to_vec() };
            Copy::slice(8, &[6, 8], &s).simplified()
        };
        let copy = slice([1, 4], [5, 8]);
        assert_eq!((copy.bits, copy.offset, axes(&copy)), (32, 3, vec![(4, 2), (1, 1)]));
        let copy = slice([1, 2], [5, 8]);
        assert_eq!((copy.bits, copy.offset, axes(&copy)), (16, 5, vec![(4, 4), (3, 1)]));
        let copy = slice([1, 1], [5, 5]);
        assert_eq!((copy.bits, copy.offset, axes(&copy)), (8, 9, vec![(4, 8), (4, 1)]));
    }

    #[test]
    fn padding_of_an_outer_axis_takes_the_inner_ones_with_it() {
        let copy = Copy::pad(32, &[2, 4, 4, 3], &[(0, 0), (1, 2), (1, 0), (0, 0)]).simplified();
        let expected = [
            Axis::whole(2, 48),
            Axis { extent: 7, stride: 12, before: 1, size: 4 },
            Axis { extent: 15, stride: 1, before: 3, size: 12 },
        ];
        assert_eq!(copy.axes, expected);
    }

    #[test]
    fn a_broadcast_repeats_along_axes_without_a_stride() {
        let copy = Copy::broadcast(32, &[3, 1], &[2, 3, 4]).simplified();
        assert_eq!(axes(&copy), [(2, 0), (3, 1), (4, 0)]);
        let copy = Copy::broadcast(32, &[], &[2, 3]).simplified();
        assert_eq!(axes(&copy), [(6, 0)]);
    }
}
