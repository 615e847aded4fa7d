//! memfit in one process or two: what it prints of its steps, and what the system says of its memory while it runs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::table::Sample;
use crate::command::shown;
use crate::mpi::OPEN_MPI;

/// How often its memory is looked at, ...
const LOOK: Duration = Duration::from_millis(5);
/// ... and where it ends soon.
const CLOSE_LOOK: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, PartialEq)]
pub enum Start {
    Alone,
    /// Two of it.
    Launcher,
}

pub struct Memfit {
    program: PathBuf,
    /// Has the run files and what they train on, and takes what it writes.
    folder: PathBuf,
    timeout: Duration,
    /// Bytes that a process has before it reads a run file, alone and when MPI has begun.
    before: [u64; 2],
}

impl Memfit {
    pub fn new(program: PathBuf, folder: PathBuf, timeout: Duration) -> Result<Memfit> {
        let mut memfit = Memfit { program, folder, timeout, before: [0; 2] };
        for start in [Start::Alone, Start::Launcher] {
            // It gets so far, and is refused.
            let mut command = memfit.command(start);
            let (_, peak) = memfit.run(command.arg("there-is-no-such-run.toml"), CLOSE_LOOK)?;
            memfit.before[start as usize] = peak;
        }
        Ok(memfit)
    }

    pub fn train(&self, start: Start, run: &str, options: &[&str], warm_up: usize, steps: usize) -> Result<Sample> {
        let out = self.folder.join("out");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        let mut command = self.command(start);
        command.arg(run).args(options).args(["--steps", &(warm_up + steps).to_string(), "--json", "--out"]).arg(&out);
        let (status, peak) = self.run(&mut command, LOOK)?;
        if !status.success() {
            let said = fs::read_to_string(self.folder.join("stderr.txt")).unwrap_or_default();
            bail!("{} failed: {status}: {said}", shown(&command));
        }
        let said = fs::read_to_string(self.folder.join("stdout.txt"))?;
        let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let steps = events.filter(|e| e["event"] == "step").map(|e| {
            let ms = |key: &str| e[key].as_f64();
            Some(ms("ms")? + ms("waited_ms")?)
        });
        let ms: Vec<f64> = steps.skip(warm_up).collect::<Option<_>>().context("a step has no time")?;
        Ok(Sample { ms, net: peak.saturating_sub(self.before[start as usize]) })
    }

    fn command(&self, start: Start) -> Command {
        let mut command = match start {
            Start::Alone => Command::new(&self.program),
            Start::Launcher => {
                let mut launcher = OPEN_MPI.launcher(2);
                launcher.arg(&self.program);
                launcher
            }
        };
        command.arg("train").current_dir(&self.folder);
        command
    }

    /// How it ended, and the most bytes that one of its processes had at once.
    fn run(&self, command: &mut Command, look: Duration) -> Result<(ExitStatus, u64)> {
        let create = |name: &str| File::create(self.folder.join(name));
        command.stdout(create("stdout.txt")?).stderr(create("stderr.txt")?);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
        let (start, mut peaks) = (Instant::now(), HashMap::new());
        loop {
            if let Some(status) = child.try_wait()? {
                let peak = peaks.into_values().max().context("it ended before it was looked at")?;
                return Ok((status, peak));
            }
            if start.elapsed() > self.timeout {
                child.kill().and_then(|()| child.wait())?;
                bail!("{} took longer than {} s", shown(command), self.timeout.as_secs());
            }
            peaks.extend(self.processes(&child).filter_map(|pid| Some((pid, peak(pid)?))));
            sleep(look);
        }
    }

    /// memfit's own among a child and its children: launchers have memory too.
    fn processes(&self, child: &Child) -> impl Iterator<Item = u32> {
        let id = child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let children: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        let is_memfit = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.program);
        std::iter::once(id).chain(children).filter(is_memfit)
    }
}

/// The most bytes that a process had at once; none where it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
