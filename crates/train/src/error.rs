//! What can go wrong in training. Every message names the thing, the place and the cure.

use std::path::PathBuf;

use memfit_exec::ExecError;
use memfit_exec::weights::WeightsError;
use memfit_ir::TensorType;

pub type Result<T, E = TrainError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("input \"{name}\" has {rows} rows, but \"{other}\" has {other_rows}; give both the same")]
    Rows { name: String, rows: usize, other: String, other_rows: usize },
    #[error("there are no rows to evaluate; give every input at least one")]
    NoRows,
    /// What is read row by row must have rows.
    #[error("output \"{name}\" is {ty}, which is not one result for each of {micro_batch} rows")]
    NotByRow { name: String, ty: TensorType, micro_batch: usize },
    #[error("label {label} is outside of 0..{classes}, the classes that the model knows")]
    Label { label: i64, classes: usize },
    #[error("there are {logits} logits where the labels need {expected}")]
    Labels { logits: usize, expected: usize },
    /// Of a run's folder; whatever was saved before is still there.
    #[error("cannot save {}: {source}; what was saved before is untouched: make room or mend it, then resume", path.display())]
    Save { path: PathBuf, source: std::io::Error },
    #[error("{}: {problem}; {cure}", path.display())]
    Damaged { path: PathBuf, problem: String, cure: String },
    #[error("{} holds a run already; resume it or give another folder", folder.display())]
    RunExists { folder: PathBuf },
    #[error("there is no run in {} to go on with; start one there", folder.display())]
    NoRun { folder: PathBuf },
    #[error("another process trains in {}; wait for it or give another folder", folder.display())]
    Busy { folder: PathBuf },
    #[error("a run has at most {} steps", u32::MAX)]
    TooManySteps,
}
