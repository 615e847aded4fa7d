//! What a run is asked to do. A [`RunConfig`] is read from a run file key by key along one table ([`KEYS`]), which also
//! writes the file that a new run begins with, and is changed key by key; every value in it is of its kind. Nothing is opened
//! here and no number is weighed against another: see [`crate::RunResources`].

mod key;
mod keys;
mod read;
mod sections;
mod template;

use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memfit::train::CheckpointKind;
use memfit::train::run_dir::RUN_FILE;
use toml::{Table, Value};

pub use key::{Form, Key, KeyOption, scope};
pub use keys::{KEYS, find};
pub use read::parse_size;
pub use sections::{DataConfig, MemoryConfig, ModelConfig, ReplicasConfig, Sections, TrainConfig};
pub use template::commented;

use crate::error::{Result, RunError};
use crate::file::LARGEST_TEXT;

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
    /// A run that is there, and one of its checkpoints where one was named.
    RunDir {
        folder: PathBuf,
        checkpoint: Option<CheckpointKind>,
    },
}

/// What is no path where a path may stand.
const WORDS: [&str; 2] = ["off", "memory"];

impl RunConfig {
    /// Reads a run file.
    pub fn read(path: &Path) -> Result<RunConfig> {
        RunConfig::read_with(path, memfit_files::read_text(path, LARGEST_TEXT), |_| {})
    }

    /// The text of a run file, of which something is changed before it is checked.
    fn read_with(path: &Path, text: std::io::Result<String>, change: fn(&mut Table)) -> Result<RunConfig> {
        let text = text.map_err(|source| RunError::NoRunFile { path: path.into(), problem: source.to_string() })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let config = RunConfig::parse_with(&text, folder, change)
            .map_err(|source| RunError::InFile { path: path.into(), source: Box::new(source) })?;
        Ok(RunConfig { origin: Origin::File(path.into()), ..config })
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

    /// Of a run that is there: its folder, or one of the two checkpoints in it.
    pub fn resume(path: &Path) -> Result<RunConfig> {
        let named = CheckpointKind::ALL.into_iter().find(|w| path.file_name() == Some(w.file_name().as_ref()));
        let (folder, checkpoint) = match named {
            Some(which) if !path.is_dir() => {
                (path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")), Some(which))
            }
            _ if path.is_file() => return Err(RunError::NoCheckpoint { path: path.into() }),
            _ => (path, None),
        };
        let file = folder.join(RUN_FILE);
        let text = memfit_files::read_own_text(&file, LARGEST_TEXT);
        if text.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)) {
            return Err(RunError::NotARun { folder: folder.into() });
        }
        let origin = Origin::RunDir { folder: folder.into(), checkpoint };
        // What an older version wrote down is no wish of anybody.
        Ok(RunConfig { origin, ..RunConfig::read_with(&file, text, rename_former_keys)? })
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The folder of the run that is to be resumed.
    pub fn resumed_folder(&self) -> Option<&Path> {
        match &self.origin {
            Origin::RunDir { folder, .. } => Some(folder),
            Origin::Defaults | Origin::File(_) => None,
        }
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
        let mut config = self.clone();
        config.set("model", "name", name)?;
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

    /// What is set for a key, as a run file has it.
    pub fn value(&self, section: &str, name: &str) -> Option<&Value> {
        self.table.get(section)?.get(name)
    }

    /// Whether a key was set over what the file says.
    pub fn is_overridden(&self, section: &str, name: &str) -> bool {
        self.overridden.iter().any(|key| (key.section, key.name) == (section, name))
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

/// Takes over what a run file of an older version says under a name that is no longer one.
fn rename_former_keys(table: &mut Table) {
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
