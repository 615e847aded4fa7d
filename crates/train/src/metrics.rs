//! Metrics: loss, accuracy, top-5, mean IoU, perplexity and absolute error, counted on the host from what a model says
//! and its labels. Sums are exact counts or f64, over the rows that are given and no others. It never runs a model.

use std::collections::BTreeMap;

use memfit_nn::Loss;
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};

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
            Loss::MeanSquaredError => LabelKind::Values,
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
    MeanAbsoluteError,
}

impl Metric {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Metric; 6] =
        [Metric::Loss, Metric::Accuracy, Metric::Top5, Metric::MeanIou, Metric::Perplexity, Metric::MeanAbsoluteError];

    /// As in JSON and run files.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Loss => "loss",
            Metric::Accuracy => "accuracy",
            Metric::Top5 => "top5",
            Metric::MeanIou => "mean_iou",
            Metric::Perplexity => "perplexity",
            Metric::MeanAbsoluteError => "mean_absolute_error",
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
            Metric::Loss | Metric::Perplexity | Metric::MeanAbsoluteError => new < old - by,
            Metric::Accuracy | Metric::Top5 | Metric::MeanIou => new > old + by,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_absolute_error: Option<f64>,
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

/// Sums from which the [`Scores`] of one head are made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tally {
    labels: LabelKind,
    /// The share of each label that is spread over all classes.
    smoothing: f64,
    count: u64,
    loss: f64,
    right: u64,
    in_top5: u64,
    absolute: f64,
    /// By class; of masks, background and foreground.
    overlaps: Vec<Overlap>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Overlap {
    predicted: u64,
    labelled: u64,
    both: u64,
}

impl Tally {
    /// `width` is the extent of the last axis of the output: the classes, where it has some.
    pub fn new(loss: Loss, width: usize) -> Tally {
        let smoothing = match loss {
            Loss::SparseCrossEntropy { smoothing } | Loss::CrossEntropy { smoothing } => f64::from(smoothing),
            Loss::BinaryCrossEntropy | Loss::MeanSquaredError | Loss::Custom => 0.0,
        };
        let labels = LabelKind::of(loss);
        let classes = match labels {
            LabelKind::Classes => width,
            LabelKind::Masks => 2,
            LabelKind::Values | LabelKind::Custom | LabelKind::Several => 0,
        };
        let overlaps = vec![Overlap::default(); classes];
        Tally { labels, smoothing, count: 0, loss: 0.0, right: 0, in_top5: 0, absolute: 0.0, overlaps }
    }

    /// Whether its scores have this one.
    pub fn has(&self, metric: Metric) -> bool {
        match metric {
            Metric::Loss => true,
            Metric::Accuracy | Metric::MeanIou => matches!(self.labels, LabelKind::Classes | LabelKind::Masks),
            Metric::Top5 => self.overlaps.len() > 5,
            Metric::Perplexity => self.labels == LabelKind::Classes,
            Metric::MeanAbsoluteError => self.labels == LabelKind::Values,
        }
    }

    /// Adds rows of logits with their labels, as many as there are of both.
    pub fn add_classes(&mut self, logits: &[f32], labels: &[i32]) -> Result<()> {
        let classes = self.overlaps.len().max(1);
        check_counts(logits.len(), labels.len() * classes)?;
        for (row, &label) in logits.chunks_exact(classes).zip(labels) {
            let known = usize::try_from(label).ok().filter(|label| *label < classes);
            let label = known.ok_or(TrainError::Label { label: i64::from(label), classes })?;
            let at_label = |weight: f64| weight * (log_sum_exp(row) - f64::from(row[label]));
            self.loss += if self.smoothing == 0.0 {
                at_label(1.0)
            } else {
                let spread = log_sum_exp(row) - row.iter().map(|&x| f64::from(x)).sum::<f64>() / classes as f64;
                at_label(1.0 - self.smoothing) + self.smoothing * spread
            };
            self.rank(row, label);
        }
        Ok(())
    }

    /// Adds rows of logits with a distribution over the classes for each; the largest of it counts as the label.
    pub fn add_distributions(&mut self, logits: &[f32], labels: &[f32]) -> Result<()> {
        let classes = self.overlaps.len().max(1);
        check_counts(logits.len(), labels.len())?;
        for (row, label) in logits.chunks_exact(classes).zip(labels.chunks_exact(classes)) {
            let whole = log_sum_exp(row);
            let smooth = |y: f32| (1.0 - self.smoothing) * f64::from(y) + self.smoothing / classes as f64;
            self.loss += row.iter().zip(label).map(|(&x, &y)| smooth(y) * (whole - f64::from(x))).sum::<f64>();
            self.rank(row, best(label));
        }
        Ok(())
    }

    fn rank(&mut self, row: &[f32], label: usize) {
        let rank = rank(row, label);
        self.right += u64::from(rank == 0);
        self.in_top5 += u64::from(rank < 5);
        self.overlap(best(row), label);
    }

    /// Adds logits of masks with their labels, element by element.
    pub fn add_masks(&mut self, logits: &[f32], labels: &[f32]) -> Result<()> {
        check_counts(logits.len(), labels.len())?;
        for (&logit, &label) in logits.iter().zip(labels) {
            let (x, y) = (f64::from(logit), f64::from(label));
            self.loss += x.max(0.0) - x * y + (-x.abs()).exp().ln_1p();
            // A logit above zero is a probability above one half.
            let (predicted, labelled) = (usize::from(logit > 0.0), usize::from(label >= 0.5));
            self.right += u64::from(predicted == labelled && !logit.is_nan());
            self.overlap(predicted, labelled);
        }
        Ok(())
    }

