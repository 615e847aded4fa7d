//! How far predicted numbers are from the true ones: errors of a row, and the scores that follow from those of all rows.

use memfit_nn::{Loss, Unit};

use crate::row_sums::Fold;

/// Outputs with more numbers than this are no targets that have scores of their own.
const MOST_TARGETS: usize = 256;

/// What is known of numbers that a head predicts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueErrors {
    loss: Loss,
    /// Of each element of a row; none where labels are as the model gives them.
    units: Vec<Unit>,
    /// Those with scores of their own: none of pictures and the like.
    targets: usize,
}

/// Numbers of a row: its loss, its absolute error, and three for each target.
const OF_ROW: usize = 2;
const OF_TARGET: usize = 3;

impl ValueErrors {
    /// Of rows of so many elements, of which the last axis of the output has `width`.
    pub fn new(loss: Loss, units: Vec<Unit>, elements: usize, width: usize) -> ValueErrors {
        let are_targets = elements == width && elements <= MOST_TARGETS;
        ValueErrors { loss, units, targets: if are_targets { elements } else { 0 } }
    }

    pub fn has_targets(&self) -> bool {
        self.targets > 0
    }

    /// Of the numbers of a row.
    pub fn folds(&self) -> Vec<Fold> {
        let of_target = [Fold::Sum, Fold::Mean, Fold::Spread];
        [Fold::Sum; OF_ROW].into_iter().chain(std::iter::repeat_n(of_target, self.targets).flatten()).collect()
    }

    /// The numbers of a row: what the model gives for it, and its labels in their own unit.
    pub fn add(&self, outputs: &[f32], labels: &[f32], numbers: &mut [f64]) {
        numbers.fill(0.0);
        for (i, (&output, &label)) in outputs.iter().zip(labels).enumerate() {
            let (output, label) = (f64::from(output), f64::from(label));
            let unit = self.units.get(i);
            numbers[0] += loss(self.loss, output, unit.map_or(label, |unit| unit.standardised(label)));
            let predicted = self.loss.prediction(output);
            let error = unit.map_or(predicted, |unit| unit.original(predicted)) - label;
            numbers[1] += error.abs();
            if i < self.targets {
                numbers[OF_ROW + OF_TARGET * i] = error * error;
                numbers[OF_ROW + OF_TARGET * i + 1] = label;
            }
        }
    }

    fn of_targets<'a>(&self, sums: &'a [f64]) -> impl Iterator<Item = &'a [f64; OF_TARGET]> {
        sums[OF_ROW..][..OF_TARGET * self.targets].as_chunks::<OF_TARGET>().0.iter()
    }

    /// The root of the mean squared error, averaged over the targets.
    pub fn root_mean_squared_error(&self, sums: &[f64], rows: f64) -> Option<f64> {
        let sum: f64 = self.of_targets(sums).map(|[squared, ..]| (squared / rows).sqrt()).sum();
        self.has_targets().then(|| sum / self.targets as f64)
    }

    /// R², the share of the spread of a target that is predicted, averaged over the targets. Of a target that is the same
    /// everywhere 1 where it is met, and 0 elsewhere; none of a single row.
    pub fn r2(&self, sums: &[f64], rows: f64) -> Option<f64> {
        let of_target = |[squared, _, spread]: &[f64; OF_TARGET]| match (*spread == 0.0, *squared == 0.0) {
            (true, true) => 1.0,
            (true, false) => 0.0,
            (false, _) => 1.0 - squared / spread,
        };
        let sum: f64 = self.of_targets(sums).map(of_target).sum();
        (self.has_targets() && rows > 1.0).then(|| sum / self.targets as f64)
    }
}

/// The loss of one number, as the model's graph has it.
fn loss(loss: Loss, output: f64, label: f64) -> f64 {
    let difference = output - label;
    let distance = difference.abs();
    match loss {
        Loss::MeanAbsoluteError => distance,
        Loss::Huber { delta } => {
            let q = distance.min(f64::from(delta));
            q * (distance - q / 2.0)
        }
        Loss::LogCosh => distance + (-2.0 * distance).exp().ln_1p() - std::f64::consts::LN_2,
        Loss::Poisson => output.exp() - label * output,
        _ => difference * difference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_sums::RowSums;

    /// The sums of some rows of so many targets.
    fn sums(errors: &ValueErrors, targets: usize, outputs: &[f32], labels: &[f32]) -> RowSums {
        let mut sums = RowSums::new(errors.folds());
        for (outputs, labels) in outputs.chunks(targets).zip(labels.chunks(targets)) {
            let mut numbers = vec![f64::NAN; errors.folds().len()];
            errors.add(outputs, labels, &mut numbers);
            sums.add(&numbers);
        }
        sums
    }

    /// The example of sklearn.metrics.r2_score with two targets.
    #[test]
    fn scores_of_several_targets_are_averaged() {
        let errors = ValueErrors::new(Loss::MeanSquaredError, Vec::new(), 2, 2);
        let sums = sums(&errors, 2, &[0.0, 2.0, -1.0, 2.0, 8.0, -5.0], &[0.5, 1.0, -1.0, 1.0, 7.0, -6.0]);
        let r2 = errors.r2(&sums.numbers, 3.0).expect("there are targets");
        assert!((r2 - 0.936_800_526_662_277_8).abs() < 1e-15, "{r2}");
        let rmse = errors.root_mean_squared_error(&sums.numbers, 3.0).expect("there are targets");
        assert!((rmse - ((1.25f64 / 3.0).sqrt() + 1.0) / 2.0).abs() < 1e-15, "{rmse}");
        assert_eq!(errors.r2(&sums.numbers, 1.0), None, "one row has no spread");
    }

    #[test]
    fn a_target_without_spread_is_met_or_not() {
        let errors = ValueErrors::new(Loss::MeanAbsoluteError, Vec::new(), 1, 1);
        let r2 = |outputs: &[f32]| errors.r2(&sums(&errors, 1, outputs, &[3.0; 2]).numbers, 2.0);
        assert_eq!((r2(&[3.0, 3.0]), r2(&[3.0, 4.0])), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn errors_are_in_the_unit_of_the_labels_and_the_loss_is_not() {
        let units = vec![Unit { mean: 100.0, std: 10.0 }];
        let errors = ValueErrors::new(Loss::MeanSquaredError, units, 1, 1);
        let sums = sums(&errors, 1, &[1.0, -1.0], &[110.0, 100.0]);
        assert_eq!(sums.numbers[..3], [1.0, 10.0, 100.0]);
    }

    #[test]
    fn losses_are_those_of_their_formulas() {
        let of = |kind, output, label| loss(kind, output, label);
        assert_eq!(of(Loss::Huber { delta: 1.0 }, 3.0, 1.0), 1.5);
        assert_eq!(of(Loss::Huber { delta: 1.0 }, 1.5, 1.0), 0.125);
        assert!((of(Loss::LogCosh, 0.5, 0.0) - 0.5f64.cosh().ln()).abs() < 1e-15);
        assert!((of(Loss::LogCosh, 1e6, 0.0) - 1e6).abs() < 1.0, "it does not overflow");
        assert_eq!(of(Loss::Poisson, 0.0, 3.0), 1.0);
    }

    #[test]
    fn pictures_are_no_targets() {
        let errors = ValueErrors::new(Loss::MeanSquaredError, Vec::new(), 8 * 8 * 3, 3);
        assert_eq!((errors.has_targets(), errors.folds().len()), (false, OF_ROW));
        assert!(!ValueErrors::new(Loss::LogCosh, Vec::new(), 257, 257).has_targets());
    }
}
