//! The memory of the whole process has a limit, whoever says it: `--total`, a control group, `ulimit`. What fits runs to its
//! end, and what does not is refused in a sentence; nothing is killed, and nothing unfinished is left.

#![cfg(target_os = "linux")]

use std::path::Path;

use memfit::exec::process::is_in_memory;

use crate::cage::{Cage, End};
use crate::common::{Scratch, command, events, memfit, stdout};
use crate::draw;
use crate::files::{Pixels, write_png};

const MIB: u64 = 1 << 20;

/// Pictures of two classes.
pub fn pictures(scratch: &Scratch) -> String {
    for n in 0..20 {
        let class = ["bar", "disc"][n % 2];
        let (image, _) = draw::picture(draw::Shape::from_name(class).expect("a shape"), 16, &n.to_string());
        let path = scratch.write(&format!("data/{class}/{n}.png"), "");
        draw::write_png(Path::new(&path), &image, 16, 3).expect("a picture");
    }
    scratch.path("data")
}

/// Two models that are trained in a moment: of few weights and of some.
fn trainings(data: &str) -> [(&'static str, Vec<String>); 2] {
    let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
    let digits = words("train --batch 8 --steps 3");
    let mut mobile =
        words("train --model mobilenet_v3_small --input 16x16x3 --batch 2 --steps 2 --host-budget 1MiB --data");
    mobile.push(data.into());
    [("digits", digits), ("mobilenet_v3_small", mobile)]
}

/// Trains in so many MiB.
fn train(cage: &Cage, mib: u64, args: &[String], out: &str) -> End {
    let _ = std::fs::remove_dir_all(out);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--out", out]).collect();
    let plain = command(&args);
    let mut caged = cage.command(mib, Path::new(plain.get_program()));
    caged.args(plain.get_args()).env("XDG_CONFIG_HOME", "/nowhere").current_dir(std::env::temp_dir());
    End::of(&caged.output().expect("a shell"), Path::new(out))
}

/// The least limit in which it runs, in MiB, by bisection; on the way nothing ends in another way than it should.
fn threshold(cage: &Cage, args: &[String], out: &str) -> u64 {
    // In 20 MiB of address space the program is loaded, and has no room.
    let (mut refused, mut runs) = (if matches!(cage, Cage::AddressSpace) { 20 } else { 1 }, 96);
    assert_eq!(train(cage, runs, args, out), End::Done, "{args:?} in {runs} MiB, {}", cage.name());
    let mut proposed = Vec::new();
    while runs - refused > 1 {
        let middle = runs.midpoint(refused);
        match train(cage, middle, args, out) {
            End::Done => runs = middle,
            End::Refused(message) => {
                assert!(message.contains("MiB"), "{message}");
                proposed.extend(limit_in(&message));
                refused = middle;
            }
            End::Wrong(how) => panic!("{args:?} in {middle} MiB, {}: {how}", cage.name()),
        }
    }
    let enough = |limit: &f64| limit.ceil() >= runs as f64;
    assert!(proposed.iter().all(enough), "{proposed:?} were proposed, and {runs} are needed");
    runs
}

/// The limit for the process that a refusal proposes, in MiB.
fn limit_in(message: &str) -> Option<f64> {
    let (_, rest) = message.split_once("(a limit of ")?;
    rest.split_once("MiB for the process)")?.0.parse().ok()
}

fn bisect(cage: &Cage) {
    let scratch = Scratch::new(if matches!(cage, Cage::AddressSpace) { "address-space" } else { "group" });
    for (model, args) in trainings(&pictures(&scratch)) {
        let found = threshold(cage, &args, &scratch.path("out"));
        eprintln!("{model} runs from {found} MiB on, {}", cage.name());
    }
}

#[test]
fn under_a_limit_of_address_space_a_run_fits_or_is_refused() {
    bisect(&Cage::AddressSpace);
}

#[test]
fn what_a_limit_of_address_space_refuses_fits_into_the_one_that_is_proposed() {
    let scratch = Scratch::new("address-space-proposed");
    // Its pipeline gives way to the arena, which is found by trying: with threads that end before those of the run begin.
    let mut args: Vec<String> =
        "train --model mobilenet_v3_small --input 16x16x3 --batch 2 --steps 2 --threads 2 --data"
            .split(' ')
            .map(String::from)
            .collect();
    args.push(pictures(&scratch));
    let out = scratch.path("out");
    let End::Refused(message) = train(&Cage::AddressSpace, 48, &args, &out) else { panic!("it fits into 48 MiB") };
    let proposed = limit_in(&message).unwrap_or_else(|| panic!("no limit is proposed: {message}")).ceil() as u64;
    for mib in [proposed, proposed + 4, proposed + 20] {
        assert_eq!(train(&Cage::AddressSpace, mib, &args, &out), End::Done, "{proposed} MiB are proposed, in {mib}");
    }
}

#[test]
fn in_a_control_group_a_run_fits_or_is_refused() {
    match Cage::group() {
        Ok(cage) => {
            bisect(&cage);
            files_in_memory_count(&cage);
        }
        Err(why) => eprintln!("skipped: no control group can be made here: {why}"),
    }
}

/// Checkpoints in a folder that lies in memory are memory.
fn files_in_memory_count(cage: &Cage) {
    if !is_in_memory(Path::new("/dev/shm")) {
        return eprintln!("skipped: /dev/shm is not in memory here");
    }
    let scratch = Scratch::new("in-memory");
    let [_, (model, args)] = trainings(&pictures(&scratch));
    let out = format!("/dev/shm/memfit-{}-run", std::process::id());
    match train(cage, 60, &args, &out) {
        End::Refused(message) => assert!(message.contains("for the run's folder lies in memory"), "{message}"),
        other => panic!("{model} in {out}: {other:?}"),
    }
    assert!(!Path::new(&out).exists(), "nothing is begun");
}

#[test]
fn a_total_holds_for_the_whole_process() {
    let scratch = Scratch::new("total");
    let [_, (_, args)] = trainings(&pictures(&scratch));
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    // Refused, and what is proposed is done.
    let (code, refused) = events(&[&words[..], &["--total", "25MiB", "--out", &scratch.path("refused")]].concat());
    let last = refused.last().expect("an event");
    assert_eq!((code, &last["event"]), (3, &"error".into()), "{last}");
    let message = last["message"].as_str().expect("a message");
    assert!(message.contains("of the 25.0 MiB that the process may have (memory.total), "), "{message}");
    let fixes = last["certificate"]["fixes"].as_array().expect("fixes");
    let mut proposed = fixes.iter().filter_map(|f| f["change"].as_str()?.strip_prefix("--total "));
    let total = proposed.next_back().expect("a larger total").to_string();
    assert!(!Path::new(&scratch.path("refused")).exists(), "nothing is begun");
    let out = scratch.path("out");
    let (code, run) = events(&[&words[..], &["--total", &total, "--out", &out]].concat());
    let done = run.last().expect("an event");
    assert_eq!((code, &done["event"]), (0, &"done".into()), "{total}: {done}");
    let bytes =
        |event: &serde_json::Value, key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key} of {event}"));
    let (limit, outside) = (bytes(&run[0], "process_limit_bytes"), bytes(&run[0], "outside_bytes"));
    assert!(bytes(done, "measured_peak_bytes") <= limit, "{done}");
    assert!(bytes(&run[0], "arena_bytes") + MIB + outside <= limit, "{}", run[0]);
    // A run that goes on has the same limit, and one that answers too.
    let on = memfit(&["train", "--resume", &out, "--steps", "3", "--total", &total]);
    assert!(on.status.success() && stdout(&on).contains("(memory.total), of it"), "{on:?}");
    assert!(memfit(&["eval", &out, "--total", &total]).status.success());
    assert_eq!(memfit(&["eval", &out, "--total", "4MiB"]).status.code(), Some(3));
}

