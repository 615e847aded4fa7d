//! Softmax and cross-entropy over the last axis.
//!
//! An input that is classes is looked at before a device is given it. A class that is computed there and is outside of its range
//! reads and writes nothing outside of its row, and is never silent: the loss of its row is NaN, and so is the gradient.

use memfit_ir::op::{CrossEntropy, Softmax};
use memfit_ir::{DType, Node, ValueId};

use super::Lowering;
use super::cells::Cells;
use super::fold::{Apply, Class, Constants, Finish, Folding, Kind, Terms};
use crate::call::Operands;

impl Lowering<'_> {
    pub(super) fn softmax(&mut self, node: &Node, Softmax { log }: Softmax) {
        let values = self.values();
        let (x, y) = (node.inputs[0], node.outputs[0]);
        self.fold(&Folding {
            cells: self.last_axis(x),
            kind: Kind::LogSumExp,
            constants: Constants::default(),
            flops: self.flops(),
            terms: &|o| Terms::Element(values.operand(o, x)),
            finish: &|_| Finish::LargestAndSum,
            results: [None, None],
            apply: Some(&|o| Apply::Softmax { x: values.operand(o, x), y: values.operand(o, y), log }),
        });
    }

    pub(super) fn softmax_grad(&mut self, node: &Node, Softmax { log }: Softmax) {
        let values = self.values();
        let [y, dy, dx] = [node.inputs[0], node.inputs[1], node.outputs[0]];
        self.fold(&Folding {
            cells: self.last_axis(y),
            kind: Kind::Sum,
            constants: Constants::default(),
            flops: self.flops(),
            terms: &|o| {
                if log {
                    Terms::Element(values.operand(o, dy))
                } else {
                    Terms::Product(values.operand(o, y), values.operand(o, dy))
                }
            },
            finish: &|_| Finish::Divide,
            results: [None, None],
            apply: Some(&|o| Apply::SoftmaxGrad {
                y: values.operand(o, y),
                dy: values.operand(o, dy),
                dx: values.operand(o, dx),
                log,
            }),
        });
    }

    /// Log-sum-exp; and the loss with it where it is that of one class alone, else by a second fold.
    pub(super) fn cross_entropy(&mut self, node: &Node, c: CrossEntropy) {
        let values = self.values();
        let [logits, labels] = [node.inputs[0], node.inputs[1]];
        let [loss, lse] = [node.outputs[0], node.outputs[1]];
        let one_class = self.ty(labels).dtype == DType::I32 && c.smoothing == 0.0;
        let class = |o: &mut Operands| Class { logits: values.operand(o, logits), labels: values.operand(o, labels) };
        self.fold(&Folding {
            cells: self.last_axis(logits),
            kind: Kind::LogSumExp,
            constants: self.label_constants(logits, c),
            flops: self.flops(),
            terms: &|o| Terms::Element(values.operand(o, logits)),
            finish: &|o| Finish::LogSumExp { class: one_class.then(|| class(o)) },
            results: [one_class.then(|| self.place(loss)), Some(self.place(lse))],
            apply: None,
        });
        if one_class {
            return;
        }
        self.fold(&Folding {
            cells: self.last_axis(logits),
            kind: Kind::Sum,
            constants: self.label_constants(logits, c),
            flops: self.flops(),
            terms: &|o| Terms::CrossEntropy {
                logits: values.operand(o, logits),
                labels: values.operand(o, labels),
                lse: values.operand(o, lse),
            },
            finish: &|o| Finish::CrossEntropy { labels: values.operand(o, labels) },
            results: [Some(self.place(loss)), None],
            apply: None,
        });
    }

    pub(super) fn cross_entropy_grad(&mut self, node: &Node, c: CrossEntropy) {
        let values = self.values();
        let [logits, labels, lse, dloss] = [0, 1, 2, 3].map(|i| node.inputs[i]);
        let apply = |o: &mut Operands| Apply::CrossEntropyGrad {
            logits: values.operand(o, logits),
            labels: values.operand(o, labels),
            lse: values.operand(o, lse),
            dloss: values.operand(o, dloss),
            dlogits: values.operand(o, node.outputs[0]),
        };
        let (cells, constants) = (self.last_axis(logits), self.label_constants(logits, c));
        if self.ty(labels).dtype == DType::I32 {
            return self.apply(&cells, constants, [None, None], &apply);
        }
        self.fold(&Folding {
            cells,
            kind: Kind::Sum,
            constants,
            flops: self.flops(),
            terms: &|o| Terms::Element(values.operand(o, labels)),
            finish: &|_| Finish::Divide,
            results: [None, None],
            apply: Some(&apply),
        });
    }

    fn last_axis(&self, x: ValueId) -> Cells {
        let shape = &self.ty(x).shape;
        Cells::over(shape, &[shape.rank() - 1])
    }

    fn label_constants(&self, logits: ValueId, c: CrossEntropy) -> Constants {
        let shape = &self.ty(logits).shape;
        Constants { parameter: c.smoothing, channels: shape[shape.rank() - 1], ..Constants::default() }
    }
}
