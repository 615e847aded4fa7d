//! Training to the end: passes over the data, evaluation, early stopping, checkpoints. What happens is told to an
//! observer, which may say stop; nothing is printed.

mod run;

use std::path::PathBuf;
use std::time::Duration;

use memfit_data::{BytePool, Dataset, LoadOptions, OnBad, Position, SkippedSamples};
use memfit_exec::Executor;

use crate::checkpoint::{Evaluation, Progress};
use crate::error::Result;
use crate::metrics::{Metric, Scores, Task};
use crate::run_dir::{RunDir, Which};
use crate::schedule::{Period, Schedule};
use crate::session::Session;

/// What a run learns from and what it is judged by.
#[derive(Clone)]
pub struct Datasets {
    /// Its elements are batches of exactly the plan's size.
    pub train: Dataset,
    /// Its elements are batches of any size.
    pub test: Option<Dataset>,
}

pub struct FitOptions {
    /// The whole run, what came before a resumption included.
    pub length: Period,
    pub schedule: Schedule,
    pub task: Task,
    /// How often the test set is looked at, besides at the end.
    pub evaluate: Period,
    /// What the best checkpoint is best in, and what early stopping watches.
    pub metric: Metric,
    pub early_stop: Option<EarlyStop>,
    /// Where checkpoints go; without it none are kept.
    pub run: Option<RunDir>,
    pub save: SaveEvery,
    /// Where to go on: of a checkpoint, or the beginning.
    pub progress: Progress,
    pub feed: Feed,
}

/// Stops when the metric has not become better by more than `min_delta` in `patience` evaluations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStop {
    pub patience: u32,
    pub min_delta: f64,
}

/// When the last checkpoint is written, besides at the beginning and at the end. Each of them counts by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaveEvery {
    pub epoch: bool,
    pub steps: Option<u32>,
    pub time: Option<Duration>,
}

impl Default for SaveEvery {
    fn default() -> Self {
        SaveEvery { epoch: true, steps: None, time: None }
    }
}

/// How data is made.
#[derive(Clone, Debug)]
pub struct Feed {
    /// For training.
    pub pool: BytePool,
    /// For evaluation, its logits included. It may be the same: the two take turns, and only what a cache keeps in memory
    /// stays when the other's turn comes.
    pub test_pool: BytePool,
    pub threads: usize,
    pub bad: OnBad,
}

impl Feed {
    fn loading(&self, pool: &BytePool, seed: u64, start: Position) -> LoadOptions {
        LoadOptions { pool: pool.clone(), threads: self.threads, seed, bad: self.bad, start }
    }
}

/// What the observer is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A step is over. Times are in seconds: of the step, and of waiting for its batch and for its turn before.
    Step {
        step: u32,
        epoch: u64,
        loss: f32,
        lr: f32,
        seconds: f64,
        waited: f64,
        turn: f64,
        skipped: bool,
    },
    /// In the course of an evaluation, so that it can be stopped.
    Evaluating {
        batches: u64,
    },
    Evaluated(Evaluation),
    /// The mean of its losses; scores where it was evaluated at its end.
    Epoch {
        epoch: u64,
        loss: f64,
        scores: Option<Scores>,
    },
    Checkpoint {
        which: Which,
        path: PathBuf,
        step: u32,
    },
    Stopped(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// As soon as possible. The run is saved as it is, and goes on from there when it is resumed.
    Stop,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is as long as it should be.
    Done,
    /// Early stopping lost its patience.
    NoBetter,
    /// The observer said so.
    Interrupted,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub why: Why,
    pub steps: u32,
    /// The last one.
    pub evaluation: Option<Evaluation>,
    /// Of the watched metric.
    pub best: Option<f64>,
    /// At which step the last checkpoint was written; none where nothing was.
    pub saved: Option<u32>,
    /// Bad samples of the training set that were left out, where that was asked for.
    pub left_out: SkippedSamples,
    /// The same of the test set.
    pub test_left_out: SkippedSamples,
}

/// Trains a session. With the same session, data and options the states end in the same bits, in however many parts the
/// run is made and on however many threads its data.
pub fn fit<E: Executor>(
    session: &mut Session<E>,
    data: &Datasets,
    options: &FitOptions,
    observer: &mut dyn FnMut(&Event) -> Flow,
) -> Result<Outcome> {
    run::Fit::new(session, data, options, observer)?.run()
}
