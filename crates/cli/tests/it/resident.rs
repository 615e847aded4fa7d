//! The plan's number is the process's: what the system counts is the arena, what the data pipeline holds, and little else.

#![cfg(target_os = "linux")]

use crate::common;

use std::path::Path;

use common::{Scratch, events};
use memfit_test_effort::size;
use serde_json::Value;

use crate::draw;

const MIB: u64 = 1 << 20;

fn done(args: &[&str]) -> Value {
    let (code, events) = events(&[&["train"], args].concat());
    let done = events.last().expect("it ends").clone();
    assert_eq!((code, &done["event"]), (0, &"done".into()), "{args:?}: {done}");
    done
}

fn bytes(done: &Value, key: &str) -> u64 {
    done[key].as_u64().unwrap_or_else(|| panic!("{key} of {done}"))
}

#[test]
fn resident_memory_is_the_arena_and_the_pipeline() {
    let scratch = Scratch::new("memory");
    for n in 0..40 {
        let class = ["bar", "disc"][n % 2];
        let (image, _) = draw::picture(draw::Shape::from_name(class).expect("a shape"), 48, &n.to_string());
        let path = scratch.write(&format!("data/{class}/{n}.png"), "");
        draw::write_png(Path::new(&path), &image, 48, 3).expect("a picture");
    }
    let data = scratch.path("data");
    let tiny = done(&["--batch", "1", "--steps", "1", "--out", &scratch.path("tiny")]);
    let program = bytes(&tiny, "measured_peak_bytes") - bytes(&tiny, "arena_bytes") - bytes(&tiny, "host_peak_bytes");
    let check = |name: &str, args: &[&str]| {
        let out = scratch.path(name);
        let done = done(&[args, &["--out", &out]].concat());
        let planned = bytes(&done, "arena_bytes") + bytes(&done, "host_peak_bytes");
        let measured = bytes(&done, "measured_peak_bytes") - program;
        let room = planned / 20 + 16 * MIB;
        eprintln!("{name}: planned {} MiB, measured {} MiB", planned / MIB, measured / MIB);
        assert!(
            measured.abs_diff(planned) <= room,
            "{name}: {measured} measured, {planned} planned, {program} program"
        );
        bytes(&done, "arena_bytes")
    };
    check("digits", &["--epochs", "2"]);
    let input = size("96x96x3", "224x224x3");
    let resnet = ["--model", "resnet50", "--input", input, "--batch", "16", "--optimizer", "momentum"];
    let resnet = [&resnet[..], &["--data", &data, "--steps", "2"]].concat();
    let fastest = check("fastest", &resnet);
    let tight = fastest * 3 / 4;
    assert!(check("tight", &[&resnet[..], &["--budget", &tight.to_string()]].concat()) <= tight);
}

#[test]
fn large_photos_take_no_more_than_the_host_budget() {
    let scratch = Scratch::new("photos");
    let side = 2000;
    for n in 0..8 {
        let class = ["bar", "disc"][n % 2];
        let (image, _) = draw::picture(draw::Shape::from_name(class).expect("a shape"), side, &n.to_string());
        let path = scratch.write(&format!("data/{class}/{n}.png"), "");
        draw::write_png(Path::new(&path), &image, side, 3).expect("a picture");
    }
    let data = scratch.path("data");
    let tiny = done(&["--batch", "1", "--steps", "1", "--out", &scratch.path("tiny")]);
    let program = bytes(&tiny, "measured_peak_bytes") - bytes(&tiny, "arena_bytes") - bytes(&tiny, "host_peak_bytes");
    let out = scratch.path("out");
    let small = ["--model", "digits", "--input", "16x16x3", "--batch", "2", "--threads", "4"];
    let more = ["--epochs", size("2", "4"), "--data", &data, "--host-budget", "80MiB", "--out", &out];
    let done = done(&[&small[..], &more].concat());
    let planned = bytes(&done, "arena_bytes") + bytes(&done, "host_peak_bytes");
    assert!(bytes(&done, "host_peak_bytes") <= 80 * MIB);
    let measured = bytes(&done, "measured_peak_bytes") - program;
    eprintln!("photos: planned {} MiB, measured {} MiB", planned / MIB, measured / MIB);
    assert!(measured <= planned + planned / 20 + 16 * MIB, "{measured} measured, {planned} planned, {program} program");
}
