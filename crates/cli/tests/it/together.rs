//! Several runs in one process, and devices with limits.

use crate::common;

use common::{Scratch, check_error, events};
use serde_json::Value;

fn file(scratch: &Scratch, name: &str, seed: u64, more: &str) -> String {
    let out = scratch.path(&format!("out-{name}"));
    let text = format!("[train]\nbatch = 32\nseed = {seed}\nout = \"{out}\"\n{more}\n[data]\nkind = \"digits\"\n");
    scratch.write(&format!("{name}.toml"), text)
}

fn weights(scratch: &Scratch, folder: &str) -> Vec<u8> {
    std::fs::read(scratch.path(&format!("{folder}/weights.safetensors"))).expect("weights")
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["event"] == kind).collect()
}

fn bytes(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key} of {event}"))
}

/// The size that a refusal says would do.
fn cure(error: &Value) -> &str {
    let message = error["message"].as_str().expect("a message");
    let size = message.split("--logical ").nth(1).and_then(|rest| rest.split_whitespace().next());
    size.unwrap_or_else(|| panic!("no size: {message}")).trim_end_matches([',', ';', ':'])
}

#[test]
fn two_runs_share_a_device_and_leave_what_each_leaves_alone() {
    let scratch = Scratch::new("together");
    let (a, b) = (file(&scratch, "a", 1, ""), file(&scratch, "b", 2, "share = 2.0"));
    let (code, told) = events(&["train", &a, &b, "--steps", "30"]);
    assert_eq!(code, 0, "{:?}", told.last());
    let together = of(&told, "together")[0];
    assert_eq!(together["runs"], serde_json::json!(["a", "b"]));
    let (arena, sum) = (bytes(together, "arena_bytes"), bytes(together, "sum_of_arenas_bytes"));
    assert_eq!(arena, bytes(together, "state_bytes") + bytes(together, "transient_bytes"));
    assert!(arena < sum, "{arena} of {sum}");
    let order: Vec<&Value> = of(&told, "step").into_iter().map(|e| &e["run"]).collect();
    assert_eq!([order.iter().filter(|r| **r == "a").count(), order.len()], [30, 60]);
    assert_eq!(of(&told, "done").len(), 2);
    for (name, file) in [("a", &a), ("b", &b)] {
        let alone = scratch.path(&format!("alone-{name}"));
        let (code, _) = events(&["train", file, "--steps", "30", "--out", &alone]);
        assert_eq!(code, 0);
        assert!(weights(&scratch, &format!("out-{name}")) == weights(&scratch, &format!("alone-{name}")), "{name}");
    }
    // And they go on together.
    let folders = [scratch.path("out-a"), scratch.path("out-b")];
    let (code, told) = events(&["train", "--resume", &folders[0], "--resume", &folders[1], "--steps", "40"]);
    assert_eq!(code, 0, "{:?}", told.last());
    assert_eq!(of(&told, "together").len(), 1);
    let (code, _) = events(&["train", "--resume", &scratch.path("alone-a"), "--steps", "40"]);
    assert_eq!(code, 0);
    assert!(weights(&scratch, "out-a") == weights(&scratch, "alone-a"));
}

#[test]
fn what_does_not_fit_together_is_refused_as_a_set() {
    let scratch = Scratch::new("refused-together");
    let (a, b) = (file(&scratch, "a", 1, ""), file(&scratch, "b", 2, ""));
    let (code, told) = events(&["train", &a, &b, "--steps", "1", "--budget", "100KiB"]);
    let error = told.last().expect("an error");
    assert_eq!((code, &error["kind"]), (3, &"refused".into()));
    let certificate = &error["certificate"];
    assert_eq!(certificate["runs"].as_array().map(Vec::len), Some(2));
    let needed = bytes(certificate, "needed_bytes").to_string();
    let (code, told) = events(&["train", &a, &b, "--steps", "1", "--budget", &needed]);
    assert_eq!(code, 0, "{:?}", told.last());
    assert_eq!(bytes(of(&told, "together")[0], "arena_bytes").to_string(), needed);
    check_error(&["train", &a, &b, "--model", "mlp"], 2, &["several runs", "--budget", "run file"]);
    check_error(&["train", &a, &b, "--budget", "12 parsecs"], 2, &["--budget", "12 parsecs"]);
    check_error(&["plan", &a, &b, "--frontier"], 2, &["--frontier", "one run"]);
}

