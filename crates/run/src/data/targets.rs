//! Numbers that are to be predicted: their mean and deviation in the training set, by which they are standardised, and the
//! weights that samples have by their classes.

use memfit::data::{BytePool, DataError, OnBad, Source};
use memfit::nn::error::nearest;
use memfit::nn::{Loss, Unit};

use super::{Kind, SeenClasses};
use crate::config::{ClassWeights, RunConfig};
use crate::error::{Result, RunError};
use crate::goal::{Goal, goal};

/// Refuses what only some data and losses have.
pub(super) fn check_goal(kind: Kind, config: &RunConfig) -> Result<()> {
    let goal = goal(config)?;
    let reads_values = matches!(kind, Kind::Csv | Kind::Npz);
    if goal == Goal::Values && !reads_values {
        return Err(RunError::conflict(format!(
            "a regression is of csv and npz, and these data are {}; leave out what asks for it",
            kind.name()
        )));
    }
    let loss = config.train.loss.filter(|_| matches!(kind, Kind::Masks));
    if let Some(loss) = loss {
        return Err(RunError::conflict(format!(
            "train.loss is {loss}, and masks have a loss of their own; leave it out"
        )));
    }
    if config.train.loss == Some(Loss::Poisson) && config.data.standardise_targets == Some(true) {
        return Err(RunError::conflict(
            "data.standardise_targets would make counts less than 0, which train.loss = poisson does not know; leave out one \
             of them",
        ));
    }
    Ok(())
}

/// Mean and deviation of each target, by one pass over the training part: what is held out says nothing here. A target that is
/// the same everywhere is only moved to 0.
pub(super) fn units(train: &dyn Source, targets: usize, bad: OnBad, pool: &BytePool) -> Result<Vec<Unit>> {
    let (mut units, mut rows) = (vec![Unit { mean: 0.0, std: 0.0 }; targets], 0.0);
    for row in 0..train.len() {
        let example = match train.read_row(row, pool) {
            Ok(example) => example,
            Err(DataError::Bad(_)) if bad == OnBad::Skip => continue,
            Err(DataError::NoRoom(missed)) => {
                let needed = missed.used.saturating_add(missed.wanted);
                let what = "a sample, while the mean of its targets is taken,".into();
                return Err(DataError::PoolTooSmall { limit: pool.limit(), needed, what }.into());
            }
            Err(error) => return Err(error.into()),
        };
        rows += 1.0;
        for (unit, &target) in units.iter_mut().zip(example.get("y")?.f32s()) {
            // As Welford has it: the spread stands where the deviation will.
            let before = f64::from(target) - unit.mean;
            unit.mean += before / rows;
            unit.std += before * (f64::from(target) - unit.mean);
        }
    }
    for unit in &mut units {
        let deviation = (unit.std / f64::max(rows, 1.0)).sqrt();
        unit.std = if deviation > 0.0 { deviation } else { 1.0 };
    }
    Ok(units)
}

/// The weight of each class.
pub(crate) fn class_weights(
    said: &ClassWeights,
    classes: usize,
    names: &[String],
    seen: Option<&SeenClasses>,
) -> Result<Vec<f32>> {
    match said {
        ClassWeights::Balanced => {
            let rows = seen.and_then(|seen| seen.rows.as_deref()).ok_or_else(|| {
                let problem = "is balanced, and the classes of these data are not counted; give each its weight, such as \
                               { 0 = 1.0, 1 = 2.5 }";
                RunError::of_key("train", "class_weight", problem.into())
            })?;
            Ok(balanced(rows, classes))
        }
        ClassWeights::Of(weights) => {
            let mut all = vec![1.0; classes];
            for (class, weight) in weights {
                all[class_number(class, classes, names)?] = *weight;
            }
            Ok(all)
        }
    }
}

/// Samples ÷ (classes · samples of the class), where classes are those that there are.
fn balanced(rows: &[u64], classes: usize) -> Vec<f32> {
    let (sum, there) = (rows.iter().sum::<u64>() as f64, rows.iter().filter(|n| **n > 0).count() as f64);
    let weight = |rows: u64| if rows == 0 { 1.0 } else { (sum / (there * rows as f64)) as f32 };
    (0..classes).map(|class| weight(rows.get(class).copied().unwrap_or(0))).collect()
}

/// By its name, else by its number.
fn class_number(class: &str, classes: usize, names: &[String]) -> Result<usize> {
    let by_number = || class.parse::<usize>().ok().filter(|number| *number < classes);
    let found = names.iter().position(|name| name == class).or_else(by_number);
    found.ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let meant = nearest(&known, class).map_or(String::new(), |name| format!(" (did you mean \"{name}\"?)"));
        let there = match names {
            [] => format!("classes are 0 to {}", classes.saturating_sub(1)),
            names => format!("classes are {}", crate::text::first_few(names)),
        };
        RunError::of_key(
            "train",
            "class_weight",
            format!("has a weight for \"{class}\", which is no class{meant}; {there}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As sklearn.utils.class_weight.compute_class_weight has them.
    #[test]
    fn balanced_weights_make_classes_weigh_the_same() {
        assert_eq!(balanced(&[1, 3], 2), [2.0, 2.0 / 3.0]);
        assert_eq!(balanced(&[4, 0, 4], 4), [1.0; 4], "classes that are not there weigh nothing anyway");
    }

    #[test]
    fn a_class_is_named_or_numbered_or_refused() {
        let names = ["cat".to_string(), "dog".to_string()];
        let of = |class: &str, names: &[String]| {
            let said = ClassWeights::Of(vec![(class.into(), 2.5)]);
            class_weights(&said, 2, names, None).map_err(|e| e.to_string())
        };
        assert_eq!(of("dog", &names), Ok(vec![1.0, 2.5]));
        assert_eq!(of("0", &[]), Ok(vec![2.5, 1.0]));
        let refused = of("dgo", &names).expect_err("there is none");
        assert!(
            refused.contains("\"dgo\", which is no class (did you mean \"dog\"?); classes are cat, dog"),
            "{refused}"
        );
        assert!(of("2", &[]).expect_err("there is none").contains("classes are 0 to 1"));
        assert!(class_weights(&ClassWeights::Balanced, 2, &names, None).is_err());
    }
}
