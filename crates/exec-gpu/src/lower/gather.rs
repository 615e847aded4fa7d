//! Rows of a table by their ids, and the gradient by the table.
//!
//! The gradient sums the rows of each id without atomics, in an order that follows from the ids alone: positions are sorted
//! by id (blocks of them, then all), blocks of sorted positions are summed up, and what a block shares with the next one is
//! joined. The work grows with the ids, not with the table, of which every row is only set to zero first.
//!
//! An id outside of the table reads nothing and writes nothing outside. It is never silent: its row is NaN, in the
//! gradient the first row of the table, and with either the loss of the step or of the next.

use memfit_ir::{DType, Node, ValueId, cost};
use memfit_plan::Place;

use super::Lowering;
use crate::call::{Grid, Key, Operands};

/// Positions that are sorted by looking at all of them.
pub const SORTED_BLOCK: usize = 256;
/// Rows that one unit adds up, at least; of very many ids more, so that no sum of blocks is longer than `JOINED_BLOCKS`.
const SUMMED_BLOCK: usize = 64;
const JOINED_BLOCKS: usize = 1024;

/// What one launch does, with the numbers of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GatherKey {
    /// Numbers: elements of the result, columns, rows of the table.
    Rows { table: usize, ids: usize, rows: usize },
    /// Numbers: ids, rows of the table.
    SortBlocks { ids: usize, keys: usize, positions: usize },
    /// Numbers: ids.
    Merge { keys: usize, positions: usize, sorted_keys: usize, sorted_positions: usize },
    /// Numbers: units, columns, ids, ids of a block, rows of the table.
    SumBlocks { ids: usize, sorted: Sorted, gradient: usize, heads: usize, tails: usize, result: usize },
    /// Numbers: as above.
    JoinBlocks { sorted: Sorted, heads: usize, tails: usize, result: usize },
}

/// Ids in ascending order, and where each stood; equal ones in the order in which they stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sorted {
    pub keys: usize,
    pub positions: usize,
}

impl GatherKey {
    pub fn name(self) -> &'static str {
        match self {
            GatherKey::Rows { .. } => "gather",
            GatherKey::SortBlocks { .. } => "gather grad: sort",
            GatherKey::Merge { .. } => "gather grad: merge",
            GatherKey::SumBlocks { .. } => "gather grad: sum",
            GatherKey::JoinBlocks { .. } => "gather grad: join",
        }
    }

    /// An operand that it writes.
    pub fn result(self) -> usize {
        match self {
            GatherKey::Rows { rows, .. } => rows,
            GatherKey::SortBlocks { keys, .. } => keys,
            GatherKey::Merge { sorted_keys, .. } => sorted_keys,
            GatherKey::SumBlocks { result, .. } | GatherKey::JoinBlocks { result, .. } => result,
        }
    }
}

