//! The model of a run, with its options, and which of its parameters are frozen.

use std::collections::HashSet;

use memfit::ir::op::StateClass;
use memfit::nn::zoo::{Setting, Stem, Task};
use memfit::nn::{Mode, Model, ZooModel};
use memfit::transform::scope::matches;

use crate::config::{ModelConfig, find};
use crate::data::DataFacts;
use crate::error::{Result, RunError};

/// The model with its options: what was said, else what the data says.
///
/// Classes of masks are those of pixels, which have one each, where there are several.
pub fn from_config(name: &str, config: &ModelConfig, facts: &DataFacts, are_masks: bool) -> Result<ZooModel> {
    let mut model = ZooModel::from_name(name)?;
    if model.task() != Task::Tokens && config.sequence.is_some() {
        return Err(no_key(&model, "sequence"));
    }
    let sequence = config.sequence.map(|n| vec![n]);
    if let Some(input) = config.input.as_ref().or(sequence.as_ref()).or(facts.sample.as_ref()) {
        model = model.with_input(input)?;
    }
    for setting in settings(&model, config, facts)? {
        let key = setting.key();
        model = model.clone().with(setting).map_err(|error| of_key(&model, key, error))?;
    }
    match config.classes.or(facts.classes.filter(|_| model.task() != Task::Tokens)) {
        Some(classes) if are_masks && classes > 1 => Ok(model.with(Setting::PixelClasses(classes))?),
        Some(classes) => Ok(model.with_classes(classes)?),
        None => Ok(model),
    }
}

/// What was said of the model besides its input and classes, each of which it has or refuses.
fn settings(model: &ZooModel, config: &ModelConfig, facts: &DataFacts) -> Result<Vec<Setting>> {
    let is_gpt = model.task() == Task::Tokens;
    let stem = |stem: &String| Setting::Stem(if stem == "cifar" { Stem::Cifar } else { Stem::Imagenet });
    let width = match config.width {
        Some(width) if is_gpt && width.fract() != 0.0 => {
            let problem = format!("is {width}, but of a gpt it is a whole number of channels, such as 384");
            return Err(RunError::of_key("model", "width", problem));
        }
        Some(width) if is_gpt => Some(Setting::Width(width as usize)),
        width => width.map(Setting::Scale),
    };
    let settings = [
        config.hidden.clone().map(Setting::Hidden),
        config.activation.map(Setting::Activation),
        config.dropout.map(Setting::Dropout),
        width,
        config.kernel.map(Setting::Kernel),
        config.stem.as_ref().map(stem),
        config.layers.map(Setting::Layers),
        config.heads.map(Setting::Heads),
        config.vocabulary.or(facts.classes.filter(|_| is_gpt)).map(Setting::Vocabulary),
    ];
    Ok(settings.into_iter().flatten().collect())
}

/// What a model says to a key that it does not have, or to its value.
fn of_key(model: &ZooModel, key: &'static str, error: memfit::nn::Error) -> RunError {
    match error {
        memfit::nn::Error::NoOption { .. } => no_key(model, key),
        memfit::nn::Error::Option { model, problem } if model == key => RunError::of_key("model", key, problem),
        other => other.into(),
    }
}

fn no_key(model: &ZooModel, key: &'static str) -> RunError {
    let known = model.choices().iter().filter_map(|choice| find("model", choice.name)).collect();
    RunError::NoModelKey { model: model.name().to_string(), key, known }
}

/// The names of the parameters that the patterns mean.
pub fn frozen(model: &ZooModel, config: &ModelConfig) -> Result<HashSet<String>> {
    if config.freeze.is_empty() && config.trainable.is_empty() {
        return Ok(HashSet::new());
    }
    if !config.freeze.is_empty() && !config.trainable.is_empty() {
        return Err(RunError::conflict("give model.freeze or model.trainable, not both"));
    }
    let graph = model.build(1, Mode::Train)?.graph;
    let names: Vec<&String> =
        graph.states().filter(|(s, _)| s.class == StateClass::Param).map(|(s, _)| &s.name).collect();
    let patterns = if config.freeze.is_empty() { &config.trainable } else { &config.freeze };
    if let Some(idle) = patterns.iter().find(|p| !names.iter().any(|n| matches(p, n))) {
        let mut layers: Vec<&str> = names.iter().filter_map(|n| n.split('/').next()).collect();
        layers.dedup();
        return Err(RunError::conflict(format!(
            "no parameter is meant by \"{idle}\"; the layers are {}",
            layers.join(", ")
        )));
    }
    let meant = |n: &str| patterns.iter().any(|p| matches(p, n));
    let frozen: HashSet<String> =
        names.iter().filter(|n| meant(n) != config.freeze.is_empty()).map(|n| n.to_string()).collect();
    if frozen.len() == names.len() {
        return Err(RunError::conflict("every parameter is frozen; leave something to train"));
    }
    Ok(frozen)
}
