//! What would end badly in silence: sizes that cannot be planned, weights and losses that are no numbers, a folder that is
//! gone.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Scratch, check_error, command, memfit};

#[test]
fn more_layers_than_can_be_planned_are_refused_at_once() {
    let scratch = Scratch::new("layers");
    let file = scratch.write("run.toml", "[model]\nname = \"gpt\"\nlayers = 2000000\n");
    let text = scratch.write("text.txt", "To be, or not to be, that is the question. ".repeat(40));
    check_error(&["plan", &file], 2, &["2000000 layers", "at most 256"]);
    check_error(&["train", &file, "--data", &text, "--out", &scratch.path("run")], 2, &["2000000 layers"]);
}

/// The weights of a run with one number of a tensor changed.
fn with_number(file: &str, tensor: &str, element: usize, number: f32) -> Vec<u8> {
    let mut bytes = std::fs::read(file).expect("weights");
    let length = u64::from_le_bytes(std::array::from_fn(|i| bytes[i])) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let start = header[tensor]["data_offsets"][0].as_u64().expect("an offset") as usize;
    bytes[8 + length + start + 4 * element..][..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn weights_that_are_no_numbers_are_refused_by_name() {
    let scratch = Scratch::new("finite");
    let (run, second) = (scratch.path("run"), scratch.path("second"));
    assert!(memfit(&["train", "--steps", "1", "--out", &run]).status.success());
    let file = scratch.path("run/weights.safetensors");
    for (tensor, element, number) in [("fc/weight", 77, f32::NAN), ("conv1/bn/bias", 0, f32::NEG_INFINITY)] {
        let bad = scratch.write("bad.safetensors", with_number(&file, tensor, element, number));
        let train = ["train", "--steps", "1", "--weights", &bad, "--out", &second];
        check_error(&train, 4, &[&bad, tensor, &format!("element {element}"), "not a finite number"]);
        assert!(!Path::new(&second).exists(), "nothing is made of a run that cannot start");
    }
    let good = scratch.write("good.safetensors", with_number(&file, "fc/weight", 77, 0.0));
    assert!(memfit(&["train", "--steps", "1", "--weights", &good, "--out", &second]).status.success());
}

#[test]
fn a_test_loss_that_is_no_number_is_an_error() {
    let scratch = Scratch::new("lost");
    let run = scratch.path("run");
    let train = ["train", "--precision", "mixed-f16", "--lr", "1e10", "--epochs", "1", "--out", &run];
    check_error(&train, 4, &["the loss on the test set is NaN", "last.json", "smaller --lr"]);
}

#[test]
fn a_folder_that_is_removed_while_its_run_goes_on_is_told_of() {
    let scratch = Scratch::new("removed");
    let run = scratch.path("run");
    let mut child = command(&["train", "--epochs", "1000", "--out", &run, "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("\"event\":\"step\"")), "it trains");
    // At once, for it may be writing there.
    std::fs::rename(&run, scratch.path("elsewhere")).expect("it is there");
    let last = lines.last().expect("an error");
    assert!(last.contains("is gone") && last.contains(&run) && last.contains("removed or moved"), "{last}");
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    assert!(!Path::new(&run).exists());
}
