//! What files say of a run, as texts: read once, where they lie, and made a configuration of anywhere.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use memfit::train::CheckpointKind;
use memfit::train::run_dir::{CLASSES, DATA, RUN_FILE};
use memfit_files::{read_own_text, read_text};
use serde::{Deserialize, Serialize};

use crate::error::{Result, RunError};
use crate::file::LARGEST_TEXT;

/// A run as a file says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunText {
    /// Of the run file.
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Of a run that is there.
    pub(super) folder: Option<RunFolder>,
}

/// The folder of a run that is there, with what it says of the run beside its checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFolder {
    pub path: PathBuf,
    /// The one that was named.
    pub checkpoint: Option<CheckpointKind>,
    /// What its data were; or why that cannot be read.
    pub(crate) data: std::result::Result<String, String>,
    /// The names of its classes, likewise.
    pub(crate) classes: std::result::Result<String, String>,
}

impl RunText {
    /// Of a run file.
    pub fn of_file(path: &Path) -> Result<RunText> {
        RunText::new(path, read_text(path, LARGEST_TEXT), None)
    }

    /// Of a run that is there: its folder, or one of the checkpoints in it.
    pub fn of_run(path: &Path) -> Result<RunText> {
        let named = path.file_name().and_then(CheckpointKind::of_file);
        let (folder, checkpoint) = match named {
            Some(which) if !path.is_dir() => {
                (path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")), Some(which))
            }
            _ if path.is_file() => return Err(RunError::NoCheckpoint { path: path.into() }),
            _ => (path, None),
        };
        let file = folder.join(RUN_FILE);
        let text = read_own_text(&file, LARGEST_TEXT);
        if text.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)) {
            return Err(RunError::NotARun { folder: folder.into() });
        }
        let read = |name: &str| read_own_text(&folder.join(name), LARGEST_TEXT);
        let classes = match read(CLASSES) {
            // They have no names.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
            classes => classes.map_err(|e| e.to_string()),
        };
        let data = read(DATA).map_err(|e| e.to_string());
        RunText::new(&file, text, Some(RunFolder { path: folder.into(), checkpoint, data, classes }))
    }

    fn new(path: &Path, text: std::io::Result<String>, folder: Option<RunFolder>) -> Result<RunText> {
        let text = text.map_err(|source| RunError::NoRunFile { path: path.into(), problem: source.to_string() })?;
        Ok(RunText { path: path.into(), text, folder })
    }
}
