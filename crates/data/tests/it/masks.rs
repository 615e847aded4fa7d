//! What a set of masks is found to be, and that a mask which is something else is bad.

use memfit_data::sources::{MaskClasses, MaskProblem, Masks, SegmentationPairs};
use memfit_data::{OnBad, Source};
use png::{BitDepth, ColorType, Encoder};

use crate::common::{Folder, fixture, roomy};

/// A picture of 2 × 4 pixels.
fn picture(colour: ColorType, depth: BitDepth, palette: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 4, 2);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    if !palette.is_empty() {
        encoder.set_palette(palette.to_vec());
    }
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(bytes).expect("pixels");
    drop(writer);
    file
}

fn grey(values: [u8; 8]) -> Vec<u8> {
    picture(ColorType::Grayscale, BitDepth::Eight, &[], &values)
}

/// Pairs with these masks.
fn pairs(masks: &[Vec<u8>]) -> (Folder, SegmentationPairs) {
    let folder = Folder::new();
    for (n, mask) in masks.iter().enumerate() {
        folder.file(&format!("images/{n}.png"), grey([0; 8]));
        folder.file(&format!("masks/{n}.png"), mask);
    }
    let pairs = SegmentationPairs::open(&folder.0, Masks::Grey, &roomy()).expect("they are pairs");
    (folder, pairs)
}

fn found(masks: &[Vec<u8>], said: &MaskClasses, classes: Option<usize>) -> Result<(Masks, Vec<u64>), MaskProblem> {
    let (_folder, pairs) = pairs(masks);
    let survey = pairs.survey_masks(OnBad::Fail, &roomy()).expect("they can be read");
    let masks = survey.masks(said, classes)?;
    let counts = survey.counts(&masks);
    Ok((masks, counts))
}

#[test]
fn masks_are_what_they_can_only_be() {
    let auto = |masks: &[Vec<u8>]| found(masks, &MaskClasses::Unknown, None);
    let binary = |above, levels| Masks::Binary { above, levels: Some(levels) };
    let bits = picture(ColorType::Grayscale, BitDepth::One, &[], &[0b0110_0000, 0b0001_0000]);
    let two = picture(ColorType::Grayscale, BitDepth::Two, &[], &[0b00_01_10_11, 0]);
    let black_and_white =
        picture(ColorType::Indexed, BitDepth::Eight, &[255, 255, 255, 0, 0, 0], &[1, 1, 1, 1, 1, 0, 0, 0]);
    let soft = [0, 0, 0, 0, 255, 255, 255, 255];
    let mut edge = vec![grey(soft); 20];
    edge.push(grey([0, 40, 70, 100, 130, 160, 190, 220]));
    let mut third = vec![grey(soft); 20];
    third.push(grey([0, 0, 0, 0, 127, 255, 255, 255]));
    for (name, masks, expected, counts) in [
        ("0 and 255", vec![grey([0, 0, 0, 255, 255, 0, 0, 0])], binary(127, [0, 255]), &[6, 2][..]),
        ("0 and 1", vec![grey([0, 0, 0, 1, 1, 0, 0, 0])], binary(0, [0, 1]), &[6, 2]),
        ("bits", vec![bits], binary(127, [0, 255]), &[5, 3]),
        ("a palette of black and white", vec![black_and_white], binary(127, [0, 255]), &[5, 3]),
        ("nothing", vec![grey([0; 8])], binary(127, [0, 255]), &[8, 0]),
        ("numbers", vec![grey([0, 1, 2, 2, 1, 0, 0, 0])], Masks::Classes { count: 3 }, &[4, 2, 2]),
        ("from 1", vec![grey([1, 2, 3, 3, 1, 1, 1, 1])], Masks::Classes { count: 4 }, &[0, 5, 1, 2]),
        ("two bits", vec![two], Masks::Classes { count: 4 }, &[5, 1, 1, 1]),
        ("soft edges", edge, Masks::Grey, &[84, 84]),
    ] {
        assert_eq!(auto(&masks), Ok((expected, counts.to_vec())), "{name}");
    }
    for (name, values) in [("0 and 2", [0, 0, 2, 2, 0, 0, 0, 0]), ("far apart", [0, 9, 90, 91, 92, 200, 210, 3])] {
        assert!(matches!(auto(&[grey(values)]), Err(MaskProblem::Values { .. })), "{name}");
    }
    assert_eq!(auto(&third), Err(MaskProblem::Values { values: vec![0, 127, 255] }), "a third value is no soft edge");
    assert!(matches!(auto(&[grey([0, 1, 2, 255, 0, 0, 0, 0])]), Err(MaskProblem::Void { .. })));
    assert!(matches!(auto(&[fixture("rgb.png")]), Err(MaskProblem::Coloured { .. })));
    assert!(matches!(auto(&[grey([0, 1, 2, 2, 1, 0, 0, 0]), fixture("grey.jpg")]), Err(MaskProblem::Mixed { .. })));
    let palette =
        |second: u8| picture(ColorType::Indexed, BitDepth::Eight, &[0, 0, 0, second, 0, 0], &[0, 1, 1, 1, 1, 0, 0, 0]);
    assert!(matches!(auto(&[palette(128)]), Ok((Masks::Palette { count: 2, .. }, _))));
    assert!(matches!(auto(&[palette(128), palette(64)]), Err(MaskProblem::Palettes { index: 1, .. })));
}

