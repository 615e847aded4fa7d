//! Wires over MPI, with both libraries that Debian and Ubuntu have: builds `wire_check` for each, and runs it in several processes.
//! What holds of a wire is checked there; here is looked at that every process says so, and how the launcher ends.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::apt;
use crate::command::{run as run_command, shown, succeeds};
use crate::extern_checks::{cargo, step, target_folder};
use crate::report::Report;

#[derive(Clone, Copy)]
pub struct Library {
    pub name: &'static str,
    packages: [&'static str; 2],
    /// What its own programs end with, beside those of the other library.
    pub suffix: &'static str,
    /// For its launcher: more processes than cores, which wait for each other and must not spin, started by root.
    pub options: &'static [&'static str],
}

pub const OPEN_MPI: Library = Library {
    name: "Open MPI",
    packages: ["libopenmpi-dev", "openmpi-bin"],
    suffix: "openmpi",
    options: &["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
};

pub const MPICH: Library =
    Library { name: "MPICH", packages: ["libmpich-dev", "mpich"], suffix: "mpich", options: &[] };

pub const LIBRARIES: [Library; 2] = [OPEN_MPI, MPICH];

const RANKS: [usize; 3] = [2, 3, 4];

/// After so many seconds a run hangs, which is what it must not.
const SECONDS: &str = "60";

/// A mode of `wire_check`: which it is, how many of its processes may be killed before they say anything, and the launcher's exit
/// codes. MPICH's may kill processes that are about to end with 6 like the first, and then gives 9, or the bits of both.
const MODES: [(&str, usize, &[i32]); 4] =
    [("well", 0, &[0]), ("steps", 0, &[0]), ("failures", 0, &[6, 9, 15]), ("stopped", 1, &[6, 9, 15])];

pub fn check(report: &mut Report) -> Result<()> {
    for library in LIBRARIES {
        let name = format!("MPI: {}", library.name);
        match library.installed()? {
            Ok(()) => report.check(&name, || library.check())?,
            Err(reason) => report.not_run(&name, reason),
        }
    }
    Ok(())
}

/// Prints what `wire_check` measures.
pub fn bench(options: &[&str]) -> Result<()> {
    let (ranks, options) = match options {
        ["--ranks", ranks, rest @ ..] => (*ranks, rest),
        _ => ("2", options),
    };
    let ranks: usize = ranks.parse().with_context(|| format!("--ranks {ranks}"))?;
    for library in LIBRARIES {
        match library.installed()? {
            Ok(()) => run_command(
                library.launcher(ranks).arg(library.build("wire_check", "release")?).arg("bench").args(options),
            )?,
            Err(reason) => println!("{}: not measured, because {reason}", library.name),
        }
    }
    Ok(())
}

impl Library {
    pub fn program(self, name: &str) -> String {
        format!("{name}.{}", self.suffix)
    }

    /// Installs it where it is missing, or gives the reason why it cannot.
    pub fn installed(self) -> Result<Result<(), String>> {
        let is_here = || {
            let works = |name, option| succeeds(Command::new(self.program(name)).arg(option));
            works("mpirun", "--version") && works("mpicc", "-show")
        };
        if is_here() {
            return Ok(Ok(()));
        }
        if let Err(reason) = apt::install(&self.packages)? {
            let packages = self.packages.join(" ");
            return Ok(Err(format!("it is not here, and {reason}; install it with: apt-get install {packages}")));
        }
        if !is_here() {
            bail!("{} are installed, but bring no {}", self.packages.join(" and "), self.program("mpirun"));
        }
        Ok(Ok(()))
    }

    fn check(self) -> Result<()> {
        let program = step("build", || self.build("wire_check", "quick"))?;
        for ranks in RANKS {
            for (mode, silent, codes) in MODES {
                step(&format!("{mode}, {ranks} processes"), || {
                    let mut command = Command::new("timeout");
                    let launcher = self.launcher(ranks);
                    command.args(["--kill-after=5", SECONDS]).arg(launcher.get_program()).args(launcher.get_args());
                    let output = command.arg(&program).arg(mode).envs(ROOT).output()?;
                    judge(&output, ranks - silent, codes).with_context(|| shown(&command))
                })?;
            }
        }
        Ok(())
    }

    /// Builds a program of those that use it, in a folder of its own: what is built is bound to the library.
    pub fn build(self, program: &str, profile: &str) -> Result<PathBuf> {
        let folder = target_folder()?.join(format!("mpi-{}", self.suffix));
        let mut command = cargo("build");
        command.args(["--quiet", "--package", "memfit-wire-mpi", "--package", "memfit-cli"]);
        command.args(["--features", "memfit-wire-mpi/mpi,memfit-cli/mpi", "--profile", profile]);
        run_command(command.arg("--target-dir").arg(&folder).env("MPICC", self.program("mpicc")))?;
        Ok(folder.join(profile).join(program))
    }

    pub fn launcher(self, ranks: usize) -> Command {
        let mut command = Command::new(self.program("mpirun"));
        command.args(self.options).args(["-n", &ranks.to_string()]).envs(ROOT);
        command
    }
}

/// Open MPI wants to be told twice that root may start programs.
pub const ROOT: [(&str, &str); 2] = [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];

/// Libraries complain of processes that end before MPI does; that is shown where something is wrong only.
fn judge(output: &Output, speakers: usize, codes: &[i32]) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = said.lines().filter(|line| line.contains(": passed")).count();
    if passed >= speakers && output.status.code().is_some_and(|code| codes.contains(&code)) {
        return Ok(());
    }
    print!("{said}{}", String::from_utf8_lossy(&output.stderr));
    bail!("{passed} of at least {speakers} processes passed; {} instead of one of {codes:?}", output.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_judged_by_its_lines_and_its_code() {
        let judged = |script: &str| {
            let output = Command::new("sh").args(["-c", script]).output().expect("a shell");
            judge(&output, 2, &[6, 9]).is_ok()
        };
        assert!(judged("echo rank 0: passed; echo rank 1: passed; exit 6"));
        assert!(!judged("echo rank 0: passed; exit 6"));
        assert!(!judged("echo rank 0: passed; echo rank 1: passed"));
    }
}
