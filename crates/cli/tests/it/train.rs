//! `memfit train` as a person meets it: it learns, stops when asked, goes on to the same bits, and leaves a folder that can
//! be judged and asked.

use crate::common;

use crate::draw;
use crate::files::{Pixels, write_png};

#[cfg(unix)]
use common::stopped;
use common::{Scratch, check_error, event, events, memfit, stdout};
use serde_json::Value;

fn last<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().rfind(|e| e["event"] == name).unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn without_arguments_the_planner_has_to_work_and_the_digits_are_learnt() {
    let scratch = Scratch::new("default");
    let (code, events) = events(&["train", "--out", &scratch.path("run")]);
    assert_eq!(code, 0);
    let plan = &events[0];
    let bytes = |key: &str| plan[key].as_u64().unwrap_or_else(|| panic!("{key} is a number"));
    assert!(bytes("budget_bytes") < bytes("free_tools_bytes"));
    assert!(bytes("arena_bytes") <= bytes("budget_bytes"));
    assert!(bytes("recomputed_ops") > 0, "{plan}");
    let done = last(&events, "done");
    assert!(done["test_accuracy"].as_f64().expect("a number") >= 0.975, "{done}");
    assert_eq!(done["run_dir"], scratch.path("run").as_str());
    // The same model from its folder: the best checkpoint, so at least as good.
    let judged = event(&["eval", &scratch.path("run")]);
    assert!(judged["scores"]["accuracy"].as_f64() >= done["test_accuracy"].as_f64(), "{judged}");
    // Which is what the end told.
    assert_eq!(done["best"]["metric"], "accuracy");
    assert_eq!((&done["best"]["value"], &done["best"]["step"]), (&judged["scores"]["accuracy"], &judged["step"]));
    let told = stdout(&memfit(&["train", "--resume", &scratch.path("run")]));
    let accuracy = judged["scores"]["accuracy"].as_f64().expect("a number") * 100.0;
    let best = format!("best: accuracy {accuracy:.2} % at step {}, in weights.safetensors", judged["step"]);
    assert!(told.contains(&best), "{told}");
}

/// What a checkpoint says.
fn checkpoint(scratch: &Scratch, path: &str) -> Value {
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
    let error: Value = serde_json::from_str(rest.last().expect("it says something")).expect("it is JSON");
    assert_eq!((&error["event"], &error["kind"]), (&"error".into(), &"interrupted".into()));
    let stopped: u64 = rest.iter().filter(|l| l.contains("\"event\":\"step\"")).count() as u64 + 20;
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
fn the_folder_of_a_run_takes_nothing_from_anybody() {
    let scratch = Scratch::new("foreign");
    for name in ["run.toml", "classes.txt", "weights.safetensors", "step-00000001-0123456789abcdef.safetensors"] {
        let file = scratch.write(&format!("with-{name}/{name}"), "mine");
        let folder = scratch.path(&format!("with-{name}"));
        for _ in 0..2 {
            check_error(&["train", "--steps", "1", "--out", &folder], 2, &[name, "another folder", "--out"]);
        }
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "mine");
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1);
    }
    check_error(&["train", "--steps", "1", "--out", &scratch.write("file", "mine")], 2, &["is a file", "--out"]);
    // What a run never writes is nothing to it.
    let others = ["notes.tmp", "step-1.safetensors", "photos.toml", "run.toml.tmp", "step-best.safetensors"];
    let files = others.map(|name| scratch.write(&format!("other/{name}"), "mine"));
    assert!(memfit(&["train", "--steps", "1", "--out", &scratch.path("other")]).status.success());
    assert!(memfit(&["train", "--steps", "2", "--resume", &scratch.path("other")]).status.success());
    files.iter().for_each(|f| assert_eq!(std::fs::read_to_string(f).expect(f), "mine"));
}

/// A folder of pictures, a folder of it for each class.
fn pictures(scratch: &Scratch, name: &str, classes: &[&str], each: usize) {
    for (class, n) in classes.iter().flat_map(|c| (0..each).map(move |n| (c, n))) {
        let (image, _) = draw::picture(draw::Shape::from_name("disc").expect("a shape"), 16, &format!("{class}{n}"));
        let path = scratch.write(&format!("{name}/{class}/{n}.png"), "");
        draw::write_png(std::path::Path::new(&path), &image, 16, 3).expect("a picture");
    }
}

