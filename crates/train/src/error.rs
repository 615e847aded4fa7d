//! What can go wrong in training. A variant carries facts: the thing, the place, what was saved. Its message says the cure
//! as somebody who calls this crate would do it; a front end words it in its own terms.

use std::fmt;
use std::path::{Path, PathBuf};

use memfit_data::DataError;
use memfit_exec::ExecError;
use memfit_exec::weights::WeightsError;
use memfit_files::Kind;
use memfit_ir::TensorType;
use memfit_nn::Loss;

use crate::metrics::Monitor;
use crate::run_dir::CheckpointKind;

/// What training gives, or why not.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// Why something could not be trained, evaluated, saved or resumed.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// Of the device.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Of the data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Of a file of weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Two inputs of one batch that do not belong together.
    #[error("input \"{name}\" has {rows} rows, but \"{other}\" has {other_rows}; give both the same")]
    Rows {
        /// An input.
        name: String,
        /// Its rows.
        rows: usize,
        /// The first input.
        other: String,
        /// The rows of that.
        other_rows: usize,
    },
    /// An empty batch.
    #[error("there are no rows to evaluate; give every input at least one")]
    NoRows,
    /// What is read row by row must have rows.
    #[error("output \"{name}\" is {ty}, which is not one result for each of {micro_batch} rows")]
    NotByRow {
        /// The output.
        name: String,
        /// What it is.
        ty: TensorType,
        /// The rows of an evaluation.
        micro_batch: usize,
    },
    /// What is predicted must be numbers.
    #[error("output \"{name}\" is {ty}, and predictions are read as f32")]
    NotFloats {
        /// The output.
        name: String,
        /// What it is.
        ty: TensorType,
    },
    /// A label that the model does not know.
    #[error("label {label} is outside of 0..{classes}, the classes that the model knows")]
    Label {
        /// The label.
        label: i64,
        /// Classes of the model.
        classes: usize,
    },
    /// Outputs and labels that are not as many as one another.
    #[error("there are {logits} logits where the labels need {expected}")]
    Labels {
        /// Numbers that the model gave.
        logits: usize,
        /// Numbers that the labels need.
        expected: usize,
    },
    /// Units that are not one for each number of a head.
    #[error("head \"{head}\" has {units} units, and gives {elements} numbers for a sample")]
    Units {
        /// The head.
        head: String,
        /// Those that were given.
        units: usize,
        /// Numbers of a row of its output.
        elements: usize,
    },
    /// A head that is not of the planned model.
    #[error(
        "head \"{head}\" cannot be evaluated by {loss:?}: the model gives {output}, and its labels are {}",
        label.as_ref().map_or("not among its inputs".into(), TensorType::to_string)
    )]
    Head {
        /// The head.
        head: String,
        /// What it says that its loss is.
        loss: Loss,
        /// What the model gives.
        output: TensorType,
        /// The input with the labels, where there is one.
        label: Option<TensorType>,
    },
    /// A model whose forward pass was made by hand, without heads.
    #[error("a model without heads cannot be evaluated; give each output its loss")]
    NoHeads,
    /// A score that the model does not have.
    #[error("there is no {monitor} to monitor; this model has {}", known.join(", "))]
    NoMetric {
        /// What should be followed.
        monitor: Monitor,
        /// All that can be.
        known: Vec<String>,
    },
    /// Of replicas that share states, another one than the first is to write checkpoints.
    #[error(
        "replica {rank} cannot write checkpoints: each replica has a part of the optimizer's states, and the first one gathers \
         them; give that one the folder"
    )]
    PartOfStates {
        /// Which one.
        rank: usize,
    },
    /// Early stopping without a test set.
    #[error("early stopping watches the {monitor} on a test set, but there is none; give one or leave it out")]
    NothingToWatch {
        /// What should be followed.
        monitor: Monitor,
    },
    /// A test set without an element.
    #[error("the test set has no elements; give one that has, or none")]
    NoTestData,
    /// An element of the test set that several replicas deal out.
    #[error(
        "a batch of the test set has {rows} rows, but replicas that share it evaluate at most {micro_batch} at a time: batch it by \
         as many"
    )]
    TestRows {
        /// Of the batch.
        rows: usize,
        /// Of the plan.
        micro_batch: usize,
    },
    /// Another replica could not go on, and has said no more yet.
    #[error("replica {rank} could not evaluate its part of the test set")]
    Replica {
        /// Which.
        rank: usize,
    },
    /// A batch of another size than was planned.
    #[error(
        "input \"{name}\" has {rows} rows, but the plan takes batches of {expected}; drop what does not fill a batch"
    )]
    Batch {
        /// The input.
        name: String,
        /// Its rows.
        rows: usize,
        /// The planned batch size.
        expected: usize,
    },
    /// Less data than one batch.
    #[error("an epoch has no batch of {batch} rows; give more data or a smaller batch")]
    EmptyEpoch {
        /// The planned batch size.
        batch: usize,
    },
    /// A schedule with a number that is not a learning rate.
    #[error("the {what} of the learning rate is {number}; give a finite number that is not negative")]
    Rate {
        /// Which number of the schedule.
        what: &'static str,
        /// Its value.
        number: f32,
    },
    /// A schedule in epochs over data of unknown length.
    #[error("the data cannot tell how long an epoch is, which the learning rate depends on; count it in steps")]
    UnknownEpoch,
    /// A batch with numbers that are not finite.
    #[error(
        "the loss is {loss} at step {step}, since its batch has numbers that are not finite{}; mend the data; {}",
        place.as_ref().map_or(String::new(), |place| format!(": {place}")),
        last_good(saved.as_deref())
    )]
    NotFinite {
        /// The step.
        step: u32,
        /// Its loss.
        loss: f32,
        /// Where in the data, where that is known.
        place: Option<BadValue>,
        /// The last good checkpoint, where one was kept.
        saved: Option<PathBuf>,
    },
    /// A loss that is not finite, of data that are.
    #[error(
        "the loss is {loss} at step {step} with a learning rate of {lr}; {} with a smaller learning rate",
        last_good(saved.as_deref())
    )]
    Diverged {
        /// The step.
        step: u32,
        /// Its loss.
        loss: f32,
        /// Its learning rate.
        lr: f32,
        /// The last good checkpoint, where one was kept.
        saved: Option<PathBuf>,
    },
    /// A loss on the test set that is not finite, of data that are.
    #[error(
        "the loss on the test set is {loss} after step {step}, with a learning rate of {lr}; {} with a smaller learning rate",
        last_good(saved.as_deref())
    )]
    TestDiverged {
        /// Steps so far.
        step: u32,
        /// Of the test set.
        loss: f64,
        /// The learning rate of the last step.
        lr: f32,
        /// The last good checkpoint, where one was kept.
        saved: Option<PathBuf>,
    },
    /// Gradients that overflow in f16 however the loss is scaled.
    #[error(
        "{skips} steps in a row, up to step {step}, overflowed in f16 and changed nothing, at every scale of the loss; \
         {} with a smaller learning rate than {lr}, or begin another run in bf16",
        last_good(saved.as_deref())
    )]
    Overflow {
        /// The step.
        step: u32,
        /// Steps in a row that changed nothing.
        skips: u32,
        /// The learning rate.
        lr: f32,
        /// The last good checkpoint, where one was kept.
        saved: Option<PathBuf>,
    },
    /// In the test set, which is looked at when training has got somewhere. The run was saved as it was.
    #[error(
        "{source}; that is in the test set: mend it and resume {}, which then goes on from step {step}",
        folder.display()
    )]
    Test {
        /// What is wrong with it.
        source: Box<TrainError>,
        /// Of the run.
        folder: PathBuf,
        /// At which it was saved.
        step: u32,
    },
    /// Of the folder of a run that has saved nothing yet.
    #[error("a run cannot begin, for {} cannot be written: {source}; mend that, or give another folder", path.display())]
    Begin {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Of a run's folder; whatever was saved before is still there.
    #[error(
        "cannot save {}: {source}; what was saved before is untouched: make room or mend it, then resume",
        path.display()
    )]
    Save {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A checkpoint that is not as it was written.
    #[error("{}: {problem}; {recovery}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// How to go on all the same.
        recovery: Recovery,
    },
    /// A plan that this device does not run.
    #[error(
        "{problem}; but a run goes on with its own plan: resume it on the device, and with as many threads, as it had"
    )]
    OtherDevice {
        /// What is different.
        problem: String,
    },
    /// A new run where one is already.
    #[error("{} holds a run already; resume it, or give another folder", folder.display())]
    RunExists {
        /// Of that run.
        folder: PathBuf,
    },
    /// A file in the way that no run has written.
    #[error(
        "{} ({kind}) is not of a run, which would write over it; move it away, or keep the run in another folder",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: Kind,
    },
    /// Somebody took the folder away while its run went on.
    #[error(
        "the run's folder {} is gone: it was removed or moved while the run went on, which cannot be saved there any more; \
         put it back and resume, or start again",
        folder.display()
    )]
    FolderGone {
        /// Where it was.
        folder: PathBuf,
    },
    /// A file where a folder should be.
    #[error("{} is a file or lies in one, but a run needs a folder; give another", path.display())]
    NoFolder {
        /// The file.
        path: PathBuf,
    },
    /// A folder without a run.
    #[error("there is no run in {} to go on with; start one there", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder that is being written to.
    #[error("another process trains in {}; wait for it or give another folder", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// Unknown, more than one number, or asked for too early.
    #[error("there is no number \"{name}\" here; a step that has ended gives {known}")]
    NoNumber {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// More steps than are counted.
    #[error("a run has at most {} steps", u32::MAX)]
    TooManySteps,
}

