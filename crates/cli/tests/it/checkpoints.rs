//! Checkpoints: a run that is stopped, asked to stop or damaged goes on to the same bits from one, or says what is wrong with it.

use serde_json::Value;

#[cfg(unix)]
use crate::common::stopped;
use crate::common::{Scratch, check_error, event, events, memfit};

/// What a checkpoint says.
pub fn checkpoint(scratch: &Scratch, path: &str) -> Value {
    let json = std::fs::read_to_string(scratch.path(path)).expect("a checkpoint");
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    json["checkpoint"].clone()
}

/// All states of the last checkpoint of a run.
fn states(scratch: &Scratch, run: &str) -> Vec<u8> {
    let last = checkpoint(scratch, &format!("{run}/last.json"));
    let name = last["tensors"]["name"].as_str().unwrap_or_else(|| panic!("{last} names its tensors"));
    std::fs::read(scratch.path(&format!("{run}/{name}"))).expect("its tensors")
}

#[test]
fn a_run_that_is_stopped_goes_on_to_the_same_bits() {
    let scratch = Scratch::new("stopped");
    let train = |args: &[&str]| memfit(&[&["train"], args].concat());
    assert!(train(&["--epochs", "3", "--out", &scratch.path("whole")]).status.success());
    // In the middle of an epoch, and then at the end of one.
    assert!(train(&["--steps", "50", "--out", &scratch.path("parts")]).status.success());
    assert!(train(&["--resume", &scratch.path("parts"), "--steps", "88"]).status.success());
    assert!(train(&["--resume", &scratch.path("parts"), "--steps", "132"]).status.success());
    assert!(states(&scratch, "whole") == states(&scratch, "parts"));
    check_error(
        &["train", "--out", &scratch.path("whole")],
        2,
        &["holds a run already", &format!("`memfit train --resume {}`", scratch.path("whole"))],
    );
    check_error(&["train", "--resume", &scratch.path("whole"), "--batch", "64"], 2, &["as it was"]);
    check_error(&["train", "--resume", &scratch.path("nothing")], 2, &["nothing", "not the folder of a run"]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_is_saved_and_says_how_to_go_on() {
    check_interrupted("interrupted", rustix::process::Signal::INT);
}

#[cfg(unix)]
#[test]
fn so_is_one_whose_terminal_was_closed() {
    check_interrupted("hung-up", rustix::process::Signal::HUP);
}

#[cfg(unix)]
fn check_interrupted(name: &str, signal: rustix::process::Signal) {
    let scratch = Scratch::new(name);
    let folder = scratch.path("run");
    let rest = stopped(&["train", "--epochs", "500", "--out", &folder], 20, signal);
    let told: Value = serde_json::from_str(rest.last().expect("it says something")).expect("it is JSON");
    let stopped: u64 = rest.iter().filter(|l| l.contains("\"event\":\"step\"")).count() as u64 + 20;
    assert_eq!(told["event"], "interrupted");
    assert_eq!(told["runs"], serde_json::json!([{ "run_dir": folder, "step": stopped }]));
    let (code, events) = events(&["train", "--resume", &folder, "--steps", &(stopped + 5).to_string()]);
    let first = events.iter().find(|e| e["event"] == "step").expect("it goes on");
    assert_eq!((code, first["step"].as_u64()), (0, Some(stopped)));
    let whole = scratch.path("whole");
    assert!(memfit(&["train", "--steps", &(stopped + 5).to_string(), "--out", &whole]).status.success());
    assert!(states(&scratch, "whole") == states(&scratch, "run"));
}

#[cfg(unix)]
#[test]
fn a_checkpoint_that_cannot_be_written_is_an_error_and_loses_nothing() {
    let scratch = Scratch::new("full");
    let folder = scratch.path("run");
    assert!(memfit(&["train", "--steps", "10", "--out", &folder]).status.success());
    let before = states(&scratch, "run");
    // No file may be larger than 100 KiB, which the weights are.
    let script = "ulimit -f 100; exec \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_memfit"), "train", "--resume", &folder, "--steps", "60"])
        .output()
        .expect("a shell");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("cannot save") && message.contains(&folder), "{message}");
    assert!(states(&scratch, "run") == before);
    assert!(memfit(&["train", "--resume", &folder, "--steps", "12"]).status.success());
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_become_so_large_is_an_error_that_names_it() {
    let scratch = Scratch::new("file-limit");
    for (args, name) in [
        (&["train", "--steps", "1", "--out"][..], "train"),
        (&["profile", "--steps", "1", "--out"], "profile"),
        (&["plan", "--save"], "plan.json"),
        (&["plan", "--html"], "report.html"),
        (&["init"], "run.toml"),
    ] {
        let path = scratch.path(name);
        let output = std::process::Command::new("sh")
            .args(["-c", "ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_memfit")])
            .args(args)
            .arg(&path)
            .output()
            .expect("a shell");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{args:?}: {message}");
        assert!(message.contains(&path) && message.contains("cannot be written"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(!std::path::Path::new(&path).is_file(), "{path} is whole or not there");
    }
}

#[test]
fn a_damaged_checkpoint_is_named_with_the_cure() {
    let scratch = Scratch::new("damaged");
    let folder = scratch.path("run");
    assert!(memfit(&["train", "--steps", "10", "--out", &folder]).status.success());
    let json = scratch.path("run/last.json");
    let text = std::fs::read_to_string(&json).expect("a checkpoint");
    std::fs::write(&json, text.replacen("10", "11", 1)).expect("it can be damaged");
    let cure = format!("`memfit train --resume {folder}/best.json`");
    check_error(&["train", "--resume", &folder], 4, &["last.json", &cure]);
    std::fs::write(&json, &text).expect("it can be mended");
    let tensors = std::fs::read_dir(&folder).expect("a folder").filter_map(Result::ok).map(|e| e.path());
    for path in tensors.filter(|p| p.extension().is_some_and(|e| e == "safetensors")) {
        let mut bytes = std::fs::read(&path).expect("tensors");
        let end = bytes.len() - 1;
        bytes[end] ^= 1;
        std::fs::write(&path, bytes).expect("it can be damaged");
    }
    check_error(&["train", "--resume", &folder], 4, &["step-", "safetensors"]);
}

#[test]
fn a_run_goes_on_from_the_checkpoint_that_is_named() {
    let scratch = Scratch::new("named");
    let run = scratch.path("run");
    let train = |args: &[&str]| events(&[&["train"], args].concat());
    // Its best checkpoint is at the end of an epoch, its last in the middle of the next one, which made it worse.
    assert_eq!(train(&["--steps", "11", "--batch", "128", "--out", &run]).0, 0);
    assert_eq!(train(&["--resume", &run, "--steps", "20", "--lr", "10"]).0, 0);
    let whole = states(&scratch, "run");
    let step_of = |name: &str| checkpoint(&scratch, &format!("run/{name}"))["step"].as_u64();
    assert_eq!((step_of("best.json"), step_of("last.json")), (Some(11), Some(20)));
    let first = |events: &[Value]| events.iter().find(|e| e["event"] == "step").and_then(|e| e["step"].as_u64());
    for (named, step) in [(run.clone(), 11), (format!("{run}/best.json"), 11), (format!("{run}/last.json"), 20)] {
        assert_eq!(event(&["eval", &named])["step"], step, "{named}");
    }
    // As the message about a damaged one says to.
    scratch.write("run/last.json", "{");
    let message = format!("best.json (step 11) is intact: `memfit train --resume {run}/best.json` goes on from it");
    check_error(&["train", "--resume", &run], 4, &[&message]);
    check_error(&["train", "--resume", &format!("{run}/last.json")], 4, &[&message]);
    let (code, events) = train(&["--resume", &format!("{run}/best.json"), "--steps", "20"]);
    assert_eq!((code, first(&events)), (0, Some(11)), "{events:?}");
    assert!(states(&scratch, "run") == whole, "it does the same steps again");
    let (code, events) = train(&["--resume", &format!("{run}/last.json"), "--steps", "21"]);
    assert_eq!((code, first(&events)), (0, Some(20)));
    // The other way round.
    scratch.write("run/best.json", "{");
    let message = format!("last.json (step 21) is intact: `memfit train --resume {run}` goes on from it");
    check_error(&["train", "--resume", &format!("{run}/best.json")], 4, &[&message]);
    check_error(&["eval", &run], 4, &["last.json (step 21) is intact: remove best.json to use that"]);
    check_error(&["train", "--resume", &format!("{run}/plan.json")], 2, &["plan.json is no checkpoint", "best.json"]);
}

#[test]
fn a_damaged_best_is_never_replaced_by_the_last_in_silence() {
    let scratch = Scratch::new("best");
    let run = scratch.path("run");
    assert!(memfit(&["train", "--steps", "3", "--out", &run]).status.success());
    let json = scratch.path("run/best.json");
    let text = std::fs::read_to_string(&json).expect("a checkpoint");
    std::fs::write(&json, &text[..text.len() / 2]).expect("it can be damaged");
    check_error(&["eval", &run], 4, &["best.json", "last.json (step 3) is intact", "remove best.json"]);
    // A run that goes on would only tell it at its end.
    check_error(&["train", "--resume", &run, "--steps", "4"], 4, &["best.json", "move best.json away"]);
    assert_eq!(checkpoint(&scratch, "run/last.json")["step"], 3);
    let picture = scratch.write("8.png", "");
    check_error(&["predict", &run, &picture], 4, &["best.json", "remove best.json"]);
    std::fs::remove_file(&json).expect("it is there");
    assert_eq!(event(&["eval", &run])["step"], 3);
}

#[test]
fn checkpoints_of_steps_are_kept_and_a_run_goes_on_from_any() {
    let scratch = Scratch::new("kept");
    let run = scratch.path("run");
    let train = |more: &[&str]| memfit(&[&["train"], more].concat());
    let begun = ["--steps", "24", "--save-every", "4", "--keep", "3", "--out", &run];
    assert!(train(&begun).status.success());
    let kept = || {
        let names = std::fs::read_dir(&run).expect("a folder").map(|f| f.expect("a file").file_name());
        let mut kept: Vec<String> =
            names.filter_map(|n| n.into_string().ok()).filter(|n| n.starts_with("step-0")).collect();
        kept.retain(|name| name.ends_with(".json"));
        kept.sort();
        kept
    };
    assert_eq!(kept(), ["step-00000016.json", "step-00000020.json", "step-00000024.json"]);
    let at = |step: u32| format!("{run}/step-{step:08}.json");
    let tensors = |file: &str| checkpoint(&scratch, &format!("run/{file}"))["tensors"]["name"].clone();
    let last = tensors("last.json");
    // Whatever lies between is made again, to the same bits.
    assert!(train(&["--resume", &at(16), "--steps", "24"]).status.success());
    assert_eq!((kept().len(), tensors("step-00000024.json"), tensors("last.json")), (3, last.clone(), last));
    assert_eq!(event(&["eval", &at(20)])["step"], 20);
    // Of what is damaged one that is whole takes the place.
    for name in ["last.json", "best.json"] {
        if std::fs::exists(format!("{run}/{name}")).expect("a folder") {
            std::fs::write(format!("{run}/{name}"), "{").expect("written");
        }
    }
    let cure = format!("step-00000024.json (step 24) is intact: `memfit train --resume {}` goes on from it", at(24));
    check_error(&["train", "--resume", &run], 4, &[&cure]);
    assert!(train(&["--resume", &at(24), "--steps", "28"]).status.success());
    assert_eq!(kept(), ["step-00000020.json", "step-00000024.json", "step-00000028.json"]);
}
