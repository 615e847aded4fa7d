//! Errors as the user meets them: one message, and an exit code that says of what kind it is.

use std::path::PathBuf;
use std::process::ExitCode;

use memfit::calibrate::CalibrateError;
use memfit::data::DataError;
use memfit::exec::weights::WeightsError;
use memfit::exec::{Farewell, WireError};
use memfit::plan::{Fix, LiveTensor, Need, Refusal, TogetherRefusal};
use memfit::train::TrainError;
use memfit::{ExecError, PlanError};
use memfit_run::{RunError, RunResources};
use serde_json::{Value, json};

use crate::cure;
use crate::output::{self, outln};
use crate::show::event;
use crate::signals::INTERRUPTED;
use crate::wording::{is_too_large, message};

/// Wrong use: an unknown name, a number out of range.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

pub fn usage(problem: impl ToString) -> anyhow::Error {
    Usage(problem.to_string()).into()
}

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
    pub certificate: Value,
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NoRoom {}

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
        if saved.is_empty() {
            return f.write_str("interrupted before anything was saved");
        }
        let (steps, options) = (steps.join(" and "), options.join(" "));
        write!(f, "interrupted and saved at step {steps}; `memfit train {options}` goes on")
    }
}

impl std::error::Error for Interrupted {}

impl Interrupted {
    fn print(&self, json: bool) {
        if !json {
            return output::progress(&self.to_string());
        }
        let run = |run: &Stopped| json!({ "run_dir": run.folder.display().to_string(), "step": run.saved });
        let runs: Vec<Value> = self.runs.iter().map(run).collect();
        outln!("{}", json!({ "event": "interrupted", "message": self.to_string(), "runs": runs }));
    }
}

/// Another process has told what is wrong, and all leave with its code.
#[cfg(feature = "mpi")]
#[derive(Debug)]
pub struct EndsAs {
    pub code: u8,
}

#[cfg(feature = "mpi")]
impl std::fmt::Display for EndsAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "another process ended with exit code {}", self.code)
    }
}

#[cfg(feature = "mpi")]
impl std::error::Error for EndsAs {}

/// The exit code of an error.
#[cfg(feature = "mpi")]
pub fn code(error: &anyhow::Error) -> u8 {
    kind(error).1
}

/// One of several runs failed; the others go on.
pub fn print_of_run(run: &RunResources, error: &RunError, json: bool) {
    let message = message(error);
    if json {
        let kind = of_run(error).0;
        outln!("{}", event::of_run(run, json!({ "event": "failed", "kind": kind, "message": message })));
    } else {
        output::error(&format!("{}: {message}", run.label));
    }
}

/// Prints the error and gives its exit code.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let (kind, code) = kind(error);
    let message = message(error.as_ref());
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        // What somebody asked for is no error.
        interrupted.print(json);
    } else if json {
        let mut event = json!({ "event": "error", "kind": kind, "message": message });
        if let Some(certificate) = certificate(error) {
            event["certificate"] = certificate;
        }
        outln!("{event}");
    } else {
        output::error(&message);
    }
    ExitCode::from(code)
}

