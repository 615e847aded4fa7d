//! Kernels on sizes beyond their blocks, where a seam between two of them may be wrong; each with its gradient.

use crate::common;

use common::check_everywhere;
use memfit_exec_tests::generate::example;
use memfit_ir::op::*;
use memfit_ir::{Builder, Op, Result, ValueId};

fn check(shapes: &[&[usize]], build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId>) {
    let example = example(shapes, build).unwrap();
    check_everywhere(&example).unwrap_or_else(|e| panic!("{shapes:?}: {e}"));
}

fn conv(stride: usize, pad: usize, groups: usize) -> Conv {
    Conv { stride: [stride, stride], pad: Pad2::all(pad), dilation: [1, 1], groups }
}

#[test]
fn matrix_products() {
    check(&[&[230, 520], &[520, 1040]], |b, x| b.matmul(x[0], x[1]));
    check(&[&[3, 70, 260], &[260, 45], &[45]], |b, x| {
        let y = b.matmul(x[0], x[1])?;
        let y = b.add(y, x[2])?;
        b.unary(Unary::GeluErf, y)
    });
    check(&[&[5, 300, 40], &[5, 40, 300]], |b, x| {
        b.matmul_with(x[0], x[1], MatMul { transpose_a: true, transpose_b: true })
    });
}

#[test]
fn convolutions() {
    check(&[&[1, 17, 16, 30], &[3, 3, 30, 64]], |b, x| b.conv(x[0], x[1], conv(1, 1, 1)));
    check(&[&[1, 15, 15, 8], &[1, 1, 8, 1040]], |b, x| b.conv(x[0], x[1], conv(1, 0, 1)));
    check(&[&[2, 31, 33, 3], &[7, 7, 3, 40]], |b, x| b.conv(x[0], x[1], conv(2, 3, 1)));
    check(&[&[1, 20, 20, 64], &[3, 3, 16, 96]], |b, x| b.conv(x[0], x[1], conv(2, 1, 4)));
    check(&[&[2, 30, 29, 70], &[5, 5, 1, 70]], |b, x| b.conv(x[0], x[1], conv(1, 2, 70)));
    check(&[&[1, 10, 11, 40], &[2, 2, 24, 40]], |b, x| {
        b.conv_transpose(x[0], x[1], ConvTranspose { conv: conv(2, 0, 1), size: [20, 22] })
    });
}

#[test]
fn attention() {
    for causal in [false, true] {
        check(&[&[1, 150, 3, 2, 70]], |b, x| b.attention(x[0], causal));
    }
}

#[test]
fn reductions_and_norms() {
    for (shape, axes) in
        [(&[20_000][..], &[0][..]), (&[3, 20_000], &[1]), (&[20_000, 3], &[0]), (&[30, 40, 50], &[0, 2])]
    {
        for kind in ReduceKind::ALL {
            check(&[shape], |b, x| b.reduce(kind, x[0], axes, false));
        }
    }
    for (rows, width) in [(3000, 5), (70, 1100), (9, 3000)] {
        let shapes: &[&[usize]] = &[&[rows, width], &[width], &[width]];
        check(shapes, |b, x| b.layer_norm(x[0], x[1], x[2], 1e-5));
        check(shapes, |b, x| Ok(b.batch_norm(x[0], x[1], x[2], 1e-3)?[0]));
        check(&shapes[..2], |b, x| b.rms_norm(x[0], x[1], 1e-5));
        check(&shapes[..1], |b, x| b.softmax(x[0], 1, false));
        check(&shapes[..1], |b, x| b.softmax(x[0], 1, true));
        check(&[shapes[0], shapes[0]], |b, x| b.cross_entropy(x[0], x[1], 0.1));
    }
    check(&[&[3, 30, 40, 24], &[24], &[24]], |b, x| b.group_norm(x[0], x[1], x[2], 6, 1e-5));
}

#[test]
fn elements_and_their_order() {
    check(&[&[4, 9000], &[9000], &[4, 1]], |b, x| {
        let y = b.mul(x[0], x[1])?;
        let y = b.unary(Unary::Silu, y)?;
        b.add(y, x[2])
    });
    check(&[&[30, 1, 40], &[50, 1]], |b, x| b.mul(x[0], x[1]));
    check(&[&[300, 200]], |b, x| b.transpose(x[0], &[1, 0]));
    check(&[&[20, 30, 40, 3]], |b, x| b.transpose(x[0], &[0, 3, 1, 2]));
    check(&[&[40, 500], &[40, 777]], |b, x| b.concat(x, 1));
    check(&[&[90, 300]], |b, x| b.slice(x[0], &[3, 17], &[89, 290]));
    check(&[&[90, 300]], |b, x| b.pad(x[0], &[(1, 2), (0, 33)]));
    check(&[&[1, 300]], |b, x| b.broadcast(x[0], [100, 300]));
}

#[test]
fn windows() {
    let window = Window { size: [3, 3], stride: [2, 2], pad: Pad2::all(1) };
    check(&[&[2, 41, 40, 20]], |b, x| b.max_pool(x[0], window));
    check(&[&[2, 41, 40, 20]], |b, x| b.avg_pool(x[0], window));
    for mode in UpsampleMode::ALL {
        check(&[&[2, 20, 21, 17]], |b, x| b.op(Op::Upsample(Upsample { mode, factor: [2, 2] }), &[x[0]]));
    }
}
