//! Which cost profile is used: the one that is named, else the one that was measured on this machine, else the one that
//! ships with memfit.

use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::plan::Profile;

use crate::error::bad_data;

/// The profile, and the file it is from.
pub fn in_use(named: Option<&Path>) -> Result<(Profile, Option<PathBuf>)> {
    if let Some(path) = named {
        let cure = "name a file that `memfit devices --calibrate --out FILE` wrote";
        return Ok((read(path, cure)?, Some(path.to_path_buf())));
    }
    match measured_file().filter(|path| path.exists()) {
        Some(path) => {
            let cure = "remove it, or measure again with `memfit devices --calibrate`";
            Ok((read(&path, cure)?, Some(path)))
        }
        None => Ok((Profile::default(), None)),
    }
}

/// Where a measured profile of this machine is kept; none where there is no place for settings.
pub fn measured_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("memfit").join("profile.toml"))
}

fn read(path: &Path, cure: &str) -> Result<Profile> {
    let text =
        std::fs::read_to_string(path).map_err(|e| bad_data(format!("profile {}: {e}; {cure}", path.display())))?;
    Profile::from_toml(&text).map_err(|e| bad_data(format!("profile {}: {}; {cure}", path.display(), e.trim_end())))
}
