//! A training of several processes: started, watched, disturbed, and looked at when it has ended. Its processes are found by the
//! folder that their arguments name, or one of their variables, and no others are touched.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::shown;

const LOOK: Duration = Duration::from_millis(20);

/// After this long a job hangs.
pub const LONGEST: Duration = Duration::from_secs(90);

pub struct Job {
    child: Child,
    /// Ranks whose exit codes are written down.
    watched: usize,
    /// Named by the arguments of each of its processes, and of no other.
    folder: PathBuf,
    command: String,
    started: Instant,
}

/// A process of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Process {
    pub rank: usize,
    pub pid: u32,
}

pub struct Ended {
    /// Of the launcher.
    pub code: Option<i32>,
    /// Of each rank, where that is written down; none of one that did not end.
    pub of_ranks: Vec<Option<i32>>,
    pub after: Duration,
    pub stdout: String,
    pub stderr: String,
}

impl Job {
    pub fn start(command: Command, folder: &Path) -> Result<Job> {
        Job::start_watched(command, folder, 0)
    }

    /// One whose ranks, so many, leave their exit codes in the folder: see [`WATCH`].
    pub fn start_watched(mut command: Command, folder: &Path, watched: usize) -> Result<Job> {
        let file = |name: &str| File::create(folder.join(name)).with_context(|| folder.display().to_string());
        command.stdout(file("stdout.txt")?).stderr(file("stderr.txt")?);
        let child = command.spawn().with_context(|| shown(&command))?;
        Ok(Job { child, watched, folder: folder.into(), command: shown(&command), started: Instant::now() })
    }

    /// The processes that train, the first rank first; the launcher is none of them.
    pub fn processes(&self) -> Vec<Process> {
        processes(&self.folder)
    }

    pub fn launcher(&self) -> u32 {
        self.child.id()
    }

    /// Looks until something is so, or the job has ended.
    pub fn wait_until(&mut self, what: &str, is_so: impl Fn(&Job) -> bool) -> Result<()> {
        while !is_so(self) {
            if self.child.try_wait()?.is_some() {
                let said = fs::read_to_string(self.folder.join("stderr.txt")).unwrap_or_default();
                bail!("it ended before {what}: {}\n{said}", self.command);
            }
            if self.started.elapsed() > LONGEST {
                self.give_up();
                bail!("{what} did not come within {} s: {}", LONGEST.as_secs(), self.command);
            }
            sleep(LOOK);
        }
        Ok(())
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// How it ends. Whatever does not end in time is killed, and an error.
    pub fn end(mut self, within: Duration) -> Result<Ended> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let bytes = |name: &str| fs::read(self.folder.join(name)).unwrap_or_default();
                let read = |name: &str| -> String { String::from_utf8_lossy(&bytes(name)).into() };
                let ended = Instant::now();
                let code_of = |rank: usize| loop {
                    let code = read(&code_file(rank)).trim().parse().ok();
                    if code.is_some() || ended.elapsed() > LATER {
                        return code;
                    }
                    sleep(LOOK);
                };
                return Ok(Ended {
                    code: status.code(),
                    of_ranks: (0..self.watched).map(code_of).collect(),
                    after: since.elapsed(),
                    stdout: read("stdout.txt"),
                    stderr: read("stderr.txt"),
                });
            }
            if since.elapsed() > within {
                let left = self.processes();
                self.give_up();
                bail!("it hangs: after {:.1} s there are still {left:?}: {}", within.as_secs_f64(), self.command);
            }
            sleep(LOOK);
        }
    }

    fn give_up(&mut self) {
        end_left(&self.folder);
        // It may have ended by itself.
        self.child.kill().and_then(|()| self.child.wait().map(drop)).ok();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.is_running() {
            self.give_up();
        }
    }
}

/// Runs a program and writes its exit code into a file: `WATCH FILE PROGRAM ARGUMENT...`. In a session of its own, where a launcher does not
/// kill it that ends all as soon as one has: every rank is to leave by itself.
pub const WATCH: [&str; 7] = [
    "setsid",
    "--fork",
    "--wait",
    "sh",
    "-c",
    "file=$1; shift; \"$@\"; code=$?; echo $code >\"$file\"; exit $code",
    "sh",
];

/// How long after the launcher a rank may end.
const LATER: Duration = Duration::from_secs(10);

/// Of a rank, in the folder of its job.
pub fn code_file(rank: usize) -> String {
    format!("code-{rank}.txt")
}

/// Of a process whose arguments name no folder: the one that it is of.
pub const MARK: &str = "MEMFIT_JOB";

