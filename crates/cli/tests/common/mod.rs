//! The binary as a person meets it.

#![allow(dead_code)] // Each test file uses its part.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

pub fn memfit(args: &[&str]) -> Output {
    command(args).output().expect("the binary starts")
}

/// What this machine was calibrated to must not change what a test sees.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.args(args).env("XDG_CONFIG_HOME", "/nowhere").env_remove("COLUMNS").current_dir(&SCRATCH.0);
    command
}

/// Where the binary runs: what it makes there is no part of the repository.
static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("run"));

/// A folder of this test in the temporary folder.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let folder = temporary(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Scratch(folder)
    }

    /// A file or folder in it, as an argument.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("a temporary folder");
        std::fs::write(&path, content).expect("a temporary file");
        path.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whether it is there does not matter any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
