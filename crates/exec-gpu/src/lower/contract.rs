//! Contractions: a product, the chains that compute its operands while it reads them, and the chain over its result.
//!
//! Chains run inside of the product's kernel where that is possible and pays; else before it and after it, over scratch.
//! Both give the same bits, because how a sum is split is the [`Problem`]'s alone.

use std::collections::HashMap;

use memfit_ir::op::Contraction;
use memfit_ir::{DType, Graph, NodeId, Op, ValueId, cost};
use memfit_plan::Place;
use memfit_transform::Group;

use super::problem::{Problem, Source};
use super::{Lowering, Product, Step};
use crate::call::{Call, Grid, Key, Operands, Takes};
use crate::chain::{TapeMaker, chain};
use crate::tape::{Store, Tape, Value, per_word};

/// A product in register tiles, each unit one: what is known of its kernel when it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GemmKey {
    pub source: Source,
    /// Rows and columns of a tile.
    pub tile: [usize; 2],
    pub a: Reader,
    pub b: Reader,
    /// What becomes of a result.
    pub result: Tape,
    /// Numbers of the launch from here on: tiles of a cube along a row and along a column of one matrix, cubes along rows
    /// and along columns.
    pub grid: usize,
}

impl GemmKey {
    /// Units of a cube, each with a tile.
    pub const UNITS: usize = 64;

    /// Two tiles of sums, a column of the left operand, and where each row and column is read.
    fn words(&self) -> usize {
        let [rows, columns] = self.tile;
        let places = match self.source {
            Source::Matrix | Source::Lines => 2,
            Source::Patches | Source::TransposedPatches => 5,
        };
        2 * rows * columns + rows * (1 + places) + columns
    }

    /// See [`Key::takes`].
    pub fn takes(&self) -> Takes {
        Takes { words: self.words(), shared_bytes: 0 }
    }
}

/// A convolution with a filter for each channel: what is known of its kernel when it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DepthwiseKey {
    pub source: Source,
    /// None where a unit sums up the pixels of a transposed convolution one by one.
    pub taps: Option<TapRow>,
    /// Neighbouring channels of a unit, which divide their number: it owns whole words of all that it stores.
    pub width: usize,
    /// Neighbouring pixels of a line of the result that a unit has in registers.
    pub pixels: usize,
    pub a: Reader,
    pub b: Reader,
    pub result: Tape,
}

impl DepthwiseKey {
    fn new(problem: &Problem, [a, b]: [Reader; 2], result: Tape) -> DepthwiseKey {
        let (taps, lanes, line) = (problem.tap_row(), result.lanes(), problem.line_width());
        let (width, pixels) = match taps {
            Some(row) => {
                let fits = |pixels: &usize| *pixels < 2 * line && pixels * lanes <= 8 && pixels * row.taps <= 64;
                (lanes, [8, 4, 2].into_iter().find(fits).unwrap_or(1))
            }
            // Which taps meet a pixel is found once for some channels: that costs more than the sums.
            None => {
                let divides = |n: &usize| problem.channels().is_multiple_of(*n);
                ([4, 2].into_iter().map(|n| n * lanes).find(divides).unwrap_or(lanes), 1)
            }
        };
        DepthwiseKey { source: problem.source, taps, width, pixels, a, b, result }
    }

    /// Units of a line of the result, and lines; for a filter's gradient units of a row of taps, and such rows with their
    /// parts of sums.
    fn units(&self, problem: &Problem) -> usize {
        let channels = problem.channels() / self.width;
        match (self.source, self.taps) {
            (Source::Lines, Some(row)) => channels * problem.phases / row.taps * problem.parts(),
            (_, None) => problem.elements / self.width,
            (_, Some(_)) => {
                let width = problem.line_width();
                channels * width.div_ceil(self.pixels) * (problem.elements / problem.channels() / width)
            }
        }
    }
}

/// A row of a filter's taps, which a unit meets with the pixels of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TapRow {
    pub taps: usize,
    /// From a pixel to the next, and from a tap to the next.
    pub step: usize,
    pub dilation: usize,
    /// Whether the last tap meets the first pixel.
    pub flipped: bool,
}

