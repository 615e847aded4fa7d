//! The programs that measure: those of `memfit-bench`, and the scripts in `peers/` with their Pythons.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::run;
use crate::extern_checks::{cargo, work_folder};
use crate::python::{self, Dependencies};

/// A program of `memfit-bench`.
pub struct Memfit(PathBuf);

impl Memfit {
    pub fn build(program: &str) -> Result<Memfit> {
        Memfit::build_with(program, &[])
    }

    /// With features of its crate.
    pub fn build_with(program: &str, features: &[&str]) -> Result<Memfit> {
        let mut command = cargo("build");
        command.args(["--quiet", "--release", "--package", "memfit-bench", "--bin", program]);
        run(command.args(features.iter().flat_map(|feature| ["--features", feature])))?;
        // Beside the work folder: both are what cargo made.
        let folder = work_folder("peers")?;
        let target = folder.parent().context("the work folder has no parent")?;
        Ok(Memfit(target.join("release").join(program)))
    }

    pub fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

/// An interpreter with the packages of a framework.
pub struct Python(PathBuf);

impl Python {
    /// Installs what is missing.
    pub fn install(framework: &str) -> Result<Python> {
        let requirements = scripts().join(format!("requirements-{framework}.txt"));
        Ok(Python(python::environment(&format!("peers-{framework}"), &requirements, Dependencies::Installed)?))
    }

    /// One of the scripts, without its arguments.
    pub fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.0);
        // Compiled files would land in the repository.
        command.arg("-B").arg(scripts().join(name));
        command
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}
