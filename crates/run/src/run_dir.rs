//! What the command line adds to the folder of a run: the run file that says all of it again, the names of the classes, and
//! the weights alone. The rest of the folder is `memfit::train`'s.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use memfit::data::image::Channels;
use memfit::exec::weights::{Match, WeightsError};
use memfit::exec::{Executor, Options};
use memfit::nn::zoo::Task;
use memfit::nn::{Mode, Model};
use memfit::plan::{MicroBatch, plan};
use memfit::train::TrainError;
use memfit::train::run_dir::{CLASSES, RUN_FILE, Saved, read_best};
use memfit::{CpuExecutor, Phase, Request, Session, SourceError};

use crate::config::{Said, Spec};
use crate::data::same_data;
use crate::data::{Kind, Opened};
use crate::device::{self, Devices};
use crate::error::{bad_data, usage};
use crate::file::write;
use crate::place::Place;
use crate::planning;
use crate::resources::{Facts, Run, read_file_with};
use crate::text::count;

/// A folder under runs/ that is not there yet.
pub fn free(name: &str) -> Result<PathBuf> {
    let runs = Path::new("runs");
    std::fs::create_dir_all(runs).map_err(bad_data).context("the folder runs/ cannot be made; give --out")?;
    for n in 1.. {
        let folder = runs.join(format!("{name}-{n}"));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(bad_data(format!("{} cannot be made: {e}; give --out", folder.display()))),
        }
    }
    unreachable!("there are enough numbers")
}

/// The text of a run's file: with what the data said, so that it needs them no more.
pub fn text(said: &Said, run: &Run, kind: Kind) -> Result<String> {
    let mut said = said.clone();
    said.set("data", "kind", kind.name());
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    said.set("model", "name", run.name.as_str());
    let input: Vec<i64> = run.model.input().map_err(usage)?.into_iter().map(count).collect();
    said.set("model", "input", input);
    let width = if run.model.task() == Task::Tokens { "vocabulary" } else { "classes" };
    said.set("model", width, count(run.model.classes()));
    said.set("memory", "threads", count(run.threads));
    if let Some(budget) = run.request.budget {
        said.set("memory", "budget", i64::try_from(budget).unwrap_or(i64::MAX));
    }
    Ok(said.to_toml())
}

/// Writes down what the run is.
pub fn describe(folder: &Path, text: &str, opened: &Opened) -> Result<()> {
    write(&folder.join(RUN_FILE), text)?;
    let escaped: Vec<String> = opened.settled.classes.iter().map(|c| c.escape_default().to_string()).collect();
    let lines: String = escaped.iter().map(|c| format!("{c}\n")).collect();
    write(&folder.join(CLASSES), &lines)?;
    same_data::write_down(folder, opened)
}

/// What the classes of a run are called; nothing where they have no names.
pub fn classes(folder: &Path) -> Vec<String> {
    let names = std::fs::read_to_string(folder.join(CLASSES)).unwrap_or_default();
    names.lines().map(unescape).collect()
}

/// Writes down what was changed on resumption, so that it holds the next time too.
pub fn describe_again(folder: &Path, said: &Said) -> Result<()> {
    write(&folder.join(RUN_FILE), &said.to_toml())
}

/// What was said about the run of a folder.
pub fn said(folder: &Path) -> Result<Said> {
    let path = folder.join(RUN_FILE);
    if !path.is_file() {
        let problem = format!("{} is not the folder of a run: it has no {RUN_FILE}", folder.display());
        return Err(usage(problem));
    }
    // It is what an older version wrote down, and no wish of anybody.
    read_file_with(&path, Said::modernized)
}

/// A trained model that only answers: its best weights on a plan without training.
pub struct Trained {
    pub spec: Spec,
    pub run: Run,
    pub session: Session<CpuExecutor>,
    pub place: Place,
    pub classes: Vec<String>,
    /// After so many steps.
    pub step: u32,
}

/// How many samples at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    Exactly(usize),
    /// And no more than the run had in its memory.
    AtMost(usize),
}

