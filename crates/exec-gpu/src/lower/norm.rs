//! Norms that make their own statistics. All are norms over groups: layer and RMS norm are such that each row is a sample of one
//! group.

use memfit_ir::op::Eps;
use memfit_ir::{Node, Op, Shape};

use super::Lowering;
use super::cells::Cells;
use super::fold::{Apply, At, Constants, Finish, Folding, Kind, Statistics, Terms};
use crate::call::Operands;

/// The cells of a norm.
struct Groups {
    samples: usize,
    /// Rows of a sample.
    rows: usize,
    groups: usize,
    channels: usize,
}

impl Groups {
    /// Each row a sample.
    fn rows(shape: &Shape) -> Groups {
        let channels = shape[shape.rank() - 1];
        Groups { samples: shape.elements() / channels, rows: 1, groups: 1, channels }
    }

    fn new(shape: &Shape, groups: usize) -> Groups {
        let (samples, channels) = (shape[0], shape[shape.rank() - 1]);
        Groups { samples, rows: shape.elements() / samples / channels, groups, channels }
    }

    fn cells(&self) -> Cells {
        Cells::over(&[self.samples, self.rows, self.groups, self.channels / self.groups], &[1, 3])
    }

    fn constants(&self, eps: f32) -> Constants {
        Constants {
            divisor: self.rows * self.channels / self.groups,
            parameter: eps,
            channels: self.channels,
            sample_rows: self.rows,
            groups: self.groups,
            group_channels: self.channels / self.groups,
        }
    }
}

impl Lowering<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only norms come here")]
    pub(super) fn norm(&mut self, node: &Node) {
        let shape = &self.ty(node.inputs[0]).shape;
        match node.op {
            Op::LayerNorm(Eps(eps)) => self.norm_forward(node, &Groups::rows(shape), eps, true),
            Op::RmsNorm(Eps(eps)) => self.norm_forward(node, &Groups::rows(shape), eps, false),
            Op::GroupNorm(g) => self.norm_forward(node, &Groups::new(shape, g.groups), g.eps, true),
            Op::LayerNormGrad => self.norm_grad(node, &Groups::rows(shape), true),
            Op::RmsNormGrad => self.norm_grad(node, &Groups::rows(shape), false),
            Op::GroupNormGrad(groups) => self.norm_grad(node, &Groups::new(shape, groups), true),
            ref op => unreachable!("{} is no norm", op.name()),
        }
    }

    fn norm_forward(&mut self, node: &Node, groups: &Groups, eps: f32, has_mean: bool) {
        let values = self.values();
        let (x, scale, bias) = (node.inputs[0], node.inputs[1], node.inputs.get(2).copied());
        let out = |i: usize| Some(values.place(node.outputs[i]));
        self.fold(&Folding {
            cells: groups.cells(),
            kind: if has_mean { Kind::Moments } else { Kind::Sum },
            constants: groups.constants(eps),
            flops: self.flops(),
            terms: &|o| {
                let x = values.operand(o, x);
                if has_mean { Terms::Element(x) } else { Terms::Square(x) }
            },
            finish: &|_| if has_mean { Finish::Rstd } else { Finish::RootMeanSquare },
            results: if has_mean { [out(1), out(2)] } else { [None, out(1)] },
            apply: Some(&|o| Apply::Norm {
                x: values.operand(o, x),
                scale: values.operand(o, scale),
                bias: bias.map(|bias| values.operand(o, bias)),
                y: values.operand(o, node.outputs[0]),
            }),
        });
    }

    /// By scale and bias first: dx may lie where x or dy lies.
    fn norm_grad(&mut self, node: &Node, groups: &Groups, has_mean: bool) {
        let values = self.values();
        let x = node.inputs[0];
        let (mean, rest) = if has_mean { (Some(node.inputs[1]), &node.inputs[2..]) } else { (None, &node.inputs[1..]) };
        let [rstd, scale, dy] = [rest[0], rest[1], rest[2]];
        let kind = if has_mean { Kind::TwoSums } else { Kind::Sum };
        let norm = |o: &mut Operands| Statistics {
            mean: mean.map(|v| values.operand(o, v)),
            rstd: values.operand(o, rstd),
            is_variance: false,
        };
        self.fold(&Folding {
            cells: self.channels(x),
            kind,
            constants: Constants { divisor: 1, ..groups.constants(0.0) },
            flops: self.flops() / 2,
            terms: &|o| Terms::Channel {
                x: values.operand(o, x),
                dy: values.operand(o, dy),
                norm: norm(o),
                at: At::Group,
            },
            finish: &|_| Finish::Divide,
            results: [Some(self.place(node.outputs[1])), node.outputs.get(2).map(|&v| self.place(v))],
            apply: None,
        });
        self.fold(&Folding {
            cells: groups.cells(),
            kind,
            constants: groups.constants(0.0),
            flops: self.flops() / 2,
            terms: &|o| Terms::Norm {
                x: values.operand(o, x),
                dy: values.operand(o, dy),
                scale: values.operand(o, scale),
                norm: norm(o),
            },
            finish: &|_| Finish::Divide,
            results: [None, None],
            apply: Some(&|o| Apply::NormGrad {
                x: values.operand(o, x),
                dy: values.operand(o, dy),
                scale: values.operand(o, scale),
                norm: norm(o),
                dx: values.operand(o, node.outputs[0]),
            }),
        });
    }
}
