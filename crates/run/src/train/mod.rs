//! Training of runs: planned, given their memory and folders ([`prepare`]), and run side by side in one process
//! ([`run_all`]). Several runs share a device: their steps take turns. One run is a set of one.

mod cache;
mod find_lr;
mod go_on;
mod options;
pub(crate) mod peers;
mod prepare;
mod run_all;
mod tensorboard;

use std::path::{Path, PathBuf};

use memfit::train::{Datasets, FitOptions};
use memfit::{AnyExecutor, Session};

use crate::data::DataSummary;
use crate::data::same_data::Set;
use crate::planning::{Planned, Progress};
use crate::replicas::Peers;
use crate::resources::RunResources;
use crate::together::SharedMemory;
use crate::weights::LoadedWeights;

pub use find_lr::find_lr;
pub(crate) use go_on::check_weights;
pub(crate) use options::check;
pub use options::{EPOCHS, skip_bad};
pub use prepare::prepare;
pub(crate) use prepare::{check_lazy, plan_run, plan_saved};
pub use run_all::{End, Finished, Observer, run_all};

/// How runs are planned.
#[derive(Clone, Default)]
pub struct Planning<'a> {
    /// For all of them together, where there are several.
    pub budget: Option<u64>,
    /// Exactly the plan of this file, for one run.
    pub plan_file: Option<PathBuf>,
    /// The other processes that train the same runs.
    pub peers: Option<&'a dyn Peers>,
    /// What is left of them.
    pub keeps: Keeps,
}

/// What training leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeps {
    /// A folder, from which a run goes on.
    #[default]
    Folder,
    /// No file: see [`find_lr`].
    Nothing,
}

/// What happens before the first step.
pub enum RunEvent<'a> {
    /// What a run trains on.
    Data { run: &'a RunResources, summary: &'a DataSummary },
    /// The files of a set are not those that the run began with.
    DataChanged { run: &'a RunResources, set: Set },
    /// What planning is at.
    Planning(Progress<'a>),
    /// The plan of a run, before it takes its memory; which may be shared with others.
    Planned {
        run: &'a RunResources,
        planned: &'a Planned,
        is_shared: bool,
        /// Of the other replicas of this process.
        others: &'a [&'a Planned],
    },
    /// What runs on one device take together.
    Shared(&'a SharedMemory),
    /// Weights that a run starts from.
    Weights { run: &'a RunResources, file: &'a Path, loaded: &'a LoadedWeights },
    /// A file is made of all samples, before the first step: see `data.cache`.
    Caching { run: &'a RunResources, file: &'a Path, samples: usize },
    /// Where a run goes on; it may be over.
    Resumed {
        run: &'a RunResources,
        step: u32,
        epoch: u64,
        is_over: bool,
        /// The last step of its history, where those behind it are lost.
        history_ends: Option<u32>,
    },
}

/// A run that is ready to go: at its first step, or at the one where it was left.
pub struct Training {
    pub run: RunResources,
    pub session: Session<AnyExecutor>,
    pub data: Datasets,
    pub options: FitOptions,
    /// The other replicas that this process has of it, by rank.
    pub others: Vec<OtherReplica>,
    pub folder: PathBuf,
    /// The same of the first process, which alone has one.
    pub first_folder: PathBuf,
    /// Its plan in words.
    pub plan_summary: String,
    /// The step at which this process begins.
    pub first_step: u32,
    /// Its memory, with others.
    pub is_shared: bool,
}

/// A replica that helps to train a run, and keeps nothing.
pub struct OtherReplica {
    pub run: RunResources,
    pub session: Session<AnyExecutor>,
    pub data: Datasets,
    pub options: FitOptions,
}

impl Training {
    /// Of the whole run.
    pub fn steps(&self) -> u64 {
        options::length(&self.run.config).steps(options::saturated(self.data.train.len().unwrap_or(0))).into()
    }

    /// Whether this process keeps the run's folder, and tells of it.
    pub fn is_first(&self) -> bool {
        self.run.crew.is_first()
    }
}
