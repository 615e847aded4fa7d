//! Whatever bytes a file has: an example or an error, never a panic, and never more memory than the pool has, be it
//! ours or a library's. Thousands of files for each format.

use crate::common;

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;

use common::{Folder, fixture};
use memfit_data::image::{Channels, Region, decode, decode_classes, decode_region, dimensions};
use memfit_data::sources::{
    Arrays, Column, Csv, CsvLayout, Feature, FeatureKind, Label, TfRecord, TokenWidth, Tokens, Windows,
};
use memfit_data::{BytePool, DataError, OnBad, Source};
use memfit_ir::{DType, TensorType};
use memfit_test_allocator::{Counting, Who, count};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// With full effort ten times as many.
const CASES: u32 = 10_000;
/// What readers may use.
const POOL: u64 = 1 << 20;
/// What may stand beside it: paths, messages, lists of arrays and columns.
const BESIDE: usize = 24 * 1024;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs a reader with a pool and looks at what it used.
fn within_the_pool<T>(read: impl FnOnce(&BytePool) -> Result<T, DataError>) -> Result<(), TestCaseError> {
    let pool = BytePool::new(POOL);
    let (result, counts) = count(Who::Thread, || read(&pool).map(drop));
    let most = counts.peak as usize;
    prop_assert!(pool.high_water() <= POOL);
    prop_assert_eq!(pool.used(), 0, "everything was given back");
    let claimed = pool.high_water() as usize;
    prop_assert!(most <= claimed + BESIDE, "{} bytes were allocated, and {} taken from the pool", most, claimed);
    if let Err(e) = result {
        prop_assert!(!e.to_string().is_empty());
    }
    Ok(())
}

/// One of the seeds with a few changes, or bytes of no meaning behind a start that has some.
fn files(seeds: Vec<Vec<u8>>, start: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let changed = (prop::sample::select(seeds), vec((any::<u16>(), 0..7u8, any::<u32>()), 1..5)).prop_map(
        |(mut bytes, changes)| {
            changes.into_iter().for_each(|change| apply(&mut bytes, change));
            bytes
        },
    );
    let random = vec(any::<u8>(), 0..120).prop_map(move |bytes| [start, &bytes].concat());
    prop_oneof![8 => changed, 1 => random]
}

fn apply(bytes: &mut Vec<u8>, (place, kind, value): (u16, u8, u32)) {
    if bytes.is_empty() {
        return;
    }
    let at = (place as usize * bytes.len()) >> 16;
    let end = (at + (value as usize >> 8) % 9).min(bytes.len());
    match kind {
        0 => bytes[at] = value as u8,
        1 => bytes[at] ^= 1 << (value % 8),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => drop(bytes.splice(at..at, value.to_le_bytes())),
        5 => bytes[at..end].fill([0, 0xff, 0x7f, 0x80][value as usize % 4]),
        _ => {
            let copied = bytes[at..end].to_vec();
            let to = value as usize % (bytes.len() - copied.len() + 1);
            bytes[to..to + copied.len()].copy_from_slice(&copied);
        }
    }
}

fn fuzz(cases: u32, inputs: impl Strategy<Value = Vec<u8>>, mut test: impl FnMut(&[u8]) -> Result<(), TestCaseError>) {
    let cases = memfit_test_effort::cases(cases);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let test = std::cell::RefCell::new(&mut test);
    if let Err(e) = runner.run(&inputs, |bytes| (test.borrow_mut())(&bytes)) {
        panic!("{e}");
    }
}

/// A file that is written over and over.
fn fuzz_files(
    cases: u32,
    name: &str,
    inputs: impl Strategy<Value = Vec<u8>>,
    mut test: impl FnMut(&Path) -> Result<(), TestCaseError>,
) {
    let folder = Folder::new();
    let path = folder.file(name, "");
    let mut file = File::options().write(true).open(&path).expect("it was just written");
    fuzz(cases, inputs, |bytes| {
        // Not cut to nothing first: some file systems then wait for the disk.
        file.rewind().and_then(|()| file.write_all(bytes)).and_then(|()| file.set_len(bytes.len() as u64))?;
        test(&path)
    });
}

fn fixtures(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| fixture(name)).collect()
}

fn each_row(source: impl Source, pool: &BytePool) -> Result<(), DataError> {
    (0..source.len().min(4)).try_for_each(|row| source.read_row(row, pool).map(drop))
}

#[test]
fn jpegs() {
    let names = ["exif_6.jpg", "grey.jpg", "baseline_420.jpg", "restart.jpg", "progressive.jpg", "cmyk.jpg"];
    fuzz(CASES, files(fixtures(&names), b"\xff\xd8\xff"), |bytes| {
        within_the_pool(|_| dimensions(bytes, &"file"))?;
        let channels = if bytes.len() % 4 == 0 { Channels::Grey } else { Channels::Rgb };
        within_the_pool(|pool| decode(bytes, channels, &"file", pool))?;
        let region = Region { top: bytes.len() % 20, left: bytes.len() % 13, height: 5, width: 9 };
        within_the_pool(|pool| decode_region(bytes, region, channels, &"file", pool))
    });
}

