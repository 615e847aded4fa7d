//! What host budget would be enough where the one that a run has is not: found by trying, so that what is proposed works.
//! It never goes beyond what the device has free.

use memfit::data::{DataError, LoadOptions, Loader};
use memfit::exec::Device;
use memfit::nn::zoo::Task;
use memfit::train::TrainError;

use crate::config::RunConfig;
use crate::data;
use crate::error::{Result, RunError};
use crate::resources::{Pool, Purpose, RunResources};
use crate::train::skip_bad;

const MIB: u64 = 1 << 20;

/// The error, with a budget that is enough where the error is that there is too little, and one was found.
pub fn advise(error: RunError, config: &RunConfig, purpose: Purpose, device: &Device) -> RunError {
    match needed(&error).and_then(|needed| enough(needed, config, purpose, device)) {
        Some(enough) => RunError::HostBudget { source: Box::new(error), enough },
        None => error,
    }
}

/// What was missed, of a pool that is too small.
fn needed(error: &RunError) -> Option<u64> {
    match error {
        RunError::Data(DataError::PoolTooSmall { limit, needed, .. }) => Some(*limit.max(needed)),
        RunError::Train(error) => needed_in_training(error),
        _ => None,
    }
}

fn needed_in_training(error: &TrainError) -> Option<u64> {
    match error {
        TrainError::Data(DataError::PoolTooSmall { limit, needed, .. }) => Some(*limit.max(needed)),
        TrainError::Test { source, .. } => needed_in_training(source),
        _ => None,
    }
}

/// The first of larger and larger budgets with which the data open and the first batches come.
fn enough(needed: u64, config: &RunConfig, purpose: Purpose, device: &Device) -> Option<u64> {
    let mut budget = needed;
    loop {
        // More than what was missed: several lists may have to grow.
        budget = budget.checked_add(budget / 2)?.checked_next_multiple_of(MIB)?;
        if budget > device.free() {
            return None;
        }
        match first_batches(config, purpose, device, budget) {
            Ok(()) => return Some(budget),
            Err(error) => budget = budget.max(self::needed(&error)?),
        }
    }
}

/// Opens the data with this budget, and makes a batch for training, one for evaluation, and room for what the model says of it.
fn first_batches(config: &RunConfig, purpose: Purpose, device: &Device, budget: u64) -> Result<()> {
    let pool = Pool::of(budget, device, "an attempt")?;
    let run = RunResources::new(config.clone(), purpose, device.clone(), pool, None, "an attempt".into(), false)?;
    let Some(sources) = &run.data else { return Ok(()) };
    let sets = data::datasets(sources, &run, run.request.batch)?;
    let options =
        || LoadOptions { threads: run.threads, bad: skip_bad(&run.config), ..LoadOptions::new(run.pool.clone()) };
    let mut train = Loader::new(&sets.train, options())?;
    let _batch = train.next()?;
    if let Some(test) = &sets.test {
        let answers = run.request.batch.saturating_mul(answer_bytes(&run)?);
        let _answers = run.pool.reserve(answers as u64).map_err(|e| DataError::PoolTooSmall {
            limit: run.pool.limit(),
            needed: e.used.saturating_add(e.wanted),
            what: "evaluation".into(),
        })?;
        Loader::new(test, options())?.next()?;
    }
    Ok(())
}

/// What the model says of one sample.
fn answer_bytes(run: &RunResources) -> Result<usize> {
    let input = run.model.input()?;
    let places = match run.model.task() {
        Task::Classes => 1,
        Task::Tokens => input.iter().product(),
        Task::Masks | Task::PixelClasses => input.iter().take(2).product(),
    };
    Ok(run.model.classes().saturating_mul(places).saturating_mul(size_of::<f32>()))
}
