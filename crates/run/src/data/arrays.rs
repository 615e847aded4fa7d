//! Which arrays of an NPZ file, or of a folder of NPY files, are features and labels, of training and of evaluation: as it is said, else by the names
//! that people give them.

use std::path::Path;

use memfit::data::BytePool;
use memfit::data::sources::{ArrayInfo, Arrays};

use crate::config::DataConfig;
use crate::error::{Result, RunError};

use super::bad_path;

/// Names of features and labels. `train` in them has its counterpart `test`.
const USUAL: [[&str; 2]; 7] = [
    ["x", "y"],
    ["x_train", "y_train"],
    ["train_x", "train_y"],
    ["train_images", "train_labels"],
    ["images", "labels"],
    ["features", "labels"],
    ["data", "target"],
];
/// What stands in place of `train` in the names of other sets, the best first.
const OTHER_SETS: [&str; 4] = ["test", "val", "valid", "validation"];

/// Arrays of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayNames {
    pub features: String,
    pub label: String,
    /// Of the samples' weights.
    pub weight: Option<String>,
    /// Whether one of them was found by its name, and not said.
    pub is_guessed: bool,
    /// Whether they are those of a test set, which other keys name.
    pub is_test: bool,
}

impl ArrayNames {
    /// Of a training set.
    pub fn of_training(path: &Path, config: &DataConfig, pool: &BytePool) -> Result<ArrayNames> {
        let (features, label) = (config.features.as_deref(), config.label.first().map(String::as_str));
        let weight = config.sample_weight.clone();
        if let (Some(features), Some(label)) = (features, label) {
            return Ok(ArrayNames {
                features: features.into(),
                label: label.into(),
                weight,
                is_guessed: false,
                is_test: false,
            });
        }
        let known = names(path, pool)?;
        let usual = USUAL.iter().find_map(|[x, y]| {
            let (x, y) = (find(&known, x)?, find(&known, y)?);
            let fits = features.is_none_or(|said| said == x) && label.is_none_or(|said| said == y);
            fits.then(|| (x.to_string(), y.to_string()))
        });
        // Of two names that do not go together, the one that is said stays.
        let alone = |said: Option<&str>, column: usize| {
            let usual = || USUAL.iter().find_map(|names| find(&known, names[column])).unwrap_or(USUAL[0][column]);
            said.unwrap_or_else(usual).to_string()
        };
        let (features, label) = usual.unwrap_or_else(|| (alone(features, 0), alone(label, 1)));
        Ok(ArrayNames { features, label, weight, is_guessed: true, is_test: false })
    }

    /// As they are said, else as they are mostly called.
    pub fn usual(config: &DataConfig) -> ArrayNames {
        let [features, label] = [(config.features.as_ref(), USUAL[0][0]), (config.label.first(), USUAL[0][1])]
            .map(|(said, usual)| said.cloned().unwrap_or_else(|| usual.into()));
        ArrayNames { features, label, weight: None, is_guessed: false, is_test: false }
    }

    /// Of a test set in this file: as it is said, else the counterparts of those of the training set, else the same names.
    pub fn of_test(&self, path: &Path, config: &DataConfig, pool: &BytePool) -> Result<ArrayNames> {
        let known = names(path, pool)?;
        let name = |said: &Option<String>, own: &str, usual: usize| {
            let found = || counterpart(&known, own).or_else(|| find_exactly(&known, own));
            let usual = || USUAL.iter().find_map(|names| find_test(&known, names[usual]));
            said.clone().or_else(found).or_else(usual).unwrap_or_else(|| own.to_string())
        };
        Ok(ArrayNames {
            features: name(&config.test_features, &self.features, 0),
            label: name(&config.test_label, &self.label, 1),
            weight: None,
            is_guessed: config.test_features.is_none() || config.test_label.is_none(),
            is_test: true,
        })
    }

    /// Of a test set in the file of the training set, where there is one.
    pub fn test_beside(&self, path: &Path, config: &DataConfig, pool: &BytePool) -> Result<Option<ArrayNames>> {
        let names = self.of_test(path, config, pool)?;
        Ok(Some(names).filter(|names| names.features != self.features && names.label != self.label))
    }

    /// The arrays of other sets in the file of the training set, the best first.
    pub fn sets_beside(&self, path: &Path, pool: &BytePool) -> Result<Vec<ArrayNames>> {
        let known = names(path, pool)?;
        let of_set = |set: &str| {
            let (features, label) = (in_set(&known, &self.features, set)?, in_set(&known, &self.label, set)?);
            Some(ArrayNames { features, label, weight: None, is_guessed: true, is_test: true })
        };
        Ok(OTHER_SETS.into_iter().filter_map(of_set).collect())
    }

