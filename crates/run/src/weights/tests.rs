//! Names and shapes of all that torchvision and timm have, and numbers of a small checkpoint; `xtask/oracle/foreign_weights.py`
//! writes these files.

use std::path::PathBuf;

use memfit::data::BytePool;
use memfit::exec::weights::read_header;
use memfit_files::torch::Tensor;

use proptest::prelude::*;

use super::*;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/weights")
}

/// A state dict as its lines say it.
fn state_dict(text: &str) -> BTreeMap<String, Tensor> {
    let line = |line: &str| {
        let (name, sizes) = line.split_once(' ').expect("a name and sizes");
        let shape: Vec<usize> = sizes.split('x').filter_map(|size| size.parse().ok()).collect();
        let strides = (1..=shape.len()).map(|i| shape[i..].iter().product::<usize>() as u64).collect();
        let numbers = if shape.is_empty() { Numbers::Whole(8) } else { Numbers::F32 };
        (name.into(), Tensor { name: name.into(), numbers, shape, strides, start: 0 })
    };
    text.lines().map(line).collect()
}

fn fit_of(model: &ZooModel, tensors: BTreeMap<String, Tensor>) -> Fit {
    fit(model, &tensors).expect("a network")
}

#[test]
fn every_weight_of_torchvision_and_timm_is_mapped() {
    let mut networks = 0;
    for name in ZooModel::names().filter(|name| names_elsewhere(name).is_some()) {
        for convention in [Convention::Torchvision, Convention::Timm] {
            let path = folder().join(format!("{name}.{}.txt", convention.title()));
            let tensors = state_dict(&std::fs::read_to_string(&path).expect("a list of names"));
            let weights = tensors.values().filter(|tensor| tensor.numbers == Numbers::F32).count();
            let fit = fit_of(&ZooModel::from_name(name).expect("a network"), tensors);
            assert_eq!((&fit.missing, &fit.left_out), (&vec![], &vec![]), "{}", path.display());
            assert_eq!(fit.found.len(), weights, "{}", path.display());
            let is_shared = name.starts_with("resnet");
            assert_eq!(fit.convention, if is_shared { Convention::Torchvision } else { convention });
            networks += 1;
        }
    }
    assert_eq!(networks, 18);
}

#[test]
fn a_head_of_other_classes_and_a_stem_of_another_size_are_left_out_and_said() {
    let read = |name: &str| state_dict(&std::fs::read_to_string(folder().join(name)).expect("a list of names"));
    let model = ZooModel::from_name("resnet18").and_then(|model| model.with_classes(10)).expect("a network");
    let fit = fit_of(&model, read("resnet18.torchvision.txt"));
    assert_eq!((fit.found.len(), &fit.missing[..]), (100, &["fc/weight".to_string(), "fc/bias".into()][..]));
    let names = vec!["fc.weight".to_string(), "fc.bias".into()];
    assert_eq!(fit.left_out, [LeftOut { names, reason: "1000 classes there, 10 here".into() }]);

    let cifar = ZooModel::from_name("resnet18").and_then(|model| model.with_stem(memfit::nn::zoo::Stem::Cifar));
    let fit = fit_of(&cifar.expect("a network"), read("resnet18.timm.txt"));
    let reason = "64x3x7x7 there, 64x3x3x3 here".into();
    assert_eq!(fit.left_out, [LeftOut { names: vec!["conv1.weight".into()], reason }]);

    let large = ZooModel::from_name("vit_b16").and_then(|model| model.with_input(&[384, 384, 3]));
    let fit = fit_of(&large.expect("a network"), read("vit_b16.timm.txt"));
    let reason = "1x197x768 there, 1x577x768 here".into();
    assert_eq!(fit.left_out, [LeftOut { names: vec!["pos_embed".into()], reason }]);
}

