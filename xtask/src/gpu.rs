//! The GPU executor on drivers in software: its tests, golden vectors and lints. It is a build of its own, since nothing else has
//! the feature `gpu`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{output, run as run_command, shown};
use crate::extern_checks::{cargo, repository, step, target_folder};
use crate::machines::Extent;
use crate::report::Report;
use crate::vulkan::{self, Driver};

/// What is built: in one go, since cargo would build 300 crates anew for each other set of packages.
const PACKAGES: [&str; 3] = ["memfit-exec-gpu", "memfit-cli", "memfit-exec-tests"];

/// The tests that need a GPU.
const TESTS: [&str; 14] = [
    "budgets",
    "conformance",
    "contractions",
    "edges",
    "folds",
    "gpt",
    "kernels",
    "memory",
    "moves",
    "recorded",
    "refused",
    "subgroups",
    "zoo",
    "gpus",
];

/// Those of them that hold kernels against the reference, on numbers: a driver may compile as if there were no NaN, and
/// SwiftShader does.
const KERNEL_TESTS: [&str; 4] = ["conformance", "contractions", "kernels", "moves"];

/// Kernels of attention, each of which SwiftShader compiles for minutes.
const SLOW_THERE: [&str; 2] = ["--skip", "attention"];

/// What says how long tests look.
const EFFORT: &str = "MEMFIT_TEST_EFFORT";

/// On Mesa's driver; with folders of golden vectors beside the bundled ones, of which the first is enough for every change.
pub fn check(report: &mut Report, extent: Extent, vectors: &[PathBuf]) -> Result<()> {
    report.check("the GPU executor on a driver in software", || {
        let driver = step("Vulkan driver in software", || vulkan::installed(Driver::Mesa))?;
        let driver = driver.as_deref();
        let effort = if extent == Extent::Full { "full" } else { "usual" };
        step("tests", || run_tests(&TESTS, &[], driver, effort))?;
        run_command(gpu_cargo("build", driver).args(["--bin", "golden"]))?;
        let bundled = repository().join("crates/exec-tests/tests/golden");
        let enough = if extent == Extent::Full { vectors.len() } else { 1 };
        for folder in std::iter::once(&bundled).chain(vectors.iter().take(enough)) {
            step(&format!("golden vectors in {}", folder.display()), || check_golden(folder, driver))?;
        }
        Ok(())
    })
}

/// On a driver that shares no code with Mesa's, where it came with Chromium.
pub fn check_other_driver(report: &mut Report) -> Result<()> {
    const NAME: &str = "the GPU executor on another driver in software";
    match vulkan::find(Driver::SwiftShader) {
        Some(driver) => report.check(NAME, || run_tests(&KERNEL_TESTS, &SLOW_THERE, Some(&driver), "usual")),
        None => {
            report.not_run(NAME, "there is no SwiftShader, which Debian's Chromium brings".into());
            Ok(())
        }
    }
}

/// With what is built for the tests, so that its build scripts and macros are there; the rest of 300 crates takes two cores two
/// minutes, which is too long for every change.
pub fn lint() -> Result<()> {
    run_command(gpu_cargo("clippy", None).args(["--all-targets", "--", "-D", "warnings"]))
}

/// With a driver, a missing GPU is a failure; without one, the tests run on what is there or say that they are skipped.
fn run_tests(tests: &[&str], options: &[&str], driver: Option<&Path>, effort: &str) -> Result<()> {
    let mut command = gpu_cargo("test", driver);
    command.args(tests.iter().flat_map(|test| ["--test", test])).env(EFFORT, effort);
    // What the tests measure: shaders and seconds of compiling of each model.
    let (said, passed) = output(command.args(["--", "--show-output"]).args(options))?;
    if !passed {
        print!("{said}");
        bail!("{} failed", shown(&command));
    }
    let measured = |line: &&str| line.contains("shaders more") || line.starts_with("test result");
    said.lines().filter(measured).for_each(|line| println!("{line}"));
    Ok(())
}

/// Prints the cases that fail, and the count.
fn check_golden(folder: &Path, driver: Option<&Path>) -> Result<()> {
    let mut golden = Command::new(target_folder()?.join("quick/golden"));
    with_driver(&mut golden, driver);
    let (lines, passed) = output(golden.arg(folder).args(["--device", "gpu"]))?;
    lines.lines().filter(|l| !l.starts_with("ok ")).for_each(|line| println!("{line}"));
    if !passed {
        bail!("the GPU does not compute what the golden vectors say; again with: {}", shown(&golden));
    }
    Ok(())
}

fn gpu_cargo(task: &str, driver: Option<&Path>) -> Command {
    let mut command = cargo(task);
    command.args(["--quiet", "--profile", "quick", "--features", "gpu"]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    with_driver(&mut command, driver);
    command
}

pub fn with_driver(command: &mut Command, driver: Option<&Path>) {
    if let Some(driver) = driver {
        command.env("VK_DRIVER_FILES", driver).env("VK_ICD_FILENAMES", driver).env("MEMFIT_REQUIRE_GPU", "1");
        // A layer of Mesa that looks for a screen and complains where there is none.
        command.env("NODEVICE_SELECT", "1");
    }
}