#[test]
fn a_plan_is_made_for_a_total_and_planning_itself_has_to_fit() {
    let plan = |total: &str| events(&["plan", "--model", "resnet50", "--batch", "4", "--total", total]);
    let (code, fits) = plan("2GiB");
    assert_eq!(code, 0);
    let sum = |event: &serde_json::Value| event["arena_bytes"].as_u64().zip(event["outside_bytes"].as_u64());
    assert!(sum(&fits[0]).is_some_and(|(arena, outside)| arena + outside <= 2 << 30), "{}", fits[0]);
    // The program itself takes more on one machine than on another.
    let refused = |mib: u32| {
        let (code, told) = plan(&format!("{mib}MiB"));
        assert_eq!(code, 3, "{told:?}");
        told[0]["message"].as_str().expect("a message").to_string()
    };
    let message = (12..).map(refused).find(|m| !m.contains("the program itself")).expect("enough for the program");
    assert!(message.contains("planning this model takes up to") && message.contains("are left for it"), "{message}");
    let runs = ["one.toml", "two.toml"].map(|name| {
        let scratch = std::env::temp_dir().join(format!("memfit-{}-totals-{name}", std::process::id()));
        let total = if name == "one.toml" { "1GiB" } else { "2GiB" };
        std::fs::write(&scratch, format!("[memory]\ntotal = \"{total}\"\n")).expect("a run file");
        scratch
    });
    let [one, two] = runs.each_ref().map(|path| path.display().to_string());
    let output = memfit(&["plan", &one, &two]);
    runs.iter().for_each(|path| std::fs::remove_file(path).expect("a file of this test"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("say memory.total (--total) once"), "{output:?}");
}

#[test]
fn a_picture_that_only_a_small_host_budget_keeps_out_does_not_fit() {
    let scratch = Scratch::new("small-host");
    for n in 0..4 {
        let path = scratch.write(&format!("photos/{}/{n}.png", ["cat", "dog"][n % 2]), "");
        write_png(&path, [200, 200], &Pixels::Rgb(&[n as u8; 200 * 200 * 3]));
    }
    let (data, out) = (scratch.path("photos"), scratch.path("out"));
    let args = ["train", "--model", "digits", "--input", "8x8x3", "--data", &data, "--batch", "2", "--steps", "1"];
    for more in [&[][..], &["--skip-bad"]] {
        let output = memfit(&[&args[..], &["--out", &out, "--host-budget", "20KiB"], more].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(message.contains("--host-budget") && !message.contains("--skip-bad"), "{message}");
    }
}
