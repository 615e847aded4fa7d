//! The binary as a person meets it: what it prints, and how it ends.

use crate::common;

use common::{Scratch, check_error, command, memfit, stdout};
use serde_json::Value;

#[test]
fn wrong_use_is_told_with_the_cure() {
    check_error(&["train", "--budget", "12 parsecs"], 2, &["12 parsecs", "512MiB"]);
    check_error(&["plan", "--model", "resnet5O"], 2, &["resnet5O", "resnet50"]);
    check_error(&["train", "--optimizer", "adamm"], 2, &["adamm", "adam"]);
    check_error(&["train", "--batch", "0"], 2, &["--batch", "at least 1"]);
    check_error(&["train", "--batch", "32", "--micro-batch", "5"], 2, &["5", "32", "divisor"]);
    check_error(&["train", "--lr", "-1"], 2, &["--lr"]);
    check_error(&["train", "--lr", "nan"], 2, &["--lr"]);
    check_error(&["train", "--precision", "bf16"], 2, &["bf16", "f32, mixed, mixed-f16"]);
    check_error(&["train", "--threads", "0"], 2, &["--threads"]);
    check_error(&["plan", "--model", "resnet50", "--input", "224by224"], 2, &["224by224", "224x224x3"]);
    check_error(&["plan", "--model", "unet", "--input", "250x250x3"], 2, &["250"]);
    check_error(&["train", "--model", "resnet50"], 2, &["resnet50", "--data", "memfit init"]);
    check_error(&["train", "--batch", "100000"], 2, &["100000", "1438"]);
    check_error(&["train", "--out", "/proc/nowhere/run"], 4, &["/proc/nowhere/run"]);
    check_error(&["train", "--classes", "5"], 2, &["--classes", "10 classes"]);
    check_error(&["train", "--batch", "-1"], 2, &["--batch", "-1"]);
    check_error(&["train", "--frobnicate"], 2, &["--frobnicate"]);
    check_error(&["plan", "--model", "resnet50", "--batch", "99999999999999"], 2, &[]);
}

#[test]
fn bad_weights_are_bad_data() {
    let path = std::env::temp_dir().join(format!("memfit-cli-{}.safetensors", std::process::id()));
    std::fs::write(&path, b"nothing").expect("a temporary file");
    let path = path.display().to_string();
    check_error(&["train", "--steps", "1", "--weights", &path], 4, &[&path, "not a safetensors file"]);
    check_error(&["train", "--steps", "1", "--weights", "/nowhere/w.safetensors"], 4, &["/nowhere/w.safetensors"]);
    std::fs::remove_file(path).expect("it was written above");
}

#[test]
fn a_training_that_loses_its_loss_says_so() {
    check_error(
        &["train", "--optimizer", "sgd", "--lr", "1e30", "--epochs", "1"],
        4,
        &["the loss is", "learning rate", "last good"],
    );
}

#[test]
fn weights_are_written_though_nobody_reads_the_output() {
    let scratch = Scratch::new("pipe");
    let mut child = command(&["train", "--epochs", "2", "--out", &scratch.path("run")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    assert!(scratch.0.join("run/weights.safetensors").is_file());
}

#[test]
fn training_prints_events_and_learns() {
    let output = memfit(&["train", "--epochs", "3", "--json"]);
    assert!(output.status.success());
    let events: Vec<Value> =
        stdout(&output).lines().map(|l| serde_json::from_str(l).expect("one JSON object a line")).collect();
    let count = |name: &str| events.iter().filter(|e| e["event"] == name).count();
    assert_eq!((count("plan"), count("step"), count("epoch"), count("done")), (1, 3 * (1438 / 32), 3, 1));
    let plan = &events[0];
    let bytes = |key: &str| plan[key].as_u64().unwrap_or_else(|| panic!("{key} is a number"));
    assert_eq!(bytes("arena_bytes"), bytes("state_bytes") + bytes("transient_bytes"));
    assert!(bytes("peak_bytes") <= bytes("arena_bytes"));
    let accuracy = events[events.len() - 1]["test_accuracy"].as_f64().expect("a number");
    assert!(accuracy > 0.95, "{accuracy}");
}

#[test]
fn mixed_precision_learns_and_is_told() {
    for precision in ["mixed", "mixed-f16"] {
        let output = memfit(&["train", "--epochs", "3", "--precision", precision, "--json"]);
        assert!(output.status.success());
        let events: Vec<Value> =
            stdout(&output).lines().map(|l| serde_json::from_str(l).expect("one JSON object a line")).collect();
        assert_eq!(events[0]["precision"], precision);
        let accuracy = events[events.len() - 1]["test_accuracy"].as_f64().expect("a number");
        assert!(accuracy > 0.95, "{precision}: {accuracy}");
        let plan = stdout(&memfit(&["plan", "--precision", precision]));
        assert!(plan.starts_with(&format!("digits, batch 32, {precision}, cpu")), "{plan}");
    }
}

#[test]
fn threads_do_not_change_the_weights() {
    let weights: Vec<Vec<u8>> = ["1", "2", "3"]
        .iter()
        .map(|threads| {
            let scratch = Scratch::new(&format!("threads-{threads}"));
            let output = memfit(&["train", "--steps", "30", "--threads", threads, "--out", &scratch.path("run")]);
            assert!(output.status.success());
            std::fs::read(scratch.path("run/weights.safetensors")).expect("the weights")
        })
        .collect();
    assert!(weights[0] == weights[1] && weights[0] == weights[2]);
}

#[test]
fn models_and_devices_are_listed() {
    let models = stdout(&memfit(&["models"]));
    assert!(models.lines().any(|l| l.starts_with("resnet50 ") && l.contains("25557032")), "{models}");
    for args in [&["--help"][..], &["train", "--help"], &["plan", "--help"]] {
        assert!(stdout(&memfit(args)).contains("--budget"), "{args:?}");
    }
}