#[test]
fn the_network_that_a_file_is_of_is_named() {
    for (file, name, weights) in
        [("vgg16.timm", "vgg16", 32), ("resnet18.timm", "resnet18", 102), ("resnet50.timm", "resnet50", 267)]
    {
        let path = folder().join(format!("{file}.txt"));
        let tensors = state_dict(&std::fs::read_to_string(path).expect("a list of names"));
        assert_eq!(meant(&tensors), Some((name.into(), weights)));
    }
    assert_eq!(meant(&BTreeMap::new()), None);
}

/// Numbers of a file as memfit wants them, by our names.
fn converted(path: &std::path::Path, model: &ZooModel, room: u64) -> BTreeMap<String, Vec<f32>> {
    let source = Source::open(path, model.name()).expect("a file");
    let fit = fit(model, &source.tensors).expect("a network");
    let mut bytes = Vec::new();
    let mut file = Converted::new(&source.file, &fit.found, &BytePool::new(room)).expect("room");
    file.read_to_end(&mut bytes).expect("it is whole");
    let (data, header) = read_header(&mut &bytes[..], bytes.len() as u64, path).expect("a header");
    let tensors = header.tensors().into_iter().map(|(name, info)| {
        let range = data as usize + info.data_offsets.0..data as usize + info.data_offsets.1;
        (name, bytes[range].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    });
    tensors.collect()
}

#[test]
fn numbers_of_a_checkpoint_come_to_their_places_whatever_room_there_is() {
    let model = ZooModel::from_name("mobilenet_v3_small").and_then(|model| model.with_classes(2)).expect("a network");
    for room in [1 << 18, 64 << 20] {
        let given = converted(&folder().join("checkpoint.pth"), &model, room);
        // Of shape O, I, H, W there: the number of an element, over 64.
        let conv = |name: &str, [o, i, h, w]: [usize; 4]| {
            let mut wanted = Vec::new();
            for (h_at, w_at) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                for (i_at, o_at) in (0..i).flat_map(|i| (0..o).map(move |o| (i, o))) {
                    wanted.push((((o_at * i + i_at) * h + h_at) * w + w_at) as f32 / 64.0);
                }
            }
            assert_eq!(given[name], wanted, "{name}");
        };
        conv("features/stem/conv/weight", [16, 3, 3, 3]);
        conv("features/1/depthwise/conv/weight", [16, 1, 3, 3]);
        conv("features/1/se/fc1/weight", [8, 16, 1, 1]);
        conv("classifier/fc2/weight", [2, 1024, 1, 1]);
        for name in ["features/stem/bn/scale", "features/stem/bn/var"] {
            assert_eq!(given[name], (0..16).map(|i| i as f32 / 64.0).collect::<Vec<_>>());
        }
        assert_eq!(given.len(), 6, "{:?}", given.keys());
    }
}

#[test]
fn a_large_matrix_is_laid_out_in_parts() {
    let path = std::env::temp_dir().join(format!("memfit-weights-{}", std::process::id()));
    let (outputs, inputs, taps) = (300, 70, 9);
    let all: Vec<f32> = (0..outputs * inputs * taps).map(|i| i as f32).collect();
    std::fs::write(&path, bytemuck::cast_slice(&all)).expect("a file");
    let file = std::fs::File::open(&path).expect("it was written");
    let tensor = Tensor {
        name: "w".into(),
        numbers: Numbers::F32,
        shape: vec![outputs, inputs, 3, 3],
        strides: vec![(inputs * taps) as u64, taps as u64, 3, 1],
        start: 0,
    };
    let [o, i, t] = [outputs, inputs, taps].map(|n| n as u64);
    let layout = fit::Layout::Rows { outputs: o, inputs: i, taps: t, row: i * t, input: t, tap: 1 };
    let ty = memfit::ir::TensorType::f32([3, 3, inputs, outputs]);
    let found = [Found { own: "w".into(), ty, tensor, layout, epsilon: None }];
    // Parts are a few columns of 300 numbers, and end within a tap.
    for room in [80 << 10, 100 << 10, 200 << 10] {
        let mut read = Vec::new();
        let mut converted = Converted::new(&file, &found, &BytePool::new(room)).expect("room");
        converted.read_to_end(&mut read).expect("all of it");
        let data = &read[read.len() - 4 * all.len()..];
        for (at, bytes) in data.chunks_exact(4).enumerate() {
            let (column, o) = (at / outputs, at % outputs);
            let wanted = (o * inputs + column % inputs) * taps + column / inputs;
            assert_eq!(bytes, (wanted as f32).to_le_bytes(), "{at}");
        }
    }
    assert!(Converted::new(&file, &found, &BytePool::new(40 << 10)).is_err());
    std::fs::remove_file(&path).expect("it was written");
}

