//! Sums over channels that are added up while a convolution is made: the same bits as over what lies in memory, across the
//! seams of blocks, chunks and threads.

use crate::common;

use std::collections::HashMap;

use common::cpu;
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::families::same;
use memfit_exec_tests::{Planned, Runner, Settings, Tensor, Watched};
use memfit_ir::op::{Conv, ConvTranspose, Eps, Pad2, Unary};
use memfit_ir::{Builder, Graph, Op, Result as Built, TensorType, ValueId, philox};
use memfit_plan::Target;
use memfit_transform::Grouping;
use memfit_transform::group::group;

/// Images, and channels and width of the filter. Rows in plenty and in one block; channels in one tile and in several, narrow
/// ones and odd ones, and more of them than rows, where threads share out columns. Filters of 3×3 taps and 16 channels or more
/// are made by tiles: images of even and of odd heights, small ones, and one whose columns threads share out.
const SHAPES: [([usize; 4], usize, usize); 13] = [
    ([2, 33, 31, 5], 7, 3),
    ([3, 40, 41, 16], 64, 3),
    ([3, 40, 41, 12], 64, 3),
    ([8, 32, 32, 32], 32, 3),
    ([20, 7, 7, 40], 48, 3),
    ([1, 4, 4, 64], 320, 3),
    ([8, 32, 32, 8], 32, 1),
    ([5, 29, 31, 24], 24, 3),
    ([2, 50, 50, 20], 260, 1),
    ([1, 6, 6, 300], 520, 1),
    ([4, 24, 24, 9], 1040, 1),
    ([1, 1, 1, 3], 4, 1),
    ([2, 60, 60, 3], 48, 3),
];

/// Convolutions with one filter a channel: images, width of the filter, stride. Chunks of rows that end in the middle of a line,
/// channels in one tile and in several, whole vectors or not, and pixels fewer than a block.
const DEPTHWISE: [([usize; 4], usize, usize); 9] = [
    ([2, 33, 31, 5], 3, 1),
    ([3, 40, 41, 16], 3, 2),
    ([16, 28, 28, 40], 5, 1),
    ([8, 14, 15, 90], 5, 2),
    ([20, 7, 7, 200], 5, 1),
    ([5, 29, 31, 24], 3, 1),
    ([1, 6, 2, 300], 3, 1),
    ([2, 60, 59, 33], 3, 2),
    ([2, 30, 31, 18], 7, 3),
];

fn depthwise(channels: usize, window: usize, stride: usize) -> Conv {
    Conv { stride: [stride, stride], pad: Pad2::all(window / 2), dilation: [1, 1], groups: channels }
}

fn dense(window: usize) -> Conv {
    Conv { stride: [1, 1], pad: Pad2::all(window / 2), dilation: [1, 1], groups: 1 }
}

/// Statistics of what a convolution makes, and of a chain behind it.
fn forward(image: [usize; 4], to: usize, window: usize, conv: Conv, chain: bool) -> Built<Graph> {
    let mut b = Builder::new();
    let filter = [window, window, image[3] / conv.groups, to];
    let (x, w) = (b.input("x", TensorType::f32(image))?, b.input("w", TensorType::f32(filter))?);
    let mut y = b.conv(x, w, conv)?;
    if chain {
        y = b.unary(Unary::Tanh, y)?;
    }
    let stats = b.op_outputs(Op::BatchStats, &[y])?;
    b.output("y", y);
    b.output("mean", stats[0]);
    b.output("var", stats[1]);
    Ok(b.finish())
}

