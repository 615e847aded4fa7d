//! The files in `examples/replicas` that start replicas elsewhere: the MPIJob against a schema of what its operator reads, the
//! scripts by what they start, and the Dockerfile by a reader of such files. Starts no cluster and builds no image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt;
use crate::command::{output, run, succeeds};
use crate::extern_checks::{repository, step, work_folder};
use crate::python::{self, Dependencies};
use crate::report::Report;

const NAME: &str = "files that start replicas";
/// Of Debian and Ubuntu.
const PACKAGES: [&str; 2] = ["nodejs", "npm"];

pub fn check(report: &mut Report) -> Result<()> {
    report.check(NAME, || {
        let interpreter = step("Python environment", || {
            python::environment("job-files", &scripts().join("requirements.txt"), Dependencies::Installed)
        })?;
        step("the MPIJob and the scripts", || {
            // Compiled files would land in the repository.
            run(Command::new(&interpreter).arg("-B").arg(scripts().join("check.py")).arg(examples()))
        })
    })?;
    let name = "the Dockerfile";
    let is_here = || ["node", "npm"].iter().all(|program| succeeds(Command::new(program).arg("--version")));
    if !is_here()
        && let Err(reason) = apt::install(&PACKAGES)?
    {
        let packages = PACKAGES.join(" ");
        report.not_run(name, format!("there is no npm, and {reason}; install it with: apt-get install {packages}"));
        return Ok(());
    }
    report.check(name, check_dockerfile)
}

/// That it is read without a word, and that a slip is not.
fn check_dockerfile() -> Result<()> {
    let reader = installed()?;
    let path = examples().join("Dockerfile");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    if let Some(said) = wrong(&reader, &path)? {
        bail!("{}: {said}", path.display());
    }
    let folder = work_folder("job-files")?;
    for (from, to) in [("RUN MPICC", "RUNN MPICC"), ("COPY . /memfit", "COPY /memfit"), ("FROM rust", "# FROM rust")] {
        let (slip, changed) = (folder.join("Dockerfile"), text.replacen(from, to, 1));
        fs::write(&slip, &changed)?;
        if changed == text || wrong(&reader, &slip)?.is_none() {
            bail!("nothing is said where \"{from}\" is \"{to}\"");
        }
    }
    Ok(())
}

/// What the reader says of a file that it takes for wrong.
fn wrong(reader: &Path, path: &Path) -> Result<Option<String>> {
    let (said, is_right) = output(Command::new("node").arg(reader).arg("lint").arg(path))?;
    Ok((!is_right || !said.trim().is_empty()).then_some(said))
}

/// The reader, in the cache folder at the versions that are asked for.
fn installed() -> Result<PathBuf> {
    let folder = python::cache()?.join("job-files-js");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let wanted = fs::read_to_string(scripts().join("package.json"))?;
    let (marker, reader) = (folder.join("installed.json"), folder.join("node_modules/.bin/dockerfile-utils"));
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) && reader.exists() {
        return Ok(reader);
    }
    fs::write(folder.join("package.json"), &wanted)?;
    let mut npm = Command::new("npm");
    // No package may run anything.
    npm.args(["install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]);
    run(npm.current_dir(&folder)).context("cannot install the reader of Dockerfiles")?;
    // Written last: what was interrupted is made anew.
    fs::write(&marker, wanted)?;
    Ok(reader)
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("job_files")
}

fn examples() -> PathBuf {
    repository().join("examples/replicas")
}
