//! Tables that are not what a run reads, and what their columns and classes are known by.

use std::path::Path;

use crate::common::{Scratch, check_error, event, events, memfit, stdout};

#[test]
fn tables_are_told_by_line_and_column() {
    let scratch = Scratch::new("tables");
    let rows = |last: &str| -> String {
        let good: String = (0..40).map(|i| format!("{}.5,{i},{}\n", i, i % 3)).collect();
        format!("a,b,label\n{good}{last}\n")
    };
    let train = |name: &str, text: &str| -> Vec<String> {
        let data = scratch.write(&format!("{name}.csv"), text);
        let file = scratch.write(
            &format!("{name}.toml"),
            format!("[model]\nname = \"mlp\"\nclasses = 3\n[data]\ntrain = {data:?}\nhold_out = 0\n[train]\nbatch = 41\nepochs = 1\n"),
        );
        vec!["train".into(), file, "--out".into(), scratch.path(name)]
    };
    for (name, last, expected) in [
        ("ragged", "1,2", &["ragged.csv", "42"][..]),
        ("word", "1,many,2", &["word.csv", "42", "many"]),
        ("label", "1,2,7", &["label.csv", "7", "0..3"]),
    ] {
        let args = train(name, &rows(last));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        check_error(&args, 4, expected);
    }
    let args = train("good", &rows("1,2,2"));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert!(memfit(&args).status.success());
}

