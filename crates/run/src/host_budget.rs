//! What host budget would be enough where the one that a run has is not, and what would still be enough where an arena needs
//! the rest: found by trying, so that what is proposed works. It never goes beyond what the host has free.

use memfit::data::{BadSample, DataError, Lease, LoadOptions, Loader, SampleProblem};
use memfit::nn::zoo::Task;
use memfit::train::TrainError;

use crate::config::RunConfig;
use crate::data;
use crate::device::Placement;
use crate::error::{Result, RunError};
use crate::replicas::Crew;
use crate::resources::{DIGITS, Identity, Pool, Purpose, RunResources};
use crate::train::skip_bad;

const MIB: u64 = 1 << 20;

/// The least that is tried, and the steps in which more is.
const GRAIN: u64 = 256 << 10;

/// The error, with a budget that is enough where the error is that there is too little, and one was found.
/// It is for all replicas of the process, of whom there are so many.
pub fn advise(error: RunError, config: &RunConfig, purpose: Purpose, place: &Placement, here: usize) -> RunError {
    let attempt = Attempt { config, purpose, place, grain: MIB, most: place.host.free() };
    // More than what was missed: several lists may have to grow.
    match needed(&error).and_then(|needed| attempt.first_enough(needed.saturating_add(needed / 2))) {
        Some(enough) => RunError::HostBudget { source: Box::new(error), enough: enough.saturating_mul(here as u64) },
        None => error,
    }
}

/// The smallest budget with which the pipeline of a run works; its own where none is found.
pub(crate) fn least(run: &RunResources, purpose: Purpose) -> u64 {
    if run.data.is_none() {
        return usual(run);
    }
    let place = &run.placement();
    let attempt = Attempt { config: &run.config, purpose, place, grain: GRAIN, most: place.host.free() };
    attempt.first_enough(GRAIN).unwrap_or(run.pool.limit())
}

/// Enough for most pipelines, where no data are open that could be tried: some batches, and what it takes to read a file.
fn usual(run: &RunResources) -> u64 {
    let elements: usize = run.model.input().map_or(0, |shape| shape.iter().product());
    let batch = (elements as u64).saturating_mul(4).saturating_mul(run.request.batch as u64);
    batch.saturating_mul(4).saturating_add(if run.name == DIGITS { GRAIN } else { MIB })
}

/// Has the pipelines of runs on one device leave room for an arena there, as far as they can; on a device of its own none stands
/// in its way.
pub(crate) fn give_way_to_arena(runs: &[&RunResources], arena: u64) {
    if runs.first().is_some_and(|run| run.is_on_host()) {
        give_way(runs, arena);
    }
}

/// Has the pipelines of runs on one host leave room for so many bytes there, as far as they can.
pub(crate) fn give_way(runs: &[&RunResources], bytes: u64) {
    if let Some(run) = runs.first() {
        give_up(runs, bytes.saturating_sub(run.host.free()));
    }
}

/// Has pipelines become smaller by so many bytes together, as far as they can.
pub(crate) fn give_up(runs: &[&RunResources], missing: u64) {
    if missing == 0 {
        return;
    }
    let spare: Vec<u64> = runs.iter().map(|run| run.spare_in_pool()).collect();
    let sum: u64 = spare.iter().sum();
    let missing = missing.min(sum);
    for (run, spare) in runs.iter().zip(spare) {
        let share = (u128::from(spare) * u128::from(missing)).div_ceil(u128::from(sum.max(1)));
        run.shrink_pool(u64::try_from(share).unwrap_or(spare));
    }
}

/// What was missed, of a pool that is too small.
fn needed(error: &RunError) -> Option<u64> {
    match data_error(error)? {
        DataError::PoolTooSmall { limit, needed, .. } => Some(*limit.max(needed)),
        DataError::Bad(bad) | DataError::NothingGood { first: bad, .. } | DataError::BadLane { first: bad, .. } => {
            needed_for(bad)
        }
        DataError::TooManyBad { last, .. } => needed_for(last),
        _ => None,
    }
}

