//! What is proposed where the memory of the process is too small is true when it is done, and does not depend on how small it
//! is; what nobody asked to be large gives way.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::cage::Cage;
use crate::common::{Scratch, command, events, memfit};
use crate::limits::pictures;

/// A model of many weights beside which a quarter of the process is much.
fn training(data: &str) -> Vec<String> {
    let words = "train --model mobilenet_v3_small --input 17x23x3 --batch 3 --steps 2 --optimizer adam --data";
    words.split(' ').map(String::from).chain([data.to_string()]).collect()
}

/// As events, in a cage of so many MiB.
fn caged(cage: &Cage, mib: u64, args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let plain = command(&[args, &["--json"]].concat());
    let mut caged = cage.command(mib, Path::new(plain.get_program()));
    caged.args(plain.get_args()).env("XDG_CONFIG_HOME", "/nowhere").current_dir(std::env::temp_dir());
    let Output { status, stdout, stderr } = caged.output().expect("a shell");
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8(stdout).expect("text");
    (status.code(), text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect())
}

/// The changes that a refusal proposes.
fn changes(events: &[Value]) -> Vec<String> {
    let fixes = events.last().and_then(|e| e["certificate"]["fixes"].as_array()).expect("fixes");
    fixes.iter().map(|f| f["change"].as_str().expect("a change").to_string()).collect()
}

/// The total that is proposed, as it is typed.
fn total(events: &[Value]) -> String {
    let found = changes(events).into_iter().find_map(|c| Some(c.strip_prefix("--total ")?.to_string()));
    found.unwrap_or_else(|| panic!("no total in {events:?}"))
}

fn mib(size: &str) -> f64 {
    size.strip_suffix("MiB").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{size} is not in MiB"))
}

#[test]
fn a_proposed_total_is_the_same_under_every_limit_and_its_pipeline_gives_way() {
    let scratch = Scratch::new("totals");
    let args = training(&pictures(&scratch));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let train = |total: &str, out: &str| events(&[&args[..], &["--total", total, "--out", out]].concat());
    let out = scratch.path("out");
    let proposed = total(&train("25MiB", &out).1);
    let size = mib(&proposed);
    for less in [6.0, 2.0] {
        let again = total(&train(&format!("{:.2}MiB", size - less), &out).1);
        assert!((mib(&again) - size).abs() <= 0.5, "{again} and {proposed}");
    }
    let (code, run) = train(&proposed, &out);
    assert_eq!(code, 0, "{proposed}: {:?}", run.last());
    // A quarter would have been too much; and a run that goes on is alike.
    let plan = &run[0];
    let bytes = |key: &str| plan[key].as_u64().unwrap_or_else(|| panic!("{key} of {plan}"));
    let left = bytes("process_limit_bytes") - bytes("outside_bytes");
    assert!(bytes("arena_bytes") + left / 4 > left, "{plan}");
    for args in [&["train", "--resume", &out, "--steps", "3"][..], &["eval", &out]] {
        let output = memfit(&[args, &["--total", &proposed]].concat());
        assert!(output.status.success(), "{output:?}");
    }
    // What is said does not give way.
    let (code, refused) = events(&[&args[..], &["--total", &proposed, "--host-budget", "20MiB"]].concat());
    assert_eq!(code, 3);
    assert!(mib(&total(&refused)) > size + 15.0, "{refused:?}");
}

#[test]
fn in_a_control_group_a_proposed_limit_is_the_same_under_every_limit() {
    let cage = match Cage::group() {
        Ok(cage) => cage,
        Err(why) => return eprintln!("skipped: no control group can be made here: {why}"),
    };
    let scratch = Scratch::new("group-limits");
    let args = training(&pictures(&scratch));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let train = |mib: u64, out: &str| caged(&cage, mib, &[&args[..], &["--out", out]].concat());
    let limit = |mib: u64| {
        let change = changes(&train(mib, &scratch.path("out")).1);
        let words = change.iter().find_map(|c| c.strip_prefix("(a limit of ")?.strip_suffix("MiB for the process)"));
        words.and_then(|n| n.parse::<f64>().ok()).unwrap_or_else(|| panic!("{change:?}"))
    };
    let proposed = [18, 24, 32].map(limit);
    assert!(proposed.iter().all(|size| (size - proposed[0]).abs() <= 0.5), "{proposed:?}");
    let (code, run) = train(proposed[0].ceil() as u64, &scratch.path("out"));
    assert_eq!(code, Some(0), "{proposed:?}: {:?}", run.last());
}

#[test]
fn whoever_answers_may_say_what_the_pipeline_holds() {
    let scratch = Scratch::new("answers");
    let args = training(&pictures(&scratch));
    let out = scratch.path("out");
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--out", &out]).collect();
    assert!(memfit(&args).status.success());
    let picture = scratch.path("data/bar/0.png");
    for (command, code) in [(vec!["eval", &out], 4), (vec!["predict", &out, &picture], 4)] {
        let with = |budget: &str| memfit(&[&command[..], &["--host-budget", budget]].concat());
        let refused = with("2KiB");
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(message.contains("raise --host-budget") && refused.status.code() == Some(code), "{message}");
        assert!(with("4MiB").status.success(), "{command:?}");
    }
    // What is said is meant, even if it is too much.
    let (code, _) = events(&["eval", &out, "--total", "60MiB", "--host-budget", "100MiB"]);
    assert_eq!(code, 3);
}
