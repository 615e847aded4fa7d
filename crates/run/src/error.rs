//! What can be wrong with a run.

use serde_json::json;

/// Wrong use: an unknown name, a number out of range.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

/// What the user gave cannot be read, or what was made of it cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadData(String);

/// What does not fit into a capacity.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NoRoom {
    pub message: String,
    /// What a machine reads of it.
    pub certificate: serde_json::Value,
}

pub fn usage(problem: impl ToString) -> anyhow::Error {
    Usage(problem.to_string()).into()
}

pub fn bad_data(problem: impl ToString) -> anyhow::Error {
    BadData(problem.to_string()).into()
}

pub fn no_room(message: String, budget: u64, needed: u64) -> anyhow::Error {
    let certificate = json!({
        "budget_bytes": budget, "needed_bytes": needed, "exceeded_by_bytes": needed.saturating_sub(budget),
    });
    NoRoom { message, certificate }.into()
}
