//! One file a command.

pub mod devices;
pub mod eval;
pub mod history;
pub mod init;
pub mod models;
pub mod pack;
pub mod plan;
pub mod predict;
pub mod profile;
pub mod train;

use std::path::Path;

use anyhow::Result;

use crate::failure::usage;

/// Whether a file can be written there, as far as that can be known before it is.
pub fn check_writable(option: &str, path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !folder.is_dir() {
        let problem = format!("{option} {} cannot be written: name a file in a folder that exists", path.display());
        return Err(usage(problem));
    }
    Ok(())
}

/// A folder to write to, made if it is not there.
pub fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| usage(format!("{} cannot be made: {e}", folder.display())))
}
