//! Replicas through the command line: any number of them ends in the same bytes, also when a run goes on with another number.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Scratch, check_error, event, events, memfit};
use crate::pictures::pictures;

/// The files of a run that do not say when it was: weights, checkpoints with their tensors, and the tensors.
fn bytes(run: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(run).expect("a run").map(|e| e.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    files.sort();
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    let all: Vec<(String, Vec<u8>)> =
        files.iter().map(|path| (name(path), std::fs::read(path).expect("a file"))).collect();
    assert!(all.len() >= 2, "weights and states: {files:?}");
    all
}

fn scores(run: &Path) -> Value {
    let text = std::fs::read_to_string(run.join("last.json")).expect("a checkpoint");
    let json: Value = serde_json::from_str(&text).expect("a checkpoint");
    json["checkpoint"]["progress"].clone()
}

fn train(folder: &Scratch, name: &str, options: &[&str]) -> PathBuf {
    let run = folder.path(name);
    succeeds(&[&["train", "--steps", "12", "--out", &run], options].concat());
    run.into()
}

fn succeeds(args: &[&str]) {
    let output = memfit(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn any_number_of_replicas_ends_in_the_same_bytes() {
    let folder = Scratch::new("replicas");
    let alone = train(&folder, "1", &["--lanes", "4"]);
    for (name, options) in [
        ("2", &["--replicas", "2"][..]),
        ("3", &["--replicas", "3", "--piece", "4KiB"]),
        ("4", &["--replicas", "4", "--threads", "1"]),
        ("2 sharded", &["--replicas", "2", "--shard", "optimizer", "--budget", "2MiB"]),
        ("4 sharded", &["--replicas", "4", "--shard", "optimizer", "--threads", "7"]),
        ("3 parts", &["--replicas", "3", "--logical", "3MiB,3MiB,4MiB"]),
    ] {
        let run = train(&folder, name, &[&["--lanes", "4"], options].concat());
        assert!(bytes(&run) == bytes(&alone), "{name} replicas");
        assert_eq!(scores(&run), scores(&alone), "{name} replicas");
    }
    let other = train(&folder, "one lane", &[]);
    assert!(bytes(&other) != bytes(&alone), "another tree rounds otherwise, so that this means something");
    let one = train(&folder, "one lane, said", &["--lanes", "1", "--replicas", "1"]);
    assert!(bytes(&other) == bytes(&one));
}

#[test]
fn a_run_goes_on_with_another_number_of_replicas() {
    let folder = Scratch::new("replicas-resumed");
    let whole = train(&folder, "whole", &["--lanes", "4"]);
    let run = folder.path("parts");
    let first = ["train", "--steps", "3", "--lanes", "4", "--replicas", "4", "--shard", "optimizer", "--out", &run];
    succeeds(&first);
    for (steps, options) in [
        ("5", &["--replicas", "2"][..]),
        ("8", &["--replicas", "3", "--shard", "none"]),
        ("10", &["--replicas", "1", "--threads", "1"]),
        ("12", &["--replicas", "4", "--shard", "optimizer", "--budget", "2MiB"]),
    ] {
        succeeds(&[&["train", "--resume", &run, "--steps", steps], options].concat());
    }
    assert!(bytes(Path::new(&run)) == bytes(&whole));
    succeeds(&["eval", &run]);
    let more = ["train", "--resume", &run, "--steps", "14", "--replicas", "5"];
    check_error(&more, 2, &["too few for 5 replicas", "go on with 4 or fewer"]);
}

#[test]
fn two_models_are_trained_over_the_same_devices() {
    let folder = Scratch::new("replicas-two");
    let file = |name: &str, seed: u32| {
        let out = folder.path(&format!("run-{name}"));
        let text = format!("[train]\nsteps = 8\nseed = {seed}\nout = {out:?}\n[replicas]\nlanes = 2\n");
        (folder.write(&format!("{name}.toml"), text), PathBuf::from(out))
    };
    let mut ends = Vec::new();
    for (first, second, options) in [("a1", "b1", &[][..]), ("a2", "b2", &["--replicas", "2"])] {
        let ((a, out_a), (b, out_b)) = (file(first, 1), file(second, 2));
        succeeds(&[&["train", &a, &b], options].concat());
        ends.push([bytes(&out_a), bytes(&out_b)]);
    }
    assert!(ends[0] == ends[1]);
}

#[test]
fn what_cannot_be_shared_is_refused_with_a_cure() {
    for (options, code, parts) in [
        (&["--replicas", "0"][..], 2, &["--replicas must be a whole number of at least 1"][..]),
        (&["--replicas", "33"], 2, &["33 replicas cannot share a batch of 32"]),
        (&["--replicas", "4", "--lanes", "2"], 2, &["too few for 4 replicas"]),
        (&["--lanes", "3"], 2, &["does not divide the batch of 32"]),
        (&["--replicas", "2", "--shard", "gradient"], 2, &["must be one of none, optimizer"]),
        (&["--replicas", "2", "--stall", "soon"], 2, &["--stall must be a time"]),
        (&["--replicas", "3", "--logical", "2MiB,2MiB"], 2, &["replica 2 has no device", "cpu:0/0, cpu:0/1"]),
        (&["--replicas", "2", "--budget", "500KiB"], 3, &["500 KiB", "what would fit"]),
    ] {
        check_error(&[&["train", "--steps", "1"], options].concat(), code, parts);
    }
}

#[test]
fn a_plan_for_replicas_needs_none_of_them() {
    let planned = |options: &[&str]| event(&[&["plan", "--model", "resnet18", "--batch", "64"], options].concat());
    let [one, four, sharded] =
        [planned(&[]), planned(&["--replicas", "4"]), planned(&["--replicas", "4", "--shard", "optimizer"])];
    let of = |plan: &Value, key: &str| plan[key].as_u64().expect("a number");
    assert_eq!(of(&four, "state_bytes"), of(&one, "state_bytes"));
    assert!(of(&four, "arena_bytes") < of(&one, "arena_bytes"));
    assert!(of(&sharded, "optimizer_bytes") < of(&four, "optimizer_bytes") / 3);
    assert_eq!((four["replicas"]["count"].as_u64(), four["replicas"]["lanes"].as_u64()), (Some(4), Some(4)));
    assert!(of(&four["replicas"], "exchange_bytes") > 0);
}

#[test]
fn a_plan_says_what_each_replica_holds_and_how_long_a_link_takes() {
    let plan = |options: &[&str]| event(&[&["plan", "--batch", "32"], options].concat());
    let three = plan(&["--replicas", "3", "--shard", "optimizer"]);
    let each = three["replicas"]["each"].as_array().expect("a list");
    let lanes: Vec<u64> = each.iter().map(|r| r["lanes"].as_u64().expect("a number")).collect();
    assert_eq!(lanes, [1, 1, 2]);
    // The one that holds the most is planned.
    let most =
        each.iter().max_by_key(|r| r["state_bytes"].as_u64().max(r["accumulator_bytes"].as_u64())).expect("three");
    assert_eq!(three["replicas"]["rank"], most["rank"]);
    assert_eq!(three["state_bytes"], most["state_bytes"]);
    let ms = |options: &[&str]| plan(options)["predicted_step_ms"].as_f64().expect("a time");
    let [slow, fast] = ["10Mbit/s, 1ms", "100Gbit/s, 1us"].map(|link| ms(&["--replicas", "4", "--link", link]));
    assert!(slow > 10.0 * fast, "{slow} {fast}");
    check_error(&["plan", "--replicas", "4", "--link", "fast"], 2, &["--link must be a speed"]);
}

#[test]
fn a_profile_tells_how_long_a_step_is_in_exchanges() {
    let folder = Scratch::new("replicas-profile");
    let out = folder.path("profile");
    let output = memfit(&["profile", "--replicas", "2", "--threads", "2", "--steps", "3", "--out", &out]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("with the others, waiting for them included"), "{said}");
    let made_up = ["profile", "--model", "mlp", "--batch", "8", "--replicas", "3", "--lanes", "4", "--threads", "2"];
    succeeds(&[&made_up[..], &["--steps", "2", "--out", &folder.path("made-up")]].concat());
}

#[cfg(unix)]
#[test]
fn a_scheduler_that_gives_notice_has_all_replicas_save() {
    let folder = Scratch::new("replicas-notice");
    let whole = folder.path("whole");
    let stopped = folder.path("stopped");
    let options = ["--replicas", "2", "--steps", "400", "--threads", "2"];
    succeeds(&[&["train", "--out", &whole], &options[..]].concat());
    let args = [&["train", "--out", &stopped], &options[..]].concat();
    let rest = crate::common::stopped(&args, 5, rustix::process::Signal::USR1);
    assert!(rest.iter().any(|line| line.contains("interrupted")), "{rest:?}");
    succeeds(&["train", "--resume", &stopped]);
    assert!(bytes(Path::new(&stopped)) == bytes(Path::new(&whole)));
}

#[test]
fn what_is_wrong_with_the_data_of_one_replica_is_told_once() {
    let folder = pictures("replicas-bad");
    folder.write("data/disc/7.png", "no picture");
    let data = folder.path("data");
    let args = ["train", "--data", &data, "--model", "resnet18", "--input", "32x32x3", "--batch", "4", "--epochs", "2"];
    let output = memfit(&[&args[..], &["--replicas", "2", "--out", &folder.path("run")]].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert_eq!(message.matches("7.png").count(), 1, "{message}");
}

#[test]
fn a_limit_of_the_process_is_shared_out_and_what_is_proposed_is_enough() {
    let folder = Scratch::new("replicas-total");
    let train = |total: &str, name: &str| {
        let out = folder.path(name);
        events(&["train", "--replicas", "2", "--steps", "2", "--threads", "2", "--total", total, "--out", &out])
    };
    // The program itself takes more on one machine than on another.
    let (mut code, mut told) = (3, Vec::new());
    for mib in 8..80 {
        (code, told) = train(&format!("{mib}MiB"), "refused");
        let message = told.last().and_then(|e| e["message"].as_str()).unwrap_or_default();
        if code == 0 || message.contains("a replica's share") {
            break;
        }
    }
    assert_eq!(code, 3, "{told:?}");
    let fixes = told.last().expect("an error")["certificate"]["fixes"].as_array().cloned().unwrap_or_default();
    let changes: Vec<String> = fixes.iter().filter_map(|f| Some(f["change"].as_str()?.to_string())).collect();
    let total = changes.iter().find_map(|change| change.strip_prefix("--total ")).expect("a total");
    let (code, told) = train(total, "enough");
    assert_eq!(code, 0, "{total}: {told:?}");
    let (code, told) = train("40MiB", "plenty");
    assert_eq!(code, 0, "{told:?}");
}

#[test]
fn replicas_start_from_the_same_weights_as_one() {
    let folder = Scratch::new("replicas-weights");
    let first = train(&folder, "first", &[]);
    let weights = first.join("weights.safetensors").display().to_string();
    let options = ["--weights", &weights, "--lanes", "4"];
    let alone = train(&folder, "1", &options);
    let new = train(&folder, "new", &options[2..]);
    assert!(bytes(&alone) != bytes(&new), "they are of use");
    for more in [&["--replicas", "3"][..], &["--replicas", "2", "--shard", "optimizer"]] {
        let run = train(&folder, &more[1..].join("-"), &[&options[..], more].concat());
        assert!(bytes(&run) == bytes(&alone), "{more:?}");
    }
}

#[test]
fn what_is_left_out_of_an_epoch_is_said_with_replicas_and_without() {
    let folder = Scratch::new("replicas-left-out");
    for replicas in ["1", "3"] {
        let out = folder.path(replicas);
        let args = ["train", "--steps", "1", "--lanes", "4", "--replicas", replicas, "--out", &out];
        let text = String::from_utf8(memfit(&args).stdout).expect("text");
        assert!(text.contains("1438  samples, 44 batches of 32; 30 left out an epoch\n"), "{text}");
    }
    let args = ["train", "--steps", "1", "--batch", "2", "--out", &folder.path("even")];
    let text = String::from_utf8(memfit(&args).stdout).expect("text");
    assert!(text.contains("1438  samples, 719 batches of 2\n"), "{text}");
}

#[test]
fn a_cache_in_a_file_is_made_once_and_changes_nothing() {
    let folder = Scratch::new("replicas-cache");
    let expected = train(&folder, "none", &["--lanes", "4"]);
    let cache = folder.path("digits.cache");
    let file = folder.path("cache.toml");
    std::fs::write(&file, format!("[data]\ncache = {cache:?}\n")).expect("a run file");
    let run = |name: &str, replicas: &str| {
        let out = folder.path(name);
        let args = ["train", &file, "--steps", "12", "--lanes", "4", "--replicas", replicas, "--out", &out];
        let (code, told) = events(&args);
        assert_eq!(code, 0);
        assert!(bytes(Path::new(&out)) == bytes(&expected), "{name}");
        let made = told.iter().find(|event| event["event"] == "caching").map(|event| event["samples"].as_u64());
        (made.flatten(), std::fs::read(&cache).ok())
    };
    let (made, content) = run("first", "3");
    assert_eq!(made, Some(1438));
    assert!(content.is_some(), "a dozen steps read no third of the samples");
    // Any number of replicas reads it.
    for (name, replicas) in [("again", "2"), ("alone", "1")] {
        assert!(run(name, replicas) == (None, content.clone()), "{name}");
    }
}
