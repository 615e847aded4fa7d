//! Errors as the user meets them: one message, and an exit code that says of what kind it is.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::run::Run;
use crate::say::{self, say};
use crate::signals::INTERRUPTED;
use memfit::calibrate::CalibrateError;
use memfit::data::{BadSample, CsvProblem, DataError, SampleProblem};
use memfit::exec::weights::WeightsError;
use memfit::plan::bytes::Bytes;
use memfit::plan::{Fix, Need, Refusal, Resident, TogetherRefusal};
use memfit::train::TrainError;
use memfit::{ExecError, PlanError};
use serde_json::{Value, json};

/// Wrong use: an unknown name, a number out of range.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Somebody asked trainings to stop, and they did after saving.
#[derive(Debug)]
pub struct Interrupted {
    pub runs: Vec<Stopped>,
}

/// A training that was stopped.
#[derive(Debug)]
pub struct Stopped {
    pub folder: PathBuf,
    /// The step up to which it was saved.
    pub saved: Option<u32>,
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let saved: Vec<(&PathBuf, u32)> = self.runs.iter().filter_map(|r| Some((&r.folder, r.saved?))).collect();
        let options: Vec<String> = saved.iter().map(|(folder, _)| format!("--resume {}", folder.display())).collect();
        let steps: Vec<String> = saved.iter().map(|(_, step)| step.to_string()).collect();
        match saved.is_empty() {
            true => f.write_str("interrupted before anything was saved"),
            false => write!(
                f,
                "interrupted and saved at step {}; `memfit train {}` goes on",
                steps.join(" and "),
                options.join(" ")
            ),
        }
    }
}

impl std::error::Error for Interrupted {}

/// What the user gave cannot be read, or what was made of it cannot be written.
#[derive(Debug)]
struct BadData(String);

impl std::fmt::Display for BadData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadData {}

pub fn bad_data(problem: impl ToString) -> anyhow::Error {
    BadData(problem.to_string()).into()
}

