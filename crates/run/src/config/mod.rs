//! What a run is asked to do. A [`RunConfig`] is read from a run file key by key along one table ([`KEYS`]), which also
//! writes the file that a new run begins with, and is changed key by key; every value in it is of its kind. Nothing is opened
//! here and no number is weighed against another: see [`crate::RunResources`].

mod key;
mod keys;
mod read;
mod sections;
mod template;
mod texts;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

pub use key::{Form, Key, KeyOption, scope};
pub use keys::{KEYS, find};
pub use read::parse_size;
pub use sections::{ClassWeights, DataConfig, MemoryConfig, ModelConfig, ReplicasConfig, Sections, TrainConfig};
pub use template::commented;
pub use texts::{RunFolder, RunText};

use crate::error::{Result, RunError};

/// The configuration of a run. Its values are read as fields, `config.train.batch`, and changed by [`RunConfig::set`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunConfig {
    sections: Sections,
    /// What is set, as a run file has it.
    table: Table,
    origin: Origin,
    /// Set over what a file says.
    overridden: Vec<&'static Key>,
}

/// Where a configuration is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    #[default]
    Defaults,
    File(PathBuf),
    /// A run that is there.
    RunDir(RunFolder),
}

/// What is no path where a path may stand.
pub const WORDS: [&str; 2] = ["off", "memory"];

impl RunConfig {
    /// Reads a run file.
    pub fn read(path: &Path) -> Result<RunConfig> {
        RunConfig::of_text(RunText::of_file(path)?)
    }

    /// Of a run that is there: its folder, or one of the two checkpoints in it.
    pub fn resume(path: &Path) -> Result<RunConfig> {
        RunConfig::of_text(RunText::of_run(path)?)
    }

    /// What a file says, wherever it was read.
    pub fn of_text(RunText { path, text, folder }: RunText) -> Result<RunConfig> {
        // What an older version wrote down is no wish of anybody.
        let change = if folder.is_some() { as_it_was } else { |_: &mut Table| {} };
        let config = RunConfig::parse_with(&text, path.parent().unwrap_or(Path::new("")), change)
            .map_err(|source| RunError::InFile { path: path.clone(), source: Box::new(source) })?;
        Ok(RunConfig { origin: folder.map_or(Origin::File(path), Origin::RunDir), ..config })
    }

    /// Reads the text of a run file. Paths in it are taken from `folder`, where the file lies.
    pub fn parse(text: &str, folder: &Path) -> Result<RunConfig> {
        RunConfig::parse_with(text, folder, |_| {})
    }

