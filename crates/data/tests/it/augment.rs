//! Augmentation, against plain implementations of the same thing.

use crate::common;

#[path = "../../examples/operations.rs"]
mod operations;

use std::ops::Range;
use std::path::Path;

use common::{Folder, fixture, roomy, says};
use memfit_data::augment::*;
use memfit_data::image::{Channels, Region};
use memfit_data::sources::{ImageFiles, Masks, SegmentationPairs};
use memfit_data::{BytePool, Context, Example, Source, Tensor};
use memfit_ir::{DType, TensorType};

/// An image whose elements are all different, as far as u8 goes.
fn image(height: usize, width: usize, channels: usize, pool: &BytePool) -> Tensor {
    let bytes: Vec<u8> = (0..height * width * channels).map(|i| (i * 7 + 3) as u8).collect();
    Tensor::from_bytes(TensorType::new(DType::U8, [height, width, channels]), &bytes, pool).expect("there is room")
}

fn example(height: usize, width: usize, pool: &BytePool) -> Example {
    Example::default().with("x", image(height, width, 3, pool))
}

/// A pixel of `x` or zeroes outside.
fn pixel(image: &Tensor, y: isize, x: isize) -> Vec<u8> {
    let shape = &image.ty().shape;
    let (height, width, channels) = (shape[0] as isize, shape[1] as isize, shape[2]);
    if (0..height).contains(&y) && (0..width).contains(&x) {
        image.bytes()[(y * width + x) as usize * channels..][..channels].to_vec()
    } else {
        vec![0; channels]
    }
}

fn x(example: &Example) -> &Tensor {
    example.get("x").expect("there is an x")
}

#[test]
fn padded_crops_are_windows_of_a_larger_image() {
    let pool = roomy();
    let map = random_crop_padded([6, 7], 2);
    let mut corners = std::collections::BTreeSet::new();
    for i in 0..200 {
        let context = Context::new(&pool, 3, 0, i);
        let source = image(6, 7, 3, &pool);
        let out = map(example(6, 7, &pool), &context).expect("it fits");
        let found = (-2..=2isize).flat_map(|top| (-2..=2isize).map(move |left| (top, left))).find(|(top, left)| {
            (0..6).all(|y| (0..7).all(|c| pixel(x(&out), y, c) == pixel(&source, y + top, c + left)))
        });
        corners.insert(found.expect("it is a window"));
    }
    assert_eq!(corners.len(), 25, "all windows come up");
    says(
        random_crop_padded([20, 20], 2)(example(6, 7, &pool), &Context::new(&pool, 0, 0, 0)),
        &["20×20", "6×7", "pad more"],
    );
}

#[test]
fn normalise_subtracts_and_divides_for_each_channel() {
    let pool = roomy();
    let (mean, deviation) = ([0.5, 0.1, 0.9], [0.5, 2.0, 0.25]);
    let map = normalise(Normalise::new(&mean, &deviation).expect("three and three"));
    let out = map(example(5, 7, &pool), &Context::new(&pool, 0, 0, 0)).expect("it is u8");
    for (i, (got, byte)) in x(&out).f32s().iter().zip(image(5, 7, 3, &pool).bytes()).enumerate() {
        let want = (*byte as f32 / 255.0 - mean[i % 3]) / deviation[i % 3];
        assert!((got - want).abs() < 1e-5, "{i}: {got}, not {want}");
    }
    says(Normalise::new(&[0.0], &[0.0]), &["positive deviation"]);
    says(Normalise::new(&[0.0; 3], &[1.0]), &["for each channel"]);
    says(map(out, &Context::new(&pool, 0, 0, 0)), &["u8 with 3 channels", "f32[5,7,3]"]);
    let bytes = image(4, 5, 3, &pool).bytes().to_vec();
    let batch = Tensor::from_bytes(TensorType::new(DType::U8, [2, 2, 5, 3]), &bytes, &pool).expect("room");
    let batch = map(Example::default().with("x", batch), &Context::new(&pool, 0, 0, 0)).expect("it is u8");
    let single = map(example(4, 5, &pool), &Context::new(&pool, 0, 0, 0)).expect("it is u8");
    assert_eq!((x(&batch).ty().to_string().as_str(), x(&batch).f32s()), ("f32[2,2,5,3]", x(&single).f32s()));
}

