//! Wrong sizes and names are answered with what is wrong, where, and what would be right; never with a panic.

use memfit_ir::{Builder, Result, TensorType, ValueId};
use memfit_nn::layers::*;
use memfit_nn::zoo::{Gpt, Resnet, Setting, Stem, Unet, Vit};
use memfit_nn::{Mode, Model, ZooModel, loss};

fn of(name: &str) -> ZooModel {
    ZooModel::from_name(name).unwrap()
}

#[test]
fn models_refuse_sizes_that_do_not_fit_and_name_the_layer() {
    let gpt = Gpt::default();
    for (model, batch, expected) in [
        (of("resnet50"), 0, "x: the batch size is 0; it must be at least 1"),
        (of("digits").with_input(&[0, 8, 1]).unwrap(), 2, "x: an input of f32[2,0,8,1] is empty"),
        (of("digits").with_input(&[1, 1, 1]).unwrap(), 2, "max_pool in layer \"pool\": a window of 2x2"),
        (of("digits").with_classes(0).unwrap(), 2, "fc: a dense layer needs at least 1 unit"),
        (of("unet").with_classes(0).unwrap(), 2, "out: a convolution needs at least 1 filter"),
        (
            of("unet").with_input(&[250, 250, 3]).unwrap(),
            2,
            "down2: the image of 125x125 cannot be halved; the input of 250x250 must be a multiple of 16 in height and \
             width, for example 256x256",
        ),
        (ZooModel::from(Unet { channels: vec![], ..Unet::default() }), 2, "model: a unet needs the channels"),
        (
            of("vit_b16").with_input(&[224, 230, 3]).unwrap(),
            2,
            "conv_proj: patches of 16x16 do not divide the input of 224x230; 224x240 would fit",
        ),
        (ZooModel::from(Vit { patch: 0, ..Vit::b16() }), 2, "conv_proj: patches of 0x0 do not divide"),
        (
            ZooModel::from(Vit { heads: 7, ..Vit::b16() }),
            2,
            "encoder/layers/0/attn: 7 heads do not divide the width 768; 6 or 8 do",
        ),
        (
            ZooModel::from(Gpt { heads: 5, ..gpt.clone() }),
            2,
            "blocks/0/attn: 5 heads do not divide the width 384; 4 or 6 do",
        ),
        (
            ZooModel::from(Gpt { heads: 0, ..gpt.clone() }),
            2,
            "blocks/0/attn: 0 heads do not divide the width 384; 1 do",
        ),
        (ZooModel::from(Gpt { vocabulary: 0, ..gpt.clone() }), 2, "tokens: the table would be [0, 384]"),
        (ZooModel::from(Gpt { sequence: 0, ..gpt }), 2, "x: an input of i32[2,0] is empty"),
        (of("vgg16").with_input(&[31, 64, 3]).unwrap(), 2, "features: five poolings leave nothing of 31x64"),
    ] {
        for mode in [Mode::Train, Mode::Eval] {
            let error = model.build(batch, mode).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}\nexpected: {expected}");
        }
    }
}

#[test]
fn absurd_sizes_are_refused_before_they_overflow() {
    let huge = usize::MAX / 2;
    for name in ZooModel::names() {
        assert!(of(name).build(huge, Mode::Train).is_err(), "{name}");
        if let Ok(model) = of(name).with_classes(huge) {
            assert!(model.build(2, Mode::Train).is_err(), "{name}");
        }
        if let Ok(model) = of(name).with_input(&[huge, huge, 3]) {
            assert!(model.build(2, Mode::Train).is_err(), "{name}");
        }
    }
    let gpt = Gpt::default();
    for model in [
        ZooModel::from(Gpt { width: huge, ..gpt.clone() }),
        ZooModel::from(Gpt { vocabulary: huge, ..gpt.clone() }),
        ZooModel::from(Gpt { heads: huge, ..gpt.clone() }),
        ZooModel::from(Gpt { sequence: huge, ..gpt }),
        ZooModel::from(Vit { hidden: huge, ..Vit::b16() }),
        ZooModel::from(Vit { patch: huge, ..Vit::b16() }),
        ZooModel::from(Unet { channels: vec![huge, 3], ..Unet::default() }),
        ZooModel::from(Unet { channels: vec![1; 100], ..Unet::default() }),
        ZooModel::from(Resnet { input: [1, 1, huge], ..Resnet::resnet18() }),
    ] {
        assert!(model.build(2, Mode::Train).is_err(), "{model:?}");
    }
}

