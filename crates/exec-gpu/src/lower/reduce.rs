//! Reductions: one number of many, over any axes; and those of batch norm, a channel each.

use memfit_ir::op::{Eps, Reduce, ReduceKind};
use memfit_ir::{Node, ValueId, cost};

use super::Lowering;
use super::cells::Cells;
use super::fold::{At, Constants, Finish, Folding, Kind, Statistics, Terms};

impl Lowering<'_> {
    pub(super) fn reduce(&mut self, node: &Node, r: &Reduce) {
        let values = self.values();
        let x = node.inputs[0];
        let cells = Cells::over(&self.ty(x).shape, &r.axes);
        let (kind, divisor) = match r.kind {
            ReduceKind::Sum | ReduceKind::SumSquares => (Kind::Sum, 1),
            ReduceKind::Mean => (Kind::Sum, cells.term_count()),
            ReduceKind::Max => (Kind::Max, 1),
        };
        self.fold(&Folding {
            cells,
            kind,
            constants: Constants { divisor, ..Constants::default() },
            flops: self.flops(),
            terms: &|o| match r.kind {
                ReduceKind::Sum | ReduceKind::Mean | ReduceKind::Max => Terms::Element(values.operand(o, x)),
                ReduceKind::SumSquares => Terms::Square(values.operand(o, x)),
            },
            finish: &|_| Finish::Divide,
            results: [Some(self.place(node.outputs[0])), None],
            apply: None,
        });
    }

    pub(super) fn batch_stats(&mut self, node: &Node) {
        let values = self.values();
        let x = node.inputs[0];
        self.fold(&Folding {
            cells: self.channels(x),
            kind: Kind::Moments,
            constants: Constants::default(),
            flops: self.flops(),
            terms: &|o| Terms::Element(values.operand(o, x)),
            finish: &|_| Finish::Variance,
            results: [0, 1].map(|i| Some(self.place(node.outputs[i]))),
            apply: None,
        });
    }

    pub(super) fn batch_grad_reduce(&mut self, node: &Node, Eps(eps): Eps) {
        let values = self.values();
        let [x, mean, var, dy] = [0, 1, 2, 3].map(|i| node.inputs[i]);
        self.fold(&Folding {
            cells: self.channels(x),
            kind: Kind::TwoSums,
            constants: Constants { parameter: eps, ..Constants::default() },
            flops: self.flops(),
            terms: &|o| Terms::Channel {
                x: values.operand(o, x),
                dy: values.operand(o, dy),
                norm: Statistics {
                    mean: Some(values.operand(o, mean)),
                    rstd: values.operand(o, var),
                    is_variance: true,
                },
                at: At::Channel,
            },
            finish: &|_| Finish::Divide,
            results: [0, 1].map(|i| Some(self.place(node.outputs[i]))),
            apply: None,
        });
    }

    /// A cell for each channel, over all axes but the last.
    pub(super) fn channels(&self, x: ValueId) -> Cells {
        let shape = &self.ty(x).shape;
        Cells::over(shape, &(0..shape.rank() - 1).collect::<Vec<_>>())
    }

    pub(super) fn flops(&self) -> u64 {
        cost(self.graph, self.group.root()).flops
    }
}
