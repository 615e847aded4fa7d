//! Readers of files, given thousands of files that are not what they should be: each gives an error or what was
//! written, never a panic, and never takes more memory than a small multiple of the file.

use crate::common;

use std::cell::Cell;
use std::path::Path;

use crate::counting::peak_of;
use common::{cpu, folder, plan, training};
use memfit_exec::Executor;
use memfit_exec::weights::read_header;
use memfit_ir::fingerprint;
use memfit_nn::zoo::Mlp;
use memfit_plan::save;
use memfit_test_effort::cases;
use memfit_train::{Checkpoint, CheckpointKind, Progress, RunDir, Session, run_dir};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// With full effort ten times as many.
const INPUTS: u32 = 10_000;

// ---- inputs ---------------------------------------------------------------------------------------------------------

/// A change of a file, at a place that is a share of its length.
#[derive(Clone, Debug)]
enum Edit {
    Set(u16, u8),
    Digit(u16, u8),
    Insert(u16, u8),
    Remove(u16),
    Cut(u16),
    Repeat(u16, u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        2 => any::<(u16, u8)>().prop_map(|(at, b)| Edit::Set(at, b)),
        6 => (any::<u16>(), b'0'..=b'9').prop_map(|(at, b)| Edit::Digit(at, b)),
        2 => any::<(u16, u8)>().prop_map(|(at, b)| Edit::Insert(at, b)),
        2 => any::<u16>().prop_map(Edit::Remove),
        1 => any::<u16>().prop_map(Edit::Cut),
        1 => any::<(u16, u8)>().prop_map(|(at, n)| Edit::Repeat(at, n)),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    let place = |at: u16, len: usize| (usize::from(at) * len) >> 16;
    let len = bytes.len();
    if len == 0 {
        return;
    }
    match *edit {
        Edit::Set(at, b) => bytes[place(at, len)] = b,
        Edit::Digit(at, b) => {
            let from = place(at, len);
            if let Some(i) = bytes[from..].iter().position(u8::is_ascii_digit) {
                bytes[from + i] = b;
            }
        }
        Edit::Insert(at, b) => bytes.insert(place(at, len), b),
        Edit::Remove(at) => drop(bytes.remove(place(at, len))),
        Edit::Cut(at) => bytes.truncate(place(at, len)),
        Edit::Repeat(at, n) => {
            let from = place(at, len);
            let piece = bytes[from..(from + usize::from(n)).min(len)].to_vec();
            bytes.splice(from..from, piece);
        }
    }
}

/// Changed files, nothing but random bytes, and random JSON.
fn inputs(base: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let changed = vec(edit(), 1..4).prop_map(move |edits| {
        let mut bytes = base.clone();
        edits.iter().for_each(|e| apply(&mut bytes, e));
        bytes
    });
    let json = "[\\[\\]{}:,\"0-9a-z\\\\. -]{0,200}".prop_map(String::into_bytes);
    prop_oneof![8 => changed, 1 => vec(any::<u8>(), 0..200), 1 => json]
}

/// Runs a reader on all inputs; each may hold at most `times` the bytes of its file, and a little.
fn check(base: Vec<u8>, times: usize, read: impl Fn(&[u8])) {
    read(&base);
    let config = Config { cases: cases(INPUTS), failure_persistence: None, ..Config::default() };
    let most = Cell::new(0.0f64);
    let result = TestRunner::new(config).run(&inputs(base), |bytes| {
        let peak = peak_of(|| read(&bytes));
        most.set(most.get().max(peak as f64 / (bytes.len() + 1024) as f64));
        prop_assert!(peak <= (times * (bytes.len() + 1024)) as i64, "{peak} bytes for a file of {}", bytes.len());
        Ok(())
    });
    println!("at most {:.1} bytes of memory for a byte of a file", most.get());
    if let Err(e) = result {
        panic!("{e}");
    }
}

// ---- readers --------------------------------------------------------------------------------------------------------

/// The files of a small run: checkpoint, tensors, plan.
fn files(name: &str) -> [Vec<u8>; 3] {
    let folder = folder(name);
    let model = Mlp::new(3, &[], 2);
    let plan = plan(&model, &training(), 2, None);
    let run = RunDir::create(&folder, &plan, &Default::default()).unwrap();
    let session = Session::new(cpu(), plan, 1).unwrap();
    run.save(&session, &Progress::default(), &[CheckpointKind::Last]).unwrap();
    let tensors = run_dir::read(&folder, CheckpointKind::Last).unwrap().checkpoint.tensors.name;
    let files = ["last.json", &tensors, "plan.json"].map(|file| std::fs::read(folder.join(file)).unwrap());
    std::fs::remove_dir_all(folder).unwrap();
    files
}

#[test]
fn checkpoints() {
    let [base, ..] = files("fuzz-checkpoint");
    let written = Checkpoint::from_text(std::str::from_utf8(&base).unwrap()).unwrap();
    check(base, 4, |bytes| {
        if let Ok(read) = Checkpoint::from_text(&String::from_utf8_lossy(bytes)) {
            assert!(read == written, "a change was not seen: {read:?}");
        }
    });
}

#[test]
fn safetensors_headers() {
    let [_, base, _] = files("fuzz-header");
    check(base, 8, |bytes| {
        if let Ok((start, metadata)) = read_header(&mut &*bytes, bytes.len() as u64, Path::new("fuzz")) {
            assert!(start <= bytes.len() as u64);
            metadata.tensors().values().for_each(|t| assert!(t.data_offsets.0 <= t.data_offsets.1));
        }
    });
}

#[test]
fn plans() {
    let [_, _, base] = files("fuzz-plan");
    let text = String::from_utf8(base.clone()).unwrap();
    let written = save::load(&text).unwrap();
    let cpu = cpu();
    check(base, 24, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(read) = save::load(&text) {
            assert!(read.plan == written.plan, "a change was not seen");
        }
        // And by somebody who knows how to make a checksum.
        if let Some((head, body)) = text.split_once("\"run\":") {
            let body = format!("\"run\":{}", body.strip_suffix("\n}\n").unwrap_or(body));
            let head = head.split_once("\"checksum\"").map_or(head, |(head, _)| head);
            let forged = format!("{head}\"checksum\":\"{:016x}\",\n{body}\n}}\n", fingerprint(&body));
            let _ = save::load(&forged).and_then(|saved| saved.for_target(cpu.target()));
        }
    });
}