    /// Adds predicted values with the true ones, element by element.
    pub fn add_values(&mut self, values: &[f32], labels: &[f32]) -> Result<()> {
        check_counts(values.len(), labels.len())?;
        for (&value, &label) in values.iter().zip(labels) {
            let difference = f64::from(value) - f64::from(label);
            self.loss += difference * difference;
            self.absolute += difference.abs();
            self.count += 1;
        }
        Ok(())
    }

    /// Adds losses that the graph made, one for each row.
    pub fn add_losses(&mut self, losses: &[f32]) {
        self.loss += losses.iter().map(|&loss| f64::from(loss)).sum::<f64>();
        self.count += losses.len() as u64;
    }

    fn overlap(&mut self, predicted: usize, labelled: usize) {
        self.count += 1;
        self.overlaps[predicted].predicted += 1;
        self.overlaps[labelled].labelled += 1;
        self.overlaps[labelled].both += u64::from(predicted == labelled);
    }

    /// None of nothing.
    pub fn scores(&self) -> Option<Scores> {
        let count = (self.count > 0).then_some(self.count as f64)?;
        let met = self.overlaps.iter().filter(|o| o.predicted + o.labelled > 0);
        let ious: Vec<f64> = met.map(|o| o.both as f64 / (o.predicted + o.labelled - o.both) as f64).collect();
        let share = |metric, value: f64| self.has(metric).then_some(value);
        Some(Scores {
            labels: self.labels,
            count: self.count,
            loss: self.loss / count,
            accuracy: share(Metric::Accuracy, self.right as f64 / count),
            top5: share(Metric::Top5, self.in_top5 as f64 / count),
            mean_iou: share(Metric::MeanIou, ious.iter().sum::<f64>() / ious.len() as f64),
            mean_absolute_error: share(Metric::MeanAbsoluteError, self.absolute / count),
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

    const SPARSE: Loss = Loss::SparseCrossEntropy { smoothing: 0.0 };

    fn classes(width: usize, logits: &[f32], labels: &[i32]) -> Scores {
        let mut tally = Tally::new(SPARSE, width);
        tally.add_classes(logits, labels).expect("they fit");
        tally.scores().expect("there are some")
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
        let mut tally = Tally::new(Loss::BinaryCrossEntropy, 1);
        tally.add_masks(&[2.0, -2.0], &[1.0, 1.0]).expect("they fit");
        tally.add_masks(&[3.0, -3.0], &[0.0, 0.0]).expect("they fit");
        let scores = tally.scores().expect("there are some");
        let softplus = |x: f64| x.exp().ln_1p();
        let loss = (softplus(-2.0) + softplus(2.0) + softplus(3.0) + softplus(-3.0)) / 4.0;
        // Foreground: one of three; background: one of three.
        assert!(close(scores.loss, loss) && has(scores.accuracy, 0.5) && has(scores.mean_iou, 1.0 / 3.0));
        assert_eq!((scores.top5, scores.perplexity(), scores.count), (None, None, 4));
        let mut right = Tally::new(Loss::BinaryCrossEntropy, 1);
        right.add_masks(&[5.0, 1.0], &[1.0, 1.0]).expect("they fit");
        assert!(has(right.scores().expect("there are some").mean_iou, 1.0), "a class that nobody names does not count");
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let logits: Vec<f32> = (0..60).map(|i| ((i * 29) % 23) as f32 / 3.0).collect();
        let labels: Vec<i32> = (0..10).map(|i| i % 6).collect();
        let mut parts = Tally::new(SPARSE, 6);
        for (rows, labels) in logits.chunks(18).zip(labels.chunks(3)) {
            parts.add_classes(rows, labels).expect("they fit");
        }
        assert_eq!(parts.scores(), Some(classes(6, &logits, &labels)));
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
        let mut tally = Tally::new(SPARSE, 3);
        let fail = |result: Result<()>| result.expect_err("it does not fit").to_string();
        assert!(fail(tally.add_classes(&[0.0; 3], &[3])).contains("label 3 is outside of 0..3"));
        assert!(fail(tally.add_classes(&[0.0; 3], &[-1])).contains("label -1 is outside of 0..3"));
        assert!(fail(tally.add_classes(&[0.0; 4], &[0])).contains("4 logits"));
        assert_eq!(tally.scores(), None);
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
            let mut sparse = Tally::new(Loss::SparseCrossEntropy { smoothing }, 3);
            sparse.add_classes(&logits, &[2, 0]).expect("they fit");
            let mut soft = Tally::new(Loss::CrossEntropy { smoothing }, 3);
            soft.add_distributions(&logits, &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]).expect("they fit");
            let (sparse, soft) = (sparse.scores().expect("two"), soft.scores().expect("two"));
            assert!(close(sparse.loss, soft.loss) && sparse.accuracy == soft.accuracy, "{sparse:?} {soft:?}");
        }
    }

    #[test]
    fn values_have_a_squared_and_an_absolute_error_and_no_accuracy() {
        let mut tally = Tally::new(Loss::MeanSquaredError, 1);
        tally.add_values(&[1.0, 5.0], &[0.0, 2.0]).expect("they fit");
        let scores = tally.scores().expect("two");
        assert!(close(scores.loss, 5.0) && has(scores.mean_absolute_error, 2.0), "{scores:?}");
        assert_eq!((scores.accuracy, scores.mean_iou, scores.perplexity(), scores.count), (None, None, None, 2));
    }
}
