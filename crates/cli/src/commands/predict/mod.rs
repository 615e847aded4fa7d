//! `memfit predict`: what a trained model says of files: the class of a picture, its mask, a class for each row of a table or of
//! arrays, the text that goes on from a prompt.

mod masks;
mod pictures;
mod rows;
mod text;
mod written;

use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::nn::zoo::Task;
use memfit_run::data::Kind;
use memfit_run::run_dir::{Rows, Trained};
use memfit_run::{RunConfig, task_words};

use crate::args::PredictArgs;
use crate::failure::usage;

/// At a time; more would only take more memory.
const BATCH: usize = 8;

pub fn predict(args: &PredictArgs, json: bool) -> Result<()> {
    let mut config = RunConfig::resume(&args.run_dir)?;
    args.settings.apply(&mut config)?;
    let kind = rows_of(&args.files)?;
    let at_most = match kind {
        // Of rows nobody knows how many there are before they are opened.
        Some(_) => usize::MAX,
        None if args.files.iter().any(|file| file.is_dir()) => BATCH,
        None => BATCH.min(args.files.len().max(1)),
    };
    let trained = Trained::open(config, Rows::AtMost(at_most))?;
    let task = trained.run.model.task();
    check_options(args, task, kind)?;
    match (task, kind) {
        (Task::Tokens, _) => text::predict(trained, args, json),
        (_, _) if args.files.is_empty() => Err(usage(what_is_missing(&trained, args))),
        (_, Some(kind)) => rows::predict(trained, args, kind, json),
        (_, None) if trained.channels().is_err() => Err(usage(not_of_pictures(&trained, args))),
        (Task::Classes | Task::Values, None) => pictures::predict(trained, args, json),
        (Task::Masks | Task::PixelClasses, None) => masks::predict(trained, args, json),
    }
}

/// Of what kind the rows are that were named; none for pictures.
fn rows_of(files: &[PathBuf]) -> Result<Option<Kind>> {
    let kind = |file: &PathBuf| {
        let name = file.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let ends = |with: &[&str]| with.iter().any(|e| name.ends_with(e));
        match () {
            () if ends(&[".csv", ".tsv"]) => Some(Kind::Csv),
            () if ends(&[".npz", ".npy"]) => Some(Kind::Npz),
            () if name.contains("tfrecord") => Some(Kind::TfRecord),
            () => None,
        }
    };
    let Some(rows) = files.iter().find_map(kind) else { return Ok(None) };
    match files {
        [_] => Ok(Some(rows)),
        _ => Err(usage("name one file of rows at a time; each has a table of its own as the answer")),
    }
}

/// What was asked for of another kind of model is not passed over in silence.
fn check_options(args: &PredictArgs, task: Task, rows: Option<Kind>) -> Result<()> {
    let of_text = [
        ("--prompt", args.text.prompt.is_some()),
        ("--tokens", args.text.tokens.is_some()),
        ("--temperature", args.text.temperature.is_some()),
        ("--top-k", args.text.top_k.is_some()),
        ("--top-p", args.text.top_p.is_some()),
        ("--seed", args.text.seed.is_some()),
    ];
    let refused =
        |option: &str, of: &str| Err(usage(format!("{option} is for {of}, and this model {}", task_words(task))));
    if let Some((option, _)) = of_text.iter().find(|(_, given)| *given && task != Task::Tokens) {
        return refused(option, "models of text");
    }
    if args.top.is_some() && task != Task::Classes {
        return refused("--top", "models that tell classes apart");
    }
    if args.overlay && (!matches!(task, Task::Masks | Task::PixelClasses) || rows.is_some()) {
        return refused("--overlay", "masks of pictures");
    }
    if args.out.is_some() && task == Task::Tokens {
        return refused("--out", "models of pictures and rows");
    }
    Ok(())
}

fn what_is_missing(trained: &Trained, args: &PredictArgs) -> String {
    let run = args.run_dir.display();
    let example = if trained.channels().is_ok() { "photo.jpg" } else { "rows.csv" };
    format!("name what {} is to look at, such as `memfit predict {run} {example}`", trained.run.name)
}

/// What a model reads that does not read pictures.
fn not_of_pictures(trained: &Trained, args: &PredictArgs) -> String {
    let (name, run) = (&trained.run.name, args.run_dir.display());
    let file = args.files.first().map_or("it".into(), |file| file.display().to_string());
    format!(
        "{name} reads rows of numbers, and {file} is neither a table (.csv, .tsv) nor arrays (.npz, .npy) nor TFRecord; \
         `memfit predict {run} rows.csv` gives a class for each row"
    )
}

/// `photo.jpg` → `photo_mask.png`, beside it or in a folder.
fn beside(file: &Path, folder: Option<&Path>, what: &str) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{stem}_{what}.png");
    folder.map_or_else(|| file.with_file_name(&name), |folder| folder.join(&name))
}
