//! What the reference promises besides the numbers of golden vectors: ties, rounding, randomness, state, errors.

use std::collections::HashMap;

use memfit_exec_tests::reference::{apply_donations, evaluate, initial_states};
use memfit_exec_tests::{Error, Tensor};
use memfit_ir::op::*;
use memfit_ir::{Builder, DType, Op, TensorType, ValueId};
use proptest::prelude::*;

type Tensors = HashMap<String, Tensor>;

/// All outputs of one op on these inputs.
fn run(op: Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    let mut b = Builder::new();
    let mut feeds = Tensors::new();
    let mut x = Vec::new();
    for (i, t) in inputs.iter().enumerate() {
        x.push(b.input(&format!("x{i}"), t.ty.clone())?);
        feeds.insert(format!("x{i}"), t.clone());
    }
    let y = b.scope("layer1/op", |b| b.op_outputs(op, &x))?;
    let values = evaluate(&b.finish(), &feeds, &Tensors::new())?;
    Ok(y.into_iter().map(|v| values[v].clone()).collect())
}

fn vector(data: &[f64]) -> Tensor {
    Tensor::f32([data.len()], data.to_vec()).unwrap()
}

fn image(h: usize, w: usize, data: &[f64]) -> Tensor {
    Tensor::f32([1, h, w, 1], data.to_vec()).unwrap()
}

#[test]
fn slopes_at_the_kinks_are_those_of_the_flat_side() {
    let slopes = |u: Unary, saved: &[f64]| {
        run(Op::UnaryGrad(u), &[vector(saved), vector(&vec![1.0; saved.len()])]).unwrap().remove(0).data
    };
    assert_eq!(slopes(Unary::Relu, &[0.0, 1.0]), [0.0, 1.0]);
    assert_eq!(slopes(Unary::Relu6, &[0.0, 1.0, 6.0]), [0.0, 1.0, 0.0]);
    assert_eq!(slopes(Unary::HardSigmoid, &[0.0, 0.5, 1.0]), [0.0, 1.0 / 6.0, 0.0]);
    assert_eq!(slopes(Unary::Abs, &[-2.0, 0.0, 2.0]), [-1.0, 0.0, 1.0]);
}

#[test]
fn max_pool_gives_the_first_maximum_of_its_window_and_skips_padding() {
    let window = Window { size: [2, 2], stride: [2, 2], pad: Pad2 { top: 1, bottom: 0, left: 1, right: 0 } };
    // Padded: the windows see {-1}, {-2, -2}, {-4, -3}, {-5, -5, -7, -5}.
    let x = image(3, 3, &[-1.0, -2.0, -2.0, -4.0, -5.0, -5.0, -3.0, -7.0, -5.0]);
    let y = run(Op::MaxPool(window), &[x]).unwrap();
    assert_eq!(y[0].data, [-1.0, -2.0, -3.0, -5.0]);
    assert_eq!(y[1].data, [3.0, 2.0, 3.0, 0.0]);
}

#[test]
fn average_pool_does_not_count_padding() {
    let window = Window { size: [2, 2], stride: [1, 1], pad: Pad2 { top: 1, bottom: 0, left: 0, right: 0 } };
    let y = run(Op::AvgPool(window), &[image(1, 2, &[1.0, 3.0])]).unwrap();
    assert_eq!(y[0].data, [2.0]);
}

#[test]
fn bilinear_upsampling_clamps_at_the_edges() {
    let u = Upsample { mode: UpsampleMode::Bilinear, factor: [1, 2] };
    let y = run(Op::Upsample(u), &[image(1, 2, &[0.0, 4.0])]).unwrap();
    assert_eq!(y[0].data, [0.0, 1.0, 3.0, 4.0]);
}

#[test]
fn casts_round_as_the_type_does() {
    let x = vector(&[2049.0, -2.7, 300.0]);
    let cast = |to| run(Op::Cast(to), std::slice::from_ref(&x)).unwrap().remove(0);
    assert_eq!(cast(DType::F16).data, [2048.0, -2.69921875, 300.0]);
    assert_eq!(cast(DType::I32).data, [2049.0, -2.0, 300.0]);
    assert_eq!(cast(DType::U8).data, [255.0, 0.0, 255.0]);
}

#[test]
fn sums_of_16_bit_tensors_are_stored_in_16_bits() {
    let x = Tensor::new(TensorType::new(DType::BF16, [1]), vec![256.0]).unwrap();
    let y = Tensor::new(TensorType::new(DType::BF16, [1]), vec![1.0]).unwrap();
    assert_eq!(run(Op::Binary(Binary::Add), &[x, y]).unwrap()[0].data, [256.0]);
}

#[test]
fn compare_and_select_work_on_integers_and_broadcast() {
    let ids = Tensor::i32([3], &[1, 2, 3]).unwrap();
    let two = Tensor::i32([], &[2]).unwrap();
    let below = run(Op::Compare(Compare::Lt), &[ids, two]).unwrap().remove(0);
    assert_eq!(below.ty, TensorType::new(DType::U8, [3]));
    assert_eq!(below.data, [1.0, 0.0, 0.0]);
    let column = Tensor::f32([2, 1], vec![10.0, 20.0]).unwrap();
    let chosen = run(Op::Select, &[below, column, vector(&[7.0, 8.0, 9.0])]).unwrap().remove(0);
    assert_eq!(chosen.data, [10.0, 8.0, 9.0, 20.0, 8.0, 9.0]);
}

fn dropped(x: &Tensor, clock: [i32; 4]) -> Tensor {
    let dropout = Dropout { rate: 0.25, stream: 3 };
    run(Op::Dropout(dropout), &[x.clone(), Tensor::i32([4], &clock).unwrap()]).unwrap().remove(0)
}

