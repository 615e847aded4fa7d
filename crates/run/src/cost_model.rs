//! Which cost model is used: the one that is named, else the one that was measured on this machine, else the device's own.

use std::path::{Path, PathBuf};

use memfit::AnyExecutor;
use memfit::plan::CostModel;

use crate::error::{Result, RunError};
use crate::file::LARGEST_TEXT;

/// The cost model of a device with so many threads, and the file it is from; none for the device's own.
pub fn in_use(named: Option<&Path>, device: &str, threads: usize) -> Result<(CostModel, Option<PathBuf>)> {
    let usual = AnyExecutor::default_cost_model(device, threads)?;
    if let Some(path) = named {
        return Ok((read(path, &usual, false)?, Some(path.to_path_buf())));
    }
    let measured = [measured_file(), settings("profile.toml")];
    match measured.into_iter().flatten().find(|path| path.exists()) {
        Some(path) => Ok((read(&path, &usual, true)?, Some(path))),
        None => Ok((usual, None)),
    }
}

/// Where a measured cost model of this machine is kept; none where there is no place for settings. Before it had this name it
/// was called profile.toml, which is still read where there is no other.
pub fn measured_file() -> Option<PathBuf> {
    settings("cost_model.toml")
}

fn settings(file: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("memfit").join(file))
}

/// What the file does not say is as `usual`.
fn read(path: &Path, usual: &CostModel, is_measured: bool) -> Result<CostModel> {
    let wrong = |problem: &str| RunError::CostModel { path: path.into(), problem: problem.into(), is_measured };
    let text = memfit_files::read_text(path, LARGEST_TEXT).map_err(|e| wrong(&e.to_string()))?;
    CostModel::from_toml(&text, usual).map_err(|e| wrong(e.trim_end()))
}
