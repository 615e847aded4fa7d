//! TFRecord files that TensorFlow wrote, and such as it would never write.

use crate::common;

use common::{Folder, fixture, fixture_path, roomy, says};
use memfit_data::image::{Channels, decode};
use memfit_data::sources::{Feature, FeatureKind, TfRecord};
use memfit_data::{BytePool, DataError, Example, Source};
use memfit_ir::{DType, TensorType};

fn all_kinds() -> Vec<Feature> {
    vec![
        Feature::new("image", "x", FeatureKind::Image(Channels::Grey)),
        Feature::new("label", "y", FeatureKind::Ints(vec![])),
        Feature::new("scores", "s", FeatureKind::Floats(vec![3])),
        Feature::new("pixels", "p", FeatureKind::Raw(TensorType::new(DType::U8, [2, 2, 3]))),
        Feature::new("weights", "w", FeatureKind::Raw(TensorType::f32([6]))),
    ]
}

fn one(name: &str, kind: FeatureKind) -> Vec<Feature> {
    vec![Feature::new(name, "x", kind)]
}

fn field(example: &Example, name: &str) -> (String, Vec<u8>) {
    let tensor = example.get(name).unwrap_or_else(|e| panic!("{e}"));
    (tensor.ty().to_string(), tensor.bytes().to_vec())
}

fn floats(values: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

#[test]
fn shards_are_read_as_tensorflow_wrote_them() {
    let pool = roomy();
    let pattern = fixture_path("shard-*-of-?.tfrecord").display().to_string();
    let source = TfRecord::glob(&pattern, all_kinds(), &pool).expect("these are TFRecords");
    assert_eq!(source.len(), 3);
    let picture = decode(&fixture("grey.jpg"), Channels::Grey, &"grey", &pool).expect("it is a JPEG");
    for i in 0..3u8 {
        let example = source.read_row(i as usize, &pool).expect("it can be read");
        assert_eq!(field(&example, "x"), ("u8[38,45,1]".into(), picture.bytes().to_vec()));
        assert_eq!(field(&example, "y"), ("i32[]".into(), (i as i32 * 7 - 3).to_le_bytes().to_vec()));
        assert_eq!(field(&example, "s"), ("f32[3]".into(), floats(&[0.5, -1.25, i as f32])));
        assert_eq!(field(&example, "p"), ("u8[2,2,3]".into(), (i..i + 12).collect()));
        assert_eq!(field(&example, "w"), ("f32[6]".into(), floats(&[0., 1., 2., 3., 4., 5.])));
    }
    says(source.read_row(3, &pool), &["row 3"]);
    assert!(matches!(source.read_row(0, &BytePool::new(500)), Err(DataError::NoRoom(_))));
}

#[test]
fn an_image_can_be_left_encoded_with_its_place() {
    let source = TfRecord::open(&[fixture_path("shard-1-of-2.tfrecord")], one("image", FeatureKind::Encoded), &roomy());
    let source = source.expect("it is a TFRecord");
    let example = source.read_row(0, &roomy()).expect("it can be read");
    assert!(source.location(0).ends_with("shard-1-of-2.tfrecord, record 0"), "{}", source.location(0));
    assert_eq!(field(&example, "x").1, fixture("grey.jpg"));
}

#[test]
fn what_a_feature_is_not_is_said() {
    let path = fixture_path("shard-0-of-2.tfrecord");
    for (features, parts) in [
        (one("colour", FeatureKind::Ints(vec![])), &["record 1", "no feature \"colour\"", "label"][..]),
        (one("label", FeatureKind::Floats(vec![])), &["a list of floats", "holds integers"]),
        (one("label", FeatureKind::Ints(vec![2])), &["has 1 values", "i32[2]"]),
        (one("wide", FeatureKind::Ints(vec![])), &["1099511627776", "i32"]),
        (one("pixels", FeatureKind::Raw(TensorType::f32([2]))), &["12 bytes", "f32[2] has 8"]),
        (
            one("pixels", FeatureKind::Image(Channels::Rgb)),
            &["record 1, feature \"pixels\"", "neither a JPEG nor a PNG"],
        ),
    ] {
        let source = TfRecord::open(&[&path], features, &roomy()).expect("it is a TFRecord");
        let refused = source.read_row(1, &roomy());
        assert!(matches!(refused, Err(DataError::Bad(_))));
        says(refused, parts);
    }
}

#[test]
fn damage_is_found_and_named() {
    let folder = Folder::new();
    let whole = fixture("shard-0-of-2.tfrecord");
    let second = 12 + u64::from_le_bytes(whole[..8].try_into().expect("eight bytes")) as usize + 4;
    let changed = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        folder.file("changed.tfrecord", bytes)
    };
    let open = |path| TfRecord::open(&[path], one("label", FeatureKind::Ints(vec![])), &roomy());

    let data = open(changed(second + 100)).expect("the lengths are sound");
    assert_eq!(field(&data.read_row(0, &roomy()).expect("this one is sound"), "x").0, "i32[]");
    let refused = data.read_row(1, &roomy());
    assert!(matches!(refused, Err(DataError::Bad(_))));
    says(refused, &["changed.tfrecord, record 1", "checksum"]);

    says(open(changed(second)), &["changed.tfrecord", "length of record 1"]);
    says(open(folder.file("cut", &whole[..whole.len() - 1])), &["cut off within record 1"]);
    says(open(folder.file("cut", &whole[..second + 5])), &["cut off within record 1"]);
    says(open(folder.file("empty", b"")), &["empty", "no record"]);
    says(open(folder.file("text", b"once upon a time")), &["no TFRecord file"]);
    says(open(fixture_path("packed.tfrecord.gz")), &["packed.tfrecord.gz", "gzip", "gunzip"]);
    says(open(folder.0.join("none")), &["none"]);
    says(
        TfRecord::glob(&folder.0.join("x*").display().to_string(), all_kinds(), &roomy()),
        &["x*", "check the pattern"],
    );
    says(TfRecord::open(&[fixture_path("shard-0-of-2.tfrecord")], all_kinds(), &BytePool::new(30)), &["pool of 30"]);
}

