//! Products and convolutions where kernels change their way: results of few bits, nothing to sum up, long sums, and the sizes
//! from which on cubek computes.
#![cfg(feature = "gpu")]

mod common;

use std::collections::HashMap;

use common::{gpu, graph};
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::{Expected, Planned, Runner, Settings, Tensor, check_same, round_to};
use memfit_ir::op::{Conv, ConvFilter, ConvTranspose, MatMul, Pad2, Unary};
use memfit_ir::{Builder, DType, Graph, Op, TensorType, ValueId, philox};
use memfit_transform::Grouping;

/// Fused and alone, squeezed and not: right, and the same bits.
fn check(what: &str, graph: &Graph) {
    if gpu().is_none() {
        return;
    }
    let drawn = |(name, v): (&str, ValueId)| {
        let ty = graph.ty(v);
        let data = philox::normal(7, name, ty.elements()).map(|x| round_to(ty.dtype, f64::from(x))).collect();
        (name.to_string(), Tensor::new(ty.clone(), data).unwrap())
    };
    let (inputs, states) = (graph.inputs().map(drawn).collect(), HashMap::new());
    let expected = Expected::new(graph, &inputs, &states).unwrap();
    let ways = [(Grouping::Fused, 0), (Grouping::Fused, 100), (Grouping::Single, 100)];
    let results = ways.map(|(grouping, squeeze)| {
        let settings = Settings { grouping, squeeze, poison: true };
        let given = Planned::new(|| GpuExecutor::new(0), settings).run(graph, &inputs, &states);
        given.unwrap_or_else(|e| panic!("{what}, {settings:?}: {e}"))
    });
    expected.check(&results[0]).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (name, first) in &results[0].outputs {
        for other in &results[1..] {
            check_same(&format!("{what}: {name}"), first, &other.outputs[name]).unwrap();
        }
    }
}

fn f32(b: &mut Builder, name: &str, shape: &[usize]) -> memfit_ir::Result<ValueId> {
    b.input(name, TensorType::f32(shape))
}

fn conv(stride: usize, groups: usize) -> Conv {
    let pad = Pad2 { top: 1, bottom: 0, left: 2, right: 1 };
    Conv { stride: [stride, 1], pad, dilation: [1, 2], groups }
}

/// Units own whole words of what they store, or leave it to a chain.
#[test]
fn results_of_few_bits_leave_a_contraction() {
    let finish = |b: &mut Builder, product: ValueId| {
        let channels = b.shape(product).last().copied().unwrap_or(1);
        let bias = f32(b, "bias", &[channels])?;
        let sum = b.add(product, bias)?;
        let y = b.relu(sum)?;
        for (name, dtype) in [("bf16", DType::BF16), ("f16", DType::F16), ("u8", DType::U8)] {
            let cast = b.cast(y, dtype)?;
            b.output(name, cast);
        }
        let bits = b.op(Op::Mask(Unary::Relu), &[y])?;
        b.output("bits", bits);
        Ok(())
    };
    for columns in [1, 3, 4, 6, 8, 33] {
        let product = graph(|b| {
            let (a, w) = (f32(b, "a", &[13, 7])?, f32(b, "w", &[7, columns])?);
            let y = b.matmul(a, w)?;
            finish(b, y)
        });
        check(&format!("13×7×{columns}"), &product);
    }
    for (groups, channels) in [(1, 4), (2, 6), (4, 4), (6, 6)] {
        let convolution = graph(|b| {
            let w = f32(b, "w", &[3, 2, channels / groups, channels])?;
            let x = f32(b, "x", &[2, 5, 6, channels])?;
            let y = b.conv(x, w, conv(2, groups))?;
            finish(b, y)
        });
        check(&format!("{channels} channels in {groups} groups"), &convolution);
    }
}

