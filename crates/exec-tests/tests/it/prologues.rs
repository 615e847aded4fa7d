//! Operands that are computed while a contraction reads them: the same bits as operands in memory, across the seams of
//! blocks, windows and threads, and no memory for the operand.

use crate::common;

use std::collections::HashMap;

use common::cpu;
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_cpu::isa::Isa;
use memfit_exec_tests::families::same;
use memfit_exec_tests::{Planned, Result, Runner, Settings, Tensor, Watched};
use memfit_ir::op::{Conv, ConvFilter, ConvTranspose, Eps, MatMul, Pad2, Unary};
use memfit_ir::{Builder, DType, Graph, Op, Result as Built, TensorType, ValueId, philox};
use memfit_plan::Target;
use memfit_transform::Grouping;
use memfit_transform::group::group;

const PLAIN: Conv = Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups: 1 };
const PADDED: Conv = Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 1], groups: 1 };

/// Batch norm and ReLU of an input that is stored as it is, or in 16 bits. The bias keeps 0 from being 0.
fn operand(b: &mut Builder, name: &str, stored: DType, shape: &[usize]) -> Built<ValueId> {
    let vector =
        |b: &mut Builder, what: &str| b.input(&format!("{name}/{what}"), TensorType::f32(&shape[shape.len() - 1..]));
    let mut x = b.input(name, TensorType::new(stored, shape))?;
    if stored != DType::F32 {
        x = b.cast(x, DType::F32)?;
    }
    let (mean, var, scale, bias) = (vector(b, "mean")?, vector(b, "var")?, vector(b, "scale")?, vector(b, "bias")?);
    let x = b.op(Op::BatchApply(Eps(0.1)), &[x, mean, var, scale, bias])?;
    b.unary(Unary::Relu, x)
}

fn contraction(op: Op, a: &[usize], b_shape: &[usize], stored: DType) -> Graph {
    let mut b = Builder::new();
    let build = |b: &mut Builder| -> Built<ValueId> {
        let (x, w) = (operand(b, "a", stored, a)?, operand(b, "b", stored, b_shape)?);
        let y = b.op(op, &[x, w])?;
        b.unary(Unary::Tanh, y)
    };
    let y = build(&mut b).unwrap();
    b.output("y", y);
    b.finish()
}

fn feeds(graph: &Graph) -> HashMap<String, Tensor> {
    let feed = |(name, v): (&str, ValueId)| {
        let numbers = philox::normal(3, name, graph.ty(v).elements()).map(f64::from);
        let positive = name.ends_with("var");
        let data = numbers.map(|x| memfit_exec_tests::round_to(graph.ty(v).dtype, if positive { x.abs() } else { x }));
        (name.to_string(), Tensor { ty: graph.ty(v).clone(), data: data.collect() })
    };
    graph.inputs().map(feed).collect()
}

/// Alone and in groups, on every instruction set and several numbers of threads.
fn check(what: &str, graph: &Graph) -> Result<()> {
    check_on(&common::isas(), what, graph)
}

fn check_on(isas: &[Isa], what: &str, graph: &Graph) -> Result<()> {
    let (inputs, states) = (feeds(graph), HashMap::new());
    let fusion = CpuExecutor::new(1).unwrap().fusion();
    let found = group(graph, &fusion);
    assert_eq!(found.len(), 1, "{what}: all is one kernel");
    for &isa in isas {
        let expected =
            cpu(1, isa, Settings { grouping: Grouping::Single, ..Settings::default() }).run(graph, &inputs, &states)?;
        for threads in [1, 2, 3] {
            let given =
                cpu(threads, isa, Settings { poison: true, ..Settings::default() }).run(graph, &inputs, &states)?;
            same(&format!("{what}, {threads} threads, {}", isa.name()), &expected, &given)?;
        }
        let mut watched = Planned::new(|| Ok(Watched(CpuExecutor::with_isa(2, isa)?)), Settings::default());
        same(&format!("{what}, watched, {}", isa.name()), &expected, &watched.run(graph, &inputs, &states)?)?;
    }
    Ok(())
}