#[test]
fn what_is_planned_together_is_what_is_taken() {
    let scratch = Scratch::new("planned-together");
    let (a, b) = (file(&scratch, "a", 1, ""), file(&scratch, "b", 2, "[memory]\nbudget = \"1.96MiB\""));
    let arena = |told: &[Value]| bytes(of(told, "together")[0], "arena_bytes");
    let (code, planned) = events(&["plan", &a, &b]);
    assert_eq!(code, 0, "{:?}", planned.last());
    // The budget of a file is of its run.
    let plans = of(&planned, "plan");
    assert_eq!([&plans[0]["run"], &plans[1]["run"]], ["a", "b"]);
    let arenas: Vec<u64> = plans.iter().map(|p| bytes(p, "arena_bytes")).collect();
    assert!(arenas[1] < arenas[0] && arenas[1] <= bytes(plans[1], "budget_bytes"), "{arenas:?}");
    let (code, taken) = events(&["train", &a, &b, "--steps", "1"]);
    assert_eq!((code, arena(&taken)), (0, arena(&planned)));
    // What is typed is for all of them.
    let (code, planned) = events(&["plan", &a, &b, "--budget", "1GiB"]);
    assert_eq!(code, 0, "{:?}", planned.last());
    let plans = of(&planned, "plan");
    assert_eq!([bytes(plans[0], "arena_bytes"), bytes(plans[1], "arena_bytes")], [arenas[0], arenas[0]]);
    assert_eq!(bytes(of(&planned, "together")[0], "budget_bytes"), 1 << 30);
    let c = file(&scratch, "c", 3, "[memory]\nbudget = \"100KiB\"");
    check_error(&["plan", &a, &c], 3, &["c: no plan", "100 KiB", "memory.budget"]);
    let folder = scratch.path("out-a");
    check_error(&["train", "--resume", &folder, "--resume", &folder, "--budget", "1GiB"], 2, &["--budget"]);
}

#[test]
fn a_logical_device_is_a_limit_for_all_that_a_run_takes() {
    let scratch = Scratch::new("logical");
    let out = scratch.path("out");
    let limit = 8u64 << 20;
    let (code, told) = events(&["train", "--steps", "5", "--logical", "8MiB", "--host-budget", "4MiB", "--out", &out]);
    assert_eq!(code, 0, "{:?}", told.last());
    let (plan, done) = (of(&told, "plan")[0], of(&told, "done")[0]);
    assert!(bytes(plan, "budget_bytes") <= limit - (4 << 20));
    assert!(bytes(plan, "arena_bytes") + bytes(done, "host_peak_bytes") <= limit);
    // What was saved keeps to it: going on, and judging.
    let (code, _) = events(&["train", "--resume", &out, "--steps", "6"]);
    assert_eq!(code, 0);
    let (code, _) = events(&["eval", &out]);
    assert_eq!(code, 0);
    // Too small for the pipeline, for the model, and for the machine.
    let too_small = ["--logical", "2MiB", "--host-budget", "4MiB"];
    check_error(&[&["train"], &too_small[..]].concat(), 3, &["cpu:0/0", "data pipeline", "4.00 MiB"]);
    check_error(&[&["plan"], &too_small[..]].concat(), 3, &["cpu:0/0", "data pipeline", "4.00 MiB"]);
    let held = "of the 5.00 MiB of cpu:0/0, 4.00 MiB are held by the data pipeline of digits";
    let limits = ["--logical", "5MiB", "--host-budget", "4MiB"];
    check_error(&[&["train"], &limits[..]].concat(), 3, &[held, "fits into 1.00 MiB", "--logical "]);
    // What it says fits, and what is just below does not: how much that is depends on the kernels.
    let (_, told) = events(&[&["train"], &limits[..]].concat());
    let size = cure(told.last().expect("an error"));
    assert_eq!(events(&["plan", "--logical", size, "--host-budget", "4MiB"]).0, 0, "{size}");
    let mib: f64 = size.strip_suffix("MiB").and_then(|n| n.parse().ok()).expect("some MiB");
    let below = format!("{:.2}MiB", mib - 0.01);
    assert_eq!(events(&["plan", "--logical", &below, "--host-budget", "4MiB"]).0, 3, "{below}");
    check_error(&["train", "--logical", "1000TiB"], 3, &["cpu:0", "logical device cpu:0/0"]);
    check_error(&["train", "--logical", "8MiB", "--device", "cpu:0/1"], 2, &["cpu:0/1", "cpu:0/0"]);
    check_error(&["train", "--logical", "0"], 2, &["no memory"]);
}