#[test]
fn what_is_said_holds() {
    let values = || vec![grey([0, 1, 0, 1, 1, 0, 0, 0])];
    let of = |said: MaskClasses, classes| found(&values(), &said, classes).map(|(masks, _)| masks);
    assert_eq!(of(MaskClasses::Numbers, None), Ok(Masks::Classes { count: 2 }));
    assert_eq!(
        of(MaskClasses::Unknown, Some(3)),
        Ok(Masks::Classes { count: 3 }),
        "so many classes are to be told apart"
    );
    assert_eq!(of(MaskClasses::Numbers, Some(1)), Err(MaskProblem::TooManyClasses { found: 2, said: 1 }));
    assert_eq!(of(MaskClasses::Binary, None), Ok(Masks::Binary { above: 0, levels: None }));
    assert!(matches!(of(MaskClasses::Palette, None), Err(MaskProblem::Format { .. })));
    let table = vec![([0; 3], 0), ([1; 3], 1)];
    assert_eq!(of(MaskClasses::Colours(table.clone()), None), Ok(Masks::Colours { table }));
    assert_eq!(
        of(MaskClasses::Colours(vec![([0; 3], 0), ([2; 3], 1)]), None),
        Err(MaskProblem::UnknownColour { colour: [1; 3] })
    );
}

#[test]
fn a_mask_that_differs_from_its_set_is_bad() {
    let palette =
        |second: u8| picture(ColorType::Indexed, BitDepth::Eight, &[0, 0, 0, second, 0, 0], &[0, 1, 1, 1, 1, 0, 0, 0]);
    let known = Masks::Palette { count: 2, colours: vec![Some([0; 3]), Some([128, 0, 0])] };
    for (masks, mask, expected) in [
        (Masks::Binary { above: 0, levels: Some([0, 1]) }, grey([0, 1, 0, 0, 0, 2, 0, 0]), "row 1, column 1"),
        (Masks::Classes { count: 2 }, grey([0, 1, 2, 0, 0, 0, 0, 0]), "class 2 is not one of 0 to 1"),
        (known.clone(), palette(64), "index 1 of its palette is #400000"),
        (known, grey([0; 8]), "no palette"),
        (Masks::Colours { table: vec![([0; 3], 0)] }, grey([0, 0, 0, 7, 0, 0, 0, 0]), "#070707"),
    ] {
        let (_folder, pairs) = pairs(&[mask]);
        let error = pairs.with_masks(masks).read_row(0, &roomy()).expect_err(expected).to_string();
        assert!(error.contains("masks/0.png") && error.contains(expected), "{error}");
    }
}
