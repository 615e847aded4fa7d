//! `memfit profile`, `memfit plan --html` and `memfit history` as a person meets them: what is written, that it agrees with the
//! plan, and what is said where something cannot be read.

use std::path::Path;

use memfit::profile::Profile;
use serde_json::Value;

use crate::common::{Scratch, check_error, event, events, memfit, stdout};

/// A small model with data of its own.
const DIGITS: [&str; 3] = ["profile", "--threads", "2"];

fn read(folder: &str) -> Profile {
    let text = std::fs::read_to_string(Path::new(folder).join("profile.json")).expect("a profile");
    Profile::from_json(&text).expect("a profile")
}

#[test]
fn a_profile_is_measured_and_written_in_every_form() {
    let scratch = Scratch::new("profile");
    let out = scratch.path("out");
    let told = event(&[&DIGITS[..], &["--steps", "5", "--budget", "2MiB", "--out", &out]].concat());
    assert_eq!((told["event"].as_str(), told["steps"].as_u64()), (Some("profile"), Some(5)));
    assert_eq!(told["peak"].as_array().map(Vec::len), Some(10));
    let profile = read(&out);
    let measured = profile.measured.as_ref().expect("steps ran");
    assert_eq!((measured.steps.len(), measured.dropped), (5, 0));
    let kernels: u64 = measured.kernels.iter().flatten().map(|k| k.count).sum();
    assert_eq!(kernels as usize, 5 * profile.memory.kernels);
    assert!(profile.pipeline.is_some() && !profile.frontier.is_empty());
    // Two segments, in whole pages.
    if let Some(pages) = measured.steps[4].arena_resident_bytes {
        assert!(pages <= profile.memory.arena_bytes + (2 << 16), "{pages}");
    }
    let trace: Value = serde_json::from_str(&text(&out, "trace.json")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 5));
    let report = text(&out, "report.html");
    assert!(report.len() < 1_000_000 && report.contains("digits"));
    assert!(!report.contains(&scratch.path("")), "no path is in it");
    assert!(text(&out, "summary.md").contains("digits"));
    let logs: Vec<String> = names(&Path::new(&out).join("tensorboard"));
    assert!(logs.iter().any(|n| n.starts_with("events.out.tfevents.")) && logs.contains(&"plugins".into()), "{logs:?}");
    // Nothing is replaced; of TensorBoard's files there may be more in a folder.
    let again = [&DIGITS[..], &["--steps", "1", "--out", &out, "--with-paths"]].concat();
    check_error(&again, 2, &["--out", "holds a profile already"]);
    std::fs::remove_file(Path::new(&out).join("profile.json")).expect("it is there");
    event(&again);
    assert_eq!(read(&out).measured.expect("a step ran").steps.len(), 1);
    assert_eq!(names(&Path::new(&out).join("tensorboard/plugins/profile")).len(), 2);
}

