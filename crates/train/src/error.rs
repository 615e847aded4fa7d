//! What can go wrong in training. Every message names the thing, the place and the cure.

use std::path::PathBuf;

use memfit_data::DataError;
use memfit_exec::ExecError;
use memfit_exec::weights::WeightsError;
use memfit_ir::TensorType;
use memfit_nn::Loss;

use crate::metrics::{LabelKind, Monitor};

pub type Result<T, E = TrainError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Data(#[from] DataError),
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
    #[error(
        "head \"{head}\" cannot be evaluated by {loss:?}: the model gives {output}, and its labels are {}",
        label.as_ref().map_or("not among its inputs".into(), TensorType::to_string)
    )]
    Head { head: String, loss: Loss, output: TensorType, label: Option<TensorType> },
    #[error("a model without heads cannot be evaluated; give each output its loss")]
    NoHeads,
    #[error("there is no {monitor} of {labels:?} like these; watch another metric")]
    NoMetric { monitor: Monitor, labels: LabelKind },
    #[error("early stopping watches the {monitor} on a test set, but there is none; give one or leave it out")]
    NothingToWatch { monitor: Monitor },
    #[error("the test set has no elements; give one that has, or none")]
    NoTestData,
    #[error(
        "input \"{name}\" has {rows} rows, but the plan takes batches of {expected}; drop what does not fill a batch"
    )]
    Batch { name: String, rows: usize, expected: usize },
    #[error("an epoch has no batch of {batch} rows; give more data or a smaller batch")]
    EmptyEpoch { batch: usize },
    #[error("the {what} of the learning rate is {number}; give a finite number that is not negative")]
    Rate { what: &'static str, number: f32 },
    #[error("the data cannot tell how long an epoch is, which the learning rate depends on; count it in steps")]
    UnknownEpoch,
    #[error(
        "the loss is {loss} at step {step}, since its batch has numbers that are not finite{place}; mend the data; \
         {saved}"
    )]
    NotFinite { step: u32, loss: f32, place: String, saved: String },
    #[error("the loss is {loss} at step {step} with a learning rate of {lr}; {saved} with a smaller --lr")]
    Diverged { step: u32, loss: f32, lr: f32, saved: String },
    #[error(
        "{skips} steps in a row, up to step {step}, overflowed in f16 and changed nothing, at every scale of the loss; \
         {saved} with a smaller --lr than {lr}, or begin another run in bf16 (--precision mixed)"
    )]
    Overflow { step: u32, skips: u32, lr: f32, saved: String },
    /// In the test set, which is looked at when training has got somewhere.
    #[error("{source}; {saved}")]
    Test { source: Box<TrainError>, saved: String },
    /// Of the folder of a run that has saved nothing yet.
    #[error(
        "a run cannot begin, for {} cannot be written: {source}; mend that, or give another folder with --out",
        path.display()
    )]
    Begin { path: PathBuf, source: std::io::Error },
    /// Of a run's folder; whatever was saved before is still there.
    #[error(
        "cannot save {}: {source}; what was saved before is untouched: make room or mend it, then resume",
        path.display()
    )]
    Save { path: PathBuf, source: std::io::Error },
    #[error("{}: {problem}; {cure}", path.display())]
    Damaged { path: PathBuf, problem: String, cure: String },
    #[error(
        "{problem}; but a run goes on with its own plan: resume it on the device, and with as many threads, as it had"
    )]
    OtherDevice { problem: String },
    #[error(
        "{0} holds a run already; `memfit train --resume {0}` goes on with it, or give another folder",
        folder.display()
    )]
    RunExists { folder: PathBuf },
    #[error("{} is not of a run, which would write over it; keep the run in another folder: --out", path.display())]
    Foreign { path: PathBuf },
    #[error("{} is a file or lies in one, but a run needs a folder; give another with --out", path.display())]
    NoFolder { path: PathBuf },
    #[error("there is no run in {} to go on with; start one there", folder.display())]
    NoRun { folder: PathBuf },
    #[error("another process trains in {}; wait for it or give another folder", folder.display())]
    Busy { folder: PathBuf },
    /// Unknown, more than one number, or asked for too early.
    #[error("there is no number \"{name}\" here; a step that has ended gives {known}")]
    NoNumber { name: String, known: String },
    #[error("a run has at most {} steps", u32::MAX)]
    TooManySteps,
}