#[test]
fn one_pass_is_the_chain_of_its_parts() {
    let folder = Folder::new();
    let path = folder.file("a.jpg", fixture("baseline_420.jpg"));
    let pool = roomy();
    let decoded = ImageFiles::list(&[&path], &pool).expect("it exists");
    let encoded = ImageFiles::list(&[&path], &pool).expect("it exists").encoded();
    let prepare = Prepare {
        crop: Crop::RANDOM,
        flip: true,
        normalise: Some(Normalise::imagenet()),
        channels: Channels::Rgb,
        size: [16, 20],
    };
    for i in 0..20 {
        let context = Context::new(&pool, 5, 1, i);
        let one = prepare.run(decoded.read_row(0, &pool).expect("a JPEG"), &context).expect("an image");
        let chain =
            random_crop_resize([16, 20])(decoded.read_row(0, &pool).expect("a JPEG"), &context).expect("an image");
        let chain = flip_horizontal()(chain, &context).expect("an image");
        let chain = normalise(Normalise::imagenet())(chain, &context).expect("an image");
        assert_eq!(x(&one).f32s(), x(&chain).f32s());
        // Decoding only what is needed may round differently; a step of u8 is 1 ÷ (255 · 0.225).
        let cut = prepare.run(encoded.read_row(0, &pool).expect("a file"), &context).expect("an image");
        let furthest = x(&one).f32s().iter().zip(x(&cut).f32s()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(furthest < 0.08, "{i}: {furthest}");
    }
    let bad =
        Example::default().with("x", Tensor::from_bytes(TensorType::new(DType::U8, [3]), b"abc", &pool).expect("room"));
    says(prepare.run(bad, &Context::new(&pool, 0, 0, 0)), &["an example", "neither a JPEG nor a PNG"]);
    says(resize([0, 5])(example(3, 3, &pool), &Context::new(&pool, 0, 0, 0)), &["0×5"]);
}

#[test]
fn masks_move_with_their_images() {
    let folder = Folder::new();
    // The mask is the image itself, so they must stay alike.
    folder.file("images/a.png", fixture("palette.png"));
    folder.file("masks/a.png", fixture("palette.png"));
    let pool = roomy();
    let pairs =
        SegmentationPairs::open(&folder.0, Masks::Grey, &pool).expect("they are pairs").channels(Channels::Grey);
    let maps: Vec<Box<dyn Map>> = vec![
        Box::new(random_crop_resize([15, 12])),
        Box::new(centre_crop_resize([70, 60], 0.8)),
        Box::new(random_crop_padded([38, 45], 9)),
        Box::new(flip_horizontal()),
        Box::new(flip_vertical()),
        Box::new(rotate(40.0)),
    ];
    for (k, map) in maps.iter().enumerate() {
        for i in 0..8 {
            let context = Context::new(&pool, 1, 0, i);
            let out = map(pairs.read_row(0, &pool).expect("a pair"), &context).expect("images");
            let (x, y) = (x(&out), out.get("y").expect("a mask"));
            assert_eq!(x.ty().shape, y.ty().shape);
            let apart = x.bytes().iter().zip(y.f32s()).map(|(x, y)| (*x as f32 - y * 255.0).abs()).fold(0.0, f32::max);
            assert!(apart <= 0.51, "map {k}: {apart}");
        }
    }
    let classes = SegmentationPairs::open(&folder.0, Masks::Classes { count: 13 }, &pool).expect("they are pairs");
    let out = random_crop_resize([99, 98])(classes.read_row(0, &pool).expect("a pair"), &Context::new(&pool, 1, 0, 0));
    let out = out.expect("images");
    let y = out.get("y").expect("a mask");
    let known: std::collections::BTreeSet<i32> = fixture("palette_classes.raw").iter().map(|c| *c as i32).collect();
    assert_eq!(y.ty().to_string(), "i32[99,98]");
    assert!(bytemuck::cast_slice::<u8, i32>(y.bytes()).iter().all(|class| known.contains(class)), "no class is new");
}

/// The mixed samples of some rows of a batch, and their labels.
fn mixed(rows: Range<usize>, lane: Option<usize>, element: u64) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let pool = roomy();
    let values: Vec<f32> = rows.clone().flat_map(|row| [(row * row) as f32, row as f32]).collect();
    let labels: Vec<i32> = rows.clone().map(|row| (row * 3 % 5) as i32).collect();
    let (of_x, of_y) = (TensorType::f32([rows.len(), 2]), TensorType::i32([rows.len()]));
    let batch = Example::default()
        .with("x", Tensor::from_bytes(of_x, bytemuck::cast_slice(&values), &pool).expect("room"))
        .with("y", Tensor::from_bytes(of_y, bytemuck::cast_slice(&labels), &pool).expect("room"));
    let context = Context::new(&pool, 9, 1, element);
    let out = match lane {
        Some(lane) => mixup_lanes(0.4, 5, lane, rows.start)(batch, &context),
        None => mixup(0.4, 5)(batch, &context),
    };
    let out = out.expect("a batch");
    let by_row = |name: &str, width: usize| {
        out.get(name).expect("it is there").f32s().chunks(width).map(<[f32]>::to_vec).collect()
    };
    (by_row("x", 2), by_row("y", 5))
}