#[test]
fn a_run_goes_on_with_the_data_that_it_began_with() {
    let scratch = Scratch::new("same");
    pictures(&scratch, "data", &["cat", "dog"], 10);
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    let args = ["--model", "digits", "--input", "8x8x3", "--data", &data, "--batch", "4", "--steps", "2"];
    let output = memfit(&[&["train", "--out", &run], &args[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let resume = |steps: &str| events(&["train", "--resume", &run, "--steps", steps]);
    let changed = |events: &[Value]| events.iter().any(|e| e["event"] == "data_changed");
    let (code, events) = resume("3");
    assert!(code == 0 && !changed(&events), "{events:?}");
    assert_eq!(event(&["eval", &run])["data_changed"], false);
    // The same names, other files.
    let mut bytes = std::fs::read(scratch.path("data/cat/0.png")).expect("a picture");
    bytes.extend([0; 4]);
    scratch.write("data/cat/0.png", bytes);
    let (code, events) = resume("4");
    assert!(code == 0 && changed(&events), "{events:?}");
    pictures(&scratch, "data", &["dog"], 20);
    assert_eq!(event(&["eval", &run])["data_changed"], true);
    let weights = format!("--weights {}", scratch.path("run/weights.safetensors"));
    check_error(&["train", "--resume", &run, "--steps", "5"], 4, &["samples", "began with", "bring back", &weights]);
    // A run that was stopped before its end has no weights alone.
    std::fs::remove_file(scratch.path("run/weights.safetensors")).expect("it is there");
    let tensors = checkpoint(&scratch, "run/best.json")["tensors"]["name"].as_str().expect("a name").to_string();
    let weights = format!("--weights {}", scratch.path(&format!("run/{tensors}")));
    check_error(&["train", "--resume", &run, "--steps", "5"], 4, &[&weights]);
    pictures(&scratch, "data", &["emu"], 1);
    check_error(&["train", "--resume", &run, "--steps", "5"], 4, &["classes", "\"emu\" is new", "another run"]);
    check_error(&["eval", &run], 4, &["classes", "\"emu\" is new"]);
}

#[test]
fn a_run_goes_on_within_what_its_file_says_now() {
    let scratch = Scratch::new("edited");
    let run = scratch.path("run");
    assert_eq!(events(&["train", "--steps", "1", "--out", &run]).0, 0);
    let text = std::fs::read_to_string(scratch.path("run/run.toml")).expect("its file");
    let line = text.lines().find(|line| line.starts_with("budget")).expect("a budget").to_string();
    scratch.write("run/run.toml", text.replace(&line, "budget = \"1MiB\""));
    check_error(&["train", "--resume", &run, "--steps", "2"], 3, &["more than the budget of 1.00 MiB"]);
}

#[test]
fn data_are_the_same_however_their_path_is_spelt() {
    let scratch = Scratch::new("spelt");
    pictures(&scratch, "data", &["cat", "dog"], 10);
    scratch.write(
        "run.toml",
        "[model]\nname = \"digits\"\ninput = [8, 8, 3]\n[data]\ntrain = \"data\"\ncache = \"kept.cache\"\n\
         [train]\nbatch = 4\nsteps = 8\nout = \"run\"\n",
    );
    let output = common::command(&["train", "run.toml"]).current_dir(&scratch.0).output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = || std::fs::metadata(scratch.path("kept.cache")).and_then(|m| m.modified()).expect("a cache");
    let before = written();
    let (code, events) = events(&["train", "--resume", &scratch.path("run"), "--steps", "12"]);
    assert!(code == 0 && !events.iter().any(|e| e["event"] == "data_changed"), "{events:?}");
    assert_eq!(written(), before, "the cache is not made anew");
}

#[test]
fn a_resumed_run_tells_what_it_made_and_makes_no_less_than_was_made() {
    let scratch = Scratch::new("made");
    let run = scratch.path("run");
    let first = memfit(&["train", "--steps", "3", "--threads", "2", "--out", &run]);
    assert!(stdout(&first).contains("\n3 steps in "), "{}", stdout(&first));
    let resumed = memfit(&["train", "--resume", &run, "--steps", "4", "--threads", "2"]);
    let text = stdout(&resumed);
    assert!(text.contains("\n1 step in ") && text.contains(" s, 4 in all: "), "{text}");
    let (code, events) = events(&["train", "--resume", &run, "--steps", "6"]);
    let done = last(&events, "done");
    assert_eq!((code, &done["steps"], &done["steps_made"]), (0, &6.into(), &2.into()));
    check_error(&["train", "--resume", &run, "--steps", "4"], 2, &["--steps 4", "6 steps", "give more"]);
    let text = std::fs::read_to_string(scratch.path("run/run.toml")).expect("a run file");
    assert!(text.contains("steps = 6") && text.contains("threads = 2"), "{text}");
    assert!(stdout(&memfit(&["train", "--resume", &run])).contains("at its end, step 6"));
}

#[test]
fn a_run_that_cannot_begin_says_so_and_not_that_it_could_go_on() {
    let scratch = Scratch::new("begin");
    let out = scratch.write("file", "mine");
    let folder = format!("{out}/run");
    check_error(&["train", "--steps", "1", "--out", &folder], 2, &["file", "--out"]);
    // A folder of the system, in which nobody can make one.
    let output = memfit(&["train", "--steps", "1", "--out", "/proc/self/run"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("cannot begin") && message.contains("--out") && !message.contains("resume"), "{message}");
}

#[test]
fn what_a_resumption_changes_holds_for_the_next() {
    let scratch = Scratch::new("changed");
    let run = scratch.path("run");
    assert!(memfit(&["train", "--steps", "3", "--out", &run]).status.success());
    assert!(memfit(&["train", "--resume", &run, "--steps", "5", "--lr", "0.5"]).status.success());
    let text = std::fs::read_to_string(scratch.path("run/run.toml")).expect("a run file");
    assert!(text.contains("steps = 5") && text.contains("lr = 0.5"), "{text}");
    let (code, events) = events(&["train", "--resume", &run, "--steps", "7", "--host-budget", "64MiB"]);
    let rates: Vec<f64> = events.iter().filter(|e| e["event"] == "step").filter_map(|e| e["lr"].as_f64()).collect();
    assert_eq!((code, rates), (0, vec![0.5, 0.5]));
    let text = std::fs::read_to_string(scratch.path("run/run.toml")).expect("a run file");
    assert!(text.contains("host_budget = \"64MiB\""), "{text}");
    // A rate at which nothing is a number any more: what is advised is what --resume takes.
    check_error(&["train", "--resume", &run, "--steps", "60", "--lr", "1e30"], 4, &["resume it with a smaller --lr"]);
}

#[test]
fn epochs_and_steps_take_each_others_place() {
    let scratch = Scratch::new("length");
    let (by_steps, by_epochs) = ("[train]\nsteps = 3\nbatch = 256", "[train]\nepochs = 9\nbatch = 256");
    for (text, typed, steps) in [(by_steps, ["--epochs", "1"], 5), (by_epochs, ["--steps", "2"], 2)] {
        let file = scratch.write("run.toml", text);
        let run = scratch.path(typed[0]);
        let (code, first) = events(&[&["train", &file, "--out", &run], &typed[..]].concat());
        assert_eq!((code, &last(&first, "done")["steps"]), (0, &steps.into()), "{text}");
        // The same of a run that goes on.
        let (code, second) = events(&["train", "--resume", &run, "--steps", "6"]);
        assert_eq!((code, &last(&second, "done")["steps"]), (0, &6.into()));
        let (code, third) = events(&["train", "--resume", &run, "--epochs", "2"]);
        assert_eq!((code, &last(&third, "done")["steps"]), (0, &10.into()));
    }
    check_error(&["train", "--epochs", "1", "--steps", "1"], 2, &["--epochs", "--steps"]);
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
fn a_run_that_failed_at_once_can_be_started_again() {
    let scratch = Scratch::new("again");
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    pictures(&scratch, "data", &["cat", "dog"], 4);
    let good = std::fs::read(scratch.path("data/cat/0.png")).expect("a picture");
    scratch.write("data/cat/0.png", &good[..good.len() / 2]);
    let file = scratch.write("run.toml", format!("[data]\ntrain = {data:?}\nhold_out = 0\n"));
    let args = ["train", &file, "--input", "8x8x3", "--batch", "8", "--steps", "2", "--out", &run];
    check_error(&args, 4, &["0.png", "--skip-bad"]);
    scratch.write("data/cat/0.png", &good);
    // Said otherwise, too: nothing is lost.
    let other = [&args.map(|a| if a == "2" { "3" } else { a })[..], &["--skip-bad", "--host-budget", "64MiB"]].concat();
    let output = memfit(&other);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_error(&args, 2, &["holds a run already", &format!("`memfit train --resume {run}`")]);
}

#[test]
fn weights_that_are_not_there_are_found_before_a_folder_is_made() {
    let scratch = Scratch::new("foreign-weights");
    let out = scratch.path("run");
    check_error(&["train", "--weights", &scratch.path("none.safetensors"), "--out", &out], 4, &["none.safetensors"]);
    let mlp = scratch.path("mlp");
    let rows: String = (0..8).map(|i| format!("{i},1,{}\n", i % 2)).collect();
    let data = scratch.write("rows.csv", format!("a,b,label\n{rows}"));
    let args = ["--model", "mlp", "--classes", "2", "--batch", "2", "--steps", "1", "--data", &data, "--out", &mlp];
    let output = memfit(&[&["train"], &args[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let other = scratch.path("mlp/weights.safetensors");
    let names = ["has no weight of this model", "conv1/conv/weight", "in the file there are"];
    check_error(&["train", "--weights", &other, "--out", &out], 2, &names);
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn evaluation_keeps_to_the_memory_of_the_run() {
    let scratch = Scratch::new("budget");
    let run = scratch.path("run");
    let args = ["train", "--batch", "256", "--micro-batch", "8", "--budget", "2MiB", "--steps", "1", "--out", &run];
    let output = memfit(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let judged = event(&["eval", &run]);
    assert_eq!(judged["batch"], 8);
    assert!(judged["arena_bytes"].as_u64().is_some_and(|bytes| bytes <= 2 << 20), "{judged}");
    let (code, told) = events(&["eval", &run, "--batch", "4096"]);
    let fixes = told[0]["certificate"]["fixes"].as_array().expect("fixes");
    let batch = fixes.iter().find_map(|f| f["change"].as_str()?.strip_prefix("--batch ")).expect("a smaller batch");
    assert_eq!((code, event(&["eval", &run, "--batch", batch])["batch"].to_string()), (3, batch.to_string()));
    check_error(&["eval", &format!("{run}/weights.safetensors")], 2, &["weights.safetensors is no checkpoint"]);
}

#[test]
fn epochs_count_from_one_and_steps_from_none() {
    let scratch = Scratch::new("counting");
    let run = scratch.path("run");
    let (code, events) = events(&["train", "--epochs", "2", "--batch", "512", "--out", &run]);
    let all = |event: &str, key: &str| -> Vec<u64> {
        events.iter().filter(|e| e["event"] == event).filter_map(|e| e[key].as_u64()).collect()
    };
    assert_eq!((code, all("epoch", "epoch")), (0, vec![1, 2]));
    assert_eq!((all("step", "step"), all("step", "epoch")), (vec![0, 1, 2, 3], vec![1, 1, 2, 2]));
    assert_eq!(all("eval", "step"), [2, 4]);
    check_error(&["predict", &run, &scratch.path("run")], 2, &["run is a folder", "name the images in it"]);
}

/// What is said of one thing as if there were several.
fn false_plurals(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plural = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':', '.', ')']);
        word.ends_with('s') && !word.ends_with("ss") && word.len() > 2
    };
    words.windows(2).filter(|w| w[0].trim_start_matches('(') == "1" && plural(w[1])).map(|w| w.join(" ")).collect()
}

#[test]
fn one_of_a_thing_is_told_as_one() {
    let scratch = Scratch::new("one");
    pictures(&scratch, "data", &["cat"], 1);
    pictures(&scratch, "data", &["dog"], 4);
    pictures(&scratch, "one", &["cat"], 1);
    scratch.write("torn/cat/0.png", "torn");
    pictures(&scratch, "torn", &["dog"], 1);
    let file = scratch.write(
        "run.toml",
        "[model]\nname = \"digits\"\ninput = [8, 8, 3]\n[data]\ntrain = \"data\"\ntest = \"torn\"\nskip_bad = true\n\
         [train]\nbatch = 4\nsteps = 1\npatience = 1\nmicro_batch = 1\n",
    );
    let (run, one) = (scratch.path("run"), scratch.path("one"));
    let buffers = scratch.write("one.csv", "id,lower,upper,size\n0,0,1,1\n");
    let mut all = String::new();
    for args in [
        &["train", &file, "--threads", "1", "--out", &run][..],
        &["train", "--resume", &run, "--steps", "2"],
        &["eval", &run, "--data", &one],
        &["plan", &file, "--threads", "1"],
        &["plan", &file, "--threads", "1", "--frontier"],
        &["pack", &buffers],
    ] {
        let output = memfit(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = stdout(&output);
        assert_eq!(false_plurals(&text), [""; 0], "{args:?}: {text}");
        all += &text;
    }
    for told in [
        "1 thread",
        "1 sample of the test set",
        "1 step in",
        "1 sample, weights",
        "1 buffer",
        "1 byte;",
        "4 of 1 sample;",
    ] {
        assert!(all.contains(told), "{told}: {all}");
    }
    let large = ["train", "--model", "digits", "--input", "8x8x3", "--data", &one, "--batch", "9", "--out", &run];
    check_error(&large, 4, &["of its 1 sample"]);
    assert_eq!(false_plurals("1 steps in 1.0 s, (1 samples) 11 ops, step 1, as"), ["1 steps", "(1 samples)"]);
}

#[test]
fn run_files_are_checked_key_by_key() {
    let scratch = Scratch::new("files");
    for (text, code, expected) in [
        ("[train]\nbacth = 3", 2, &["run.toml", "bacth", "did you mean \"batch\""][..]),
        ("[memory]\nbudget = \"12 parsecs\"", 2, &["run.toml", "memory.budget", "12 parsecs"]),
        ("[train]\nbatch = \"many\"", 2, &["train.batch", "whole number"]),
        ("[model]\nname = \"resnet18\"", 2, &["resnet18 needs data"]),
        ("[model]\nname = \"resnet18\"\n[data]\ntrain = \"nowhere\"", 4, &["nowhere", "no such file or folder"]),
        ("[data]\naugment = [\"flop\"]", 2, &["data.augment is for images"]),
        ("[model]\nfreeze = [\"layer9\"]", 2, &["\"layer9\"", "conv1, conv2, conv3, fc"]),
        ("[model]\nfreeze = [\"*\"]", 2, &["every parameter is frozen"]),
        ("[train]\nmonitor = \"charm\"", 2, &["charm", "accuracy"]),
        ("[memory]\nbudget = \"1KiB\"", 3, &["no plan can fit"]),
        ("[memory]\nhost_budget = 100", 3, &["host budget of 100 B is too small", "bytes); raise --host-budget"]),
        ("[train]\nepochs = 3\nsteps = 4", 2, &["train.epochs and train.steps both say how long"]),
        ("[train]\ndecay = 0.5", 2, &["train.decay is for train.schedule = \"step\" or \"cosine\"", "is constant"]),
        (
            "[train]\nschedule = \"constant\"\ndecay_every = 3",
            2,
            &["train.decay_every is for", "\"step\"", "leave it out"],
        ),
        ("[train]\nschedule = \"cosine\"\ndecay_every = 3", 2, &["train.decay_every is for", "the schedule is cosine"]),
        ("not toml", 2, &["run.toml", "line 1"]),
    ] {
        let file = scratch.write("run.toml", text);
        check_error(&["train", &file, "--out", &scratch.path("run")], code, expected);
    }
    check_error(&["train", &scratch.path("absent.toml")], 2, &["absent.toml", "memfit init"]);
}

#[test]
fn init_writes_a_file_that_trains() {
    let scratch = Scratch::new("init");
    let file = scratch.path("digits.toml");
    assert!(memfit(&["init", &file]).status.success());
    check_error(&["init", &file], 2, &["is there already"]);
    let (code, events) = events(&["train", &file, "--epochs", "1", "--out", &scratch.path("run")]);
    assert_eq!((code, &events[0]["batch"]), (0, &32.into()));
    let plan = stdout(&memfit(&["plan", &file]));
    assert!(plan.starts_with("digits, batch 32"), "{plan}");
}

#[test]
fn frozen_layers_save_memory_and_stay_as_they_are() {
    let scratch = Scratch::new("frozen");
    let whole = event(&["plan"]);
    let frozen = event(&["plan", "--freeze", "conv1", "--freeze", "conv2"]);
    let bytes = |e: &Value, key: &str| e[key].as_u64().expect("a number");
    assert!(bytes(&frozen, "optimizer_bytes") < bytes(&whole, "optimizer_bytes"));
    assert!(bytes(&frozen, "keep_all_bytes") < bytes(&whole, "keep_all_bytes"));
    let saved = bytes(&whole, "free_tools_bytes") - bytes(&frozen, "free_tools_bytes");
    assert_eq!((bytes(&frozen, "frozen_saved_bytes"), bytes(&frozen, "frozen_parameters")), (saved, 6));
    let weights = |run: &str| std::fs::read(scratch.path(&format!("{run}/weights.safetensors"))).expect("weights");
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    assert!(memfit(&["train", "--steps", "20", "--out", &first]).status.success());
    let from = scratch.path("first/weights.safetensors");
    // A head for other classes starts anew; everything before it is frozen.
    let args = ["train", "--weights", &from, "--classes", "12", "--freeze", "conv*", "--steps", "20", "--out", &second];
    let (code, events) = events(&args);
    let taken = last(&events, "weights");
    assert_eq!((code, &taken["taken"], &taken["of"]), (0, &15.into(), &17.into()), "{taken}");
    assert_eq!(taken["missing"], serde_json::json!(["fc/weight", "fc/bias"]));
    let tensor = |file: &[u8], name: &str| -> Vec<u8> {
        let size = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
        let header: Value = serde_json::from_slice(&file[8..8 + size]).expect("a header");
        let range = &header[name]["data_offsets"];
        let at = |i: usize| 8 + size + range[i].as_u64().expect("an offset") as usize;
        file[at(0)..at(1)].to_vec()
    };
    let (before, after) = (weights("first"), weights("second"));
    for name in ["conv1/conv/weight", "conv1/bn/scale", "conv1/bn/mean", "conv3/bn/var"] {
        assert_eq!(tensor(&before, name), tensor(&after, name), "{name}");
    }
}

#[test]
fn init_proposes_a_model_that_reads_the_data_and_a_path_that_is_found() {
    let scratch = Scratch::new("propose");
    pictures(&scratch, "photos", &["cat", "dog"], 8);
    scratch.write("rows.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n9,0,0\n");
    scratch.write("words.txt", "so many words, so many letters ".repeat(30));
    std::fs::create_dir(scratch.path("sub")).expect("a folder");
    for (data, model, more) in [
        ("photos", "resnet18", &["--batch", "2", "--input", "32x32x3"][..]),
        ("rows.csv", "mlp", &["--batch", "2"]),
        ("words.txt", "gpt", &["--batch", "2"]),
    ] {
        let file = format!("sub/{model}.toml");
        let here = |args: &[&str]| common::command(args).current_dir(&scratch.0).output().expect("the binary starts");
        assert!(here(&["init", &file, "--data", data]).status.success());
        let output = here(&[&["plan", &file, "--json"], more].concat());
        let text = stdout(&output);
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        let plan = &events[0];
        assert_eq!((&plan["event"], &plan["model"]), (&"plan".into(), &model.into()), "{plan}");
    }
}

#[test]
fn a_model_that_does_something_else_is_refused_before_anything_is_made() {
    let scratch = Scratch::new("other");
    pictures(&scratch, "classes", &["cat", "dog"], 4);
    pictures(&scratch, "pairs", &["images"], 4);
    for image in std::fs::read_dir(scratch.path("pairs/images")).expect("a folder") {
        let name = image.expect("a file").file_name().to_string_lossy().into_owned();
        let mask = scratch.write(&format!("pairs/masks/{name}"), "");
        write_png(&mask, [2, 2], &Pixels::Grey(&[0, 255, 255, 0]));
    }
    scratch.write("words.txt", "so many words ".repeat(30));
    let out = scratch.path("run");
    for (model, data, more, expected) in [
        ("unet", "classes", None, &["unet segments images", "images", "--model resnet18"][..]),
        ("resnet18", "pairs", None, &["resnet18 classifies", "masks", "--model unet"]),
        ("unet", "pairs", Some("3"), &["1 class", "have 3", "leave out --classes"]),
        ("resnet18", "words.txt", None, &["text", "--model gpt"]),
        ("gpt", "classes", None, &["gpt generates text", "--model resnet18"]),
    ] {
        let data = scratch.path(data);
        let classes: Vec<&str> = more.into_iter().flat_map(|n| ["--classes", n]).collect();
        for command in [&["train", "--out", &out][..], &["plan"]] {
            check_error(&[command, &["--model", model, "--data", &data], &classes[..]].concat(), 2, expected);
        }
    }
    let file = scratch.write("a.toml", "[data]\ntrain = \"classes\"\naugment = [\"flop\"]\n[train]\nbatch = 2\n");
    check_error(&["train", &file, "--out", &out], 2, &["flop", "flip"]);
    assert!(!std::path::Path::new(&out).exists(), "nothing is made of a run that cannot start");
}
