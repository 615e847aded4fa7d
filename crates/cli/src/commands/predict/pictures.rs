//! The class of each picture, and how sure the model is.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use memfit::data::sources::ImageFiles;
use memfit::data::{BadSample, BytePool, DataError, LoadOptions, Loader, OnBad};
use memfit_run::data::{Part, images_alone};
use memfit_run::run_dir::Trained;
use memfit_run::text::count;
use serde_json::{Value, json};

use super::rows::{Answer, Answers};
use super::written::{Line, Written, cell};
use crate::args::PredictArgs;
use crate::failure::bad_data;
use crate::output::outln;
use crate::wording::{bad_sample, is_too_large, sample_problem};

pub fn predict(mut trained: Trained, args: &PredictArgs, json: bool) -> Result<()> {
    let pictures = Pictures::open(&trained, args, Part::Evaluated)?;
    let answers = Answers::new(&trained, args.top)?;
    let mut written = Written::new(args.out.as_deref(), json, false)?;
    written.header(&format!("file,{}", answers.columns()))?;
    let outcome = pictures.each(&mut trained, |trained, file, logits| {
        written.line(&Picture { file, answer: answers.of(trained, logits) })
    })?;
    outcome.print(written.end()?, json);
    Ok(())
}

struct Picture {
    file: String,
    answer: Answer,
}

impl Line for Picture {
    fn words(&self) -> String {
        format!("{}  {}", self.file, self.answer.words())
    }

    fn csv(&self) -> String {
        format!("{},{}", cell(&self.file), self.answer.cells())
    }

    fn json(&self) -> Value {
        let mut event = json!({ "event": "prediction", "file": self.file });
        self.answer.put_json(&mut event);
        event
    }
}

/// The pictures that were named, ready to be read.
pub struct Pictures {
    files: Arc<ImageFiles>,
    loader: Loader,
    /// How many were named, each by itself or in a folder.
    named: usize,
    missing: Vec<BadSample>,
    skips: bool,
}

/// How it went.
pub struct Outcome {
    pub predicted: usize,
    left_out: usize,
    first: Vec<BadSample>,
    skips: bool,
}

impl Pictures {
    pub fn open(trained: &Trained, args: &PredictArgs, part: Part) -> Result<Pictures> {
        let skips = args.settings.is_given("data", "skip_bad");
        let pool = trained.run.pool.clone();
        let (bad, paths, missing) = if skips {
            there(&args.files, &pool).map(|(paths, missing)| (OnBad::Skip, paths, missing))?
        } else {
            (OnBad::Fail, args.files.clone(), Vec::new())
        };
        let files = Arc::new(ImageFiles::list(&paths, &pool)?.channels(trained.channels()?).encoded());
        let data = images_alone(files.clone(), part, &trained.run, trained.session.plan().batch)?;
        let named = memfit::data::Source::len(&*files) + missing.len();
        let options = LoadOptions { threads: trained.run.threads, bad, ..LoadOptions::new(pool) };
        Ok(Pictures { files, loader: Loader::new(&data, options)?, named, missing, skips })
    }

    /// Hands out each picture's file with what the model says of it, in the order in which they were named.
    pub fn each(
        mut self,
        trained: &mut Trained,
        mut each: impl FnMut(&Trained, String, &[f32]) -> Result<()>,
    ) -> Result<Outcome> {
        let mut predicted = 0;
        while let Some(batch) = self.loader.next().map_err(|e| of_files(e, self.named))? {
            for (row, numbers) in super::rows::answers(trained, &batch)? {
                let file = self.files.path(row).ok_or_else(|| bad_data("there are more pictures than files"))?;
                predicted += 1;
                each(trained, file.display().to_string(), &numbers)?;
            }
        }
        let mut first = self.missing;
        first.extend_from_slice(&self.loader.skipped().first);
        // A file may be named twice: what was not predicted was left out.
        Ok(Outcome { predicted, left_out: self.named - predicted, first, skips: self.skips })
    }
}

impl Outcome {
    pub fn print(&self, written: Option<PathBuf>, json: bool) {
        let Outcome { predicted, left_out, first, skips } = self;
        if json && (*skips || written.is_some()) {
            let first: Vec<_> = first
                .iter()
                .map(|bad| json!({ "file": bad.location, "problem": sample_problem(&bad.problem) }))
                .collect();
            let mut event =
                json!({ "event": "done", "predicted": predicted, "skipped_files": left_out, "skipped": first });
            if let Some(path) = written {
                event["written"] = path.display().to_string().into();
            }
            outln!("{event}");
        } else if !json {
            if let Some(path) = written {
                outln!("{} in {}", count(*predicted, "prediction"), path.display());
            }
            if *left_out > 0 {
                outln!("left out {} that could not be read:", count(*left_out, "file"));
                first.iter().for_each(|bad| outln!("  {}", bad_sample(bad)));
            }
        }
    }
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
