//! The worked examples, in a short form: each runs as its page says, and its loss falls below the value stated there.

use crate::common;

use std::path::{Path, PathBuf};

use common::{Scratch, events, memfit, stdout};
use serde_json::Value;

use crate::draw;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A copy of an example's folder, where its data can be laid beside its run file.
fn copy(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    for entry in std::fs::read_dir(repository().join("examples").join(name)).expect("the example") {
        let path = entry.expect("the example").path();
        if path.is_file() {
            let file = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            scratch.write(&file, std::fs::read(&path).expect("a file"));
        }
    }
    scratch
}

/// The page states a value for each training, in this order.
fn stated(scratch: &Scratch) -> Vec<f64> {
    let page = std::fs::read_to_string(scratch.path("README.md")).expect("the page");
    let numbers = page.split("below ").skip(1).filter_map(|rest| {
        let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        number.trim_end_matches('.').parse().ok()
    });
    numbers.collect()
}

/// The mean loss of the last epoch.
fn train(args: &[&str]) -> (f64, Vec<Value>) {
    let (code, events) = events(&[&["train"], args].concat());
    assert_eq!(code, 0, "{args:?}: {:?}", events.last());
    let epoch = events.iter().rfind(|e| e["event"] == "epoch").expect("an epoch");
    (epoch["loss"].as_f64().expect("a number"), events)
}

fn draw_classes(scratch: &Scratch, set: &str, classes: &[&str], count: u32) {
    for class in classes {
        let shape = draw::Shape::from_name(class).expect("a shape");
        for n in 0..count {
            let (image, _) = draw::picture(shape, 32, &format!("{set}/{class}/{n}"));
            let path = scratch.write(&format!("data/{set}/{class}/{n}.png"), "");
            draw::write_png(Path::new(&path), &image, 32, 3).expect("a picture");
        }
    }
}

#[test]
fn digits() {
    let scratch = copy("digits");
    let (loss, events) = train(&[&scratch.path("run.toml"), "--epochs", "3", "--out", &scratch.path("out")]);
    assert!(loss < stated(&scratch)[0], "{loss}");
    let number = |key: &str| events[0][key].as_u64().expect("a number");
    assert!(number("budget_bytes") < number("free_tools_bytes"), "{}", events[0]);
    assert!(number("arena_bytes") <= number("budget_bytes") && number("recomputed_ops") > 0, "{}", events[0]);
}

#[test]
fn together() {
    let scratch = copy("together");
    let files = [scratch.path("steady.toml"), scratch.path("bold.toml")];
    let page = std::fs::read_to_string(scratch.path("README.md")).expect("the page");
    let budget = page.split("--budget ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a budget");
    let (code, told) = events(&["train", &files[0], &files[1], "--budget", budget, "--epochs", "3"]);
    assert_eq!(code, 0, "{:?}", told.last());
    for run in ["steady", "bold"] {
        let epoch = told.iter().rfind(|e| e["event"] == "epoch" && e["run"] == run).expect("an epoch");
        assert!(epoch["loss"].as_f64() < Some(stated(&scratch)[0]), "{epoch}");
    }
    let together = told.iter().find(|e| e["event"] == "together").expect("they share a device");
    let number = |key: &str| together[key].as_u64().expect("a number");
    assert!(number("arena_bytes") <= number("budget_bytes"), "{together}");
    assert!(number("budget_bytes") < number("sum_of_arenas_bytes"), "{together}");
}

#[test]
fn photos() {
    let scratch = copy("photos");
    draw_classes(&scratch, "train", &["disc", "square", "cross"], 160);
    draw_classes(&scratch, "test", &["disc", "square", "cross"], 16);
    draw_classes(&scratch, "other", &["ring", "bar"], 64);
    let limits = stated(&scratch);
    let out = scratch.path("out");
    let (loss, _) = train(&[&scratch.path("run.toml"), "--epochs", "3", "--out", &out]);
    assert!(loss < limits[0], "{loss}");
    let files: Vec<String> = ["disc", "cross"].iter().map(|c| scratch.path(&format!("data/test/{c}/0.png"))).collect();
    let told = stdout(&memfit(&["predict", &out, &files[0], &files[1]]));
    assert_eq!(told.lines().filter(|l| l.contains(" %")).count(), 2, "{told}");
    let weights = scratch.path("out/weights.safetensors");
    let transfer = scratch.path("transfer.toml");
    let second = scratch.path("second");
    let (loss, events) = train(&[&transfer, "--weights", &weights, "--epochs", "3", "--out", &second]);
    assert!(loss < limits[1], "{loss}");
    let taken = events.iter().find(|e| e["event"] == "weights").expect("it starts from weights");
    assert_eq!(taken["of"].as_u64().zip(taken["taken"].as_u64()).map(|(of, taken)| of - taken), Some(2), "{taken}");
}

#[test]
fn shapes() {
    let scratch = copy("shapes");
    for n in 0..96 {
        let (image, mask) = draw::picture(draw::Shape::ALL[n % 5], 64, &format!("shape/{n}"));
        for (part, pixels, channels) in [("images", image, 3), ("masks", mask, 1)] {
            let path = scratch.write(&format!("data/{part}/{n}.png"), "");
            draw::write_png(Path::new(&path), &pixels, 64, channels).expect("a picture");
        }
    }
    let (loss, events) = train(&[&scratch.path("run.toml"), "--epochs", "3", "--out", &scratch.path("out")]);
    assert!(loss < stated(&scratch)[0], "{loss}");
    assert!(events[0]["recomputed_ops"].as_u64() > Some(0), "the budget asks for it: {}", events[0]);
}

#[test]
fn text() {
    let scratch = copy("text");
    let text = repository().join("LICENSE-APACHE").display().to_string();
    let (loss, _) = train(&[&scratch.path("run.toml"), "--data", &text, "--out", &scratch.path("out")]);
    assert!(loss < stated(&scratch)[0], "{loss}");
}