#[test]
fn products_of_matrices() {
    for stored in [DType::F32, DType::BF16] {
        for (m, k, n) in [(300, 64, 40), (250, 700, 33), (40, 300, 1100), (600, 520, 1030), (5, 3, 2)] {
            for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let turned = |turn: bool, r: usize, c: usize| if turn { [c, r] } else { [r, c] };
                let op = Op::MatMul(MatMul { transpose_a, transpose_b });
                let (a, b) = (turned(transpose_a, m, k), turned(transpose_b, k, n));
                let what = format!("{m} x {k} x {n}, {transpose_a} {transpose_b}, {stored}");
                check(&what, &contraction(op, &a, &b, stored)).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}

#[test]
fn products_of_batches() {
    // Of the larger ones, threads share what is packed of the left side where they share a product.
    for (batch, m, k, n) in [(2, 70, 33, 50), (7, 70, 33, 50), (2, 30, 1040, 600), (7, 30, 1040, 600)] {
        let op = Op::MatMul(MatMul { transpose_a: false, transpose_b: true });
        let graph = contraction(op, &[batch, m, k], &[batch, n, k], DType::F32);
        check(&format!("{batch} products of {m} x {k} x {n}"), &graph).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Filters that no shortcut is taken for.
const SPREAD: Conv = Conv { stride: [1, 1], pad: Pad2::all(1), dilation: [1, 2], groups: 1 };

/// Image, filter and geometry. The third and the fourth have larger filters than others are packed whole, and than any is; the
/// next four have 3×3 taps and channels enough to be made by fewer multiplications, the last of them more than are transformed
/// at once; the very last has more columns than a block.
const CONVOLUTIONS: [([usize; 4], [usize; 4], Conv); 13] = [
    ([2, 33, 31, 5], [3, 3, 5, 7], PADDED),
    ([9, 7, 5, 19], [3, 3, 19, 33], SPREAD),
    ([2, 9, 9, 257], [3, 3, 257, 230], SPREAD),
    ([1, 7, 9, 520], [3, 3, 520, 520], SPREAD),
    ([9, 7, 5, 19], [3, 3, 19, 33], PADDED),
    ([2, 9, 9, 257], [3, 3, 257, 230], PADDED),
    ([3, 40, 44, 24], [3, 3, 24, 16], Conv { pad: Pad2 { top: 2, bottom: 0, left: 0, right: 1 }, ..PLAIN }),
    ([1, 7, 9, 520], [3, 3, 520, 520], PADDED),
    (
        [3, 30, 20, 6],
        [5, 3, 6, 9],
        Conv { stride: [2, 3], pad: Pad2 { top: 2, bottom: 1, left: 0, right: 2 }, ..PLAIN },
    ),
    ([4, 17, 40, 3], [3, 2, 3, 8], Conv { dilation: [3, 2], ..PLAIN }),
    ([3, 25, 17, 20], [1, 1, 20, 24], PLAIN),
    ([3, 25, 17, 20], [1, 1, 20, 24], Conv { stride: [2, 2], ..PLAIN }),
    ([2, 16, 15, 16], [1, 3, 16, 1040], Conv { pad: Pad2 { top: 0, bottom: 0, left: 1, right: 1 }, ..PLAIN }),
];

#[test]
fn convolutions_and_their_gradients() {
    for (image, filter, conv) in CONVOLUTIONS {
        let size = memfit_ir::infer::conv_output(
            [image[1], image[2]],
            [filter[0], filter[1]],
            conv.stride,
            conv.pad,
            conv.dilation,
        );
        let [h, w] = size.unwrap();
        let result = [image[0], h, w, filter[3]];
        let mut list = vec![
            (Op::Conv(conv), image, filter),
            (Op::ConvFilter(ConvFilter { conv, size: [filter[0], filter[1]] }), image, result),
        ];
        if conv.stride == [1, 1] {
            list.push((Op::ConvTranspose(ConvTranspose { conv, size: [image[1], image[2]] }), result, filter));
        }
        for (op, a, b) in list {
            for stored in [DType::F32, DType::F16] {
                let what = format!("{} of {a:?} and {b:?}, {stored}", op.name());
                check(&what, &contraction(op.clone(), &a, &b, stored)).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}

/// A filter that is packed whole only because the image is larger still.
#[test]
fn a_large_image_and_a_large_filter() {
    for conv in [SPREAD, PADDED] {
        let graph = contraction(Op::Conv(conv), &[1, 64, 65, 300], &[3, 3, 300, 200], DType::F32);
        check_on(&[Isa::chosen().unwrap()], "large", &graph).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn without_depth_the_product_is_zero() {
    let op = Op::MatMul(MatMul { transpose_a: false, transpose_b: false });
    let mut b = Builder::new();
    let (x, w) = (b.input("a", TensorType::f32([3, 0])).unwrap(), b.input("b", TensorType::f32([0, 4])).unwrap());
    let (x, w) = (b.unary(Unary::Relu, x).unwrap(), b.unary(Unary::Relu, w).unwrap());
    let y = b.op(op, &[x, w]).unwrap();
    b.output("y", y);
    let graph = b.finish();
    let result = cpu(2, Isa::chosen().unwrap(), Settings { poison: true, ..Settings::default() })
        .run(&graph, &feeds(&graph), &HashMap::new())
        .unwrap();
    assert_eq!(result.outputs["y"].data, [0.0; 12]);
}
