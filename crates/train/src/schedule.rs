//! Learning rates as a function of the step. Nothing is kept from one step to the next, so that a resumed run needs no
//! more than its number.

use std::f64::consts::PI;

use crate::error::{Result, TrainError};

/// A number of steps, or of passes over the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Training steps.
    Steps(u32),
    /// Passes over the data.
    Epochs(u32),
}

impl Period {
    /// In steps, for epochs of so many.
    pub fn steps(self, epoch: u32) -> u32 {
        match self {
            Period::Steps(n) => n,
            Period::Epochs(n) => n.saturating_mul(epoch),
        }
    }
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// In all.
    pub steps: u32,
    /// Of one pass over the data.
    pub epoch: u32,
}

/// A learning rate that rises to `peak` over the warm-up and then follows the decay.
///
/// ```
/// use memfit_train::{Decay, Period, Schedule, Span};
///
/// // Keras' CosineDecay(initial_learning_rate=0, decay_steps=90, warmup_target=0.1, warmup_steps=10).
/// let decay = Decay::Cosine { floor: 0.0 };
/// let schedule = Schedule { peak: 0.1, warm_up: Period::Steps(10), decay };
/// let span = Span { steps: 100, epoch: 50 };
/// assert_eq!(schedule.rate(9, span), 0.1);
/// assert_eq!(schedule.rate(55, span), 0.05);
///
/// // PyTorch's StepLR(step_size=30 epochs, gamma=0.1).
/// let decay = Decay::Step { every: Period::Epochs(30), factor: 0.1 };
/// let schedule = Schedule { decay, ..Schedule::constant(0.1) };
/// assert!((schedule.rate(30 * 50, Span { steps: 90 * 50, epoch: 50 }) - 0.01).abs() < 1e-8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The largest rate.
    pub peak: f32,
    /// Over so many steps the rate rises in a straight line; its last one has the peak.
    pub warm_up: Period,
    /// What comes after it.
    pub decay: Decay,
}

/// How a learning rate falls after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// Not at all.
    Constant,
    /// Times `factor` after every period of the run, the warm-up included.
    Step {
        /// The period.
        every: Period,
        /// What the rate is multiplied by.
        factor: f32,
    },
    /// Half a cosine from the peak, at the end of the warm-up, to `floor`, at the end of the run.
    Cosine {
        /// The last rate.
        floor: f32,
    },
}

impl Schedule {
    /// The same rate all the time.
    pub fn constant(rate: f32) -> Schedule {
        Schedule { peak: rate, warm_up: Period::Steps(0), decay: Decay::Constant }
    }

    /// Whether every rate is a number that one can train with.
    pub fn check(&self) -> Result<()> {
        let (what, number) = match self.decay {
            Decay::Constant => ("peak", self.peak),
            Decay::Step { factor, .. } => ("factor", factor),
            Decay::Cosine { floor } => ("floor", floor),
        };
        for (what, number) in [("peak", self.peak), (what, number)] {
            if !(number.is_finite() && number >= 0.0) {
                return Err(TrainError::Rate { what, number });
            }
        }
        Ok(())
    }

    /// The rate of a step, counted from 0.
    pub fn rate(&self, step: u32, span: Span) -> f32 {
        let warm_up = self.warm_up.steps(span.epoch);
        let peak = f64::from(self.peak);
        if step < warm_up {
            return (peak * (f64::from(step) + 1.0) / f64::from(warm_up)) as f32;
        }
        let rate = match self.decay {
            Decay::Constant => peak,
            Decay::Step { every, factor } => match every.steps(span.epoch) {
                0 => peak,
                every => peak * f64::from(factor).powf(f64::from(step / every)),
            },
            Decay::Cosine { floor } => {
                let floor = f64::from(floor);
                let length = f64::from(span.steps.saturating_sub(warm_up).max(1));
                let done = (f64::from(step - warm_up) / length).min(1.0);
                floor + (peak - floor) * (1.0 + (PI * done).cos()) / 2.0
            }
        };
        rate as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { steps: 100, epoch: 10 };

    fn check(schedule: Schedule, expected: &[(u32, f32)]) {
        for &(step, rate) in expected {
            let given = schedule.rate(step, SPAN);
            assert!((given - rate).abs() <= 1e-6 * rate.abs(), "{schedule:?} at {step}: {given}, not {rate}");
        }
    }

    #[test]
    fn rates_are_as_computed_by_hand() {
        check(Schedule::constant(0.5), &[(0, 0.5), (99, 0.5), (u32::MAX, 0.5)]);
        let warm_up = Schedule { warm_up: Period::Steps(4), ..Schedule::constant(0.5) };
        check(warm_up, &[(0, 0.125), (1, 0.25), (3, 0.5), (4, 0.5)]);
        let step = Decay::Step { every: Period::Epochs(3), factor: 0.1 };
        check(
            Schedule { decay: step, ..Schedule::constant(2.0) },
            &[(0, 2.0), (29, 2.0), (30, 0.2), (59, 0.2), (60, 0.02)],
        );
        let cosine = Schedule { decay: Decay::Cosine { floor: 0.1 }, ..Schedule::constant(1.1) };
        check(cosine, &[(0, 1.1), (25, 0.953_553_4), (50, 0.6), (75, 0.246_446_6), (100, 0.1), (200, 0.1)]);
        let warm_cosine = Schedule { warm_up: Period::Epochs(2), ..cosine };
        check(warm_cosine, &[(0, 0.055), (19, 1.1), (20, 1.1), (60, 0.6), (100, 0.1)]);
    }

    #[test]
    fn rates_that_are_no_numbers_are_named() {
        let check = |decay, peak| Schedule { decay, ..Schedule::constant(peak) }.check().map_err(|e| e.to_string());
        let step = |factor| Decay::Step { every: Period::Steps(1), factor };
        assert_eq!(check(Decay::Constant, 0.0), Ok(()));
        assert_eq!(check(step(0.1), 0.1), Ok(()));
        assert!(check(Decay::Constant, f32::NAN).unwrap_err().contains("peak of the learning rate is NaN"));
        assert!(check(step(-0.5), 0.1).unwrap_err().contains("factor of the learning rate is -0.5"));
        assert!(check(Decay::Cosine { floor: f32::INFINITY }, 0.1).unwrap_err().contains("floor"));
    }

    #[test]
    fn odd_numbers_give_rates_all_the_same() {
        let none = Span { steps: 0, epoch: 0 };
        for decay in [
            Decay::Constant,
            Decay::Step { every: Period::Steps(0), factor: 0.5 },
            Decay::Step { every: Period::Epochs(u32::MAX), factor: 0.5 },
            Decay::Cosine { floor: 0.0 },
        ] {
            for warm_up in [Period::Steps(0), Period::Steps(u32::MAX), Period::Epochs(u32::MAX)] {
                let schedule = Schedule { peak: 1.0, warm_up, decay };
                for span in [none, SPAN, Span { steps: u32::MAX, epoch: u32::MAX }] {
                    for step in [0, 1, u32::MAX - 1, u32::MAX] {
                        assert!((0.0..=1.0).contains(&schedule.rate(step, span)), "{schedule:?} {span:?} at {step}");
                    }
                }
            }
        }
    }
}
