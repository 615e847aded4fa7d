//! Replicas in several processes, through the program as users start it: whatever number of them trains, however often they are
//! killed, stopped, cut off or asked to stop, a run ends in the same bytes; and whoever cannot train says so once, for all.

mod commands;
mod equal;
mod faults;
mod folder;
mod hosts;
mod job;
mod memory;
mod one_folder;
mod refusals;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::shown;
use crate::extern_checks::{cargo, step, target_folder, work_folder};
use crate::machines::Extent;
use crate::mpi::{LIBRARIES, Library, ROOT};
use crate::report::Report;
use folder::{Files, fresh};
use job::{Ended, Job, LONGEST, WATCH, code_file};

/// Of what a check says that passed.
type Seen = Result<String>;

/// By name, and whether it is too long for every change.
type Check = (&'static str, Extent, fn(&Bench) -> Seen);

const CHECKS: [Check; 33] = [
    ("any number of replicas", Extent::Short, equal::numbers),
    ("clipping by norm", Extent::Short, equal::clipping),
    ("mixed-f16", Extent::Short, equal::half),
    ("other budgets, threads and pieces", Extent::Short, equal::settings),
    ("one lane", Extent::Short, equal::one_lane),
    ("an epoch that is no multiple", Extent::Short, equal::uneven),
    ("two models", Extent::Short, equal::two_models),
    ("one that differs", Extent::Short, refusals::differences),
    ("a budget that is too small", Extent::Short, refusals::budget),
    ("arguments that cannot be read", Extent::Short, refusals::arguments),
    ("an unreadable image", Extent::Short, refusals::image),
    ("a full disk", Extent::Short, refusals::full_disk),
    ("a busy machine", Extent::Short, refusals::busy),
    ("one output", Extent::Short, commands::one_output),
    ("a machine that is shared", Extent::Short, commands::shared_machine),
    ("a program without MPI", Extent::Short, refusals::without_mpi),
    ("killed processes", Extent::Short, faults::kills),
    ("a process that is stopped", Extent::Short, faults::stopped),
    ("the first process stopped", Extent::Short, faults::stopped_first),
    ("one that is stopped at the start", Extent::Short, faults::stopped_at_start),
    ("one that never comes", Extent::Short, faults::never_comes),
    ("asked to stop by SIGUSR1", Extent::Short, faults::usr1),
    ("asked to stop by SIGTERM", Extent::Short, faults::term),
    ("asked to stop by SIGINT", Extent::Short, faults::int),
    ("memory", Extent::Short, memory::check),
    ("a total", Extent::Short, memory::total),
    ("a cut link", Extent::Short, hosts::cut),
    ("a folder that only one has, resumed", Extent::Short, one_folder::resumed),
    ("a folder that only one has, damaged", Extent::Short, one_folder::damaged),
    ("a folder that only one has, weights", Extent::Short, one_folder::weights),
    ("a folder that only one has, cache", Extent::Short, one_folder::cache),
    ("a folder that only one has, memory", Extent::Short, one_folder::memory),
    ("data that one lacks", Extent::Short, one_folder::data),
];

/// `test-replicas`.
pub fn run(options: &[&str]) -> Result<()> {
    let (extent, only) = match options {
        ["--long", only @ ..] => (Extent::Full, only),
        only => (Extent::Short, only),
    };
    if let Some(option) = only.iter().find(|o| o.starts_with('-')) {
        bail!("\"{option}\" is not an option; see --help");
    }
    crate::alone(|report| check_only(report, extent, only))
}

pub fn check(report: &mut Report, extent: Extent) -> Result<()> {
    check_only(report, extent, &[])
}

/// Checks whose names have one of these words in them; all where there are none.
fn check_only(report: &mut Report, extent: Extent, only: &[&str]) -> Result<()> {
    for library in LIBRARIES {
        let name = format!("replicas over MPI: {}", library.name);
        match library.installed()? {
            Ok(()) => report.check(&name, || check_library(library, extent, only))?,
            Err(reason) => report.not_run(&name, reason),
        }
    }
    Ok(())
}

/// All of them, also after one that failed.
fn check_library(library: Library, extent: Extent, only: &[&str]) -> Result<()> {
    let program = step("build", || library.build("memfit", "quick"))?;
    // Of this process: another may do the same.
    let work = format!("replicas-{}-{}", library.suffix, std::process::id());
    let work = fresh(work_folder(&work)?)?.canonicalize()?;
    let bench = Bench { library, program, work, extent, count: Cell::new(0) };
    let mut failed = Vec::new();
    for (name, least, check) in CHECKS {
        let is_asked_for = only.is_empty() || only.iter().any(|word| name.contains(word));
        if (least == Extent::Full && extent == Extent::Short) || !is_asked_for {
            continue;
        }
        let start = Instant::now();
        let seen = check(&bench);
        let seconds = start.elapsed().as_secs_f64();
        match seen {
            Ok(seen) => println!("{name}: {seen} ({seconds:.1} s)"),
            Err(problem) => {
                println!("{name}: FAILED after {seconds:.1} s: {problem:#}");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("{} of the checks of replicas with {} failed: {}", failed.len(), library.name, failed.join(", "));
    }
    fs::remove_dir_all(&bench.work).with_context(|| format!("cannot remove {}", bench.work.display()))
}

/// What the checks of a library share.
pub struct Bench {
    library: Library,
    /// memfit, built for the library.
    program: PathBuf,
    work: PathBuf,
    extent: Extent,
    count: Cell<u32>,
}

/// How one process of several is started.
#[derive(Clone, Default)]
pub struct Rank {
    environment: Vec<String>,
    /// A program that starts it.
    before: Vec<String>,
    arguments: Vec<String>,
}

impl Rank {
    fn new(arguments: &[&str]) -> Rank {
        Rank {
            environment: Vec::new(),
            before: Vec::new(),
            arguments: arguments.iter().map(|a| a.to_string()).collect(),
        }
    }

    fn and(&self, arguments: &[&str]) -> Rank {
        let mut rank = self.clone();
        rank.arguments.extend(arguments.iter().map(|a| a.to_string()));
        rank
    }

    /// Started by a program with these arguments, which the program and its arguments follow.
    fn after(mut self, program: &[&str]) -> Rank {
        self.before = program.iter().map(|word| word.to_string()).collect();
        self
    }

    fn with(mut self, variable: &str) -> Rank {
        self.environment.push(variable.into());
        self
    }
}

impl Bench {
    fn is_long(&self) -> bool {
        self.extent == Extent::Full
    }

    /// Whether the launcher is Open MPI's.
    fn is_open_mpi(&self) -> bool {
        self.library.suffix == "openmpi"
    }

    /// An empty folder of its own.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        self.count.set(self.count.get() + 1);
        fresh(self.work.join(format!("{}-{}", self.count.get(), name.replace(' ', "-"))))
    }

    /// A launcher with options of its own, and each process as it is started.
    fn launcher(&self, options: &[&str], ranks: &[Rank]) -> Command {
        self.launcher_of(options, ranks, None)
    }

    /// The same; each process leaves its exit code in a folder, where there is one.
    fn launcher_of(&self, options: &[&str], ranks: &[Rank], codes: Option<&Path>) -> Command {
        let mut command = Command::new(self.library.program("mpirun"));
        command.envs(ROOT).env_remove("MEMFIT_ISA").args(self.library.options).args(options);
        for (i, rank) in ranks.iter().enumerate() {
            if i > 0 {
                command.arg(":");
            }
            command.args(["-n", "1"]);
            if !rank.environment.is_empty() {
                command.arg("env").args(&rank.environment);
            }
            if let Some(folder) = codes {
                command.args(WATCH).arg(folder.join(code_file(i)));
            }
            command.args(&rank.before).arg(&self.program).args(&rank.arguments);
        }
        command
    }

    fn start(&self, folder: &Path, ranks: &[Rank]) -> Result<Job> {
        Job::start_watched(self.launcher_of(&[], ranks, Some(folder)), folder, ranks.len())
    }

    /// Runs processes to their end.
    fn run(&self, folder: &Path, ranks: &[Rank]) -> Result<Ended> {
        self.start(folder, ranks)?.end(LONGEST)
    }

    /// Runs the program without a launcher.
    fn run_alone(&self, folder: &Path, arguments: &[&str]) -> Result<Ended> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_remove("MEMFIT_ISA");
        Job::start(command, folder)?.end(LONGEST)
    }

    /// What so many processes leave, all started with the same arguments.
    fn trained(&self, count: usize, arguments: &[&str]) -> Result<Files> {
        let folder = self.folder("run")?;
        let run = text(&folder.join("run"));
        let rank = Rank::new(&["train"]).and(arguments).and(&["--out", &run]);
        self.run(&folder, &vec![rank; count])?.check_passed()?;
        folder::tensors(&folder.join("run"))
    }

    /// What one process leaves that no launcher started.
    fn trained_alone(&self, arguments: &[&str]) -> Result<Files> {
        let folder = self.folder("alone")?;
        let run = text(&folder.join("run"));
        self.run_alone(&folder, &[&["train"], arguments, &["--out", &run]].concat())?.check_passed()?;
        folder::tensors(&folder.join("run"))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<String> {
        let path = self.work.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(text(&path))
    }

    /// memfit as it is built by default.
    fn program_without_mpi(&self) -> Result<PathBuf> {
        let folder = target_folder()?.join("mpi-none");
        let mut command = cargo("build");
        command.args(["--quiet", "--package", "memfit-cli", "--profile", "quick"]);
        crate::command::run(command.arg("--target-dir").arg(&folder)).with_context(|| shown(&command))?;
        Ok(folder.join("quick/memfit"))
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
