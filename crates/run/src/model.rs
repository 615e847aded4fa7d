//! The model of a run, with its options, and which of its parameters are frozen.

use std::collections::HashSet;

use memfit::ir::op::StateClass;
use memfit::nn::zoo::{Setting, Stem, Task};
use memfit::nn::{Mode, Model, ZooModel};
use memfit::transform::scope::matches;

use crate::config::ModelConfig;
use crate::data::DataFacts;
use crate::error::{Result, RunError};

/// The model with its options: what was said, else what the data says.
///
/// Classes of masks are those of pixels, which have one each, where there are several.
pub fn from_config(name: &str, config: &ModelConfig, facts: &DataFacts, are_masks: bool) -> Result<ZooModel> {
    let mut model = ZooModel::from_name(name)?;
    if let Some(stem) = &config.stem {
        model = model.with_stem(if stem == "cifar" { Stem::Cifar } else { Stem::Imagenet })?;
    }
    let sequence = config.sequence.map(|n| vec![n]);
    if let Some(input) = config.input.as_ref().or(sequence.as_ref()).or(facts.sample.as_ref()) {
        model = model.with_input(input)?;
    }
    let of_gpt = [
        ("layers", config.layers),
        ("width", config.width),
        ("heads", config.heads),
        ("vocabulary", config.vocabulary),
    ];
    if model.task() == Task::Tokens {
        if let Some(rate) = config.dropout {
            return Err(RunError::conflict(format!("model.dropout is {rate}, but gpt has none")));
        }
        let settings = [
            config.layers.map(Setting::Layers),
            config.width.map(Setting::Width),
            config.heads.map(Setting::Heads),
            config.vocabulary.or(facts.classes).map(Setting::Vocabulary),
        ];
        for setting in settings.into_iter().flatten() {
            model = model.with(setting)?;
        }
    } else {
        if let Some((key, _)) = of_gpt.iter().find(|(_, given)| given.is_some()) {
            return Err(RunError::conflict(format!("model.{key} is of a gpt; {name} has none")));
        }
        if let Some(rate) = config.dropout {
            model = model.with_dropout(rate)?;
        }
    }
    match config.classes.or(facts.classes.filter(|_| model.task() != Task::Tokens)) {
        Some(classes) if are_masks && classes > 1 => Ok(model.with(Setting::PixelClasses(classes))?),
        Some(classes) => Ok(model.with_classes(classes)?),
        None => Ok(model),
    }
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
