//! Which cost model is used: the one that is named, else the one that was measured on the same device, else the device's own.

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
    // Before it had its name, that of the CPU was called profile.toml, which is still read where there is no other.
    let former = AnyExecutor::adapter(device)?.is_none().then(|| settings("profile.toml")).flatten();
    let measured = [measured_file(device)?, former];
    match measured.into_iter().flatten().find(|path| path.exists()) {
        Some(path) => Ok((read(&path, &usual, true)?, Some(path))),
        None => Ok((usual, None)),
    }
}

/// Where a measured cost model of a device of this machine is kept, each GPU's by its name; none where there is no place for
/// settings.
pub fn measured_file(device: &str) -> Result<Option<PathBuf>> {
    let adapter = AnyExecutor::adapter(device)?;
    Ok(settings(&adapter.map_or("cost_model.toml".into(), |name| format!("cost_model-{}.toml", file_name(&name)))))
}

/// A name as part of a file's: what is neither letter nor digit becomes a hyphen.
fn file_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    if name.is_empty() { "gpu".into() } else { name }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_a_file_of_its_own() {
        assert_eq!(file_name("llvmpipe (LLVM 15.0.6, 256 bits)"), "llvmpipe-llvm-15-0-6-256-bits");
        assert_eq!([file_name("../../etc"), file_name("--")], ["etc", "gpu"]);
        if let Ok(Some(file)) = measured_file("cpu:0/1") {
            assert!(file.ends_with("memfit/cost_model.toml"), "{}", file.display());
        }
    }
}
