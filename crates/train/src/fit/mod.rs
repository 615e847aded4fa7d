//! Training to the end: epochs, evaluation, early stopping, checkpoints. What happens is reported to an observer, which
//! may say stop; nothing is printed.

mod run;
mod steps;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use memfit_data::{BytePool, Dataset, LoadOptions, OnBad, Position, SkippedSamples};
use memfit_exec::Executor;
use memfit_nn::HeadInfo;

use crate::checkpoint::{Evaluation, Progress};
use crate::error::Result;
use crate::metrics::{Metric, Monitor, Scores};
use crate::run_dir::{CheckpointKind, RunDir};
use crate::schedule::{Period, Schedule};
use crate::session::Session;

/// What a run learns from and what it is evaluated on.
#[derive(Clone)]
pub struct Datasets {
    /// Its elements are batches of exactly the plan's size.
    pub train: Dataset,
    /// Its elements are batches of any size. Of several replicas each has the batches that it evaluates, of at most the plan's
    /// micro-batch: replica r of R those of `samples.batch(rows, Remainder::Keep).shard(R, r)`. It may be that one has none.
    pub test: Option<Dataset>,
}

/// How [`fit`] trains: what `compile`, `fit` and the callbacks of Keras are told together.
///
/// | in Keras | here |
/// |---|---|
/// | `epochs=20` | `length: Period::Epochs(20)` |
/// | `LearningRateScheduler`, `CosineDecay` | `schedule` |
/// | `validation_freq=1` | `evaluate: Period::Epochs(1)` |
/// | `ModelCheckpoint(monitor=…)` | `run`, `monitor`, `save` |
/// | `EarlyStopping(patience=3)` | `early_stop: Some(EarlyStop { patience: 3, min_delta: 0.0 })` |
/// | `BackupAndRestore` | `run`, `progress` |
pub struct FitOptions {
    /// The whole run, what came before a resumption included.
    pub length: Period,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// What it is evaluated by: the model's.
    pub heads: Vec<HeadInfo>,
    /// How often the test set is looked at, besides at the end.
    pub evaluate: Period,
    /// What the best checkpoint is best in, and what early stopping watches.
    pub monitor: Monitor,
    /// Whether the run may end before its time.
    pub early_stop: Option<EarlyStop>,
    /// Where checkpoints go; without it none are kept.
    pub run: Option<RunDir>,
    /// How often the last checkpoint is written.
    pub save: SaveEvery,
    /// Where to go on: of a checkpoint, or the beginning.
    pub progress: Progress,
    /// Memory and threads for the data.
    pub feed: Feed,
}

impl FitOptions {
    /// Trains for so long at a constant rate, evaluates after every epoch, follows the loss, and keeps no checkpoints.
    /// Everything about data comes out of the one pool, on a thread of its own.
    pub fn new(heads: Vec<HeadInfo>, length: Period, learning_rate: f32, pool: BytePool) -> FitOptions {
        FitOptions {
            length,
            schedule: Schedule::constant(learning_rate),
            heads,
            evaluate: Period::Epochs(1),
            monitor: Metric::Loss.into(),
            early_stop: None,
            run: None,
            save: SaveEvery::default(),
            progress: Progress::default(),
            feed: Feed { test_pool: pool.clone(), pool, threads: 1, bad: OnBad::Fail },
        }
    }
}

/// Stops when the metric has not become better by more than `min_delta` in `patience` evaluations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStop {
    /// Evaluations without an improvement after which it stops; at least 1.
    pub patience: u32,
    /// What counts as an improvement.
    pub min_delta: f64,
}

/// When the last checkpoint is written, besides at the beginning and at the end. Each of them counts by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaveEvery {
    /// At the end of each epoch.
    pub epoch: bool,
    /// After so many steps.
    pub steps: Option<u32>,
    /// After so long.
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
    /// Threads that make batches ahead.
    pub threads: usize,
    /// What is done about a sample that cannot be read.
    pub bad: OnBad,
}

impl Feed {
    pub(crate) fn loading(&self, pool: &BytePool, seed: u64, start: Position) -> LoadOptions {
        LoadOptions { pool: pool.clone(), threads: self.threads, seed, bad: self.bad, start }
    }
}

