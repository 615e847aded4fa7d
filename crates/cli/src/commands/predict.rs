//! `memfit predict`: the class of each image, and how sure the model is.

use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::data::sources::ImageFiles;
use memfit::data::{BadSample, BytePool, DataError, Example, LoadOptions, Loader, OnBad};
use memfit::nn::zoo::Task;
use memfit::train::views;
use serde_json::json;

use crate::args::PredictArgs;
use crate::failure::{bad_data, usage};
use crate::output::outln;
use crate::wording::{bad_sample, is_too_large, sample_problem};
use memfit_run::data;
use memfit_run::run_dir::{Rows, Trained};
use memfit_run::text::count;
use memfit_run::{RunConfig, task_words};

/// At a time; more would only take more memory.
const BATCH: usize = 8;

pub fn predict(args: &PredictArgs, json: bool) -> Result<()> {
    if let Some(folder) = args.files.iter().find(|f| f.is_dir()) {
        return Err(usage(format!("{0} is a folder; name the images in it, such as {0}/*", folder.display())));
    }
    let rows = Rows::AtMost(BATCH.min(args.files.len().max(1)));
    let mut config = RunConfig::resume(&args.run_dir)?;
    let skips = args.settings.is_given("data", "skip_bad");
    args.settings.apply(&mut config)?;
    if let Some(data) = args.files.iter().find(|f| is_data(f)) {
        return Err(no_image(data, args, config.data.kind.as_deref()));
    }
    let mut trained = Trained::open(config, rows)?;
    if trained.run.model.task() != Task::Classes || trained.channels().is_err() {
        return Err(no_images(&trained, args));
    }
    let pool = trained.run.pool.clone();
    let (bad, files, mut left_out) = if skips {
        there(&args.files, &pool).map(|(files, left_out)| (OnBad::Skip, files, left_out))?
    } else {
        (OnBad::Fail, args.files.clone(), Vec::new())
    };
    let images = ImageFiles::list(&files, &pool)?.channels(trained.channels()?).encoded();
    let data = data::images_alone(images, &trained.run, trained.session.plan().batch)?;
    let options = LoadOptions { threads: trained.run.threads, bad, ..LoadOptions::new(pool) };
    let mut loader = Loader::new(&data, options)?;
    let mut room = vec![0u8; trained.session.eval_bytes("logits")?];
    let mut predicted = 0;
    while let Some(batch) = loader.next().map_err(|e| of_files(e, args.files.len()))? {
        for prediction in predictions(&mut trained, &batch, &mut room)? {
            let file = files.get(prediction.row).ok_or_else(|| bad_data("there are more images than files"))?;
            predicted += 1;
            prediction.print(&file.display().to_string(), &trained, json);
        }
    }
    left_out.extend_from_slice(&loader.skipped().first);
    if skips {
        // A file may be named twice: what was not predicted was left out.
        print_skipped(predicted, args.files.len() - predicted, &left_out, json);
    }
    Ok(())
}

/// Whether a file has samples of another kind, by its name.
fn is_data(file: &Path) -> bool {
    let endings = ["npz", "npy", "csv", "tsv", "txt", "bin", "tfrecord"];
    file.extension().is_some_and(|e| endings.iter().any(|ending| e.eq_ignore_ascii_case(ending)))
}

/// What to do with a file of other samples: a run of such data can be scored on it.
fn no_image(file: &Path, args: &PredictArgs, kind: Option<&str>) -> anyhow::Error {
    let (file, run) = (file.display(), args.run_dir.display());
    let cure = match kind {
        Some("csv" | "npz" | "tfrecord" | "tokens" | "text") => {
            format!("; `memfit eval {run} --data {file}` scores all that is in it")
        }
        _ => String::new(),
    };
    usage(format!("{file} is no image, and predict reads JPEG and PNG files{cure}"))
}

