//! What can be wrong with a run. An error carries facts: which key, which file, how many of what. Its text speaks of keys and
//! files; a front end that has other words for a cure finds in it what it needs to say so.

mod data_words;

use std::path::{Path, PathBuf};

use memfit::data::DataError;
use memfit::data::sources::{ArrayInfo, MaskProblem};
use memfit::exec::WireError;
use memfit::exec::process::Limiter;
use memfit::exec::weights::WeightsError;
use memfit::nn::error::nearest;
use memfit::nn::zoo::Task;
use memfit::plan::Departure;
use memfit::plan::bytes::{Bytes, told_apart};
use memfit::train::TrainError;
use memfit::{ExecError, PlanError};
use memfit_files::torch::TorchFileError;

use crate::config::Key;
use crate::data::same_data::Set;
use crate::data::{ArrayOf, Kind};
use crate::process::limit_words;
use crate::room::Room;
use crate::text::{count, first_few};
use crate::weights::names_elsewhere;

use data_words::{array_type_words, mask_problem};
pub use data_words::{arrays_words, header_words};

pub type Result<T, E = RunError> = std::result::Result<T, E>;

/// What a file of weights without one of the model may be.
#[derive(Debug)]
pub enum LikelyWeights {
    /// Those of another network.
    Of(String),
    /// Those of a network of one's own: the name of a weight, and in the file the one nearest to it.
    Nearest([String; 2]),
}

