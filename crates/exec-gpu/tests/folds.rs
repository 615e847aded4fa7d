//! Reductions and norms of shapes that are spread in different ways over units, cubes and launches, against the f64 reference.
#![cfg(feature = "gpu")]

mod common;

use std::collections::HashMap;

use common::{gpu, graph};
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::{Expected, Planned, RunResult, Runner, Settings, Tensor, round_to};
use memfit_ir::op::{CrossEntropy, Eps, GroupNorm, Reduce, ReduceKind, Softmax};
use memfit_ir::{DType, Graph, Op, TensorType, philox};
use memfit_transform::Grouping;

type Tensors = HashMap<String, Tensor>;

/// Numbers of a normal distribution; of integers, their sizes, all below 6.
fn drawn(name: &str, ty: &TensorType) -> Tensor {
    let number = |x: f32| if ty.dtype == DType::I32 { f64::from(x.abs()).trunc() } else { f64::from(x) };
    let data = philox::normal(7, name, ty.elements()).map(|x| round_to(ty.dtype, number(x))).collect();
    Tensor::new(ty.clone(), data).unwrap()
}

/// Runs a graph in poisoned memory.
fn run(what: &str, graph: &Graph, inputs: &Tensors) -> RunResult {
    let settings = Settings { grouping: Grouping::Fused, poison: true, squeeze: 0 };
    let given = Planned::new(|| GpuExecutor::new(0), settings).run(graph, inputs, &HashMap::new());
    given.unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// Runs a graph on random numbers and holds all of it against the reference.
fn check(what: &str, graph: &Graph) {
    if gpu().is_none() {
        return;
    }
    let inputs = graph.inputs().map(|(name, v)| (name.to_string(), drawn(name, graph.ty(v)))).collect();
    let expected = Expected::new(graph, &inputs, &HashMap::new()).unwrap();
    expected.check(&run(what, graph, &inputs)).unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// An op alone, on inputs of these types, with all that it makes as outputs.
fn alone(op: &Op, inputs: &[TensorType]) -> Graph {
    graph(|b| {
        let inputs: memfit_ir::Result<Vec<_>> =
            inputs.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        for (i, y) in b.op_outputs(op.clone(), &inputs?)?.into_iter().enumerate() {
            b.output(format!("y{i}"), y);
        }
        Ok(())
    })
}

#[test]
fn any_axes_of_any_extents_are_reduced() {
    let cases: [(&[usize], &[usize]); 20] = [
        (&[1], &[0]),
        (&[], &[]),
        (&[7], &[]),
        (&[300_001], &[0]),
        (&[5, 1000], &[1]),
        (&[1000, 10], &[1]),
        (&[70_000, 3], &[0]),
        (&[5000, 17], &[0]),
        (&[3000, 33], &[0]),
        (&[999, 64], &[0]),
        (&[77, 1000], &[0]),
        (&[2, 40_000], &[0]),
        (&[3, 7, 7, 65], &[1, 2]),
        (&[2, 1, 1, 5], &[1, 2]),
        (&[3, 100, 100, 24], &[1, 2]),
        (&[6, 5, 4, 3], &[0, 2]),
        (&[6, 5, 4, 3], &[1, 3]),
        (&[4, 33, 9, 17], &[0, 2]),
        (&[20, 3, 5000], &[0, 2]),
        (&[1, 5, 1, 7, 1], &[0, 1, 2, 3, 4]),
    ];
    for (shape, axes) in cases {
        let all = graph(|b| {
            let x = b.input("x", TensorType::f32(shape))?;
            for kind in ReduceKind::ALL {
                let y = b.op(Op::Reduce(Reduce { kind, axes: axes.to_vec(), keep: false }), &[x])?;
                b.output(kind.name(), y);
            }
            Ok(())
        });
        check(&format!("{shape:?} over {axes:?}"), &all);
    }
}

#[test]
fn norms_of_few_long_and_of_many_short_cells_agree_with_the_reference() {
    let f32 = |shape: &[usize]| TensorType::f32(shape);
    for shape in [&[1, 30_000][..], &[3, 20_001], &[2, 5, 1000], &[3000, 7], &[700, 1]] {
        let (rows, n) = shape.split_at(shape.len() - 1);
        let (x, row, channel) = (f32(shape), f32(rows), f32(n));
        let [by_layer, by_root] = [Op::LayerNorm(Eps(1e-3)), Op::RmsNorm(Eps(1e-3))];
        check("layer norm", &alone(&by_layer, &[x.clone(), channel.clone(), channel.clone()]));
        check("RMS norm", &alone(&by_root, &[x.clone(), channel.clone()]));
        let inputs = [x.clone(), row.clone(), row.clone(), channel.clone(), x.clone()];
        check("its gradient", &alone(&Op::LayerNormGrad, &inputs));
        check("its gradient", &alone(&Op::RmsNormGrad, &[x.clone(), row, channel, x]));
    }
    for (shape, groups) in [([1, 50, 60, 10], 1), ([2, 40, 40, 12], 3), ([300, 2, 2, 16], 4), ([2, 70, 70, 6], 6)] {
        let (x, cell, channel) = (f32(&shape), f32(&[shape[0], groups]), f32(&[shape[3]]));
        let by_group = Op::GroupNorm(GroupNorm { groups, eps: 1e-3 });
        check("group norm", &alone(&by_group, &[x.clone(), channel.clone(), channel.clone()]));
        let inputs = [x.clone(), cell.clone(), cell, channel, x];
        check("its gradient", &alone(&Op::GroupNormGrad(groups), &inputs));
    }
    for shape in [&[40_000, 3][..], &[64, 16, 16, 20], &[2, 3000], &[9]] {
        let (x, channel) = (f32(shape), f32(&shape[shape.len() - 1..]));
        check("batch statistics", &alone(&Op::BatchStats, std::slice::from_ref(&x)));
        // A normal number may be no variance: with ε it is.
        check("their gradient", &alone(&Op::BatchGradReduce(Eps(9.0)), &[x.clone(), channel.clone(), channel, x]));
    }
}

#[test]
fn softmax_and_loss_of_few_long_and_of_many_short_rows_agree_with_the_reference() {
    for shape in [&[1, 40_000][..], &[3, 20_001], &[2, 5, 1000], &[3000, 7]] {
        let (x, rows) = (TensorType::f32(shape), &shape[..shape.len() - 1]);
        for log in [false, true] {
            check("softmax", &alone(&Op::Softmax(Softmax { log }), std::slice::from_ref(&x)));
            check("its gradient", &alone(&Op::SoftmaxGrad(Softmax { log }), &[x.clone(), x.clone()]));
        }
        for labels in [TensorType::new(DType::I32, rows), x.clone()] {
            for smoothing in [0.0, 0.25] {
                let (op, row) = (CrossEntropy { smoothing }, TensorType::f32(rows));
                check("loss", &alone(&Op::CrossEntropy(op), &[x.clone(), labels.clone()]));
                let inputs = [x.clone(), labels.clone(), row.clone(), row];
                check("its gradient", &alone(&Op::CrossEntropyGrad(op), &inputs));
            }
        }
    }
}

/// 4096 and eighths around it: f32 holds each, but not their squares.
#[test]
fn a_variance_keeps_its_digits_where_numbers_lie_far_from_zero_and_close_together() {
    if gpu().is_none() {
        return;
    }
    for (shape, op) in [([50_000, 2], Op::BatchStats), ([2, 50_000], Op::LayerNorm(Eps(0.0)))] {
        let last = TensorType::f32([shape[1]]);
        let is_norm = op != Op::BatchStats;
        let types = [TensorType::f32(shape), last.clone(), last];
        let graph = alone(&op, &types[..if is_norm { 3 } else { 1 }]);
        let mut inputs: Tensors = graph.inputs().map(|(n, v)| (n.to_string(), drawn(n, graph.ty(v)))).collect();
        let eighths = |i: usize| 4096.0 + (i % 17) as f64 / 8.0 + (i / 50_000) as f64;
        inputs.insert("x0".into(), Tensor::f32(shape, (0..100_000).map(eighths).collect()).unwrap());
        let given = run("far from 0", &graph, &inputs);
        let expected = memfit_exec_tests::Reference.run(&graph, &inputs, &HashMap::new()).unwrap();
        let name = if is_norm { "y2" } else { "y1" };
        let (e, g) = (&expected.outputs[name], &given.outputs[name]);
        memfit_exec_tests::check_close(name, e, g, 2e-6).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Of each row, whether there is a NaN in it.
fn rows_with_nan(t: &Tensor, length: usize) -> Vec<bool> {
    t.data.chunks(length).map(|row| row.iter().any(|x| x.is_nan())).collect()
}

#[test]
fn what_is_no_number_stays_in_its_row() {
    if gpu().is_none() {
        return;
    }
    // Long enough for several units a row, and with plain numbers in the last one.
    let (rows, n) = (5, 700);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY, 0.5];
    let number = |i: usize| match i / n {
        // Where all are the same, and where only one is.
        2 => special[2],
        row if i % n == 333 => special[row],
        _ => (i % 7) as f64,
    };
    let x = Tensor::f32([rows, n], (0..rows * n).map(number).collect()).unwrap();
    let labels = Tensor::i32([rows], &[0, 1, 2, 3, 4]).unwrap();
    let given = |op: Op, inputs: &[&Tensor]| {
        let types: Vec<_> = inputs.iter().map(|t| t.ty.clone()).collect();
        let inputs = inputs.iter().enumerate().map(|(i, &t)| (format!("x{i}"), t.clone())).collect();
        run("no number", &alone(&op, &types), &inputs).outputs
    };
    let spoilt = vec![true, true, true, false, false];
    assert_eq!(rows_with_nan(&given(Op::Softmax(Softmax { log: false }), &[&x])["y0"], n), spoilt);
    assert_eq!(
        rows_with_nan(&given(Op::CrossEntropy(CrossEntropy { smoothing: 0.0 }), &[&x, &labels])["y0"], 1),
        spoilt
    );

    let max = given(Op::Reduce(Reduce { kind: ReduceKind::Max, axes: vec![1], keep: false }), &[&x])["y0"].clone();
    assert!(max.data[0].is_nan());
    assert_eq!(max.data[1..], [f64::INFINITY, f64::NEG_INFINITY, 6.0, 6.0]);
    let mean = given(Op::Reduce(Reduce { kind: ReduceKind::Mean, axes: vec![1], keep: false }), &[&x])["y0"].clone();
    let means: Vec<bool> = mean.data.iter().map(|m| m.is_finite()).collect();
    assert_eq!(means, [false, false, false, false, true]);

    let channel = Tensor::f32([n], vec![1.0; n]).unwrap();
    let norm = given(Op::LayerNorm(Eps(1e-3)), &[&x, &channel, &channel]);
    assert_eq!(rows_with_nan(&norm["y0"], n), [true, true, true, true, false]);
    assert_eq!(norm["y1"].data[1..4], [f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY]);
}

/// They are computed on the device, where nobody can look at them before.
#[test]
fn a_class_outside_of_its_range_is_nan_in_its_row_alone() {
    if gpu().is_none() {
        return;
    }
    for smoothing in [0.0, 0.25] {
        let graph = graph(|b| {
            let (logits, labels) = (b.input("x", TensorType::f32([5, 3]))?, b.input("labels", TensorType::f32([5]))?);
            let labels = b.cast(labels, DType::I32)?;
            let op = CrossEntropy { smoothing };
            let made = b.op_outputs(Op::CrossEntropy(op), &[logits, labels])?;
            let slope = b.input("slope", TensorType::f32([5]))?;
            let dlogits = b.op(Op::CrossEntropyGrad(op), &[logits, labels, made[1], slope])?;
            b.output("loss", made[0]);
            b.output("dlogits", dlogits);
            Ok(())
        });
        let mut inputs: Tensors = graph.inputs().map(|(n, v)| (n.to_string(), drawn(n, graph.ty(v)))).collect();
        let labels = [2.0, 3.0, -1.0, 0.0, 2e9];
        inputs.insert("labels".into(), Tensor::f32([5], labels.to_vec()).unwrap());
        let given = run("classes", &graph, &inputs).outputs;
        let outside = [false, true, true, false, true];
        assert_eq!(rows_with_nan(&given["loss"], 1), outside);
        assert_eq!(rows_with_nan(&given["dlogits"], 3), outside);
    }
}

#[test]
fn an_input_of_classes_is_looked_at_before_the_device_is_given_it() {
    if gpu().is_none() {
        return;
    }
    let labels = TensorType::new(DType::I32, [4]);
    let graph = alone(&Op::CrossEntropy(CrossEntropy { smoothing: 0.0 }), &[TensorType::f32([4, 3]), labels]);
    let mut inputs: Tensors = graph.inputs().map(|(n, v)| (n.to_string(), drawn(n, graph.ty(v)))).collect();
    inputs.insert("x1".into(), Tensor::i32([4], &[0, 2, 3, 1]).unwrap());
    let given = Planned::new(|| GpuExecutor::new(0), Settings::default()).run(&graph, &inputs, &HashMap::new());
    let message = given.unwrap_err().to_string();
    assert_eq!(message, "cross_entropy in layer \"\": index 3 at position 2 is outside of 0..3");
}
