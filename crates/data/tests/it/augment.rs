//! Augmentation, against plain implementations of the same thing.

use crate::common;

use common::{Folder, fixture, roomy, says};
use memfit_data::augment::*;
use memfit_data::image::{Channels, Region, Resample, View};
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
    match (0..height).contains(&y) && (0..width).contains(&x) {
        true => image.bytes()[(y * width + x) as usize * channels..][..channels].to_vec(),
        false => vec![0; channels],
    }
}

fn x(example: &Example) -> &Tensor {
    example.get("x").expect("there is an x")
}

#[test]
fn random_regions_lie_inside_with_area_and_ratio_as_asked() {
    let pool = roomy();
    let (mut areas, mut ratios) = (Vec::new(), Vec::new());
    for i in 0..2000 {
        let mut random = Context::new(&pool, 1, 0, i).random(0);
        let r = random_region([375, 500], (0.08, 1.0), (0.75, 4.0 / 3.0), &mut random);
        assert!(r.height > 0 && r.width > 0 && r.top + r.height <= 375 && r.left + r.width <= 500, "{r:?}");
        areas.push((r.height * r.width) as f32 / (375.0 * 500.0));
        ratios.push(r.width as f32 / r.height as f32);
    }
    let (low, high) = areas.iter().fold((1f32, 0f32), |(low, high), a| (low.min(*a), high.max(*a)));
    assert!((0.078..0.12).contains(&low) && (0.9..=1.0).contains(&high), "areas from {low} to {high}");
    let mean = areas.iter().sum::<f32>() / areas.len() as f32;
    // With area share s and ratio r, what fits has s ≤ 0.75 r; the mean of s under that is 0.432.
    assert!((mean - 0.432).abs() < 0.02, "{mean}");
    assert!(ratios.iter().all(|r| (0.74..1.36).contains(r)));
}

