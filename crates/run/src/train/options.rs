//! What a configuration says about training: how long, how fast, evaluated by what; and what is refused before memory is taken.

use memfit::data::OnBad;
use memfit::nn::zoo::Task;
use memfit::train::run_dir::RunDir;
use memfit::train::{Decay, EarlyStop, Feed, FitOptions, Metric, Period, Progress, SaveEvery, Schedule};

use crate::config::RunConfig;
use crate::data::{self, DataSources, TestFrom};
use crate::error::{Result, RunError};
use crate::resources::RunResources;

/// Epochs where nothing is said.
pub const EPOCHS: usize = 20;

pub fn fit_options(run: &RunResources, run_dir: Option<RunDir>, progress: Progress) -> Result<FitOptions> {
    let t = &run.config.train;
    Ok(FitOptions {
        length: length(&run.config),
        schedule: schedule(run),
        heads: run.heads()?,
        evaluate: Period::Epochs(1),
        monitor: metric(run)?.into(),
        early_stop: t.patience.map(|n| EarlyStop { patience: saturated(n), min_delta: 0.0 }),
        run: run_dir.map(|run_dir| run_dir.keeping(t.keep.unwrap_or(0))),
        save: SaveEvery { epoch: true, steps: t.save_every.map(saturated), time: None },
        progress,
        feed: Feed {
            pool: run.pool.clone(),
            test_pool: run.pool.clone(),
            threads: run.threads,
            bad: skip_bad(&run.config),
        },
    })
}

/// More than anybody counts to is as good as the most.
pub fn saturated(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What is done about samples that cannot be read.
pub fn skip_bad(config: &RunConfig) -> OnBad {
    if config.data.skip_bad == Some(true) { OnBad::Skip } else { OnBad::Fail }
}

/// What would only come out after the memory is taken, or after the training.
pub fn check(run: &RunResources, sources: &DataSources) -> Result<()> {
    let (batch, samples) = (run.request.batch, sources.train.len());
    if batch > samples {
        return Err(RunError::BatchTooLarge { batch, samples });
    }
    let is_classifier = run.model.task() == Task::Classes;
    if let Some(data) = sources.facts.classes.filter(|n| is_classifier && *n > run.model.classes()) {
        return Err(RunError::TooManyClasses { data, model: run.model.classes() });
    }
    if run.config.data.skip_bad != Some(true) && is_classifier {
        // A number that is beyond the classes that were said shows now, with its place.
        if sources.survey.classes.as_ref().is_some_and(|seen| seen.count > run.model.classes()) {
            sources.train.check_classes(run.model.classes(), &run.pool)?;
        }
        check_test_labels(run, sources)?;
    }
    // It describes, and does nothing yet.
    data::datasets(sources, run, run.request.batch)?;
    metric(run).map(|_| ())
}

/// A class that the model does not have would only show when the first epoch is over.
fn check_test_labels(run: &RunResources, sources: &DataSources) -> Result<()> {
    // What was held out of the training set was looked at with it.
    let counted = matches!(sources.test_from, TestFrom::HeldOut { .. }) && sources.facts.classes.is_some();
    match sources.test.as_ref().filter(|_| !counted) {
        Some(test) => Ok(test.check_classes(run.model.classes(), &run.pool)?),
        None => Ok(()),
    }
}

pub fn length(config: &RunConfig) -> Period {
    match (config.train.steps, config.train.epochs) {
        (Some(steps), _) => Period::Steps(saturated(steps)),
        (None, epochs) => Period::Epochs(saturated(epochs.unwrap_or(EPOCHS))),
    }
}

fn schedule(run: &RunResources) -> Schedule {
    let t = &run.config.train;
    let peak = run.learning_rate;
    let decay = match t.schedule.as_deref() {
        Some("cosine") => Decay::Cosine { floor: peak * t.decay.unwrap_or(0.0) },
        Some("step") => {
            let every = Period::Epochs(saturated(t.decay_every.unwrap_or(10)));
            Decay::Step { every, factor: t.decay.unwrap_or(0.1) }
        }
        _ => Decay::Constant,
    };
    Schedule { peak, warm_up: Period::Steps(saturated(t.warm_up.unwrap_or(0))), decay }
}

fn metric(run: &RunResources) -> Result<Metric> {
    let usual = match run.model.task() {
        Task::Classes => Metric::Accuracy,
        Task::Tokens => Metric::Loss,
        Task::Masks | Task::PixelClasses => Metric::MeanIou,
        Task::Values => Metric::Loss,
    };
    let Some(name) = &run.config.train.monitor else { return Ok(usual) };
    Metric::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Metric::ALL.iter().map(|m| m.name()).collect();
        RunError::of_key("train", "monitor", format!("\"{name}\" is not known; there are {}", known.join(", ")))
    })
}
