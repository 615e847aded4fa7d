//! What rows add up to, one after the other, in f64: sums, and how far numbers spread around their mean. Whoever adds the same
//! rows in the same order has the same bits.

/// How a number of a row is added to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    /// To their mean. Behind it stands a [`Fold::Spread`].
    Mean,
    /// Σ (number − mean)² of the numbers before it; its own in a row is of no meaning.
    Spread,
}

/// Of rows with as many numbers as there are folds.
pub(crate) struct RowSums {
    folds: Vec<Fold>,
    pub numbers: Vec<f64>,
    pub count: u64,
}

impl RowSums {
    pub fn new(folds: Vec<Fold>) -> RowSums {
        RowSums { numbers: vec![0.0; folds.len()], folds, count: 0 }
    }

    /// Mean and spread as Welford has them: large numbers that differ by little lose nothing.
    pub fn add(&mut self, row: &[f64]) {
        self.count += 1;
        for (i, (fold, &number)) in self.folds.iter().zip(row).enumerate() {
            match fold {
                Fold::Sum => self.numbers[i] += number,
                Fold::Mean => {
                    let before = number - self.numbers[i];
                    self.numbers[i] += before / self.count as f64;
                    self.numbers[i + 1] += before * (number - self.numbers[i]);
                }
                Fold::Spread => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_spread_around_a_large_mean_is_found() {
        let mut sums = RowSums::new(vec![Fold::Sum, Fold::Mean, Fold::Spread]);
        for number in [4.0, 7.0, 13.0, 16.0] {
            sums.add(&[number, 1e9 + number, f64::NAN]);
        }
        assert_eq!((sums.count, &sums.numbers[..]), (4, &[40.0, 1e9 + 10.0, 90.0][..]));
    }
}