impl Trained {
    /// From the best checkpoint, or the last where no best was found yet, in the memory that the run had.
    pub fn open(folder: &Path, rows: Rows, threads: Option<usize>, json: bool) -> Result<Trained> {
        let mut said = said(folder)?;
        if let Some(threads) = threads {
            said.say("--threads", "memory", "threads", i64::try_from(threads).unwrap_or(i64::MAX));
        }
        let spec = said.spec().map_err(usage)?;
        let mut run = Run::new(&spec, &Facts::default(), json)?;
        let saved = read_best(folder)?;
        let device = Devices::of_one(&spec.memory)?;
        let place = Place::to_answer(run.name.clone(), &spec, device, 1)?;
        run.keep_to(&spec, &place.device);
        let executor = CpuExecutor::new(run.threads)?.on(place.device.clone());
        let batch = match rows {
            Rows::Exactly(rows) => rows,
            Rows::AtMost(rows) => rows.min(saved.plan.plan.micro_batch),
        };
        let request = Request { micro_batch: MicroBatch::Off, batch, ..run.request.clone() };
        let source = |rows: usize| -> Result<_, SourceError> {
            let graph = run.model.build(rows, Mode::Eval)?.graph;
            Ok(vec![(Phase::Eval, memfit::transform::forward_in(&graph, run.training.precision)?)])
        };
        let plan = plan(&source, executor.target(), &request).map_err(|e| planning::explain(e, run.tight_room()))?;
        let needed = plan.states.len();
        let options = Options { name: run.name.clone(), growth: device::growth(&spec.memory), ..Options::default() };
        let mut session = Session::with_options(executor, plan, run.seed, options)?;
        let (saved, found) = load(&mut session, folder, saved)?;
        if found != needed {
            let name = saved.tensors().display();
            return Err(bad_data(format!(
                "{name} has {found} of the model's {}; was {RUN_FILE} changed?",
                count(needed, "weight")
            )));
        }
        let classes = classes(folder);
        Ok(Trained { spec, classes, session, place, step: saved.checkpoint.step, run })
    }

    pub fn class(&self, index: usize) -> String {
        self.classes.get(index).cloned().unwrap_or_else(|| index.to_string())
    }

    pub fn channels(&self) -> Result<Channels> {
        match self.run.model.input().map_err(usage)?[..] {
            [_, _, 1] => Ok(Channels::Grey),
            [_, _, 3] => Ok(Channels::Rgb),
            _ => Err(usage(format!("{} does not read images", self.run.name))),
        }
    }
}

/// So often a checkpoint is read anew while its run replaces it.
const TRIES: usize = 20;

/// Takes the weights of a checkpoint. A run that goes on may replace it in the meantime: then of the one in its place.
fn load(session: &mut Session<CpuExecutor>, folder: &Path, mut saved: Saved) -> Result<(Saved, usize)> {
    for _ in 0..TRIES {
        match session.load_weights(saved.tensors(), Match::Common) {
            Err(TrainError::Weights(WeightsError::Io { source, .. })) if source.kind() == ErrorKind::NotFound => {
                saved = read_best(folder)?;
            }
            found => return Ok((saved, found?)),
        }
    }
    let found = session.load_weights(saved.tensors(), Match::Common)?;
    Ok((saved, found))
}

/// What [`str::escape_default`] made.
fn unescape(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some('u') => {
                    let hex: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    text.extend(u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32));
                }
                Some(other) => text.push(other),
                None => {}
            },
            c => text.push(c),
        }
    }
    text
}

/// Writes the weights of the best checkpoint, or those of the session where there is none; says of which step they are.
pub fn export(folder: &Path, session: &mut Session<CpuExecutor>, path: &Path) -> Result<u32> {
    let best = read_best(folder)?;
    if best.checkpoint.step != session.steps() {
        session.load_weights(best.tensors(), Match::Common)?;
    }
    session.save_weights(path)?;
    Ok(best.checkpoint.step)
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn names_of_classes_survive_being_written_down() {
        for name in ["cat", "a b", "\n", "\t", "\\", "'", "\"", "é", "漢", "\u{1f600}", "a\\nb"] {
            assert_eq!(unescape(&name.escape_default().to_string()), name);
        }
    }
}