#[test]
fn layers_refuse_inputs_of_the_wrong_kind_and_name_themselves() {
    type Layer = fn(&mut Builder, ValueId) -> Result<ValueId>;
    let image = || TensorType::f32([2, 4, 4, 6]);
    let rows: Vec<(TensorType, Layer, &str)> = vec![
        (TensorType::f32([]), |b, x| dense(b, "fc", x, Dense::new(3)), "fc: the input must have at least one axis"),
        (TensorType::i32([2, 3]), |b, x| dense(b, "fc", x, Dense::new(3)), "matmul in layer \"fc\": the left side"),
        (TensorType::f32([]), flatten, "model: flatten needs a batch axis"),
        (TensorType::f32([2, 3]), |b, x| conv2d(b, "c", x, Conv2d::new(3, 3)), "c: the input must be an image"),
        (
            image(),
            |b, x| conv2d(b, "c", x, Conv2d { groups: 4, ..Conv2d::new(8, 3) }),
            "c: 4 groups do not divide the 6 channels in and the 8 filters",
        ),
        (image(), |b, x| conv2d(b, "c", x, Conv2d { groups: 0, ..Conv2d::new(8, 3) }), "c: 0 groups do not divide"),
        (image(), |b, x| conv2d(b, "c", x, Conv2d::new(8, 0)), "c: the weight would be [0, 0, 6, 8]"),
        (
            image(),
            |b, x| conv2d(b, "c", x, Conv2d { stride: [0; 2], padding: Padding::Same, ..Conv2d::new(8, 3) }),
            "conv2d in layer \"c\": the stride must be at least 1",
        ),
        (
            TensorType::f32([2, 3]),
            |b, x| depthwise_conv2d(b, "d", x, DepthwiseConv2d::new(3)),
            "d: the input must be an image",
        ),
        (
            image(),
            |b, x| {
                let padding = Padding::Explicit(memfit_ir::op::Pad2::all(9));
                conv2d_transpose(b, "t", x, Conv2dTranspose { padding, ..Conv2dTranspose::new(3, 2) })
            },
            "t: nothing is left of the image",
        ),
        (image(), |b, x| max_pool(b, "p", x, Pool::new(5)), "max_pool in layer \"p\": a window of 5x5"),
        (image(), |b, x| group_norm(b, "n", x, 4, 1e-5), "group_norm in layer \"n\": 4 groups do not divide"),
        (image(), |b, x| dropout(b, Mode::Eval, x, 1.0), "dropout: the rate must be at least 0 and less than 1"),
        (image(), |b, x| self_attention(b, "a", x, SelfAttention::new(2)), "a: the input must be batch, sequence"),
        (TensorType::f32([]), |b, x| activation(b, x, Activation::Softmax), "model: the input must have at least one"),
        (image(), |b, x| embedding(b, "e", x, Embedding::new(3, 3)), "gather in layer \"e\": the ids must be i32"),
    ];
    for (x, layer, expected) in rows {
        let mut b = Builder::new();
        let x = b.input("x", x).unwrap();
        let error = layer(&mut b, x).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}\nexpected: {expected}");
    }
}

#[test]
fn losses_refuse_labels_that_would_broadcast() {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([4, 1])).unwrap();
    let y = b.input("y", TensorType::f32([4])).unwrap();
    for error in [
        loss::mean_squared_error(&mut b, x, y).unwrap_err(),
        loss::binary_cross_entropy(&mut b, x, y).unwrap_err(),
        loss::cross_entropy(&mut b, x, y, 0.0).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "loss: the model gives f32[4,1], but the labels are f32[4]");
    }
    let error = loss::sparse_cross_entropy(&mut b, x, y, 0.0).unwrap_err();
    assert!(error.to_string().starts_with("loss: sparse labels must be i32 classes"), "{error}");
}

#[test]
fn an_unknown_model_is_answered_with_the_nearest_and_all() {
    for (given, nearest) in [
        ("resnet5O", "resnet50"),
        ("ResNet-101", "resnet101"),
        ("mobilenetv3_large", "mobilenet_v3_large"),
        ("vit_b_16", "vit_b16"),
        ("u-net", "unet"),
        ("gtp", "gpt"),
    ] {
        let error = ZooModel::from_name(given).unwrap_err();
        assert_eq!(error.nearest(), Some(nearest), "{given}");
        let message = error.to_string();
        let start = format!("there is no model \"{given}\" (did you mean \"{nearest}\"?); known are mlp, digits,");
        assert!(message.starts_with(&start), "{message}");
        assert!(ZooModel::names().all(|name| message.contains(name)), "{message}");
    }
    let message = ZooModel::from_name("something else entirely").unwrap_err().to_string();
    assert!(!message.contains("did you mean"), "{message}");
}

#[test]
fn options_that_a_model_does_not_have_are_refused() {
    let message = |r: memfit_nn::Result<ZooModel>| r.unwrap_err().to_string();
    assert_eq!(message(of("gpt").with_classes(3)), "gpt: it predicts tokens and has no classes; set its vocabulary");
    assert_eq!(
        message(of("resnet18").with_input(&[224, 224])),
        "input: an image is height, width, channels, but [224, 224] was given"
    );
    assert_eq!(message(of("vgg16").with_stem(Stem::Cifar)), "vgg16 has no stem; it has width, dropout");
    assert_eq!(
        message(of("vit_b16").with_dropout(0.1)),
        "vit_b16 has no dropout; it has nothing to choose but its input and classes"
    );
    let absurd = [
        (
            "resnet18",
            Setting::Scale(0.0),
            "width: must be above 0 and at most 8, for channels are multiplied by it, but is 0",
        ),
        ("unet", Setting::Kernel(4), "kernel: must be odd and at most 31, but is 4"),
        ("mlp", Setting::Hidden(vec![1; 65]), "hidden: must be of at most 64 layers, but has 65"),
        ("mlp", Setting::Scale(0.5), "mlp has no width; it has hidden, activation, dropout"),
    ];
    for (name, setting, expected) in absurd {
        assert_eq!(message(of(name).with(setting)), expected);
    }
    assert!(Activation::from_name("geluu").unwrap_err().to_string().contains("did you mean \"gelu\"?"));
    assert_eq!(message(of("gpt").with_input(&[1, 2])), "gpt: its input is one sequence length, but [1, 2] was given");
    assert_eq!(message(of("mlp").with_input(&[0])), "mlp: an input of [0] is empty or too large");
}
