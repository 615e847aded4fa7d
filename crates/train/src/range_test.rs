//! The range test of learning rates: a few dozen steps at rates that rise from one to the next, and what their losses say of the
//! rate to train at.

use memfit_data::{Dataset, Loader, Next, Position};
use memfit_exec::Executor;

use crate::error::{Result, TrainError};
use crate::fit::{Feed, Flow};
use crate::session::{Session, views};

/// Which rates are tried.
///
/// ```
/// use memfit_train::{RangeTest, range_test};
///
/// // A parabola of one weight: it falls at once where the rate is 0.5, and flies away above 1.
/// let mut weight = 1.0;
/// let mut step = |rate: f32| {
///     let loss = weight * weight;
///     weight -= rate * 2.0 * weight;
///     Ok(Some(loss))
/// };
/// let tried = range_test(&RangeTest::default(), &mut step)?;
/// let suggested = tried.suggestion().expect("it has fallen");
/// assert!((0.001..0.5).contains(&suggested), "{suggested}");
/// # Ok::<(), memfit_train::TrainError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeTest {
    /// Of the first step.
    pub from: f32,
    /// Of the last one, unless the loss flies away before.
    pub to: f32,
    /// From one to the other, each by the same factor.
    pub steps: u32,
}

impl Default for RangeTest {
    fn default() -> Self {
        RangeTest { from: 1e-6, to: 10.0, steps: 100 }
    }
}

impl RangeTest {
    /// The rate of a step.
    pub fn rate(&self, step: u32) -> f32 {
        let share = f64::from(step) / f64::from(self.steps.saturating_sub(1).max(1));
        let (from, to) = (f64::from(self.from), f64::from(self.to));
        (from * (to / from).powf(share)) as f32
    }
}

/// A step of a range test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// What it was made at.
    pub rate: f32,
    /// Before the step changed anything: that of the weights which the steps before it left.
    pub loss: f32,
}

/// Why a range test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// All rates were tried.
    AllTried,
    /// The loss flew away.
    Diverged,
    /// There were no more steps.
    Stopped,
}

/// What a range test found.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// In the order in which they were made. All losses are finite.
    pub trials: Vec<Trial>,
    /// Of each of them, the loss with its neighbours': what is drawn and judged.
    pub smooth: Vec<f64>,
    /// Why there are no more.
    pub end: RangeEnd,
}

/// The share of the running mean that stays from one step to the next.
const STAYS: f64 = 0.8;
/// A loss has flown away that is above the best by so many times what was gained.
const AWAY: f64 = 3.0;
/// What counts as gained at least, as a share of the first loss.
const LEAST_GAIN: f64 = 0.1;
/// Neighbours on each side that a loss is averaged with, as a share of all steps.
const NEIGHBOURS: f64 = 0.04;
/// What has to be gained, as a share of the first loss, for a rate to be suggested.
const FELL: f64 = 0.02;
/// A rate at which the loss falls steepest while the rate still rises is too high to train at for long.
const CAUTION: f64 = 3.0;

/// Makes the steps: `step` is given a rate and gives a loss, or none to end the test.
pub fn range_test(test: &RangeTest, step: &mut dyn FnMut(f32) -> Result<Option<f32>>) -> Result<Tried> {
    let mut trials: Vec<Trial> = Vec::with_capacity(test.steps as usize);
    let (mut mean, mut best) = (f64::NAN, f64::INFINITY);
    let mut end = RangeEnd::AllTried;
    for number in 0..test.steps {
        let rate = test.rate(number);
        let Some(loss) = step(rate)? else {
            end = RangeEnd::Stopped;
            break;
        };
        if !loss.is_finite() {
            end = RangeEnd::Diverged;
            break;
        }
        trials.push(Trial { rate, loss });
        let loss = f64::from(loss);
        mean = if mean.is_nan() { loss } else { STAYS * mean + (1.0 - STAYS) * loss };
        best = best.min(mean);
        let first = f64::from(trials[0].loss);
        if mean > best + AWAY * (first - best).max(LEAST_GAIN * first.abs()) {
            end = RangeEnd::Diverged;
            break;
        }
    }
    let smooth = smoothed(&trials, (f64::from(test.steps) * NEIGHBOURS).ceil() as usize);
    Ok(Tried { trials, smooth, end })
}

/// The range test of a session on a data set, whose elements are its batches, epoch after epoch. The observer sees each step, and
/// is asked with nothing while a batch is not there. The session is of no use for training afterwards.
///
/// Of several replicas each calls it, as it calls [`fit`](crate::fit): all make the same steps, and stop where one of them is asked
/// to.
pub fn find_learning_rate<E: Executor>(
    session: &mut Session<E>,
    data: &Dataset,
    feed: &Feed,
    test: &RangeTest,
    observer: &mut dyn FnMut(Option<&Trial>) -> Flow,
) -> Result<Tried> {
    let start = Position { epoch: 0, element: 0 };
    let mut loader = Loader::new(data, feed.loading(&feed.pool, session.seed(), start))?;
    let mut stop = false;
    range_test(test, &mut |rate| {
        let next = next_batch(&mut loader, &mut || {
            stop |= observer(None) == Flow::Stop;
            stop
        })?;
        let batch = match next {
            Next::Element(batch) => Some(batch),
            Next::Stopped => None,
            Next::End => return Err(TrainError::EmptyEpoch { batch: session.plan().batch }),
        };
        // What was asked of one all hear of before the same step.
        let stops = session.agree(stop.into())? != 0;
        let Some(batch) = batch.filter(|_| !stops) else { return Ok(None) };
        let loss = session.step(&views(&batch), rate)?;
        stop |= observer(Some(&Trial { rate, loss })) == Flow::Stop;
        Ok(Some(loss))
    })
}