#[test]
fn pngs() {
    let names = ["rgb.png", "palette.png", "grey16.png", "bits.png", "rgba.png"];
    fuzz(CASES, files(fixtures(&names), b"\x89PNG\r\n\x1a\n"), |bytes| {
        let mut bytes = bytes.to_vec();
        mend_png(&mut bytes);
        within_the_pool(|pool| decode(&bytes, Channels::Rgb, &"file", pool))?;
        within_the_pool(|pool| decode_classes(&bytes, &"file", pool))
    });
}

/// Makes the checksums of chunks right again, so that what is behind them is reached.
fn mend_png(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        let Some(chunk) = bytes.get(at + 4..).and_then(|rest| rest.get(..length + 4)) else { return };
        let sum = crc32(chunk).to_be_bytes();
        let Some(place) = bytes.get_mut(at + 8 + length..at + 12 + length) else { return };
        place.copy_from_slice(&sum);
        at += 12 + length;
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    crc(bytes, 0xedb8_8320)
}

fn crc(bytes: &[u8], polynomial: u32) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ *byte as u32, |crc, _| if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 })
    })
}

#[test]
fn tfrecords() {
    let features = || {
        vec![
            Feature::new("label", "y", FeatureKind::Ints(vec![])),
            Feature::new("scores", "s", FeatureKind::Floats(vec![3])),
            Feature::new("pixels", "p", FeatureKind::Raw(TensorType::new(DType::U8, [2, 2, 3]))),
        ]
    };
    let record = fixture("shard-1-of-2.tfrecord");
    let data = record[12..record.len() - 4].to_vec();
    // Both the frame with its checksums, and records that are sound on the outside.
    let framed = files(vec![record, fixture("shard-0-of-2.tfrecord")], b"").prop_map(|bytes| bytes.to_vec());
    let inside = files(vec![data], b"\x0a\x50\x0a\x4e").prop_map(|data| frame(&data));
    fuzz_files(CASES, "a.tfrecord", prop_oneof![1 => framed, 3 => inside], |path| {
        within_the_pool(|pool| each_row(TfRecord::open(&[path], features(), pool)?, pool))
    });
}

fn frame(data: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| crc(bytes, 0x82f6_3b78).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

#[test]
fn arrays() {
    let npy = files(
        fixtures(&["c_le_f4.npy", "c_be_i8.npy", "fortran.npy", "version2.npy", "c_bool.npy"]),
        b"\x93NUMPY\x01\x00",
    );
    fuzz_files(CASES, "a.npy", npy, |path| within_the_pool(|pool| each_row(Arrays::npy(&[("x", path)], pool)?, pool)));
}

#[test]
fn archives() {
    let npz = files(fixtures(&["stored.npz", "deflated.npz", "uneven.npz"]), b"PK\x05\x06");
    fuzz_files(CASES, "a.npz", npz, |path| within_the_pool(|pool| each_row(Arrays::npz(path, &[], pool)?, pool)));
}

#[test]
fn tables() {
    let seeds = [
        "a,b,y\n1,2,3\n4,5,6\n",
        "\"a\",\"b \"\"c\"\"\",y\r\n1.5,-2e3,0\r\n\r\n7,8,1",
        "1;2;3\n",
        "\u{feff}y,a\n1,2",
        "a,y\n1,cat\n2,\"dog\"\n",
    ];
    let csv = files(seeds.iter().map(|text| text.as_bytes().to_vec()).collect(), b"a,y\n");
    let label = Some(Label::Class(Column::Name("y".into())));
    fuzz_files(CASES, "a.csv", csv, |path| {
        within_the_pool(|pool| {
            let mut csv = Csv::open(path, CsvLayout { label: label.clone(), ..CsvLayout::default() }, pool)?;
            csv.find_classes(OnBad::Skip, pool)?;
            csv.check_classes(1000, pool).ok();
            each_row(csv, pool)
        })?;
        let bare = CsvLayout { header: false, separator: b';', label: None, weight: None };
        within_the_pool(|pool| each_row(Csv::open(path, bare, pool)?, pool))
    });
}

#[test]
fn tokens() {
    let text = files(vec!["ab c\n".repeat(4).into_bytes(), "aß€😀".repeat(3).into_bytes()], b"ab");
    // Each looks at all characters there are, which takes ten times as long as another format.
    fuzz_files(CASES / 5, "a.txt", text, |path| {
        within_the_pool(|pool| each_row(Tokens::characters(path, Windows::non_overlapping(3), pool)?, pool))?;
        within_the_pool(|pool| {
            each_row(Tokens::binary(path, TokenWidth::U16, 30_000, Windows::non_overlapping(3))?, pool)
        })
    });
}