/// Plans, the data, evaluation, a checkpoint: each of them tries.
#[test]
fn nothing_passes_a_limit() {
    let scratch = Scratch::new("limits");
    let (out, plan) = (scratch.path("out"), scratch.path("plan.json"));
    let limits = |logical| ["--logical", logical, "--host-budget", "4MiB"];
    // A plan from before.
    assert_eq!(events(&["plan", "--save", &plan]).0, 0);
    let with_plan = [&["train", "--plan", &plan, "--steps", "1", "--out", &out], &limits("5MiB")[..]].concat();
    check_error(&with_plan, 3, &["plan.json takes", "more than the budget of 1.00 MiB"]);
    assert!(!std::path::Path::new(&out).exists(), "nothing was begun");
    // Data that do not fit into their part.
    let crowded = ["train", "--logical", "8MiB", "--host-budget", "2KiB", "--batch", "64", "--out", &out];
    check_error(&crowded, 3, &["host budget of 2.00 KiB"]);
    // A checkpoint, and its judgement, in less than it was made in.
    let (code, _) = events(&[&["train", "--steps", "2", "--out", &out], &limits("8MiB")[..]].concat());
    assert_eq!(code, 0);
    let file = scratch.path("out/run.toml");
    let text = std::fs::read_to_string(&file).expect("a run file");
    std::fs::write(&file, text.replace("8MiB", "4.3MiB")).expect("it can be changed");
    let (code, told) = events(&["train", "--resume", &out, "--steps", "3"]);
    let message = told.last().and_then(|e| e["message"].as_str()).expect("a message");
    assert!(code == 3 && message.contains("of the 4.30 MiB of cpu:0/0, "), "{message}");
    assert!(message.contains("4.00 MiB are held by the data pipeline of out"), "{message}");
    // What it says would fit does.
    assert_eq!(events(&["train", "--resume", &out, "--steps", "3", "--logical", cure(told.last().expect("one"))]).0, 0);
    std::fs::write(&file, text.replace("8MiB", "4.3MiB")).expect("it can be changed");
    // Judging takes less of the data at once before it gives up.
    assert_eq!(events(&["eval", &out]).0, 0);
    std::fs::write(&file, text.replace("8MiB", "1MiB")).expect("it can be changed");
    let held = "of the 1.00 MiB of cpu:0/0, 256 KiB are held by the data pipeline of digits";
    check_error(&["eval", &out], 3, &[held, "into 768 KiB", "are needed"]);
    // A run that may have more than there is answers on a smaller machine.
    std::fs::write(&file, text.replace("8MiB", "900TiB").replace("4MiB", "100TiB")).expect("it can be changed");
    assert_eq!(events(&["eval", &out]).0, 0);
    check_error(&["train", "--resume", &out, "--steps", "3"], 3, &["cpu:0", "logical device cpu:0/0"]);
    // Limits are no part of what is computed.
    let now = ["--logical", "9MiB", "--host-budget", "3MiB", "--growth", "lazy"];
    assert_eq!(events(&[&["train", "--resume", &out, "--steps", "3"], &now[..]].concat()).0, 0);
    // With its own limit it goes on.
    std::fs::write(&file, text).expect("it can be changed");
    assert_eq!(events(&["train", "--resume", &out, "--steps", "4"]).0, 0);
    assert_eq!(events(&["eval", &out]).0, 0);
}

