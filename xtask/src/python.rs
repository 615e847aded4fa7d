//! Pythons of our own: virtual environments in the cache folder, each with the packages of a requirements file, at its
//! versions. Never installs a package anywhere else.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt;
use crate::command::{run, succeeds};

/// The oldest Python that the packages support.
const OLDEST: &str = "3.11";
/// Of Debian and Ubuntu; it brings Python itself.
const PACKAGE: &str = "python3-venv";

/// What is installed beside the packages of a requirements file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dependencies {
    /// What the packages say they need.
    Installed,
    /// Nothing: the file lists what is really used, where packages ask for far more.
    Listed,
}

/// The interpreter of the environment of this name, which is made first if it is not there or has other packages.
pub fn environment(name: &str, requirements: &Path, dependencies: Dependencies) -> Result<PathBuf> {
    let packages =
        fs::read_to_string(requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    // Another run may be making the same environment.
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock()?;
    let root = cache.join(name);
    let interpreter = root.join("bin/python3");
    let marker = root.join("installed.txt");
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == packages)
        && succeeds(Command::new(&interpreter).arg("--version"))
    {
        return Ok(interpreter);
    }
    make(&root)?;
    println!("installing {} into {}", packages.split_whitespace().collect::<Vec<_>>().join(" "), root.display());
    install(&interpreter, requirements, dependencies)?;
    // Written last: an environment that was interrupted is made anew.
    fs::write(&marker, packages)?;
    Ok(interpreter)
}

pub fn cache() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("MEMFIT_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("memfit")))
        .or_else(|| Some(set("HOME")?.join(".cache/memfit")))
        .context("no place for a cache: set MEMFIT_CACHE to a folder")
}

fn make(root: &Path) -> Result<()> {
    ensure_python()?;
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(root))
}

fn install(interpreter: &Path, requirements: &Path, dependencies: Dependencies) -> Result<()> {
    let mut pip = Command::new(interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
    if dependencies == Dependencies::Listed {
        pip.arg("--no-deps");
    }
    run(pip.arg("--requirement").arg(requirements)).context("cannot install the Python packages")
}

/// The folder of the oracles.
pub fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle")
}

fn ensure_python() -> Result<()> {
    if !can_make_environments()
        && let Err(reason) = apt::install(&[PACKAGE])?
    {
        bail!("python3 with venv is needed, and {reason}; install it with: apt-get install {PACKAGE}");
    }
    let recent = format!("import sys; sys.exit(sys.version_info < ({}))", OLDEST.replace('.', ","));
    if !succeeds(Command::new("python3").args(["-c", &recent])) {
        bail!("python3 is older than {OLDEST}, which the packages need; put a newer one first in PATH");
    }
    Ok(())
}

fn can_make_environments() -> bool {
    // Debian ships the module venv without what it needs.
    succeeds(Command::new("python3").args(["-c", "import venv, ensurepip"]))
}