#[test]
fn lanes_are_mixed_alike_for_every_number_of_replicas() {
    for (lanes, lane) in [(4, 3), (3, 4), (8, 2), (5, 1)] {
        let (x, y) = mixed(0..lanes * lane, Some(lane), 7);
        for count in 1..=lanes {
            for rank in 0..count {
                let rows = rank * lanes / count * lane..(rank + 1) * lanes / count * lane;
                let own = mixed(rows.clone(), Some(lane), 7);
                assert_eq!(own, (x[rows.clone()].to_vec(), y[rows].to_vec()), "replica {rank} of {count}");
            }
        }
        let shares: std::collections::BTreeSet<u32> = y.iter().flatten().map(|share| share.to_bits()).collect();
        assert!(lane == 1 || shares.len() > lanes, "every lane has its own share: {y:?}");
        assert_ne!((lane > 1).then_some(x), Some(mixed(0..lanes * lane, Some(lane), 8).0), "and every batch others");
    }
    assert_eq!(mixed(0..12, Some(12), 7), mixed(0..12, None, 7), "one lane is a batch");
    assert_ne!(mixed(0..12, Some(6), 7), mixed(0..12, None, 7));
    let pool = roomy();
    let batch = Example::default()
        .with("x", Tensor::zeros(TensorType::f32([4, 1]), &pool).expect("room"))
        .with("y", Tensor::zeros(TensorType::i32([4]), &pool).expect("room"));
    says(mixup_lanes(0.4, 2, 3, 0)(batch, &Context::new(&pool, 0, 0, 0)), &["4 samples", "lanes of 3"]);
}

#[test]
fn mixup_mixes_inputs_and_labels_by_the_same_share() {
    let pool = roomy();
    let values: Vec<f32> = (0..5 * 2).map(|i| (i * i) as f32).collect();
    let labels = [2i32, 0, 1, 1, 2];
    let batch = || {
        let x = Tensor::from_bytes(TensorType::f32([5, 2]), bytemuck::cast_slice(&values), &pool).expect("room");
        let y = Tensor::from_bytes(TensorType::i32([5]), bytemuck::cast_slice(&labels), &pool).expect("room");
        Example::default().with("x", x).with("y", y)
    };
    let out = mixup(0.4, 3)(batch(), &Context::new(&pool, 9, 0, 4)).expect("a batch");
    let y = out.get("y").expect("labels");
    assert_eq!(y.ty().to_string(), "f32[5,3]");
    // Sample 1 is of class 0 and its partner of class 1.
    let share = y.f32s()[3];
    assert!(share > 0.0 && share < 1.0, "{share}");
    for i in 0..5 {
        for j in 0..2 {
            let want = share * values[i * 2 + j] + (1.0 - share) * values[(4 - i) * 2 + j];
            assert!((x(&out).f32s()[i * 2 + j] - want).abs() < 1e-4);
        }
        for class in 0..3 {
            let own = (labels[i] == class) as u8 as f32;
            let other = (labels[4 - i] == class) as u8 as f32;
            let want = share * own + (1.0 - share) * other;
            assert!((y.f32s()[i * 3 + class as usize] - want).abs() < 1e-6);
        }
    }
    says(mixup(0.4, 2)(batch(), &Context::new(&pool, 9, 0, 4)), &["sample 0", "class 2", "0 to 1"]);
    says(mixup(0.0, 3)(batch(), &Context::new(&pool, 9, 0, 4)), &["alpha above zero"]);
    says(
        mixup(0.4, 3)(
            example(3, 3, &pool).with("y", Tensor::zeros(TensorType::i32([3]), &pool).expect("room")),
            &Context::new(&pool, 0, 0, 0),
        ),
        &["normalise and batch"],
    );
}

/// The same operations, with numbers that they share with torchvision.
#[test]
fn operations_are_those_of_torchvision() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    assert_eq!(operations::check(&fixtures), Ok(30));
}

/// An image, and a mask of classes that has a block where the image is bright.
fn with_mask(pool: &BytePool) -> Example {
    let inside = |at: usize| (3..9).contains(&(at / 16)) && (5..12).contains(&(at % 16));
    let pixels: Vec<u8> = (0..16 * 16).flat_map(|at| if inside(at) { [200; 3] } else { [40; 3] }).collect();
    let classes: Vec<u8> = (0..16 * 16).flat_map(|at| i32::from(inside(at)).to_le_bytes()).collect();
    let x = Tensor::from_bytes(TensorType::new(DType::U8, [16, 16, 3]), &pixels, pool).expect("there is room");
    let y = Tensor::from_bytes(TensorType::i32([16, 16]), &classes, pool).expect("there is room");
    Example::default().with("x", x).with("y", y)
}

