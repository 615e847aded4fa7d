//! What may be changed of a run that goes on, and what is said of what may not.

use crate::common::{Scratch, check_error, events, memfit, stdout};

#[test]
fn a_run_goes_on_with_other_threads_to_the_same_bits() {
    let scratch = Scratch::new("resumed-threads");
    let (whole, parts) = (scratch.path("whole"), scratch.path("parts"));
    let begin = |out: &str, steps: &str| {
        let args = ["train", "--batch", "12", "--micro-batch", "4", "--budget", "64MiB", "--threads", "2"];
        assert!(memfit(&[&args[..], &["--steps", steps, "--out", out]].concat()).status.success());
    };
    begin(&whole, "6");
    begin(&parts, "2");
    for (threads, steps) in [("1", "4"), ("3", "5")] {
        let (code, told) = events(&["train", "--resume", &parts, "--threads", threads, "--steps", steps]);
        assert_eq!(code, 0, "{told:?}");
        assert_eq!(told[0]["threads"].to_string(), threads);
    }
    // It stays with what it was told last.
    let (code, told) = events(&["train", "--resume", &parts, "--steps", "6"]);
    assert_eq!((code, told[0]["threads"].as_u64()), (0, Some(3)));
    let weights = |run: &str| std::fs::read(format!("{run}/weights.safetensors")).expect("weights");
    assert_eq!(weights(&parts), weights(&whole));
}

#[test]
fn threads_that_do_not_fit_into_the_budget_of_a_run_are_refused_with_those_that_do() {
    let scratch = Scratch::new("resumed-tight");
    let run = scratch.path("run");
    // Just enough for one thread.
    let small = events(&["plan", "--batch", "16", "--threads", "1", "--budget", "1"]).1;
    let needed = small[0]["certificate"]["needed_bytes"].to_string();
    let args = ["train", "--batch", "16", "--threads", "1", "--budget", &needed, "--steps", "1", "--out", &run];
    assert!(memfit(&args).status.success());
    let more = ["train", "--resume", &run, "--steps", "2", "--threads", "9"];
    if events(&["plan", "--batch", "16", "--threads", "9", "--budget", &needed]).0 == 3 {
        check_error(&more, 3, &["with 9 threads the run takes", "give --threads 1"]);
    }
    assert!(memfit(&["train", "--resume", &run, "--steps", "2", "--threads", "1"]).status.success());
}

#[test]
fn a_key_that_was_changed_is_named() {
    let scratch = Scratch::new("resumed-edited");
    let run = scratch.path("run");
    let file = scratch.write("run.toml", "[train]\nbatch = 16\nsteps = 1\nweight_decay = 0.25\nseed = 3\n");
    assert!(memfit(&["train", &file, "--out", &run]).status.success());
    let path = scratch.path("run/run.toml");
    let text = std::fs::read_to_string(&path).expect("a run file");
    let resume = ["train", "--resume", &run, "--steps", "2"];
    for (from, to, said) in [
        ("weight_decay = 0.25", "weight_decay = 0.5", "use train.weight_decay = 0.25 in the run.toml of its folder"),
        ("weight_decay = 0.25", "weight_decay = 0.25\nlabel_smoothing = 0.1", "leave out train.label_smoothing in"),
        ("weight_decay = 0.25", "", "train.weight_decay is 0.25, here it is not set"),
        ("batch = 16", "batch = 8", "its batch is 16, here it is 8 (use train.batch = 16"),
        ("batch = 16", "batch = 20", "its batch is 16, here it is 20 (use train.batch = 16"),
        ("seed = 3", "seed = 4", "train.seed is 4, but the run began with 3"),
    ] {
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).expect("it is ours");
        check_error(&resume, 2, &[said]);
    }
    std::fs::write(&path, &text).expect("it is ours");
    assert!(memfit(&resume).status.success());
}

