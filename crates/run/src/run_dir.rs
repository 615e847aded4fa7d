//! What a run adds to its folder: the run file that says all of it again, the names of the classes, and the weights alone. The
//! rest of the folder is `memfit::train`'s. And a trained model, read from there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use memfit::data::image::Channels;
use memfit::exec::weights::{Match, WeightsError};
use memfit::exec::{Executor, Growth, Options};
use memfit::nn::zoo::Task;
use memfit::nn::{Mode, Model};
use memfit::plan::bytes::round_up;
use memfit::plan::{Change, Fix, MicroBatch, plan};
use memfit::train::TrainError;
use memfit::train::run_dir::{CLASSES, RUN_FILE, SavedRun, SavedStates, read, read_best};
use memfit::{AnyExecutor, Phase, Plan, PlanError, Request, Session, SourceError};
use toml::{Table, Value};

use crate::config::{RunConfig, RunFolder};
use crate::data::{DataSources, Kind, masks, same_data};
use crate::device;
use crate::error::{Result, RunError};
use crate::file::write_own;
use crate::goal::REGRESSION;
use crate::planning;
use crate::resources::{RunResources, open_to_answer};
use crate::together;

/// A folder under runs/ that is not there yet.
pub fn free(name: &str) -> Result<PathBuf> {
    let runs = Path::new("runs");
    let cannot_make = |folder: &Path, source| RunError::CannotMake { folder: folder.into(), source };
    std::fs::create_dir_all(runs).map_err(|e| cannot_make(runs, e))?;
    for n in 1.. {
        let folder = runs.join(format!("{name}-{n}"));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(cannot_make(&folder, e)),
        }
    }
    unreachable!("there are enough numbers")
}

/// The text of a run's file: with what the data said, so that it needs them no more.
pub fn run_file(run: &RunResources, sources: &DataSources) -> Result<String> {
    let mut config = run.config.clone();
    let size = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    config.set("data", "kind", sources.kind.name())?;
    if let Some(masks) = &sources.schema.masks {
        config.set("data", "masks", masks::name(masks))?;
    }
    if sources.kind == Kind::Csv {
        let columns = sources.schema.columns.as_ref();
        let numbers = || sources.schema.labels.iter().map(usize::to_string).collect();
        config.set("data", "header", columns.is_some())?;
        match &columns.map_or_else(numbers, |columns| columns.labels.clone())[..] {
            [] => {}
            [label] => config.set("data", "label", label.as_str())?,
            labels => config.set("data", "label", labels.to_vec())?,
        }
    }
    config.set("model", "name", run.name.as_str())?;
    config.set("model", "input", run.model.input()?.into_iter().map(size).collect::<Vec<i64>>())?;
    if let Some(hidden) = run.model.choices().iter().find(|choice| choice.name == "hidden") {
        // What follows from the input here may follow otherwise elsewhere.
        let text = format!("hidden = {}", hidden.value);
        let widths: Option<Value> = text.parse::<Table>().ok().and_then(|mut table| table.remove("hidden"));
        widths.map_or(Ok(()), |widths| config.set("model", "hidden", widths))?;
    }
    let width = match run.model.task() {
        Task::Tokens => "vocabulary",
        Task::Values => "outputs",
        Task::Classes | Task::Masks | Task::PixelClasses => "classes",
    };
    if run.model.task() == Task::Values {
        config.set("train", "task", REGRESSION)?;
    }
    config.set("model", width, size(run.model.classes()))?;
    // A share of the cores is of so many processes as there are now.
    if !run.crew.has_share_of_cores(&run.config) {
        config.set("memory", "threads", size(run.all_threads()?))?;
    }
    // What nobody said is one replica's, and others may have more lanes when the run goes on.
    if let Some(budget) = run.request.budget.filter(|_| run.crew.lanes == 1) {
        config.set_count("memory", "budget", budget)?;
    }
    Ok(config.to_toml())
}

