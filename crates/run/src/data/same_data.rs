//! Whether a run still has the data that it began with: what is written down of them, and what is said if they changed. It
//! never looks at samples.

use std::fmt::Display;
use std::path::Path;

use anyhow::Result;
use memfit::data::Source;
use memfit::train::run_dir::{DATA, WEIGHTS, read_best};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::data::{Columns, Opened, Settled};
use crate::error::bad_data;
use crate::file::write;
use crate::run_dir;
use crate::text::count;

/// How many samples there are, and what they look like from outside.
pub fn write_down(folder: &Path, opened: &Opened) -> Result<()> {
    write(&folder.join(DATA), &format!("{:#}\n", parts(opened)))
}

/// A set of a run, as its folder and as a sentence call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    pub key: &'static str,
    pub name: &'static str,
}

/// Refuses other classes or another number of samples. Says of which sets the files changed otherwise.
pub fn check(folder: &Path, opened: &Opened) -> Result<Vec<Set>> {
    check_settled(folder, &opened.settled)?;
    let (before, now) = (written(folder)?, parts(opened));
    let mut changed = Vec::new();
    for set in SETS {
        let Set { key, name } = set;
        let samples = |all: &Value| all[key]["samples"].as_u64().unwrap_or(0);
        let (had, has) = (samples(&before), samples(&now));
        if had != has {
            let place = folder.display();
            return Err(bad_data(format!(
                "the {name} set has {}, but the run in {place} began with {had}; bring back the data as they \
                 were, or begin another run{}",
                count(has, "sample"),
                with_weights(folder)
            )));
        }
        if before[key] != now[key] {
            changed.push(set);
        }
    }
    Ok(changed)
}

/// What the data of a run settled: of one that says nothing of columns, none.
pub fn settled(folder: &Path) -> Result<Settled> {
    let columns = Option::<Columns>::deserialize(&written(folder)?[COLUMNS]).map_err(|e| damaged(folder, e))?;
    Ok(Settled { classes: run_dir::classes(folder), columns })
}

/// What was written down.
fn written(folder: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(folder.join(DATA)).map_err(|e| damaged(folder, e))?;
    serde_json::from_str(&text).map_err(|e| damaged(folder, e))
}

fn damaged(folder: &Path, problem: impl Display) -> anyhow::Error {
    bad_data(format!("{}: {problem}; start anew in another folder", folder.join(DATA).display()))
}

/// Which file of the run another one can start from.
fn with_weights(folder: &Path) -> String {
    let alone = Some(folder.join(WEIGHTS)).filter(|path| path.is_file());
    let weights = alone.or_else(|| read_best(folder).ok().map(|saved| saved.tensors().to_path_buf()));
    weights.map_or(String::new(), |path| format!(" with --weights {}", path.display()))
}

/// Refuses data whose classes or columns are not those of the run.
pub fn check_settled(folder: &Path, now: &Settled) -> Result<()> {
    let before = settled(folder)?;
    check_classes(folder, &before.classes, &now.classes)?;
    // A feature is a number to the model.
    if before.columns.is_none() || before.columns == now.columns {
        return Ok(());
    }
    Err(bad_data(format!(
        "the columns of the training set are not those that the run in {} began with, or stand in another order; bring \
         back the data as they were, or begin another run",
        folder.display()
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
    Err(bad_data(format!(
        "the classes of the data are not those of the run in {run}: {differs}; bring back the data as they were, or \
         begin another run"
    )))
}

/// In the file.
const COLUMNS: &str = "columns";
const SETS: [Set; 2] = [Set { key: "train", name: "training" }, Set { key: "test", name: "test" }];

fn parts(opened: &Opened) -> Value {
    let part = |s: &dyn Source| json!({ "samples": s.len(), "fingerprint": format!("{:016x}", s.fingerprint()) });
    json!({ "train": part(&*opened.train), "test": opened.test.as_deref().map(part), COLUMNS: opened.settled.columns })
}
