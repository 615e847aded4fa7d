//! A run never trains or evaluates on something else than its user thinks without a word: what was taken for what is said, and
//! what can only be a mistake is refused with its place and a cure.

use std::fs;

use serde_json::Value;

use crate::common::{Scratch, events, memfit, stdout};
use crate::files::{Pixels, npy, npz, write_png};

/// Pictures of two classes, as a folder has them.
fn photos(scratch: &Scratch, each: u8) -> String {
    for class in ["cat", "dog"] {
        for n in 0..each {
            let path = scratch.write(&format!("photos/{class}/{n}.png"), "");
            write_png(&path, [8, 8], &Pixels::Rgb(&[20 * n; 8 * 8 * 3]));
        }
    }
    scratch.path("photos")
}

/// The event of this name.
fn find<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().find(|e| e["event"] == name).unwrap_or_else(|| panic!("no {name}: {events:?}"))
}

#[test]
fn a_run_without_a_model_has_the_usual_one_of_its_data_and_says_so() {
    let scratch = Scratch::new("usual-model");
    photos(&scratch, 2);
    for n in 0..4 {
        for folder in ["images", "masks"] {
            let path = scratch.write(&format!("cells/{folder}/{n}.png"), "");
            write_png(&path, [8, 8], &Pixels::Grey(&[if n % 2 == 0 { 0 } else { 255 }; 64]));
        }
    }
    scratch.write("rows.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n9,0,0\n");
    scratch.write("poem.txt", "the quick brown fox jumps over the lazy dog, and again ".repeat(100));
    let y = npy("|u1", &[4], &[0, 1, 0, 1]);
    scratch.write("rows.npz", npz(&[("x", npy("|u1", &[4, 6], &[7; 24])), ("y", y.clone())]));
    scratch.write("pictures.npz", npz(&[("x", npy("|u1", &[4, 8, 8, 3], &[7; 4 * 8 * 8 * 3])), ("y", y)]));
    for (name, model) in [
        ("photos", "resnet18"),
        ("cells", "unet"),
        ("rows.csv", "mlp"),
        ("poem.txt", "gpt"),
        ("rows.npz", "mlp"),
        ("pictures.npz", "resnet18"),
    ] {
        let data = scratch.path(name);
        let (code, told) = events(&["plan", "--data", &data, "--batch", "2"]);
        assert_eq!((code, &find(&told, "plan")["model"]), (0, &model.into()), "{name}: {told:?}");
        assert_eq!(find(&told, "data")["assumed"]["model.name"], model, "{name}");
        let file = scratch.path(&format!("{name}.toml"));
        assert!(memfit(&["init", &file, "--data", &data]).status.success());
        let text = fs::read_to_string(&file).expect("a run file");
        assert!(text.contains(&format!("\nname = \"{model}\"")), "{name}: {text}");
    }
    let text = stdout(&memfit(&["plan"]));
    assert!(text.contains("digits"), "{text}");
}

/// Trains one step of a multilayer perceptron on a file, without a word of what is in it.
fn train_file(scratch: &Scratch, file: &str, more: &[&str]) -> (i32, Vec<Value>) {
    let (data, out) = (scratch.path(file), scratch.path("out"));
    fs::remove_dir_all(&out).ok();
    events(&[&["train", "--data", &data, "--batch", "4", "--steps", "1", "--out", &out], more].concat())
}

fn message(told: &[Value]) -> &str {
    told.last().and_then(|e| e["message"].as_str()).unwrap_or_else(|| panic!("no error: {told:?}"))
}