/// A field with a length.
fn nested(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn record(feature: Vec<u8>) -> Vec<u8> {
    let entry = [nested(1, b"v"), nested(2, &feature)].concat();
    let data = nested(1, &nested(1, &entry));
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), &data, &masked(&data)].concat()
}

/// Bit by bit, as the standard has it.
fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ *byte as u32, |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    });
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[test]
fn lists_may_be_packed_or_not() {
    let folder = Folder::new();
    let read = |feature, kind| {
        let path = folder.file("one.tfrecord", record(feature));
        TfRecord::open(&[path], one("v", kind), &roomy())?.read_row(0, &roomy())
    };
    let minus_two = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let ints = [&[8, 5][..], &[8], &minus_two].concat();
    let packed = nested(1, &[&[5][..], &minus_two].concat());
    for list in [ints, packed] {
        let example = read(nested(3, &list), FeatureKind::Ints(vec![2])).expect("it can be read");
        assert_eq!(field(&example, "x").1, [5i32.to_le_bytes(), (-2i32).to_le_bytes()].concat());
    }
    let (a, b) = (1.5f32.to_le_bytes(), (-3f32).to_le_bytes());
    let floats = [&[13][..], &a, &[13], &b].concat();
    for list in [floats, nested(1, &[a, b].concat())] {
        let example = read(nested(2, &list), FeatureKind::Floats(vec![2])).expect("it can be read");
        assert_eq!(field(&example, "x").1, [a, b].concat());
    }
    says(read(nested(2, &nested(1, &a[..3])), FeatureKind::Floats(vec![1])), &["record 0", "packed"]);
    says(read(nested(3, &[8]), FeatureKind::Ints(vec![1])), &["record 0", "beyond the end"]);
    says(read(nested(1, b""), FeatureKind::Encoded), &["empty"]);
}