#[test]
fn sums_of_nothing_are_zero() {
    let empty_product = graph(|b| {
        let (a, w) = (f32(b, "a", &[5, 0])?, f32(b, "w", &[0, 3])?);
        let bias = f32(b, "bias", &[3])?;
        let y = b.matmul(a, w)?;
        let z = b.add(y, bias)?;
        b.output("y", y);
        b.output("z", z);
        Ok(())
    });
    check("a product without inner extent", &empty_product);
    let empty_batch = graph(|b| {
        let (x, dy) = (f32(b, "x", &[0, 5, 5, 2])?, f32(b, "dy", &[0, 3, 3, 4])?);
        let conv = Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups: 1 };
        let dw = b.op(Op::ConvFilter(ConvFilter { conv, size: [3, 3] }), &[x, dy])?;
        b.output("dw", dw);
        Ok(())
    });
    check("a filter's gradient of no images", &empty_batch);
}

/// As exact as short ones: they are made in blocks and parts.
#[test]
fn long_sums_are_exact() {
    let product = graph(|b| {
        let (a, w) = (f32(b, "a", &[2, 70_001])?, f32(b, "w", &[70_001, 3])?);
        let y = b.matmul(a, w)?;
        let y = b.relu(y)?;
        b.output("y", y);
        Ok(())
    });
    check("70001 terms", &product);
    for groups in [1, 3] {
        let gradient = graph(|b| {
            let (x, dy) = (f32(b, "x", &[5, 67, 41, 3])?, f32(b, "dy", &[5, 33, 40, 6])?);
            let conv = Conv { pad: Pad2 { top: 0, bottom: 0, left: 1, right: 0 }, ..conv(2, groups) };
            let dw = b.op(Op::ConvFilter(ConvFilter { conv, size: [3, 2] }), &[x, dy])?;
            b.output("dw", dw);
            Ok(())
        });
        check(&format!("a filter's gradient of 6600 pixels in {groups} groups"), &gradient);
    }
}

/// Large in all three extents.
#[test]
fn what_cubek_computes_is_the_same_fused_and_alone() {
    for (rows, op) in [(129, [false, false]), (160, [true, false]), (128, [false, true])] {
        let [transpose_a, transpose_b] = op;
        let turned = |turn: bool, [r, c]: [usize; 2]| if turn { [c, r] } else { [r, c] };
        let product = graph(|b| {
            let a = f32(b, "a", &turned(transpose_a, [rows, 136]))?;
            let w =
                b.input("w", TensorType { dtype: DType::BF16, ..TensorType::f32(turned(transpose_b, [136, 131])) })?;
            let w = b.cast(w, DType::F32)?;
            let bias = f32(b, "bias", &[131])?;
            let y = b.matmul_with(a, w, MatMul { transpose_a, transpose_b })?;
            let y = b.add(y, bias)?;
            let y = b.unary(Unary::Sigmoid, y)?;
            b.output("y", y);
            Ok(())
        });
        check(&format!("{rows}×136×131, transposed {op:?}"), &product);
    }
}

/// For each pixel only the taps count that its distance from a pixel of the result divides by the stride.
#[test]
fn transposed_convolutions_of_any_stride_are_right() {
    for stride in [[1, 1], [2, 3], [4, 2], [3, 7]] {
        for groups in [1, 4] {
            let g = graph(|b| {
                let pad = Pad2 { top: 1, bottom: 2, left: 0, right: 1 };
                let conv = Conv { stride, pad, dilation: [2, 1], groups };
                let (size, filter) = ([9, 8], [3, 2, 4 / groups, 8]);
                let [h, w] = memfit_ir::infer::conv_output(size, [3, 2], stride, pad, [2, 1]).unwrap();
                let (dy, w) = (f32(b, "dy", &[2, h, w, 8])?, f32(b, "w", &filter)?);
                let x = b.conv_transpose(dy, w, ConvTranspose { conv, size })?;
                b.output("x", x);
                Ok(())
            });
            check(&format!("stride {stride:?}, {groups} groups"), &g);
        }
    }
}

/// A compiler may not join what are two nodes.
#[test]
fn constants_that_follow_each_other_are_added_one_by_one() {
    let g = graph(|b| {
        let (x, w) = (f32(b, "x", &[40, 9])?, f32(b, "w", &[9, 5])?);
        let mut sum = x;
        for value in [0.3, 0.7, -1.1] {
            let constant = b.constant(value)?;
            sum = b.add(sum, constant)?;
        }
        let y = b.matmul(sum, w)?;
        b.output("y", y);
        b.output("x", x);
        Ok(())
    });
    check("three constants before a product", &g);
}