/// What was missed, of a sample that is only bad since the pool is too small for it.
fn needed_for(bad: &BadSample) -> Option<u64> {
    match bad.problem {
        SampleProblem::ImageTooLarge { needed, .. } => Some(needed),
        SampleProblem::FileTooLarge { bytes, .. } => Some(bytes),
        _ => None,
    }
}

fn data_error(error: &RunError) -> Option<&DataError> {
    let mut error = match error {
        RunError::Data(error) => return Some(error),
        RunError::Train(error) => error,
        _ => return None,
    };
    while let TrainError::Test { source, .. } = error {
        error = source;
    }
    if let TrainError::Data(error) = error { Some(error) } else { None }
}

/// Tries of a run's data with other budgets.
struct Attempt<'a> {
    config: &'a RunConfig,
    purpose: Purpose,
    place: &'a Placement,
    /// Budgets are multiples of this, ...
    grain: u64,
    /// ... and no more than this.
    most: u64,
}

impl Attempt<'_> {
    /// The first of larger and larger budgets with which the data open and the first batches come.
    fn first_enough(&self, from: u64) -> Option<u64> {
        let mut budget = from;
        loop {
            budget = budget.checked_next_multiple_of(self.grain)?;
            if budget > self.most {
                return None;
            }
            match first_batches(self.config, self.purpose, self.place, budget) {
                Ok(()) => return Some(budget),
                Err(error) => budget = budget.max(needed(&error)?).checked_add(budget / 2)?,
            }
        }
    }
}

/// Opens the data with this budget, and makes a batch for training, one for evaluation, and room for what the model says of it.
fn first_batches(config: &RunConfig, purpose: Purpose, place: &Placement, budget: u64) -> Result<()> {
    let pool = Pool::of(budget, &place.host, "an attempt")?;
    let (label, crew) = ("an attempt".into(), Crew::ALONE);
    let identity = Identity { label, is_one_of_several: false, crew };
    let run = RunResources::new(config.clone(), purpose, place.clone(), pool, None, identity)?;
    let Some(sources) = &run.data else { return Ok(()) };
    let sets = data::datasets(sources, &run, run.request.batch)?;
    let options =
        || LoadOptions { threads: run.threads, bad: skip_bad(&run.config), ..LoadOptions::new(run.pool.clone()) };
    // As in a training: first room for answers, and then the two sets take turns.
    let _answers = if sets.test.is_some() { Some(room_for_answers(&run)?) } else { None };
    let mut train = Loader::new(&sets.train, options())?;
    let batch = train.next()?;
    check_skipped(&train)?;
    drop((batch, train));
    if let Some(test) = &sets.test {
        let mut test = Loader::new(test, options())?;
        test.next()?;
        check_skipped(&test)?;
    }
    Ok(())
}

/// For what the model says of a batch.
fn room_for_answers(run: &RunResources) -> Result<Lease> {
    let answers = run.request.batch.saturating_mul(answer_bytes(run)?);
    let taken = run.pool.reserve(answers as u64).map_err(|e| DataError::PoolTooSmall {
        limit: run.pool.limit(),
        needed: e.used.saturating_add(e.wanted),
        what: "evaluation".into(),
    });
    Ok(taken?)
}

/// A sample that would be left out for the budget alone is an error.
fn check_skipped(loader: &Loader) -> Result<()> {
    match loader.skipped().first.iter().find(|bad| needed_for(bad).is_some()) {
        Some(bad) => Err(DataError::Bad(bad.clone()).into()),
        None => Ok(()),
    }
}

/// What the model says of one sample.
fn answer_bytes(run: &RunResources) -> Result<usize> {
    let input = run.model.input()?;
    let places = match run.model.task() {
        Task::Classes | Task::Values => 1,
        Task::Tokens => input.iter().product(),
        Task::Masks | Task::PixelClasses => input.iter().take(2).product(),
    };
    Ok(run.model.classes().saturating_mul(places).saturating_mul(size_of::<f32>()))
}