impl TapRow {
    /// How far behind the first one the pixel is that a tap meets for a pixel of the result.
    pub fn offset(&self, pixel: usize, tap: usize) -> usize {
        let tap = if self.flipped { self.taps - 1 - tap } else { tap };
        pixel * self.step + tap * self.dilation
    }

    /// Of all taps and some pixels of the result, each once and in order.
    pub fn offsets(&self, pixels: usize) -> Vec<usize> {
        let mut list: Vec<usize> =
            (0..pixels).flat_map(|pixel| (0..self.taps).map(move |tap| self.offset(pixel, tap))).collect();
        list.sort_unstable();
        list.dedup();
        list
    }
}

/// How an operand is read: by the register of a tape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    pub tape: Tape,
    pub register: usize,
}

/// Whether the product of a group is written to memory as it is before the chain over it runs: to the place that
/// [`Group::product_home`] names, where then nothing of before is left.
pub fn writes_product_first(graph: &Graph, group: &Group) -> bool {
    let root = graph.node(group.root());
    let Some(op) = root.op.contraction() else { return false };
    let problem = Problem::new(graph, op, root);
    match way(&problem) {
        Way::None => false,
        Way::Cubek => true,
        Way::Depthwise | Way::Gemm => problem.parts() == 1 && !is_stored_by_product(graph, group, &problem),
    }
}

/// How a product is computed: by shapes alone.
enum Way {
    /// There is nothing to sum up.
    None,
    /// By cubek, whose tiles in shared memory pay where all is large.
    Cubek,
    Depthwise,
    Gemm,
}

fn way(problem: &Problem) -> Way {
    let large = |n: usize| n >= 128;
    if problem.terms() == 0 {
        Way::None
    } else if problem.is_depthwise() {
        Way::Depthwise
    } else if problem.source == Source::Matrix && [problem.rows, problem.columns, problem.inner].into_iter().all(large)
    {
        Way::Cubek
    } else {
        Way::Gemm
    }
}

/// Whether units of the product own whole words of all that leaves the group.
fn is_stored_by_product(graph: &Graph, group: &Group, problem: &Problem) -> bool {
    let whole = |&v: &ValueId| {
        let elements = per_word(graph.ty(v).dtype);
        if problem.is_depthwise() {
            return problem.channels().is_multiple_of(elements);
        }
        problem.columns.is_multiple_of(elements) && tile(problem)[1].is_multiple_of(elements)
    };
    group.writes.iter().all(whole)
}

/// Rows and columns of a tile; the bits do not depend on it.
fn tile(problem: &Problem) -> [usize; 2] {
    let side = |extent: usize| extent.next_power_of_two().min(8);
    [side(problem.rows), side(problem.columns)]
}

