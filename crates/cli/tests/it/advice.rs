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
    for command in [vec!["eval", &out], vec!["predict", &out, &picture]] {
        let with = |budget: &str| memfit(&[&command[..], &["--host-budget", budget]].concat());
        let refused = with("2KiB");
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(message.contains("raise --host-budget") && refused.status.code() == Some(3), "{message}");
        assert!(with("4MiB").status.success(), "{command:?}");
    }
    // What is said is meant, even if it is too much.
    let (code, _) = events(&["eval", &out, "--total", "60MiB", "--host-budget", "100MiB"]);
    assert_eq!(code, 3);
}

/// What a refused command says.
fn refused(args: &[&str]) -> String {
    let output = memfit(args);
    assert_eq!(output.status.code(), Some(3), "{args:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn an_evaluation_is_told_what_fits_and_one_sample_is_not_made_fewer() {
    let scratch = Scratch::new("eval-batch");
    let args = training(&pictures(&scratch));
    let out = scratch.path("out");
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--out", &out]).collect();
    assert!(memfit(&args).status.success());
    let with = |batch: &str, total: &str| {
        let args = ["eval", &out, "--threads", "1", "--host-budget", "1MiB", "--batch", batch, "--total", total];
        events(&args)
    };
    // What one sample needs, and a little more: for a thousand that is not enough.
    let (code, told) = with("1", "21MiB");
    assert_eq!(code, 3, "{told:?}");
    assert!(!changes(&told).iter().any(|c| c.starts_with("--batch")), "{told:?}");
    let enough = total(&told);
    assert_eq!(with("1", &enough).0, 0, "{enough}");
    let (code, told) = with("1000", &enough);
    assert_eq!(code, 3);
    let proposed = changes(&told);
    let batch = proposed.iter().find_map(|c| c.strip_prefix("--batch ")).expect("fewer samples at a time");
    assert_eq!(with(batch, &enough).0, 0, "{proposed:?}");
    assert_eq!(with("1000", &total(&told)).0, 0, "{proposed:?}");
}

#[test]
fn the_program_itself_is_not_to_be_made_smaller() {
    let scratch = Scratch::new("program");
    let out = scratch.path("out");
    let message = refused(&["train", "--steps", "1", "--host-budget", "900TiB", "--out", &out]);
    assert!(message.contains("the program itself") && message.ends_with("; ask for less\n"), "{message}");
    let message = refused(&["train", "--steps", "1", "--total", "1MiB", "--out", &out]);
    assert!(message.contains("give the process more: --total") && message.contains("--threads"), "{message}");
    let message = refused(&["train", "--steps", "1", "--total", "1MiB", "--threads", "1", "--out", &out]);
    assert!(!message.contains("--threads"), "{message}");
}

#[test]
fn what_is_said_in_a_run_file_is_named_by_its_key() {
    let scratch = Scratch::new("keys");
    let file =
        |name: &str| scratch.write(&format!("{name}.toml"), format!("[train]\nout = \"{}\"\n", scratch.path(name)));
    let (a, b) = (file("a"), file("b"));
    // Enough for the program, which is as large as it is, and not for both runs.
    let message = |mib: u32| refused(&["train", &a, &b, "--steps", "1", "--total", &format!("{mib}MiB")]);
    let message = (10..40).map(message).find(|m| m.contains("in its run file")).expect("what would fit");
    // What is of all of them is typed, and what is of one stands in its file.
    assert!(message.contains("\n    --total ") && !message.contains("memory.total = "), "{message}");
    assert!(message.contains("train.batch = ") && !message.contains("--batch"), "{message}");
}

#[test]
fn a_plan_says_where_training_would_not_take_it() {
    let cage = Cage::AddressSpace;
    let plan = |mib: u64, budget: &str| {
        let (code, told) =
            caged(&cage, mib, &["plan", "--model", "resnet18", "--input", "64x64x3", "--budget", budget]);
        assert_eq!(code, Some(0), "{told:?}");
        told[0]["fits_here"].as_bool()
    };
    assert_eq!(plan(160, "1GiB"), Some(false));
    assert_eq!(plan(4096, "1GiB"), Some(true));
    let plain = command(&["plan", "--model", "resnet18", "--input", "64x64x3"]);
    let mut caged = cage.command(160, Path::new(plain.get_program()));
    let output = caged.args(plain.get_args()).env("XDG_CONFIG_HOME", "/nowhere").output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("`memfit train` would refuse it: of the 160 MiB that the process may have"), "{text}");
}

#[test]
fn fewer_threads_are_proposed_where_their_stacks_are_what_is_large() {
    let scratch = Scratch::new("stacks");
    let args = training(&pictures(&scratch));
    let out = scratch.path("out");
    let train = |threads: usize| {
        let _ = std::fs::remove_dir_all(&out);
        let threads = threads.to_string();
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--threads", &threads, "--out", &out]).collect();
        caged(&Cage::AddressSpace, 192, &args)
    };
    let (mut runs, mut refused) = (1_usize, 64);
    let (mut code, mut told) = train(refused);
    // What was told at the border is kept: how much address space threads take differs a little from run to run.
    while refused - runs > 1 {
        let middle = runs.midpoint(refused);
        let tried = train(middle);
        if tried.0 == Some(0) {
            runs = middle;
        } else {
            (refused, (code, told)) = (middle, tried);
        }
    }
    let last = told.last().expect("an event");
    let message = last["message"].as_str().expect("a message");
    assert!(code == Some(3) && message.contains("--threads"), "{message}");
    if let Some(fewer) = last["certificate"]["fewer_threads"].as_u64() {
        assert!(message.contains(&format!("\n    --threads {fewer}  as it is")), "{message}");
        assert_eq!(train(fewer as usize).0, Some(0), "{message}");
    }
    // Where not even the program has room, each thread is said to take some of it.
    let message = train(64).1.last().and_then(|e| e["message"].as_str().map(String::from)).expect("a message");
    assert!(message.contains("fewer threads than 64") && message.ends_with(": --threads"), "{message}");
}

#[test]
fn the_last_word_of_the_allocator_is_an_event_too() {
    let scratch = Scratch::new("last-word");
    let rows: String = (0..400_000).map(|n| format!("{n},{n},{},8\n", n + 2)).collect();
    let table = scratch.write("buffers.csv", format!("id,lower,upper,size\n{rows}"));
    let (code, told) = caged(&Cage::AddressSpace, 40, &["pack", &table]);
    let last = told.last().expect("an event");
    assert_eq!((code, &last["event"], &last["kind"]), (Some(3), &"error".into(), &"refused".into()), "{last}");
    assert!(last["message"].as_str().is_some_and(|m| m.contains("the system gives no")), "{last}");
}