/// Buffers that do not fit into a capacity, or of which no packing was found that does.
#[derive(Debug)]
pub struct NoRoom {
    pub message: String,
    /// What a machine reads of it.
    pub certificate: serde_json::Value,
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NoRoom {}

pub fn no_room(message: String, budget: u64, needed: u64) -> anyhow::Error {
    let certificate = json!({
        "budget_bytes": budget, "needed_bytes": needed, "exceeded_by_bytes": needed.saturating_sub(budget),
    });
    NoRoom { message, certificate }.into()
}

/// The error and its causes, each said once: many messages already hold their cause.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(words) {
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

/// What the error says; sizes as people write them, and to the byte, so that they can be typed.
fn words(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(TrainError::Test { source, saved }) = error.downcast_ref::<TrainError>() {
        return format!("{}; {saved}", words(&**source));
    }
    let of_training = || match error.downcast_ref::<TrainError>() {
        Some(TrainError::Data(e)) => Some(e),
        _ => None,
    };
    match error.downcast_ref::<DataError>().or_else(of_training) {
        Some(e) => data_words(e),
        None => error.to_string(),
    }
}

/// What is wrong with data, with the cure in options and keys of a run file.
fn data_words(error: &DataError) -> String {
    let sample = |bad: &BadSample| format!("{}: {}", bad.location, problem_words(&bad.problem));
    match error {
        DataError::PoolTooSmall { limit, needed, what } => format!(
            "the host budget of {} is too small: {what} needs at least {} ({}); raise --host-budget",
            Bytes(*limit),
            Bytes(*needed),
            say::count(*needed, "byte")
        ),
        DataError::Bad(bad) => format!("{}; or leave it out: --skip-bad", sample(bad)),
        DataError::NothingGood { epoch, first } => {
            format!("epoch {epoch}: nothing in it is good; the first that is bad: {}", sample(first))
        }
        DataError::TooManyBad { last, before } => {
            format!("{}; and so are the {before} elements before it: none is good", sample(last))
        }
        DataError::Csv { path, problem } => format!("{}: {}", path.display(), csv_words(problem)),
        DataError::NoRoom(_) | DataError::Io { .. } | DataError::Source { .. } | DataError::Pipeline(_) => {
            error.to_string()
        }
    }
}

/// What is wrong with a sample, in the same words.
pub fn problem_words(problem: &SampleProblem) -> String {
    match problem {
        SampleProblem::FileTooLarge { bytes, limit } => {
            format!("it has {bytes} bytes, more than the host budget of {limit}; raise --host-budget")
        }
        SampleProblem::ImageTooLarge { size: [height, width], needed, limit } => format!(
            "its {height}×{width} pixels take {needed} bytes and more to decode, and the host budget is {limit}; raise \
             --host-budget"
        ),
        SampleProblem::UnknownClass { field, label, classes } => {
            format!("{field} is {label}, outside of 0..{classes}; give model.classes, or mend the data")
        }
        SampleProblem::Other(problem) => problem.clone(),
    }
}

fn csv_words(problem: &CsvProblem) -> String {
    let or = |is: bool, cure: &str| if is { format!(", or {cure}") } else { String::new() };
    match problem {
        CsvProblem::DuplicateColumn { name, numbers_as_names } => {
            format!("two columns are called \"{name}\"; rename one{}", or(*numbers_as_names, "say data.header = false"))
        }
        CsvProblem::NoLabelColumn { column, known, numbers_as_names, other_separator } => format!(
            "there is no column {column} for the label; there are {known}; name the one that is the label with \
             data.label{}{}",
            or(*numbers_as_names, "say data.header = false if the first line has no names"),
            or(*other_separator, "separate the cells by commas (in a .tsv by tabs)")
        ),
        CsvProblem::NotClasses { column, words, rows, example } => format!(
            "column \"{column}\" has {words} different words and more in {rows} rows, such as \"{example}\", which are \
             no classes; name the column that has them with data.label"
        ),
    }
}

pub fn usage(problem: impl ToString) -> anyhow::Error {
    Usage(problem.to_string()).into()
}

/// One of several runs failed; the others go on.
pub fn tell_of_run(run: &Run, error: &anyhow::Error) {
    match run.json {
        true => say!("{}", run.event(json!({ "event": "failed", "kind": kind(error).0, "message": message(error) }))),
        false => say::error(&format!("{}: {}", run.label.as_deref().unwrap_or(&run.name), message(error))),
    }
}

/// Prints the error and gives its exit code.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let (kind, code) = kind(error);
    if json {
        let mut event = json!({ "event": "error", "kind": kind, "message": message(error) });
        if let Some(PlanError::Refused(refusal)) = error.downcast_ref::<PlanError>() {
            event["certificate"] = certificate(refusal);
        }
        if let Some(PlanError::TogetherRefused(refusal)) = error.downcast_ref::<PlanError>() {
            event["certificate"] = certificate_together(refusal);
        }
        if let Some(no_room) = error.downcast_ref::<NoRoom>() {
            event["certificate"] = no_room.certificate.clone();
        }
        say!("{event}");
    } else {
        say::error(&message(error));
    }
    ExitCode::from(code)
}

