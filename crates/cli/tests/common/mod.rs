//! The binary as a person meets it.

#![allow(dead_code)] // Each test file uses its part.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

pub fn memfit(args: &[&str]) -> Output {
    command(args).output().expect("the binary starts")
}

/// What this machine was calibrated to must not change what a test sees.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.args(args).env("XDG_CONFIG_HOME", "/nowhere").env_remove("COLUMNS");
    command
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs with `--json`: the exit code and the events.
pub fn events(args: &[&str]) -> (i32, Vec<Value>) {
    let output = memfit(&[args, &["--json"]].concat());
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{args:?}: {e}: {line}"));
    let events = stdout(&output).lines().map(parse).collect();
    (output.status.code().expect("it was not killed"), events)
}

/// The one event of a command that succeeds.
pub fn event(args: &[&str]) -> Value {
    let (code, mut events) = events(args);
    assert_eq!((code, events.len()), (0, 1), "{args:?}: {events:?}");
    events.remove(0)
}

/// Runs with arguments that cannot work: the exit code and what the one message must say.
pub fn check_error(args: &[&str], code: i32, expected: &[&str]) {
    let output = memfit(args);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    assert!(!message.contains("panicked"), "{args:?}: {message}");
    for part in expected {
        assert!(message.contains(part), "{args:?} does not say {part:?}: {message}");
    }
}

/// A file of this test in the temporary folder.
pub fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("memfit-{}-{name}", std::process::id()))
}
