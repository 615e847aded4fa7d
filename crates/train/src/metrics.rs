//! Metrics: loss, accuracy, top-5, mean IoU, perplexity, and the errors of predicted numbers, counted on the host from what a model says
//! and its labels. Counts are exact, and what is no count is f64, made of each row by itself. It never runs a model.

use std::collections::BTreeMap;

use memfit_nn::{Loss, Unit};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};
use crate::row_sums::Fold;
use crate::value_errors::ValueErrors;

/// What the labels of a head are, which decides the metrics that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelKind {
    /// A softmax over the last axis against a class, or a distribution over the classes, for each of its rows: of an
    /// image, a pixel, a place in a text.
    Classes,
    /// A sigmoid for each element against labels of the same shape, of which half and more is foreground.
    Masks,
    /// Numbers against numbers of the same shape.
    Values,
    /// Whatever the graph made of them: there is a loss for each row, and nothing else is known.
    Custom,
    /// Of a model with several heads: see [`Scores::heads`].
    Several,
}

impl LabelKind {
    /// What a loss compares with.
    pub const fn of(loss: Loss) -> LabelKind {
        match loss {
            Loss::SparseCrossEntropy { .. } | Loss::CrossEntropy { .. } => LabelKind::Classes,
            Loss::BinaryCrossEntropy => LabelKind::Masks,
            Loss::MeanSquaredError | Loss::MeanAbsoluteError | Loss::Huber { .. } | Loss::LogCosh | Loss::Poisson => {
                LabelKind::Values
            }
            Loss::Custom => LabelKind::Custom,
        }
    }
}

/// What can be asked of [`Scores`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The mean loss; of several heads, their weighted sum.
    Loss,
    /// The share of labels for which the largest logit is the right one.
    Accuracy,
    /// The share of labels that are among the five largest logits; of more than five classes.
    Top5,
    /// Intersection over union, averaged over the classes.
    MeanIou,
    /// e to the loss, of classes.
    Perplexity,
    /// The mean absolute error, of values.
    #[serde(rename = "mae", alias = "mean_absolute_error")]
    MeanAbsoluteError,
    /// The root of the mean squared error, of values; of several targets, the mean of theirs.
    #[serde(rename = "rmse")]
    RootMeanSquaredError,
    /// The share of the spread of values that is predicted: 1 is all of it, 0 no more than their mean says, and less than 0
    /// worse than that. Of several targets, the mean of theirs.
    R2,
}

impl Metric {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Metric; 8] = [
        Metric::Loss,
        Metric::Accuracy,
        Metric::Top5,
        Metric::MeanIou,
        Metric::Perplexity,
        Metric::MeanAbsoluteError,
        Metric::RootMeanSquaredError,
        Metric::R2,
    ];

    /// As in JSON and run files.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Loss => "loss",
            Metric::Accuracy => "accuracy",
            Metric::Top5 => "top5",
            Metric::MeanIou => "mean_iou",
            Metric::Perplexity => "perplexity",
            Metric::MeanAbsoluteError => "mae",
            Metric::RootMeanSquaredError => "rmse",
            Metric::R2 => "r2",
        }
    }

    /// The metric of this name, or of the longer one that others have for it.
    pub fn from_name(name: &str) -> Option<Metric> {
        match name {
            "mean_absolute_error" => Some(Metric::MeanAbsoluteError),
            "root_mean_squared_error" => Some(Metric::RootMeanSquaredError),
            "r2_score" => Some(Metric::R2),
            name => Metric::ALL.into_iter().find(|metric| metric.name() == name),
        }
    }

    /// Whether `new` is better than `old` by more than `by`. Nothing that is not a number is better than anything.
    ///
    /// ```
    /// use memfit_train::Metric;
    ///
    /// assert!(Metric::Loss.improves(0.1, 0.2, 0.0));
    /// assert!(!Metric::Accuracy.improves(0.91, 0.90, 0.05));
    /// ```
    pub fn improves(self, new: f64, old: f64, by: f64) -> bool {
        match self {
            Metric::Loss | Metric::Perplexity | Metric::MeanAbsoluteError | Metric::RootMeanSquaredError => {
                new < old - by
            }
            Metric::Accuracy | Metric::Top5 | Metric::MeanIou | Metric::R2 => new > old + by,
        }
    }

    /// This metric of one head of a model that has several.
    pub fn of(self, head: impl Into<String>) -> Monitor {
        Monitor { metric: self, head: Some(head.into()) }
    }
}