/// What was typed cannot be read; help and version are no errors. With `--json` among it, it is told as an event.
pub fn misspelt(error: clap::Error) -> ExitCode {
    let asked = std::env::args_os().any(|a| a == "--json");
    if asked && error.use_stderr() {
        outln!("{}", json!({ "event": "error", "kind": "usage", "message": error.to_string().trim() }));
    } else {
        // Where nobody can read it, the exit code has to do.
        let _ = error.print();
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// Why something does not fit, as data.
fn certificate(error: &anyhow::Error) -> Option<Value> {
    let of_run = error.downcast_ref::<RunError>().map(RunError::innermost);
    if let Some(RunError::PlanTooLarge { needed, budget, .. }) = of_run {
        return Some(json!({
            "budget_bytes": budget, "needed_bytes": needed, "exceeded_by_bytes": needed.saturating_sub(*budget),
        }));
    }
    let (of_run, room) = match of_run {
        Some(RunError::Plan { source, room }) => (Some(source), room.as_deref()),
        _ => (None, None),
    };
    match of_run.or(error.downcast_ref::<PlanError>()) {
        Some(PlanError::Refused(refusal)) => {
            let mut certificate = certificate_alone(refusal);
            certificate["fewer_threads"] = room.and_then(|room| Some(room.fewer_threads(refusal.needed)?.0)).into();
            Some(certificate)
        }
        Some(PlanError::TogetherRefused(refusal)) => Some(certificate_together(refusal)),
        _ => error.downcast_ref::<NoRoom>().map(|no_room| no_room.certificate.clone()),
    }
}

/// A refusal as data.
fn certificate_alone(r: &Refusal) -> Value {
    let largest = |t: &LiveTensor| {
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
        "staging_bytes": r.staging_bytes,
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
        "change": cure::options(f), "note": cure::note(f), "other_model": f.is_other_model(), "arena_bytes": f.arena_bytes,
        "staging_bytes": f.staging_bytes, "device_bytes": f.device_bytes(),
        "predicted_step_ms": f.seconds * 1e3, "predicted_sample_ms": f.seconds_per_sample * 1e3,
    })
}

/// A refusal of a set as data.
fn certificate_together(r: &TogetherRefusal) -> Value {
    let member = |m: &Need| {
        json!({ "run": m.name, "state_bytes": m.state_bytes, "smallest_transient_bytes": m.transient_bytes,
                "transient_lower_bound_bytes": m.transient_bound, "staging_bytes": m.staging_bytes,
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

/// Of what kind an error is, and the exit code of the kind.
type Kind = (&'static str, u8);

const INTERNAL: Kind = ("internal", 1);
const USAGE: Kind = ("usage", 2);
const REFUSED: Kind = ("refused", 3);
const DATA: Kind = ("data", 4);
const DEVICE: Kind = ("device", 5);
const REPLICA: Kind = ("replica", 6);

fn kind(error: &anyhow::Error) -> Kind {
    #[cfg(feature = "mpi")]
    if let Some(ends) = error.downcast_ref::<EndsAs>() {
        return (REPLICA.0, ends.code);
    }
    let known = [
        error.downcast_ref::<CalibrateError>().map(|_| DEVICE),
        error.chain().any(|e| e.is::<Usage>()).then_some(USAGE),
        error.downcast_ref::<RunError>().map(of_run),
        error.downcast_ref::<PlanError>().map(of_plan),
        error.is::<NoRoom>().then_some(REFUSED),
        error.downcast_ref::<WeightsError>().map(of_weights),
        error.is::<Interrupted>().then_some(("interrupted", INTERRUPTED as u8)),
        error.is::<BadData>().then_some(DATA),
        error.downcast_ref::<DataError>().map(of_data),
        error.downcast_ref::<TrainError>().map(of_training),
        error.downcast_ref::<ExecError>().map(of_device),
    ];
    known.into_iter().flatten().next().unwrap_or(INTERNAL)
}

fn of_run(error: &RunError) -> Kind {
    match error {
        RunError::OfRun { source, .. }
        | RunError::OfReplica { source, .. }
        | RunError::HostBudget { source, .. }
        | RunError::DeviceFailed { source, .. }
        | RunError::FolderElsewhere { source, .. } => of_run(source),
        RunError::WithoutGpus { .. } => DEVICE,
        RunError::Plan { source, .. } => of_plan(source),
        RunError::Data(e) => of_data(e),
        RunError::Exec(e) => of_device(e),
        RunError::Train(e) => of_training(e),
        RunError::Weights(e) => of_weights(e),
        RunError::PlanTooLarge { .. }
        | RunError::PlanThreads { .. }
        | RunError::NoRoomForProgram { .. }
        | RunError::NoRoomForRun { .. } => REFUSED,
        RunError::SamplesChanged { .. }
        | RunError::DataChanged(_)
        | RunError::PlanDeparts { .. }
        | RunError::Masks { .. }
        | RunError::HeaderDiffers { .. }
        | RunError::LabelNumber { .. }
        | RunError::NoArray { .. }
        | RunError::ArrayType { .. }
        | RunError::SingleArray { .. }
        | RunError::CostModel { .. }
        | RunError::CannotMake { .. }
        | RunError::Write { .. }
        | RunError::BadFile { .. }
        | RunError::WeightsNotFinite { .. }
        | RunError::TorchFile { .. }
        | RunError::MissingWeights { .. } => DATA,
        // What was asked for cannot be.
        _ => USAGE,
    }
}

fn of_plan(error: &PlanError) -> Kind {
    match error {
        PlanError::Refused(_) | PlanError::TogetherRefused(_) | PlanError::PlanningRoom { .. } => REFUSED,
        PlanError::Source(_)
        | PlanError::MicroBatch { .. }
        | PlanError::Lanes { .. }
        | PlanError::Synchronised { .. }
        | PlanError::TooLarge => USAGE,
        PlanError::Binding { .. } | PlanError::Segment { .. } | PlanError::Unsupported { .. } => DEVICE,
        PlanError::Graph { .. } | PlanError::Invalid { .. } => INTERNAL,
    }
}

fn of_weights(error: &WeightsError) -> Kind {
    if matches!(error, WeightsError::Device { .. }) { DEVICE } else { DATA }
}

fn of_training(error: &TrainError) -> Kind {
    match error {
        TrainError::Data(e) => of_data(e),
        TrainError::Exec(e) => of_device(e),
        TrainError::Weights(e) => of_weights(e),
        TrainError::OtherDevice { .. } => DEVICE,
        TrainError::Test { source, .. } => of_training(source),
        TrainError::RunExists { .. }
        | TrainError::Foreign { .. }
        | TrainError::NoFolder { .. }
        | TrainError::NoRun { .. }
        | TrainError::Busy { .. }
        | TrainError::NoMetric { .. }
        | TrainError::NothingToWatch { .. }
        | TrainError::PartOfStates { .. }
        | TrainError::TooManySteps
        | TrainError::EmptyEpoch { .. } => USAGE,
        _ => DATA,
    }
}

fn of_data(error: &DataError) -> Kind {
    match error {
        DataError::Pipeline(_) => USAGE,
        DataError::PoolTooSmall { .. } => REFUSED,
        DataError::Bad(bad)
        | DataError::NothingGood { first: bad, .. }
        | DataError::TooManyBad { last: bad, .. }
        | DataError::BadLane { first: bad, .. }
            if is_too_large(&bad.problem) =>
        {
            REFUSED
        }
        _ => DATA,
    }
}

fn of_device(error: &ExecError) -> Kind {
    match error {
        ExecError::DeviceFull(_) => REFUSED,
        ExecError::OutOfMemory { .. }
        | ExecError::Threads { .. }
        | ExecError::Unsupported { .. }
        | ExecError::Device { .. } => DEVICE,
        ExecError::Wire { source, .. } => of_wire(source),
        _ => DATA,
    }
}

/// What another replica says of itself is what all end with.
fn of_wire(error: &WireError) -> Kind {
    match error {
        WireError::Left { why, .. } => KINDS.into_iter().find(|kind| kind.1 == why.kind).unwrap_or(REPLICA),
        WireError::Lost { .. } | WireError::Stalled { .. } | WireError::Differs { .. } | WireError::Failed(_) => {
            REPLICA
        }
    }
}

const KINDS: [Kind; 6] = [INTERNAL, USAGE, REFUSED, DATA, DEVICE, REPLICA];

/// The same of whatever ended it.
#[cfg(feature = "mpi")]
pub fn farewell_of(error: &anyhow::Error) -> Farewell {
    Farewell { kind: kind(error).1, message: message(error.as_ref()) }
}

/// What a replica tells the others that cannot go on.
pub fn farewell(error: &RunError) -> Farewell {
    Farewell { kind: of_run(error).1, message: message(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out_of_memory() -> ExecError {
        let (device, holder) = ("gpu:0 (a card)".into(), "activations of mlp".into());
        ExecError::OutOfMemory { device, holder, bytes: 3 << 30, source: std::io::Error::other("refused") }
    }

    fn check(error: RunError, code: u8, parts: &[&str]) {
        assert_eq!(of_run(&error).1, code, "{error}");
        let said = message(&error);
        parts.iter().for_each(|part| assert!(said.contains(part), "{part}: {said}"));
    }

    #[test]
    fn a_device_that_fails_is_told_from_wrong_use_and_from_bad_data() {
        check(out_of_memory().into(), 5, &["gpu:0 (a card)", "3.00 GiB", "activations of mlp", "budget"]);
        check(RunError::Train(TrainError::Exec(out_of_memory())), 5, &["3.00 GiB", "budget"]);
        let lost = || ExecError::Device { device: "gpu:0 (a card)".into(), problem: "device lost".into() };
        check(lost().into(), 5, &["device lost", "memfit devices"]);
        let unsupported = ExecError::Unsupported {
            op: "conv2d",
            layer: "conv1".into(),
            problem: "its shader does not compile".into(),
        };
        check(unsupported.into(), 5, &["conv2d", "conv1", "does not compile"]);
        let unread = WeightsError::Device { path: "a/last.safetensors".into(), source: lost() };
        check(RunError::Train(TrainError::Weights(unread)), 5, &["device lost"]);
        check(RunError::WithoutGpus { name: "gpu:0".into() }, 5, &["gpu:0", "--features gpu"]);
        check(RunError::NoPages { device: "gpu:0".into() }, 2, &["gpu:0", "page by page"]);
        let (source, folder) = (Box::new(lost().into()), "runs/a".into());
        let failed = RunError::DeviceFailed { source, folder, step: 12 };
        check(failed, 5, &["device lost", "checkpoint of step 12 is intact", "memfit train --resume runs/a"]);
        let wire = |source: WireError| RunError::from(ExecError::Wire { layer: String::new(), source });
        let stalled = || wire(WireError::Stalled { missing: vec![2], waited: std::time::Duration::from_secs(60) });
        check(stalled(), 6, &["replica 2 did not come within 60 s"]);
        let lost = RunError::DeviceFailed { source: Box::new(stalled()), folder: "runs/a".into(), step: 12 };
        check(lost, 6, &["replica 2", "checkpoint of step 12 is intact", "memfit train --resume runs/a"]);
        let elsewhere = RunError::FolderElsewhere { source: Box::new(stalled()), folder: "/runs/a".into() };
        check(elsewhere, 6, &["replica 2", "the machine of replica 0", "memfit train --resume /runs/a"]);
        let why = farewell(&DataError::source("cat.jpg", "it is no image").into());
        assert_eq!(why.kind, 4);
        check(wire(WireError::Left { rank: 1, why }), 4, &["replica 1", "cat.jpg"]);
    }
}
