//! What is said over the file of one of several runs: "a.batch=61" is the batch of a.toml. Any key that is an option of the command
//! can be said so, by its option's name or its own.

use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::nn::error::nearest;
use memfit_run::RunConfig;
use memfit_run::config::{Form, KEYS, Key};
use toml::Value;

use crate::failure::usage;
use crate::settings::{is_command, set_over};

/// Something that is said over one run.
pub struct Override {
    /// As it was typed, up to the "=".
    typed: String,
    /// The run, by its place among all.
    run: usize,
    key: &'static Key,
    value: Value,
}

/// Tells run files from what is said over them: a name with an "=" that is no run file, or begins as another is called.
pub fn split(arguments: &[PathBuf]) -> (Vec<PathBuf>, Vec<&str>) {
    let names: Vec<String> = arguments.iter().map(|file| stem(file)).collect();
    let is_file = |text: &str| {
        let begins = |name: &String| text.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'));
        !text.contains('=') || (text.ends_with(".toml") && !names.iter().any(|n| !n.contains('=') && begins(n)))
    };
    let said: Vec<&str> = arguments.iter().filter_map(|a| a.to_str()).filter(|text| !is_file(text)).collect();
    let files = arguments.iter().filter(|a| a.to_str().is_none_or(is_file)).cloned().collect();
    (files, said)
}

/// Finds out which run and key each means. `runs` are their files or folders.
pub fn read(said: &[&str], runs: &[PathBuf], scope: u16) -> Result<Vec<Override>> {
    said.iter().map(|text| read_one(text, runs, scope)).collect()
}

fn read_one(text: &str, runs: &[PathBuf], scope: u16) -> Result<Override> {
    let (typed, value) = text.split_once('=').unwrap_or((text, ""));
    let form = "write it like a.batch=61, for the batch of a.toml";
    let (name, key_name) =
        typed.rsplit_once('.').ok_or_else(|| usage(format!("\"{text}\" says no run and key: {form}")))?;
    // a.train.batch=61 too.
    let (name, section) = match name.rsplit_once('.') {
        Some((name, section)) if KEYS.iter().any(|key| key.section == section) => (name, Some(section)),
        _ => (name, None),
    };
    let run = find_run(text, name, runs)?;
    let key = find_key(text, key_name, section, scope)?;
    Ok(Override { typed: typed.into(), run, key, value: value_of(key, value) })
}

/// By the name of its file or folder without what is behind the dot, or by the end of its path where two are called alike.
fn find_run(text: &str, name: &str, runs: &[PathBuf]) -> Result<usize> {
    let is_it = |run: &&PathBuf| without_end(run).ends_with(name);
    let found: Vec<usize> = runs.iter().enumerate().filter(|(_, run)| is_it(run)).map(|(i, _)| i).collect();
    match found[..] {
        [run] => Ok(run),
        [] if runs.is_empty() => {
            Err(usage(format!("\"{text}\" is said over a run, and none is named: name its file or folder too")))
        }
        [] => {
            let names: Vec<String> = runs.iter().map(|run| stem(run)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let meant = nearest(&names, name).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"));
            Err(usage(format!("\"{text}\": no run is called \"{name}\"{meant}; there are {}", names.join(", "))))
        }
        _ => {
            let paths: Vec<String> = runs.iter().map(|run| without_end(run).display().to_string()).collect();
            Err(usage(format!(
                "\"{text}\": several runs are called \"{name}\"; say more of the path: {}",
                paths.join(", ")
            )))
        }
    }
}

fn find_key(text: &str, name: &str, section: Option<&str>, scope: u16) -> Result<&'static Key> {
    let options = || KEYS.iter().filter_map(|key| Some((key, key.option.as_ref()?))).filter(|(_, o)| o.is_in(scope));
    let [dashed, plain] = [name.replace('_', "-"), name.replace('-', "_")];
    let named = |key: &Key| section.is_none_or(|section| key.section == section);
    let by_option = options().find(|(key, option)| option.name == dashed && named(key));
    let found = by_option.or_else(|| options().find(|(key, _)| key.name == plain && named(key)));
    found.map(|(key, _)| key).ok_or_else(|| {
        let names: Vec<&str> = options().flat_map(|(key, option)| [option.name, key.name]).collect();
        let meant = nearest(&names, name).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"));
        let what = if is_command(memfit_run::config::scope::RESUME) { "a run that goes on" } else { "a run" };
        usage(format!(
            "\"{text}\": {what} has no key \"{name}\"{meant} that can be said so; --help lists them, as options"
        ))
    })
}

