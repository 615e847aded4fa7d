//! The kinds of data that a run can have, and how a path looks that holds them.

use std::path::Path;

use memfit::data::BytePool;
use memfit::nn::zoo::Task;

use super::{arrays, bad_path};
use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::resources::DIGITS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Digits,
    Images,
    Masks,
    Csv,
    Npz,
    TfRecord,
    Tokens,
    Text,
}

impl Kind {
    pub const ALL: [Kind; 8] =
        [Kind::Digits, Kind::Images, Kind::Masks, Kind::Csv, Kind::Npz, Kind::TfRecord, Kind::Tokens, Kind::Text];

    /// As a run file says it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Digits => "digits",
            Kind::Images => "images",
            Kind::Masks => "masks",
            Kind::Csv => "csv",
            Kind::Npz => "npz",
            Kind::TfRecord => "tfrecord",
            Kind::Tokens => "tokens",
            Kind::Text => "text",
        }
    }

    /// A model that reads such data.
    pub const fn usual_model(self) -> &'static str {
        match self {
            Kind::Digits => "digits",
            Kind::Images | Kind::TfRecord => "resnet18",
            Kind::Masks => "unet",
            Kind::Csv | Kind::Npz => "mlp",
            Kind::Tokens | Kind::Text => "gpt",
        }
    }

    /// What a model of such data does; arrays may be anything.
    pub const fn task(self) -> Option<Task> {
        match self {
            Kind::Digits | Kind::Images | Kind::Csv | Kind::TfRecord => Some(Task::Classes),
            Kind::Masks => Some(Task::Masks),
            Kind::Tokens | Kind::Text => Some(Task::Tokens),
            Kind::Npz => None,
        }
    }
}

/// Of the data of a run: as it was said, or as the path looks.
pub(super) fn of_run(config: &RunConfig) -> Result<Kind> {
    if let Some(said) = &config.data.kind {
        let known = Kind::ALL.into_iter().find(|kind| kind.name() == said);
        return known.ok_or_else(|| RunError::conflict(format!("there is no kind of data \"{said}\"")));
    }
    match (&config.data.train, config.model.name.as_deref()) {
        (Some(path), _) => kind_of(path),
        (None, None | Some(DIGITS)) => Ok(Kind::Digits),
        (None, Some(model)) => Err(RunError::NoData { model: model.into() }),
    }
}

/// The model of a run: the one that it names, else the usual one for its data. Of arrays the samples are looked at, which may
/// be pictures or rows of a table.
pub fn model_name(config: &RunConfig, pool: &BytePool) -> Result<String> {
    if let Some(name) = &config.model.name {
        return Ok(name.clone());
    }
    let kind = of_run(config)?;
    let are_pictures = match &config.data.train {
        Some(path) if kind == Kind::Npz => arrays::are_pictures(path, &config.data, pool)?,
        _ => false,
    };
    let kind = if are_pictures { Kind::Images } else { kind };
    Ok(kind.usual_model().into())
}

/// As the path looks.
pub fn kind_of(path: &Path) -> Result<Kind> {
    let path = &super::place::training_path(path);
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let ends = |with: &[&str]| with.iter().any(|e| name.ends_with(e));
    Ok(match () {
        () if path.join("images").is_dir() && path.join("masks").is_dir() => Kind::Masks,
        () if super::arrays::is_folder(path) => Kind::Npz,
        () if path.is_dir() => Kind::Images,
        () if ends(&[".csv", ".tsv"]) => Kind::Csv,
        () if ends(&[".npz"]) => Kind::Npz,
        () if ends(&[".txt"]) => Kind::Text,
        () if ends(&[".bin", ".tokens"]) => Kind::Tokens,
        () if name.contains("tfrecord") => Kind::TfRecord,
        () if path.is_file() && arrays::is_npy(path) => return Err(arrays::single_array(path)),
        () if !path.exists() => return Err(bad_path(path, "there is no such file or folder")),
        () => return Err(bad_path(path, "cannot tell what this is from its name; say data.kind")),
    })
}