#[test]
fn dropout_keeps_its_share_and_its_mean() {
    let y = dropped(&Tensor::filled(&TensorType::f32([40, 50]), 3.0), [0, 0, 1, 2]);
    assert!(y.data.iter().all(|&y| y == 0.0 || (y - 4.0).abs() < 1e-12));
    let share = y.data.iter().filter(|&&y| y == 0.0).count() as f64 / y.data.len() as f64;
    assert!((share - 0.25).abs() < 0.04, "{share}");
}

#[test]
fn dropout_of_a_micro_batch_is_that_of_the_whole_batch() {
    let whole = dropped(&Tensor::filled(&TensorType::f32([6, 5]), 3.0), [7, 100, -1, 2]);
    let half = dropped(&Tensor::filled(&TensorType::f32([3, 5]), 3.0), [7, 103, -1, 2]);
    assert_eq!(whole.data[15..], half.data);
    assert_ne!(whole.data[..15], half.data);
}

#[test]
fn an_id_outside_its_table_is_an_error_with_op_layer_id_and_limit() {
    let table = Tensor::f32([3, 2], vec![0.0; 6]).unwrap();
    for (id, op, table) in [(3, Op::Gather, &table), (-1, Op::Gather, &table)] {
        let error = run(op, &[table.clone(), Tensor::i32([2], &[0, id]).unwrap()]).unwrap_err();
        assert_eq!(error.to_string(), format!("gather in layer \"layer1/op\": the id {id} is not in 0..3"));
    }
    let op = Op::CrossEntropy(CrossEntropy { smoothing: 0.0 });
    let error = run(op, &[table, Tensor::i32([3], &[0, 1, 2]).unwrap()]).unwrap_err();
    assert_eq!(error.to_string(), "cross_entropy in layer \"layer1/op\": the id 2 is not in 0..2");
}

#[test]
fn what_is_not_given_or_has_another_type_is_named() {
    let mut b = Builder::new();
    b.input("x", TensorType::f32([2])).unwrap();
    b.param("w", [3], Init::Constant(0.0)).unwrap();
    let graph = b.finish();
    let message = |inputs: &Tensors| evaluate(&graph, inputs, &Tensors::new()).unwrap_err().to_string();
    assert_eq!(message(&Tensors::new()), "the graph needs the input \"x\" of f32[2], but it was not given");
    let wrong = Tensors::from([("x".into(), vector(&[1.0]))]);
    assert_eq!(message(&wrong), "the input \"x\" must be f32[2], but f32[1] was given");
    let right = Tensors::from([("x".into(), vector(&[1.0, 2.0]))]);
    assert_eq!(message(&right), "the graph needs the state \"w\" of f32[3], but it was not given");
}

#[test]
fn donated_values_are_the_states_of_the_next_step() {
    let mut b = Builder::new();
    let state = |b: &mut Builder, name: &str, value| b.param(name, [2], Init::Constant(value)).unwrap();
    let (count, still) = (state(&mut b, "count", 5.0), state(&mut b, "still", 1.0));
    let next: ValueId = b.add(count, still).unwrap();
    b.donate(count, next);
    let graph = b.finish();
    let mut states = initial_states(&graph, 0);
    for _ in 0..3 {
        let values = evaluate(&graph, &Tensors::new(), &states).unwrap();
        states = apply_donations(&graph, &values, &states);
    }
    assert_eq!(states["count"].data, [8.0, 8.0]);
    assert_eq!(states["still"].data, [1.0, 1.0]);
}

proptest! {
    /// The three convolutions are one bilinear form: ⟨conv(x, w), y⟩ = ⟨x, transpose(y, w)⟩ = ⟨w, filter(x, y)⟩.
    #[test]
    fn convolutions_are_adjoint(
        image in [3usize..7, 3usize..7], window in [1usize..4, 1usize..4], stride in [1usize..4, 1usize..4],
        dilation in [1usize..3, 1usize..3], pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        groups in 1usize..4, group_in in 1usize..3, group_out in 1usize..3,
    ) {
        let pad = Pad2 { top: pads[0], bottom: pads[1], left: pads[2], right: pads[3] };
        let conv = Conv { stride, pad, dilation, groups };
        prop_assume!(memfit_ir::infer::conv_output(image, window, stride, pad, dilation).is_ok());
        let random = |name: &str, shape: &[usize]| {
            let data = memfit_ir::philox::normal(1, name, shape.iter().product()).map(f64::from).collect();
            Tensor::f32(shape, data).unwrap()
        };
        let x = random("x", &[2, image[0], image[1], groups * group_in]);
        let w = random("w", &[window[0], window[1], group_in, groups * group_out]);
        let y_of_x = run(Op::Conv(conv), &[x.clone(), w.clone()]).unwrap().remove(0);
        let y = random("y", y_of_x.shape());
        let transpose = Op::ConvTranspose(ConvTranspose { conv, size: image });
        let x_of_y = run(transpose, &[y.clone(), w.clone()]).unwrap().remove(0);
        let filter = Op::ConvFilter(ConvFilter { conv, size: window });
        let w_of_xy = run(filter, &[x.clone(), y.clone()]).unwrap().remove(0);
        let dot = |a: &Tensor, b: &Tensor| a.data.iter().zip(&b.data).map(|(a, b)| a * b).sum::<f64>();
        let form = dot(&y_of_x, &y);
        prop_assert!((form - dot(&x, &x_of_y)).abs() < 1e-9);
        prop_assert!((form - dot(&w, &w_of_xy)).abs() < 1e-9);
    }
}