/// As a run file would say it; what is not of its kind stays a text, which the key then refuses.
fn value_of(key: &Key, text: &str) -> Value {
    let as_text = || Value::from(text);
    match key.option.as_ref().map(|option| option.form) {
        Some(Form::Whole) => text.parse::<i64>().map_or_else(|_| as_text(), Value::from),
        Some(Form::Number) => text.parse::<f64>().map_or_else(|_| as_text(), Value::from),
        Some(Form::Flag | Form::Bool) => text.parse::<bool>().map_or_else(|_| as_text(), Value::from),
        Some(Form::List | Form::Repeated) => Value::from(text.split(',').map(str::to_string).collect::<Vec<_>>()),
        _ => as_text(),
    }
}

impl Override {
    /// Says all of them over the runs.
    pub fn apply(said: &[Override], runs: &mut [RunConfig]) -> Result<()> {
        for Override { typed, run, key, value } in said {
            if let Some(config) = runs.get_mut(*run) {
                set_over(config, key, value, typed)?;
            }
        }
        Ok(())
    }
}

/// "a" of "runs/a.toml".
fn stem(path: &Path) -> String {
    without_end(path).file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

/// A checkpoint is named for the folder that it lies in.
fn without_end(path: &Path) -> PathBuf {
    match path.extension() {
        Some(end) if end == "json" => path.parent().unwrap_or(path).to_path_buf(),
        Some(end) if end == "toml" => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_run::config::scope;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn run_files_are_told_from_what_is_said_over_them() {
        let arguments = paths(&["a.toml", "x/lr=0.1.toml", "a.batch=61", "a.cost-model=m.toml", "b.lr=0.1.toml"]);
        let (files, said) = split(&arguments);
        assert_eq!(files, paths(&["a.toml", "x/lr=0.1.toml", "b.lr=0.1.toml"]));
        assert_eq!(said, ["a.batch=61", "a.cost-model=m.toml"]);
    }

    #[test]
    fn each_is_of_one_run_and_key() {
        let runs = paths(&["x/run.toml", "y/run.toml", "photos.v2.toml", "old/last.json"]);
        for (text, run, key, value) in [
            ("photos.v2.batch=61", 2, "train.batch", Value::from(61)),
            ("y/run.train.batch=61", 1, "train.batch", Value::from(61)),
            ("x/run.micro_batch=8", 0, "train.micro_batch", Value::from("8")),
            ("x/run.model=unet", 0, "model.name", Value::from("unet")),
            ("old.lr=0.5", 3, "train.lr", Value::from(0.5)),
            ("old.freeze=a,b", 3, "model.freeze", Value::from(vec!["a", "b"])),
            ("old.data=k=v", 3, "data.train", Value::from("k=v")),
        ] {
            let read = read_one(text, &runs, scope::TRAIN).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((read.run, read.key.path(), read.value), (run, key.to_string(), value), "{text}");
        }
        for (text, expected) in [
            ("run.batch=1", "several runs are called \"run\"; say more of the path: x/run, y/run"),
            ("foto.v2.batch=1", "no run is called \"foto.v2\" (did you mean \"photos.v2\"?)"),
            ("old.bacth=1", "no key \"bacth\" (did you mean \"batch\"?)"),
            ("old=1", "says no run and key"),
        ] {
            let problem = read_one(text, &runs, scope::TRAIN).map(|_| ()).expect_err(text).to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(read_one("a.batch=1", &[], scope::TRAIN).is_err());
    }
}