/// What was typed cannot be read; help and version are no errors. With `--json` among it, it is told as an event.
pub fn misspelt(error: clap::Error) -> ExitCode {
    let asked = std::env::args_os().any(|a| a == "--json");
    if asked && error.use_stderr() {
        say!("{}", json!({ "event": "error", "kind": "usage", "message": error.to_string().trim() }));
    } else {
        // Where nobody can read it, the exit code has to do.
        let _ = error.print();
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// A refusal as data.
fn certificate(r: &Refusal) -> Value {
    let largest = |t: &Resident| {
        json!({
            "layer": t.layer, "op": t.op, "type": t.ty.to_string(), "shape": t.ty.shape.to_vec(),
            "dtype": t.ty.dtype.to_string(), "bytes": t.bytes, "class": t.class,
        })
    };
    json!({
        "budget_bytes": r.budget,
        "needed_bytes": r.needed,
        "exceeded_by_bytes": r.needed - r.budget,
        "state_bytes": r.state_bytes,
        "lower_bound_bytes": r.lower_bound,
        "lower_bound_reason": r.bound_reason,
        "proved": r.is_proved(),
        "instant": r.instant,
        "largest": r.largest.iter().map(largest).collect::<Vec<_>>(),
        "fixes": r.fixes.iter().map(fix).collect::<Vec<_>>(),
    })
}

fn fix(f: &Fix) -> Value {
    json!({
        "change": f.change, "note": f.note, "arena_bytes": f.arena_bytes, "predicted_step_ms": f.seconds * 1e3,
        "predicted_sample_ms": f.seconds_per_sample * 1e3,
    })
}

/// A refusal of a set as data.
fn certificate_together(r: &TogetherRefusal) -> Value {
    let member = |m: &Need| {
        json!({ "run": m.name, "state_bytes": m.state_bytes, "smallest_transient_bytes": m.transient_bytes,
                "transient_lower_bound_bytes": m.transient_bound,
                "fixes": m.fixes.iter().map(fix).collect::<Vec<_>>() })
    };
    json!({
        "budget_bytes": r.budget,
        "needed_bytes": r.needed,
        "exceeded_by_bytes": r.needed - r.budget,
        "state_bytes": r.state_bytes(),
        "lower_bound_bytes": r.lower_bound,
        "proved": r.is_proved(),
        "runs": r.members.iter().map(member).collect::<Vec<_>>(),
        "one_after_the_other_bytes": r.one_after_the_other(),
        "cure": r.cure,
    })
}

fn kind(error: &anyhow::Error) -> (&'static str, u8) {
    if error.is::<CalibrateError>() {
        return ("device", 5);
    }
    if error.chain().any(|e| e.is::<Usage>()) {
        return ("usage", 2);
    }
    match error.downcast_ref::<PlanError>() {
        Some(PlanError::Refused(_) | PlanError::TogetherRefused(_)) => return ("refused", 3),
        Some(PlanError::Source(_) | PlanError::MicroBatch { .. } | PlanError::TooLarge) => return ("usage", 2),
        Some(PlanError::Binding { .. } | PlanError::Segment { .. }) => return ("device", 5),
        Some(PlanError::Graph { .. } | PlanError::Invalid { .. }) => return ("internal", 1),
        None => {}
    }
    if error.is::<NoRoom>() {
        return ("refused", 3);
    }
    if let Some(WeightsError::Device { .. }) = error.downcast_ref::<WeightsError>() {
        return ("device", 5);
    }
    if error.is::<Interrupted>() {
        return ("interrupted", INTERRUPTED as u8);
    }
    if error.is::<WeightsError>() || error.is::<BadData>() {
        return ("data", 4);
    }
    if let Some(kind) = error.downcast_ref::<DataError>().map(of_data) {
        return kind;
    }
    if let Some(kind) = error.downcast_ref::<TrainError>().map(of_training) {
        return kind;
    }
    match error.downcast_ref::<ExecError>() {
        Some(e) => of_device(e),
        None => ("internal", 1),
    }
}

fn of_training(error: &TrainError) -> (&'static str, u8) {
    match error {
        TrainError::Data(e) => of_data(e),
        TrainError::Exec(e) => of_device(e),
        TrainError::Test { source, .. } => of_training(source),
        TrainError::RunExists { .. }
        | TrainError::Foreign { .. }
        | TrainError::NoFolder { .. }
        | TrainError::NoRun { .. }
        | TrainError::Busy { .. }
        | TrainError::NoMetric { .. }
        | TrainError::NothingToWatch { .. }
        | TrainError::TooManySteps
        | TrainError::EmptyEpoch { .. } => ("usage", 2),
        _ => ("data", 4),
    }
}

fn of_data(error: &DataError) -> (&'static str, u8) {
    match error {
        DataError::Pipeline(_) => ("usage", 2),
        DataError::PoolTooSmall { .. } => ("refused", 3),
        _ => ("data", 4),
    }
}

fn of_device(error: &ExecError) -> (&'static str, u8) {
    match error {
        ExecError::DeviceFull(_) => ("refused", 3),
        ExecError::OutOfMemory { .. }
        | ExecError::Threads { .. }
        | ExecError::Unsupported { .. }
        | ExecError::Device { .. } => ("device", 5),
        _ => ("data", 4),
    }
}
