//! What a run is to predict, as far as it says it: classes, or numbers by a loss. Where it says nothing, its labels do.

use memfit::nn::Loss;

use crate::config::{RunConfig, find};
use crate::error::{Result, RunError};

/// What labels are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Classes, or whatever else the model is for by itself.
    Usual,
    /// Numbers to be predicted.
    Values,
    /// What they look like.
    AsFound,
}

/// The task of a run that predicts numbers, as a run file says it.
pub const REGRESSION: &str = "regression";
/// And of one that does not.
pub const CLASSIFICATION: &str = "classification";

/// What a run says, by its task or by keys that only one of them has.
pub fn goal(config: &RunConfig) -> Result<Goal> {
    let asked = asked_for_values(config);
    let only_of_classes = only_of_classes(config);
    match (config.train.task.as_deref(), asked, only_of_classes) {
        (Some(CLASSIFICATION), Some(key), _) => Err(RunError::conflict(format!(
            "{key} is of a regression, and train.task is {CLASSIFICATION}; leave out one of them"
        ))),
        (Some(REGRESSION), _, Some(key)) => Err(RunError::conflict(format!(
            "{key} is of classes, and train.task is {REGRESSION}; leave out one of them"
        ))),
        (None, Some(asked), Some(key)) => {
            Err(RunError::conflict(format!("{key} is of classes, and {asked} of a regression; leave out one of them")))
        }
        (Some(REGRESSION), ..) | (None, Some(_), None) => Ok(Goal::Values),
        (Some(_), ..) | (None, None, Some(_)) => Ok(Goal::Usual),
        // The folder of a run says what its labels are, where they are numbers.
        (None, None, None) if config.resumed_folder().is_some() => Ok(Goal::Usual),
        (None, None, None) => Ok(Goal::AsFound),
    }
}

/// The loss of a run that predicts numbers.
pub fn value_loss(config: &RunConfig) -> Loss {
    config.train.loss.filter(|loss| loss.is_of_values()).unwrap_or(Loss::MeanSquaredError)
}

/// A key that only a regression has.
fn asked_for_values(config: &RunConfig) -> Option<String> {
    let loss = config.train.loss.filter(|loss| loss.is_of_values());
    if let Some(loss) = loss {
        return Some(format!("{} = {loss}", path("train", "loss")));
    }
    let keys = [
        ("data", "label", config.data.label.len() > 1),
        ("data", "standardise_targets", config.data.standardise_targets == Some(true)),
        ("model", "outputs", config.model.outputs.is_some()),
    ];
    named(keys)
}

/// A key that only classes have.
fn only_of_classes(config: &RunConfig) -> Option<String> {
    let loss = config.train.loss.filter(|loss| !loss.is_of_values());
    if let Some(loss) = loss {
        return Some(format!("{} = {loss}", path("train", "loss")));
    }
    let keys = [
        ("model", "classes", config.model.classes.is_some()),
        ("train", "class_weight", config.train.class_weight.is_some()),
        ("train", "label_smoothing", config.train.label_smoothing.is_some_and(|share| share > 0.0)),
        ("data", "mixup", config.data.mixup.is_some()),
    ];
    named(keys)
}

fn named<const N: usize>(keys: [(&str, &str, bool); N]) -> Option<String> {
    keys.into_iter().find(|(_, _, is_said)| *is_said).map(|(section, name, _)| path(section, name))
}

fn path(section: &str, name: &str) -> String {
    find(section, name).map_or_else(String::new, |key| key.path())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_run_says_what_it_predicts_by_its_task_or_by_keys_of_it() {
        let of = |text: &str| goal(&RunConfig::parse(text, Path::new("")).expect("it is right"));
        for (text, expected) in [
            ("", Goal::AsFound),
            ("[train]\ntask = \"regression\"", Goal::Values),
            ("[train]\ntask = \"classification\"", Goal::Usual),
            ("[train]\nloss = \"huber:0.5\"", Goal::Values),
            ("[train]\nloss = \"cross-entropy\"", Goal::Usual),
            ("[data]\nlabel = [\"a\", \"b\"]", Goal::Values),
            ("[data]\nlabel = \"a\"", Goal::AsFound),
            ("[data]\nstandardise_targets = true", Goal::Values),
            ("[data]\nstandardise_targets = false", Goal::AsFound),
            ("[model]\nclasses = 3", Goal::Usual),
            ("[train]\nclass_weight = \"balanced\"", Goal::Usual),
        ] {
            assert_eq!(of(text).ok(), Some(expected), "{text}");
        }
        for (text, words) in [
            ("[train]\ntask = \"classification\"\nloss = \"mse\"", "train.loss = mse is of a regression"),
            ("[train]\ntask = \"regression\"\n[model]\nclasses = 3", "model.classes is of classes"),
            ("[train]\nloss = \"mae\"\nclass_weight = \"balanced\"", "train.class_weight is of classes"),
        ] {
            let problem = of(text).expect_err(text).to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
