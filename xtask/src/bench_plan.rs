//! `bench-plan`: what less memory costs, measured, as a part of BENCHMARKS.md. The measuring is done by an example of `memfit`, one process
//! for each workload, so that none inherits another's heap; this writes down what they print.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{output, run as run_command, shown};
use crate::page;

/// In the order of the page.
const WORKLOADS: [&str; 8] =
    ["mlp", "resnet18_cifar", "resnet50", "mobilenet_v3_large", "unet", "gpt", "vit_b16", "resnet101"];

const HEAD: &str = "\
## Less memory: what it costs

Made by `cargo xtask bench-plan`.

Training steps in f32 on two threads under smaller and smaller limits. Transient memory is everything above parameters,
optimizer state, running statistics and the input batch, in MiB. Limits in percent are of what the tools that cost no time
need. Predicted and measured are times of a step relative to the fastest plan; plans run in turns, and the measured figure
is the median of a plan's ratios to the fastest plan of the same round. Micro-batches are off.

";

pub fn run(options: &[&str]) -> Result<()> {
    let mut options = options.to_vec();
    let mut rounds = "5";
    if let ["--rounds", n, ..] = options[..] {
        rounds = n;
        options.drain(..2);
    }
    if let Some(unknown) = options.iter().find(|w| !WORKLOADS.contains(w)) {
        bail!("there is no workload \"{unknown}\"; there are {}", WORKLOADS.join(", "));
    }
    run_command(Command::new("cargo").args(["build", "--release", "-p", "memfit-bench", "--bin", "budgets"]))?;
    let mut part = HEAD.to_string();
    for workload in WORKLOADS.iter().filter(|w| options.is_empty() || options.contains(w)) {
        let mut command = Command::new("cargo");
        command.args(["run", "--quiet", "--release", "-p", "memfit-bench", "--bin", "budgets", "--"]);
        command.args(["--rounds", rounds, workload]);
        let (text, ok) = output(&mut command)?;
        print!("{text}");
        if !ok {
            bail!("{} failed", shown(&command));
        }
        part += &text;
    }
    page::write("bench-plan", &part)
}