#[test]
fn runs_on_different_logical_devices_keep_to_their_own() {
    let scratch = Scratch::new("parts");
    let (a, b) = (file(&scratch, "a", 1, ""), file(&scratch, "b", 2, ""));
    let args = ["--steps", "5", "--logical", "6MiB,5MiB", "--host-budget", "2MiB", "--growth", "lazy"];
    let (code, told) = events(&[&["train", &a, &b], &args[..]].concat());
    assert_eq!(code, 0, "{:?}", told.last());
    assert!(of(&told, "together").is_empty(), "each has its own memory");
    let budgets: Vec<u64> = of(&told, "plan").into_iter().map(|e| bytes(e, "budget_bytes")).collect();
    assert_eq!(budgets, [4 << 20, 3 << 20]);
    let c = file(&scratch, "c", 3, "");
    check_error(&[&["train", &a, &b, &c], &args[..]].concat(), 2, &["run 3", "no logical device"]);
    check_error(&[&["train", &a, &b, "--budget", "1GiB"], &args[..]].concat(), 2, &["--budget", "its limit"]);
}

#[test]
fn a_split_that_one_file_says_holds_for_all() {
    let scratch = Scratch::new("split");
    let a = file(&scratch, "a", 1, "[memory]\nlogical = [\"16MiB\", \"8MiB\"]\nhost_budget = \"2MiB\"");
    let b = file(&scratch, "b", 2, "");
    let (code, told) = events(&["train", &a, &b, "--steps", "1"]);
    assert_eq!(code, 0, "{:?}", told.last());
    // A quarter for the pipeline, the rest for the arena; also when it goes on alone.
    let budget = |told: &[Value]| bytes(of(told, "plan").last().expect("a plan"), "budget_bytes");
    assert_eq!(budget(&told), 6 << 20);
    let (code, told) = events(&["train", "--resume", &scratch.path("out-b"), "--steps", "2"]);
    assert_eq!((code, budget(&told)), (0, 6 << 20));
    // Also where the budget of one is smaller than what is left: the plans of both are of the part.
    let [c, d] = [("c", "\nbudget = \"2MiB\""), ("d", "")]
        .map(|(name, more)| file(&scratch, name, 3, &format!("[memory]\ndevice = \"cpu:0/0\"{more}")));
    check_error(&["plan", &c, &d, "--logical", "2.75MiB"], 3, &["2 models together", "--logical "]);
    let (_, told) = events(&["plan", &c, &d, "--logical", "8MiB"]);
    assert_eq!([&told[0]["device"], &told[1]["device"]], ["cpu:0/0", "cpu:0/0"]);
    // Both on one part, which the pipelines of both leave room in; and less than they need, however small those become.
    let one = |name: &str, seed| file(&scratch, name, seed, "[memory]\ndevice = \"cpu:0/0\"");
    let (c, d) = (one("c", 3), one("d", 4));
    let (code, told) = events(&["plan", &c, &d, "--logical", "4MiB"]);
    assert_eq!((code, bytes(&told[0], "budget_bytes")), (0, 3 << 20));
    check_error(&["plan", &c, &d, "--logical", "2.75MiB"], 3, &["2 models together", "of the 2.75 MiB of cpu:0/0"]);
    // What it says would fit does.
    let (_, told) = events(&["plan", &c, &d, "--logical", "2.75MiB"]);
    let size = cure(&told[0]);
    assert_eq!(events(&["plan", &c, &d, "--logical", size]).0, 0, "{size}");
}

