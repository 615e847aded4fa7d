//! Sums, maxima and the like over any axes, and what is done to each element with them. What becomes one number is a *cell*,
//! what it is made of its *terms*. How a fold is spread over units and launches depends on its shape alone:
//!
//! - where a few cubes a cell would not be busier, one launch folds and then goes over the same terms again;
//! - where cells are few and terms many, one launch folds parts of them into scratch, a second one joins the parts, and a
//!   third one goes over the elements.
//!
//! A unit that writes an element has read it before and is the only one to do either: results may lie where operands of
//! their shape lay.

use memfit_ir::{DType, Graph, ValueId};
use memfit_plan::Place;

use super::Lowering;
use super::cells::{Cells, Spread};
use crate::call::{Key, Operands};
use crate::tape::Buffer;

/// What is known of a launch when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    pub kind: Kind,
    pub source: Source,
    pub sink: Sink,
    /// Axes over which cells lie, and those over which the terms of one do.
    pub cell_axes: usize,
    pub term_axes: usize,
}

impl Fold {
    /// Something that it writes.
    pub fn written(&self) -> Buffer {
        match self.sink {
            Sink::Parts(buffer) => buffer,
            Sink::Results { apply: Some(apply), .. } => apply.written(),
            Sink::Results { results: [Some(buffer), _] | [None, Some(buffer)], .. } => buffer,
            Sink::Results { results: [None, None], apply: None, .. } => unreachable!("a fold of which nothing is kept"),
        }
    }
}

/// How terms become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Sum,
    TwoSums,
    Max,
    /// Number, mean, sum of the squares of what differs from it, and the origin from which the mean is measured.
    Moments,
    /// The largest, and Σ exp(x − largest).
    LogSumExp,
}

impl Kind {
    /// Numbers that stand for the terms that were folded.
    pub const fn accumulators(self) -> usize {
        match self {
            Kind::Sum | Kind::Max => 1,
            Kind::TwoSums | Kind::LogSumExp => 2,
            Kind::Moments => 4,
        }
    }
}

/// What is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    Terms(Terms),
    /// What was folded of parts: for each accumulator a number a part and cell.
    Parts(Buffer),
    /// Nothing: the results of each cell are there, or none are needed.
    Results([Option<Buffer>; 2]),
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sink {
    /// The accumulators are stored, to be joined by another launch.
    Parts(Buffer),
    /// Two numbers a cell, which are stored where somebody wants them, and used for each element.
    Results { finish: Finish, results: [Option<Buffer>; 2], apply: Option<Apply> },
}

/// A term, or two of two sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    Element(Buffer),
    Square(Buffer),
    Product(Buffer, Buffer),
    /// dy·x̂ and dy, where x̂ = (x − mean)·rstd by the statistics of its cell of the norm.
    Channel {
        x: Buffer,
        dy: Buffer,
        norm: Statistics,
        at: At,
    },
    /// dy·scale·x̂ and dy·scale, where the cell is one of the norm.
    Norm {
        x: Buffer,
        dy: Buffer,
        scale: Buffer,
        norm: Statistics,
    },
    /// The share of a class in the loss, q·(lse − x).
    CrossEntropy {
        logits: Buffer,
        labels: Buffer,
        lse: Buffer,
    },
}

/// Mean, where a norm has one, and 1 ÷ √(variance + ε).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Statistics {
    pub mean: Option<Buffer>,
    pub rstd: Buffer,
    /// Whether the variance is there instead; ε is then the parameter.
    pub is_variance: bool,
}

/// Which statistics belong to a term of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Those of the channel.
    Channel,
    /// Those of the sample and the group of channels.
    Group,
}

/// From accumulators to the two results of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// Both by the divisor.
    Divide,
    /// Mean and variance.
    Variance,
    /// Mean and 1 ÷ √(variance + ε).
    Rstd,
    /// Nothing, and 1 ÷ √(sum of squares ÷ divisor + ε).
    RootMeanSquare,
    /// The largest and the sum, which is NaN where no softmax exists.
    LargestAndSum,
    /// The loss of the true class, where there is one alone, and log-sum-exp.
    LogSumExp { class: Option<Class> },
    /// The sum, but NaN where the class is outside of its range.
    CrossEntropy { labels: Buffer },
}