/// The sums of two batch norms' gradients over the gradient that a convolution makes.
fn backward(result: [usize; 4], from: usize, window: usize, conv: Conv) -> Built<Graph> {
    let mut b = Builder::new();
    // The image is what is made here.
    let to = result[3];
    let out = |n: usize, i: usize| (n + 2 * (window / 2) - window) / conv.stride[i] + 1;
    let dy = b.input("dy", TensorType::f32([result[0], out(result[1], 0), out(result[2], 1), from]))?;
    let w = b.input("w", TensorType::f32([window, window, to / conv.groups, from]))?;
    let names = ["first", "second"];
    let xs = [b.input(names[0], TensorType::f32(result))?, b.input(names[1], TensorType::f32(result))?];
    let mut dx = b.conv_transpose(dy, w, ConvTranspose { conv, size: [result[1], result[2]] })?;
    for x in xs {
        dx = b.op(Op::UnaryGrad(Unary::Relu), &[x, dx])?;
    }
    b.output("dx", dx);
    for (name, x) in names.into_iter().zip(xs) {
        let mean = b.input(&format!("{name}/mean"), TensorType::f32([to]))?;
        let var = b.input(&format!("{name}/var"), TensorType::f32([to]))?;
        let sums = b.op_outputs(Op::BatchGradReduce(Eps(0.1)), &[x, mean, var, dx])?;
        b.output(format!("{name}/dscale"), sums[0]);
        b.output(format!("{name}/dbias"), sums[1]);
    }
    Ok(b.finish())
}

fn feeds(graph: &Graph) -> HashMap<String, Tensor> {
    let feed = |(name, v): (&str, ValueId)| {
        let numbers = philox::normal(3, name, graph.ty(v).elements()).map(f64::from);
        let data = numbers.map(|x| if name.ends_with("var") { x.abs() } else { x }).collect();
        (name.to_string(), Tensor { ty: graph.ty(v).clone(), data })
    };
    graph.inputs().map(feed).collect()
}

fn check(what: &str, graph: &Graph) {
    let (inputs, states) = (feeds(graph), HashMap::new());
    let fusion = CpuExecutor::new(1).unwrap().fusion();
    let found = group(graph, &fusion);
    assert_eq!(found.len(), 1, "{what}: all is one kernel");
    assert!(!found[0].reductions().is_empty());
    for isa in common::isas() {
        let single = Settings { grouping: Grouping::Single, ..Settings::default() };
        let expected = cpu(1, isa, single).run(graph, &inputs, &states).unwrap();
        for threads in [1, 2, 3] {
            let poisoned = Settings { poison: true, ..Settings::default() };
            let given = cpu(threads, isa, poisoned).run(graph, &inputs, &states).unwrap();
            same(&format!("{what}, {threads} threads, {}", isa.name()), &expected, &given).unwrap();
        }
        let mut watched = Planned::new(|| Ok(Watched(CpuExecutor::with_isa(2, isa)?)), Settings::default());
        let given = watched.run(graph, &inputs, &states).unwrap();
        same(&format!("{what}, watched, {}", isa.name()), &expected, &given).unwrap();
    }
}

#[test]
fn statistics_of_what_a_convolution_makes() {
    for (image, to, window) in SHAPES {
        for chain in [false, true] {
            let graph = forward(image, to, window, dense(window), chain).unwrap();
            check(&format!("{image:?} to {to} by {window}, chain {chain}"), &graph);
        }
    }
}

#[test]
fn gradients_of_batch_norms_behind_a_convolution() {
    for ([n, h, w, from], to, window) in SHAPES {
        let graph = backward([n, h, w, to], from, window, dense(window)).unwrap();
        check(&format!("{:?} to {to} by {window}", [n, h, w, from]), &graph);
    }
}

#[test]
fn sums_behind_one_filter_a_channel() {
    for (image, window, stride) in DEPTHWISE {
        let (channels, what) = (image[3], format!("{image:?} by {window}, stride {stride}"));
        let conv = depthwise(channels, window, stride);
        for chain in [false, true] {
            let graph = forward(image, channels, window, conv, chain).unwrap();
            check(&format!("{what}, chain {chain}"), &graph);
        }
        check(&format!("{what}, backward"), &backward(image, channels, window, conv).unwrap());
    }
}