#[test]
fn other_formats_are_refused_with_the_cure() {
    for (name, words) in [
        ("legacy.pth", &["before 1.6", "torch.save(torch.load("][..]),
        ("module.pth", &["torch.nn.modules.linear.Linear", "nothing in it was run", "model.state_dict()"]),
        ("imagenet", &["no file \"imagenet\"", "torchvision.models.vit_b_16", "timm/vit_base_patch16_224"]),
    ] {
        let path = if name == "imagenet" { PathBuf::from(name) } else { folder().join(name) };
        let error = Source::open(&path, "vit_b16").err().expect("it is refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn scales_make_up_for_another_epsilon() {
    let epsilon = |variance| fit::OtherEpsilon { variance, there: 1e-5, here: 1e-3 };
    let tensors = state_dict("bn1.running_var 4\n");
    let norm = |scale: f64, variance: f32, epsilon: f64| scale / (f64::from(variance) + epsilon).sqrt();
    for variance in [0.0, 1e-6, 0.25, 3.0] {
        let factor = epsilon(tensors["bn1.running_var"].clone()).factor(variance);
        let (there, here) = (norm(0.7, variance, 1e-5), norm(0.7 * factor, variance, 1e-3));
        assert!((there - here).abs() <= 1e-12 * there, "{variance}: {there} {here}");
    }
    for (name, convention, made_up) in [("timm", Convention::Timm, 34), ("torchvision", Convention::Torchvision, 0)] {
        let path = folder().join(format!("mobilenet_v3_small.{name}.txt"));
        let tensors = state_dict(&std::fs::read_to_string(path).expect("a list of names"));
        let fit = fit_of(&ZooModel::from_name("mobilenet_v3_small").expect("a network"), tensors);
        let other = fit.found.iter().filter(|found| found.epsilon.is_some()).count();
        assert_eq!((fit.convention, other), (convention, made_up));
    }
}

#[test]
fn numbers_that_are_not_finite_are_found_in_every_kind_of_number() {
    let bad = [
        (Numbers::F32, f32::NAN.to_le_bytes().to_vec()),
        (Numbers::F64, f64::MAX.to_le_bytes().to_vec()),
        (Numbers::F16, 0x7c00u16.to_le_bytes().to_vec()),
        (Numbers::Bf16, 0xff80u16.to_le_bytes().to_vec()),
    ];
    for (numbers, bytes) in bad {
        assert!(!convert::number(numbers, &bytes).is_finite(), "{numbers:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(memfit_test_effort::cases(200)))]

    /// With other bytes in it, or cut off: what is still a file of tensors is read to its end, or is an error.
    #[test]
    fn a_damaged_checkpoint_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = std::fs::read(folder().join("checkpoint.pth")).expect("a checkpoint");
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let path = std::env::temp_dir().join(format!("memfit-damaged-{}", std::process::id()));
        std::fs::write(&path, &bytes).expect("a file");
        let model = ZooModel::from_name("mobilenet_v3_small").expect("a network");
        if let Ok(weights) = Weights::open(&path, &model) {
            let _ = weights.check_finite(&path);
            let mut file = Converted::new(&weights.source.file, &weights.fit.found, &BytePool::new(1 << 20)).expect("room");
            let _ = file.read_to_end(&mut Vec::new());
        }
        let _ = std::fs::remove_file(&path);
    }
}
