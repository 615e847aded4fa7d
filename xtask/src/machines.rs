//! `ci-machines`: the test binaries that are built already, on machines that this one is made to look like: with fewer
//! instructions, on one core, in little memory. What this machine lacks is said, not passed over.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::built::{Built, TestBinary};
use crate::command::{output, run as run_command, succeeds};
use crate::report::Report;

/// How much of the tests, and how long each looks.
#[derive(Clone, Copy, PartialEq)]
pub enum Extent {
    /// Every test of the crates that compute, train or are run by people; random cases and repetitions are fewer.
    Short,
    /// Every test of the workspace, with all the random cases there are.
    Full,
}

/// A machine that this one can be made to look like.
#[derive(Clone, Copy)]
struct Machine {
    /// What `MEMFIT_ISA` is set to.
    isa: Option<&'static str>,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    None,
    OneCore,
    /// Of address space.
    Memory {
        gib: u64,
    },
}

/// One core and little memory each go with an instruction set: four machines in two runs.
const SHORT: [Machine; 2] = [
    Machine { isa: Some("avx2"), limit: Limit::OneCore },
    Machine { isa: Some("portable"), limit: Limit::Memory { gib: 4 } },
];

const FULL: [Machine; 6] = [
    Machine { isa: Some("avx512"), limit: Limit::None },
    Machine { isa: Some("avx2"), limit: Limit::None },
    Machine { isa: Some("neon"), limit: Limit::None },
    Machine { isa: Some("portable"), limit: Limit::None },
    Machine { isa: None, limit: Limit::OneCore },
    Machine { isa: None, limit: Limit::Memory { gib: 4 } },
];

/// Crates (folders) whose tests a machine can change: they compute, train, or run the binary.
const SUITES: [&str; 4] = ["cli", "exec-tests", "memfit", "train"];

/// Runs the tests on each machine, as a check of its own.
pub fn check(report: &mut Report, extent: Extent) -> Result<()> {
    let built = Built::new()?;
    let sets = instruction_sets(&built)?;
    let machines: &[Machine] = if extent == Extent::Full { &FULL } else { &SHORT };
    for machine in machines {
        let name = format!("tests with {}", machine.name());
        match machine.lacking(&sets) {
            Some(reason) => report.not_run(&name, reason),
            None => report.check(&name, || machine.run_all(&built, extent))?,
        }
    }
    Ok(())
}

/// All that this machine has, from the program itself.
pub fn instruction_sets(built: &Built) -> Result<Vec<String>> {
    let mut devices = built.program("memfit")?;
    let (text, ok) = output(devices.args(["devices", "--json"]).env_remove("MEMFIT_ISA"))?;
    let device: Value = text.lines().next().and_then(|l| serde_json::from_str(l).ok()).unwrap_or_default();
    let sets = device["instructions"].as_array().filter(|_| ok).context("memfit devices lists no instruction sets")?;
    Ok(sets.iter().filter_map(Value::as_str).map(String::from).collect())
}

impl Machine {
    fn name(&self) -> String {
        let instructions = self.isa.map(|isa| format!("{isa} instructions"));
        let limit = match self.limit {
            Limit::None => None,
            Limit::OneCore => Some("one core".to_string()),
            Limit::Memory { gib } => Some(format!("{gib} GiB of memory")),
        };
        instructions.into_iter().chain(limit).collect::<Vec<_>>().join(" and ")
    }

    /// Why this machine cannot be made to look like it.
    fn lacking(&self, sets: &[String]) -> Option<String> {
        if let Some(isa) = self.isa.filter(|isa| !sets.iter().any(|set| set == isa)) {
            return Some(format!("this processor has no {isa}, but {}", sets.join(", ")));
        }
        let wrapper = self.wrap(Command::new("true"));
        let program = wrapper.get_program().to_string_lossy().into_owned();
        (!succeeds(&mut { wrapper })).then(|| format!("\"{program}\" cannot limit a process here"))
    }

    fn run_all(&self, built: &Built, extent: Extent) -> Result<()> {
        let wanted = |t: &&TestBinary| extent == Extent::Full || SUITES.contains(&t.package.as_str());
        let mut failed = Vec::new();
        for test in built.tests.iter().filter(wanted) {
            let mut command = Command::new(&test.path);
            // As cargo runs them; the kill test is a program of its own.
            command.arg("--quiet");
            let mut command = self.wrap(command);
            command.current_dir(&test.folder).env("CARGO_MANIFEST_DIR", &test.folder);
            command.env("MEMFIT_TEST_EFFORT", if extent == Extent::Full { "full" } else { "short" });
            if let Some(isa) = self.isa {
                command.env("MEMFIT_ISA", isa);
            }
            if let Err(problem) = run_command(&mut command) {
                eprintln!("{problem:#}");
                failed.push(format!("{}/{}", test.package, test.target));
            }
        }
        if !failed.is_empty() {
            bail!("{} fail with {}", failed.join(", "), self.name());
        }
        Ok(())
    }

    /// The same command, limited.
    fn wrap(&self, command: Command) -> Command {
        let mut wrapper = match self.limit {
            Limit::None => return command,
            Limit::OneCore => {
                let mut taskset = Command::new("taskset");
                taskset.args(["--cpu-list", &first_core()]);
                taskset
            }
            Limit::Memory { gib } => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -v {} && exec \"$0\" \"$@\"", gib << 20)]);
                shell
            }
        };
        wrapper.arg(command.get_program()).args(command.get_args());
        wrapper
    }
}

/// Of those that this process may run on: in a container that need not be core 0.
fn first_core() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    let first = list.and_then(|l| l.trim().split([',', '-']).next());
    first.unwrap_or("0").to_string()
}