impl Lowering<'_> {
    pub(super) fn gathered_rows(&mut self, node: &Node) {
        let [table, ids, y] = [node.inputs[0], node.inputs[1], node.outputs[0]];
        let (rows, columns) = (self.graph.shape(table)[0], self.graph.shape(table)[1]);
        if rows == 0 {
            // No id is inside of an empty table.
            return self.fill(y, f32::NAN);
        }
        let elements = self.ty(y).elements();
        let mut operands = Operands::default();
        operands.numbers([elements, columns, rows]);
        let [table, ids, rows] = [table, ids, y].map(|v| self.index(&mut operands, v));
        let mut call = operands.call(Key::Gather(GatherKey::Rows { table, ids, rows }), Grid::each(elements), 0);
        // Not the whole table.
        call.bytes = 2 * self.ty(y).bytes() + self.ty(node.inputs[1]).bytes();
        self.push(call);
    }

    pub(super) fn gather_grad(&mut self, node: &Node) {
        let [ids, gradient, result] = [node.inputs[0], node.inputs[1], node.outputs[0]];
        self.fill(result, 0.0);
        if self.ty(ids).elements() > 0 {
            let sorted = self.sort(ids, self.graph.shape(result)[0]);
            self.sum_rows(ids, sorted, gradient, result);
        }
    }

    /// The places of ids in ascending order and of their positions.
    fn sort(&mut self, ids: ValueId, rows: usize) -> [Place; 2] {
        let count = self.ty(ids).elements();
        let [keys, positions, sorted_keys, sorted_positions] = [(); 4].map(|()| self.scratch(words(count)));
        let mut operands = Operands::default();
        operands.numbers([count, rows]);
        let ids = self.index(&mut operands, ids);
        let [k, p] = words_of(&mut operands, [keys, positions]);
        let key = GatherKey::SortBlocks { ids, keys: k, positions: p };
        self.push(operands.call(Key::Gather(key), Grid::each(count), 0));

        let mut operands = Operands::default();
        operands.numbers([count]);
        let [k, p, sk, sp] = words_of(&mut operands, [keys, positions, sorted_keys, sorted_positions]);
        let key = GatherKey::Merge { keys: k, positions: p, sorted_keys: sk, sorted_positions: sp };
        self.push(operands.call(Key::Gather(key), Grid::each(count), 0));
        [sorted_keys, sorted_positions]
    }

    fn sum_rows(&mut self, ids: ValueId, sorted: [Place; 2], gradient: ValueId, result: ValueId) {
        let (rows, columns) = (self.graph.shape(result)[0], self.graph.shape(result)[1]);
        let count = self.ty(ids).elements();
        let block = SUMMED_BLOCK.max(count.div_ceil(JOINED_BLOCKS));
        let blocks = count.div_ceil(block);
        let units = blocks * columns;
        let [heads, tails] = [(); 2].map(|()| self.scratch(words(units)));
        let start = || {
            let mut operands = Operands::default();
            operands.numbers([units, columns, count, block, rows]);
            let [keys, positions, h, t] = words_of(&mut operands, [sorted[0], sorted[1], heads, tails]);
            (operands, Sorted { keys, positions }, h, t)
        };
        let (mut operands, sorted, h, t) = start();
        let [ids, gradient, out] = [ids, gradient, result].map(|v| self.index(&mut operands, v));
        let key = GatherKey::SumBlocks { ids, sorted, gradient, heads: h, tails: t, result: out };
        let flops = cost(self.graph, self.group.root()).flops;
        let mut call = operands.call(Key::Gather(key), Grid::each(units), flops);
        // The rows of the gradient, read once and written at most once.
        call.bytes = 2 * words(count * columns);
        self.push(call);
        // One block shares nothing.
        if blocks > 1 {
            let (mut operands, sorted, h, t) = start();
            let out = self.index(&mut operands, result);
            let key = GatherKey::JoinBlocks { sorted, heads: h, tails: t, result: out };
            let mut call = operands.call(Key::Gather(key), Grid::each(units), 0);
            call.bytes = 2 * words(units);
            self.push(call);
        }
    }

    fn index(&self, operands: &mut Operands, v: ValueId) -> usize {
        operands.buffer(self.place(v), self.ty(v).dtype).index
    }
}

/// Bytes of so many words.
fn words(n: usize) -> u64 {
    4 * n as u64
}

fn words_of<const N: usize>(operands: &mut Operands, places: [Place; N]) -> [usize; N] {
    places.map(|place| operands.buffer(place, DType::I32).index)
}

#[cfg(test)]
mod tests {
    use memfit_ir::op::GatherGrad;
    use memfit_ir::{Builder, Graph, Op, TensorType};
    use memfit_transform::group::group;

    use super::*;
    use crate::fusion::fusion;
    use crate::lower::{Lowered, Step, estimate};

    fn gradient(rows: usize, ids: usize) -> Graph {
        let mut b = Builder::new();
        let i = b.input("ids", TensorType::i32([ids])).expect("ids");
        let dy = b.input("dy", TensorType::f32([ids, 768])).expect("a gradient");
        let dtable = b.op(Op::GatherGrad(GatherGrad { rows }), &[i, dy]).expect("a gradient");
        b.output("dtable", dtable);
        b.finish()
    }

    fn lowered(graph: &Graph) -> Lowered {
        estimate(graph, &group(graph, &fusion(8))[0], 256)
    }

    #[test]
    fn beyond_its_zeros_a_gradient_costs_as_much_as_its_ids_whatever_the_table() {
        let launches = |rows: usize| -> Vec<(&'static str, Grid)> {
            let calls = lowered(&gradient(rows, 1024)).steps.into_iter().skip(1);
            calls.map(|step| if let Step::Call(c) = step { (c.key.name(), c.grid) } else { unreachable!() }).collect()
        };
        assert_eq!(launches(50_000), launches(100));
        assert_eq!(launches(100).len(), 4);
        assert_eq!(lowered(&gradient(50_000, 1024)).scratch, lowered(&gradient(100, 1024)).scratch);
    }

    #[test]
    fn no_kernel_of_a_gradient_has_more_operands_than_every_device_binds() {
        for ids in [1, 64, 65, 100_000] {
            for step in lowered(&gradient(10, ids)).steps {
                let Step::Call(call) = step else { unreachable!("no product is in it") };
                assert!(call.operands.len() <= 8, "{call:?}");
            }
        }
    }
}
