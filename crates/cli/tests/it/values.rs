//! Regression by the program: what is taken for numbers, by which loss, and how far off predictions are.

use std::fs;

use serde_json::Value;

use crate::common::{Scratch, events, memfit, stdout};
use crate::files::{npy, npz};

/// A table with words in its last column, and what scikit-learn says of it: made by xtask/oracle/values.py.
pub const TABLE: &str = include_str!("../fixtures/values.csv");
pub const SCORES: &str = include_str!("../fixtures/values.json");

/// The table without its words.
pub fn numbers() -> String {
    let rows = TABLE.lines().map(|line| line.rsplit_once(',').expect("there are several columns").0);
    rows.map(|row| format!("{row}\n")).collect()
}

pub fn find<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().find(|e| e["event"] == name).unwrap_or_else(|| panic!("no {name}: {events:?}"))
}

pub fn message(events: &[Value]) -> &str {
    find(events, "error")["message"].as_str().expect("a text")
}

/// Trains on a file of the folder, for two steps where nothing else is said, into "out".
pub fn train(scratch: &Scratch, file: &str, rest: &[&str]) -> (i32, Vec<Value>) {
    let (data, out) = (scratch.path(file), scratch.path("out"));
    let _ = fs::remove_dir_all(&out);
    let steps: &[&str] = if rest.contains(&"--epochs") || rest.contains(&"--steps") { &[] } else { &["--steps", "2"] };
    events(&[&["train", "--data", &data, "--out", &out, "--batch", "8"], steps, rest].concat())
}

/// Losses of all steps, and the scores at the end.
pub fn course(told: &[Value]) -> (Vec<Value>, Value) {
    let losses = told.iter().filter(|e| e["event"] == "step").map(|e| e["loss"].clone()).collect();
    (losses, find(told, "done")["scores"].clone())
}

fn close(found: &Value, expected: &Value) -> bool {
    let (Some(found), Some(expected)) = (found.as_f64(), expected.as_f64()) else { return false };
    (found - expected).abs() <= 1e-6 * expected.abs().max(1e-3)
}

/// Weights of the last layer of an mlp, all 0, so that it says 0 whatever it is asked.
fn says_zero(scratch: &Scratch, targets: usize) -> String {
    let (weight, bias) = (8 * targets * 4, targets * 4);
    let header = format!(
        "{{\"fc2/weight\":{{\"dtype\":\"F32\",\"shape\":[8,{targets}],\"data_offsets\":[0,{weight}]}},\
         \"fc2/bias\":{{\"dtype\":\"F32\",\"shape\":[{targets}],\"data_offsets\":[{weight},{}]}}}}",
        weight + bias
    );
    let zeros = vec![0; weight + bias];
    scratch.write("zero.safetensors", [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &zeros].concat())
}

#[test]
fn what_has_classes_alone_is_no_regression() {
    crate::common::check_error(&["train", "--loss", "mse"], 2, &["a regression is of csv and npz", "digits"]);
}

#[test]
fn who_only_knows_the_mean_has_the_scores_of_scikit_learn() {
    let scratch = Scratch::new("values-mean");
    scratch.write("table.csv", numbers());
    let expected: Value = serde_json::from_str(SCORES).expect("what the oracle wrote");
    for (label, targets) in [("price", 1), ("price,area", 2)] {
        let zero = says_zero(&scratch, targets);
        let rest = ["--label", label, "--standardise-targets", "--hidden", "8", "--weights", &zero, "--lr", "1e-30"];
        let (code, told) = train(&scratch, "table.csv", &rest);
        assert_eq!(code, 0, "{told:?}");
        let (expected, scores) = (&expected[label], course(&told).1);
        for score in ["mae", "rmse", "r2"] {
            assert!(close(&scores[score], &expected[score]), "{label} {score}: {scores} {expected}");
        }
        let units = find(&told, "data")["targets"]["standardised"].as_array().expect("a list").clone();
        for (i, unit) in units.iter().enumerate() {
            assert!(
                close(&unit["mean"], &expected["mean"][i]) && close(&unit["std"], &expected["std"][i]),
                "{units:?}"
            );
        }
        assert_eq!(units.len(), targets);
        let judged = crate::common::event(&["eval", &scratch.path("out")]);
        assert_eq!(judged["scores"], scores, "the folder has what they were standardised by");
        let answer = crate::common::events(&["predict", &scratch.path("out"), &scratch.path("table.csv")]).1;
        assert!(close(&answer[0]["values"]["price"], &expected["mean"][0]), "in the label's unit: {:?}", answer[0]);
    }
}