impl LikelyWeights {
    fn words(&self) -> String {
        match self {
            LikelyWeights::Of(model) => format!(", which are those of a {model}: set model.name = \"{model}\""),
            LikelyWeights::Nearest([wanted, there]) => {
                format!("; nearest to {wanted} is {there}: save them under the names of the model")
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What is wrong with one of several runs.
    #[error("{label}")]
    OfRun { label: String, source: Box<RunError> },

    /// What is wrong with one of several replicas.
    #[error("replica {rank}")]
    OfReplica { rank: usize, source: Box<RunError> },

    // Run files.
    #[error("{}: {problem}", path.display())]
    NoRunFile { path: PathBuf, problem: String },
    #[error("{}: {source}", path.display())]
    InFile { path: PathBuf, source: Box<RunError> },
    #[error("{0}")]
    Syntax(String),
    #[error("there is no {what} \"{given}\"{}; there are {}", did_you_mean(meant), known.join(", "))]
    Unknown { what: String, given: String, meant: Option<String>, known: Vec<String> },
    #[error("\"{name}\" belongs into [{belongs}], not into [{section}]")]
    Misplaced { name: String, section: String, belongs: &'static str },
    #[error("{} is now {}: use that instead", former, key.path())]
    Renamed { former: String, key: &'static Key },
    #[error("{section} must be a section: write [{section}] on a line of its own")]
    NoSection { section: String },
    /// A value that is not of its key's kind.
    #[error("{} {problem}, such as {}", key.path(), key.example)]
    Value { key: &'static Key, problem: String },
    /// A value that means nothing here.
    #[error("{} {problem}", key.path())]
    Key { key: &'static Key, problem: String },
    /// A key of the section of the model that this one does not have.
    #[error(
        "model.{key} is not of {model}, which has {}",
        match known[..] {
            [] => "no keys but model.input and model.classes".to_string(),
            _ => known.iter().map(|key| key.path()).collect::<Vec<_>>().join(", "),
        }
    )]
    NoModelKey { model: String, key: &'static str, known: Vec<&'static Key> },
    /// Keys that do not go together, or with the data.
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    Model(#[from] memfit::nn::Error),

    // Data.
    #[error("{model} needs data: set data.train; only digits has its data built in")]
    NoData { model: String },
    #[error(
        "{model} {}, but these data are {}, for a model that {}, such as {}",
        task_words(*does),
        kind.name(),
        task_words(*wanted),
        kind.usual_model()
    )]
    WrongModel { model: String, does: Task, kind: Kind, wanted: Task },
    #[error(
        "the masks are background and foreground, which is 1 class, but the model is to have {classes}; leave out \
         model.classes"
    )]
    MaskClasses { classes: usize },
    /// An input as arrays have it whose channels stand first.
    #[error(
        "the array \"{array}\" has its channels first ({}), and a model reads height, width, channels: it is turned while it \
         is read; leave out model.input",
        shape_words(shape)
    )]
    ChannelsFirst { array: String, shape: Vec<usize> },
    /// A table that is unlike the others of its run.
    #[error("{}: {}; or say data.header", path.display(), header_words(*has_header))]
    HeaderDiffers {
        path: PathBuf,
        /// Whether this one has a header, and the others none.
        has_header: bool,
    },
    #[error(
        "{}: its columns have no names, and the run knows its label as \"{label}\"; say the column's number in data.label",
        path.display()
    )]
    LabelNumber { path: PathBuf, label: String },
    #[error(
        "{}: there is no array \"{}\"; there are {}; name one of them with data.{}",
        path.display(),
        array.name,
        arrays_words(found),
        array.key()
    )]
    NoArray {
        path: PathBuf,
        array: ArrayOf,
        found: Vec<ArrayInfo>,
        /// Features and label, as the arrays look.
        likely: Option<Box<[String; 2]>>,
    },
    #[error("{}, array \"{}\": {}", path.display(), array.name, array_type_words(array, dtype))]
    ArrayType { path: PathBuf, array: ArrayOf, dtype: String },
    #[error(
        "{} is a single array, and a run has one of samples and one of their labels: {}",
        path.display(),
        match folder {
            Some(folder) => format!("name the folder that has both, {}", folder.display()),
            None => "save both by np.savez(\"data.npz\", x=x, y=y), or as x.npy and y.npy in a folder, and name that".into(),
        }
    )]
    SingleArray {
        path: PathBuf,
        /// In which both lie.
        folder: Option<PathBuf>,
    },
    /// Masks that can be read in several ways, or not as it is said.
    #[error("{}: {}", folder.display(), mask_problem(problem))]
    Masks { folder: PathBuf, problem: MaskProblem },
    #[error(
        "the data have {}, but the model is to have {model}; leave out model.classes",
        count(*data, "class")
    )]
    TooManyClasses { data: usize, model: usize },
    #[error("the batch of {batch} is larger than the training set, which has {}", count(*samples, "sample"))]
    BatchTooLarge { batch: usize, samples: usize },
    #[error(
        "the {} set has {}, but the run in {} began with {had}; bring back the data as they were, or begin another run",
        set.name,
        count(*has, "sample"),
        folder.display()
    )]
    SamplesChanged {
        folder: PathBuf,
        set: Set,
        had: u64,
        has: u64,
        /// Weights of the run, from which another can start.
        weights: Option<PathBuf>,
    },
    /// Data that are not those of the run, in words.
    #[error("{0}")]
    DataChanged(String),
    /// The host's memory is too small for the data; with a budget that was tried.
    #[error("{source}; memory.host_budget = {enough} is enough")]
    HostBudget { source: Box<RunError>, enough: u64 },
    #[error(transparent)]
    Data(#[from] DataError),

    // Devices and plans.
    #[error("{0}")]
    Device(String),
    /// A GPU is asked for.
    #[error("\"{name}\" cannot be used: memfit was built without GPUs, which are its feature gpu")]
    WithoutGpus { name: String },
    #[error("{device} gives memory whole and not page by page; leave out memory.growth = \"lazy\"")]
    NoPages { device: String },
    #[error(
        "run {number} has no logical device: there are {devices}; give more memory.logical sizes, or a memory.device in each run file"
    )]
    NoLogicalDevice { number: usize, devices: String },
    #[error(
        "replica {number} has no device of its own: there are {devices}; have fewer replicas, give memory.logical a size for \
         each, or name one device that they share"
    )]
    NoDeviceForReplica { number: usize, devices: String },
    #[error(
        "memory.device is {name}, but of a device that memory.logical splits each replica has the part of its number; leave out \
         memory.device, or name the whole device, {}",
        name.split('/').next().unwrap_or_default()
    )]
    PartForReplicas { name: String },
    #[error("there is no device \"{name}\": memory.logical does not split the device")]
    NotSplit { name: String },
    #[error(
        "runs of one process share its threads, but {} says {} and {} says {}",
        first.0, first.1, other.0, other.1
    )]
    ThreadsDiffer { first: (String, usize), other: (String, usize) },
    #[error(
        "a budget for all is for runs that share a device, and these have devices of their own, each with its limit; leave it out"
    )]
    BudgetForNone,
    #[error("runs in one memory grow alike; say the same memory.growth in each")]
    GrowthDiffers,
    #[error("two of the runs have the folder {}; give each its own train.out", folder.display())]
    SameFolder { folder: PathBuf },
    /// No plan fits; with who holds the rest of the device, where that is the limit.
    #[error("{}{source}", Room::before(room.as_deref()))]
    Plan { source: PlanError, room: Option<Box<Room>> },
    #[error("the plan {file} is of another run: {}", differences.iter().map(Difference::words).collect::<Vec<_>>().join("; "))]
    OtherPlan { file: String, differences: Vec<Difference> },
    #[error("the plan {file} is of another version of the model (it was made by memfit {version}); plan anew")]
    OtherVersion { file: String, version: String },
    /// Whatever it says that it is made for.
    #[error("the plan {file} does not compute what this run's model does: {departure}; plan anew")]
    PlanDeparts { file: String, departure: Departure },
    #[error(
        "{}the plan {file} takes {}, more than the budget of {}",
        Room::before(room.as_deref()),
        told_apart(*needed, *budget)[0],
        told_apart(*needed, *budget)[1]
    )]
    PlanTooLarge { file: String, needed: u64, budget: u64, room: Option<Box<Room>> },
    #[error("cost model {}: {problem}", path.display())]
    CostModel {
        path: PathBuf,
        problem: String,
        /// Whether it is the one that was measured on this machine, and not one that was named.
        is_measured: bool,
    },
    /// Not even the program itself has room.
    #[error(
        "the process may have {} ({}), and the program itself needs {}; nothing is left beside that",
        told_apart(*limit, *outside)[0],
        limit_words(*limiter, *sharers),
        told_apart(*limit, *outside)[1]
    )]
    NoRoomForProgram {
        limiter: Limiter,
        /// Of this process.
        limit: u64,
        /// How many processes have one like that of it.
        sharers: usize,
        outside: u64,
        /// The threads that a run computes with, and what of that is for each.
        threads: usize,
        per_thread: u64,
    },
    /// What was planned is more than what the system has left.
    #[error(
        "the process may have {} ({}), and the program itself needs {} of it; the {} of arena and data pipeline do not fit \
         beside that{}",
        Bytes(*limit),
        limit_words(*limiter, *sharers),
        Bytes(*outside),
        Bytes(*needed),
        if *files > 0 { format!(" and {} of checkpoints, for the run's folder lies in memory", Bytes(*files)) } else { String::new() }
    )]
    NoRoomForRun {
        limiter: Limiter,
        /// Of this process.
        limit: u64,
        /// How many processes have one like that of it.
        sharers: usize,
        outside: u64,
        needed: u64,
        files: u64,
        threads: usize,
        per_thread: u64,
    },
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Processes that are to train one run are about to do different things.
    #[error(
        "replica {rank} differs from replica 0 in its {what}: {theirs} there, {first} here; every replica has to have the same"
    )]
    PeerDiffers { rank: usize, what: String, theirs: String, first: String },
    /// A device that failed while a run was trained; with the step of its last checkpoint, where that is intact.
    #[error("{source}; {} is intact", saved_words(folder, *step))]
    DeviceFailed { source: Box<RunError>, folder: PathBuf, step: u32 },
    /// A replica is lost, and the run's folder is on another machine than this process: what is in it is not known here.
    #[error("{source}")]
    FolderElsewhere { source: Box<RunError>, folder: PathBuf },

    // Run directories.
    #[error("{} is no checkpoint; name the folder of a run, or last.json or best.json in it", path.display())]
    NoCheckpoint { path: PathBuf },
    #[error("{} is not the folder of a run: it has no run.toml", folder.display())]
    NotARun { folder: PathBuf },
    #[error("{} cannot be made: {source}; set train.out", folder.display())]
    CannotMake { folder: PathBuf, source: std::io::Error },
    #[error("{} cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A file that cannot be read, or says something that cannot be.
    #[error("{}: {problem}", path.display())]
    BadFile { path: PathBuf, problem: String },
    #[error(
        "{} has {found} of the model's {}; was run.toml changed?",
        path.display(),
        count(*needed, "weight")
    )]
    MissingWeights { path: PathBuf, found: usize, needed: usize },
    #[error(
        "{} has no weight of this model, whose names are {}; in the file there are {}{}",
        path.display(),
        first_few(model),
        first_few(file),
        likely.as_ref().map_or(String::new(), LikelyWeights::words)
    )]
    NoWeights { path: PathBuf, model: Vec<String>, file: Vec<String>, likely: Option<LikelyWeights> },
    #[error("{}: {source}", path.display())]
    TorchFile { path: PathBuf, source: TorchFileError },
    /// Weights that are asked for by a word.
    #[error("there is no file \"{}\", and nothing is downloaded; {}", name, elsewhere(model))]
    WeightsByName { name: String, model: String },
    #[error(
        "{}: element {element} of \"{tensor}\" is not a finite number, and nothing can be trained from that; give weights \
         of a run that went well",
        path.display()
    )]
    WeightsNotFinite { path: PathBuf, tensor: String, element: u64 },
    #[error(
        "{wanted} {unit}s are less than the {} that the run has made; give more to go on, or leave it out",
        count(*done, unit)
    )]
    TooShort {
        unit: &'static str,
        wanted: u64,
        done: u64,
        /// Whether it was set over what the run's file says.
        is_overridden: bool,
    },
    /// A run that goes on was planned for other threads, and has no room for these.
    #[error(
        "with {} the run takes {}, more than the {} that it may have; it was planned for {theirs}",
        count(*ours, "thread"),
        told_apart(*needed, *budget)[0],
        told_apart(*needed, *budget)[1]
    )]
    PlanThreads { ours: usize, theirs: String, needed: u64, budget: u64 },
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// In what a saved plan is not one of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub what: String,
    pub theirs: String,
    pub ours: String,
    /// The key with which the run would be that of the plan; none where only another device would be.
    pub key: Option<&'static Key>,
}

