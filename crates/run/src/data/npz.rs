//! Arrays as a model reads them: pictures with their channels last, labels as classes or numbers. What had to be turned is told.

use std::path::Path;

use memfit::ZooModel;
use memfit::data::sources::Arrays;
use memfit::data::{BytePool, OnBad};
use memfit::nn::Loss;
use memfit::nn::zoo::Task;

use super::arrays::{ArrayNames, ChannelAxis, channel_axis};
use super::{DataFacts, DataSurvey, KnownSource, Schema, SeenClasses};
use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::goal::{Goal, goal, value_loss};
use crate::train::skip_bad;

/// Arrays, of which the labels are counted where they are classes.
pub(super) fn open(path: &Path, names: ArrayNames, config: &RunConfig, pool: &BytePool) -> Result<KnownSource> {
    let mut arrays = names.open(path, pool)?;
    let model = config.model.name.as_deref().unwrap_or_default();
    let task = ZooModel::from_name(model)?.task();
    let channels_first = turn_channels(&mut arrays, &names, task, config)?;
    let sample = arrays.row("x").and_then(|row| sample(&row.shape, model));
    let values = values(&mut arrays, task, config, pool)?;
    let counts = task == Task::Classes && values.is_none();
    let counted = if counts { arrays.read_as_classes("y", skip_bad(config), pool)? } else { None };
    if let Some(weight) = &names.weight {
        check_weights(&mut arrays, weight, path, config, pool)?;
    }
    let seen = counted.as_ref().map(|(_, counts)| SeenClasses::of_samples(counts));
    // There may well be fewer than the classes that were said.
    let classes = seen.as_ref().map(|seen| seen.count).filter(|_| config.model.classes.is_none());
    let survey = DataSurvey {
        classes: seen,
        arrays: Some(names.clone()),
        labels: counted.map(|(labels, _)| labels),
        channels_first,
        ..DataSurvey::default()
    };
    let schema = Schema { arrays: Some(names), ..Schema::default() };
    Ok(KnownSource { schema, survey, ..KnownSource::unnamed(arrays, DataFacts { sample, classes, values }) })
}

/// Reads labels as numbers where they are to be predicted, and says how many there are in one; by itself where they look so.
fn values(arrays: &mut Arrays, task: Task, config: &RunConfig, pool: &BytePool) -> Result<Option<usize>> {
    let are_values = task == Task::Classes
        && match goal(config)? {
            Goal::Usual => false,
            Goal::Values => true,
            Goal::AsFound => arrays.are_values("y", pool)?,
        };
    let Some(count) = are_values.then(|| arrays.read_as_values("y")).flatten() else { return Ok(None) };
    if config.data.label.len() > 1 {
        let problem =
            "names several arrays, and the numbers of a label stand side by side in one of shape [samples, numbers]";
        return Err(RunError::of_key("data", "label", problem.into()));
    }
    if skip_bad(config) == OnBad::Fail {
        let counts = (value_loss(config) == Loss::Poisson).then_some("counts");
        arrays.check_values("y", counts, pool)?;
    }
    Ok(Some(count))
}

/// Reads the weights of samples, one number each.
fn check_weights(arrays: &mut Arrays, name: &str, path: &Path, config: &RunConfig, pool: &BytePool) -> Result<()> {
    if arrays.read_as_values("w") != Some(1) {
        return Err(super::bad_path(
            path,
            &format!("the array \"{name}\" has several numbers for a sample, and a weight is one"),
        ));
    }
    if skip_bad(config) == OnBad::Fail {
        arrays.check_values("w", Some("weights"), pool)?;
    }
    Ok(())
}

/// Turns pictures whose channels stand first, and says what they are stored as.
pub(super) fn turn_channels(
    arrays: &mut Arrays,
    names: &ArrayNames,
    task: Task,
    config: &RunConfig,
) -> Result<Option<Vec<usize>>> {
    let shape = arrays.row("x").map(|row| row.shape.to_vec()).unwrap_or_default();
    let reads_rows = config.model.name.as_deref() == Some("mlp") || task == Task::Tokens;
    if reads_rows || channel_axis(&shape) != Some(ChannelAxis::First) {
        return Ok(None);
    }
    if config.model.input.as_ref() == Some(&shape) {
        // A run that began so goes on so.
        return match config.resumed_folder() {
            Some(_) => Ok(None),
            None => Err(RunError::ChannelsFirst { array: names.features.clone(), shape }),
        };
    }
    arrays.turn_channels_last("x");
    let masks = arrays.row("y").and_then(|row| channel_axis(&row.shape));
    if task == Task::Masks && masks == Some(ChannelAxis::First) {
        arrays.turn_channels_last("y");
    }
    Ok(Some(shape))
}

/// What a model reads of samples of this shape: all numbers in a row, or an image. None where they are neither.
fn sample(shape: &[usize], model: &str) -> Option<Vec<usize>> {
    match (model, shape) {
        ("mlp", shape) => Some(vec![shape.iter().product()]),
        ("gpt", _) => None,
        (_, &[height, width]) => Some(vec![height, width, 1]),
        (_, shape) => (channel_axis(shape) == Some(ChannelAxis::Last)).then(|| shape.to_vec()),
    }
}
