//! Errors as the user meets them: one message, and an exit code that says of what kind it is.

use std::process::ExitCode;

use crate::say::say;
use memfit::exec::weights::WeightsError;
use memfit::{ExecError, PlanError};
use serde_json::json;

/// Wrong use: an unknown name, a number out of range.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The training went wrong, for its data or its numbers.
#[derive(Debug)]
struct Diverged(String);

impl std::fmt::Display for Diverged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Diverged {}

pub fn diverged(problem: String) -> anyhow::Error {
    Diverged(problem).into()
}

/// The error and its causes, each said once: many messages already hold their cause.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|e| e.to_string()) {
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

pub fn usage(problem: impl ToString) -> anyhow::Error {
    Usage(problem.to_string()).into()
}

/// Prints the error and gives its exit code.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let (kind, code) = kind(error);
    if json {
        let mut event = json!({ "event": "error", "kind": kind, "message": message(error) });
        if let Some(PlanError::Refused(r)) = error.downcast_ref::<PlanError>() {
            event["certificate"] = json!({
                "budget_bytes": r.budget,
                "needed_bytes": r.needed,
                "exceeded_by_bytes": r.needed - r.budget,
                "state_bytes": r.state_bytes,
                "lower_bound_bytes": r.lower_bound,
                "instant": r.instant,
                "largest": r.largest.iter().map(|t| json!({
                    "layer": t.layer, "op": t.op, "type": t.ty.to_string(), "bytes": t.bytes,
                })).collect::<Vec<_>>(),
            });
        }
        say!("{event}");
    } else {
        eprintln!("error: {}", message(error));
    }
    ExitCode::from(code)
}

fn kind(error: &anyhow::Error) -> (&'static str, u8) {
    if error.chain().any(|e| e.is::<Usage>()) {
        return ("usage", 2);
    }
    match error.downcast_ref::<PlanError>() {
        Some(PlanError::Refused(_)) => return ("refused", 3),
        Some(PlanError::Source(_) | PlanError::MicroBatch { .. } | PlanError::TooLarge) => return ("usage", 2),
        Some(PlanError::Binding { .. } | PlanError::Segment { .. }) => return ("device", 5),
        Some(PlanError::Graph { .. } | PlanError::Invalid { .. }) => return ("internal", 1),
        None => {}
    }
    if let Some(WeightsError::Device { .. }) = error.downcast_ref::<WeightsError>() {
        return ("device", 5);
    }
    if error.is::<WeightsError>() || error.is::<Diverged>() {
        return ("data", 4);
    }
    match error.downcast_ref::<ExecError>() {
        Some(
            ExecError::OutOfMemory { .. }
            | ExecError::Threads { .. }
            | ExecError::Unsupported { .. }
            | ExecError::Device { .. },
        ) => ("device", 5),
        Some(_) => ("data", 4),
        None => ("internal", 1),
    }
}