impl Difference {
    pub fn words(&self) -> String {
        let what = if self.what == crate::planning::INSTRUCTIONS { "instruction set" } else { &self.what };
        format!("its {what} is {}, here it is {}", self.theirs, self.ours)
    }
}

impl RunError {
    pub fn unknown(what: &str, given: &str, known: &[&'static str]) -> RunError {
        RunError::Unknown {
            what: what.into(),
            given: given.into(),
            meant: nearest(known, given).map(str::to_string),
            known: known.iter().map(|name| name.to_string()).collect(),
        }
    }

    pub(crate) fn conflict(problem: impl Into<String>) -> RunError {
        RunError::Conflict(problem.into())
    }

    /// Of a key, by its name.
    pub(crate) fn of_key(section: &str, name: &str, problem: String) -> RunError {
        match crate::config::find(section, name) {
            Some(key) => RunError::Key { key, problem },
            None => RunError::Conflict(format!("{section}.{name} {problem}")),
        }
    }

    /// Whether it is the device that failed, and nothing about model, data or files.
    pub fn is_of_device(&self) -> bool {
        let exec = match self {
            RunError::Exec(e) | RunError::Train(TrainError::Exec(e)) => e,
            RunError::Train(TrainError::Weights(WeightsError::Device { .. })) => return true,
            _ => return false,
        };
        matches!(exec, ExecError::Device { .. } | ExecError::OutOfMemory { .. } | ExecError::Unsupported { .. })
    }

    /// Whether it is the connection between replicas that failed, or what another one said there.
    pub fn is_of_wire(&self) -> bool {
        self.wire_error().is_some()
    }

    /// Whether a replica was lost, or did not come.
    pub fn is_lost_replica(&self) -> bool {
        matches!(self.wire_error(), Some(WireError::Lost { .. } | WireError::Stalled { .. }))
    }

    /// What went wrong between replicas.
    pub fn wire_error(&self) -> Option<&WireError> {
        match self.innermost() {
            RunError::Exec(ExecError::Wire { source, .. }) => Some(source),
            RunError::Train(error) => of_training(error),
            RunError::DeviceFailed { source, .. } | RunError::FolderElsewhere { source, .. } => source.wire_error(),
            _ => None,
        }
    }

    /// Without the names of run and file around it.
    pub fn innermost(&self) -> &RunError {
        match self {
            RunError::OfRun { source, .. } | RunError::OfReplica { source, .. } | RunError::InFile { source, .. } => {
                source.innermost()
            }
            other => other,
        }
    }
}

impl From<PlanError> for RunError {
    fn from(source: PlanError) -> RunError {
        RunError::Plan { source, room: None }
    }
}

fn of_training(error: &TrainError) -> Option<&WireError> {
    match error {
        TrainError::Exec(ExecError::Wire { source, .. })
        | TrainError::Weights(WeightsError::Device { source: ExecError::Wire { source, .. }, .. }) => Some(source),
        TrainError::Test { source, .. } => of_training(source),
        _ => None,
    }
}

/// What is wrong, with the name of the run where there are several.
pub(crate) fn named<T>(label: &str, is_one_of_several: bool, result: Result<T>) -> Result<T> {
    result.map_err(|source| match source {
        source if is_one_of_several => RunError::OfRun { label: label.into(), source: Box::new(source) },
        source => source,
    })
}

/// Where weights of a network of the zoo are got.
fn elsewhere(model: &str) -> String {
    let Some((torchvision, timm)) = names_elsewhere(model) else {
        return format!("nobody else has weights of a {model}: give those of a run, RUN_DIR/weights.safetensors");
    };
    format!(
        "with torchvision: torch.save(torchvision.models.{torchvision}(weights=\"DEFAULT\").state_dict(), \"{torchvision}.pth\"); or \
         take model.safetensors of timm/{timm} from Hugging Face; then give that file"
    )
}

fn did_you_mean(meant: &Option<String>) -> String {
    meant.as_ref().map_or(String::new(), |name| format!(" (did you mean \"{name}\"?)"))
}

fn saved_words(folder: &Path, step: u32) -> String {
    format!("the checkpoint of step {step} in {}", folder.display())
}

fn shape_words(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// What a model does.
pub fn task_words(task: Task) -> &'static str {
    match task {
        Task::Classes => "classifies",
        Task::Masks | Task::PixelClasses => "segments images",
        Task::Tokens => "generates text",
        Task::Values => "predicts numbers",
    }
}