#[cfg(unix)]
#[test]
fn what_lies_in_the_way_of_a_run_that_goes_on_can_only_be_moved() {
    let scratch = Scratch::new("resumed-foreign");
    let run = scratch.path("run");
    assert!(memfit(&["train", "--steps", "1", "--threads", "1", "--out", &run]).status.success());
    let history = format!("{run}/history.csv");
    std::fs::rename(&history, scratch.path("history.csv")).expect("a file");
    std::os::unix::fs::symlink(scratch.path("history.csv"), &history).expect("a link");
    let output = memfit(&["train", "--resume", &run, "--steps", "2"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("history.csv (a symbolic link)") && message.contains("move it away"), "{message}");
    assert!(!message.contains("--out"), "there is no other folder for it: {message}");
}

#[test]
fn an_option_that_a_run_cannot_go_on_with_is_named() {
    let scratch = Scratch::new("resumed-options");
    let run = scratch.path("run");
    assert!(memfit(&["train", "--epochs", "2", "--batch", "256", "--threads", "1", "--out", &run]).status.success());
    for (given, named) in [
        (&["--seed", "3"][..], "--seed cannot be given with --resume"),
        (&["--seed", "3", "--batch", "2"], "--batch and --seed cannot be given with --resume"),
        (&["--lanes", "4"], "--lanes cannot be given with --resume"),
    ] {
        check_error(&[&["train", "--resume", &run], given].concat(), 2, &[named, "--epochs", "can"]);
    }
    check_error(&["train", "--resume", &run, "--epochs", "1"], 2, &["--epochs 1 is less than the 2 epochs"]);
    let file = scratch.path("run/run.toml");
    let text = std::fs::read_to_string(&file).expect("a run file");
    std::fs::write(&file, text.replace("epochs = 2", "epochs = 1")).expect("it is ours");
    let said = "train.epochs = 1 in the run.toml of its folder is less than the 2 epochs";
    check_error(&["train", "--resume", &run], 2, &[said]);
    let other = scratch.write("other.toml", "");
    check_error(&["train", &other, &other, "--seed", "3"], 2, &["--seed cannot be given for several runs"]);
}

#[test]
fn a_run_goes_on_within_another_budget_to_the_same_bits() {
    let scratch = Scratch::new("resumed-budget");
    let [whole, parts] = ["whole", "parts"].map(|name| scratch.path(name));
    let train =
        |args: &[&str]| assert!(memfit(&[&["train", "--threads", "1"], args].concat()).status.success(), "{args:?}");
    train(&["--steps", "6", "--out", &whole, "--budget", "4MiB"]);
    train(&["--steps", "3", "--out", &parts, "--budget", "4MiB"]);
    train(&["--resume", &parts, "--steps", "6", "--budget", "1700KiB"]);
    let weights = |run: &str| std::fs::read(format!("{run}/weights.safetensors")).expect("weights");
    assert!(weights(&whole) == weights(&parts));
    check_error(&["train", "--resume", &parts, "--steps", "8", "--budget", "100KiB"], 3, &["100 KiB"]);
}

#[test]
fn a_history_that_is_gone_is_told() {
    let scratch = Scratch::new("resumed-history");
    let run = scratch.path("run");
    assert!(memfit(&["train", "--steps", "4", "--threads", "1", "--out", &run]).status.success());
    let lost = |steps: &str| {
        let (code, told) = events(&["train", "--resume", &run, "--steps", steps]);
        assert_eq!(code, 0, "{told:?}");
        told.iter().find(|e| e["event"] == "history_lost").map(|e| e["ends_at_step"].as_u64())
    };
    assert_eq!(lost("5"), None);
    let history = scratch.path("run/history.csv");
    let text = std::fs::read_to_string(&history).expect("a history");
    let until = text.find("\nstep,3,").expect("step 3") + 1;
    std::fs::write(&history, &text[..until]).expect("it is ours");
    assert_eq!(lost("6"), Some(Some(2)));
    // It is no longer missing at its end.
    assert_eq!(lost("7"), None);
    std::fs::remove_file(&history).expect("it is there");
    assert_eq!(lost("8"), Some(Some(0)));
    let text = stdout(&memfit(&["train", "--resume", &run, "--steps", "9"]));
    assert!(!text.contains("no longer in history.csv"), "{text}");
}
