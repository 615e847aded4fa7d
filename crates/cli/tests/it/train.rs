//! `memfit train` as a person meets it: it learns, goes on with its data, and leaves a folder that can be judged and asked.

use serde_json::Value;

use crate::checkpoints::checkpoint;
use crate::common::{Scratch, check_error, command, event, events, memfit, stdout};
use crate::draw;

/// The last event of this name.
pub fn last<'a>(events: &'a [Value], name: &str) -> &'a Value {
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

#[test]
fn a_log_has_lines_between_the_ends_of_epochs() {
    let scratch = Scratch::new("log");
    let output = memfit(&["train", "--epochs", "2", "--log-every", "1ms", "--out", &scratch.path("run")]);
    let (log, told) = (String::from_utf8_lossy(&output.stderr), stdout(&output));
    let steps: Vec<&str> = log.lines().filter(|line| line.starts_with("step ")).collect();
    assert!(steps.len() > 2 && steps.iter().all(|line| line.contains("/88  epoch ")), "{log}");
    assert!(steps.iter().any(|line| line.contains("  loss ") && line.ends_with(" left")), "{log}");
    // Of the results nothing is among them, nor the other way round.
    assert!(!told.contains("\nstep ") && told.contains("epoch   2"), "{told}");
    let (code, events) = events(&["train", "--steps", "3", "--log-every", "1ms", "--out", &scratch.path("json")]);
    assert_eq!((code, last(&events, "done")["steps"].as_u64()), (0, Some(3)));
    check_error(&["train", "--log-every", "soon"], 2, &["--log-every", "must be a time such as"]);
}

/// A folder of pictures, a folder of it for each class.
pub fn pictures(scratch: &Scratch, name: &str, classes: &[&str], each: usize) {
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
    let output = command(&["train", "run.toml"]).current_dir(&scratch.0).output().expect("the binary starts");
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
    check_error(&["predict", &run, &scratch.path("run")], 4, &["no JPEG or PNG"]);
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
fn a_learning_rate_is_looked_for_and_nothing_but_its_curve_is_kept() {
    let scratch = Scratch::new("find-lr");
    let out = scratch.path("curve");
    let search = ["train", "--find-lr", "--steps", "40", "--out", &out];
    let told = stdout(&memfit(&search));
    assert!(told.contains("the loss flew away at") && told.contains("try --lr 0.00"), "{told}");
    let mut left: Vec<_> = std::fs::read_dir(&out).expect("a folder").map(|f| f.expect("a file").file_name()).collect();
    left.sort();
    assert_eq!(left, ["lr.csv", "lr.svg"]);
    let table = std::fs::read_to_string(scratch.path("curve/lr.csv")).expect("a table");
    assert!(table.starts_with("step,lr,loss,smooth_loss\n0,1e-6,") && table.lines().count() > 20, "{table}");
    check_error(&search, 2, &["lr.csv is there already", "--out"]);
    // Whoever shares the work finds the same.
    let search = |replicas: &'static [&str]| {
        let args = ["train", "--find-lr=1e-4..0.1", "--steps", "12", "--lanes", "2"];
        let (code, events) = events(&[&args[..], replicas].concat());
        assert_eq!(code, 0);
        let trials: Vec<Value> = events.iter().filter(|e| e["event"] == "trial").map(|e| e["loss"].clone()).collect();
        assert_eq!(trials.len(), 12);
        (trials, last(&events, "find_lr")["suggested_lr"].clone())
    };
    assert_eq!(search(&[]), search(&["--replicas", "2"]));
    for (wrong, words) in [("--find-lr=3", "--find-lr=1e-6..1"), ("--find-lr=1..1e-3", "--find-lr=1e-6..1")] {
        check_error(&["train", wrong], 2, &[words]);
    }
    check_error(&["train", "--find-lr", "--epochs", "2"], 2, &["--steps"]);
}