/// Which score a run follows: a metric, of the model or of one of its heads. What is `monitor="val_accuracy"` in Keras
/// is `Metric::Accuracy.into()`, and `monitor="val_price_loss"` is `Metric::Loss.of("price")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// The metric.
    pub metric: Metric,
    /// The head; none for the model as a whole.
    pub head: Option<String>,
}

impl From<Metric> for Monitor {
    fn from(metric: Metric) -> Monitor {
        Monitor { metric, head: None }
    }
}

impl std::fmt::Display for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.head {
            Some(head) => write!(f, "{head}/{}", self.metric.name()),
            None => f.write_str(self.metric.name()),
        }
    }
}

/// Means over what was evaluated. Shares are in 0…1. Of a model with one head they are that head's; where there are
/// several, the loss is the model's and the rest stands in [`heads`](Scores::heads).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// What the labels are.
    #[serde(rename = "task")]
    pub labels: LabelKind,
    /// Labels: of images, of pixels, of places in a text; of several heads, rows.
    pub count: u64,
    /// The mean loss; of several heads, their weighted sum.
    #[serde(deserialize_with = "number_or_null")]
    pub loss: f64,
    /// Of classes and masks.
    pub accuracy: Option<f64>,
    /// Where there are more than five classes.
    pub top5: Option<f64>,
    /// Over the classes (of masks: foreground and background) that are among the labels or the predictions.
    pub mean_iou: Option<f64>,
    /// Of values.
    #[serde(rename = "mae", alias = "mean_absolute_error", default, skip_serializing_if = "Option::is_none")]
    pub mean_absolute_error: Option<f64>,
    /// Of values that are targets: no more than 256 numbers for a sample.
    #[serde(rename = "rmse", default, skip_serializing_if = "Option::is_none")]
    pub root_mean_squared_error: Option<f64>,
    /// The same, where there are two samples at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Means of the model's own metrics.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Of each head by its name, where there are several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heads: BTreeMap<String, Scores>,
}

impl Scores {
    /// A metric, where there is such a one.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Loss => Some(self.loss),
            Metric::Accuracy => self.accuracy,
            Metric::Top5 => self.top5,
            Metric::MeanIou => self.mean_iou,
            Metric::Perplexity => self.perplexity(),
            Metric::MeanAbsoluteError => self.mean_absolute_error,
            Metric::RootMeanSquaredError => self.root_mean_squared_error,
            Metric::R2 => self.r2,
        }
    }

    /// What a run follows, where there is such a score.
    pub fn monitored(&self, monitor: &Monitor) -> Option<f64> {
        match &monitor.head {
            Some(head) => self.heads.get(head)?.get(monitor.metric),
            None => self.get(monitor.metric),
        }
    }

    /// How many classes the model is undecided between, as it were.
    pub fn perplexity(&self) -> Option<f64> {
        // Of one head with a weight, the loss without it.
        let loss = self.heads.values().next().map_or(self.loss, |head| head.loss);
        (self.labels == LabelKind::Classes).then(|| loss.exp())
    }
}

/// JSON has no word for what is not finite, and writes null.
fn number_or_null<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// What is counted of the rows of one head, from which its [`Scores`] are made. What is no count is made anew for each row, and
/// added up by whoever has all rows, in their order: so it does not matter who counted which.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tally {
    loss: Loss,
    /// Of masks, background and foreground.
    classes: usize,
    /// Of values.
    values: Option<ValueErrors>,
    /// Labels, those that are right, those in the top five; then those of each class.
    counts: Vec<u64>,
}

/// Of a class: how often it was predicted, how often it was the label, and how often both.
const OVERLAP: usize = 3;
const COUNT: usize = 0;
const RIGHT: usize = 1;
const IN_TOP5: usize = 2;
/// Where the first class begins.
const OVERLAPS: usize = 3;

impl Tally {
    /// Of rows of so many elements, of which `width` is the extent of the last axis: the classes, where it has some. Values
    /// may have units.
    pub fn new(loss: Loss, units: Vec<Unit>, elements: usize, width: usize) -> Tally {
        let labels = LabelKind::of(loss);
        let values = (labels == LabelKind::Values).then(|| ValueErrors::new(loss, units, elements, width));
        let classes = match labels {
            LabelKind::Classes => width,
            LabelKind::Masks => 2,
            LabelKind::Values | LabelKind::Custom | LabelKind::Several => 0,
        };
        Tally { loss, classes, values, counts: vec![0; OVERLAPS + classes * OVERLAP] }
    }

