//! Rows of a table by their ids, and the gradient by the table.
//!
//! The gradient sums the rows of each id without atomics, in an order that follows from the ids alone: positions are sorted
//! by id (blocks of them, then all), blocks of sorted positions are summed up, and what a block shares with the next one is
//! joined. The work grows with the ids, not with the table, of which every row is only set to zero first.
//!
//! An id outside of the table reads nothing and writes nothing outside. It is never silent: its row is NaN, in the
//! gradient the first row of the table, and with either the loss of the step or of the next.

use memfit_ir::{DType, Node, Op, ValueId, cost};

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
    pub(super) fn gather(&mut self, node: &Node) {
        match node.op {
            Op::Gather => self.gathered_rows(node),
            Op::GatherGrad(_) => self.gather_grad(node),
            _ => unreachable!("{} gathers nothing", node.op.name()),
        }
    }

    fn gathered_rows(&mut self, node: &Node) {
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

    fn gather_grad(&mut self, node: &Node) {
        let [ids, gradient, result] = [node.inputs[0], node.inputs[1], node.outputs[0]];
        let (rows, columns) = (self.graph.shape(result)[0], self.graph.shape(result)[1]);
        let count = self.ty(ids).elements();
        self.fill(result, 0.0);
        if count == 0 {
            return;
        }
        let words = |n: usize| 4 * n as u64;
        let [keys, positions, sorted_keys, sorted_positions] = [(); 4].map(|()| self.scratch(words(count)));
        let mut operands = Operands::default();
        operands.numbers([count, rows]);
        let ids_index = self.index(&mut operands, ids);
        let [k, p] = [keys, positions].map(|place| operands.buffer(place, DType::I32).index);
        let key = GatherKey::SortBlocks { ids: ids_index, keys: k, positions: p };
        self.push(operands.call(Key::Gather(key), Grid::each(count), 0));

        let mut operands = Operands::default();
        operands.numbers([count]);
        let [k, p, sk, sp] =
            [keys, positions, sorted_keys, sorted_positions].map(|place| operands.buffer(place, DType::I32).index);
        let key = GatherKey::Merge { keys: k, positions: p, sorted_keys: sk, sorted_positions: sp };
        self.push(operands.call(Key::Gather(key), Grid::each(count), 0));

        let block = SUMMED_BLOCK.max(count.div_ceil(JOINED_BLOCKS));
        let units = count.div_ceil(block) * columns;
        let [heads, tails] = [(); 2].map(|()| self.scratch(words(units)));
        let numbers = [units, columns, count, block, rows];
        let flops = cost(self.graph, self.group.root()).flops;
        let mut operands = Operands::default();
        operands.numbers(numbers);
        let [sk, sp, h, t] =
            [sorted_keys, sorted_positions, heads, tails].map(|p| operands.buffer(p, DType::I32).index);
        let sorted = Sorted { keys: sk, positions: sp };
        let [ids, gradient, out] = [ids, gradient, result].map(|v| self.index(&mut operands, v));
        let key = GatherKey::SumBlocks { ids, sorted, gradient, heads: h, tails: t, result: out };
        let mut call = operands.call(Key::Gather(key), Grid::each(units), flops);
        // The rows of the gradient, read once and written at most once.
        call.bytes = 2 * words(count * columns);
        self.push(call);
        if units == columns {
            // One block shares nothing.
            return;
        }
        let mut operands = Operands::default();
        operands.numbers(numbers);
        let [sk, sp, h, t] =
            [sorted_keys, sorted_positions, heads, tails].map(|p| operands.buffer(p, DType::I32).index);
        let out = self.index(&mut operands, result);
        let sorted = Sorted { keys: sk, positions: sp };
        let key = GatherKey::JoinBlocks { sorted, heads: h, tails: t, result: out };
        let mut call = operands.call(Key::Gather(key), Grid::each(units), 0);
        call.bytes = 2 * words(units);
        self.push(call);
    }

    fn index(&self, operands: &mut Operands, v: ValueId) -> usize {
        operands.buffer(self.place(v), self.ty(v).dtype).index
    }
}
