//! Event files say what was put into them, and opening one changes nothing that is there.

mod wire;

use std::path::{Path, PathBuf};

use memfit_profile::export::tensorboard::{At, BUCKETS, EventFile, EventWriter};
use wire::{Message, records};

const FIRST: At = At { step: 7, wall_seconds: 1_700_000_000.25 };

/// The events that are written, without the two that every file begins with.
fn events(write: impl FnOnce(&mut EventWriter<&mut Vec<u8>>)) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = EventWriter::new(&mut bytes, FIRST).unwrap();
    write(&mut writer);
    drop(writer);
    records(&bytes).into_iter().skip(2).map(<[u8]>::to_vec).collect()
}

/// The one value of an event.
fn value(event: &[u8]) -> Message<'_> {
    let values = Message::read(event).message(5).expect("a summary").messages(1);
    assert_eq!(values.len(), 1);
    values.into_iter().next().unwrap()
}

/// Who shows a value.
fn plugin<'a>(value: &Message<'a>) -> &'a str {
    value.message(9).expect("metadata").message(1).expect("plugin data").string(1)
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("memfit-event-files-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// By name.
fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_begins_with_its_version_and_the_step_that_comes_next() {
    let mut bytes = Vec::new();
    EventWriter::new(&mut bytes, FIRST).unwrap();
    let events: Vec<Message> = records(&bytes).into_iter().map(Message::read).collect();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].string(3), "brain.Event:2");
    assert_eq!(events[1].uint(2), 7, "the step");
    assert_eq!(events[1].message(7).expect("a session log").uint(1), 1, "START");
}

#[test]
fn scalars_read_back_to_the_bit() {
    let written = [0.0, -0.0, 1.5, f32::MIN_POSITIVE, f32::NAN, f32::INFINITY, 1e-40];
    let events = events(|w| {
        for (i, v) in written.iter().enumerate() {
            w.scalar("train/loss", At { step: 10 + i as u64, wall_seconds: 5.5 + i as f64 }, *v).unwrap();
        }
    });
    assert_eq!(events.len(), written.len());
    for (i, (event, v)) in events.iter().zip(written).enumerate() {
        let head = Message::read(event);
        assert_eq!((head.double(1), head.uint(2)), (5.5 + i as f64, 10 + i as u64));
        assert_eq!(value(event).string(1), "train/loss");
        assert_eq!(value(event).float(2).expect("a value").to_bits(), v.to_bits());
    }
}

#[test]
fn more_events_than_are_collected_come_in_order() {
    let events = events(|w| (0..5_000).for_each(|step| w.scalar("a", At { step, ..FIRST }, step as f32).unwrap()));
    let steps: Vec<u64> = events.iter().map(|e| Message::read(e).uint(2)).collect();
    assert_eq!(steps, (0..5_000).collect::<Vec<_>>());
}

#[test]
fn a_text_is_a_string_without_dimensions() {
    let markdown = "# Plan\n\n|a|b|\n|-|-|\n|1|ü|";
    let events = events(|w| w.text("plan", FIRST, markdown).unwrap());
    let value = value(&events[0]);
    assert_eq!(plugin(&value), "text");
    let tensor = value.message(8).expect("a tensor");
    assert_eq!((tensor.uint(1), tensor.string(8)), (7, markdown));
    assert_eq!(tensor.message(2), Some(Message::default()));
}

#[test]
fn a_histogram_counts_every_value() {
    let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin()).collect();
    let events = events(|w| w.histogram("weights", FIRST, &values).unwrap());
    let value = value(&events[0]);
    assert_eq!(plugin(&value), "histograms");
    let tensor = value.message(8).expect("a tensor");
    assert_eq!(tensor.uint(1), 2, "double");
    let shape: Vec<u64> = tensor.message(2).expect("a shape").messages(2).iter().map(|d| d.uint(1)).collect();
    assert_eq!(shape, [BUCKETS as u64, 3]);
    let numbers: Vec<f64> =
        tensor.bytes(4).unwrap().as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    assert_eq!(numbers.len(), BUCKETS * 3);
    assert_eq!(numbers.chunks(3).map(|row| row[2]).sum::<f64>(), 1000.0);
    assert!(numbers.chunks(3).zip(numbers.chunks(3).skip(1)).all(|(a, b)| a[1] == b[0] && a[0] < a[1]));
}

#[test]
fn each_opening_is_a_new_file_behind_all_others() {
    let folder = folder("new");
    for at in
        [FIRST, FIRST, At { wall_seconds: 1_600_000_000.0, ..FIRST }, At { wall_seconds: 1_800_000_000.0, ..FIRST }]
    {
        let before = files(&folder);
        let contents: Vec<Vec<u8>> = before.iter().map(|f| std::fs::read(folder.join(f)).unwrap()).collect();
        let mut file = EventFile::create(&folder, at).unwrap();
        file.scalar("loss", at, 1.0).unwrap();
        drop(file);
        let after = files(&folder);
        assert_eq!(after[..before.len()], before, "the new one is the last");
        assert_eq!(after.len(), before.len() + 1);
        assert!(before.iter().zip(contents).all(|(f, bytes)| std::fs::read(folder.join(f)).unwrap() == bytes));
        assert_eq!(records(&std::fs::read(folder.join(after.last().unwrap())).unwrap()).len(), 3);
    }
    assert_eq!(files(&folder)[0], "events.out.tfevents.1700000000.000.memfit");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    let folder = folder("link");
    let foreign = folder.join("foreign");
    std::fs::write(&foreign, "mine").unwrap();
    std::os::unix::fs::symlink(&foreign, folder.join("events.out.tfevents.1700000000.000.memfit")).unwrap();
    drop(EventFile::create(&folder, FIRST).unwrap());
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "mine");
    assert_eq!(files(&folder)[1], "events.out.tfevents.1700000000.001.memfit");
    std::fs::remove_dir_all(&folder).unwrap();
}
