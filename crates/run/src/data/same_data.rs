//! Whether a run still has the data that it began with: what is written down of them, and what is said if they changed. It
//! never looks at samples.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use memfit::data::Source;
use memfit::nn::Unit;
use memfit::train::run_dir::{DATA, WEIGHTS, read_best};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::RunFolder;
use crate::data::{Columns, DataSources, Schema, masks};
use crate::error::{Result, RunError};
use crate::file::write_own;
use crate::run_dir;

/// How many samples there are, and what they look like from outside.
pub fn write_down(folder: &Path, sources: &DataSources) -> Result<()> {
    write_own(&folder.join(DATA), &format!("{:#}\n", parts(sources)))
}

/// A set of a run, as its folder and as a sentence call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    pub key: &'static str,
    pub name: &'static str,
}

/// Refuses other classes or another number of samples. Says of which sets the files changed otherwise.
pub fn check(folder: &RunFolder, sources: &DataSources) -> Result<Vec<Set>> {
    check_schema(folder, &sources.schema)?;
    let (before, now) = (written(folder)?, parts(sources));
    let mut changed = Vec::new();
    for set in SETS {
        let key = set.key;
        let samples = |all: &Value| all[key]["samples"].as_u64().unwrap_or(0);
        let (had, has) = (samples(&before), samples(&now));
        if had != has {
            let weights = weights(&folder.path);
            return Err(RunError::SamplesChanged { folder: folder.path.clone(), set, had, has, weights });
        }
        if before[key] != now[key] {
            changed.push(set);
        }
    }
    Ok(changed)
}

/// The schema of the data of a run; without columns where its folder says nothing of them.
pub fn schema(folder: &RunFolder) -> Result<Schema> {
    let columns = Option::<Columns>::deserialize(&written(folder)?[COLUMNS]).map_err(|e| damaged(folder, e))?;
    let masks = masks::from_json(&written(folder)?[MASKS]);
    let units = units(&written(folder)?[UNITS]).ok_or_else(|| damaged(folder, "its targets are no numbers"))?;
    Ok(Schema { classes: run_dir::classes(folder)?, columns, masks, units, ..Schema::default() })
}

/// What was written down.
fn written(folder: &RunFolder) -> Result<Value> {
    let text = folder.data.as_ref().map_err(|e| damaged(folder, e))?;
    serde_json::from_str(text).map_err(|e| damaged(folder, e))
}

fn damaged(folder: &RunFolder, problem: impl Display) -> RunError {
    RunError::BadFile { path: folder.path.join(DATA), problem: format!("{problem}; start anew in another folder") }
}

/// The weights of a run, from which another can start.
fn weights(folder: &Path) -> Option<PathBuf> {
    let exported = Some(folder.join(WEIGHTS)).filter(|path| path.is_file());
    exported.or_else(|| read_best(folder).ok().map(|saved| saved.tensors().to_path_buf()))
}

/// Refuses data whose classes or columns are not those of the run.
pub fn check_schema(folder: &RunFolder, now: &Schema) -> Result<()> {
    let before = schema(folder)?;
    check_classes(&folder.path, &before.classes, &now.classes)?;
    // A feature is a number to the model.
    if before.columns.is_none() || before.columns == now.columns {
        return Ok(());
    }
    Err(RunError::DataChanged(format!(
        "the columns of the training set are not those that the run in {} began with, or stand in another order; bring \
         back the data as they were, or begin another run",
        folder.path.display()
    )))
}

/// Refuses data whose classes are called otherwise than those of the run: a class is a number to the model.
fn check_classes(folder: &Path, before: &[String], now: &[String]) -> Result<()> {
    if before == now {
        return Ok(());
    }
    let only = |a: &[String], b: &[String]| a.iter().find(|c| !b.contains(c)).cloned();
    let run = folder.display();
    let differs = match (only(before, now), only(now, before)) {
        (Some(gone), _) => format!("\"{gone}\" is gone"),
        (None, Some(new)) => format!("\"{new}\" is new"),
        (None, None) => "they stand in another order".into(),
    };
    Err(RunError::DataChanged(format!(
        "the classes of the data are not those of the run in {run}: {differs}; bring back the data as they were, or \
         begin another run"
    )))
}

/// In the file.
const COLUMNS: &str = "columns";
const MASKS: &str = "masks";
/// Mean and deviation of each target, where they are standardised.
const UNITS: &str = "targets";
const SETS: [Set; 2] = [Set { key: "train", name: "training" }, Set { key: "test", name: "test" }];

fn parts(sources: &DataSources) -> Value {
    let part = |s: &dyn Source| json!({ "samples": s.len(), "fingerprint": format!("{:016x}", s.fingerprint()) });
    let mut parts = json!({ "train": part(&*sources.train), "test": sources.test.as_deref().map(part),
                            COLUMNS: sources.schema.columns,
                            MASKS: sources.schema.masks.as_ref().map(masks::to_json) });
    if !sources.schema.units.is_empty() {
        let unit = |unit: &Unit| json!({ "mean": unit.mean, "std": unit.std });
        parts[UNITS] = sources.schema.units.iter().map(unit).collect();
    }
    parts
}

/// As [`parts`] writes them; none where they are no such numbers.
fn units(written: &Value) -> Option<Vec<Unit>> {
    let Some(units) = written.as_array() else { return Some(Vec::new()) };
    let unit = |unit: &Value| {
        let (mean, std) = (unit["mean"].as_f64()?, unit["std"].as_f64().filter(|std| *std > 0.0)?);
        Some(Unit { mean, std })
    };
    units.iter().map(unit).collect()
}