fn text(folder: &str, name: &str) -> String {
    std::fs::read_to_string(Path::new(folder).join(name)).expect("it was written")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_model_without_data_is_measured_on_made_up_numbers_and_two_profiles_are_compared() {
    let scratch = Scratch::new("compare");
    let [fast, small] = ["fast", "small"].map(|name| scratch.path(name));
    let model = ["profile", "--model", "mobilenet_v3_small", "--input", "32x32x3", "--batch", "4", "--steps", "2"];
    let told = event(&[&model[..], &["--out", &fast]].concat());
    let least = told["memory"]["lower_bound_bytes"].as_u64().expect("a bound");
    let text = stdout(&memfit(&[&model[..], &["--out", &small, "--optimizer", "sgd"]].concat()));
    for part in ["the peak is at", "the slowest of", "2 steps", "written to"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let pages = scratch.path("pages");
    let diff = event(&["profile", "--compare", &fast, &small, "--out", &pages]);
    let by_layer: i64 =
        diff["layers"].as_array().expect("layers").iter().map(|l| number(l, "after") - number(l, "before")).sum();
    let peak = diff["numbers"].as_array().expect("numbers").iter().find(|n| n["what"] == "peak_bytes").expect("a peak");
    assert_eq!(by_layer, number(peak, "after") - number(peak, "before"));
    assert!(by_layer < 0 && number(peak, "before") as u64 >= least);
    assert_eq!(diff["times"], "measured");
    for name in ["compare.html", "compare.md", "compare.json"] {
        assert!(Path::new(&pages).join(name).is_file(), "{name}");
    }
    // A profile and a plan of the same: times are those that were predicted.
    let plan = scratch.path("plan.json");
    event(&["plan", "--model", "mobilenet_v3_small", "--input", "32x32x3", "--batch", "4", "--save", &plan]);
    assert_eq!(event(&["profile", "--compare", &fast, &plan])["times"], "predicted");
    let diffs = [["plan", "--diff"], ["profile", "--compare"]];
    let [one, other] = diffs.map(|[command, option]| stdout(&memfit(&[command, option, &plan, &plan])));
    assert_eq!(one, other);
}

fn number(value: &Value, key: &str) -> i64 {
    value[key].as_i64().expect("a number")
}

#[test]
fn a_plan_is_a_report_without_running_anything() {
    let scratch = Scratch::new("html");
    let page = scratch.path("plan.html");
    event(&["plan", "--model", "gpt", "--batch", "2", "--html", &page]);
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains("gpt") && text.len() < 1_000_000);
    check_error(&["plan", "--html", "/nowhere/p.html"], 2, &["--html /nowhere/p.html", "folder"]);
}

#[test]
fn a_profile_of_steps_whose_loss_is_no_number_can_be_read() {
    let scratch = Scratch::new("diverged-profile");
    let out = scratch.path("out");
    let file = scratch.write("run.toml", "[train]\noptimizer = \"sgd\"\nlr = 1e30\n");
    event(&[&DIGITS[..], &[&file, "--steps", "4", "--out", &out]].concat());
    let steps = read(&out).measured.expect("steps").steps;
    assert!(steps.len() == 4 && steps.iter().any(|s| s.loss.is_nan()), "{steps:?}");
    event(&["profile", "--compare", &out, &out]);
}

#[test]
fn what_cannot_be_profiled_or_compared_is_said_in_a_sentence() {
    let scratch = Scratch::new("bad-profiles");
    let (a, b) = (scratch.path("a.json"), scratch.path("b.json"));
    event(&["plan", "--save", &a]);
    event(&["plan", "--model", "mlp", "--save", &b]);
    check_error(&["profile", "--compare", &a, &b], 2, &["digits", "mlp", "only profiles of one model"]);
    let out = scratch.path("out");
    event(&[&DIGITS[..], &["--steps", "1", "--out", &out]].concat());
    let whole = text(&out, "profile.json");
    let cut = scratch.write("cut.json", &whole[..whole.len() / 2]);
    check_error(&["profile", "--compare", &cut, &a], 4, &["cut.json", "no profile"]);
    let future = scratch.write("future.json", whole.replace("\"version\":1", "\"version\":7"));
    check_error(&["profile", "--compare", &future, &a], 4, &["future.json", "version 7", "version 1"]);
    let forged = scratch.write("forged.json", whole.replacen("\"first\":0", "\"first\":99999", 1));
    check_error(&["profile", "--compare", &forged, &a], 4, &["forged.json", "contradicts itself"]);
    let neither = scratch.write("neither.json", "{}");
    check_error(&["profile", "--compare", &neither, &a], 4, &["neither.json", "neither a profile nor a plan"]);
    check_error(&["profile", "--steps", "0"], 2, &["--steps 0", "--html"]);
    check_error(&["profile", "--out", "/nowhere/at/all"], 2, &["--out /nowhere/at/all"]);
    check_error(&["profile", "--out", &a], 2, &["--out", "folder"]);
    check_error(&["profile", "--steps", "99999999999"], 2, &["--steps 99999999999", "at most 65536"]);
    check_error(&["profile", "--budget", "100KiB", "--out", &scratch.path("none")], 3, &["no plan can fit"]);
    // In memory that has no room for it, what the machine can do is not measured.
    let small = scratch.path("small");
    let output = memfit(&[&DIGITS[..], &["--steps", "1", "--logical", "100MiB", "--out", &small]].concat());
    assert!(stdout(&output).contains("what it can do at most was not measured: "), "{}", stdout(&output));
    check_error(&["profile", "--compare", &a], 2, &["--compare"]);
}

#[test]
fn a_run_keeps_its_history_which_is_drawn_and_profiled() {
    let scratch = Scratch::new("history");
    let (one, other) = (scratch.path("one"), scratch.path("other"));
    let train = |out: &str, more: &[&str]| {
        let words = ["train", "--threads", "2", "--steps", "60", "--out", out];
        let (code, told) = events(&[&words[..], more].concat());
        assert_eq!(code, 0, "{told:?}");
        told
    };
    let told = train(&one, &["--histograms", "true"]);
    train(&other, &["--lr", "0.01", "--tensorboard", "false"]);
    // The history has what was told while it ran.
    let losses = |told: &[Value]| -> Vec<f32> {
        told.iter().filter(|e| e["event"] == "step").map(|e| e["loss"].as_f64().expect("a loss") as f32).collect()
    };
    let told_losses = losses(&told);
    let drawn = event(&["history", &one]);
    let kept: Vec<f32> = drawn["curves"]["loss"]
        .as_array()
        .expect("a curve")
        .iter()
        .map(|p| p[1].as_f64().expect("a loss") as f32)
        .collect();
    assert_eq!((kept.len(), &kept), (60, &told_losses));
    // It goes on when the run does, and nothing is there twice.
    let (code, more) = events(&["train", "--resume", &one, "--steps", "70"]);
    assert_eq!(code, 0, "{more:?}");
    let steps = |folder: &str| -> Vec<u64> {
        let drawn = event(&["history", folder]);
        drawn["curves"]["loss"].as_array().expect("a curve").iter().map(|p| p[0].as_u64().expect("a step")).collect()
    };
    assert_eq!(steps(&one), (1..=70).collect::<Vec<_>>());
    let files = |folder: &str| names(Path::new(folder)).iter().filter(|n| n.contains("tfevents")).count();
    assert_eq!((files(&one), files(&other)), (2, 0));
    assert_eq!(first_steps(Path::new(&one)), [1, 61], "TensorBoard forgets no step that was saved");
    let page = stdout(&memfit(&["history", &one, &other]));
    for part in [one.as_str(), &other, "loss: at the end", "test accuracy", "step └1"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let picture = scratch.path("curves.svg");
    stdout(&memfit(&["history", &one, &other, "--svg", &picture]));
    assert!(std::fs::read_to_string(&picture).expect("a picture").matches("<polyline").count() > 8);
    // A finished run as a profile, with its curves and without running anything.
    let out = scratch.path("profile");
    event(&["profile", &one, "--out", &out]);
    let profile = read(&out);
    assert!(profile.measured.is_none() && profile.curves.iter().any(|c| c.name == "test accuracy"));
    assert!(profile.curves.iter().all(|c| !c.name.contains("IoU") && !c.name.contains("perplexity")), "it classifies");
    let out = scratch.path("measured");
    event(&["profile", &one, "--steps", "2", "--threads", "2", "--out", &out]);
    assert!(read(&out).measured.is_some() && read(&out).frontier.is_empty(), "its plan is known: nothing is surveyed");
    // As when it is resumed: with other threads, but in no less memory than its plan needs.
    event(&["profile", &one, "--steps", "1", "--threads", "1", "--out", &scratch.path("alone")]);
    let out = scratch.path("refused");
    check_error(
        &["profile", &one, "--steps", "1", "--threads", "2", "--budget", "64KiB", "--out", &out],
        3,
        &["64.0 KiB"],
    );
    check_error(&["history", &one, "--curve", "speed"], 2, &["\"speed\"", "samples/s"]);
    check_error(&["history", &scratch.path("nowhere")], 2, &["nowhere is not the folder of a run"]);
    check_error(&["profile", &one, "--budget", "1MiB", "--out", &out], 2, &["--steps"]);
    // Events that are somebody else's stay as they are.
    let events = Path::new(&one).join("events.jsonl");
    std::fs::write(&events, "my notes\n").expect("a file");
    check_error(&["train", "--resume", &one, "--steps", "71"], 4, &["events.jsonl", "line 1 is not one"]);
    assert_eq!(std::fs::read_to_string(&events).expect("a file"), "my notes\n");
    std::fs::write(Path::new(&one).join("history.csv"), "step,1,1\n").expect("a file");
    check_error(&["history", &one], 4, &["history.csv", "line 1"]);
}

/// From which step on each event file of a folder is what counts: the step of its second record, which follows on the time.
fn first_steps(folder: &Path) -> Vec<u8> {
    let mut files = names(folder);
    files.retain(|n| n.contains("tfevents"));
    files.sort();
    let first_step = |name: &String| {
        let bytes = std::fs::read(folder.join(name)).expect("an event file");
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("a length")) as usize;
        // A record has its length and a sum before it, and a sum after it.
        let second = &bytes[12 + length + 4 + 12..];
        assert_eq!((second[0], second[9]), (0x09, 0x10), "a time, then a step");
        second[10]
    };
    files.iter().map(first_step).collect()
}
