//! Errors as the user meets them: one message, and an exit code that says of what kind it is.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cure;
use crate::say::{self, say};
use crate::show::event;
use crate::signals::INTERRUPTED;
use memfit::calibrate::CalibrateError;
use memfit::data::DataError;
use memfit::exec::weights::WeightsError;
use memfit::plan::bytes::Bytes;
use memfit::plan::{Fix, Need, Refusal, Resident, TogetherRefusal};
use memfit::train::TrainError;
use memfit::{ExecError, PlanError};
use memfit_run::Run;
use memfit_run::error::{BadData, Usage};
pub use memfit_run::error::{NoRoom, bad_data, usage};
use memfit_run::text::count;
use serde_json::{Value, json};

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
    match error.downcast_ref::<PlanError>() {
        Some(PlanError::Refused(refusal)) => return cure::refusal(refusal),
        Some(PlanError::TogetherRefused(refusal)) => return cure::refusal_together(refusal),
        _ => {}
    }
    if let Some(TrainError::Test { source, folder, step }) = error.downcast_ref::<TrainError>() {
        return format!("{}; {}", words(&**source), cure::test_set(folder, *step));
    }
    if let Some(words) = error.downcast_ref::<TrainError>().and_then(cure::training) {
        return words;
    }
    let of_training = || match error.downcast_ref::<TrainError>() {
        Some(TrainError::Data(e)) => Some(e),
        _ => None,
    };
    match error.downcast_ref::<DataError>().or_else(of_training) {
        Some(DataError::Budget { limit, needed, what }) => format!(
            "the host budget of {} is too small: {what} needs at least {} ({}); raise --host-budget",
            Bytes(*limit),
            Bytes(*needed),
            count(*needed, "byte")
        ),
        _ => error.to_string(),
    }
}

/// One of several runs failed; the others go on.
pub fn tell_of_run(run: &Run, error: &anyhow::Error) {
    match run.json {
        true => say!(
            "{}",
            event::of_run(run, json!({ "event": "failed", "kind": kind(error).0, "message": message(error) }))
        ),
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
        "change": cure::options(f), "note": cure::note(f), "arena_bytes": f.arena_bytes, "predicted_step_ms": f.seconds * 1e3,
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
        "cure": r.cure.as_ref().map_or(String::new(), cure::option),
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
        Some(PlanError::Binding { .. } | PlanError::Segment { .. } | PlanError::Unsupported { .. }) => {
            return ("device", 5);
        }
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
        DataError::Budget { .. } => ("refused", 3),
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
