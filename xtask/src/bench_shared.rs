//! `bench-shared`: several processes on the same cores, measured, as a part of BENCHMARKS.md.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{output, run as run_command, shown};
use crate::{machine, page};

const HEAD: &str = "\
## Cores that are shared

Made by `cargo xtask bench-shared`.

The same job in several processes at once, each on two threads, by themselves and beside a process that computes without end
at nice 19. Wall time is until the last process has ended, processor time that of all of them. Both are also given relative
to the first line of a job times the number of processes, which is what they would take one after the other: medians of
rounds, each against the first line of the same round.
";

pub fn run(options: &[&str]) -> Result<()> {
    run_command(Command::new("cargo").args([
        "build",
        "--release",
        "-p",
        "memfit-bench",
        "-p",
        "memfit-cli",
        "--bins",
    ]))?;
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "-p", "memfit-bench", "--bin", "shared", "--"]).args(options);
    let (table, ok) = output(&mut command)?;
    print!("{table}");
    if !ok {
        bail!("{} failed", shown(&command));
    }
    page::write("bench-shared", &format!("{HEAD}Measured on {}.\n\n{table}", machine::describe()))
}
