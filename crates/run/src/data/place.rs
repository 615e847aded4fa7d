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
    /// Folders beside the training set of which nothing is read.
    pub unused: Vec<PathBuf>,
}

impl Places {
    /// Of what a run names as its training data.
    pub fn of(train: &Path, config: &DataConfig) -> Result<Places> {
        let Some(split) = Split::of(train)? else {
            let (train, test) = (train.to_path_buf(), config.test.clone());
            let unused = if test.is_none() { siblings(&train) } else { Vec::new() };
            return Ok(Places { train, test, is_split: false, unused });
        };
        // Who names a test set, or says how much is held out, wants that.
        let found = split.sets.first().filter(|_| config.hold_out.is_none());
        let test = config.test.as_ref().or(found).cloned();
        let others = split.sets.into_iter().chain(split.others);
        let unused = others.filter(|folder| Some(folder) != test.as_ref()).collect();
        Ok(Places { train: split.train, test, is_split: config.test.is_none(), unused })
    }
}

/// The path of the training data, for what is only asked of its looks.
pub fn training_path(path: &Path) -> PathBuf {
    match Split::of(path) {
        Ok(Some(split)) => split.train,
        Ok(None) | Err(_) => path.into(),
    }
}

/// The path of the data to evaluate on: of a folder that has one for each set, that of the other set.
pub fn test_path(path: &Path) -> PathBuf {
    let split = Split::of(path).ok().flatten();
    split.and_then(|split| split.sets.into_iter().next()).unwrap_or_else(|| path.into())
}

/// A folder that has a folder for each set, each with folders in it.
struct Split {
    train: PathBuf,
    /// Those that can be evaluated on, the best first.
    sets: Vec<PathBuf>,
    /// What else there is.
    others: Vec<PathBuf>,
}

impl Split {
    /// None where the folder is a set itself. One that has nothing but a training set is split too.
    fn of(folder: &Path) -> Result<Option<Split>> {
        let train = folder.join(TRAIN);
        if !train.is_dir() || folders(&train)?.is_empty() {
            return Ok(None);
        }
        let names = folders(folder)?;
        let is_there = |name: &str| names.iter().any(|known| known == name);
        // Images and their masks are a set, whatever else is there.
        if is_there("images") && is_there("masks") {
            return Ok(None);
        }
        let has_folders = |set: &PathBuf| folders(set).is_ok_and(|folders| !folders.is_empty());
        let sets: Vec<PathBuf> =
            OTHERS.into_iter().filter(|set| is_there(set)).map(|set| folder.join(set)).filter(has_folders).collect();
        if sets.is_empty() && names.len() > 1 {
            return Ok(None);
        }
        let known = |name: &&String| *name != TRAIN && !sets.contains(&folder.join(name));
        let others = names.iter().filter(known).map(|name| folder.join(name)).collect();
        Ok(Some(Split { train, sets, others }))
    }
}

/// Whether a folder is called like a set to evaluate on.
pub fn is_set(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| OTHERS.iter().any(|set| name == *set))
}

/// The other sets beside a training set that is named by itself.
fn siblings(train: &Path) -> Vec<PathBuf> {
    let is_set = train.file_name().is_some_and(|name| name.eq_ignore_ascii_case(TRAIN));
    let beside = OTHERS.into_iter().map(|set| train.with_file_name(set));
    beside.filter(|set| is_set && train.is_dir() && folders(set).is_ok_and(|folders| !folders.is_empty())).collect()
}

/// The names of the folders in a folder, sorted.
fn folders(of: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(of).map_err(|e| bad_path(of, &e.to_string()))?.flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made of a folder that has these folders in it.
    fn places(name: &str, folders: &[&str], train: &str, config: &DataConfig) -> Places {
        let root = std::env::temp_dir().join(format!("memfit-places-{}-{name}", std::process::id()));
        for folder in folders {
            std::fs::create_dir_all(root.join(folder)).expect("a temporary folder");
        }
        let places = Places::of(&root.join(train), config).expect("it can be read");
        std::fs::remove_dir_all(&root).expect("it is there");
        let short = |path: PathBuf| path.strip_prefix(&root).map(PathBuf::from).unwrap_or(path);
        Places {
            train: short(places.train),
            test: places.test.map(short),
            unused: places.unused.into_iter().map(short).collect(),
            ..places
        }
    }

    #[test]
    fn every_set_that_lies_there_is_used_or_told() {
        let all = ["train/cat", "val/cat", "test/cat", "notes"];
        let none = DataConfig::default();
        let held = DataConfig { hold_out: Some(0.2), ..DataConfig::default() };
        let named = DataConfig { test: Some("mine".into()), ..DataConfig::default() };
        let check = |name: &str, folders: &[&str], train: &str, config: &DataConfig, expected: [&str; 3]| {
            let found = places(name, folders, train, config);
            let unused: Vec<String> = found.unused.iter().map(|path| path.display().to_string()).collect();
            let test = found.test.map_or(String::new(), |path| path.display().to_string());
            assert_eq!([found.train.display().to_string(), test, unused.join(" ")], expected, "{name}");
        };
        check("all", &all, "", &none, ["train", "test", "val notes"]);
        check("two", &["train/cat", "val/cat"], "", &none, ["train", "val", ""]);
        check("held", &all, "", &held, ["train", "", "test val notes"]);
        check("named", &all, "", &named, ["train", "mine", "test val notes"]);
        check("alone", &["train/cat", "val/cat"], "train", &none, ["train", "", "val"]);
        check("alone-named", &["train/cat", "val/cat"], "train", &named, ["train", "mine", ""]);
        check("only", &["train/cat"], "", &none, ["train", "", ""]);
        // Here it is a class.
        check("class", &["train", "car"], "", &none, ["", "", ""]);
        check("vehicles", &["train/steam", "car"], "", &none, ["", "", ""]);
        check("masks", &["train/a", "test/a", "images", "masks"], "", &none, ["", "", ""]);
    }
}
