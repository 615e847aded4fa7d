//! Packages of Debian and Ubuntu, where this process may install them.

use std::process::Command;

use anyhow::Result;

use crate::command::{run, succeeds};

/// Installs packages and says so, or gives the reason why it cannot.
pub fn install(packages: &[&str]) -> Result<Result<(), &'static str>> {
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return Ok(Err("there is no apt-get"));
    }
    if !is_root() {
        return Ok(Err("only root may install packages"));
    }
    println!("installing {}", packages.join(", "));
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet").args(arguments))
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat())?;
    Ok(Ok(()))
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}
