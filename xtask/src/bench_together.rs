//! `bench-together`: several models in one memory, measured, as a part of BENCHMARKS.md.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{output, run as run_command, shown};
use crate::page;

const HEAD: &str = "\
## Several models in one memory

Made by `cargo xtask bench-together`.

Training steps in f32 on two threads of models that share a device: their states stand side by side, and their steps take
turns in one segment. Budgets are in percent of the sum of arenas, which is what their fastest plans take side by side.
Predicted and measured are the time for the same steps of all models, relative to one model after the other, each in
memory of its own with its fastest plan; both take turns, and the figure is the median of rounds.

";

pub fn run(options: &[&str]) -> Result<()> {
    let cargo = |verb: &str, quiet: &[&str]| {
        let mut command = Command::new("cargo");
        command.arg(verb).args(quiet).args(["--release", "-p", "memfit-bench", "--bin", "together"]);
        command
    };
    run_command(&mut cargo("build", &[]))?;
    let mut command = cargo("run", &["--quiet"]);
    command.arg("--").args(options);
    let (table, ok) = output(&mut command)?;
    print!("{table}");
    if !ok {
        bail!("{} failed", shown(&command));
    }
    page::write("bench-together", &format!("{HEAD}{table}"))
}
