//! The `golden` command: what it prints, and the codes with which it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memfit_exec_tests::golden::directory;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// Exit code, standard output and standard error.
fn golden(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_golden")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn bundled() -> String {
    directory().to_str().unwrap().to_string()
}

/// A directory with this list of cases and the tensors `c/in/x` = [1, 2] and `c/out` = [−1, −2].
fn written(name: &str, list: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("golden.json"), list).unwrap();
    let bytes = |numbers: [f32; 2]| numbers.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    let (x, out) = (bytes([1.0, 2.0]), bytes([-1.0, -2.0]));
    let view = |bytes| TensorView::new(Dtype::F32, vec![2], bytes).unwrap();
    let tensors = [("c/in/x", view(&x)), ("c/out", view(&out))];
    fs::write(path.join("golden.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn each_case_has_a_line_and_the_last_line_counts() {
    for device in ["reference", "cpu"] {
        let (code, out, _) = golden(&[&bundled(), "--device", device, "--threads=2", "--case", "pool"]);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(code, 0, "{out}");
        assert_eq!(lines.last(), Some(&"4 passed, 0 failed"));
        let words: Vec<&str> = lines[0].split_whitespace().collect();
        assert_eq!(words[..2], ["ok", "max_pool_2x2"]);
        assert!(words[2].parse::<f64>().unwrap() < 2e-5);
    }
}

#[test]
fn a_case_that_fails_or_cannot_be_read_does_not_stop_the_rest() {
    let list = r#"{ "cases": [
        { "case": "c", "op": "abs", "inputs": { "x": [2] } },
        { "case": "absent", "op": "neg", "inputs": { "x": [2] } },
        { "case": "huge", "op": "neg", "attrs": 7 },
        { "case": "c", "op": "neg", "inputs": { "x": [2] } }
    ] }"#;
    let (code, out, _) = golden(&[&written("command_partly", list), "--device", "reference"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(code, 1, "{out}");
    assert!(lines[0].starts_with("FAIL  c       out: element [0] is 1, expected -1;"), "{out}");
    assert!(lines[1].starts_with("FAIL  absent") && lines[1].ends_with("\"absent/in/x\" is missing"), "{out}");
    assert!(lines[2].starts_with("FAIL  huge"), "{out}");
    assert_eq!(lines[3..], ["ok    c       0.0e0", "1 passed, 3 failed"]);
}

#[test]
fn malformed_cases_fail_without_a_panic() {
    let strange = [
        r#""op": "pad", "attrs": { "pads": [[0, 2000000000]] }"#,
        r#""op": "pad", "attrs": { "pads": [[0, 18446744073709551615]] }"#,
        r#""op": "conv2d", "attrs": { "stride": 0 }"#,
        r#""op": "transpose", "attrs": { "perm": [0, 0] }"#,
        r#""op": "reshape", "attrs": { "shape": [] }"#,
        r#""op": "softmax", "attrs": { "axis": -9 }"#,
        r#""op": "gather""#,
        r#""op": "group_norm", "attrs": { "groups": 0 }"#,
        r#""op": "max_pool", "attrs": { "size": 99999999999 }"#,
        r#""op": "sgd", "attrs": { "lr": 1 }, "steps": 3"#,
        r#""op": "sgd", "attrs": { "lr": "fast" }, "steps": 100000000000"#,
        r#""op": "run""#,
        r#""op": "run", "spec": { "layers": "dense", "optimizer": "sgd lr 1", "steps": 1 }, "losses": [1]"#,
        r#""op": "run", "spec": { "heads": 0, "optimizer": "sgd lr 1" }, "losses": []"#,
        r#""op": "neg", "grads": ["z"]"#,
    ];
    let cases: Vec<String> =
        strange.iter().map(|s| format!(r#"{{ "case": "c", "inputs": {{ "x": [2] }}, {s} }}"#)).collect();
    let list = format!(r#"{{ "cases": [{}] }}"#, cases.join(","));
    let (code, out, err) = golden(&[&written("command_strange", &list), "--device", "reference"]);
    assert_eq!((code, out.lines().last().unwrap()), (1, format!("0 passed, {} failed", strange.len()).as_str()));
    assert_eq!(err, "", "nothing panicked");
}

#[test]
fn wrong_use_says_how_to_do_it_right() {
    let empty = written("command_empty", "[]");
    for (arguments, cure) in [
        (&[][..], "give a directory with golden.json and golden.safetensors; see --help"),
        (&["nowhere"], "cannot read nowhere/golden.json"),
        (&[&empty], "golden.json is not a list of golden cases"),
        (&[".", "--device", "abacus"], "\"abacus\" is not a device; use cpu, gpu, gpu:1 or reference"),
        (&[".", "--device"], "--device needs a value; see --help"),
        (&[".", "--threads", "0"], "\"0\" is not a number of threads; use 1 or more"),
        (&[".", "--frobnicate"], "--frobnicate is not an option; see --help"),
        (&[".", "there"], "\"there\" is one directory too many; give one"),
        (&[&bundled(), "--case", "zzz"], "no case has \"zzz\" in its name; leave --case out to run all"),
    ] {
        let (code, out, err) = golden(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        assert!(err.contains(cure), "{arguments:?}: {err}");
    }
}

#[test]
fn help_has_an_example() {
    let (code, out, _) = golden(&["--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("Usage: golden DIR") && out.contains("Example: golden "), "{out}");
}
