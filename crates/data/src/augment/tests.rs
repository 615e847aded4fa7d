//! The plain functions under the augmentations, against naive implementations of the same thing.

use memfit_ir::{DType, TensorType};

use super::affine::resample;
use super::colour::{brightness, brightness_table, contrast, contrast_table, cutout, mean_grey, zero_square};
use super::crop::{centre_region, random_region};
use super::flip::{flip_horizontal, flip_vertical, mirror_columns, mirror_rows};
use super::mixup::beta;
use super::rotate::{rotate, rotation};
use super::*;
use crate::image::{ImageView, Interpolation, Region};
use crate::memory::BytePool;
use crate::tensor::Tensor;

fn roomy() -> BytePool {
    BytePool::new(64 << 20)
}

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
    let view = ImageView { pixels: source.bytes(), size: [5, 5], channels: 3 };
    for interpolation in [Interpolation::Bilinear, Interpolation::Nearest] {
        let mut out = image(5, 5, 3, &pool);
        resample(view, rotation(std::f32::consts::FRAC_PI_2), interpolation, out.bytes_mut());
        for (y, c) in (0..5).flat_map(|y| (0..5).map(move |c| (y, c))) {
            assert_eq!(pixel(&out, y, c), pixel(&source, c, 4 - y), "{interpolation:?} {y} {c}");
        }
    }
    // A plane stays a plane, whatever the angle, as long as nothing comes in from outside.
    let plane: Vec<f32> = (0..81).map(|i| 3.0 * (i / 9) as f32 - 2.0 * (i % 9) as f32).collect();
    let mut out = vec![0f32; 81];
    resample(ImageView { pixels: &plane, size: [9, 9], channels: 1 }, rotation(0.3), Interpolation::Bilinear, &mut out);
    let (sin, cos) = 0.3f32.sin_cos();
    for (y, c) in (2..7).flat_map(|y| (2..7).map(move |c| (y, c))) {
        let (dy, dx) = (y as f32 - 4.0, c as f32 - 4.0);
        let want = 3.0 * (4.0 + cos * dy + sin * dx) - 2.0 * (4.0 + cos * dx - sin * dy);
        assert!((out[y * 9 + c] - want).abs() < 1e-4, "{y} {c}");
    }
    let (large, mut eighth) = (image(9, 9, 3, &pool), image(9, 9, 3, &pool));
    let view = ImageView { pixels: large.bytes(), size: [9, 9], channels: 3 };
    resample(view, rotation(std::f32::consts::FRAC_PI_4), Interpolation::Bilinear, eighth.bytes_mut());
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
        let refused = map(float, &Context::new(&pool, 1, 0, 0)).expect_err("it is f32").to_string();
        assert!(refused.contains("f32[2,2,3]") && refused.contains("before normalise"), "{refused}");
    }
}

#[test]
fn cutout_zeroes_a_square() {
    let pool = roomy();
    for (middle, side) in [([3, 3], 4), ([0, 6], 3), ([6, 0], 20), ([2, 2], 0), ([5, 5], 1)] {
        let source = image(7, 7, 3, &pool);
        let mut out = image(7, 7, 3, &pool);
        zero_square(out.bytes_mut(), [7, 7], 3, middle, side);
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