/// The loss of one becomes infinite; the other does not notice.
#[test]
fn one_that_fails_does_not_stop_the_others() {
    let scratch = Scratch::new("failing");
    let (a, b) = (file(&scratch, "a", 1, ""), file(&scratch, "b", 2, "optimizer = \"sgd\"\nlr = 1e30"));
    let (code, told) = events(&["train", &a, &b, "--steps", "30"]);
    assert_eq!(code, 4, "{:?}", told.last());
    let (failed, done, error) = (of(&told, "failed"), of(&told, "done"), told.last().expect("an error"));
    assert_eq!((failed.len(), &failed[0]["run"], &failed[0]["kind"]), (1, &"b".into(), &"data".into()));
    assert_eq!((done.len(), &done[0]["run"], done[0]["steps"].as_u64()), (1, &"a".into(), Some(30)));
    assert!(error["message"].as_str().is_some_and(|m| m.starts_with("1 of 2 runs failed (b)")), "{error}");
    assert!(!weights(&scratch, "out-a").is_empty());
}

#[cfg(unix)]
#[test]
fn an_interrupted_set_is_saved_and_goes_on_together() {
    let scratch = Scratch::new("interrupted-set");
    let (a, b) = (file(&scratch, "a", 1, ""), file(&scratch, "b", 2, ""));
    let rest = common::stopped(&["train", &a, &b, "--epochs", "500"], 20, rustix::process::Signal::INT);
    let error: Value = serde_json::from_str(rest.last().expect("it says something")).expect("it is JSON");
    let message = error["message"].as_str().expect("a message");
    let options: Vec<&str> = message.split('`').nth(1).expect("a command").split_whitespace().skip(2).collect();
    assert_eq!(options.iter().filter(|o| **o == "--resume").count(), 2, "{message}");
    // Further than either was when it was asked to stop, whenever that was.
    let saved = error["runs"].as_array().expect("runs").iter().filter_map(|run| run["step"].as_u64());
    let steps = (saved.max().expect("a step") + 10).to_string();
    let (code, told) = events(&[&["train"], &options[..], &["--steps", &steps]].concat());
    assert_eq!((code, of(&told, "done").len()), (0, 2), "{:?}", told.last());
    for name in ["a", "b"] {
        let (alone, file) = (scratch.path(&format!("alone-{name}")), scratch.path(&format!("{name}.toml")));
        assert_eq!(events(&["train", &file, "--steps", &steps, "--out", &alone]).0, 0);
        assert!(weights(&scratch, &format!("out-{name}")) == weights(&scratch, &format!("alone-{name}")), "{name}");
    }
}

/// Whoever is done is told, written down and let go, while the other one goes on.
#[test]
fn a_short_run_ends_before_a_long_one() {
    let scratch = Scratch::new("short");
    let (a, b) = (file(&scratch, "a", 1, "steps = 100"), file(&scratch, "b", 2, "steps = 3"));
    let (code, told) = events(&["train", &a, &b]);
    assert_eq!(code, 0, "{:?}", told.last());
    let at = |event: &str, run: &str| told.iter().rposition(|e| e["event"] == event && e["run"] == run);
    assert!(at("done", "b") < at("step", "a"), "b is told before a is at its end");
    assert_eq!(of(&told, "done").iter().map(|e| e["steps"].as_u64()).collect::<Vec<_>>(), [Some(3), Some(100)]);
}

#[test]
fn runs_are_told_apart() {
    let scratch = Scratch::new("names");
    let text = |n: u32| {
        format!("[train]\nbatch = 32\nout = \"{}\"\n[data]\nkind = \"digits\"\n", scratch.path(&n.to_string()))
    };
    let (a, b) = (scratch.write("one/run.toml", text(1)), scratch.write("two/run.toml", text(2)));
    let (code, told) = events(&["plan", &a, &b]);
    assert_eq!(code, 0, "{:?}", told.last());
    assert_eq!(of(&told, "together")[0]["runs"], serde_json::json!(["one/run", "two/run"]));
    check_error(&["train", &a, &a, "--steps", "1"], 2, &["two of the runs have the folder", "train.out"]);
    assert!(!std::path::Path::new(&scratch.path("1")).exists(), "nothing was begun");
    let c = scratch.write("c.toml", text(3).replace("batch = 32", "batch = 5000"));
    check_error(&["train", &a, &c], 2, &["c: train.batch 5000 is larger"]);
}
