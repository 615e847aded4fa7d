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

/// The same of a file of which an older one of its kind may be replaced, and no other: one with this ending.
pub fn check_replaceable(option: &str, path: &Path, ending: &str) -> Result<()> {
    let is_of_kind = path.extension().is_some_and(|e| e.eq_ignore_ascii_case(ending));
    if path.is_file() && !is_of_kind {
        let problem =
            format!("{option} {0}: this file is there, and no .{ending} by its name; name another", path.display());
        return Err(usage(problem));
    }
    check_writable(option, path)
}

/// A folder to write to, made if it is not there.
pub fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| usage(format!("{} cannot be made: {e}", folder.display())))
}
