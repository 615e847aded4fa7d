//! What each layer appends: the shapes it gives, the states it makes, and how the two modes differ.

use memfit_ir::op::{Init, Pad2, StateClass};
use memfit_ir::{Builder, Graph, Op, Result, TensorType, ValueId, verify};
use memfit_nn::layers::*;
use memfit_nn::{Mode, loss};

/// Builds one layer on an input of this type; gives the type of its result and the states it made.
fn check(x: TensorType, layer: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId>, y: &str, states: &[&str]) {
    let mut b = Builder::new();
    let x = b.input("x", x).unwrap();
    let result = layer(&mut b, x).unwrap();
    assert_eq!(b.ty(result).to_string(), y);
    let graph = b.finish();
    verify(&graph).unwrap();
    let made: Vec<String> = graph.states().map(|(s, _)| format!("{} {}", s.name, s.shape)).collect();
    assert_eq!(made, states);
}

fn ops(graph: &Graph) -> Vec<&'static str> {
    graph.nodes().iter().map(|n| n.op.name()).collect()
}

#[test]
fn dense_layers_work_on_the_last_axis() {
    check(
        TensorType::f32([2, 5]),
        |b, x| dense(b, "fc", x, Dense::new(3)),
        "f32[2,3]",
        &["fc/weight [5,3]", "fc/bias [3]"],
    );
    check(
        TensorType::f32([2, 4, 5]),
        |b, x| dense(b, "fc", x, Dense { bias: false, ..Dense::new(3) }),
        "f32[2,4,3]",
        &["fc/weight [5,3]"],
    );
    check(TensorType::f32([2, 4, 5]), flatten, "f32[2,20]", &[]);
    check(
        TensorType::i32([2, 4]),
        |b, x| embedding(b, "tokens", x, Embedding::new(10, 6)),
        "f32[2,4,6]",
        &["tokens/weight [10,6]"],
    );
}

#[test]
fn convolutions_pad_as_they_are_told() {
    let image = || TensorType::f32([1, 7, 8, 4]);
    for (padding, expected) in [
        (Padding::Same, "f32[1,4,4,6]"),
        (Padding::Valid, "f32[1,3,3,6]"),
        (Padding::half(3), "f32[1,4,4,6]"),
        (Padding::Explicit(Pad2 { top: 2, bottom: 0, left: 0, right: 3 }), "f32[1,4,5,6]"),
    ] {
        let conv = Conv2d { stride: [2; 2], padding, ..Conv2d::new(6, 3) };
        check(image(), |b, x| conv2d(b, "c", x, conv), expected, &["c/weight [3,3,4,6]", "c/bias [6]"]);
    }
    let conv = Conv2d { groups: 2, dilation: [2; 2], bias: false, ..Conv2d::new(6, 3) };
    check(image(), |b, x| conv2d(b, "c", x, conv), "f32[1,3,4,6]", &["c/weight [3,3,2,6]"]);
    let depthwise = DepthwiseConv2d { bias: false, ..DepthwiseConv2d::new(3) };
    check(image(), |b, x| depthwise_conv2d(b, "d", x, depthwise), "f32[1,5,6,4]", &["d/weight [3,3,1,4]"]);
}

#[test]
fn transposed_convolutions_undo_the_size_of_a_convolution() {
    for (size, stride, padding, expected) in [
        (2, 2, Padding::Valid, "f32[1,6,8,5]"),
        (3, 2, Padding::Valid, "f32[1,7,9,5]"),
        (3, 2, Padding::Same, "f32[1,6,8,5]"),
        (4, 2, Padding::Explicit(Pad2::all(1)), "f32[1,6,8,5]"),
        (2, 3, Padding::Valid, "f32[1,8,11,5]"),
    ] {
        let c = Conv2dTranspose { stride: [stride; 2], padding, ..Conv2dTranspose::new(5, size) };
        let weight = format!("t/weight [{size},{size},5,2]");
        let layer = |b: &mut Builder, x| conv2d_transpose(b, "t", x, c);
        check(TensorType::f32([1, 3, 4, 2]), layer, expected, &[&weight, "t/bias [5]"]);
    }
}

#[test]
fn poolings_give_smaller_images() {
    let image = || TensorType::f32([1, 7, 7, 2]);
    check(image(), |b, x| max_pool(b, "p", x, Pool::new(2)), "f32[1,3,3,2]", &[]);
    check(image(), |b, x| avg_pool(b, "p", x, Pool { padding: Padding::Same, ..Pool::new(2) }), "f32[1,4,4,2]", &[]);
}

