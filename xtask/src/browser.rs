//! Reports in a browser: Debian's Chromium, without a window, opens reports of real plans. Judges nothing itself: the script in
//! `browser/` holds what the pages show against the profiles.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::apt;
use crate::command::{run, succeeds};
use crate::extern_checks::{cargo, step, target_folder, work_folder};
use crate::python::{self, Dependencies};
use crate::report::Report;

/// Of Debian and Ubuntu.
const PACKAGE: &str = "chromium";
/// What it may be called.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const NAME: &str = "reports in a browser";

/// Writes reports, opens them, and leaves screenshots in the folder `report` of what cargo builds.
pub fn check(report: &mut Report) -> Result<()> {
    if find().is_none()
        && let Err(reason) = apt::install(&[PACKAGE])?
    {
        report.not_run(NAME, format!("there is no Chromium, and {reason}; install it with: apt-get install {PACKAGE}"));
        return Ok(());
    }
    let Some(chromium) = find() else {
        report.not_run(NAME, format!("{PACKAGE} is installed, but brings no program of that name"));
        return Ok(());
    };
    report.check(NAME, || {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
        let interpreter = step("Python environment", || {
            python::environment("browser", &scripts.join("requirements.txt"), Dependencies::Installed)
        })?;
        let folder = work_folder("report")?;
        step("reports of a few models", || write_reports(&folder))?;
        step("the pages", || {
            // Compiled files would land in the repository.
            let mut script = Command::new(&interpreter);
            run(script.arg("-B").arg(scripts.join("check_reports.py")).arg(&chromium).arg(&folder))
        })?;
        println!("screenshots: {}", folder.display());
        Ok(())
    })
}

/// With the features that the tests of the workspace have, so that nothing is built twice.
fn write_reports(folder: &Path) -> Result<()> {
    run(cargo("build").args(["--quiet", "--workspace", "--release", "--example", "sample_report"]))?;
    run(Command::new(target_folder()?.join("release/examples/sample_report")).arg(folder))
}

fn find() -> Option<PathBuf> {
    let starts = |name: &&&str| succeeds(Command::new(name).arg("--version"));
    let name = PROGRAMS.iter().find(starts)?;
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