impl Finish {
    /// Which results are more than a 0.
    fn has_results(self) -> [bool; 2] {
        match self {
            Finish::Divide | Finish::Variance | Finish::Rstd | Finish::LargestAndSum => [true, true],
            Finish::RootMeanSquare => [false, true],
            Finish::LogSumExp { class } => [class.is_some(), true],
            Finish::CrossEntropy { .. } => [true, false],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    pub logits: Buffer,
    pub labels: Buffer,
}

/// What is done for each element with the results (a, b) of its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Apply {
    /// (x − a)·b·scale + bias; a is 0 for a norm without a mean.
    Norm { x: Buffer, scale: Buffer, bias: Option<Buffer>, y: Buffer },
    /// rstd·(dy·scale − b − x̂·a)
    NormGrad { x: Buffer, dy: Buffer, scale: Buffer, norm: Statistics, dx: Buffer },
    /// exp(x − a) ÷ b, or its logarithm.
    Softmax { x: Buffer, y: Buffer, log: bool },
    /// y·(dy − a), or of logarithms dy − exp(y)·a.
    SoftmaxGrad { y: Buffer, dy: Buffer, dx: Buffer, log: bool },
    /// dloss·(exp(x − lse)·Σq − q)
    CrossEntropyGrad { logits: Buffer, labels: Buffer, lse: Buffer, dloss: Buffer, dlogits: Buffer },
}

impl Apply {
    fn written(self) -> Buffer {
        match self {
            Apply::Norm { y, .. } | Apply::Softmax { y, .. } => y,
            Apply::NormGrad { dx, .. } | Apply::SoftmaxGrad { dx, .. } => dx,
            Apply::CrossEntropyGrad { dlogits, .. } => dlogits,
        }
    }
}

/// Numbers of a launch before those of its axes: extent and stride of each, from the first to the last, cells first.
pub mod number {
    pub const CELLS: usize = 0;
    pub const TERMS: usize = 1;
    /// Neighbouring cells of a cube, a power of two, and units for each of them.
    pub const WIDTH: usize = 2;
    pub const LANES: usize = 3;
    pub const PARTS: usize = 4;
    pub const PART_TERMS: usize = 5;
    /// Whether neighbouring units have neighbouring terms, and not cells.
    pub const LANES_FIRST: usize = 6;
    pub const DIVISOR: usize = 7;
    /// ε or the smoothing of labels, as bits.
    pub const PARAMETER: usize = 8;
    /// Extent of the last axis.
    pub const CHANNELS: usize = 9;
    /// Of a norm over groups: rows of a sample, groups, and channels of one.
    pub const SAMPLE_ROWS: usize = 10;
    pub const GROUPS: usize = 11;
    pub const GROUP_CHANNELS: usize = 12;
    pub const AXES: usize = 13;
}

/// Numbers of a launch that do not follow from its cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    pub divisor: usize,
    pub parameter: f32,
    pub channels: usize,
    pub sample_rows: usize,
    pub groups: usize,
    pub group_channels: usize,
}

impl Default for Constants {
    fn default() -> Constants {
        Constants { divisor: 1, parameter: 0.0, channels: 1, sample_rows: 1, groups: 1, group_channels: 1 }
    }
}

/// The numbers of a launch.
fn numbers(cells: &Cells, spread: Spread, c: Constants) -> Vec<usize> {
    let lanes_first = usize::from(cells.has_neighbouring_terms());
    let mut numbers = vec![cells.cell_count(), cells.term_count(), spread.width, spread.lanes];
    numbers.extend([spread.parts, spread.part_terms, lanes_first, c.divisor, c.parameter.to_bits() as usize]);
    numbers.extend([c.channels, c.sample_rows, c.groups, c.group_channels]);
    numbers.extend(cells.cells.iter().chain(&cells.terms).flat_map(|&(extent, stride)| [extent, stride]));
    numbers
}

/// Where values are, as the closures of a fold ask for it.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    graph: &'a Graph,
    place: &'a dyn Fn(ValueId) -> Place,
}

impl Values<'_> {
    pub(super) fn place(self, v: ValueId) -> Place {
        (self.place)(v)
    }

    pub(super) fn operand(self, operands: &mut Operands, v: ValueId) -> Buffer {
        operands.buffer(self.place(v), self.graph.ty(v).dtype)
    }
}

impl<'a> Lowering<'a> {
    pub(super) fn values(&self) -> Values<'a> {
        Values { graph: self.graph, place: self.place }
    }
}

