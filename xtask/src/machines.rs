//! `ci-machines`: the test binaries that are built already, on machines that this one is made to look like: with fewer
//! instructions, on one core, in little memory. What this machine lacks is said, not passed over.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::built::{Built, TestBinary};
use crate::command::{output, shown, succeeds};
use crate::report::Report;

/// Which machines, and which tests on them.
#[derive(Clone, Copy, PartialEq)]
pub enum Extent {
    /// Every test of the crates that compute, train or run the program.
    Short,
    /// Every test of the workspace.
    Full,
}

/// A machine that this one can be made to look like.
struct Machine {
    /// What `MEMFIT_ISA` is set to.
    isa: Option<&'static str>,
    limit: Limit,
    /// What `MEMFIT_TEST_EFFORT` is set to.
    effort: &'static str,
}

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
    Machine { isa: Some("avx2"), limit: Limit::OneCore, effort: "short" },
    Machine { isa: Some("portable"), limit: Limit::Memory { gib: 4 }, effort: "short" },
];

/// All random cases with the best instructions that there are, and the usual ones everywhere else.
const FULL: [Machine; 5] = [
    Machine { isa: None, limit: Limit::None, effort: "full" },
    Machine { isa: Some("avx2"), limit: Limit::None, effort: "usual" },
    Machine { isa: Some("portable"), limit: Limit::None, effort: "usual" },
    Machine { isa: None, limit: Limit::OneCore, effort: "usual" },
    Machine { isa: None, limit: Limit::Memory { gib: 4 }, effort: "usual" },
];

/// Crates (folders) whose tests a machine can change: they compute, train, or run the binary.
const SUITES: [&str; 6] = ["cli", "exec-cpu", "exec-tests", "memfit", "run", "train"];

/// Runs the tests on each machine, as a check of its own.
pub fn check(report: &mut Report, extent: Extent) -> Result<()> {
    let mut found = None;
    report.check("test binaries", || {
        let built = Built::new()?;
        found = Some((instruction_sets(&built)?, built));
        Ok(())
    })?;
    let Some((sets, built)) = found else { return Ok(()) };
    let machines: &[Machine] = if extent == Extent::Full { &FULL } else { &SHORT };
    // What runs on one core leaves the others to the next.
    let at_once = if extent == Extent::Full { 1 } else { 2 };
    for machines in machines.chunks(at_once) {
        let mut checks = Vec::new();
        for machine in machines {
            let name = format!("tests with {}", machine.name());
            match machine.lacking(&sets) {
                Some(reason) => report.not_run(&name, reason),
                None => checks.push((name, || machine.run_all(&built, extent))),
            }
        }
        report.check_side_by_side(checks)?;
    }
    Ok(())
}

/// All that this machine has, from the program itself.
pub fn instruction_sets(built: &Built) -> Result<Vec<String>> {
    instruction_sets_of(built.program("memfit")?)
}

/// As this memfit says.
pub fn instruction_sets_of(mut devices: Command) -> Result<Vec<String>> {
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
        let parts: Vec<String> = instructions.into_iter().chain(limit).collect();
        if parts.is_empty() { "all random cases".into() } else { parts.join(" and ") }
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
            command.arg("--quiet");
            let mut command = self.wrap(command);
            command.current_dir(&test.folder).env("CARGO_MANIFEST_DIR", &test.folder);
            command.env("MEMFIT_TEST_EFFORT", self.effort);
            if let Limit::Memory { .. } = self.limit {
                // Tests that run at the same time share the memory, and on a large machine they are many.
                command.env("RUST_TEST_THREADS", "2");
            }
            if let Some(isa) = self.isa {
                command.env("MEMFIT_ISA", isa);
            }
            let done = command.output().with_context(|| format!("cannot start {}", shown(&command)))?;
            // What tests say past the harness, such as that they were skipped.
            eprint!("{}", String::from_utf8_lossy(&done.stderr));
            if !done.status.success() {
                println!("{}{}: {}", String::from_utf8_lossy(&done.stdout), shown(&command), done.status);
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
