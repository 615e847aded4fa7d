//! What a training leaves behind, and whether another left the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Files of a run by name: what has to be the same byte for byte.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Weights and tensors of checkpoints.
pub fn tensors(run: &Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(run).with_context(|| format!("cannot read {}", run.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(name, fs::read(&path)?);
        }
    }
    if files.len() < 2 {
        bail!("{} has no weights or no checkpoint: {:?}", run.display(), files.keys());
    }
    Ok(files)
}

/// The same, and the plan.
pub fn tensors_and_plan(run: &Path) -> Result<Files> {
    let mut files = tensors(run)?;
    files.insert("plan.json".into(), fs::read(run.join("plan.json"))?);
    Ok(files)
}

pub fn check_same(files: &Files, expected: &Files) -> Result<()> {
    if files.keys().ne(expected.keys()) {
        bail!("there are {:?} instead of {:?}", files.keys(), expected.keys());
    }
    for (name, bytes) in files {
        let other = &expected[name];
        if let Some(at) = bytes.iter().zip(other).position(|(a, b)| a != b) {
            bail!("{name} differs from byte {at} on, of {}", bytes.len());
        }
        if bytes.len() != other.len() {
            bail!("{name} has {} bytes instead of {}", bytes.len(), other.len());
        }
    }
    Ok(())
}

/// The step of the last checkpoint, if there is one.
pub fn saved_step(run: &Path) -> Option<u64> {
    let checkpoint: Value = serde_json::from_slice(&fs::read(run.join("last.json")).ok()?).ok()?;
    checkpoint["checkpoint"]["step"].as_u64()
}

/// An empty folder.
pub fn fresh(folder: PathBuf) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let files = |pairs: &[(&str, &str)]| -> Files {
            pairs.iter().map(|(name, bytes)| (name.to_string(), bytes.as_bytes().to_vec())).collect()
        };
        let expected = files(&[("a", "123"), ("b", "45")]);
        let told = |pairs: &[(&str, &str)]| check_same(&files(pairs), &expected).map_err(|e| e.to_string());
        assert_eq!(told(&[("a", "123"), ("b", "45")]), Ok(()));
        assert_eq!(told(&[("a", "123"), ("b", "46")]), Err("b differs from byte 1 on, of 2".into()));
        assert_eq!(told(&[("a", "1234"), ("b", "45")]), Err("a has 4 bytes instead of 3".into()));
        assert!(told(&[("a", "123")]).is_err());
    }
}