/// A fold that is to be lowered. Each launch has operands of its own, so that what it is made of is asked for anew.
pub(super) struct Folding<'f> {
    pub cells: Cells,
    pub kind: Kind,
    pub constants: Constants,
    pub flops: u64,
    pub terms: &'f dyn Fn(&mut Operands) -> Terms,
    pub finish: &'f dyn Fn(&mut Operands) -> Finish,
    /// Where the results of each cell are wanted.
    pub results: [Option<Place>; 2],
    pub apply: Option<&'f dyn Fn(&mut Operands) -> Apply>,
}

/// Parts for which it is worth going over the elements in a launch of their own.
const PARTS_OF_THREE_LAUNCHES: usize = 8;

impl Lowering<'_> {
    pub(super) fn fold(&mut self, f: &Folding) {
        let spread = Spread::new(&f.cells, if f.apply.is_some() { PARTS_OF_THREE_LAUNCHES } else { 2 });
        let mut operands = Operands::default();
        let source = Source::Terms((f.terms)(&mut operands));
        if spread.parts == 1 {
            let finish = (f.finish)(&mut operands);
            let results = buffers(&mut operands, f.results);
            let apply = f.apply.map(|apply| apply(&mut operands));
            let key = f.key(source, Sink::Results { finish, results, apply }, &f.cells);
            operands.numbers(numbers(&f.cells, spread, f.constants));
            return self.push(operands.call(key, spread.grid(f.cells.cell_count()), f.flops));
        }
        let count = f.cells.cell_count();
        let parts = self.scratch((f.kind.accumulators() * spread.parts * count * 4) as u64);
        let key = f.key(source, Sink::Parts(operands.buffer(parts, DType::F32)), &f.cells);
        operands.numbers(numbers(&f.cells, spread, f.constants));
        self.push(operands.call(key, spread.grid(count), f.flops));
        let results = self.join(f, parts, spread.parts);
        if let Some(apply) = f.apply {
            self.apply(&f.cells, f.constants, results, apply);
        }
    }

    /// Joins what was folded of parts, and says where the results are.
    fn join(&mut self, f: &Folding, parts: Place, count: usize) -> [Option<Place>; 2] {
        let cells = Cells::over(&[count, f.cells.cell_count()], &[0]);
        let spread = Spread::new(&cells, usize::MAX);
        let mut operands = Operands::default();
        let source = Source::Parts(operands.buffer(parts, DType::F32));
        let finish = (f.finish)(&mut operands);
        let mut results = f.results;
        if f.apply.is_some() {
            for (result, is_there) in results.iter_mut().zip(finish.has_results()) {
                if is_there && result.is_none() {
                    *result = Some(self.scratch(f.cells.cell_count() as u64 * 4));
                }
            }
        }
        let sink = Sink::Results { finish, results: buffers(&mut operands, results), apply: None };
        operands.numbers(numbers(&cells, spread, f.constants));
        self.push(operands.call(f.key(source, sink, &cells), spread.grid(f.cells.cell_count()), 0));
        results
    }

    /// Goes over the elements of cells whose results are known.
    pub(super) fn apply(
        &mut self,
        cells: &Cells,
        constants: Constants,
        results: [Option<Place>; 2],
        apply: &dyn Fn(&mut Operands) -> Apply,
    ) {
        let spread = Spread::new(cells, 2);
        let mut operands = Operands::default();
        let source = Source::Results(buffers(&mut operands, results));
        let apply = Some(apply(&mut operands));
        let sink = Sink::Results { finish: Finish::Divide, results: [None, None], apply };
        let key = key(Kind::Sum, source, sink, cells);
        operands.numbers(numbers(cells, spread, constants));
        let (count, terms) = (cells.cell_count(), cells.term_count());
        self.push(operands.call(key, spread.grid(count), (count * terms) as u64));
    }
}

impl Folding<'_> {
    fn key(&self, source: Source, sink: Sink, cells: &Cells) -> Key {
        key(self.kind, source, sink, cells)
    }
}

fn key(kind: Kind, source: Source, sink: Sink, cells: &Cells) -> Key {
    Key::Fold(Fold { kind, source, sink, cell_axes: cells.cells.len(), term_axes: cells.terms.len() })
}

fn buffers(operands: &mut Operands, places: [Option<Place>; 2]) -> [Option<Buffer>; 2] {
    places.map(|p| p.map(|place| operands.buffer(place, DType::F32)))
}