#[test]
fn what_moves_pixels_moves_the_mask_alike_and_colours_leave_it_alone() {
    let pool = roomy();
    for named in NAMED.iter().filter(|named| named.name != "crop" && named.name != "randaugment") {
        let augmentation: Augmentation = named.example().parse().expect("its own example");
        let map = augmentation.step([16, 16], [9; 3]).expect("it has so many pixels");
        let mut changes = 0;
        for element in 0..12 {
            let out = map(with_mask(&pool), &Context::new(&pool, 5, 0, element)).expect("it is an image");
            let (x, y) = (out.get("x").expect("an image"), out.get("y").expect("a mask"));
            let classes = bytemuck::cast_slice::<u8, i32>(y.bytes());
            let stays = classes == bytemuck::cast_slice::<u8, i32>(with_mask(&pool).get("y").expect("a mask").bytes());
            assert!(named.moves || stays, "{} changes no mask", named.name);
            assert!(classes.iter().all(|class| [0, 1].contains(class)), "{} mixes no classes", named.name);
            changes += usize::from(x.bytes() != with_mask(&pool).get("x").expect("an image").bytes());
            // Where the image is bright, its mask is 1: but for the border, where pixels are mixed.
            let differ = x.bytes().chunks(3).zip(classes).filter(|(p, class)| (p[0] >= 120) != (**class == 1)).count();
            assert!(!named.moves || differ <= 6, "{}: {differ} pixels are not where their mask is", named.name);
            let again = map(with_mask(&pool), &Context::new(&pool, 5, 0, element)).expect("it is an image");
            assert_eq!(again.get("x").expect("an image").bytes(), x.bytes(), "{}", named.name);
        }
        // Of grey pixels, or of two values, some make nothing else.
        let is_idle = ["saturation", "hue", "grayscale", "equalize"].contains(&named.name);
        assert_eq!(changes == 0, is_idle, "{}: {changes} of 12 are changed", named.name);
    }
}

#[test]
fn a_policy_draws_every_operation_and_depends_on_nothing_but_the_element() {
    let pool = roomy();
    let map = rand_augment(RandAugment { operations: 2, magnitude: 9 });
    let draw = |epoch, element| {
        let out = map(with_mask(&pool), &Context::new(&pool, 1, epoch, element)).expect("it is an image");
        out.get("x").expect("an image").bytes().to_vec()
    };
    let first: Vec<Vec<u8>> = (0..40).map(|element| draw(0, element)).collect();
    assert!((0..40).all(|element| draw(0, element) == first[element as usize]));
    assert!((0..40).any(|element| draw(1, element) != first[element as usize]), "another epoch draws others");
    let different: std::collections::BTreeSet<&Vec<u8>> = first.iter().collect();
    assert!(different.len() > 25, "{} of 40 are different", different.len());
    let nothing = rand_augment(RandAugment { operations: 0, magnitude: 9 });
    let out = nothing(with_mask(&pool), &Context::new(&pool, 1, 0, 0)).expect("it is an image");
    assert_eq!(out.get("x").expect("an image").bytes(), with_mask(&pool).get("x").expect("an image").bytes());
}

#[test]
fn small_images_and_strange_numbers_are_no_trouble() {
    let pool = roomy();
    for (height, width, channels) in [(1, 1, 3), (1, 5, 1), (2, 2, 3), (3, 1, 4), (5, 3, 2)] {
        let numbers = [-1.0, 0.0, 0.5, 1e9, f32::NAN, f32::INFINITY];
        let operations = numbers.iter().flat_map(|&n| {
            [
                Operation::Brightness(n),
                Operation::Contrast(n),
                Operation::Saturation(n),
                Operation::Hue(n),
                Operation::Sharpness(n),
                Operation::Blur { sigma: n, radius: 7 },
                Operation::Affine(Affine { degrees: n, translate: [n, n], scale: n, shear: [n, n] }),
                Operation::Posterize { bits: n as u32 },
                Operation::Solarize { from: n as u16 },
                Operation::Erase {
                    region: Region { top: n as usize, left: 0, height: n as usize, width: usize::MAX },
                    fill: [1; 3],
                },
            ]
        });
        for operation in operations.chain([Operation::Autocontrast, Operation::Equalize, Operation::Grayscale]) {
            let mut example = Example::default().with("x", image(height, width, channels, &pool));
            operation.apply(&mut example, &pool).unwrap_or_else(|e| panic!("{operation:?}: {e}"));
            assert_eq!(x(&example).ty().shape[..], [height, width, channels]);
        }
    }
}