impl Lowering<'_> {
    pub(super) fn contraction(&mut self, op: Contraction) {
        let root = self.graph.node(self.group.root());
        let problem = Problem::new(self.graph, op, root);
        match way(&problem) {
            Way::None => self.empty_sums(),
            Way::Cubek => self.cubek(),
            Way::Depthwise | Way::Gemm => self.product(&problem),
        }
    }

    /// Zeros, and the chain over them.
    fn empty_sums(&mut self) {
        let call = self.finish(|maker, raw| maker.zero(raw), self.place);
        self.push(call);
    }

    /// By cubek, with all chains around it.
    fn cubek(&mut self) {
        let (graph, group) = (self.graph, self.group);
        let root = graph.node(group.root());
        let Op::MatMul(op) = root.op else { unreachable!("{} by cubek", root.op.name()) };
        let raw = root.outputs[0];
        let mut own = self.computed_operands(|_, _| false);
        let home = match group.product_home(graph) {
            Some(home) => self.place(home),
            None => self.scratch(graph.ty(raw).bytes()),
        };
        own.insert(raw, home);
        let place = places(self.place, &own);
        let operand = |v: ValueId| (place(v), graph.shape(v).to_vec());
        let operands = [operand(root.inputs[0]), operand(root.inputs[1]), operand(raw)];
        let flops = cost(graph, group.root()).flops;
        let epilogue = (!group.epilogue().is_empty()).then(|| chain(graph, group.epilogue(), &group.writes, &place));
        self.lowered.steps.push(Step::Product(Product { op, operands, flops }));
        epilogue.into_iter().for_each(|call| self.push(call));
    }

    /// In one kernel where its units can finish what they summed up; else sums, or parts of sums, and then the chain over
    /// them.
    fn product(&mut self, problem: &Problem) {
        let (graph, group) = (self.graph, self.group);
        let root = graph.node(group.root());
        let raw = root.outputs[0];
        let reads = problem.reads(tile(problem));
        let inline = |side: usize, tape: &Tape| reads[side] == 1 || tape.work() <= MOST_WORK;
        let own = self.computed_operands(inline);
        let parts = problem.parts();
        if parts == 1 && is_stored_by_product(graph, group, problem) {
            let call = self.product_call(problem, &own, None);
            self.push(call);
        } else if parts == 1 {
            let home = match group.product_home(graph) {
                Some(home) => self.place(home),
                None => self.scratch(graph.ty(raw).bytes()),
            };
            let own_of_chain = HashMap::from([(raw, home)]);
            let calls = [
                self.product_call(problem, &own, Some(home)),
                chain(graph, group.epilogue(), &group.writes, &places(self.place, &own_of_chain)),
            ];
            calls.into_iter().for_each(|call| self.push(call));
        } else {
            let sums = self.scratch((parts * problem.elements * size_of::<f32>()) as u64);
            let calls = [
                self.product_call(problem, &own, Some(sums)),
                self.finish(|maker, raw| maker.summed(raw, sums, parts), self.place),
            ];
            calls.into_iter().for_each(|call| self.push(call));
        }
    }

    /// Computes in scratch those operands of the product that it does not compute while it reads them.
    fn computed_operands(&mut self, inline: impl Fn(usize, &Tape) -> bool) -> HashMap<ValueId, Place> {
        let (graph, group) = (self.graph, self.group);
        let mut own = HashMap::new();
        for (side, &v) in graph.node(group.root()).inputs.iter().enumerate() {
            let nodes = group.prologue_of(graph, v);
            let tape = self.reader(&mut Operands::default(), v, self.place).tape;
            if nodes.is_empty() || inline(side, &tape) {
                continue;
            }
            let computed = self.scratch(graph.ty(v).bytes());
            own.insert(v, computed);
            let call = chain(graph, &nodes, &[v], &places(self.place, &own));
            self.push(call);
        }
        own
    }

    /// An operand of the product as its kernel reads it, computed from what `place` finds.
    fn reader(&self, operands: &mut Operands, v: ValueId, place: &dyn Fn(ValueId) -> Place) -> Reader {
        let mut maker = TapeMaker::new(self.graph, self.graph.shape(v), place, operands);
        maker.run(&self.group.prologue_of(self.graph, v));
        let register = maker.value(v);
        Reader { tape: maker.tape, register }
    }

    /// The product. Its results go to `sums` as they are, or to where the chain of the group puts them.
    fn product_call(&self, problem: &Problem, own: &HashMap<ValueId, Place>, sums: Option<Place>) -> Call {
        let (graph, group) = (self.graph, self.group);
        let root = graph.node(group.root());
        let place = places(self.place, own);
        let mut operands = Operands::default();
        operands.numbers(problem.numbers());
        let mut read = |v: ValueId| match own.get(&v) {
            None => self.reader(&mut operands, v, &place),
            Some(&computed) => Reader::plain(&mut operands, computed),
        };
        let [a, b] = [0, 1].map(|side| read(root.inputs[side]));
        let result = match sums {
            None => self.chain_over(&mut operands, &place, |maker, raw| maker.given(raw)),
            Some(sums) => {
                let buffer = operands.buffer(sums, DType::F32);
                Tape { values: vec![Value::Given], stores: vec![Store { register: 0, buffer }] }
            }
        };
        let reads = problem.reads(tile(problem));
        let again = [&a, &b].into_iter().zip(root.inputs.iter().zip(reads));
        let again = again.map(|(reader, (&v, reads))| reader.work() * reads * graph.ty(v).elements());
        let flops = cost(graph, group.root()).flops + again.sum::<usize>() as u64;
        if problem.is_depthwise() {
            let key = DepthwiseKey::new(problem, [a, b], result);
            let grid = Grid::each(key.units(problem));
            return operands.call(Key::Depthwise(key), grid, flops);
        }
        gemm_call(problem, [a, b], result, operands, flops)
    }

    /// The chain of the group over its result, alone: `begin` fills the register of that.
    fn finish(&self, begin: impl FnOnce(&mut TapeMaker, ValueId), place: &dyn Fn(ValueId) -> Place) -> Call {
        let elements = self.graph.ty(self.graph.node(self.group.root()).outputs[0]).elements();
        let mut operands = Operands::default();
        operands.numbers([elements]);
        let tape = self.chain_over(&mut operands, place, begin);
        let grid = Grid::each(elements.div_ceil(tape.lanes()));
        let flops = (self.group.epilogue().len() * elements) as u64;
        operands.call(Key::Chain(tape), grid, flops)
    }

    fn chain_over(
        &self,
        operands: &mut Operands,
        place: &dyn Fn(ValueId) -> Place,
        begin: impl FnOnce(&mut TapeMaker, ValueId),
    ) -> Tape {
        let (graph, group) = (self.graph, self.group);
        let raw = graph.node(group.root()).outputs[0];
        let nodes: Vec<NodeId> = [&[group.root()], group.epilogue()].concat();
        let mut maker = TapeMaker::new(graph, graph.shape(raw), place, operands);
        begin(&mut maker, raw);
        maker.run(group.epilogue());
        maker.store(&nodes, &group.writes);
        maker.tape
    }
}