/// A number in the data that is not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// The input.
    pub field: String,
    /// The file and the place in it, or the number of the sample.
    pub place: String,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "\"{}\" of {}", self.field, self.place)
    }
}

/// How to go on after a damaged checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The other checkpoint of the run is intact: resume that.
    Resume {
        /// Which one.
        which: CheckpointKind,
        /// Of which step it is.
        step: u32,
        /// Its file.
        path: PathBuf,
    },
    /// The last checkpoint is intact, and is used where there is no best one.
    RemoveBest {
        /// Of which step it is.
        step: u32,
    },
    /// The run can do without it.
    MoveAway(CheckpointKind),
    /// Somebody wrote to it when it had been found whole.
    ResumeAgain,
    /// Nothing is left of the run.
    StartAnew,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Recovery::Resume { which, step, path } => {
                write!(f, "{} (step {step}) is intact: resume {}", which.file_name(), path.display())
            }
            Recovery::RemoveBest { step } => {
                let [last, best] = [CheckpointKind::Last, CheckpointKind::Best].map(CheckpointKind::file_name);
                write!(f, "{last} (step {step}) is intact: remove {best} to use that")
            }
            Recovery::MoveAway(which) => {
                write!(f, "bring it back, or move {} away to go on without it", which.file_name())
            }
            Recovery::ResumeAgain => f.write_str("resume again: it is looked at before anything is begun"),
            Recovery::StartAnew => f.write_str("start anew in another folder"),
        }
    }
}

/// What to go on from when training came to a bad end.
fn last_good(saved: Option<&Path>) -> String {
    match saved {
        Some(path) => format!("{} is the last good checkpoint: resume it", path.display()),
        None => "no checkpoint was kept: start again".into(),
    }
}
