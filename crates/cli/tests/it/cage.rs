//! Programs with less memory than the machine has: in a memory control group of their own, or under `ulimit -v`. The tests and
//! the chores of the repository share it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// What keeps a program small.
pub enum Cage {
    /// A control group, by its folder and the name of its limit.
    Group {
        folder: PathBuf,
        limit: &'static str,
    },
    AddressSpace,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// As what does not fit, with the message.
    Refused(String),
    /// In any other way, in words.
    Wrong(String),
}

impl Cage {
    /// A control group inside of that of this process, where the system lets one be made; else why not.
    pub fn group() -> Result<Cage, String> {
        let text = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("memfit-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut problem = "there is no control group of memory".to_string();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(kinds), Some(path)) = (fields.next(), fields.next()) else { continue };
            let (top, limit) = match kinds {
                "" => ("/sys/fs/cgroup", "memory.max"),
                k if k.split(',').any(|k| k == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                _ => continue,
            };
            let folder = Path::new(top).join(path.trim_start_matches('/')).join(&name);
            if let Err(e) = std::fs::create_dir(&folder) {
                problem = format!("{}: {e}", folder.display());
                continue;
            }
            let cage = Cage::Group { folder: folder.clone(), limit };
            if std::fs::write(folder.join(limit), "1073741824").is_ok() {
                return Ok(cage);
            }
            problem = format!("{} has no limit that can be set", folder.display());
        }
        Err(problem)
    }

    pub fn name(&self) -> &'static str {
        match self {
            Cage::Group { limit: "memory.max", .. } => "control group (v2)",
            Cage::Group { .. } => "control group (v1)",
            Cage::AddressSpace => "ulimit -v",
        }
    }

    /// A command that runs another one in so many MiB.
    pub fn command(&self, mib: u64, program: &Path) -> Command {
        let mut command = Command::new("sh");
        match self {
            Cage::Group { folder, limit } => {
                std::fs::write(folder.join(limit), (mib << 20).to_string()).expect("a limit of a group of ours");
                command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(folder.join("cgroup.procs"));
            }
            Cage::AddressSpace => {
                command.args(["-c", "ulimit -v \"$0\" && exec \"$@\""]).arg((mib << 10).to_string());
            }
        }
        command.arg(program);
        command
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if let Cage::Group { folder, .. } = self {
            // Whoever was in it is gone.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

impl End {
    /// Of a training whose folder was to be this one: nothing may be left there that is not finished.
    pub fn of(output: &Output, folder: &Path) -> End {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let unfinished = names.map(|e| e.file_name().to_string_lossy().into_owned()).find(|n| n.ends_with(".tmp"));
        match (output.status.code(), unfinished) {
            (_, Some(name)) => End::Wrong(format!("{}, and {name} is left: {message}", output.status)),
            (Some(0), None) => End::Done,
            (Some(3), None) if !message.is_empty() => End::Refused(message),
            (_, None) => End::Wrong(format!("{}: {message}", output.status)),
        }
    }
}