/// What a model that does not classify images does, and what works with it.
fn no_images(trained: &Trained, args: &PredictArgs) -> anyhow::Error {
    let (name, run) = (&trained.run.name, args.run_dir.display());
    let does = match trained.run.model.task() {
        Task::Classes => "classifies rows of numbers",
        task => task_words(task),
    };
    usage(format!(
        "{name} {does}, and predict is for models that classify images so far; `memfit eval {run} --data PATH` scores it on \
         data with labels"
    ))
}

/// Files have no epochs, and where one alone is bad, nothing is left without it.
fn of_files(error: DataError, files: usize) -> anyhow::Error {
    match error {
        DataError::NothingGood { first, .. } if !is_too_large(&first.problem) => {
            bad_data(format!("{NONE_GOOD} {}", bad_sample(&first)))
        }
        DataError::Bad(bad) if files == 1 && !is_too_large(&bad.problem) => bad_data(bad_sample(&bad)),
        other => other.into(),
    }
}

const NONE_GOOD: &str = "not one of the files can be read; the first is";

/// What is there to be read, and what is not. Without one file there is nothing to do.
fn there(files: &[PathBuf], pool: &BytePool) -> Result<(Vec<PathBuf>, Vec<BadSample>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for file in files {
        match ImageFiles::list(std::slice::from_ref(file), pool) {
            Ok(_) => found.push(file.clone()),
            Err(DataError::Source { location, problem }) => missing.push(BadSample::new(location, problem)),
            Err(DataError::Io { path, source }) => {
                missing.push(BadSample::new(path.display(), source));
            }
            Err(other) => return Err(other.into()),
        }
    }
    match (&found[..], missing.first()) {
        ([], Some(first)) => Err(bad_data(format!("{NONE_GOOD} {first}"))),
        (_, _) => Ok((found, missing)),
    }
}

/// What a model says of one image.
struct Prediction {
    /// Among the files.
    row: usize,
    class: usize,
    probability: f64,
}

impl Prediction {
    fn print(&self, file: &str, trained: &Trained, json: bool) {
        let (name, &Prediction { class, probability, .. }) = (trained.class(self.class), self);
        if json {
            outln!(
                "{}",
                json!({ "event": "prediction", "file": file, "class": name, "index": class, "probability": probability })
            );
        } else {
            outln!("{file}  {name}  {:.2} %", probability * 100.0);
        }
    }
}

fn predictions(trained: &mut Trained, batch: &Example, room: &mut [u8]) -> Result<Vec<Prediction>> {
    let classes = trained.run.model.classes();
    let mut best_classes = Vec::new();
    let inputs: Vec<_> = views(batch).into_iter().filter(|(name, _)| *name != data::ROW).collect();
    trained.session.eval(&inputs, "logits", room, |_, bytes| {
        let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        best_classes.extend(numbers.chunks(classes).map(best));
        Ok(())
    })?;
    let rows = batch.get(data::ROW)?.bytes().as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as usize);
    Ok(rows.zip(best_classes).map(|(row, (class, probability))| Prediction { row, class, probability }).collect())
}

fn print_skipped(predicted: usize, left_out: usize, first: &[BadSample], json: bool) {
    if json {
        let first: Vec<_> =
            first.iter().map(|bad| json!({ "file": bad.location, "problem": sample_problem(&bad.problem) })).collect();
        outln!("{}", json!({ "event": "done", "predicted": predicted, "skipped_files": left_out, "skipped": first }));
    } else if left_out > 0 {
        outln!("left out {} that could not be read:", count(left_out, "file"));
        first.iter().for_each(|bad| outln!("  {}", bad_sample(bad)));
    }
}

/// The most likely class and its probability.
fn best(logits: &[f32]) -> (usize, f64) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - most).exp()).sum();
    let at = logits.iter().position(|l| *l == most).unwrap_or(0);
    (at, 1.0 / sum)
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn the_most_likely_class_is_told_with_its_probability() {
        let (class, probability) = best(&[0.0, (3f32).ln(), 0.0]);
        assert_eq!(class, 1);
        assert!((probability - 0.6).abs() < 1e-6);
        assert_eq!(best(&[1000.0, 0.0]), (0, 1.0));
    }
}