    /// Whether its scores have this one.
    pub fn has(&self, metric: Metric) -> bool {
        let labels = LabelKind::of(self.loss);
        match metric {
            Metric::Loss => true,
            Metric::Accuracy | Metric::MeanIou => matches!(labels, LabelKind::Classes | LabelKind::Masks),
            Metric::Top5 => self.classes > 5,
            Metric::Perplexity => labels == LabelKind::Classes,
            Metric::MeanAbsoluteError => self.values.is_some(),
            Metric::RootMeanSquaredError | Metric::R2 => self.values.as_ref().is_some_and(ValueErrors::has_targets),
        }
    }

    /// The numbers that a row has beside the counts: its loss, and of values the errors.
    pub fn folds(&self) -> Vec<Fold> {
        self.values.as_ref().map_or_else(|| vec![Fold::Sum], ValueErrors::folds)
    }

    /// All that is counted. Those of several tallies may be added to each other.
    pub fn counts_mut(&mut self) -> &mut [u64] {
        &mut self.counts
    }

    /// Counts a row: what the model gives for it, and the bytes of its labels, of which it may have many. Of a loss that only
    /// the graph knows, it gives that. `numbers` become those of this row.
    pub fn add(&mut self, given: &[f32], labels: &[u8], numbers: &mut [f64]) -> Result<()> {
        if let Some(values) = &self.values {
            let labels: &[f32] = bytemuck::cast_slice(labels);
            check_counts(given.len(), labels.len())?;
            self.counts[COUNT] += given.len() as u64;
            values.add(given, labels, numbers);
            return Ok(());
        }
        numbers[0] = match self.loss {
            Loss::SparseCrossEntropy { smoothing } => {
                self.add_classes(given, bytemuck::cast_slice(labels), f64::from(smoothing))?
            }
            Loss::CrossEntropy { smoothing } => {
                self.add_distributions(given, bytemuck::cast_slice(labels), f64::from(smoothing))?
            }
            Loss::BinaryCrossEntropy => self.add_masks(given, bytemuck::cast_slice(labels))?,
            Loss::Custom
            | Loss::MeanSquaredError
            | Loss::MeanAbsoluteError
            | Loss::Huber { .. }
            | Loss::LogCosh
            | Loss::Poisson => {
                self.counts[COUNT] += given.len() as u64;
                given.iter().map(|&loss| f64::from(loss)).sum()
            }
        };
        Ok(())
    }

    /// Logits with the class of each; gives their loss. The share `smoothing` of each label is spread over all classes.
    fn add_classes(&mut self, logits: &[f32], labels: &[i32], smoothing: f64) -> Result<f64> {
        let classes = self.classes.max(1);
        check_counts(logits.len(), labels.len() * classes)?;
        let mut loss = 0.0;
        for (row, &label) in logits.chunks_exact(classes).zip(labels) {
            let known = usize::try_from(label).ok().filter(|label| *label < classes);
            let label = known.ok_or(TrainError::Label { label: i64::from(label), classes })?;
            let at_label = |weight: f64| weight * (log_sum_exp(row) - f64::from(row[label]));
            loss += if smoothing == 0.0 {
                at_label(1.0)
            } else {
                let spread = log_sum_exp(row) - row.iter().map(|&x| f64::from(x)).sum::<f64>() / classes as f64;
                at_label(1.0 - smoothing) + smoothing * spread
            };
            self.rank(row, label);
        }
        Ok(loss)
    }

    /// Logits with a distribution over the classes for each; the largest of it counts as the label.
    fn add_distributions(&mut self, logits: &[f32], labels: &[f32], smoothing: f64) -> Result<f64> {
        let classes = self.classes.max(1);
        check_counts(logits.len(), labels.len())?;
        let mut loss = 0.0;
        for (row, label) in logits.chunks_exact(classes).zip(labels.chunks_exact(classes)) {
            let whole = log_sum_exp(row);
            let smooth = |y: f32| (1.0 - smoothing) * f64::from(y) + smoothing / classes as f64;
            loss += row.iter().zip(label).map(|(&x, &y)| smooth(y) * (whole - f64::from(x))).sum::<f64>();
            self.rank(row, best(label));
        }
        Ok(loss)
    }

