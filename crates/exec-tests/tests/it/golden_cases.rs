//! Reading golden cases: shapes, attributes and ops other than those of the bundled vectors, and what is said of files
//! that are incomplete or not understood.

use std::fs;
use std::path::{Path, PathBuf};

use memfit_exec_tests::golden::{Case, check, load};
use memfit_exec_tests::{Reference, Result};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

/// Name, shape and elements. Names under `i32/` lose that prefix and are stored as integers.
type Stored<'a> = (&'a str, &'a [usize], &'a [f32]);

fn write(directory: &str, cases: Value, tensors: &[Stored]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("golden.json"), json!({ "cases": cases }).to_string()).unwrap();
    let bytes: Vec<(String, Dtype, &[usize], Vec<u8>)> = tensors
        .iter()
        .map(|&(name, shape, data)| match name.strip_prefix("i32/") {
            Some(name) => {
                (name.into(), Dtype::I32, shape, data.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect())
            }
            None => (name.into(), Dtype::F32, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect()),
        })
        .collect();
    let views = bytes
        .iter()
        .map(|(name, dtype, shape, b)| (name.as_str(), TensorView::new(*dtype, shape.to_vec(), b).unwrap()));
    fs::write(path.join("golden.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    path
}

/// The case of a directory that has one.
fn only(path: &Path) -> Result<Case> {
    load(path)?.remove(0).case
}

/// One op on inputs, written to files, read back and checked on the reference.
fn check_case(op: &str, attrs: Value, inputs: &[Stored], out: Stored) -> Result<()> {
    let plain = |name: &str| name.trim_start_matches("i32/").to_string();
    let shapes: Value = inputs.iter().map(|(n, shape, _)| (plain(n), json!(shape))).collect();
    let named: Vec<(String, &[usize], &[f32])> = inputs
        .iter()
        .map(|(n, shape, data)| {
            (n.strip_prefix("i32/").map_or(format!("c/in/{n}"), |n| format!("i32/c/in/{n}")), *shape, *data)
        })
        .chain([("c/out".to_string(), out.1, out.2)])
        .collect();
    let tensors: Vec<Stored> = named.iter().map(|(n, shape, data)| (n.as_str(), *shape, *data)).collect();
    let list = json!([{ "case": "c", "op": op, "attrs": attrs, "inputs": shapes, "out": out.1, "grads": [] }]);
    // Tests run side by side: each case has a directory of its own.
    let directory = format!("golden_{op}_{:x}", memfit_ir::fingerprint(&list.to_string()));
    check(&mut Reference, &only(&write(&directory, list, &tensors))?).map(drop)
}

fn passes(op: &str, attrs: Value, inputs: &[Stored], out: (&[usize], &[f32])) {
    if let Err(e) = check_case(op, attrs, inputs, ("out", out.0, out.1)) {
        panic!("{op}: {e}");
    }
}

fn fails(op: &str, attrs: Value, inputs: &[Stored]) -> String {
    check_case(op, attrs, inputs, ("out", &[], &[0.0])).unwrap_err().to_string()
}

#[test]
fn unary_ops_take_parameters_from_name_or_attributes() {
    let x: &[Stored] = &[("x", &[2], &[4.0, 0.25])];
    passes("neg", json!({}), x, (&[2], &[-4.0, -0.25]));
    passes("sqrt", json!({}), x, (&[2], &[2.0, 0.5]));
    passes("rsqrt", json!({}), x, (&[2], &[0.5, 2.0]));
    passes("log", json!({}), x, (&[2], &[1.386_294_4, -1.386_294_4]));
    let x: &[Stored] = &[("x", &[2], &[-1.0, 2.0])];
    passes("abs", json!({}), x, (&[2], &[1.0, 2.0]));
    passes("leaky_relu_0.05", json!({}), x, (&[2], &[-0.05, 2.0]));
    passes("leaky_relu", json!({ "negative_slope": 0.5 }), x, (&[2], &[-0.5, 2.0]));
    passes("elu_2", json!({}), x, (&[2], &[-1.264_241_1, 2.0]));
}

#[test]
fn binary_compare_select_and_cast() {
    let xy: &[Stored] = &[("x", &[2], &[2.0, 3.0]), ("y", &[1], &[2.5])];
    passes("min", json!({}), xy, (&[2], &[2.0, 2.5]));
    passes("pow", json!({}), xy, (&[2], &[5.656_854, 15.588_457]));
    passes("less", json!({}), xy, (&[2], &[1.0, 0.0]));
    let choice: &[Stored] = &[("i32/condition", &[2, 1], &[1.0, 0.0]), ("x", &[2], &[1.0, 2.0]), ("y", &[], &[9.0])];
    passes("select", json!({}), choice, (&[2, 2], &[1.0, 2.0, 9.0, 9.0]));
    passes("cast", json!({ "to": "float16" }), &[("x", &[1], &[2049.0])], (&[1], &[2048.0]));
}

#[test]
fn axes_may_be_negative_one_or_absent() {
    let x: &[Stored] = &[("x", &[2, 2], &[1.0, 2.0, 3.0, 5.0])];
    passes("reduce_max", json!({ "axes": -1, "keepdims": true }), x, (&[2, 1], &[2.0, 5.0]));
    passes("reduce_sum", json!({}), x, (&[], &[11.0]));
    passes("reduce_sum_squares", json!({ "axes": [-2] }), x, (&[2], &[10.0, 29.0]));
    passes("transpose", json!({}), x, (&[2, 2], &[1.0, 3.0, 2.0, 5.0]));
    passes("softmax", json!({ "axis": 0 }), &[("x", &[2, 1], &[1.0, 1.0])], (&[2, 1], &[0.5, 0.5]));
}

#[test]
fn windows_take_one_number_or_a_pair() {
    let x: Stored = ("x", &[1, 2, 4, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    passes("max_pool", json!({ "size": [2, 1] }), &[x], (&[1, 1, 4, 1], &[5.0, 6.0, 7.0, 8.0]));
    passes("avg_pool", json!({ "size": 2, "stride": [1, 2] }), &[x], (&[1, 1, 2, 1], &[3.5, 5.5]));
    let w: Stored = ("w", &[1, 2, 1, 1], &[1.0, 10.0]);
    let strided = json!({ "stride": [2, 1], "pad_tblr": [0, 0, 1, 0] });
    passes("conv2d", strided, &[x, w], (&[1, 1, 4, 1], &[10.0, 21.0, 32.0, 43.0]));
    passes("conv2d", json!({ "stride": 2 }), &[x, w], (&[1, 1, 2, 1], &[21.0, 43.0]));
    let x: Stored = ("x", &[1, 1, 2, 1], &[1.0, 2.0]);
    passes("upsample_nearest", json!({ "factor": [1, 2] }), &[x], (&[1, 1, 4, 1], &[1.0, 1.0, 2.0, 2.0]));
    let w: Stored = ("w", &[1, 2, 1, 1], &[1.0, 10.0]);
    passes("conv2d_transpose", json!({}), &[x, w], (&[1, 1, 3, 1], &[1.0, 12.0, 20.0]));
}

#[test]
fn attention_is_of_a_sequence_to_itself_or_to_another() {
    let (q, k, v) = ([1.0], [0.0, 3f32.ln()], [1.0, 2.0, 3.0, 4.0]);
    let across: [Stored; 3] = [("q", &[1, 1, 1, 1], &q), ("k", &[1, 1, 2, 1], &k), ("v", &[1, 1, 2, 2], &v)];
    passes("attention", json!({}), &across, (&[1, 1, 1, 2], &[2.5, 3.5]));
    passes("attention", json!({ "scale": 0.0 }), &across, (&[1, 1, 1, 2], &[2.0, 3.0]));
    let alike = ["q", "k", "v"].map(|name| (name, &[1, 2, 1, 2][..], &v[..]));
    passes("attention", json!({ "causal": true }), &alike, (&[1, 2, 1, 2], &v));
    let error = fails("attention", json!({ "causal": true }), &across);
    assert!(error.contains("causal attention needs q, k and v of one shape"), "{error}");
    let error = fails("attention", json!({}), &["q", "k", "v"].map(|name| (name, &[2, 2][..], &v[..])));
    assert!(error.contains("must be batch, heads, sequence, dim, but one is f32[2,2]"), "{error}");
}

#[test]
fn losses_take_classes_or_distributions_and_any_reduction() {
    let logits: Stored = ("logits", &[2, 2], &[0.0, 0.0, 0.0, 0.0]);
    let classes: Stored = ("i32/labels", &[2], &[0.0, 1.0]);
    let shares: Stored = ("labels", &[2, 2], &[0.25, 0.75, 1.0, 0.0]);
    let ln2 = std::f32::consts::LN_2;
    for labels in [classes, shares] {
        let smoothed = |reduction: &str| json!({ "label_smoothing": 0.2, "reduction": reduction });
        passes("softmax_cross_entropy", smoothed("none"), &[logits, labels], (&[2], &[ln2, ln2]));
        passes("softmax_cross_entropy", smoothed("sum"), &[logits, labels], (&[], &[2.0 * ln2]));
        passes("softmax_cross_entropy", json!({}), &[logits, labels], (&[], &[ln2]));
    }
    let xy: &[Stored] = &[("x", &[2], &[1.0, 4.0]), ("y", &[2], &[0.0, 1.0])];
    passes("mean_squared_error", json!({ "reduction": "none" }), xy, (&[2], &[1.0, 9.0]));
}

#[test]
fn what_a_case_lacks_is_named() {
    let x: &[Stored] = &[("x", &[2, 2], &[0.0; 4])];
    assert_eq!(fails("frobnicate", json!({}), x), "golden case c: the op \"frobnicate\" is not known");
    assert_eq!(fails("add", json!({}), x), "golden case c: there is no input y or b among x");
    assert_eq!(fails("pad", json!({}), x), "golden case c: the attribute \"pads\" is missing");
    assert_eq!(
        fails("concat", json!({ "axis": 2 }), x),
        "golden case c: the attribute \"axis\" is 2, but there are 2 axes"
    );
    let message = fails("matmul", json!({ "transpose_a": 3 }), x);
    assert!(
        message.starts_with("golden case c: the attribute \"transpose_a\" is 3, which cannot be read"),
        "{message}"
    );
    let message = fails("conv2d", json!({}), &[x[0], ("w", &[2], &[0.0; 2])]);
    assert!(message.starts_with("golden case c: conv2d: "), "{message}");
    assert_eq!(fails("neg", json!({}), x), "out: the shape is [2,2], expected []");
}

#[test]
fn what_the_files_lack_is_named() {
    let message = |path: &Path| only(path).unwrap_err().to_string();
    let nowhere = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden_nowhere");
    assert!(message(&nowhere).contains("golden_nowhere/golden.json"), "{}", message(&nowhere));

    let listed = json!([{ "case": "c", "op": "neg", "inputs": { "x": [1] }, "grads": ["x"] }]);
    let path = write("golden_lacking", listed, &[("c/in/x", &[1], &[1.0]), ("c/out", &[1], &[-1.0])]);
    assert!(message(&path).ends_with("golden.safetensors: the tensor \"c/ct\" is missing"), "{}", message(&path));
    fs::write(path.join("golden.safetensors"), b"short").unwrap();
    assert!(message(&path).contains("golden.safetensors does not hold tensors"), "{}", message(&path));
    fs::write(path.join("golden.json"), b"{}").unwrap();
    assert!(message(&path).contains("golden.json is not a list of golden cases"), "{}", message(&path));
}

#[test]
fn a_case_that_cannot_be_read_does_not_hinder_the_others() {
    let listed = json!([
        { "case": "lacking", "op": "neg", "inputs": { "y": [1] } },
        { "op": 3 },
        { "case": "whole", "op": "neg", "inputs": { "x": [1] } },
    ]);
    let path = write("golden_partly", listed, &[("whole/in/x", &[1], &[1.0]), ("whole/out", &[1], &[-1.0])]);
    let entries = load(&path).unwrap();
    let read: Vec<(&str, bool)> = entries.iter().map(|e| (e.name.as_str(), e.case.is_ok())).collect();
    assert_eq!(read, [("lacking", false), ("case 1", false), ("whole", true)]);
}

#[test]
fn what_a_model_lacks_is_named() {
    let spec = json!({ "layers": "flatten, dense", "optimizer": "sgd lr 0.1", "steps": 1 });
    let listed = json!([{ "case": "r", "op": "run", "spec": spec, "losses": [0.0] }]);
    let x: Stored = ("r/x0", &[1, 2, 1], &[1.0, 2.0]);
    let y: Stored = ("i32/r/y0", &[1], &[0.0]);
    let w: Stored = ("r/init/dense/w", &[2, 1], &[1.0, 1.0]);
    let b: Stored = ("r/init/dense/b", &[1], &[0.0]);
    let w_after: Stored = ("r/final/dense/w", &[2, 1], &[1.0, 1.0]);
    let b_after: Stored = ("r/final/dense/b", &[1], &[0.0]);
    let other: Stored = ("r/init/other", &[1], &[0.0]);
    let other_after: Stored = ("r/state/bn/mean", &[1], &[0.0]);
    let run = |name: &str, tensors: &[Stored]| {
        let case = only(&write(name, listed.clone(), tensors)).unwrap();
        check(&mut Reference, &case).map_err(|e| e.to_string())
    };
    let all = [x, y, w, b, w_after, b_after];
    assert_eq!(run("golden_run", &all), Ok(0.0), "one class: the loss is 0 and nothing is learnt");
    assert_eq!(
        run("golden_run_w", &[x, y, w, b, b_after]).unwrap_err(),
        "golden case r: the tensor final/dense/w is missing"
    );
    assert_eq!(
        run("golden_run_bn", &[&all[..], &[other_after]].concat()).unwrap_err(),
        "golden case r: the tensor state/bn/mean has no place in the model"
    );
    assert_eq!(
        run("golden_run_b", &[x, y, w]).unwrap_err(),
        "golden case r: dense: the tensor init/dense/b is missing"
    );
    let unused = run("golden_run_other", &[x, y, w, b, other]).unwrap_err();
    assert_eq!(unused, "golden case r: the weight \"other\" has no place in the model");
}
