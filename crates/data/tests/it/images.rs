//! Decoding and scaling, against what PIL made of the same files.

use crate::common;

use common::{Folder, fixture, roomy, says};
use memfit_data::image::{Channels, Region, decode, decode_classes, decode_region, dimensions};
use memfit_data::sources::ImageFiles;
use memfit_data::{BadSample, BytePool, DataError, Dataset, LoadOptions, Loader, OnBad, Remainder, Tensor};

/// The largest and the mean difference.
fn difference(a: &[u8], b: &[u8]) -> (u8, f64) {
    assert_eq!(a.len(), b.len());
    let each = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    (each.clone().max().unwrap_or(0), each.map(f64::from).sum::<f64>() / a.len() as f64)
}

#[test]
fn jpegs_are_what_pil_makes_of_them() {
    // Decoders may round differently and scale colour planes differently.
    let names = ["baseline_420", "baseline_422", "baseline_444", "restart", "progressive", "grey", "cmyk"];
    for (name, most, mean) in names.map(|name| (name, 4, 0.6)) {
        let channels = if name == "grey" { Channels::Grey } else { Channels::Rgb };
        let file = fixture(&format!("{name}.jpg"));
        let image = decode(&file, channels, &name, &roomy()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(image.ty().shape[..], [38, 45, channels.count()]);
        let (largest, average) = difference(image.bytes(), &fixture(&format!("{name}.raw")));
        assert!(largest <= most && average <= mean, "{name}: at most {largest}, {average} on average");
    }
}

#[test]
fn jpegs_stand_upright() {
    for n in 1..=8 {
        let file = fixture(&format!("exif_{n}.jpg"));
        let image = decode(&file, Channels::Rgb, &"picture", &roomy()).expect("it is a JPEG");
        let shape = if n < 5 { [16, 24, 3] } else { [24, 16, 3] };
        assert_eq!(image.ty().shape[..], shape, "orientation {n}");
        assert_eq!(dimensions(&file, &"picture").expect("it is a JPEG"), shape[..2]);
        let (largest, _) = difference(image.bytes(), &fixture(&format!("exif_{n}.raw")));
        assert!(largest <= 3, "orientation {n} differs by {largest}");
    }
}

#[test]
fn pngs_are_exact() {
    for (name, channels) in
        [("rgb", Channels::Rgb), ("palette", Channels::Rgb), ("grey16", Channels::Grey), ("bits", Channels::Grey)]
    {
        let image = decode(&fixture(&format!("{name}.png")), channels, &name, &roomy()).expect("it is a PNG");
        assert_eq!(image.bytes(), fixture(&format!("{name}.raw")), "{name}");
    }
    let (largest, _) = difference(
        decode(&fixture("rgba.png"), Channels::Rgb, &"rgba", &roomy()).expect("it is a PNG").bytes(),
        &fixture("rgba.raw"),
    );
    assert!(largest <= 1, "a transparent PNG on white differs by {largest}");
    let classes = decode_classes(&fixture("palette.png"), &"mask", &roomy()).expect("it has a palette");
    assert_eq!(classes.bytes(), fixture("palette_classes.raw"));
    let bits = decode_classes(&fixture("bits.png"), &"mask", &roomy()).expect("it is grey");
    assert!(bits.bytes().iter().zip(fixture("bits.raw")).all(|(class, value)| *class == value / 255));
}

#[test]
fn grey_and_colour_turn_into_each_other() {
    for file in ["baseline_420.jpg", "cmyk.jpg", "progressive.jpg", "rgb.png", "rgba.png", "palette.png"] {
        let rgb = decode(&fixture(file), Channels::Rgb, &file, &roomy()).expect("it is an image");
        let grey = decode(&fixture(file), Channels::Grey, &file, &roomy()).expect("it is an image");
        assert_eq!(grey.ty().shape[..], [38, 45, 1]);
        for (v, p) in grey.bytes().iter().zip(rgb.bytes().chunks_exact(3)) {
            let want = 0.299 * p[0] as f32 + 0.587 * p[1] as f32 + 0.114 * p[2] as f32;
            // JPEGs have it stored, before colours were clipped to what there is.
            assert!((*v as f32 - want).abs() <= 8.0, "{file}: {v} for {p:?}");
        }
    }
    for file in ["grey.jpg", "grey16.png", "bits.png"] {
        let rgb = decode(&fixture(file), Channels::Rgb, &file, &roomy()).expect("it is an image");
        let grey = decode(&fixture(file), Channels::Grey, &file, &roomy()).expect("it is an image");
        assert!(rgb.bytes().chunks_exact(3).zip(grey.bytes()).all(|(p, v)| p == [*v; 3]), "{file}");
    }
}

#[test]
fn a_file_that_is_cut_off_is_refused_wherever_it_is_cut() {
    for name in ["baseline_420.jpg", "restart.jpg", "progressive.jpg", "grey.jpg", "cmyk.jpg", "rgb.png", "palette.png"]
    {
        let file = fixture(name);
        for length in 0..file.len() {
            match decode(&file[..length], Channels::Rgb, &name, &roomy()) {
                Err(DataError::Bad(BadSample { location, .. })) => assert_eq!(location, name),
                other => panic!("{name} of {length} bytes: {other:?}"),
            }
        }
    }
    says(
        decode(&fixture("grey.jpg")[..700], Channels::Rgb, &"a/b.jpg", &roomy()),
        &["a/b.jpg", "cut off", "700 bytes"],
    );
    says(decode(b"GIF89a", Channels::Rgb, &"c.jpg", &roomy()), &["c.jpg", "neither a JPEG nor a PNG", "convert"]);
    says(decode(b"", Channels::Rgb, &"d.jpg", &roomy()), &["d.jpg", "empty"]);
    says(decode_classes(&fixture("rgb.png"), &"m.png", &roomy()), &["m.png", "one channel", "palette"]);
}

#[test]
fn pixels_are_taken_from_the_pool_before_they_exist() {
    let mut jpeg = fixture("baseline_420.jpg");
    let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).expect("there is a frame header");
    jpeg[frame + 5..frame + 9].fill(0xff);
    // So many bytes could hold it.
    jpeg.resize(4 << 20, 0);
    let huge = ["huge", "65535×65535 pixels", "raise the pool's limit"];
    says(decode(&jpeg, Channels::Rgb, &"huge", &roomy()), &huge);
    let mut png = fixture("rgb.png");
    png[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    png.resize(16 << 20, 0);
    let refused = decode(&png, Channels::Rgb, &"huge", &roomy());
    assert!(matches!(refused, Err(DataError::Bad(_))), "{refused:?}");
    let small = BytePool::new(1000);
    says(decode(&fixture("grey.jpg"), Channels::Rgb, &"x", &small), &["x: its 38×45 pixels", "1000"]);
    assert_eq!(small.used(), 0);
    // Where others hold what it lacks, it may find room later.
    let (full, lease) = (roomy(), roomy().limit() - 100);
    let _others = full.reserve(lease).expect("there is room");
    assert!(matches!(decode(&fixture("grey.jpg"), Channels::Rgb, &"x", &full), Err(DataError::NoRoom(_))));
}

#[test]
fn a_region_of_any_format_is_a_part_of_the_whole() {
    for name in ["baseline_420.jpg", "progressive.jpg", "exif_6.jpg", "rgb.png"] {
        let (file, region) = (fixture(name), Region { top: 3, left: 5, height: 12, width: 9 });
        let whole = decode(&file, Channels::Rgb, &name, &roomy()).expect("it is an image");
        let (part, within) = decode_region(&file, region, Channels::Rgb, &name, &roomy()).expect("it is an image");
        let at = |image: &Tensor, y: usize, x: usize| (y * image.ty().shape[1] + x) * 3;
        let pixel = |image: &Tensor, y, x| image.bytes()[at(image, y, x)..][..3].to_vec();
        for (y, x) in (0..12).flat_map(|y| (0..9).map(move |x| (y, x))) {
            assert_eq!(pixel(&part, within.top + y, within.left + x), pixel(&whole, 3 + y, 5 + x), "{name} {y} {x}");
        }
        let outside = Region { left: 40, ..region };
        says(decode_region(&file, outside, Channels::Rgb, &name, &roomy()), &["not a part", name]);
    }
}

#[test]
fn a_size_that_the_bytes_cannot_hold_is_refused_whatever_the_room() {
    let pool = BytePool::new(u64::MAX / 2);
    let mut jpeg = fixture("baseline_420.jpg");
    let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
    let mut png = fixture("rgb.png");
    png[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    for (name, bytes) in [("a.jpg", jpeg), ("b.png", png)] {
        let expected = [name, "65535×65535", "cannot hold", "damaged", "OnBad::Skip"];
        says(dimensions(&bytes, &name), &expected);
        says(decode(&bytes, Channels::Rgb, &name, &pool), &expected);
    }
}

#[test]
fn an_image_that_no_pool_of_this_size_can_decode_is_bad_and_others_go_on() {
    let folder = Folder::new();
    folder.file("1.jpg", fixture("grey.jpg"));
    folder.file("2.jpg", fixture("progressive.jpg"));
    // Room for the small one; the library takes more than 128 KiB for the other.
    let pool = BytePool::new(100 << 10);
    let data = || {
        Dataset::from_source(ImageFiles::open(&folder.0, &pool).expect("there are images")).batch(1, Remainder::Keep)
    };
    let options = |bad| LoadOptions { threads: 2, bad, ..LoadOptions::new(pool.clone()) };
    let mut loader = Loader::new(&data(), options(OnBad::Skip)).expect("a loader");
    assert!(loader.next().expect("the first is good").is_some());
    assert!(loader.next().expect("the second is left out").is_none());
    assert_eq!((loader.skipped().count, loader.skipped().first[0].location.ends_with("2.jpg")), (1, true));
    drop(loader);
    let mut loader = Loader::new(&data(), options(OnBad::Fail)).expect("a loader");
    drop(loader.next().expect("the first is good"));
    says(loader.next(), &["2.jpg", "38×45 pixels", "102400", "raise the pool's limit", "OnBad::Skip"]);
}