#[test]
fn a_table_without_a_header_keeps_its_first_row() {
    let scratch = Scratch::new("no-header");
    let rows = |line: fn(usize) -> String| (0..10).map(line).collect::<String>();
    let numbers = rows(|n| format!("{},{n},0.5\n", n % 2));
    let words = rows(|n| format!("{n},0.5,{}\n", ["cat", "dog"][n % 2]));
    for (name, text, label, header, why) in [
        ("numbers", numbers.clone(), "0", "false", "the first line is all numbers"),
        ("words", words.clone(), "2", "false", "the first line has words and numbers where the others have"),
        ("named", format!("1990,1991,label\n{words}"), "label", "true", "the first line has the label's name"),
        ("header", format!("label,b,c\n{numbers}"), "label", "true", "the first line has the label's name"),
    ] {
        scratch.write(&format!("{name}.csv"), text);
        let (code, told) = train_file(&scratch, &format!("{name}.csv"), &["--model", "mlp"]);
        assert_eq!(code, 0, "{name}: {told:?}");
        let data = find(&told, "data");
        let samples = [&data["train_samples"], &data["test_samples"]].map(|n| n.as_u64().unwrap_or(0));
        assert_eq!(samples, [8, 2], "{name}");
        let assumed = &data["assumed"];
        assert_eq!((&assumed["data.header"], &assumed["data.label"]), (&header.into(), &label.into()), "{name}");
        let run = fs::read_to_string(scratch.path("out/run.toml")).expect("what the run is");
        assert!(
            run.contains(&format!("header = {header}\n")) && run.contains(&format!("label = \"{label}\"")),
            "{run}"
        );
        let text = stdout(&memfit(&["plan", "--data", &scratch.path(&format!("{name}.csv"))]));
        assert!(text.contains(&format!("data.header {header} ({why})")), "{text}");
        let judged = crate::common::event(&["eval", &scratch.path("out")]);
        assert_eq!(judged["samples"], 2, "{name}: it is read as it was");
    }
    // Tables of one run are alike.
    let run = scratch.write("run.toml", "[data]\ntrain = \"header.csv\"\ntest = \"numbers.csv\"\n");
    let (code, told) = events(&["train", &run]);
    assert!(code == 4 && message(&told).contains("numbers.csv: its first line has no names"), "{told:?}");
}

#[test]
fn the_folder_of_a_run_that_says_nothing_of_a_header_has_one() {
    let scratch = Scratch::new("old-header");
    scratch.write("rows.csv", (5..15).map(|n| format!("{n},{}\n", 1 - n % 2)).collect::<String>());
    let (code, _) = train_file(&scratch, "rows.csv", &["--header", "true", "--label", "0"]);
    assert_eq!(code, 0);
    let file = scratch.path("out/run.toml");
    let text = fs::read_to_string(&file).expect("what the run is").replace("header = true\n", "");
    fs::write(&file, text).expect("it can be written");
    let (code, told) = events(&["train", "--resume", &scratch.path("out"), "--steps", "2"]);
    assert_eq!((code, &find(&told, "data")["train_samples"]), (0, &7.into()), "{told:?}");
}

