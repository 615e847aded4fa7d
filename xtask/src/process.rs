//! One measuring process: what it prints as results, or why there are none. A process that takes too long is ended.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::extern_checks::work_folder;

pub struct Runner {
    /// Takes what the processes print.
    pub folder: PathBuf,
    pub timeout: Duration,
}

impl Runner {
    pub fn new(timeout: Duration) -> anyhow::Result<Runner> {
        Ok(Runner { folder: work_folder("peers")?, timeout })
    }

    /// The process's results; in place of them, why there are none.
    pub fn run(&self, command: &mut Command) -> Result<Results, String> {
        let (out, err) = (self.folder.join("stdout.txt"), self.folder.join("stderr.txt"));
        let create = |path| File::create(path).map_err(|e| format!("no file for its output: {e}"));
        command.stdout(create(&out)?).stderr(create(&err)?);
        let status = self.finish(command)?;
        // Whoever prints what is no text is no script of ours.
        let read = |path| fs::read(path).map_or(String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
        if !status.success() {
            return Err(last_error(&read(&err)).unwrap_or(format!("it failed without a word: {status}")));
        }
        Ok(Results::parse(&read(&out)))
    }

    fn finish(&self, command: &mut Command) -> Result<ExitStatus, String> {
        let mut child = command.spawn().map_err(|e| format!("it cannot be started: {e}"))?;
        let start = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if start.elapsed() < self.timeout => sleep(Duration::from_millis(50)),
                Ok(None) => {
                    // Both fail only if it has just ended by itself, which is as good.
                    child.kill().and_then(|()| child.wait()).ok();
                    return Err(format!("it took longer than {} s", self.timeout.as_secs()));
                }
                Err(e) => return Err(format!("it cannot be waited for: {e}")),
            }
        }
    }
}

/// The line that names the error; frameworks follow it up with advice.
fn last_error(text: &str) -> Option<String> {
    let lines = || text.lines().rev().map(str::trim).filter(|l| !l.is_empty());
    lines().find(|l| l.contains("Error")).or_else(|| lines().next()).map(|l| l.chars().take(300).collect())
}

/// Lines of `result KEY VALUE...` by key.
pub struct Results(HashMap<String, String>);

impl Results {
    fn parse(text: &str) -> Results {
        let pairs = text.lines().filter_map(|l| l.strip_prefix("result ")?.split_once(' '));
        Results(pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    pub fn text(&self, key: &str) -> Result<&str, String> {
        self.0.get(key).map(String::as_str).ok_or_else(|| format!("it says nothing about \"{key}\""))
    }

    pub fn number<T: FromStr>(&self, key: &str) -> Result<T, String> {
        let value = self.text(key)?;
        value.parse().map_err(|_| format!("\"{value}\" is no number for \"{key}\""))
    }
}

#[cfg(test)]
pub fn results(text: &str) -> Results {
    Results::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each test has a folder of its own.
    fn run(test: &str, script: &str, timeout: Duration) -> Result<Results, String> {
        let folder = std::env::temp_dir().join(format!("memfit-xtask-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let done = Runner { folder: folder.clone(), timeout }.run(Command::new("sh").args(["-c", script]));
        fs::remove_dir_all(folder).expect("it is ours");
        done
    }

    #[test]
    fn results_are_read_and_noise_is_not() {
        let minute = Duration::from_secs(60);
        let results = run("results", "echo noise; echo result seconds 0.5; echo result versions A 1, B 2", minute)
            .expect("it runs");
        assert_eq!(results.number("seconds"), Ok(0.5));
        assert_eq!(results.text("versions"), Ok("A 1, B 2"));
        assert_eq!(results.number::<f64>("loss"), Err("it says nothing about \"loss\"".to_string()));
        assert_eq!(results.number::<f64>("versions"), Err("\"A 1, B 2\" is no number for \"versions\"".to_string()));
    }

    #[test]
    fn failures_are_told_by_their_error() {
        let minute = Duration::from_secs(60);
        let script = "echo 'ValueError: no' >&2; echo 'set this to see more' >&2; exit 1";
        assert_eq!(run("failures", script, minute).err().as_deref(), Some("ValueError: no"));
        assert_eq!(
            run("failures", "exit 3", minute).err().as_deref(),
            Some("it failed without a word: exit status: 3")
        );
        assert_eq!(run("failures", "exec sleep 60", Duration::ZERO).err().as_deref(), Some("it took longer than 0 s"));
    }
}
