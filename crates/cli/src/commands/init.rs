//! `memfit init`: a run file to start from, with every key explained.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::args::InitArgs;
use crate::failure::{bad_data, usage};
use crate::output::outln;
use memfit::data::BytePool;
use memfit_run::config::{WORDS, commented};
use memfit_run::data::{self, Kind};
use memfit_run::{DIGITS, RunConfig};
use toml::Value;

const HEAD: &str =
    "# A run of memfit: `memfit train THIS_FILE` trains, `memfit plan THIS_FILE` shows where each byte goes.\n";

pub fn init(args: &InitArgs, json: bool) -> Result<()> {
    let mut config = RunConfig::default();
    args.settings.apply(&mut config)?;
    // Data that are not there yet are most likely pictures.
    let model = data::model_name(&config, &BytePool::new(data::HOST_BUDGET))
        .unwrap_or_else(|_| Kind::Images.usual_model().into());
    memfit::ZooModel::from_name(&model).map_err(usage)?;
    let mut set = vec![("train.batch".to_string(), "32".to_string()), ("train.epochs".into(), "20".into())];
    for (key, value) in args.settings.given().filter(|(key, _)| key.path() != "model.name") {
        let value = match value.as_str().filter(|text| key.is_path && !WORDS.contains(text)) {
            Some(path) => Value::from(from_file(Path::new(path), &args.file)?.to_string_lossy().into_owned()),
            // As it is read: a list is typed otherwise.
            None => config.value(key.section, key.name).unwrap_or(value).clone(),
        };
        set.push((key.path(), value.to_string()));
    }
    if model == DIGITS && config.data.train.is_none() && config.data.kind.is_none() {
        set.push(("data.kind".into(), Value::from(DIGITS).to_string()));
    }
    set.push(("model.name".into(), Value::from(model).to_string()));
    let text = HEAD.to_string() + &commented(&set);
    // What is written must be readable: our own table says so.
    RunConfig::parse(&text, Path::new(""))?;
    let path = &args.file;
    let file = std::fs::File::create_new(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => usage(format!("{} is there already; name another file", path.display())),
        _ => bad_data(format!("{} cannot be written: {e}", path.display())),
    })?;
    std::io::Write::write_all(&mut { file }, text.as_bytes()).map_err(|e| {
        // It was made here, and half of it would be in the way of the next try.
        let _ = std::fs::remove_file(path);
        bad_data(format!("{} cannot be written: {e}", path.display()))
    })?;
    if json {
        outln!("{}", serde_json::json!({ "event": "init", "file": path.display().to_string() }));
    } else {
        outln!("{0} is written: edit it, then `memfit plan {0}` or `memfit train {0}`", path.display());
    }
    Ok(())
}

/// A path as a run file says it, which is read from where the file lies.
fn from_file(path: &Path, file: &Path) -> Result<PathBuf> {
    let beside = file.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    if beside {
        return Ok(path.to_path_buf());
    }
    std::path::absolute(path).map_err(|e| usage(format!("{}: {e}", path.display())))
}
