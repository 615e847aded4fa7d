//! Which cost profile is used: the one that is named, else the one that was measured on this machine, else the one that
//! ships with memfit.

use std::path::{Path, PathBuf};

use memfit::plan::Profile;

use crate::error::{Result, RunError};

/// The profile, and the file it is from.
pub fn in_use(named: Option<&Path>) -> Result<(Profile, Option<PathBuf>)> {
    if let Some(path) = named {
        return Ok((read(path, false)?, Some(path.to_path_buf())));
    }
    match measured_file().filter(|path| path.exists()) {
        Some(path) => Ok((read(&path, true)?, Some(path))),
        None => Ok((Profile::default(), None)),
    }
}

/// Where a measured profile of this machine is kept; none where there is no place for settings.
pub fn measured_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("memfit").join("profile.toml"))
}

fn read(path: &Path, is_measured: bool) -> Result<Profile> {
    let wrong = |problem: &str| RunError::CostModel { path: path.into(), problem: problem.into(), is_measured };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e.to_string()))?;
    Profile::from_toml(&text).map_err(|e| wrong(e.trim_end()))
}
