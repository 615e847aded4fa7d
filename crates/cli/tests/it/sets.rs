//! Every set that lies beside the training set is used, or told of; and tables that are evaluated may be unlike those of the run,
//! where that is said.

use serde_json::Value;

use crate::common::{Scratch, check_error, events, memfit, stdout};
use crate::files::{Pixels, npy, npz, write_png};

/// A set of pictures of two classes.
fn pictures(scratch: &Scratch, folder: &str, each: u8) {
    for class in ["cat", "dog"] {
        for n in 0..each {
            let path = scratch.write(&format!("{folder}/{class}/{n}.png"), "");
            write_png(&path, [8, 8], &Pixels::Rgb(&[10 * n + folder.len() as u8; 8 * 8 * 3]));
        }
    }
}

/// What a header says of data: the event, and its warnings as kind and message.
fn header(args: &[&str]) -> (Value, Vec<(String, String)>) {
    let (code, told) = events(&[&["plan", "--batch", "2"], args].concat());
    assert_eq!(code, 0, "{told:?}");
    let data = told.iter().find(|e| e["event"] == "data").unwrap_or_else(|| panic!("no data: {told:?}")).clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let warnings = data["warnings"].as_array().expect("a list");
    let warnings = warnings.iter().map(|w| (text(&w["kind"]), text(&w["message"]))).collect();
    (data, warnings)
}

#[test]
fn a_folder_beside_the_training_set_is_used_or_told() {
    let scratch = Scratch::new("sets-folders");
    pictures(&scratch, "photos/train", 6);
    pictures(&scratch, "photos/val", 2);
    let of = |folder: &str| scratch.path(folder);
    let small = ["--input", "8x8x3"];
    let (data, warnings) = header(&[&["--data", &of("photos")], &small[..]].concat());
    assert_eq!((&data["train_samples"], &data["test_samples"], warnings.len()), (&12.into(), &4.into(), 0), "{data}");
    // Named by itself, the training set has no other.
    let (data, warnings) = header(&[&["--data", &of("photos/train")], &small[..]].concat());
    assert_eq!(data["test_from"], "held_out");
    let [(kind, message)] = &warnings[..] else { panic!("{warnings:?}") };
    let cure = format!("--test {} takes it as the test set", of("photos/val"));
    assert!(kind == "unused_folder" && message.contains(&cure), "{message}");
    let named = ["--data", &of("photos/train"), "--test", &of("photos/val")];
    let (data, warnings) = header(&[&named, &small[..]].concat());
    assert_eq!((&data["test_samples"], warnings.len()), (&4.into(), 0), "{data}");
    // Of three sets one is left, and what is none of them.
    pictures(&scratch, "photos/test", 3);
    pictures(&scratch, "photos/old", 1);
    let (data, warnings) = header(&[&["--data", &of("photos")], &small[..]].concat());
    assert_eq!((&data["test_samples"], &data["classes"]["count"]), (&6.into(), &2.into()), "{data}");
    let told: Vec<&str> = warnings.iter().map(|(_, message)| message.as_str()).collect();
    assert!(told.len() == 2 && told[0].contains("photos/val is not used"), "{told:?}");
    assert!(told[1].contains("photos/old beside train is not used"), "{told:?}");
    // A test set that is named does not make classes of the sets.
    let (data, _) = header(&[&["--data", &of("photos"), "--test", &of("photos/val")], &small[..]].concat());
    assert_eq!((&data["test_samples"], &data["classes"]["count"]), (&4.into(), &2.into()), "{data}");
}

#[test]
fn arrays_beside_those_of_the_training_set_are_used_or_told() {
    let scratch = Scratch::new("sets-arrays");
    let x = |rows: usize| npy("|u1", &[rows, 3], &vec![rows as u8; rows * 3]);
    let y = |rows: usize| npy("|u1", &[rows], &(0..rows).map(|n| (n % 2) as u8).collect::<Vec<_>>());
    let both = [("x_train", x(20)), ("y_train", y(20)), ("x_val", x(8)), ("y_val", y(8))];
    scratch.write("two.npz", npz(&both));
    let (data, warnings) = header(&["--data", &scratch.path("two.npz")]);
    assert_eq!((&data["test_samples"], warnings.len()), (&8.into(), 0), "{data}");
    scratch.write("three.npz", npz(&[&both[..], &[("x_test", x(6)), ("y_test", y(6))]].concat()));
    let (data, warnings) = header(&["--data", &scratch.path("three.npz")]);
    assert_eq!(data["test_arrays"]["features"], "x_test");
    let [(kind, message)] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(kind == "unused_arrays" && message.contains("data.test_features = \"x_val\""), "{message}");
}

#[test]
fn a_table_with_another_first_line_than_those_of_the_run_is_named_and_can_be_evaluated() {
    let scratch = Scratch::new("sets-header");
    let rows: String = (0..20).map(|n| format!("{},{},{}\n", n, n * 2, n % 2)).collect();
    let named = scratch.write("named.csv", format!("a,b,label\n{rows}"));
    let plain = scratch.write("plain.csv", &rows);
    let renamed = scratch.write("renamed.csv", format!("a,b,kind\n{rows}"));
    let (of_named, of_plain) = (scratch.path("of-named"), scratch.path("of-plain"));
    let train = |data: &str, more: &[&str], out: &str| {
        let args = [&["train", "--data", data, "--batch", "4", "--steps", "1", "--out", out], more].concat();
        assert!(memfit(&args).status.success(), "{data}");
    };
    train(&named, &[], &of_named);
    train(&plain, &["--label", "2"], &of_plain);
    let score = |args: &[&str]| {
        let text = stdout(&memfit(&[&["eval"], args].concat()));
        text.split("test loss ").nth(1).unwrap_or_else(|| panic!("{args:?}: {text}")).to_string()
    };
    let has_none = ["its first line has no names of columns", "say --header false"];
    check_error(&["eval", &of_named, "--data", &plain], 4, &has_none);
    let which = ["the run knows its label as \"label\"", "--label"];
    check_error(&["eval", &of_named, "--data", &plain, "--header", "false"], 4, &which);
    let same = score(&[&of_named, "--data", &named]);
    assert_eq!(score(&[&of_named, "--data", &plain, "--header", "false", "--label", "2"]), same);
    assert_eq!(score(&[&of_named, "--data", &renamed, "--label", "kind"]), same);
    check_error(&["eval", &of_named, "--data", &renamed], 4, &["no column \"label\"", "with --label"]);
    check_error(&["eval", &of_plain, "--data", &named], 4, &["its first line names the columns", "say --header true"]);
    let same = score(&[&of_plain, "--data", &plain]);
    assert_eq!(score(&[&of_plain, "--data", &named, "--header", "true"]), same);
    check_error(&["eval", &of_plain, "--label", "1"], 2, &["--label is of other data", "--data PATH"]);
}