#[test]
fn labels_that_are_numbers_are_predicted_and_nothing_is_said_of_classes() {
    let scratch = Scratch::new("values-found");
    scratch.write("table.csv", numbers());
    let (data, out) = (scratch.path("table.csv"), scratch.path("out"));
    let run = scratch.write("run.toml", "[train]\nmonitor = \"mae\"\nepochs = 2\nbatch = 8\n");
    let output = memfit(&["train", &run, "--data", &data, "--label", "price", "--out", &out]);
    let text = stdout(&output);
    for part in ["price: regression by mse, since the labels are numbers", "MAE ", "RMSE ", "R² ", "best: MAE "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for part in ["accuracy", "perplexity", "top 5", "\n  classes"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    let history = fs::read_to_string(scratch.path("out/history.csv")).expect("a table");
    assert!(history.lines().next().is_some_and(|names| names.ends_with(",test_mae,test_rmse,test_r2")), "{history}");
    let kept = fs::read_to_string(scratch.path("out/run.toml")).expect("a run file");
    assert!(kept.contains("task = \"regression\"") && kept.contains("outputs = 1"), "{kept}");
    let (code, told) = train(&scratch, "table.csv", &["--label", "price", "--epochs", "1"]);
    let scores = find(&told, "done")["scores"].as_object().expect("scores").clone();
    assert_eq!(
        (code, scores.keys().map(String::as_str).collect::<Vec<_>>()),
        (0, vec!["count", "loss", "mae", "r2", "rmse"])
    );
    assert!(told.iter().all(|e| e.get("test_accuracy").is_none()), "{told:?}");
    let (code, told) = train(&scratch, "table.csv", &["--label", "price", "--task", "classification"]);
    assert!(code == 4 && message(&told).contains("a number and no class"), "{told:?}");
}

#[test]
fn every_loss_trains_and_resumes_to_the_same_scores() {
    let scratch = Scratch::new("values-losses");
    scratch.write("table.csv", numbers());
    let mut seen = Vec::new();
    for loss in ["mse", "mae", "huber", "huber:0.1", "log-cosh"] {
        let rest = ["--label", "price,area", "--standardise-targets", "--loss", loss, "--steps", "8"];
        let (code, told) = train(&scratch, "table.csv", &rest);
        let (losses, scores) = course(&told);
        assert_eq!((code, losses.len()), (0, 8), "{told:?}");
        assert!(!seen.contains(&losses), "{loss}: it is another loss than those before");
        assert_eq!(find(&told, "data")["targets"]["loss"], loss);
        seen.push(losses);
        let (code, _) = train(&scratch, "table.csv", &[&rest[..6], &["3"]].concat());
        assert_eq!(code, 0);
        let (code, told) = events(&["train", "--resume", &scratch.path("out"), "--steps", "8"]);
        assert_eq!((code, course(&told).1), (0, scores), "{loss}");
    }
    scratch.write("counts.csv", (0..20).map(|n| format!("{},{n}\n", n % 3)).collect::<String>());
    let (code, _) = train(&scratch, "counts.csv", &["--header", "false", "--label", "1", "--loss", "poisson"]);
    assert_eq!(code, 0);
    scratch.write("less.csv", "a,label\n1,2\n2,-1\n3,0\n4,1\n5,1\n");
    let (code, told) = train(&scratch, "less.csv", &["--loss", "poisson"]);
    assert!(code == 4 && message(&told).contains("less.csv, line 3: column \"label\" is \"-1\""), "{told:?}");
}

#[test]
fn arrays_of_numbers_are_predicted_by_themselves() {
    let scratch = Scratch::new("values-arrays");
    let f32s = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let ramp = |count: usize| (0..count).map(|n| n as f32 / 7.0).collect::<Vec<_>>();
    for (shape, targets) in [(&[20][..], 1), (&[20, 1], 1), (&[20, 3], 3)] {
        let y = npy("<f4", shape, &f32s(&ramp(20 * targets)));
        let x = npy("<f4", &[20, 4], &f32s(&ramp(80)));
        let w = npy("<f8", &[20], &[0.5f64; 20].map(f64::to_le_bytes).concat());
        scratch.write("table.npz", npz(&[("x", x), ("y", y), ("w", w)]));
        let (code, told) = train(&scratch, "table.npz", &["--sample-weight", "w"]);
        assert_eq!((code, &find(&told, "data")["targets"]["count"]), (0, &targets.into()), "{told:?}");
        assert_eq!(find(&told, "data")["weights"]["of_samples"], "w");
        assert_eq!(crate::common::event(&["eval", &scratch.path("out")])["scores"], course(&told).1);
    }
    let (code, told) = train(&scratch, "table.npz", &["--sample-weight", "y"]);
    assert!(code == 4 && message(&told).contains("several numbers for a sample, and a weight is one"), "{told:?}");
}

#[test]
fn what_does_not_go_with_a_regression_is_refused_by_name() {
    let scratch = Scratch::new("values-refused");
    scratch.write("table.csv", numbers());
    for (rest, words) in [
        (&["--label", "price", "--task", "regression", "--classes", "3"][..], "--classes"),
        (&["--label", "price", "--loss", "mse", "--class-weight", "balanced"], "--class-weight"),
        (&["--label", "price", "--loss", "hubert"], "did you mean \"huber\"?"),
        (&["--label", "price", "--loss", "huber:0"], "huber:0.5"),
        (&["--label", "price,price"], "\"price\" is named twice"),
        (&["--label", "price,prise"], "no column \"prise\""),
        (&["--label", "price", "--loss", "poisson", "--standardise-targets"], "poisson"),
    ] {
        let (code, told) = train(&scratch, "table.csv", rest);
        assert!(code != 0 && message(&told).contains(words), "{rest:?}: {told:?}");
    }
}
