//! Directories of runs that older versions of memfit made are evaluated and resumed.
//!
//! `old_run/` was made by the version before a cost model had that name, with portable instructions: a tiny gpt on a short
//! text, stopped after 4 steps, with all of its paths made relative; and beside it the weights with which that version ended
//! after 8.

use std::path::Path;

use crate::common::{Scratch, command, event, stdout};

/// A copy of the old run, in which a test may write.
fn old_run(scratch: &Scratch) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/old_run");
    for folder in ["", "run"] {
        for entry in std::fs::read_dir(from.join(folder)).expect("it is in the repository").flatten() {
            if entry.path().is_file() {
                let name = Path::new(folder).join(entry.file_name());
                scratch.write(&name.to_string_lossy(), std::fs::read(entry.path()).expect("it can be read"));
            }
        }
    }
    scratch.path("run")
}

#[test]
fn an_old_run_is_evaluated() {
    let scratch = Scratch::new("old_eval");
    let run = old_run(&scratch);
    let event = event(&["eval", &run]);
    assert_eq!((event["step"].as_u64(), event["samples"].as_u64()), (Some(4), Some(5)), "{event}");
    let loss = event["scores"]["loss"].as_f64().expect("a number");
    assert!((loss - 2.49).abs() < 0.01, "{loss}");
}

#[test]
fn an_old_run_is_resumed_to_the_bits_of_its_own_version() {
    let scratch = Scratch::new("old_resume");
    let run = old_run(&scratch);
    let mut command = command(&["train", "--resume", &run, "--steps", "8"]);
    // Its plan is for these.
    let output = command.env("MEMFIT_ISA", "portable").output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout(&output).contains("resumed at step 4"), "{}", stdout(&output));
    let read = |name: &str| std::fs::read(scratch.path(name)).expect("it is there");
    assert_eq!(read("run/weights.safetensors"), read("weights_at_8.safetensors"));
    // What it was called then, it is called so no more.
    let file = String::from_utf8(read("run/run.toml")).expect("text");
    assert!(file.contains("cost_model = ") && !file.contains("profile ="), "{file}");
}