fn gemm_call(problem: &Problem, [a, b]: [Reader; 2], result: Tape, mut operands: Operands, flops: u64) -> Call {
    let tile = tile(problem);
    let tiles = [problem.rows.div_ceil(tile[0]), problem.columns.div_ceil(tile[1])];
    let across = tiles[1].next_power_of_two().min(8);
    let down = tiles[0].next_power_of_two().min(GemmKey::UNITS / across);
    let cubes = [tiles[0].div_ceil(down), tiles[1].div_ceil(across)];
    let grid = operands.numbers([across, down, cubes[0], cubes[1]]);
    // Where a matrix has few tiles, a cube has several matrices: no unit is there for nothing.
    let matrices = problem.outer * problem.phases * problem.parts();
    let count = cubes[0] * cubes[1] * matrices.div_ceil(GemmKey::UNITS / (across * down));
    let key = Key::Gemm(GemmKey { source: problem.source, tile, a, b, result, grid });
    operands.call(key, Grid { cubes: count, units: GemmKey::UNITS }, flops)
}

/// Where values of the group lie that have no place in the plan, and all others.
fn places(plan: &dyn Fn(ValueId) -> Place, own: &HashMap<ValueId, Place>) -> impl Fn(ValueId) -> Place {
    |v| own.get(&v).copied().unwrap_or_else(|| plan(v))
}

impl Reader {
    /// What is computed each time an element is read: none where it lies in memory as it is.
    fn work(&self) -> usize {
        if self.tape.values.len() == 1 { 0 } else { self.tape.work() }
    }

    /// An operand that lies in a place as it is.
    fn plain(operands: &mut Operands, place: Place) -> Reader {
        let buffer = operands.buffer(place, DType::F32);
        let values = vec![Value::Load { buffer, read: crate::tape::Read::Same }];
        Reader { tape: Tape { values, stores: Vec::new() }, register: 0 }
    }
}

/// Work, in about operations an element, that a product does again each time it reads an operand.
const MOST_WORK: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Three taps and four pixels meet six pixels side by side, nine by steps of two, and eight where taps are two apart.
    #[test]
    fn a_pixel_that_several_taps_meet_is_read_once() {
        for (step, dilation, expected) in [(1, 1, 6), (2, 1, 9), (1, 2, 8)] {
            for flipped in [false, true] {
                let row = TapRow { taps: 3, step, dilation, flipped };
                let offsets = row.offsets(4);
                assert_eq!(offsets.len(), expected, "{row:?}");
                assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
            }
        }
    }

    #[test]
    fn the_last_tap_of_a_flipped_row_meets_the_first_pixel() {
        let row = TapRow { taps: 3, step: 1, dilation: 2, flipped: true };
        assert_eq!([0, 1, 2].map(|tap| row.offset(0, tap)), [4, 2, 0]);
        assert_eq!(TapRow { flipped: false, ..row }.offset(5, 1), 7);
    }
}