    /// Opens them as the fields `x` and `y`, and `w` where there are weights.
    pub fn open(&self, path: &Path, pool: &BytePool) -> Result<Arrays> {
        let found = list(path, pool)?;
        let weight = self.weight.as_ref().map(|name| (ArrayRole::Weight, name));
        for (role, name) in
            [(ArrayRole::Features, &self.features), (ArrayRole::Label, &self.label)].into_iter().chain(weight)
        {
            let (path, array) = (path.to_path_buf(), ArrayOf { role, is_test: self.is_test, name: name.clone() });
            match found.iter().find(|info| info.name == *name) {
                None => {
                    let likely = self.likely(&found).map(Box::new);
                    return Err(RunError::NoArray { path, array, found, likely });
                }
                Some(info) if !info.is_readable => {
                    return Err(RunError::ArrayType { path, array, dtype: info.dtype.clone() });
                }
                Some(_) => {}
            }
        }
        let fields = [("x", self.features.as_str()), ("y", &self.label)].into_iter();
        let fields: Vec<(&str, &str)> = fields.chain(weight.map(|(_, name)| ("w", name.as_str()))).collect();
        if !path.is_dir() {
            return Ok(Arrays::npz(path, &fields, pool)?);
        }
        let file = |name: &str| path.join(name).with_added_extension(NPY);
        let files: Vec<_> = fields.iter().map(|(field, name)| (*field, file(name))).collect();
        Ok(Arrays::npy(&files, pool)?)
    }

    /// Opens the features alone as the field `x`: of a file with one array that can be read, that one, and of a single array, it.
    pub fn open_features(&self, path: &Path, pool: &BytePool) -> Result<Arrays> {
        if is_npy(path) {
            return Ok(Arrays::npy(&[("x", path)], pool)?);
        }
        let found = list(path, pool)?;
        let mut readable = found.iter().filter(|info| info.is_readable);
        let name = match (found.iter().find(|info| info.name == self.features), readable.next(), readable.next()) {
            (None, Some(only), None) => &only.name,
            (_, _, _) => &self.features,
        };
        match found.iter().find(|info| info.name == *name) {
            Some(info) if info.is_readable && path.is_dir() => {
                Ok(Arrays::npy(&[("x", path.join(name).with_added_extension(NPY))], pool)?)
            }
            Some(info) if info.is_readable => Ok(Arrays::npz(path, &[("x", name)], pool)?),
            found_one => {
                let array = ArrayOf { role: ArrayRole::Features, is_test: false, name: name.clone() };
                let path = path.to_path_buf();
                Err(match found_one {
                    Some(info) => RunError::ArrayType { path, array, dtype: info.dtype.clone() },
                    None => RunError::NoArray { path, array, found, likely: None },
                })
            }
        }
    }

    /// Of arrays without the usual names, those that look like samples and their classes.
    fn likely(&self, found: &[ArrayInfo]) -> Option<[String; 2]> {
        let named = |name: &str| found.iter().find(|info| info.name == name);
        let features = named(&self.features).or_else(|| {
            found.iter().find(|info| info.is_readable && info.shape.len() > 1 && info.name != self.label)
        })?;
        let is_label = |info: &&ArrayInfo| {
            info.name != features.name && info.shape.len() == 1 && info.shape.first() == features.shape.first()
        };
        let label = named(&self.label).or_else(|| found.iter().find(is_label))?;
        Some([features.name.clone(), label.name.clone()])
    }

    pub fn words(&self) -> String {
        format!("{} and {}", self.features, self.label)
    }
}

/// What an array is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayRole {
    Features,
    Label,
    Weight,
}

/// An array that a run asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayOf {
    pub role: ArrayRole,
    /// Whether it is one of a test set.
    pub is_test: bool,
    pub name: String,
}

impl ArrayOf {
    /// The key of `[data]` that names it.
    pub const fn key(&self) -> &'static str {
        match (self.role, self.is_test) {
            (ArrayRole::Features, false) => "features",
            (ArrayRole::Label, false) => "label",
            (ArrayRole::Features, true) => "test_features",
            (ArrayRole::Label, true) => "test_label",
            (ArrayRole::Weight, _) => "sample_weight",
        }
    }
}

/// Whether the samples of arrays are pictures, by their shape: height and width, with or without channels.
pub fn are_pictures(path: &Path, config: &DataConfig, pool: &BytePool) -> Result<bool> {
    let arrays = ArrayNames::of_training(path, config, pool)?.open(path, pool)?;
    let shape = arrays.row("x").map(|row| row.shape.to_vec()).unwrap_or_default();
    Ok(match shape[..] {
        [height, width] => height.min(width) >= SMALLEST_PICTURE,
        [_, _, _] => channel_axis(&shape).is_some(),
        _ => false,
    })
}

/// Where the channels of pictures stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelAxis {
    First,
    Last,
}

