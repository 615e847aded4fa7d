//! Arrays that are not what a run reads: what is there is named with its type and shape, and with what makes it right.

use crate::common::{Scratch, check_error, memfit, stdout};
use crate::files::{floats, npy, npz};

/// Twenty rows of six numbers, and their classes.
fn arrays() -> (Vec<u8>, Vec<u8>) {
    let (x, y): (Vec<u8>, Vec<u8>) = ((0..120).collect(), (0..20).map(|n| n % 2).collect());
    (npy("|u1", &[20, 6], &x), npy("|u1", &[20], &y))
}

/// Trains on a file, which is refused with these words.
fn check_refused(scratch: &Scratch, file: &str, more: &[&str], expected: &[&str]) {
    let (data, out) = (scratch.path(file), scratch.path("out"));
    check_error(
        &[&["train", "--data", &data, "--batch", "4", "--steps", "1", "--out", &out], more].concat(),
        4,
        expected,
    );
}

#[test]
fn arrays_without_the_usual_names_are_listed_and_can_be_named() {
    let scratch = Scratch::new("arrays-unnamed");
    let (x, y) = arrays();
    scratch.write("arr.npz", npz(&[("arr_0", x.clone()), ("arr_1", y.clone())]));
    let listed = "there are arr_0 (uint8, 20x6), arr_1 (uint8, 20)";
    check_refused(&scratch, "arr.npz", &[], &["no array \"x\"", listed, ": --features arr_0 --label arr_1"]);
    let (data, out) = (scratch.path("arr.npz"), scratch.path("out"));
    let named = ["--features", "arr_0", "--label", "arr_1"];
    let args = ["train", "--data", &data, "--batch", "4", "--steps", "1", "--out", &out];
    assert!(memfit(&[&args[..], &named].concat()).status.success());
    // What a run has its names from, other data may lack.
    scratch.write("other.npz", npz(&[("a", x.clone()), ("b", y)]));
    let other = scratch.path("other.npz");
    check_error(&["eval", &out, "--data", &other], 4, &["there are a (uint8, 20x6)", ": --features a --label b"]);
    let text = stdout(&memfit(&["eval", &out, "--data", &other, "--features", "a", "--label", "b"]));
    assert!(text.contains("evaluating a and b of") && text.contains("20 samples"), "{text}");
    scratch.write("alone.npz", npz(&[("x", x)]));
    check_refused(
        &scratch,
        "alone.npz",
        &[],
        &["no array \"y\"", "there are x (uint8, 20x6)", "np.savez(FILE, x=x, y=y)"],
    );
}

#[test]
fn labels_that_are_words_are_told_how_to_become_classes() {
    let scratch = Scratch::new("arrays-words");
    let (x, y) = arrays();
    let words: Vec<u8> =
        (0..20).flat_map(|n| ["cat", "dog"][n % 2].chars().flat_map(|c| (c as u32).to_le_bytes())).collect();
    for (name, array, expected) in [
        ("words", npy("<U3", &[20], &words), &["array \"y\"", "words (<U3)", "return_inverse=True)[1]"][..]),
        ("objects", npy("|O", &[20], b"\x80\x04."), &["words (object)", "y = np.unique(y.astype(str)"]),
        ("pairs", npy("<c8", &[20], &[0; 160]), &["elements of type complex64 are not read", "y.astype(\"int64\")"]),
    ] {
        let file = format!("{name}.npz");
        scratch.write(&file, npz(&[("x", x.clone()), ("y", array)]));
        check_refused(&scratch, &file, &[], expected);
        check_refused(&scratch, &file, &["--skip-bad"], expected);
    }
    scratch.write("samples.npz", npz(&[("x", npy("|O", &[20], b"\x80\x04.")), ("y", y)]));
    check_refused(&scratch, "samples.npz", &["--model", "mlp"], &["array \"x\"", "x = np.stack(x)"]);
}