    fn rank(&mut self, row: &[f32], label: usize) {
        let rank = rank(row, label);
        self.counts[RIGHT] += u64::from(rank == 0);
        self.counts[IN_TOP5] += u64::from(rank < 5);
        self.overlap(best(row), label);
    }

    /// Logits of masks with their labels, element by element.
    fn add_masks(&mut self, logits: &[f32], labels: &[f32]) -> Result<f64> {
        check_counts(logits.len(), labels.len())?;
        let mut loss = 0.0;
        for (&logit, &label) in logits.iter().zip(labels) {
            let (x, y) = (f64::from(logit), f64::from(label));
            loss += x.max(0.0) - x * y + (-x.abs()).exp().ln_1p();
            // A logit above zero is a probability above one half.
            let (predicted, labelled) = (usize::from(logit > 0.0), usize::from(label >= 0.5));
            self.counts[RIGHT] += u64::from(predicted == labelled && !logit.is_nan());
            self.overlap(predicted, labelled);
        }
        Ok(loss)
    }

    fn overlap(&mut self, predicted: usize, labelled: usize) {
        self.counts[COUNT] += 1;
        self.counts[OVERLAPS + predicted * OVERLAP] += 1;
        self.counts[OVERLAPS + labelled * OVERLAP + 1] += 1;
        self.counts[OVERLAPS + labelled * OVERLAP + 2] += u64::from(predicted == labelled);
    }

    /// With the sums of the numbers of so many rows. None of nothing.
    pub fn scores(&self, sums: &[f64], rows: u64) -> Option<Scores> {
        let count = (self.counts[COUNT] > 0).then_some(self.counts[COUNT] as f64)?;
        let overlaps = self.counts[OVERLAPS..].as_chunks::<OVERLAP>().0.iter();
        let met = overlaps.filter(|[predicted, labelled, _]| predicted + labelled > 0);
        let ious: Vec<f64> = met.map(|[p, l, both]| *both as f64 / (p + l - both) as f64).collect();
        let share = |metric, value: f64| self.has(metric).then_some(value);
        Some(Scores {
            labels: LabelKind::of(self.loss),
            count: self.counts[COUNT],
            loss: sums[0] / count,
            accuracy: share(Metric::Accuracy, self.counts[RIGHT] as f64 / count),
            top5: share(Metric::Top5, self.counts[IN_TOP5] as f64 / count),
            mean_iou: share(Metric::MeanIou, ious.iter().sum::<f64>() / ious.len() as f64),
            mean_absolute_error: self.values.as_ref().map(|_| sums[1] / count),
            root_mean_squared_error: self.values.as_ref().and_then(|v| v.root_mean_squared_error(sums, rows as f64)),
            r2: self.values.as_ref().and_then(|v| v.r2(sums, rows as f64)),
            metrics: BTreeMap::new(),
            heads: BTreeMap::new(),
        })
    }
}

fn check_counts(logits: usize, expected: usize) -> Result<()> {
    if logits == expected { Ok(()) } else { Err(TrainError::Labels { logits, expected }) }
}

/// How many classes stand before this one: a larger logit, or the same with a lower number. What is not a number stands
/// before everything, so that a broken model is never right.
fn rank(row: &[f32], label: usize) -> usize {
    let own = row[label];
    let before = |&(class, &logit): &(usize, &f32)| {
        class != label && (logit > own || logit.is_nan() || own.is_nan() || (logit == own && class < label))
    };
    row.iter().enumerate().filter(before).count()
}

/// The class that no other stands before.
fn best(row: &[f32]) -> usize {
    let mut best = 0;
    for (class, &logit) in row.iter().enumerate() {
        if logit > row[best] || (logit.is_nan() && !row[best].is_nan()) {
            best = class;
        }
    }
    best
}

