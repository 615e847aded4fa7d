//! Which elements of a tensor belong together, and how the work on them is spread over units and cubes: by shape alone.

use crate::call::Grid;

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
    pub fn has_neighbouring_terms(&self) -> bool {
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
    /// Over several parts where there would be at least so many.
    pub fn new(cells: &Cells, least_parts: usize) -> Spread {
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
        let parts = if wanted / lanes >= least_parts { wanted / lanes } else { 1 };
        let part_terms = terms.div_ceil(parts);
        Spread { width: Grid::UNITS / lanes, lanes, parts: terms.div_ceil(part_terms), part_terms }
    }

    pub fn grid(self, cells: usize) -> Grid {
        Grid::cubes(cells.div_ceil(self.width) * self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_axes_of_a_kind_are_one() {
        let check = |shape: &[usize], axes: &[usize], cells: &[(usize, usize)], terms: &[(usize, usize)]| {
            let made = Cells::over(shape, axes);
            assert_eq!((&made.cells[..], &made.terms[..]), (cells, terms), "{shape:?} over {axes:?}");
        };
        check(&[2, 3, 4, 5], &[0, 1, 2], &[(5, 1)], &[(24, 5)]);
        check(&[2, 3, 4, 5], &[3], &[(24, 5)], &[(5, 1)]);
        check(&[2, 3, 4, 5], &[0, 2], &[(3, 20), (5, 1)], &[(2, 60), (4, 5)]);
        check(&[2, 1, 4, 1], &[1, 3], &[(8, 1)], &[]);
        check(&[], &[], &[], &[]);
    }

    /// Every term belongs to one unit of one cube, and no unit has many where there are units for more.
    #[test]
    fn a_fold_is_spread_over_cells_lanes_and_parts() {
        for (shape, axis) in [([1, 1], 0), ([1, 5_000_000], 1), ([5_000_000, 1], 1), ([9000, 700], 0), ([3, 40_000], 1)]
        {
            for least_parts in [2, 8, usize::MAX] {
                let cells = Cells::over(&shape, &[axis]);
                let s = Spread::new(&cells, least_parts);
                assert_eq!(s.width * s.lanes, Grid::UNITS, "{shape:?}");
                assert!(s.parts * s.part_terms >= cells.term_count(), "{shape:?}");
                assert!((s.parts - 1) * s.part_terms < cells.term_count(), "{shape:?}");
                let most = if least_parts == usize::MAX { usize::MAX } else { 2 * least_parts * MOST_TERMS };
                assert!(s.part_terms.div_ceil(s.lanes) <= most, "{shape:?}");
            }
        }
    }

    #[test]
    fn neighbours_read_neighbours() {
        let columns = Cells::over(&[4096, 64], &[0]);
        assert!(!columns.has_neighbouring_terms() && Spread::new(&columns, 2).width >= NEIGHBOURS);
        let rows = Cells::over(&[4096, 64], &[1]);
        assert!(rows.has_neighbouring_terms() && Spread::new(&rows, 2).lanes >= NEIGHBOURS);
    }
}