#[test]
fn labels_without_a_sign_are_classes_of_whatever_width() {
    let scratch = Scratch::new("arrays-unsigned");
    let (x, _) = arrays();
    let labels = |descr: &str, last: u64| {
        let bytes = (0..20).map(|n| if n == 19 { last } else { n % 3 }).flat_map(|label| match descr {
            ">u4" => (label as u32).to_be_bytes().to_vec(),
            "<u4" => (label as u32).to_le_bytes().to_vec(),
            _ => label.to_le_bytes().to_vec(),
        });
        npy(descr, &[20], &bytes.collect::<Vec<u8>>())
    };
    for (descr, too_large) in [("<u4", 1 << 31), (">u4", u64::from(u32::MAX)), ("<u8", 1 << 40), ("<u8", u64::MAX)] {
        let out = scratch.path(&format!("run-{too_large}"));
        scratch.write("good.npz", npz(&[("x", x.clone()), ("y", labels(descr, 2))]));
        let data = scratch.path("good.npz");
        let text = stdout(&memfit(&["train", "--data", &data, "--batch", "4", "--steps", "1", "--out", &out]));
        assert!(text.contains("0: 7, 1: 6, 2: 7 of the samples"), "{descr}: {text}");
        scratch.write("bad.npz", npz(&[("x", x.clone()), ("y", labels(descr, too_large))]));
        check_refused(&scratch, "bad.npz", &[], &["row 19", &format!("{too_large} does not fit into an i32")]);
    }
}

#[test]
fn a_single_array_is_told_where_the_other_one_belongs() {
    let scratch = Scratch::new("arrays-single");
    let (x, y) = arrays();
    scratch.write("x.npy", &x);
    for kind in [&[][..], &["--kind", "npz"]] {
        check_refused(&scratch, "x.npy", kind, &["is a single array", "np.savez(\"data.npz\", x=x, y=y)"]);
    }
    scratch.write("both/x.npy", &x);
    scratch.write("both/y.npy", &y);
    check_refused(&scratch, "both/x.npy", &[], &["name the folder that has both, ", "/both"]);
}

#[test]
fn nobody_is_told_to_leave_out_what_would_leave_nothing() {
    let scratch = Scratch::new("arrays-numbers");
    let rows: Vec<[f32; 2]> = (0..20).map(|n| [n as f32, 1.0]).collect();
    let labels = |numbers: &[f32]| {
        npy("<f4", &[numbers.len()], &numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
    };
    let all: Vec<f32> = (0..20).map(|n| n as f32 * 0.37).collect();
    let one: Vec<f32> = (0..20).map(|n| if n == 7 { 0.5 } else { (n % 2) as f32 }).collect();
    scratch.write("all.npz", npz(&[("x", floats(&rows)), ("y", labels(&all))]));
    scratch.write("one.npz", npz(&[("x", floats(&rows)), ("y", labels(&one))]));
    let soft: Vec<u8> = [0.5f32; 40].iter().flat_map(|x| x.to_le_bytes()).collect();
    scratch.write("soft.npz", npz(&[("x", floats(&rows)), ("y", npy("<f4", &[20, 2], &soft))]));
    let refused = |file: &str, more: &[&str]| {
        let (data, out) = (scratch.path(file), scratch.path("out"));
        let output =
            memfit(&[&["train", "--data", &data, "--batch", "4", "--steps", "1", "--out", &out], more].concat());
        assert_eq!(output.status.code(), Some(4), "{file}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let message = refused("all.npz", &["--task", "classification"]);
    assert!(message.contains("of 20 rows, 19 have no class") && !message.contains("--skip-bad"), "{message}");
    for more in [&[][..], &["--skip-bad"]] {
        let message = refused("soft.npz", more);
        assert!(message.contains("of 20 rows, 20 have no class") && !message.contains("--skip-bad"), "{message}");
    }
    let message = refused("one.npz", &[]);
    assert!(message.contains("row 7") && message.ends_with("or leave them out: --skip-bad\n"), "{message}");
    let table: String = (0..20).map(|n| format!("{n},word {n},{}\n", n % 2)).collect();
    scratch.write("table.csv", format!("a,b,label\n{table}"));
    let message = refused("table.csv", &[]);
    assert!(
        message.contains("column \"b\" has words, such as \"word 0\"") && !message.contains("--skip-bad"),
        "{message}"
    );
}
