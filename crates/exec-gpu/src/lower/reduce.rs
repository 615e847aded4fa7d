//! Reductions: one number of many, over any axes.

use memfit_ir::op::{Reduce, ReduceKind};
use memfit_ir::{Node, Op};

use super::Lowering;
use super::fold::{Cells, Terms};
use crate::call::Operands;

impl Lowering<'_> {
    pub(super) fn reduction(&mut self, node: &Node) {
        match &node.op {
            Op::Reduce(r) => self.reduce(node, r),
            op => unreachable!("{} was not supported", op.name()),
        }
    }

    fn reduce(&mut self, node: &Node, r: &Reduce) {
        let (x, y) = (node.inputs[0], node.outputs[0]);
        let cells = Cells::over(&self.ty(x).shape, &r.axes);
        let mut operands = Operands::default();
        let from = operands.buffer(self.place(x), self.ty(x).dtype);
        let (terms, divisor) = match r.kind {
            ReduceKind::Sum => (Terms::Sum(from), 1),
            ReduceKind::Mean => (Terms::Sum(from), cells.term_count()),
            ReduceKind::Max => (Terms::Max(from), 1),
            ReduceKind::SumSquares => (Terms::SumSquares(from), 1),
        };
        self.fold(operands, terms, &cells, divisor, self.place(y));
    }
}
