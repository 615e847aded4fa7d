//! Where the sets of a run are: the paths that it names; or a folder that has one folder for each set.

use std::path::{Path, PathBuf};

use super::bad_path;
use crate::config::DataConfig;
use crate::error::Result;

const TRAIN: &str = "train";
/// The set that is evaluated on is the first of these that is there.
const OTHERS: [&str; 4] = ["test", "val", "valid", "validation"];

/// The paths of the sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub train: PathBuf,
    pub test: Option<PathBuf>,
    /// Whether they were found in the folder that the run names.
    pub is_split: bool,
}

impl Places {
    /// Of what a run names as its training data.
    pub fn of(train: &Path, config: &DataConfig) -> Result<Places> {
        if let Some(test) = &config.test {
            return Ok(Places { train: train.into(), test: Some(test.clone()), is_split: false });
        }
        let Some(test) = other_set(train)? else {
            return Ok(Places { train: train.into(), test: None, is_split: false });
        };
        // Who says how much is held out wants that.
        let test = Some(test).filter(|_| config.hold_out.is_none());
        Ok(Places { train: train.join(TRAIN), test, is_split: true })
    }
}

/// The path of the training data, for what is only asked of its looks.
pub fn training_path(path: &Path) -> PathBuf {
    match other_set(path) {
        Ok(Some(_)) => path.join(TRAIN),
        Ok(None) | Err(_) => path.into(),
    }
}

/// The path of the data to evaluate on: of a folder that has one for each set, that of the other set.
pub fn test_path(path: &Path) -> PathBuf {
    other_set(path).ok().flatten().unwrap_or_else(|| path.into())
}

/// The test set beside the training set: of a folder that has a folder for each of both, with folders in it, and no others.
fn other_set(folder: &Path) -> Result<Option<PathBuf>> {
    if !folder.join(TRAIN).is_dir() {
        return Ok(None);
    }
    let folders = |of: &Path| -> Result<Vec<String>> {
        let entries = std::fs::read_dir(of).map_err(|e| bad_path(of, &e.to_string()))?.flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    };
    let sets = folders(folder)?;
    let is_set = |name: &String| name == TRAIN || OTHERS.contains(&name.as_str());
    let Some(other) = OTHERS.iter().find(|other| sets.iter().any(|set| set == *other)) else { return Ok(None) };
    let has_classes = !folders(&folder.join(TRAIN))?.is_empty() && !folders(&folder.join(other))?.is_empty();
    Ok((sets.iter().all(is_set) && has_classes).then(|| folder.join(other)))
}