/// What is reported to the observer of a run: what the methods of a Keras `Callback` are called for.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A step is over. Times are in seconds: of the step, and of waiting for its batch and for its turn before. On a GPU it is
    /// told when the next step has been started, or before anything else is told, and a step takes what starting it takes and
    /// the wait for the end of the one before.
    Step {
        /// Its number, from 0.
        step: u32,
        /// Its epoch, from 0.
        epoch: u64,
        /// Its loss.
        loss: f32,
        /// Its learning rate.
        lr: f32,
        /// What it took.
        seconds: f64,
        /// The wait for its batch.
        waited: f64,
        /// The wait for its turn on a shared device.
        turn: f64,
        /// Whether it changed nothing, because a gradient overflowed in f16.
        skipped: bool,
    },
    /// The next batch is not there yet: said from time to time, so that a run whose data do not come can be stopped.
    Waiting,
    /// In the course of an evaluation, so that it can be stopped.
    Evaluating {
        /// How many are done.
        batches: u64,
    },
    /// An evaluation is over.
    Evaluated(Evaluation),
    /// The mean of its losses; scores where it was evaluated at its end.
    Epoch {
        /// Its number, from 0.
        epoch: u64,
        /// The mean loss of its steps.
        loss: f64,
        /// Of the test set.
        scores: Option<Scores>,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// The last or the best.
        which: CheckpointKind,
        /// Its file.
        path: PathBuf,
        /// The number of its next step.
        step: u32,
    },
    /// The run is over.
    Stopped(StopReason),
}

/// What an observer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// As soon as possible; on a GPU one step may be on its way. The run is saved as it is, and goes on from there when it is
    /// resumed.
    Stop,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
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
    /// Why it ended.
    pub reason: StopReason,
    /// How many steps there were, those before a resumption included.
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

/// Trains a session: `model.fit` of Keras, with validation, callbacks and checkpoints. With the same session, data and options the states end in the same bits, in however many parts the
/// run is made and on however many threads its data.
///
/// Of several replicas each calls it, on a thread or in a process of its own, with its rows of every batch
/// ([`Dataset::batch_rows`]) and its batches of the test set ([`Dataset::shard`]); the first of them has the folder, and what it says of
/// when to save holds for all. All have the same scores, and stop after the same step. Whoever gets an error has to
/// [`leave`](Session::leave), or drop its session, so that the others come to an end too.
///
/// ```
/// # use memfit_exec::{Executor, TensorView};
/// # use memfit_exec_cpu::CpuExecutor;
/// # use memfit_nn::{Model, Optimizer, zoo::Mlp};
/// # use memfit_plan::{Request, plan};
/// # use memfit_train::{Session, programs};
/// # use memfit_transform::Training;
/// #
/// # let cpu = CpuExecutor::new(1)?;
/// # let model = Mlp::new(4, &[8], 3);
/// # let training = Training::new(Optimizer::adam().update);
/// # let plan = plan(&|rows| programs(&model, &training, 8, rows), cpu.target(), &Request::new(8))?;
/// # let mut session = Session::new(cpu, plan, 1)?;
/// use memfit_data::{BytePool, Dataset, Remainder, Tensors};
/// use memfit_ir::TensorType;
/// use memfit_train::{Datasets, Event, FitOptions, Flow, Metric, Period, StopReason, fit};
///
/// let x: Vec<f32> = (0..64 * 4).map(|i| (i % 7) as f32).collect();
/// let y: Vec<i32> = (0..64).map(|i| i % 3).collect();
/// let samples = Tensors::new().with("x", TensorType::f32([64, 4]), x)?.with("y", TensorType::i32([64]), y)?;
/// let samples = Dataset::from_tensors(samples)?;
/// let data = Datasets {
///     train: samples.clone().shuffle(64).batch(8, Remainder::Drop),
///     test: Some(samples.batch(20, Remainder::Keep)),
/// };
/// let options = FitOptions {
///     monitor: Metric::Accuracy.into(),
///     ..FitOptions::new(model.heads()?, Period::Epochs(2), 1e-2, BytePool::new(1 << 20))
/// };
/// // The observer is the callback: it sees every event, and may stop the run.
/// let mut epochs = 0;
/// let outcome = fit(&mut session, &data, &options, &mut |event| {
///     if let Event::Epoch { .. } = event {
///         epochs += 1;
///     }
///     Flow::Continue
/// })?;
/// assert_eq!((outcome.reason, outcome.steps, epochs), (StopReason::Done, 16, 2));
/// assert_eq!(outcome.evaluation.unwrap().scores.count, 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fit<E: Executor>(
    session: &mut Session<E>,
    data: &Datasets,
    options: &FitOptions,
    observer: &mut dyn FnMut(&Event) -> Flow,
) -> Result<Outcome> {
    if !session.has_others() {
        return run::Fit::new(session, data, options, observer, None)?.run();
    }
    // All of them stop after the same step, whoever is asked to.
    let asked = Cell::new(false);
    let mut listen = |event: &Event| {
        asked.set(asked.get() | (observer(event) == Flow::Stop));
        Flow::Continue
    };
    run::Fit::new(session, data, options, &mut listen, Some(&asked))?.run()
}
