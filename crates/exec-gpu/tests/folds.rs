//! Reductions and norms of shapes that are spread in different ways over units, cubes and launches, against the f64 reference.
#![cfg(feature = "gpu")]

mod common;

use std::collections::HashMap;

use common::{POISONED, gpu, graph, runner};
use memfit_exec_tests::folds::{self, Fold};
use memfit_exec_tests::generate::{Example, alone, on_normal_numbers};
use memfit_exec_tests::{Expected, Reference, RunResult, Runner, Settings, Tensor, check_close};
use memfit_ir::op::{CrossEntropy, Eps, Reduce, ReduceKind, Softmax};
use memfit_ir::{DType, Op, TensorType};

/// Runs a graph in poisoned memory.
fn run(what: &str, Example { graph, inputs, states, .. }: &Example) -> RunResult {
    runner(POISONED).run(graph, inputs, states).unwrap_or_else(|e| panic!("{what}: {e}"))
}

fn check(folds: &[Fold]) {
    if gpu().is_none() {
        return;
    }
    for (what, example) in folds {
        let expected = Expected::new(&example.graph, &example.inputs, &example.states).unwrap();
        expected.check(&run(what, example)).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

#[test]
fn any_axes_of_any_extents_are_reduced() {
    check(&folds::reductions().unwrap());
}

#[test]
fn norms_of_few_long_and_of_many_short_cells_agree_with_the_reference() {
    check(&folds::norms().unwrap());
}

#[test]
fn softmax_and_loss_of_few_long_and_of_many_short_rows_agree_with_the_reference() {
    check(&folds::losses().unwrap());
}

#[test]
fn a_variance_keeps_its_digits_where_numbers_lie_far_from_zero_and_close_together() {
    if gpu().is_none() {
        return;
    }
    for (example, name) in folds::variances().unwrap() {
        let given = run("far from 0", &example);
        let expected = Reference.run(&example.graph, &example.inputs, &example.states).unwrap();
        check_close(name, &expected.outputs[name], &given.outputs[name], 2e-6).unwrap_or_else(|e| panic!("{e}"));
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
        let mut example = on_normal_numbers(alone(&op, &types).unwrap());
        example.inputs = inputs.iter().enumerate().map(|(i, &t)| (format!("x{i}"), t.clone())).collect();
        run("no number", &example).outputs
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
        let mut example = on_normal_numbers(graph);
        let labels = [2.0, 3.0, -1.0, 0.0, 2e9];
        example.inputs.insert("labels".into(), Tensor::f32([5], labels.to_vec()).unwrap());
        let given = run("classes", &example).outputs;
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
    let op = Op::CrossEntropy(CrossEntropy { smoothing: 0.0 });
    let Example { graph, mut inputs, .. } = on_normal_numbers(alone(&op, &[TensorType::f32([4, 3]), labels]).unwrap());
    inputs.insert("x1".into(), Tensor::i32([4], &[0, 2, 3, 1]).unwrap());
    let given = runner(Settings::default()).run(&graph, &inputs, &HashMap::new());
    let message = given.unwrap_err().to_string();
    assert_eq!(message, "cross_entropy: index 3 at position 2 is outside of 0..3");
}