/// Writes down what the run is.
pub fn describe(folder: &Path, run_file: &str, sources: &DataSources) -> Result<()> {
    write_own(&folder.join(RUN_FILE), run_file)?;
    let lines: String = sources.schema.classes.iter().map(|c| format!("{}\n", escape(c))).collect();
    write_own(&folder.join(CLASSES), &lines)?;
    same_data::write_down(folder, sources)
}

/// Writes down what was changed on resumption, so that it holds the next time too.
pub fn describe_again(folder: &Path, config: &RunConfig) -> Result<()> {
    write_own(&folder.join(RUN_FILE), &config.to_toml())
}

/// What the classes of a run are called; nothing where they have no names.
pub fn classes(folder: &RunFolder) -> Result<Vec<String>> {
    match &folder.classes {
        Ok(names) => Ok(names.lines().map(unescape).collect()),
        Err(problem) => Err(RunError::BadFile { path: folder.path.join(CLASSES), problem: problem.clone() }),
    }
}

/// A trained model that only answers, on a plan without training.
pub struct Trained {
    pub run: RunResources,
    /// Where it lies.
    pub folder: RunFolder,
    pub session: Session<AnyExecutor>,
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

impl Rows {
    /// Whether another number could be said.
    fn are_free(self) -> bool {
        match self {
            Rows::Exactly(_) => true,
            Rows::AtMost(rows) => rows == usize::MAX,
        }
    }
}

impl Trained {
    /// From the checkpoint that was named; else from the best one, or the last where no best was found yet. In the memory that
    /// the run had.
    pub fn open(config: RunConfig, rows: Rows) -> Result<Trained> {
        let folder = config.run_folder().cloned().ok_or_else(|| RunError::NotARun { folder: ".".into() })?;
        // The folder is read before memory is taken for it.
        let (saved, own_plan) = read_checkpoint(&folder)?.into_parts();
        let micro_batch = own_plan.plan.micro_batch;
        drop(own_plan);
        let run = open_to_answer(config)?;
        let executor = together::executor(&run)?;
        let batch = match rows {
            Rows::Exactly(rows) => rows,
            Rows::AtMost(rows) => rows.min(micro_batch),
        };
        let mut request = Request { micro_batch: MicroBatch::Off, batch, ..run.request.clone() };
        let source = |rows: usize| -> std::result::Result<_, SourceError> {
            let graph = run.model.build(rows, Mode::Eval)?.graph;
            Ok(vec![(Phase::Eval, memfit::transform::forward_in(&graph, run.training.precision)?.into())])
        };
        let mut planned = plan(&source, executor.target(), &request);
        if let Err(PlanError::Refused(refusal)) = &planned {
            request.budget = run.make_room(refusal.needed);
            planned = plan(&source, executor.target(), &request);
        }
        if let Ok(plan) = &planned {
            let left = run.device.free();
            if plan.device_bytes() > left {
                request.budget = Some(left);
                planned = self::plan(&source, executor.target(), &request);
            }
        }
        let plan = planned.map_err(|error| {
            let fixes = |batch: usize, budget: u64| {
                let request = Request { batch, budget: Some(budget), ..request.clone() };
                plan(&source, executor.target(), &request).ok()
            };
            planning::explain(with_fixes(error, batch, rows, &fixes), run.tight_room().as_ref())
        })?;
        if let Some(process) = run.process.as_ref().filter(|_| executor.gives_process_memory()) {
            process.check_beside(&[&run], plan.device_bytes(), 0)?;
        }
        let needed = plan.states.len();
        // What it was trained on may have given single pages.
        let growth = if executor.gives_pages() { device::growth(&run.config.memory) } else { Growth::Commit };
        let options = Options { name: run.name.clone(), growth, ..Options::default() };
        let mut session = Session::with_options(executor, plan, run.seed, options)?;
        let (saved, found) = load(&mut session, &folder, saved)?;
        if found != needed {
            return Err(RunError::MissingWeights { path: saved.tensors().into(), found, needed });
        }
        Ok(Trained { classes: classes(&folder)?, session, step: saved.checkpoint.step, run, folder })
    }

