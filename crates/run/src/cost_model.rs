//! Which cost model is used: the one that is named, else the one that was measured on this machine, else the device's own.

use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::CpuExecutor;
use memfit::plan::CostModel;

use crate::error::bad_data;

/// The cost model that is named or was measured, and the file it is from; none for the device's own.
pub fn in_use(named: Option<&Path>) -> Result<Option<(CostModel, PathBuf)>> {
    if let Some(path) = named {
        let cure = "name a file that `memfit devices --calibrate --out FILE` wrote";
        return Ok(Some((read(path, cure)?, path.to_path_buf())));
    }
    let measured = [measured_file(), settings("profile.toml")];
    match measured.into_iter().flatten().find(|path| path.exists()) {
        Some(path) => {
            let cure = "remove it, or measure again with `memfit devices --calibrate`";
            Ok(Some((read(&path, cure)?, path)))
        }
        None => Ok(None),
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

fn read(path: &Path, cure: &str) -> Result<CostModel> {
    let problem = |problem: &str| bad_data(format!("cost model {}: {problem}; {cure}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| problem(&e.to_string()))?;
    CostModel::from_toml(&text, &CpuExecutor::default_cost_model()).map_err(|e| problem(e.trim_end()))
}