#[test]
fn the_classes_of_a_table_are_those_of_the_model() {
    let scratch = Scratch::new("counted");
    let rows: String = (0..40).map(|i| format!("{i},{}\n", i % 3)).collect();
    let data = scratch.write("rows.csv", format!("a,label\n{rows}"));
    let args =
        ["train", "--model", "mlp", "--data", &data, "--batch", "2", "--steps", "1", "--out", &scratch.path("out")];
    let output = memfit(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = std::fs::read_to_string(scratch.path("out/run.toml")).expect("what the run is");
    assert!(written.contains("classes = 3"), "{written}");
    scratch.write("rows.csv", "a,label\n1,0\n2,dog\n");
    check_error(&args, 4, &["rows.csv", "such as \"0\" in line 2", "such as \"dog\" in line 3", "all words"]);
    let names: String = (0..1200).map(|i| format!("{i},name {i}\n")).collect();
    scratch.write("rows.csv", format!("a,label\n{names}"));
    check_error(&args, 4, &["rows.csv", "column \"label\"", "no classes", "--label"]);
    scratch.write("rows.csv", "a,species\n1,cat\n");
    check_error(&args, 4, &["rows.csv", "no column \"label\"", "there are \"a\", \"species\"", "--label"]);
}

/// Flowers that one number tells apart, so many of each kind.
fn flowers(kinds: &[(&str, f32)], each: usize) -> String {
    let row = |n: usize, (name, at): &(&str, f32)| format!("{},0.5,{name}\n", at + n as f32 / 100.0);
    let rows: String = (0..each).flat_map(|n| kinds.iter().map(move |kind| row(n, kind))).collect();
    format!("petal,sepal,species\n{rows}")
}

#[test]
fn classes_may_be_words() {
    let scratch = Scratch::new("words");
    let (virginica, setosa, versicolor) = (("virginica", 2.0), ("setosa", -2.0), ("\"versi color\"", 0.0));
    scratch.write("iris.csv", flowers(&[virginica, setosa, versicolor], 20));
    // By itself it would give other numbers to its words.
    scratch.write("test.csv", flowers(&[virginica, versicolor], 5));
    let file = scratch.write(
        "run.toml",
        "[model]\nname = \"mlp\"\nhidden = [2048, 2048]\n[data]\ntrain = \"iris.csv\"\ntest = \"test.csv\"\n\
         label = \"species\"\n[train]\nbatch = 20\nepochs = 3\n",
    );
    let (run, test) = (scratch.path("run"), scratch.path("test.csv"));
    let output = memfit(&["train", &file, "--out", &run]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let classes = std::fs::read_to_string(scratch.path("run/classes.txt")).expect("the classes");
    assert_eq!(classes.lines().collect::<Vec<_>>(), ["setosa", "versi color", "virginica"]);
    for args in [&["eval", &run][..], &["eval", &run, "--data", &test]] {
        let judged = event(args);
        assert_eq!((&judged["samples"], &judged["scores"]["accuracy"]), (&10.into(), &1.0.into()), "{judged}");
        assert_eq!(judged["classes"], serde_json::json!(["setosa", "versi color", "virginica"]));
    }
    let text = stdout(&memfit(&["eval", &run]));
    assert!(text.contains("classes: setosa, versi color, virginica"), "{text}");
    let (code, events) = events(&["train", "--resume", &run, "--epochs", "4"]);
    assert_eq!((code, &events.last().expect("it ends")["test_accuracy"]), (0, &1.0.into()));
    // A word that the training set does not know.
    scratch.write("test.csv", flowers(&[virginica, versicolor], 5) + "0,0,setoza\n");
    let unknown = ["test.csv, line 12", "column \"species\" is \"setoza\"", "setosa, versi color, virginica"];
    check_error(&["train", &file, "--out", &scratch.path("other")], 4, &unknown);
    check_error(&["eval", &run, "--data", &test], 4, &unknown);
    let some = event(&["eval", &run, "--data", &test, "--skip-bad"]);
    assert_eq!((&some["samples"], &some["skipped_samples"]), (&10.into(), &1.into()), "{some}");
    // Other classes are another run.
    scratch.write("test.csv", flowers(&[virginica, versicolor], 5));
    scratch.write("iris.csv", flowers(&[virginica, ("rosa", -2.0), versicolor], 20));
    check_error(&["train", "--resume", &run, "--epochs", "5"], 4, &["not those of the run", "\"setosa\" is gone"]);
    check_error(&["train", &file, "--classes", "2", "--out", &scratch.path("few")], 2, &["3 classes", "have 2"]);
}

/// Rows of a table in which one column decides the class; the columns in this order.
fn rows(order: [&str; 3], count: usize) -> String {
    let cell = |name: &str, n: usize| match name {
        "label" => (n % 2).to_string(),
        "size" => format!("{}", if n.is_multiple_of(2) { 3.0 } else { -3.0 }),
        _ => format!("0.{}", n % 7),
    };
    let line = |n: usize| format!("{}\n", order.map(|name| cell(name, n)).join(","));
    format!("{}\n{}", order.join(","), (0..count).map(line).collect::<String>())
}

#[test]
fn the_columns_of_a_table_are_known_by_their_names() {
    let scratch = Scratch::new("columns");
    let train = scratch.write("train.csv", rows(["size", "noise", "label"], 40));
    scratch.write("test.csv", rows(["label", "noise", "size"], 20));
    let file = |name: &str, more: &str| {
        let text =
            format!("[model]\nname = \"mlp\"\n[data]\ntrain = {train:?}\n{more}\n[train]\nbatch = 8\nepochs = 20\n");
        scratch.write(name, text)
    };
    let run = scratch.path("run");
    let (code, told) = events(&["train", &file("a.toml", "test = \"test.csv\""), "--out", &run]);
    assert_eq!((code, &told.last().expect("it ends")["test_accuracy"]), (0, &1.0.into()));
    // The training set is not needed to judge other data.
    let moved = scratch.path("gone.csv");
    std::fs::rename(&train, &moved).expect("it can be moved");
    let judged = event(&["eval", &run, "--data", &scratch.path("test.csv")]);
    assert_eq!((&judged["samples"], &judged["scores"]["accuracy"]), (&20.into(), &1.0.into()));
    let other = scratch.write("other.csv", rows(["label", "noise", "weight"], 20));
    check_error(&["eval", &run, "--data", &other], 4, &["other.csv", "no column \"weight\"", "\"size\", \"noise\""]);
    // Nor is it silently read in another order when the run goes on.
    scratch.write("train.csv", rows(["noise", "size", "label"], 40));
    check_error(&["train", "--resume", &run, "--epochs", "21"], 4, &["columns", "another order"]);
}

#[test]
fn labels_of_a_test_set_are_looked_at_before_the_training() {
    let scratch = Scratch::new("outside");
    let train = scratch.write("train.csv", rows(["size", "noise", "label"], 40));
    let test = rows(["size", "noise", "label"], 20);
    scratch.write("test.csv", format!("{test}1,0.5,7\n"));
    let text = format!(
        "[model]\nname = \"mlp\"\n[data]\ntrain = {train:?}\ntest = \"test.csv\"\n[train]\nbatch = 8\nepochs = 1\n"
    );
    let (file, out) = (scratch.write("run.toml", text), scratch.path("out"));
    check_error(&["train", &file, "--out", &out], 4, &["test.csv, line 22", "is 7", "0..2", "--skip-bad"]);
    assert!(!Path::new(&out).exists(), "nothing is made of a run that cannot be judged");
    let (code, told) = events(&["train", &file, "--skip-bad", "--out", &out]);
    assert_eq!((code, &told.last().expect("it ends")["skipped_test_samples"]), (0, &1.into()));
}
