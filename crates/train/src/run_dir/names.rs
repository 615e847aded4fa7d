//! What the files of a run's folder are called, and which names can only be a run's. Looks at names alone, never into a
//! file.

use std::ffi::OsStr;

use memfit_exec::atomic_file::UNFINISHED;
use serde::{Deserialize, Serialize};

/// Which of the checkpoints of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointKind {
    /// The latest: what a run goes on from.
    Last,
    /// The one with the best score so far.
    Best,
    /// One that is kept of those that are written again and again, by the number of its next step.
    Step(u32),
}

const LAST: &str = "last.json";
const BEST: &str = "best.json";
/// What the names of checkpoints that are kept end with; they begin as those of tensors do.
const STEP: &str = ".json";

impl CheckpointKind {
    /// Those that are there once each.
    pub const SINGLE: [CheckpointKind; 2] = [CheckpointKind::Last, CheckpointKind::Best];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            CheckpointKind::Last => "last",
            CheckpointKind::Best => "best",
            CheckpointKind::Step(_) => "step",
        }
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        match self {
            CheckpointKind::Last => LAST.into(),
            CheckpointKind::Best => BEST.into(),
            CheckpointKind::Step(step) => format!("{}{step:08}{STEP}", TENSORS.0),
        }
    }

    /// Of which a file of this name is.
    pub fn of_file(name: &OsStr) -> Option<CheckpointKind> {
        let named = |which: &CheckpointKind| OsStr::new(&which.file_name()) == name;
        let step = || name.to_str()?.strip_prefix(TENSORS.0)?.strip_suffix(STEP)?.parse().ok();
        CheckpointKind::SINGLE.into_iter().chain(step().map(CheckpointKind::Step)).find(named)
    }

    pub(super) const fn other(self) -> CheckpointKind {
        match self {
            CheckpointKind::Last => CheckpointKind::Best,
            CheckpointKind::Best | CheckpointKind::Step(_) => CheckpointKind::Last,
        }
    }
}

/// Its plan.
pub const PLAN: &str = "plan.json";
pub(super) const LOCK: &str = "run.lock";
/// How the run was asked for: what a front end writes besides.
pub const RUN_FILE: &str = "run.toml";
/// The names of its classes, a line each: what a front end writes besides.
pub const CLASSES: &str = "classes.txt";
/// What its data were: what a front end writes besides.
pub const DATA: &str = "data.json";
/// Its weights alone: what a front end writes besides.
pub const WEIGHTS: &str = "weights.safetensors";
/// The table of its losses, scores, speeds and bytes: see [`history`](crate::history).
pub const HISTORY: &str = "history.csv";
/// All that happened, a JSON object a line: see [`history`](crate::history).
pub const EVENTS: &str = "events.jsonl";
/// Every name in the folder that is always the same, but for checkpoints.
const NAMES: [&str; 7] = [PLAN, RUN_FILE, CLASSES, DATA, WEIGHTS, HISTORY, EVENTS];
/// What the names of files of tensors begin and end with.
pub(super) const TENSORS: (&str, &str) = ("step-", ".safetensors");

/// Whether a run has a file that is called so, its lock aside.
pub(super) fn is_of_a_run(name: &OsStr) -> bool {
    is_name(name) || is_tensors(name) || is_unfinished(name)
}

fn is_name(name: &OsStr) -> bool {
    NAMES.iter().any(|n| OsStr::new(n) == name) || CheckpointKind::of_file(name).is_some()
}

/// Whether it is called as [`RunDir::save`](super::RunDir::save) calls tensors: `step-`, the step in 8 digits or more,
/// their checksum.
pub(super) fn is_tensors(name: &OsStr) -> bool {
    let parts = stem(name).and_then(|n| n.split_once('-'));
    parts.is_some_and(|(step, sum)| is_step(step) && sum.len() == 16 && sum.bytes().all(is_hex))
}

/// Whether it is a file of ours that a process did not bring to its end: its name, the process's number and, where that
/// was taken, another, `.tmp`.
pub(super) fn is_unfinished(name: &OsStr) -> bool {
    let parts = name.to_str().and_then(|n| n.strip_suffix(UNFINISHED)).and_then(|n| n.rsplit_once('.'));
    parts.is_some_and(|(name, process)| {
        let name = OsStr::new(name);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        process.split('-').all(is_number) && (is_name(name) || is_tensors(name) || stem(name).is_some_and(is_step))
    })
}

fn stem(name: &OsStr) -> Option<&str> {
    name.to_str()?.strip_prefix(TENSORS.0)?.strip_suffix(TENSORS.1)
}

fn is_step(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}
