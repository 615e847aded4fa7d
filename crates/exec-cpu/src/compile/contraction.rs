//! What a contraction contracts: its sizes, and what follows from them alone.

use memfit_ir::{Graph, Node, Op};

use crate::Cpu;
use crate::conv::{ConvShape, Product};
use crate::gemm::{self, A, B, Gemm, Micro, Operands, Rows, Taps};
use crate::kernels::Image;
use crate::kernels::depthwise::Depthwise;
use crate::kernels::depthwise_filter::depthwise_filter_grad_scratch;
use crate::winograd::{self, Geometry};

/// What is contracted, with its sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contraction {
    MatMul(Sizes),
    Conv(ConvShape, Product),
}

impl Contraction {
    /// Of a node that is one.
    pub(crate) fn new(graph: &Graph, node: &Node) -> Option<Contraction> {
        let input = |i: usize| graph.shape(node.inputs[i]);
        let y = || graph.shape(node.outputs[0]);
        match &node.op {
            Op::MatMul(m) => {
                let (a, b, y) = (input(0), input(1), y());
                let rank = y.len();
                let (rows, n) = (y[rank - 2], y[rank - 1]);
                let k = if m.transpose_b { b[b.len() - 1] } else { b[b.len() - 2] };
                let batch: usize = y[..rank - 2].iter().product();
                // A right side without a batch is one product with all the rows of the left side.
                let (batch, rows) = if b.len() < a.len() { (1, batch * rows) } else { (batch, rows) };
                let (transpose_a, transpose_b) = (m.transpose_a, m.transpose_b);
                Some(Contraction::MatMul(Sizes { batch, m: rows, n, k, transpose_a, transpose_b }))
            }
            Op::Conv(c) => {
                let filter = [input(1)[0], input(1)[1]];
                Some(Contraction::Conv(conv_shape(*c, input(0), filter, y()), Product::Forward))
            }
            Op::ConvTranspose(c) => {
                let filter = [input(1)[0], input(1)[1]];
                Some(Contraction::Conv(conv_shape(c.conv, y(), filter, input(0)), Product::Transposed))
            }
            Op::ConvFilter(c) => {
                Some(Contraction::Conv(conv_shape(c.conv, input(0), c.size, input(1)), Product::Filter))
            }
            Op::Input(_)
            | Op::State(_)
            | Op::Fill(_)
            | Op::Unary(_)
            | Op::UnaryGrad(_)
            | Op::Mask(_)
            | Op::MaskGrad(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Dropout(_)
            | Op::Reduce(_)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Slice(_)
            | Op::Concat(_)
            | Op::Pad(_)
            | Op::Broadcast(_)
            | Op::MaxPool(_)
            | Op::MaxPoolGrad(_)
            | Op::AvgPool(_)
            | Op::AvgPoolGrad(_)
            | Op::Upsample(_)
            | Op::UpsampleGrad(_)
            | Op::BatchStats
            | Op::BatchApply(_)
            | Op::BatchGradReduce(_)
            | Op::BatchGradInput(_)
            | Op::BatchUpdate(_)
            | Op::LayerNorm(_)
            | Op::LayerNormGrad
            | Op::RmsNorm(_)
            | Op::RmsNormGrad
            | Op::GroupNorm(_)
            | Op::GroupNormGrad(_)
            | Op::Softmax(_)
            | Op::SoftmaxGrad(_)
            | Op::CrossEntropy(_)
            | Op::CrossEntropyGrad(_)
            | Op::Gather
            | Op::GatherGrad(_)
            | Op::Attention(_)
            | Op::AttentionGrad(_)
            | Op::Update(_)
            | Op::Join(_)
            | Op::Replicate(_) => None,
        }
    }

    /// Whether it has one filter a channel.
    pub(crate) fn is_depthwise(&self) -> bool {
        matches!(self, Contraction::Conv(shape, _) if shape.is_depthwise())
    }

    /// How many times fewer multiplications it takes here than its definition has.
    pub(crate) fn gain(&self) -> f64 {
        match self {
            Contraction::Conv(shape, product) => Geometry::new(shape, *product).map_or(1.0, |g| g.gain()),
            Contraction::MatMul(_) => 1.0,
        }
    }

    /// How often it reads an operand, one part of its columns after the other.
    pub(crate) fn times_read(&self, cpu: &Cpu) -> usize {
        let Contraction::Conv(shape, product) = self else { return 1 };
        let (micro, threads) = (Micro::new(cpu.isa), cpu.pool.threads());
        Geometry::new(shape, *product).map_or(1, |g| match product {
            Product::Forward | Product::Transposed => winograd::times_read(&micro, &g, threads),
            Product::Filter => winograd::filter_times_read(&micro, &g),
        })
    }

    /// Elements of scratch of the product itself.
    pub(super) fn scratch_len(&self, cpu: &Cpu, prologues: [bool; 2]) -> usize {
        let micro = Micro::new(cpu.isa);
        let threads = cpu.pool.threads();
        match self {
            Contraction::MatMul(s) => {
                let product = s.product(0, Operands::unplaced(prologues));
                // Threads that have products of their own share nothing of them.
                if s.one_a_thread(threads) {
                    threads * gemm::scratch_len(&micro, &product, 1)
                } else {
                    gemm::scratch_len(&micro, &product, threads)
                }
            }
            Contraction::Conv(shape, Product::Filter) if shape.is_depthwise() => {
                depthwise_filter_grad_scratch(&depthwise_of(shape), image_of(shape))
            }
            Contraction::Conv(shape, _) if shape.is_depthwise() => 0,
            Contraction::Conv(shape, product) => shape.scratch_len(&micro, *product, prologues, threads),
        }
    }
}

/// A batch of products.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(super) batch: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    transpose_a: bool,
    transpose_b: bool,
}

impl Sizes {
    /// Whether each thread makes whole products, or all of them make one after the other together.
    pub(super) fn one_a_thread(&self, threads: usize) -> bool {
        self.batch >= 2 * threads
    }

    /// One product of the batch.
    pub(super) fn product<'a>(&self, i: usize, operands: Operands<'a>) -> Gemm<'a> {
        let s = self;
        Gemm {
            m: s.m,
            n: s.n,
            k: s.k,
            a: if s.transpose_a { A::Columns { stride: s.m } } else { A::Rows { stride: s.k } },
            b: if s.transpose_b {
                B::Taps { stride: s.k, per_tap: s.k.max(1), taps: Taps::ONE }
            } else {
                B::Rows { stride: s.n }
            },
            rows: Rows::plain(s.n),
            operands: operands.skip([i * s.m * s.k, i * s.k * s.n, i * s.m * s.n]),
        }
    }
}

fn conv_shape(conv: memfit_ir::op::Conv, x: &[usize], filter: [usize; 2], y: &[usize]) -> ConvShape {
    ConvShape {
        batch: x[0],
        image: [x[1], x[2]],
        channels_in: x[3],
        channels_out: y[3],
        filter,
        out: [y[1], y[2]],
        conv,
    }
}

pub(super) fn depthwise_of(shape: &ConvShape) -> Depthwise {
    Depthwise { conv: shape.conv, filter: shape.filter }
}

pub(super) fn image_of(shape: &ConvShape) -> Image {
    Image::new(shape.batch, shape.image[0], shape.image[1], shape.channels_in)
}
