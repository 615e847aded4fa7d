//! `memfit plan` as a person meets it: the page, the frontier, the largest batch, saved plans and what differs in them.

use crate::common;

use common::{Scratch, check_error, command, event, events, memfit, stdout, temporary};
use serde_json::Value;

const RESNET: [&str; 7] = ["plan", "--model", "resnet18", "--input", "64x64x3", "--batch", "16"];

fn bytes(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key} of {event}"))
}

#[test]
fn a_plan_carries_everything_that_a_machine_wants() {
    let plan = event(&RESNET);
    for key in [
        "model",
        "batch",
        "micro_batch",
        "accumulate",
        "precision",
        "device",
        "instruction_set",
        "budget_bytes",
        "arena_bytes",
        "peak_bytes",
        "state_bytes",
        "transient_bytes",
        "input_bytes",
        "keep_all_bytes",
        "lower_bound_bytes",
        "classes",
        "predicted_step_ms",
        "planning_ms",
        "recomputed_ops",
        "tools",
        "profile",
    ] {
        assert!(plan.get(key).is_some(), "{key}");
    }
    assert_eq!(bytes(&plan, "arena_bytes"), bytes(&plan, "state_bytes") + bytes(&plan, "transient_bytes"));
    let classes: u64 = plan["classes"].as_object().expect("classes").values().filter_map(Value::as_u64).sum();
    let peak = bytes(&plan, "peak_bytes");
    // What lies between states so that each starts at a multiple of 64 is of no class.
    assert!(classes <= peak && peak - classes < 64 * 400, "{classes} of {peak}");
    assert!(bytes(&plan, "lower_bound_bytes") <= bytes(&plan, "arena_bytes"));
    assert!(bytes(&plan, "arena_bytes") <= bytes(&plan, "free_tools_bytes"));
    assert!(bytes(&plan, "peak_bytes") <= bytes(&plan, "keep_all_bytes"));
}