/// Of this epoch or of the next, if an epoch has one.
fn next_batch(loader: &mut Loader, stop: &mut dyn FnMut() -> bool) -> Result<Next> {
    match loader.next_unless(stop)? {
        Next::End => Ok(loader.next_unless(stop)?),
        next => Ok(next),
    }
}

impl Tried {
    /// The rate at which the loss falls steepest over the logarithm of the rate, divided by three, because a rate that rises is
    /// ahead of what the loss shows; none where the loss never fell by as much as noise does.
    pub fn suggestion(&self) -> Option<f32> {
        let lowest = (0..self.smooth.len()).min_by(|&a, &b| self.smooth[a].total_cmp(&self.smooth[b]))?;
        let first = self.smooth[0];
        if first - self.smooth[lowest] < FELL * first.abs() {
            return None;
        }
        // All rates are one factor apart, so that differences are slopes.
        let slope = |&i: &usize| self.smooth[i + 1] - self.smooth[i];
        let steepest = (0..lowest).min_by(|a, b| slope(a).total_cmp(&slope(b)))?;
        Some((f64::from(self.trials[steepest].rate) / CAUTION) as f32)
    }

    /// As a table: a line for each step.
    pub fn to_csv(&self) -> String {
        let line = |(number, (trial, smooth)): (usize, (&Trial, &f64))| {
            format!("{number},{:e},{},{smooth}\n", trial.rate, trial.loss)
        };
        let lines: String = self.trials.iter().zip(&self.smooth).enumerate().map(line).collect();
        format!("step,lr,loss,smooth_loss\n{lines}")
    }
}

/// Each loss averaged with so many on each side, as far as both sides have them: so that a slope stays one at the ends.
fn smoothed(trials: &[Trial], neighbours: usize) -> Vec<f64> {
    let around = |i: usize| {
        let reach = neighbours.min(i).min(trials.len() - 1 - i);
        let some = &trials[i - reach..=i + reach];
        some.iter().map(|trial| f64::from(trial.loss)).sum::<f64>() / some.len() as f64
    };
    (0..trials.len()).map(around).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A weight on a parabola of this curvature.
    fn parabola(curvature: f32) -> Tried {
        let mut weight = 1.0f32;
        let mut step = |rate: f32| {
            let loss = 0.5 * curvature * weight * weight + 1.0;
            weight -= rate * curvature * weight;
            Ok(Some(loss))
        };
        range_test(&RangeTest::default(), &mut step).unwrap()
    }

    #[test]
    fn rates_rise_by_one_factor_from_the_first_to_the_last() {
        let test = RangeTest { from: 1e-4, to: 1.0, steps: 5 };
        for (step, rate) in [1e-4f32, 1e-3, 1e-2, 0.1, 1.0].into_iter().enumerate() {
            assert!((test.rate(step as u32) / rate - 1.0).abs() < 1e-6, "{}", test.rate(step as u32));
        }
        assert_eq!(RangeTest { steps: 1, ..test }.rate(0), 1e-4);
    }

    #[test]
    fn what_is_suggested_follows_the_curvature_and_is_stable() {
        // Steps are stable below 2 ÷ curvature.
        let suggested = [4.0, 40.0, 400.0].map(|c| parabola(c).suggestion().expect("it falls") * c);
        assert!(suggested.iter().all(|s| (0.005..1.0).contains(s)), "{suggested:?}");
        let (low, high) =
            (suggested.iter().copied().fold(f32::MAX, f32::min), suggested.iter().copied().fold(0.0, f32::max));
        assert!(high < 2.0 * low, "{suggested:?}");
    }

    #[test]
    fn it_ends_where_the_loss_flies_away_or_is_no_number() {
        let tried = parabola(4.0);
        assert_eq!(tried.end, RangeEnd::Diverged);
        assert!(tried.trials.last().is_some_and(|t| t.rate > 0.5) && tried.trials.len() < 100);
        let mut steps = 0;
        let mut step = |_| {
            steps += 1;
            Ok(Some(if steps > 7 { f32::NAN } else { 1.0 }))
        };
        let tried = range_test(&RangeTest::default(), &mut step).unwrap();
        assert_eq!((tried.end, tried.trials.len(), tried.suggestion()), (RangeEnd::Diverged, 7, None));
    }

    #[test]
    fn where_nothing_falls_nothing_is_suggested() {
        let mut noise = 0u32;
        let mut step = |_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Ok(Some(2.0 + (noise >> 24) as f32 * 1e-4))
        };
        let tried = range_test(&RangeTest::default(), &mut step).unwrap();
        assert_eq!((tried.end, tried.suggestion()), (RangeEnd::AllTried, None));
        let none = range_test(&RangeTest { steps: 0, ..RangeTest::default() }, &mut step).unwrap();
        assert_eq!((none.suggestion(), none.to_csv().as_str()), (None, "step,lr,loss,smooth_loss\n"));
    }

    #[test]
    fn it_stops_where_there_is_no_more_and_the_table_has_what_was_made() {
        let mut left = 3;
        let mut step = |_| {
            left -= 1;
            Ok((left >= 0).then_some(0.5))
        };
        let tried = range_test(&RangeTest { from: 0.01, to: 1.0, steps: 30 }, &mut step).unwrap();
        assert_eq!((tried.end, tried.trials.len()), (RangeEnd::Stopped, 3));
        assert!(tried.to_csv().starts_with("step,lr,loss,smooth_loss\n0,1e-2,0.5,0.5\n1,"), "{}", tried.to_csv());
    }
}