/// Shifted by the largest, so that nothing overflows.
fn log_sum_exp(row: &[f32]) -> f64 {
    let largest = f64::from(row[best(row)]);
    largest + row.iter().map(|&x| (f64::from(x) - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_sums::RowSums;

    const SPARSE: Loss = Loss::SparseCrossEntropy { smoothing: 0.0 };

    /// The scores of some rows, each with so many numbers of the model, and of as many labels as there are for it.
    fn scores<L: bytemuck::Pod>(loss: Loss, width: usize, row: usize, given: &[f32], labels: &[L]) -> Scores {
        let mut tally = Tally::new(loss, Vec::new(), row, width);
        let mut sums = RowSums::new(tally.folds());
        let of_row = labels.len() * row / given.len();
        for (given, labels) in given.chunks(row).zip(labels.chunks(of_row)) {
            let mut numbers = vec![0.0; tally.folds().len()];
            tally.add(given, bytemuck::cast_slice(labels), &mut numbers).expect("they fit");
            sums.add(&numbers);
        }
        tally.scores(&sums.numbers, sums.count).expect("there are some")
    }

    fn classes(width: usize, logits: &[f32], labels: &[i32]) -> Scores {
        scores(SPARSE, width, width, logits, labels)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    fn has(score: Option<f64>, expected: f64) -> bool {
        score.is_some_and(|score| close(score, expected))
    }

    #[test]
    fn classes_are_as_computed_by_hand() {
        // Probabilities 1/2, 1/4, 1/4 and 1/4, 1/4, 1/2 as logits.
        let (l, z) = (2f32.ln(), 0.0);
        let scores = classes(3, &[l, z, z, z, z, l], &[0, 1]);
        assert!((scores.loss - (2f64.ln() + 4f64.ln()) / 2.0).abs() < 1e-7, "{scores:?}");
        assert!((scores.perplexity().expect("of classes") - 8f64.sqrt()).abs() < 1e-6);
        // Class 0 is found once; 1 is missed; 2 is said once and never true.
        assert!(has(scores.mean_iou, 1.0 / 3.0) && has(scores.accuracy, 0.5), "{scores:?}");
        assert_eq!((scores.count, scores.top5), (2, None));
    }

    #[test]
    fn top_five_counts_the_five_largest() {
        let row: Vec<f32> = (0..7).map(|i| i as f32).collect();
        let all: Vec<f32> = row.repeat(7);
        let scores = classes(7, &all, &[0, 1, 2, 3, 4, 5, 6]);
        assert!(has(scores.top5, 5.0 / 7.0) && has(scores.accuracy, 1.0 / 7.0));
    }

    #[test]
    fn masks_are_as_computed_by_hand() {
        let masks = |logits: &[f32], labels: &[f32]| scores(Loss::BinaryCrossEntropy, 1, 2, logits, labels);
        let scores = masks(&[2.0, -2.0, 3.0, -3.0], &[1.0, 1.0, 0.0, 0.0]);
        let softplus = |x: f64| x.exp().ln_1p();
        let loss = (softplus(-2.0) + softplus(2.0) + softplus(3.0) + softplus(-3.0)) / 4.0;
        // Foreground: one of three; background: one of three.
        assert!(close(scores.loss, loss) && has(scores.accuracy, 0.5) && has(scores.mean_iou, 1.0 / 3.0));
        assert_eq!((scores.top5, scores.perplexity(), scores.count), (None, None, 4));
        assert!(has(masks(&[5.0, 1.0], &[1.0, 1.0]).mean_iou, 1.0), "a class that nobody names does not count");
    }

    #[test]
    fn counts_of_parts_add_up_to_those_of_the_whole() {
        let logits: Vec<f32> = (0..60).map(|i| ((i * 29) % 23) as f32 / 3.0).collect();
        let labels: Vec<i32> = (0..10).map(|i| i % 6).collect();
        let count = |rows: std::ops::Range<usize>, tally: &mut Tally| {
            rows.for_each(|row| {
                let label = bytemuck::bytes_of(&labels[row]);
                tally.add(&logits[row * 6..][..6], label, &mut [0.0]).expect("they fit");
            });
        };
        let [mut whole, mut first, mut second] = [0; 3].map(|_| Tally::new(SPARSE, Vec::new(), 6, 6));
        count(0..10, &mut whole);
        count(0..3, &mut first);
        count(3..10, &mut second);
        first.counts_mut().iter_mut().zip(second.counts_mut()).for_each(|(all, more)| *all += *more);
        assert_eq!(first, whole);
        assert!(whole.scores(&[0.0], 10).is_some_and(|s| s.count == 10 && s.top5.is_some_and(|top5| top5 > 0.0)));
    }

    #[test]
    fn large_logits_do_not_overflow_and_broken_ones_are_never_right() {
        assert!(close(classes(2, &[3e38, 0.0], &[0]).loss, 0.0));
        let equal = classes(3, &[1.0; 6], &[0, 1]);
        assert!(close(equal.loss, 3f64.ln()) && has(equal.accuracy, 0.5), "a tie goes to the lower class");
        for row in [[f32::NAN, 0.0], [0.0, f32::NAN], [f32::NAN; 2]] {
            let scores = classes(2, &row, &[0]);
            assert!(scores.loss.is_nan() && scores.accuracy == Some(0.0), "{row:?}: {scores:?}");
        }
        assert!(!Metric::Loss.improves(f64::NAN, 1.0, 0.0) && !Metric::Accuracy.improves(f64::NAN, 0.0, 0.0));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut tally = Tally::new(SPARSE, Vec::new(), 3, 3);
        let mut fail = |logits: &[f32], label: i32| {
            let added = tally.add(logits, bytemuck::bytes_of(&label), &mut [0.0]);
            added.expect_err("it does not fit").to_string()
        };
        assert!(fail(&[0.0; 3], 3).contains("label 3 is outside of 0..3"));
        assert!(fail(&[0.0; 3], -1).contains("label -1 is outside of 0..3"));
        assert!(fail(&[0.0; 4], 0).contains("4 logits"));
        assert_eq!(tally.scores(&[0.0], 0), None);
    }

    #[test]
    fn scores_survive_json_even_where_they_are_no_numbers() {
        let mut scores = classes(2, &[1.0, 0.0], &[0]);
        let json = serde_json::to_string(&scores).expect("plain data");
        assert_eq!(serde_json::from_str::<Scores>(&json).expect("plain data"), scores);
        scores.loss = f64::INFINITY;
        let json = serde_json::to_string(&scores).expect("plain data");
        assert!(serde_json::from_str::<Scores>(&json).expect("plain data").loss.is_nan());
    }

    #[test]
    fn metrics_are_known_by_their_names_and_by_those_that_they_had() {
        assert!(Metric::ALL.into_iter().all(|metric| Metric::from_name(metric.name()) == Some(metric)));
        assert_eq!(Metric::from_name("mean_absolute_error"), Some(Metric::MeanAbsoluteError));
        assert_eq!(serde_json::from_str("\"mean_absolute_error\"").ok(), Some(Metric::MeanAbsoluteError));
        assert!(Metric::R2.improves(0.9, 0.8, 0.0) && Metric::MeanAbsoluteError.improves(0.1, 0.2, 0.0));
    }

    #[test]
    fn scores_of_one_head_are_written_as_ever() {
        let json = serde_json::to_string(&classes(3, &[1.0, 0.0, 0.0], &[0])).expect("plain data");
        let keys: Vec<&str> = json.split(['{', ',']).filter_map(|part| part.split('"').nth(1)).collect();
        assert_eq!(keys, ["task", "count", "loss", "accuracy", "top5", "mean_iou"]);
        assert!(json.starts_with("{\"task\":\"classes\",\"count\":1,\"loss\":0.55"), "{json}");
        assert!(json.contains("\"accuracy\":1.0,\"top5\":null,\"mean_iou\":1.0}"), "{json}");
    }

    #[test]
    fn a_class_and_its_distribution_give_the_same_smoothed_or_not() {
        let logits = [0.5, -1.0, 2.0, 0.0, 3.0, 1.0];
        for smoothing in [0.0, 0.1] {
            let sparse = scores(Loss::SparseCrossEntropy { smoothing }, 3, 6, &logits, &[2, 0]);
            let soft = scores(Loss::CrossEntropy { smoothing }, 3, 6, &logits, &[0f32, 0.0, 1.0, 1.0, 0.0, 0.0]);
            assert!(close(sparse.loss, soft.loss) && sparse.accuracy == soft.accuracy, "{sparse:?} {soft:?}");
        }
    }

    #[test]
    fn values_have_a_squared_and_an_absolute_error_and_no_accuracy() {
        let scores = scores(Loss::MeanSquaredError, 1, 1, &[1.0, 5.0], &[0f32, 2.0]);
        assert!(close(scores.loss, 5.0) && has(scores.mean_absolute_error, 2.0), "{scores:?}");
        assert!(has(scores.root_mean_squared_error, 5f64.sqrt()) && has(scores.r2, -4.0), "{scores:?}");
        assert_eq!((scores.accuracy, scores.mean_iou, scores.perplexity(), scores.count), (None, None, None, 2));
    }
}