#[test]
fn a_page_shows_classes_costs_and_a_chart_that_fits_the_terminal() {
    for columns in ["60", "80", "140"] {
        let smallest = event(&[&RESNET[..], &["--frontier"]].concat());
        let smallest = bytes(smallest["points"].as_array().and_then(|p| p.last()).expect("a point"), "arena_bytes");
        let budget = smallest.to_string();
        let args = [&RESNET[..], &["--budget", &budget]].concat();
        let output = command(&args).env("COLUMNS", columns).output().expect("the binary starts");
        let text = stdout(&output);
        for part in [
            "resnet18, batch 16, f32, cpu",
            "keep everything",
            "free tools",
            "this plan",
            "lower bound",
            "parameters",
            "optimizer",
            "activations",
            "activation gradients",
            "live at the peak",
            "packing",
            "ops recomputed",
            "of the fastest plan",
            "forward",
            "backward",
            " budget",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let chart: Vec<&str> = text.lines().filter(|l| l.contains(['┤', '│', '└'])).collect();
        assert_eq!(chart.len(), 13, "{text}");
        let width = chart.iter().map(|l| l.chars().count()).max().expect("lines");
        let columns: usize = columns.parse().expect("a number");
        assert!(width <= columns && width + 4 > columns, "{width} of {columns}");
    }
}

#[test]
fn micro_batches_are_told_with_what_they_change() {
    let text = stdout(&memfit(&["plan", "--model", "mlp", "--batch", "64", "--micro-batch", "16"]));
    assert!(text.contains("4 of 16 samples; only the rounding of the sum differs"), "{text}");
    assert!(text.contains("update"), "{text}");
    let text = stdout(&memfit(&["plan", "--batch", "64", "--micro-batch", "16"]));
    assert!(text.contains("4 of 16 samples; batch statistics come from 16 samples"), "{text}");
}

#[test]
fn the_frontier_gets_slower_as_it_gets_smaller_and_every_point_is_a_plan() {
    let file = temporary("frontier.svg");
    let frontier = event(&[&RESNET[..], &["--frontier", "--svg", &file.display().to_string()]].concat());
    let points = frontier["points"].as_array().expect("points");
    assert!(points.len() > 3);
    for pair in points.windows(2) {
        assert!(bytes(&pair[0], "arena_bytes") > bytes(&pair[1], "arena_bytes"));
        assert!(pair[0]["predicted_step_ms"].as_f64() <= pair[1]["predicted_step_ms"].as_f64());
    }
    for point in [&points[1], &points[points.len() - 1]] {
        let budget = bytes(point, "arena_bytes").to_string();
        let plan = event(&[&RESNET[..], &["--budget", &budget]].concat());
        assert_eq!(plan["arena_bytes"], point["arena_bytes"]);
        assert_eq!(plan["predicted_step_ms"], point["predicted_step_ms"]);
    }
    let svg = std::fs::read_to_string(&file).expect("it was written");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<circle ").count(), points.len());
    assert!(svg.contains("lower bound") && !svg.contains("NaN"));
    std::fs::remove_file(file).expect("it was written");
    let text = stdout(&memfit(&[&RESNET[..], &["--frontier", "--budget", "170MiB"]].concat()));
    assert_eq!(text.matches("fits the budget").count(), 1, "{text}");
}

#[test]
fn the_largest_batch_fits_and_the_next_does_not() {
    let model = ["plan", "--model", "resnet18", "--input", "64x64x3", "--budget", "200MiB"];
    let found = event(&[&model[..], &["--max-batch"]].concat());
    let batch = bytes(&found, "batch");
    assert!(batch > 1);
    assert_eq!(found["plan"]["batch"], batch);
    assert!(bytes(&found["plan"], "arena_bytes") <= 200 << 20);
    let tried: Vec<(u64, bool)> =
        found["tried"].as_array().expect("a list").iter().map(|t| (bytes(t, "batch"), t["fits"] == true)).collect();
    assert!(tried.contains(&(batch, true)) && tried.contains(&(batch + 1, false)), "{tried:?}");
    for (batch, code) in [(batch, 0), (batch + 1, 3)] {
        let output = memfit(&[&model[..], &["--micro-batch", "off", "--batch", &batch.to_string()]].concat());
        assert_eq!(output.status.code(), Some(code), "batch {batch}");
    }
    let text = stdout(&memfit(&[&model[..], &["--max-batch"]].concat()));
    assert!(text.contains(&format!("the largest batch in 200 MiB is {batch}")), "{text}");
    check_error(&["plan", "--model", "resnet18", "--budget", "1MiB", "--max-batch"], 3, &["no plan can fit"]);
}

#[test]
fn a_saved_plan_trains_to_the_same_bits() {
    let file = temporary("plan.json").display().to_string();
    let run = ["--batch", "64", "--threads", "2", "--micro-batch", "16", "--optimizer", "momentum"];
    event(&[&["plan", "--save", &file][..], &run].concat());
    let weights = |extra: &[&str]| {
        let scratch = Scratch::new("weights");
        let out = scratch.path("run");
        let args = [&["train", "--steps", "12", "--out", &out], extra].concat();
        assert!(memfit(&args).status.success(), "{args:?}");
        std::fs::read(scratch.path("run/weights.safetensors")).expect("the weights")
    };
    let planned = ["--batch", "64", "--threads", "2", "--optimizer", "momentum", "--plan", &file];
    assert!(weights(&planned) == weights(&run));
    let (_, events) = events(&[&["train", "--steps", "1"][..], &planned].concat());
    assert_eq!((&events[0]["micro_batch"], &events[0]["plan_file"]), (&16.into(), &file.as_str().into()));
    // Of another run: each difference with its cure, and the exit code of wrong use.
    let other =
        |args: &[&str], expected: &[&str]| check_error(&[&["train", "--plan", &file], args].concat(), 2, expected);
    other(&["--batch", "64", "--threads", "2"], &["optimizer is momentum", "here it is adam", "--optimizer momentum"]);
    other(&planned[2..6], &["batch is 64", "here it is 32", "--batch 64"]);
    other(&["--batch", "64", "--optimizer", "momentum", "--threads", "1"], &["threads is 2", "--threads 2"]);
    other(&[&planned[..6], &["--precision", "mixed"]].concat(), &["precision is f32", "--precision f32"]);
    other(&[&planned[..6], &["--micro-batch", "32"]].concat(), &["micro-batch is 16", "--micro-batch 16"]);
    // A plan may be for a larger machine, a training not.
    assert!(memfit(&["plan", "--host-budget", "900TiB"]).status.success());
    check_error(&["train", "--host-budget", "900TiB"], 3, &["cpu:0 has", "the data pipeline of digits"]);
    check_error(&[&["train"], &planned[..], &["--budget", "1MiB"]].concat(), 3, &["more than the budget", "1.00 MiB"]);
    std::fs::remove_file(file).expect("it was written");
}

#[test]
fn a_file_that_is_no_plan_is_bad_data() {
    let path = temporary("bad.json");
    let file = path.display().to_string();
    for text in ["", "{}", "nothing", "{\"memfit\":\"0\",\"format\":1,\"checksum\":\"0\"}"] {
        std::fs::write(&path, text).expect("a temporary file");
        check_error(&["train", "--plan", &file], 4, &[&file, "not a plan"]);
        check_error(&["plan", "--diff", &file, &file], 4, &[&file, "not a plan"]);
    }
    assert!(memfit(&["plan", "--save", &file]).status.success());
    let text = std::fs::read_to_string(&path).expect("it was written");
    std::fs::write(&path, text.replacen("\"transient\",", "\"state\",", 1)).expect("it was written");
    check_error(&["train", "--plan", &file], 4, &[&file, "changed", "plan anew"]);
    std::fs::remove_file(path).expect("it was written");
    check_error(&["train", "--plan", "/nowhere/plan.json"], 4, &["/nowhere/plan.json"]);
}

/// A saved plan with something else in it, and a checksum that is right.
fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is in the plan");
    let text = text.replace(from, to);
    let key = "\"checksum\":\"";
    let at = text.find(key).expect("a checksum") + key.len();
    let body = &text[at + 16 + "\",\n".len()..text.len() - "\n}\n".len()];
    format!("{}{:016x}{}", &text[..at], memfit::ir::fingerprint(body), &text[at + 16..])
}