#[test]
fn numbers_that_are_no_classes_are_told_with_their_line() {
    let scratch = Scratch::new("no-classes");
    scratch.write("minus.csv", "a,label\n1,0\n2,1\n3,-1\n4,0\n");
    let (code, told) = train_file(&scratch, "minus.csv", &[]);
    let told = message(&told);
    assert!(
        code == 4 && told.contains("minus.csv: line 4: column \"label\" is \"-1\", and classes are 0, 1"),
        "{told}"
    );
    scratch.write("price.csv", "a,price\n1,2.5\n2,3\n3,1\n");
    let (code, told) = train_file(&scratch, "price.csv", &["--label", "price"]);
    let told = message(&told);
    let parts = ["line 2: column \"price\" is \"2.5\"", "a number and no class", "--label", "--task regression"];
    assert!(code == 4 && parts.iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn what_a_run_file_says_of_data_can_be_typed() {
    let scratch = Scratch::new("data-options");
    scratch.write("rows.data", (0..10).map(|n| format!("{n},{}\n", n % 2)).collect::<String>());
    let said = ["--kind", "csv", "--header", "false", "--label", "1"];
    let (code, told) = train_file(&scratch, "rows.data", &said);
    assert_eq!((code, &find(&told, "data")["train_samples"]), (0, &8.into()), "{told:?}");
    let (code, told) = train_file(&scratch, "rows.data", &["--kind", "digits"]);
    assert!(code == 2 && message(&told).contains("the digits are built in"), "{told:?}");
    let file = scratch.path("run.toml");
    let data = scratch.path("rows.data");
    assert!(memfit(&[&["init", &file, "--data", &data], &said[..]].concat()).status.success());
    let text = fs::read_to_string(&file).expect("a run file");
    for line in ["kind = \"csv\"", "header = false", "label = \"1\"", "name = \"mlp\""] {
        assert!(text.contains(&format!("\n{line}")), "{text}");
    }
}

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Rows of two numbers with these labels, of a type and a shape, as x and y.
fn labelled(scratch: &Scratch, file: &str, descr: &str, shape: &[usize], labels: &[u8]) {
    let x: Vec<f32> = (0..2 * shape[0]).map(|n| n as f32).collect();
    let arrays = [("x", npy("<f4", &[shape[0], 2], &f32s(&x))), ("y", npy(descr, shape, labels))];
    scratch.write(file, npz(&arrays));
}

#[test]
fn whole_floats_and_one_hot_rows_are_classes_and_said_to_be() {
    let scratch = Scratch::new("array-labels");
    let classes: Vec<usize> = (0..12).map(|n| n * 7 % 4).collect();
    let integers: Vec<u8> = classes.iter().flat_map(|c| (*c as i64).to_le_bytes()).collect();
    let hot = |at: usize| (0..4).map(move |n| if n == at { 1.0 } else { 0.0 });
    labelled(&scratch, "integers.npz", "<i8", &[12], &integers);
    let floats: Vec<f32> = classes.iter().map(|c| *c as f32).collect();
    labelled(&scratch, "floats.npz", "<f4", &[12, 1], &f32s(&floats));
    let rows: Vec<f32> = classes.iter().flat_map(|c| hot(*c)).collect();
    labelled(&scratch, "rows.npz", "<f4", &[12, 4], &f32s(&rows));
    let (_, expected) = train_file(&scratch, "integers.npz", &[]);
    for (file, stored, words) in
        [("floats.npz", "whole_floats", "floats, all of them whole"), ("rows.npz", "one_hot", "one-hot rows")]
    {
        let (code, told) = train_file(&scratch, file, &[]);
        let classes = &find(&told, "data")["classes"];
        assert_eq!((code, &classes["count"], &classes["labels"]), (0, &4.into(), &stored.into()), "{told:?}");
        assert_eq!(find(&told, "step")["loss"], find(&expected, "step")["loss"], "{file}");
        let text = stdout(&memfit(&["plan", "--data", &scratch.path(file)]));
        assert!(text.contains(words), "{text}");
        assert_eq!(crate::common::event(&["eval", &scratch.path("out")])["samples"], 2);
    }
    for (file, shape, labels, parts) in [
        (
            "prices.npz",
            &[4][..],
            &[0.0, 1.0, 2.5, 1.0][..],
            &["array \"y\", row 2", "2.5", "a number and no class", "--task regression"][..],
        ),
        ("minus.npz", &[4], &[0.0, 1.0, 1.0, -1.0], &["array \"y\", row 3", "is -1", "classes are 0, 1"]),
        ("warm.npz", &[2, 2], &[0.0, 1.0, 0.5, 0.5], &["array \"y\", row 1", "not one-hot"]),
    ] {
        labelled(&scratch, file, "<f4", shape, &f32s(labels));
        let (code, told) = train_file(&scratch, file, &[]);
        let told = message(&told);
        assert!(code == 4 && parts.iter().all(|part| told.contains(part)), "{file}: {told}");
    }
}

#[test]
fn labels_of_a_test_set_count_before_the_training() {
    let scratch = Scratch::new("test-labels");
    let rows = |n: usize| npy("<f4", &[n, 2], &f32s(&vec![0.5; 2 * n]));
    let arrays = |test: [i8; 4]| {
        let labels = npy("|i1", &[4], &test.map(|label| label as u8));
        let train = npy("|i1", &[8], &[0, 1, 2, 3, 0, 1, 2, 3]);
        npz(&[("x_train", rows(8)), ("y_train", train), ("x_test", rows(4)), ("y_test", labels)])
    };
    scratch.write("more.npz", arrays([0, 1, 5, 2]));
    let (code, told) = train_file(&scratch, "more.npz", &[]);
    let problem = message(&told);
    let parts = ["array \"y_test\", row 2: the label is 5, outside of 0..4", "--classes"];
    assert!(code == 4 && parts.iter().all(|part| problem.contains(part)), "{problem}");
    assert!(told.iter().all(|e| e["event"] != "step"), "{told:?}");
    let (code, told) = train_file(&scratch, "more.npz", &["--classes", "6"]);
    let warnings = find(&told, "data")["warnings"].as_array().expect("a list").clone();
    assert_eq!((code, warnings.len()), (0, 0), "the test set has them: {warnings:?}");
    scratch.write("minus.npz", arrays([0, -1, 1, 2]));
    let (code, told) = train_file(&scratch, "minus.npz", &[]);
    assert!(code == 4 && message(&told).contains("\"y_test\", row 1: the label is -1, and classes are 0"), "{told:?}");
}

#[test]
fn pictures_with_their_channels_first_are_turned() {
    let scratch = Scratch::new("channels-first");
    let (count, size) = (6, 8 * 8);
    // Of which each pixel and each channel is another number.
    let value = |sample: usize, pixel: usize, channel: usize| (sample * 40 + pixel * 3 + channel) as u8;
    let first: Vec<u8> = (0..count * 3 * size).map(|n| value(n / (3 * size), n % size, n / size % 3)).collect();
    let last: Vec<u8> = (0..count * 3 * size).map(|n| value(n / (3 * size), n / 3 % size, n % 3)).collect();
    let y = npy("|u1", &[count], &[0, 1, 0, 1, 0, 1]);
    scratch.write("first.npz", npz(&[("x", npy("|u1", &[count, 3, 8, 8], &first)), ("y", y.clone())]));
    scratch.write("last.npz", npz(&[("x", npy("|u1", &[count, 8, 8, 3], &last)), ("y", y)]));
    let digits = ["--model", "digits"];
    let (code, turned) = train_file(&scratch, "first.npz", &digits);
    let input = &find(&turned, "data")["input"];
    let shapes = (&input["shape"], &input["channels_first"]);
    assert_eq!((code, shapes), (0, (&serde_json::json!([8, 8, 3]), &serde_json::json!([3, 8, 8]))), "{turned:?}");
    let judged = crate::common::event(&["eval", &scratch.path("out"), "--data", &scratch.path("last.npz")]);
    let own = crate::common::event(&["eval", &scratch.path("out"), "--data", &scratch.path("first.npz")]);
    assert_eq!(judged["scores"], own["scores"]);
    let (_, plain) = train_file(&scratch, "last.npz", &digits);
    assert_eq!(find(&turned, "step")["loss"], find(&plain, "step")["loss"]);
    let (code, told) = train_file(&scratch, "first.npz", &["--model", "digits", "--input", "3x8x8"]);
    assert!(code == 2 && message(&told).contains("channels first (3x8x8)"), "{told:?}");
    assert!(message(&told).contains("leave out --input"), "{told:?}");
    let text = stdout(&memfit(&["plan", "--data", &scratch.path("first.npz")]));
    assert!(text.contains("the array is channels first (3x8x8), and turned while it is read"), "{text}");
}

#[test]
fn evaluation_says_what_it_evaluates_and_knows_the_training_set() {
    let scratch = Scratch::new("evaluated");
    let set = |rows: usize, shift: f32| {
        let x: Vec<f32> = (0..2 * rows).map(|n| n as f32 / 8.0 + shift).collect();
        let y: Vec<u8> = (0..rows).map(|n| n as u8 % 2).collect();
        (npy("<f4", &[rows, 2], &f32s(&x)), npy("|u1", &[rows], &y))
    };
    let ((x, y), (test_x, test_y)) = (set(20, 0.0), set(6, 0.5));
    let four = [("x_train", x.clone()), ("y_train", y.clone()), ("x_test", test_x.clone()), ("y_test", test_y.clone())];
    scratch.write("four.npz", npz(&four));
    scratch.write("two.npz", npz(&[("x", x), ("y", y)]));
    scratch.write("other.npz", npz(&[("x", test_x), ("y", test_y)]));
    let run = scratch.path("out");
    let judge = |file: &str| crate::common::event(&["eval", &run, "--data", &scratch.path(file)]);
    let trained_on = |file: &str| judge(file)["trained_on"].as_f64().map(|share| (share * 100.0).round());
    assert_eq!(train_file(&scratch, "four.npz", &[]).0, 0);
    assert_eq!(judge("four.npz")["arrays"], serde_json::json!({ "features": "x_test", "label": "y_test" }));
    assert_eq!(["four.npz", "other.npz", "two.npz"].map(trained_on), [Some(0.0), Some(0.0), Some(100.0)]);
    let text = stdout(&memfit(&["eval", &run, "--data", &scratch.path("four.npz")]));
    assert!(text.starts_with(&format!("evaluating x_test and y_test of {}\n", scratch.path("four.npz"))), "{text}");
    assert!(!text.contains("warning"), "{text}");
    let text = stdout(&memfit(&["eval", &run, "--data", &scratch.path("two.npz")]));
    assert!(text.contains("warning: these are the samples that the model was trained on"), "{text}");
    // A copy as the test set is the training set too.
    scratch.write("copy.npz", fs::read(scratch.path("two.npz")).expect("it is there"));
    let copied = scratch.write("run.toml", "[data]\ntrain = \"two.npz\"\ntest = \"copy.npz\"\n[train]\nbatch = 4\n");
    let (_, told) = events(&["plan", &copied]);
    assert_eq!(find(&told, "data")["test_is_training_data"], true, "{told:?}");
    // A fifth is held out, and a folder is known by what it holds.
    let data = photos(&scratch, 5);
    assert_eq!(train_file(&scratch, "photos", &["--model", "digits", "--input", "8x8x3"]).0, 0);
    assert_eq!(trained_on("photos"), Some(80.0));
    let text = stdout(&memfit(&["eval", &run, "--data", &data]));
    assert!(text.contains("warning: the model was trained on these samples, but for the share of 0.2"), "{text}");
    assert_eq!(crate::common::event(&["eval", &run])["trained_on"], 0.0);
    // Of a folder of both sets, the one for evaluation.
    for (set, count) in [("train", 5), ("test", 2)] {
        for name in ["cat", "dog"].iter().flat_map(|class| (0..count).map(move |n| format!("{class}/{n}.png"))) {
            let picture = fs::read(scratch.path(&format!("photos/{name}"))).expect("a picture");
            scratch.write(&format!("both/{set}/{name}"), picture);
        }
    }
    assert_eq!(judge("both")["samples"], 4);
    let text = stdout(&memfit(&["eval", &run, "--data", &scratch.path("both")]));
    assert!(text.starts_with(&format!("evaluating {}\n", scratch.path("both/test"))), "{text}");
}

#[test]
fn masks_of_three_values_are_no_soft_edges() {
    let scratch = Scratch::new("three-levels");
    for n in 0..6 {
        let image = scratch.write(&format!("cells/images/{n}.png"), "");
        write_png(&image, [8, 8], &Pixels::Grey(&[n; 64]));
        let mask = scratch.write(&format!("cells/masks/{n}.png"), "");
        let values: Vec<u8> = (0..64).map(|at| [0, 255, 127][if at < 4 { 2 } else { at % 2 }]).collect();
        write_png(&mask, [8, 8], &Pixels::Grey(&values));
    }
    let (code, told) = train_file(&scratch, "cells", &["--input", "16x16x3"]);
    let problem = message(&told);
    let table = "colours = [\"#000000\", \"#7f7f7f\", \"#ffffff\"]";
    let parts = ["0, 127, 255", "\"binary\"", "\"grey\"", table, "--masks"];
    assert!(code == 4 && parts.iter().all(|part| problem.contains(part)), "{problem}");
    let (code, told) = train_file(&scratch, "cells", &["--input", "16x16x3", "--masks", "grey"]);
    assert_eq!((code, &find(&told, "data")["masks"]["kind"]), (0, &"grey".into()));
    let file = scratch.write("run.toml", format!("[data]\ntrain = \"cells\"\n{table}\n[model]\ninput = [16, 16, 3]\n"));
    let (code, told) = events(&["plan", &file, "--batch", "2"]);
    assert_eq!((code, &find(&told, "data")["classes"]["count"]), (0, &3.into()), "{told:?}");
}

#[test]
fn samples_of_one_class_alone_get_a_warning() {
    let scratch = Scratch::new("one-class");
    labelled(&scratch, "same.npz", "|u1", &[12], &[0; 12]);
    let (code, told) = train_file(&scratch, "same.npz", &[]);
    assert_eq!((code, &find(&told, "data")["warnings"][0]["kind"]), (0, &"one_class".into()), "{told:?}");
    let text = stdout(&memfit(&["plan", "--data", &scratch.path("same.npz")]));
    assert!(text.contains("all samples are of class 0") && !text.contains("background"), "{text}");
}

#[test]
fn a_row_that_lacks_a_cell_is_said_to_and_not_its_neighbour_to_be_no_number() {
    let scratch = Scratch::new("ragged");
    let row = |n: usize| if n == 5 { "1,cat\n".into() } else { format!("{n},2,{}\n", ["cat", "dog"][n % 2]) };
    scratch.write("rows.csv", format!("a,b,label\n{}", (0..20).map(row).collect::<String>()));
    // All of them are read, be it for the step or for its evaluation.
    let (data, out) = (scratch.path("rows.csv"), scratch.path("out"));
    let (code, told) = events(&["train", "--data", &data, "--batch", "16", "--steps", "1", "--out", &out]);
    let said = message(&told);
    assert!(code == 4 && said.contains("line 7: the row has 2 columns, and the first one has 3"), "{said}");
}
