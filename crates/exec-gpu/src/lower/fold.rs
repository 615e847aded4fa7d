//! Sums, maxima and the like over any axes: what becomes one number is a *cell*, what it is made of its *terms*. How a fold
//! is spread over units and launches depends on its shape alone.

use memfit_ir::DType;
use memfit_plan::Place;

use super::Lowering;
use crate::call::{Grid, Key, Operands};
use crate::tape::Buffer;

/// What is known of a fold when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    pub terms: Terms,
    /// Where not the terms but folds of parts of them are read: as many numbers a part as there are accumulators.
    pub parts: Option<Buffer>,
    pub to: To,
    /// Axes over which cells lie, and those over which the terms of one do.
    pub cell_axes: usize,
    pub term_axes: usize,
}

/// What is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    Sum(Buffer),
    SumSquares(Buffer),
    Max(Buffer),
}

impl Terms {
    /// Numbers that are kept while terms are folded.
    pub fn accumulators(self) -> usize {
        match self {
            Terms::Sum(_) | Terms::SumSquares(_) | Terms::Max(_) => 1,
        }
    }
}

/// What becomes of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Its accumulators are stored, to be joined by another launch.
    Parts(Buffer),
    /// Divided by the divisor, it is an element.
    Element(Buffer),
}

impl To {
    pub fn buffer(self) -> Buffer {
        match self {
            To::Parts(buffer) | To::Element(buffer) => buffer,
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
    pub const AXES: usize = 8;
}

/// Extents and strides in elements, the outermost first.
pub type Axes = Vec<(usize, usize)>;

/// Which elements of a tensor belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Cells {
    pub cells: Axes,
    pub terms: Axes,
}

impl Cells {
    /// Those that differ in the given axes alone. Neighbouring axes of a kind are one.
    pub fn over(shape: &[usize], axes: &[usize]) -> Cells {
        let mut made = Cells { cells: Vec::new(), terms: Vec::new() };
        let mut stride = 1;
        for (axis, &extent) in shape.iter().enumerate().rev() {
            let of_kind = if axes.contains(&axis) { &mut made.terms } else { &mut made.cells };
            match of_kind.last_mut() {
                _ if extent == 1 => {}
                Some((n, inner)) if *n * *inner == stride => *n *= extent,
                _ => of_kind.push((extent, stride)),
            }
            stride *= extent;
        }
        made.cells.reverse();
        made.terms.reverse();
        made
    }

    pub fn cell_count(&self) -> usize {
        self.cells.iter().map(|a| a.0).product()
    }

    pub fn term_count(&self) -> usize {
        self.terms.iter().map(|a| a.0).product()
    }

    /// Whether terms that follow each other are neighbours in memory.
    fn has_neighbouring_terms(&self) -> bool {
        self.terms.last().is_some_and(|axis| axis.1 == 1)
    }
}

/// How a fold is spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Cells of a cube, and units for each.
    pub width: usize,
    pub lanes: usize,
    /// Cubes for the terms of a cell, and how many terms each has.
    pub parts: usize,
    pub part_terms: usize,
}

/// Units that are enough to keep a large device busy.
const MANY_UNITS: usize = 1 << 16;
/// Most terms that one unit folds one after the other, as far as there are lanes: a sum of more is less exact.
const MOST_TERMS: usize = 512;
const LEAST_TERMS: usize = 8;
/// Neighbours that are read at once.
const NEIGHBOURS: usize = 32;

impl Spread {
    pub fn new(cells: &Cells, may_split: bool) -> Spread {
        let (count, terms) = (cells.cell_count(), cells.term_count());
        let each = (count * terms / MANY_UNITS).clamp(LEAST_TERMS, MOST_TERMS);
        let wanted = terms.div_ceil(each);
        let lanes = if cells.has_neighbouring_terms() {
            let least = terms.next_power_of_two().min(NEIGHBOURS);
            wanted.next_power_of_two().clamp(least, Grid::UNITS)
        } else {
            let neighbours = cells.cells.last().map_or(1, |axis| axis.0);
            let most = Grid::UNITS / neighbours.next_power_of_two().min(NEIGHBOURS);
            wanted.next_power_of_two().min(most)
        };
        let parts = if may_split { (wanted / lanes).max(1) } else { 1 };
        let part_terms = terms.div_ceil(parts);
        Spread { width: Grid::UNITS / lanes, lanes, parts: terms.div_ceil(part_terms), part_terms }
    }

    pub fn grid(self, cells: usize) -> Grid {
        Grid::cubes(cells.div_ceil(self.width) * self.parts)
    }
}

/// The numbers of a launch.
pub fn numbers(cells: &Cells, spread: Spread, divisor: usize) -> Vec<usize> {
    let lanes_first = usize::from(cells.has_neighbouring_terms());
    let mut numbers = vec![cells.cell_count(), cells.term_count(), spread.width, spread.lanes];
    numbers.extend([spread.parts, spread.part_terms, lanes_first, divisor]);
    numbers.extend(cells.cells.iter().chain(&cells.terms).flat_map(|&(extent, stride)| [extent, stride]));
    numbers
}

impl Lowering<'_> {
    /// Folds `terms` of what was given to `operands` and divides by `divisor`; in two launches where cells are few and terms
    /// many.
    pub(super) fn fold(&mut self, mut operands: Operands, terms: Terms, cells: &Cells, divisor: usize, to: Place) {
        let spread = Spread::new(cells, true);
        let (count, flops) = (cells.cell_count(), cells.cell_count() * cells.term_count());
        let key = |to, parts, cells: &Cells| {
            Key::Fold(Fold { terms, parts, to, cell_axes: cells.cells.len(), term_axes: cells.terms.len() })
        };
        if spread.parts == 1 {
            let to = To::Element(operands.buffer(to, DType::F32));
            operands.numbers(numbers(cells, spread, divisor));
            return self.push(operands.call(key(to, None, cells), spread.grid(count), flops as u64));
        }
        let partial = self.scratch((terms.accumulators() * spread.parts * count * 4) as u64);
        let parts = To::Parts(operands.buffer(partial, DType::F32));
        operands.numbers(numbers(cells, spread, 1));
        self.push(operands.call(key(parts, None, cells), spread.grid(count), flops as u64));

        let joined = Cells::over(&[spread.parts, count], &[0]);
        let spread = Spread::new(&joined, false);
        let mut operands = Operands::default();
        let from = operands.buffer(partial, DType::F32);
        let to = To::Element(operands.buffer(to, DType::F32));
        operands.numbers(numbers(&joined, spread, divisor));
        self.push(operands.call(key(to, Some(from), &joined), spread.grid(count), 0));
    }
}