#[test]
fn a_plan_that_was_edited_to_train_something_else_is_refused() {
    let scratch = Scratch::new("edited");
    let (file, run) = (scratch.path("plan.json"), scratch.path("run"));
    assert!(memfit(&["plan", "--save", &file]).status.success());
    let text = std::fs::read_to_string(&file).expect("a plan");
    let train = ["train", "--plan", &file, "--steps", "1", "--out", &run];
    for (from, to) in [("rate=0.25", "rate=0.75"), ("weight_decay=0.0", "weight_decay=0.9")] {
        std::fs::write(&file, edited(&text, from, to)).expect("a plan");
        check_error(&train, 4, &[&file, "does not compute", to, from, "plan anew"]);
        assert!(!std::path::Path::new(&run).exists());
    }
    std::fs::write(&file, edited(&text, "rate=0.25", "rate=0.25")).expect("a plan");
    assert!(memfit(&train).status.success());
    // And so is that of a run which goes on: here its checksum in the checkpoint is found out first.
    let plan = scratch.path("run/plan.json");
    let text = std::fs::read_to_string(&plan).expect("a plan");
    std::fs::write(&plan, edited(&text, "rate=0.25", "rate=0.75")).expect("a plan");
    check_error(&["train", "--resume", &run, "--steps", "2"], 4, &["plan.json", "changed since it was written"]);
}

#[test]
fn a_diff_says_what_moved() {
    let files = ["before.json", "after.json"].map(|name| temporary(name).display().to_string());
    let smallest = event(&[&RESNET[..], &["--frontier"]].concat());
    let smallest = bytes(smallest["points"].as_array().and_then(|p| p.last()).expect("a point"), "arena_bytes");
    let before = event(&[&RESNET[..], &["--save", &files[0]]].concat());
    let after = event(&[&RESNET[..], &["--save", &files[1], "--budget", &smallest.to_string()]].concat());
    let diff = event(&["plan", "--diff", &files[0], &files[1]]);
    let arena = &diff["numbers"][0];
    assert_eq!((&arena["before"], &arena["after"]), (&before["arena_bytes"], &after["arena_bytes"]));
    let moved = diff["moved"].as_array().expect("a list");
    assert!(!moved.is_empty() && moved.iter().all(|m| m["now"] == "recomputed"));
    // Layers that differ, and no others.
    let layers = diff["recomputed_ops"].as_array().expect("a list");
    let more = |key: &str| layers.iter().map(|l| bytes(l, key)).sum::<u64>();
    let [was, is] = [&before, &after].map(|plan| bytes(plan, "recomputed_ops"));
    assert_eq!(more("after") - more("before"), is - was);
    // The other way round, the same values move back.
    let back = event(&["plan", "--diff", &files[1], &files[0]]);
    assert_eq!(back["moved"].as_array().map(Vec::len), Some(moved.len()));
    assert!(back["moved"].as_array().expect("a list").iter().all(|m| m["now"] == "kept"));
    let text = stdout(&memfit(&["plan", "--diff", &files[0], &files[1]]));
    for part in ["| arena ", "| activations ", "| step, predicted ", "recomputed |", "by layer"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let same = stdout(&memfit(&["plan", "--diff", &files[0], &files[0]]));
    assert!(same.contains("The plans are the same."), "{same}");
    files.iter().for_each(|f| std::fs::remove_file(f).expect("it was written"));
}

#[test]
fn wrong_use_is_told_with_the_cure() {
    for option in ["--out", "--epochs", "--steps", "--weights", "--plan"] {
        check_error(&["plan", option, "1"], 2, &[option]);
    }
    check_error(&["plan", "--max-batch"], 2, &["--budget"]);
    check_error(&["plan", "--max-batch", "--budget", "1G", "--batch", "3"], 2, &["--batch"]);
    check_error(&["plan", "--max-batch", "--budget", "1G", "--micro-batch", "8"], 2, &["--micro-batch", "one piece"]);
    check_error(&["plan", "--svg", "f.svg"], 2, &["--frontier"]);
    check_error(&["plan", "--frontier", "--svg", "/nowhere/f.svg"], 2, &["--svg /nowhere/f.svg", "folder"]);
    let scratch = Scratch::new("plan-over");
    let table = scratch.write("table.csv", "a,label\n1,2\n");
    check_error(&["plan", "--save", &table], 2, &["--save", "this file is there", ".json"]);
    check_error(&["plan", "--frontier", "--svg", &table], 2, &["--svg", "this file is there"]);
    assert_eq!(std::fs::read_to_string(&table).expect("the table"), "a,label\n1,2\n");
    check_error(&["plan", "--save", "/nowhere/p.json"], 2, &["--save /nowhere/p.json", "folder"]);
    check_error(&["plan", "--diff", "a.json"], 2, &["--diff"]);
    check_error(&["plan", "--diff", "a.json", "b.json", "--batch", "3"], 2, &["--diff", "--batch"]);
    check_error(&["plan", "--diff", "/nowhere/a.json", "b.json"], 4, &["/nowhere/a.json"]);
}