#[test]
fn norms_keep_the_shape() {
    let x = || TensorType::f32([2, 3, 4]);
    check(x(), |b, x| layer_norm(b, "n", x, 1e-5), "f32[2,3,4]", &["n/scale [4]", "n/bias [4]"]);
    check(x(), |b, x| rms_norm(b, "n", x, 1e-5), "f32[2,3,4]", &["n/scale [4]"]);
    check(x(), |b, x| group_norm(b, "n", x, 2, 1e-5), "f32[2,3,4]", &["n/scale [4]", "n/bias [4]"]);
    for mode in [Mode::Train, Mode::Eval] {
        let states = ["n/scale [4]", "n/bias [4]", "n/mean [4]", "n/var [4]"];
        check(x(), |b, x| batch_norm(b, mode, "n", x, BatchNorm::default()), "f32[2,3,4]", &states);
    }
}

#[test]
fn batch_norm_updates_its_running_statistics_in_training_and_reads_them_in_evaluation() {
    let graph = |mode| {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([8, 4])).unwrap();
        batch_norm(&mut b, mode, "bn", x, BatchNorm::default()).unwrap();
        b.finish()
    };
    let train = graph(Mode::Train);
    assert_eq!(ops(&train)[5..], ["batch_stats", "batch_apply", "batch_update"]);
    let updated: Vec<_> = train.donations.iter().map(|d| d.old).collect();
    assert_eq!(updated, [train.state("bn/mean").unwrap(), train.state("bn/var").unwrap()]);
    let starts: Vec<_> =
        train.states().filter(|(s, _)| s.class == StateClass::Statistic).map(|(s, _)| s.init).collect();
    assert_eq!(starts, [Init::Constant(0.0), Init::Constant(1.0)]);

    let eval = graph(Mode::Eval);
    let apply = eval.nodes().last().unwrap();
    assert_eq!(ops(&eval)[5..], ["batch_apply"]);
    assert_eq!(apply.inputs[1..3], [eval.state("bn/mean").unwrap(), eval.state("bn/var").unwrap()]);
}

#[test]
fn dropout_is_the_identity_in_evaluation_and_at_rate_0() {
    for (mode, rate, expected) in [(Mode::Train, 0.5, 1), (Mode::Train, 0.0, 0), (Mode::Eval, 0.5, 0)] {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([8, 4])).unwrap();
        dropout(&mut b, mode, x, rate).unwrap();
        let count = b.graph().nodes().iter().filter(|n| matches!(n.op, Op::Dropout(_))).count();
        assert_eq!(count, expected, "{mode:?} {rate}");
    }
}

#[test]
fn every_activation_keeps_the_shape() {
    use Activation::*;
    for kind in [
        Linear,
        Relu,
        Relu6,
        LeakyRelu(0.1),
        Elu(1.0),
        Tanh,
        Sigmoid,
        HardSigmoid,
        HardSwish,
        Silu,
        Softplus,
        GeluTanh,
        GeluErf,
        Softmax,
    ] {
        check(TensorType::f32([2, 3]), |b, x| activation(b, x, kind), "f32[2,3]", &[]);
    }
}

#[test]
fn attention_and_squeeze_excite_keep_the_shape() {
    let states = ["a/qkv/weight [8,24]", "a/qkv/bias [24]", "a/proj/weight [8,8]", "a/proj/bias [8]"];
    let layer = |b: &mut Builder, x| self_attention(b, "a", x, SelfAttention::new(2));
    check(TensorType::f32([2, 5, 8]), layer, "f32[2,5,8]", &states);
    let se = SqueezeExcite {
        squeeze: 2,
        activation: Activation::Relu,
        gate: Activation::Sigmoid,
        init: memfit_nn::Initializer::GLOROT_UNIFORM,
    };
    let states = ["s/fc1/weight [8,2]", "s/fc1/bias [2]", "s/fc2/weight [2,8]", "s/fc2/bias [8]"];
    check(TensorType::f32([2, 4, 4, 8]), |b, x| squeeze_excite(b, "s", x, se), "f32[2,4,4,8]", &states);
}

#[test]
fn losses_are_scalars() {
    type Loss = fn(&mut Builder, ValueId, ValueId) -> Result<ValueId>;
    let rows: [(TensorType, Loss); 4] = [
        (TensorType::i32([2]), |b, x, y| loss::sparse_cross_entropy(b, x, y, 0.1)),
        (TensorType::f32([2, 3]), |b, x, y| loss::cross_entropy(b, x, y, 0.0)),
        (TensorType::f32([2, 3]), loss::binary_cross_entropy),
        (TensorType::f32([2, 3]), loss::mean_squared_error),
    ];
    for (labels, loss) in rows {
        let mut b = Builder::new();
        let x = b.input("x", TensorType::f32([2, 3])).unwrap();
        let y = b.input("y", labels.clone()).unwrap();
        let scalar = loss(&mut b, x, y).unwrap();
        assert_eq!(*b.ty(scalar), TensorType::f32([]));
        assert_eq!(ops(b.graph()).last(), Some(&"reduce_mean"), "{labels}");
    }
}