    pub fn class(&self, index: usize) -> String {
        self.classes.get(index).cloned().unwrap_or_else(|| index.to_string())
    }

    pub fn channels(&self) -> Result<Channels> {
        match self.run.model.input()?[..] {
            [_, _, 1] => Ok(Channels::Grey),
            [_, _, 3] => Ok(Channels::Rgb),
            _ => Err(RunError::conflict(format!("{} does not read images", self.run.name))),
        }
    }
}

/// A refusal with what would fit: fewer samples at a time, where they can be said, and more memory.
fn with_fixes(error: PlanError, batch: usize, rows: Rows, plan: &dyn Fn(usize, u64) -> Option<Plan>) -> PlanError {
    let PlanError::Refused(mut refusal) = error else { return error };
    let fix = |change: Change, plan: &Plan| Fix::new(vec![change], None, plan);
    let mut smaller = if rows.are_free() { batch / 2 } else { 0 };
    while smaller > 0 {
        if let Some(plan) = plan(smaller, refusal.budget) {
            refusal.fixes.push(fix(Change::Batch(smaller), &plan));
            break;
        }
        smaller /= 2;
    }
    let needed = round_up(refusal.needed);
    refusal.fixes.extend(plan(batch, needed).map(|plan| fix(Change::Budget(needed), &plan)));
    PlanError::Refused(refusal)
}

fn read_checkpoint(RunFolder { path, checkpoint, .. }: &RunFolder) -> Result<SavedRun> {
    Ok(checkpoint.map_or_else(|| read_best(path), |which| read(path, which))?)
}

/// So often a checkpoint is read anew while its run replaces it.
const TRIES: usize = 20;

/// Takes the weights of a checkpoint. A run that goes on may replace it in the meantime: then of the one in its place.
fn load(
    session: &mut Session<AnyExecutor>,
    folder: &RunFolder,
    mut saved: SavedStates,
) -> Result<(SavedStates, usize)> {
    for _ in 0..TRIES {
        match session.load_weights(saved.tensors(), Match::Common) {
            Err(TrainError::Weights(WeightsError::Io { source, .. })) if source.kind() == ErrorKind::NotFound => {
                saved = read_checkpoint(folder)?.into_parts().0;
            }
            found => return Ok((saved, found?)),
        }
    }
    let found = session.load_weights(saved.tensors(), Match::Common)?;
    Ok((saved, found))
}

/// A name as one line: what ends a line, or is no letter that could be read, is written as Rust writes it.
fn escape(name: &str) -> String {
    let is_plain = |c: char| !c.is_control() && c != '\\' && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    name.chars().map(|c| if is_plain(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
}

/// What [`escape`] made, or, in folders of older runs, [`str::escape_default`].
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
pub fn export(folder: &Path, session: &mut Session<AnyExecutor>, path: &Path) -> Result<u32> {
    let best = read_best(folder)?;
    if best.checkpoint.step != session.steps() {
        session.load_weights(best.tensors(), Match::Common)?;
    }
    session.save_weights(path)?;
    Ok(best.checkpoint.step)
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn names_of_classes_survive_being_written_down() {
        for name in ["cat", "a b", "\n", "\t", "\\", "'", "\"", "é", "漢", "\u{1f600}", "a\\nb", "\u{85}", "\r\u{2028}"]
        {
            assert_eq!(unescape(&escape(name)), name);
            assert_eq!(escape(name).lines().count(), 1);
            assert_eq!(unescape(&name.escape_default().to_string()), name, "as older versions wrote it");
        }
        assert_eq!(["grün", "l'été", "a\tb"].map(escape), ["grün", "l'été", "a\\tb"]);
    }
}