/// What trains with arguments that name a folder, or a variable that does.
pub fn processes(folder: &Path) -> Vec<Process> {
    let mark = folder.to_string_lossy().into_owned();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let process = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let text = |name: &str| fs::read(entry.path().join(name)).map(|t| String::from_utf8_lossy(&t).into_owned());
        let program = fs::read_link(entry.path().join("exe")).ok()?;
        if program.file_name()? != "memfit" {
            return None;
        }
        let environment = text("environ").ok()?;
        let of_variable = |v: &str| v.strip_prefix(MARK)?.strip_prefix('=').map(|folder| folder.starts_with(&mark));
        let is_ours = text("cmdline").ok()?.split('\0').any(|argument| argument.starts_with(&mark))
            || environment.split('\0').find_map(of_variable) == Some(true);
        if !is_ours {
            return None;
        }
        let rank = ["OMPI_COMM_WORLD_RANK=", "PMI_RANK="]
            .iter()
            .find_map(|name| environment.split('\0').find_map(|v| v.strip_prefix(name)?.parse().ok()));
        Some(Process { rank: rank.unwrap_or(0), pid })
    };
    let mut found: Vec<Process> = entries.flatten().filter_map(process).collect();
    found.sort_by_key(|p| p.rank);
    found
}

/// Ends what is left of a job whose processes name a folder.
pub fn end_left(folder: &Path) {
    for process in processes(folder) {
        // It may have ended by itself.
        let _ = signal("KILL", process.pid);
    }
}

/// That nothing is left of a job, at the latest after some time.
pub fn check_gone(folder: &Path, within: Duration) -> Result<()> {
    let since = Instant::now();
    while !processes(folder).is_empty() {
        if since.elapsed() > within {
            let left = processes(folder);
            end_left(folder);
            bail!("{left:?} are left {:.1} s after the launcher ended", within.as_secs_f64());
        }
        sleep(LOOK);
    }
    Ok(())
}

pub fn signal(name: &str, pid: u32) -> Result<()> {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).output()?;
    if !sent.status.success() {
        bail!("SIG{name} cannot be sent to {pid}: {}", String::from_utf8_lossy(&sent.stderr).trim());
    }
    Ok(())
}

/// The most bytes that a process had so far.
pub fn resident_peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

impl Ended {
    /// What memfit said that is wrong: one line for each message.
    pub fn errors(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("error: ")).collect()
    }

    /// That it ended with one of these codes, every rank with the first of them, and one message that says all this.
    pub fn check_failed(&self, codes: &[i32], parts: &[&str]) -> Result<()> {
        let errors = self.errors();
        let is_own = |code: &Option<i32>| *code == codes.first().copied();
        let wrong = match (&errors[..], self.code) {
            (_, code) if !code.is_some_and(|code| codes.contains(&code)) => {
                format!("exit code {code:?} instead of one of {codes:?}")
            }
            _ if !self.of_ranks.iter().all(is_own) => {
                format!("exit codes of the ranks {:?} instead of {}", self.of_ranks, codes[0])
            }
            ([_], _) => match parts.iter().find(|part| !self.stderr.contains(**part)) {
                Some(part) => format!("\"{part}\" is not said"),
                None => return Ok(()),
            },
            (errors, _) => format!("{} messages instead of one", errors.len()),
        };
        bail!("{wrong}:\n{}", self.stderr.trim())
    }

    pub fn check_passed(&self) -> Result<()> {
        if self.code == Some(0) && self.of_ranks.iter().all(|code| *code == Some(0)) {
            return Ok(());
        }
        bail!("exit code {:?}, of the ranks {:?}:\n{}", self.code, self.of_ranks, self.stderr.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_with_the_right_code_is_a_failure_as_it_should_be() {
        let ended = |code, stderr: &str| Ended {
            code: Some(code),
            of_ranks: vec![Some(code), Some(code)],
            after: Duration::ZERO,
            stdout: String::new(),
            stderr: stderr.into(),
        };
        assert!(
            ended(2, "----\nerror: replica 1 differs in its seed\n").check_failed(&[2], &["replica 1", "seed"]).is_ok()
        );
        let one = |of_rank, codes: &[i32]| {
            let ended = Ended { of_ranks: vec![Some(2), of_rank], ..ended(2, "error: seed") };
            ended.check_failed(codes, &["seed"]).is_ok()
        };
        assert!(one(Some(2), &[2]) && one(Some(2), &[2, 9]));
        assert!(!one(Some(0), &[2, 9]) && !one(None, &[2, 9]) && !one(Some(9), &[2, 9]));
        for (code, said) in [(3, "error: seed"), (2, "error: lanes"), (2, "error: seed\nerror: seed"), (2, "seed")] {
            assert!(ended(code, said).check_failed(&[2], &["seed"]).is_err(), "{code} {said}");
        }
    }
}