#[test]
fn where_no_random_region_fits_the_middle_is_taken() {
    let pool = roomy();
    let mut random = Context::new(&pool, 1, 0, 0).random(0);
    let tall = random_region([100, 10], (1.0, 1.0), (0.75, 4.0 / 3.0), &mut random);
    assert_eq!(tall, Region { top: 43, left: 0, height: 13, width: 10 });
    assert_eq!(centre_region([100, 60], 1.0, 0.5), Region { top: 35, left: 15, height: 30, width: 30 });
    assert_eq!(centre_region([1, 1], 5.0, 0.1), Region { top: 0, left: 0, height: 1, width: 1 });
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
fn mirroring_turns_columns_or_rows_round() {
    let pool = roomy();
    for (height, width) in [(4, 5), (5, 4), (1, 1)] {
        let source = image(height, width, 3, &pool);
        let mut columns = image(height, width, 3, &pool);
        mirror_columns(columns.bytes_mut(), [height, width], 3);
        let mut rows = image(height, width, 3, &pool);
        mirror_rows(rows.bytes_mut(), [height, width], 3);
        for (y, c) in (0..height as isize).flat_map(|y| (0..width as isize).map(move |c| (y, c))) {
            assert_eq!(pixel(&columns, y, c), pixel(&source, y, width as isize - 1 - c));
            assert_eq!(pixel(&rows, y, c), pixel(&source, height as isize - 1 - y, c));
        }
    }
    for map in [Box::new(flip_horizontal()) as Box<dyn Map>, Box::new(flip_vertical())] {
        let flipped = |i| {
            let out = map(example(4, 5, &pool), &Context::new(&pool, 1, 0, i)).expect("it is an image");
            x(&out).bytes() != image(4, 5, 3, &pool).bytes()
        };
        let count = (0..400).filter(|i| flipped(*i)).count();
        assert!((150..250).contains(&count), "{count} of 400 are mirrored");
        assert_eq!(flipped(7), flipped(7));
    }
}

#[test]
fn a_turn_by_a_right_angle_moves_pixels_and_by_another_mixes_them() {
    let pool = roomy();
    let source = image(5, 5, 3, &pool);
    let view = View { pixels: source.bytes(), size: [5, 5], channels: 3 };
    for how in [Resample::Triangle, Resample::Nearest] {
        let mut out = image(5, 5, 3, &pool);
        turn(view, std::f32::consts::FRAC_PI_2, how, out.bytes_mut());
        for (y, c) in (0..5).flat_map(|y| (0..5).map(move |c| (y, c))) {
            assert_eq!(pixel(&out, y, c), pixel(&source, c, 4 - y), "{how:?} {y} {c}");
        }
    }
    // A plane stays a plane, whatever the angle, as long as nothing comes in from outside.
    let plane: Vec<f32> = (0..81).map(|i| 3.0 * (i / 9) as f32 - 2.0 * (i % 9) as f32).collect();
    let mut out = vec![0f32; 81];
    turn(View { pixels: &plane, size: [9, 9], channels: 1 }, 0.3, Resample::Triangle, &mut out);
    let (sin, cos) = 0.3f32.sin_cos();
    for (y, c) in (2..7).flat_map(|y| (2..7).map(move |c| (y, c))) {
        let (dy, dx) = (y as f32 - 4.0, c as f32 - 4.0);
        let want = 3.0 * (4.0 + cos * dy + sin * dx) - 2.0 * (4.0 + cos * dx - sin * dy);
        assert!((out[y * 9 + c] - want).abs() < 1e-4, "{y} {c}");
    }
    let (large, mut eighth) = (image(9, 9, 3, &pool), image(9, 9, 3, &pool));
    let view = View { pixels: large.bytes(), size: [9, 9], channels: 3 };
    turn(view, std::f32::consts::FRAC_PI_4, Resample::Triangle, eighth.bytes_mut());
    assert_eq!(eighth.bytes()[..3], [0, 0, 0], "corners come in from outside");
    let turned = |i| rotate(30.0)(example(9, 9, &pool), &Context::new(&pool, 1, 0, i)).expect("it is an image");
    assert!(x(&turned(0)).bytes() != x(&turned(1)).bytes() && x(&turned(0)).bytes() == x(&turned(0)).bytes());
}

#[test]
fn brightness_and_contrast_are_clipped_sums() {
    let pool = roomy();
    for (factor, value, want) in [(1.5, 100, 150), (1.5, 200, 255), (0.5, 101, 51), (0.0, 255, 0)] {
        assert_eq!(brightness_table(factor)[value], want);
    }
    for (factor, mean, value, want) in
        [(2.0, 100.0, 120, 140), (2.0, 100.0, 20, 0), (0.0, 99.6, 7, 100), (1.0, 3.0, 77, 77)]
    {
        assert_eq!(contrast_table(factor, mean)[value], want);
    }
    assert!((mean_grey(&[10, 20, 30, 30, 40, 50], 3) - (0.299 * 20.0 + 0.587 * 30.0 + 0.114 * 40.0)).abs() < 1e-4);
    assert_eq!(mean_grey(&[10, 30], 1), 20.0);
    for map in [Box::new(brightness(0.4)) as Box<dyn Map>, Box::new(contrast(0.4))] {
        let changed = |i| {
            let out = map(example(4, 5, &pool), &Context::new(&pool, 1, 0, i)).expect("it is u8");
            x(&out).bytes().to_vec()
        };
        assert!(changed(0) != changed(1) && changed(0) == changed(0));
        let float = Example::default().with("x", Tensor::zeros(TensorType::f32([2, 2, 3]), &pool).expect("room"));
        says(map(float, &Context::new(&pool, 1, 0, 0)), &["f32[2,2,3]", "before normalise"]);
    }
}

#[test]
fn cutout_zeroes_a_square() {
    let pool = roomy();
    for (middle, side) in [([3, 3], 4), ([0, 6], 3), ([6, 0], 20), ([2, 2], 0), ([5, 5], 1)] {
        let source = image(7, 7, 3, &pool);
        let mut out = image(7, 7, 3, &pool);
        cut(out.bytes_mut(), [7, 7], 3, middle, side);
        let inside = |at: isize, middle: usize| {
            let from = middle as isize - side as isize / 2;
            (from..from + side as isize).contains(&at)
        };
        for (y, c) in (0..7).flat_map(|y| (0..7).map(move |c| (y, c))) {
            let want = if inside(y, middle[0]) && inside(c, middle[1]) { vec![0; 3] } else { pixel(&source, y, c) };
            assert_eq!(pixel(&out, y, c), want, "{middle:?} {side}: {y} {c}");
        }
    }
    let out = cutout(3)(example(9, 9, &pool), &Context::new(&pool, 1, 0, 0)).expect("it is an image");
    let zeroes = x(&out).bytes().chunks_exact(3).filter(|p| *p == [0; 3]).count();
    assert!((4..=9).contains(&zeroes), "{zeroes}");
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
        let one = prepare.run(decoded.read(0, &pool).expect("a JPEG"), &context).expect("an image");
        let chain = random_crop_resize([16, 20])(decoded.read(0, &pool).expect("a JPEG"), &context).expect("an image");
        let chain = flip_horizontal()(chain, &context).expect("an image");
        let chain = normalise(Normalise::imagenet())(chain, &context).expect("an image");
        assert_eq!(x(&one).f32s(), x(&chain).f32s());
        // Decoding only what is needed may round differently; a step of u8 is 1 ÷ (255 · 0.225).
        let cut = prepare.run(encoded.read(0, &pool).expect("a file"), &context).expect("an image");
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
            let out = map(pairs.read(0, &pool).expect("a pair"), &context).expect("images");
            let (x, y) = (x(&out), out.get("y").expect("a mask"));
            assert_eq!(x.ty().shape, y.ty().shape);
            let apart = x.bytes().iter().zip(y.f32s()).map(|(x, y)| (*x as f32 - y * 255.0).abs()).fold(0.0, f32::max);
            assert!(apart <= 0.51, "map {k}: {apart}");
        }
    }
    let classes = SegmentationPairs::open(&folder.0, Masks::Classes { count: 13 }, &pool).expect("they are pairs");
    let out = random_crop_resize([99, 98])(classes.read(0, &pool).expect("a pair"), &Context::new(&pool, 1, 0, 0));
    let out = out.expect("images");
    let y = out.get("y").expect("a mask");
    let known: std::collections::BTreeSet<i32> = fixture("palette_classes.raw").iter().map(|c| *c as i32).collect();
    assert_eq!(y.ty().to_string(), "i32[99,98]");
    assert!(bytemuck::cast_slice::<u8, i32>(y.bytes()).iter().all(|class| known.contains(class)), "no class is new");
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

#[test]
fn beta_has_its_mean_and_variance() {
    let pool = roomy();
    for alpha in [0.2f32, 1.0, 3.0] {
        let draw = |i| beta(alpha, &mut Context::new(&pool, 2, 0, i).random(1)) as f64;
        let values: Vec<f64> = (0..20_000).map(draw).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        let want = 1.0 / (4.0 * (2.0 * alpha as f64 + 1.0));
        assert!(
            (mean - 0.5).abs() < 0.01 && (variance / want - 1.0).abs() < 0.04,
            "{alpha}: {mean} {variance}, not {want}"
        );
    }
}
