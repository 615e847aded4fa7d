//! `ci` and `ci-full`: all that has to hold before a change is kept, and all that is too long for every change. The order is the
//! order of cost, so that a slip is told early.

use anyhow::Result;

use crate::built::Built;
use crate::command::run as run_command;
use crate::extern_checks::{self, cargo};
use crate::gpu;
use crate::machines::{self, Extent};
use crate::report::{OnFailure, Report};
use crate::sweep_memory;

/// What a change has to pass; ends with the first failure.
pub fn run() -> Result<()> {
    crate::alone(|report| checks(report, Extent::Short))
}

/// The same and what is too long for it; goes on after a failure.
pub fn run_full() -> Result<()> {
    let mut report = Report::new(OnFailure::GoOn);
    checks(&mut report, Extent::Full)?;
    report.check("lints with GPUs", gpu::lint)?;
    report.check("limits of memory, each", || sweep_memory::run(&[]))?;
    check_benches(&mut report)?;
    report.finish()
}

fn checks(report: &mut Report, extent: Extent) -> Result<()> {
    report.check("format", || run_command(cargo("fmt").args(["--all", "--check"])))?;
    report.check("lints", || {
        run_command(cargo("clippy").args(["--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    report.check("docs", || {
        run_command(cargo("doc").args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    report.check("tests", || run_command(cargo("test").args(["--workspace", "--release"])))?;
    report.check("tests with overflow checks", || run_command(cargo("test").args(["--package", "memfit-ir"])))?;
    machines::check(report, extent)?;
    extern_checks::check(report, &extern_checks::SEEDS, extent)
}

/// Programs of `memfit-bench` with the fewest rounds that they take.
const BENCHES: [(&str, &[&str]); 9] = [
    ("kernels", &["--rounds", "1"]),
    ("budgets", &["--rounds", "1", "mlp"]),
    ("steps", &["mlp", "2", "1"]),
    ("profile", &["mlp", "2", "1"]),
    ("prologue", &["2", "1"]),
    ("together", &["--rounds", "1"]),
    ("shared", &["--rounds", "1"]),
    ("fit", &["1", "1"]),
    ("overhead", &["--rounds", "1", "digits"]),
];

/// That each runs, not what it measures.
fn check_benches(report: &mut Report) -> Result<()> {
    for (name, arguments) in BENCHES {
        report
            .check(&format!("benchmark {name}, once"), || run_command(Built::new()?.program(name)?.args(arguments)))?;
    }
    report.check("benchmarks of kernels, once", || {
        run_command(cargo("bench").args(["--package", "memfit-bench", "--bench", "kernels", "--", "--test"]))
    })
}