    fn parse_with(text: &str, folder: &Path, change: fn(&mut Table)) -> Result<RunConfig> {
        let mut table: Table =
            text.parse().map_err(|e: toml::de::Error| RunError::Syntax(e.to_string().trim_end().to_string()))?;
        change(&mut table);
        for path in paths(&mut table).filter(|path| !path.is_empty()) {
            // A path that is no text cannot be: it was one.
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
        Ok(RunConfig { sections: read::sections(&table)?, table, ..RunConfig::default() })
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The run that is there.
    pub fn run_folder(&self) -> Option<&RunFolder> {
        match &self.origin {
            Origin::RunDir(folder) => Some(folder),
            Origin::Defaults | Origin::File(_) => None,
        }
    }

    /// The folder of the run that is to be resumed.
    pub fn resumed_folder(&self) -> Option<&Path> {
        self.run_folder().map(|folder| &*folder.path)
    }

    /// Sets a key. A value that is not of its kind changes nothing.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) -> Result<()> {
        let mut table = self.table.clone();
        let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(keys) = entry {
            keys.insert(key.to_string(), value.into());
        }
        self.sections = read::sections(&table)?;
        self.table = table;
        Ok(())
    }

    /// The same for a model of this name.
    pub(crate) fn with_model(&self, name: &str) -> Result<RunConfig> {
        self.with("model", "name", name)
    }

    /// The same with a key set.
    pub(crate) fn with(&self, section: &str, key: &str, value: impl Into<Value>) -> Result<RunConfig> {
        let mut config = self.clone();
        config.set(section, key, value)?;
        Ok(config)
    }

    /// Sets a key to a number that is one of ours, and within what TOML can write.
    pub fn set_count(&mut self, section: &str, key: &str, count: u64) -> Result<()> {
        self.set(section, key, i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub fn unset(&mut self, section: &str, key: &str) {
        if let Some(Value::Table(keys)) = self.table.get_mut(section) {
            keys.remove(key);
        }
        // What is left was right before.
        self.sections = read::sections(&self.table).unwrap_or_default();
    }

    /// Sets a key over what the file says: also of a key that says the same in another way.
    pub fn override_with(&mut self, key: &'static Key, value: impl Into<Value>) -> Result<()> {
        if let Some(other) = key.instead_of {
            self.unset(key.section, other);
        }
        self.set(key.section, key.name, value)?;
        self.overridden.push(key);
        // The digits are built in, and no kind of data that lies anywhere.
        if (key.section, key.name) == ("data", "train") && self.data.kind.as_deref() == Some("digits") {
            self.unset("data", "kind");
        }
        Ok(())
    }

    /// The input of the model, where the size of its pictures is said: what is set over a file goes before what stands there,
    /// and two that differ are no wish.
    pub(crate) fn settle_image_size(&mut self) -> Result<()> {
        let Some([height, width]) = self.data.image_size else { return Ok(()) };
        let input = self.model.input.clone().unwrap_or_default();
        if input.get(..2).is_some_and(|said| said == [height, width]) {
            return Ok(());
        }
        let [size_is_set, input_is_set] =
            [("data", "image_size"), ("model", "input")].map(|(s, n)| self.is_overridden(s, n));
        if !input.is_empty() && size_is_set == input_is_set {
            let input: Vec<String> = input.iter().map(usize::to_string).collect();
            return Err(RunError::conflict(format!(
                "data.image_size is {height}x{width}, and model.input is {}; leave out one of them",
                input.join("x")
            )));
        }
        if input_is_set {
            self.unset("data", "image_size");
            return Ok(());
        }
        let channels = input.get(2).copied().unwrap_or(3);
        self.set("model", "input", [height, width, channels].map(|n| n as i64).to_vec())
    }

    /// What is set for a key, as a run file has it.
    pub fn value(&self, section: &str, name: &str) -> Option<&Value> {
        self.table.get(section)?.get(name)
    }

    /// Whether a key was set over what the file says.
    pub fn is_overridden(&self, section: &str, name: &str) -> bool {
        self.overridden.iter().any(|key| (key.section, key.name) == (section, name))
    }

    /// Paths that do not say where they begin begin in this folder from now on.
    pub(crate) fn take_paths_from(&mut self, folder: &Path) {
        for path in paths(&mut self.table).filter(|path| !path.is_empty()) {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
        // Texts they were, and texts they are.
        self.sections = read::sections(&self.table).unwrap_or_default();
    }

    /// As a run file that says the same from anywhere.
    pub fn to_toml(&self) -> String {
        let mut table = self.table.clone();
        for path in paths(&mut table) {
            if let Ok(absolute) = std::path::absolute(&*path) {
                *path = absolute.to_string_lossy().into_owned();
            }
        }
        table.to_string()
    }
}

impl Deref for RunConfig {
    type Target = Sections;

    fn deref(&self) -> &Sections {
        &self.sections
    }
}

/// What a run file of an older version means: under a name that is no longer one, and by what was not written down.
fn as_it_was(table: &mut Table) {
    if let Some(Value::Table(model)) = table.get_mut("model")
        && model.get("name").and_then(Value::as_str) == Some("mlp")
    {
        // There were no others.
        model.entry("hidden").or_insert_with(|| vec![2048, 2048].into());
    }
    for key in KEYS {
        if let Some(Value::Table(keys)) = table.get_mut(key.section)
            && let Some(value) = key.formerly.and_then(|former| keys.remove(former))
        {
            keys.entry(key.name).or_insert(value);
        }
    }
}

/// Every text that is a path.
fn paths(table: &mut Table) -> impl Iterator<Item = &mut String> {
    let keys = |section: &str| -> Vec<&'static str> {
        KEYS.iter().filter(|k| k.is_path && k.section == section).map(|k| k.name).collect()
    };
    let sections = table.iter_mut().filter_map(move |(name, section)| Some((keys(name), section.as_table_mut()?)));
    sections.flat_map(|(keys, section)| {
        section.iter_mut().filter_map(move |(name, value)| match value {
            Value::String(path) if keys.contains(&name.as_str()) && !WORDS.contains(&path.as_str()) => Some(path),
            _ => None,
        })
    })
}
