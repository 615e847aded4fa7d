//! The binary as a person meets it.

#![allow(dead_code)] // Each test file uses its part.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

pub fn memfit(args: &[&str]) -> Output {
    command(args).output().expect("the binary starts")
}

/// What this machine was calibrated to must not change what a test sees, nor the number of its cores, which a plan has scratch
/// for.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.args(args).env("XDG_CONFIG_HOME", "/nowhere").env_remove("COLUMNS").current_dir(&SCRATCH.0);
    let plans = matches!(args.first(), Some(&("train" | "plan")));
    if plans && !args.iter().any(|a| ["--threads", "--resume", "--diff"].contains(a)) {
        command.args(["--threads", "2"]);
    }
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

/// Starts a training, asks it to stop with a signal after so many steps, and gives the lines that it says from then on.
#[cfg(unix)]
pub fn stopped(args: &[&str], steps: usize, signal: rustix::process::Signal) -> Vec<String> {
    let mut child = command(&[args, &["--json"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let is_step = |line: &std::io::Result<String>| line.as_ref().is_ok_and(|l| l.contains("\"event\":\"step\""));
    assert_eq!(lines.by_ref().filter(is_step).take(steps).count(), steps);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("it runs");
    let rest = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    rest
}

/// A named pipe that nobody writes to.
#[cfg(unix)]
pub fn fifo(path: &std::path::Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

/// A socket that nobody listens to, at a path of any length.
#[cfg(unix)]
pub fn socket(path: &std::path::Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Socket, Mode::RUSR | Mode::WUSR, 0).expect("a socket");
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