/// The outer axis of a sample that has as many extents as a picture has channels; the last where both have. None where the
/// sample is no picture.
pub fn channel_axis(shape: &[usize]) -> Option<ChannelAxis> {
    match *shape {
        [_, _, 1 | 3 | 4] => Some(ChannelAxis::Last),
        [1 | 3 | 4, _, _] => Some(ChannelAxis::First),
        _ => None,
    }
}

/// Rows of two axes that are smaller are rather a table or a series than a picture.
const SMALLEST_PICTURE: usize = 8;

const NPY: &str = "npy";

/// Whether a folder is one of arrays.
pub fn is_folder(path: &Path) -> bool {
    npy_files(path).is_ok_and(|names| !names.is_empty())
}

/// Whether a file is a single array, by its name.
pub fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(NPY))
}

/// One array is no data to train on; others may lie beside it.
pub fn single_array(path: &Path) -> RunError {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = npy_files(folder).unwrap_or_default();
    let known = ArrayNames::usual(&DataConfig::default());
    let has = |name: &String| find(&beside, name).is_some();
    let folder = Some(folder.to_path_buf()).filter(|_| has(&known.features) && has(&known.label));
    RunError::SingleArray { path: path.into(), folder }
}

/// The names of the arrays in a file, or in a folder of files.
fn names(path: &Path, pool: &BytePool) -> Result<Vec<String>> {
    if path.is_dir() {
        return npy_files(path).map_err(|e| bad_path(path, &e.to_string()));
    }
    if is_npy(path) {
        return Err(single_array(path));
    }
    Ok(Arrays::names(path, pool)?)
}

/// The arrays in a file, or in a folder of files.
fn list(path: &Path, pool: &BytePool) -> Result<Vec<ArrayInfo>> {
    if !path.is_dir() {
        return Ok(Arrays::list_npz(path, pool)?);
    }
    let info = |name: String| Ok(Arrays::describe_npy(path.join(name).with_added_extension(NPY))?);
    names(path, pool)?.into_iter().map(info).collect()
}

/// The names of the arrays in a folder, sorted.
fn npy_files(folder: &Path) -> std::io::Result<Vec<String>> {
    let files = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let arrays = files.filter(|path| path.extension().is_some_and(|e| e == NPY));
    let mut names: Vec<String> = arrays.filter_map(|path| Some(path.file_stem()?.to_str()?.to_string())).collect();
    names.sort_unstable();
    Ok(names)
}

fn find<'a>(known: &'a [String], name: &str) -> Option<&'a str> {
    known.iter().map(String::as_str).find(|known| known.eq_ignore_ascii_case(name))
}

fn find_exactly(known: &[String], name: &str) -> Option<String> {
    known.iter().find(|known| *known == name).cloned()
}

/// The array of another set that is called like this one of the training set.
fn counterpart(known: &[String], name: &str) -> Option<String> {
    OTHER_SETS.into_iter().find_map(|set| in_set(known, name, set))
}

/// The array of this set that is called like this one of the training set.
fn in_set(known: &[String], name: &str, set: &str) -> Option<String> {
    let Some(at) = name.to_lowercase().find("train") else {
        let named = [format!("{name}_{set}"), format!("{set}_{name}")];
        return named.iter().find_map(|name| find(known, name).map(str::to_string));
    };
    let (before, after) = (name.get(..at)?, name.get(at + "train".len()..)?);
    find(known, &format!("{before}{set}{after}")).map(str::to_string)
}

/// An array with a usual name: of a test set, else one that names no set.
fn find_test(known: &[String], name: &str) -> Option<String> {
    counterpart(known, name).or_else(|| find(known, name).filter(|_| !name.contains("train")).map(str::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn an_array_of_the_training_set_has_its_counterpart() {
        let keras = owned(&["x_train", "y_train", "x_test", "y_test"]);
        assert_eq!(counterpart(&keras, "x_train").as_deref(), Some("x_test"));
        let beside = owned(&["x", "y", "x_test", "test_y"]);
        assert_eq!(counterpart(&beside, "x").as_deref(), Some("x_test"));
        assert_eq!(counterpart(&beside, "y").as_deref(), Some("test_y"));
        assert_eq!(counterpart(&owned(&["X_train", "X_val"]), "X_train").as_deref(), Some("X_val"));
        assert_eq!(
            counterpart(&owned(&["train_images", "val_images", "test_images"]), "train_images").as_deref(),
            Some("test_images")
        );
        assert_eq!((counterpart(&keras, "z"), counterpart(&owned(&["x_train"]), "x_train")), (None, None));
        assert_eq!(find_test(&owned(&["x", "y"]), "x").as_deref(), Some("x"));
        assert_eq!(find_test(&owned(&["x_train"]), "x_train"), None);
    }
}
