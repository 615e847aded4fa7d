//! The models of the zoo are the published ones: their parameters and multiply-adds are counted, and both modes of each
//! are checked against each other.

use std::collections::HashSet;

use memfit_ir::op::StateClass;
use memfit_ir::{DType, Graph, Op, TensorType, text, verify};
use memfit_nn::layers::Activation;
use memfit_nn::zoo::{Gpt, Mlp, Resnet, Setting, Stem, Unet};
use memfit_nn::{Forward, Mode, Model, ZooModel};

fn build(name: &str, batch: usize, mode: Mode) -> Forward {
    ZooModel::from_name(name).unwrap().build(batch, mode).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn parameter_counts_are_the_published_ones() {
    let cifar = ZooModel::from(Resnet::resnet18().cifar());
    let gpt = ZooModel::from(Gpt { layers: 6, width: 384, heads: 6, sequence: 256, vocabulary: 4096 });
    for (model, expected) in [
        (ZooModel::from_name("vgg16").unwrap(), 138_357_544),
        (ZooModel::from_name("resnet18").unwrap(), 11_689_512),
        (ZooModel::from_name("resnet34").unwrap(), 21_797_672),
        (ZooModel::from_name("resnet50").unwrap(), 25_557_032),
        (ZooModel::from_name("resnet101").unwrap(), 44_549_160),
        (ZooModel::from_name("mobilenet_v3_small").unwrap(), 2_542_856),
        (ZooModel::from_name("mobilenet_v3_large").unwrap(), 5_483_032),
        (ZooModel::from_name("efficientnet_b0").unwrap(), 5_288_548),
        (ZooModel::from_name("vit_b16").unwrap(), 86_567_656),
        (ZooModel::from_name("unet").unwrap(), 7_763_041),
        (ZooModel::from_name("mlp").unwrap(), 785 * 2048 + 2049 * 2048 + 2049 * 10),
        (cifar, 11_173_962),
        (gpt, 13_891_584),
    ] {
        let graph = model.build(1, Mode::Train).unwrap().graph;
        assert_eq!(graph.param_count(), expected, "{model:?}");
    }
}

/// Counts do not see a wrong stride; work does. The numbers are torchvision's, in 10⁹ multiply-adds for one image.
#[test]
fn multiply_adds_are_the_published_ones() {
    for (name, expected) in [
        ("vgg16", 15.47),
        ("resnet18", 1.814),
        ("resnet34", 3.664),
        ("resnet50", 4.089),
        ("resnet101", 7.801),
        ("mobilenet_v3_small", 0.057),
        ("mobilenet_v3_large", 0.217),
        ("efficientnet_b0", 0.386),
        ("vit_b16", 17.564),
    ] {
        let giga = multiply_adds(&build(name, 1, Mode::Eval).graph) as f64 / 1e9;
        assert!((giga - expected).abs() < 5.1e-4_f64.max(expected * 5e-4), "{name}: {giga}, expected {expected}");
    }
}

fn multiply_adds(graph: &Graph) -> usize {
    let each = graph.nodes().iter().map(|n| {
        let shape = |i: usize| graph.shape(n.inputs[i]);
        let out = || graph.ty(n.outputs[0]).elements();
        match &n.op {
            Op::Conv(_) => out() * shape(1)[..3].iter().product::<usize>(),
            Op::MatMul(_) => out() * shape(0)[shape(0).len() - 1],
            Op::Attention(_) => 2 * out() * shape(0)[1],
            _ => 0,
        }
    });
    each.sum()
}

#[test]
fn every_model_builds_well_formed_graphs_in_both_modes() {
    for name in ZooModel::names() {
        for mode in [Mode::Train, Mode::Eval] {
            let forward = build(name, 2, mode);
            verify(&forward.graph).unwrap_or_else(|e| panic!("{name} {mode:?}: {e}"));
            let outputs: Vec<_> = forward.graph.outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
            assert_eq!(outputs, [("loss", forward.loss), ("logits", forward.output("logits").unwrap())], "{name}");
            assert_eq!(*forward.graph.ty(forward.loss), TensorType::f32([]), "{name}");
        }
    }
}

#[test]
fn inputs_and_logits_have_the_promised_types() {
    for (name, x, y, logits) in [
        ("mlp", "f32[2,784]", "i32[2]", "f32[2,10]"),
        ("digits", "f32[2,8,8,1]", "i32[2]", "f32[2,10]"),
        ("resnet50", "f32[2,224,224,3]", "i32[2]", "f32[2,1000]"),
        ("vit_b16", "f32[2,224,224,3]", "i32[2]", "f32[2,1000]"),
        ("unet", "f32[2,256,256,3]", "f32[2,256,256,1]", "f32[2,256,256,1]"),
        ("gpt", "i32[2,256]", "i32[2,256]", "f32[2,256,4096]"),
    ] {
        let f = build(name, 2, Mode::Train);
        let ty = |v| f.graph.ty(v).to_string();
        let given = [ty(f.graph.input("x").unwrap()), ty(f.graph.input("y").unwrap()), ty(f.output("logits").unwrap())];
        assert_eq!(given, [x, y, logits], "{name}");
    }
}

#[test]
fn evaluation_changes_no_state_and_drops_nothing() {
    for name in ZooModel::names() {
        let graph = build(name, 2, Mode::Eval).graph;
        assert!(graph.donations.is_empty(), "{name}");
        let trains = |op: &Op| matches!(op, Op::Dropout(_) | Op::BatchStats | Op::BatchUpdate(_) | Op::Update(_));
        assert!(!graph.nodes().iter().any(|n| trains(&n.op)), "{name}");
        let inputs: Vec<_> = graph.inputs().map(|(n, _)| n).collect();
        assert_eq!(inputs, ["x", "y"], "{name}");
    }
}

#[test]
fn training_updates_every_running_statistic() {
    for name in ZooModel::names() {
        let graph = build(name, 2, Mode::Train).graph;
        let statistics: HashSet<_> =
            graph.states().filter(|(s, _)| s.class == StateClass::Statistic).map(|(_, v)| v).collect();
        let updated: HashSet<_> = graph.donations.iter().map(|d| d.old).collect();
        assert_eq!(statistics, updated, "{name}");
    }
}

#[test]
fn dropout_stands_where_the_papers_put_it() {
    for (name, expected) in [
        ("mlp", vec![]),
        ("digits", vec![0.25]),
        ("vgg16", vec![0.5, 0.5]),
        ("resnet50", vec![]),
        ("mobilenet_v3_small", vec![0.2]),
        ("efficientnet_b0", vec![0.2]),
    ] {
        let graph = build(name, 2, Mode::Train).graph;
        let dropouts = graph.nodes().iter().filter_map(|n| match &n.op {
            Op::Dropout(d) => Some(d),
            _ => None,
        });
        let (rates, streams): (Vec<f32>, HashSet<u32>) = dropouts.map(|d| (d.rate, d.stream)).unzip();
        assert_eq!(rates, expected, "{name}");
        assert_eq!(streams.len(), rates.len(), "{name}: two dropouts share a stream");
    }
}

#[test]
fn states_are_the_same_in_both_modes_and_for_every_batch() {
    for name in ZooModel::names() {
        let states =
            |batch, mode| -> Vec<_> { build(name, batch, mode).graph.states().map(|(s, _)| s.clone()).collect() };
        let train = states(2, Mode::Train);
        assert_eq!(train, states(2, Mode::Eval), "{name}");
        assert_eq!(train, states(3, Mode::Train), "{name}");
        let names: HashSet<_> = train.iter().map(|s| &s.name).collect();
        assert_eq!(names.len(), train.len(), "{name}");
        assert!(train.iter().all(|s| s.dtype == DType::F32), "{name}");
    }
}

#[test]
fn states_have_names_and_shapes_that_a_person_knows() {
    for (model, state, shape) in [
        ("mlp", "fc1/weight", "[784,2048]"),
        ("digits", "conv1/bn/mean", "[32]"),
        ("vgg16", "features/conv3_2/weight", "[3,3,256,256]"),
        ("vgg16", "classifier/fc1/weight", "[25088,4096]"),
        ("resnet50", "layer3/2/conv1/weight", "[1,1,1024,256]"),
        ("resnet50", "layer2/0/downsample/conv/weight", "[1,1,256,512]"),
        ("resnet50", "layer1/0/bn3/var", "[256]"),
        ("mobilenet_v3_large", "features/4/depthwise/conv/weight", "[5,5,1,72]"),
        ("mobilenet_v3_large", "features/4/se/fc1/weight", "[72,24]"),
        ("efficientnet_b0", "features/2/0/se/fc1/weight", "[96,4]"),
        ("unet", "up4/upconv/weight", "[2,2,256,512]"),
        ("unet", "up4/1/conv/weight", "[3,3,512,256]"),
        ("vit_b16", "class_token", "[1,1,768]"),
        ("vit_b16", "pos_embedding", "[1,197,768]"),
        ("vit_b16", "encoder/layers/11/attn/qkv/weight", "[768,2304]"),
        ("gpt", "blocks/0/attn/qkv/weight", "[384,1152]"),
        ("gpt", "positions/weight", "[256,384]"),
        ("gpt", "head/weight", "[384,4096]"),
    ] {
        let graph = build(model, 1, Mode::Eval).graph;
        let value = graph.state(state).unwrap_or_else(|| panic!("{model} has no {state}"));
        assert_eq!(graph.ty(value).shape.to_string(), shape, "{model} {state}");
    }
}

/// The whole forward pass of a one-layer GPT, op by op.
#[test]
fn a_gpt_block_is_attention_then_mlp_with_the_norms_in_front() {
    let gpt = Gpt { layers: 1, width: 8, heads: 2, sequence: 4, vocabulary: 16 };
    let graph = ZooModel::from(gpt).build(2, Mode::Train).unwrap().graph;
    let ops: Vec<String> = graph
        .nodes()
        .iter()
        .filter(|n| !matches!(n.op, Op::State(_) | Op::Input(_)))
        .map(|n| format!("{} {}", n.scope, n.op.name()).trim().to_string())
        .collect();
    let expected = "tokens gather, positions add, \
        blocks/0/ln1 layer_norm, blocks/0/attn/qkv matmul, blocks/0/attn/qkv add, blocks/0/attn reshape, \
        blocks/0/attn attention, blocks/0/attn reshape, blocks/0/attn/proj matmul, blocks/0/attn/proj add, \
        blocks/0 add, blocks/0/ln2 layer_norm, blocks/0/mlp/fc1 matmul, blocks/0/mlp/fc1 add, \
        blocks/0/mlp gelu_tanh, blocks/0/mlp/fc2 matmul, blocks/0/mlp/fc2 add, blocks/0 add, \
        ln_f layer_norm, head matmul, loss cross_entropy, loss reduce_mean";
    assert_eq!(ops.join(", "), expected);
}

#[test]
fn options_change_what_they_say() {
    let logits = |model: ZooModel| {
        let f = model.build(2, Mode::Eval).unwrap();
        f.graph.ty(f.output("logits").unwrap()).to_string()
    };
    let of = |name: &str| ZooModel::from_name(name).unwrap();
    for name in ZooModel::names().filter(|n| !["gpt", "unet"].contains(n)) {
        assert_eq!(logits(of(name).with_classes(7).unwrap()), "f32[2,7]", "{name}");
    }
    assert_eq!(logits(of("unet").with_classes(3).unwrap().with_input(&[64, 48, 1]).unwrap()), "f32[2,64,48,3]");
    assert_eq!(logits(of("gpt").with_input(&[32]).unwrap()), "f32[2,32,4096]");
    assert_eq!(logits(of("mlp").with_input(&[8, 8, 1]).unwrap()), "f32[2,10]");
    let small = of("resnet18").with_stem(Stem::Cifar).unwrap().with_classes(10).unwrap();
    assert_eq!(
        format!("{:?}", small.with_input(&[32, 32, 3]).unwrap().network()),
        format!("{:?}", Resnet::resnet18().cifar())
    );
    assert_eq!(logits(of("vgg16").with_input(&[32, 32, 3]).unwrap()), "f32[2,1000]");
    assert_eq!(logits(of("vit_b16").with_input(&[32, 64, 3]).unwrap()), "f32[2,1000]");
    assert_eq!(logits(ZooModel::from(Mlp::new(4, &[], 3))), "f32[2,3]");
    assert_eq!(
        logits(ZooModel::from(Unet { channels: vec![4], input: [5, 7, 1], outputs: 2, ..Unet::default() })),
        "f32[2,5,7,2]"
    );
}

/// Every choice that a network says it has can be made, with the value that it says it has, and changes nothing then.
#[test]
fn every_choice_can_be_made_and_is_what_it_says() {
    for name in ZooModel::names() {
        let model = ZooModel::from_name(name).unwrap();
        for choice in model.choices() {
            let value = choice.value.as_str();
            let whole = || value.parse::<usize>().expect("a number");
            let number = || value.parse::<f32>().expect("a number");
            let setting = match (choice.name, name) {
                ("hidden", _) => Setting::Hidden(vec![2048, 2048]),
                ("activation", _) => Setting::Activation(Activation::from_name(value).unwrap()),
                ("dropout", _) => Setting::Dropout(number()),
                ("width", "gpt") => Setting::Width(whole()),
                ("width", _) => Setting::Scale(number()),
                ("kernel", _) => Setting::Kernel(whole()),
                ("stem", _) => Setting::Stem(Stem::Imagenet),
                ("layers", _) => Setting::Layers(whole()),
                ("heads", _) => Setting::Heads(whole()),
                ("sequence", _) => Setting::Input(vec![whole()]),
                ("vocabulary", _) => Setting::Vocabulary(whole()),
                other => panic!("{other:?}"),
            };
            let same = model.clone().with(setting).unwrap();
            assert_eq!(same.choices(), model.choices(), "{name}: {}", choice.name);
        }
    }
}

#[test]
fn narrow_convnets_have_channels_in_eights_and_the_same_head() {
    for (name, width, parameters) in [
        ("digits", 0.5, 12_314),
        ("resnet18", 0.5, 3_055_880),
        ("mobilenet_v3_large", 0.5, 3_336_176),
        ("mobilenet_v3_small", 0.25, 1_707_232),
        ("efficientnet_b0", 0.5, 2_456_202),
        ("unet", 0.25, 486_553),
        ("vgg16", 0.125, 33_958_032),
    ] {
        let model = ZooModel::from_name(name).unwrap();
        let whole = model.build(1, Mode::Train).unwrap().graph;
        let graph = model.with(Setting::Scale(width)).unwrap().build(1, Mode::Train).unwrap().graph;
        assert_eq!(graph.param_count(), parameters, "{name}");
        let states = |graph: &Graph| graph.states().map(|(s, _)| s.name.clone()).collect::<Vec<_>>();
        assert_eq!(states(&graph), states(&whole), "{name}");
        let logits = |graph: &Graph| graph.output("logits").map(|v| graph.shape(v).to_vec());
        assert_eq!(logits(&graph), logits(&whole), "{name}");
    }
}

#[test]
fn hidden_layers_follow_the_input_where_nobody_says_them() {
    let sizes = [(5, 64), (32, 64), (33, 128), (64, 128), (784, 2048), (3072, 2048), (usize::MAX, 2048)];
    for (features, width) in sizes {
        assert_eq!(Mlp::usual_hidden(features), [width; 2], "{features}");
    }
    let count = |model: &Mlp| model.build(1, Mode::Train).unwrap().graph.param_count();
    assert_eq!(count(&Mlp { features: 5, classes: 3, ..Mlp::default() }), 6 * 64 + 65 * 64 + 65 * 3);
    assert_eq!(count(&Mlp::new(5, &[], 3)), 6 * 3);
    let dropped = Mlp { dropout: 0.5, activation: Activation::Tanh, ..Mlp::new(5, &[7], 3) };
    let text = |mode| text::print(&dropped.build(2, mode).unwrap().graph);
    assert!(text(Mode::Train).contains("dropout") && text(Mode::Train).contains("tanh"));
    assert!(!text(Mode::Eval).contains("dropout("), "{}", text(Mode::Eval));
}
