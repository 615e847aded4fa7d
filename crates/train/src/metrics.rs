//! What a model is worth: loss, accuracy, top-5, mean IoU and perplexity, from logits and labels on the host. Sums are
//! exact counts or f64, over the rows that are given and no others. It never runs a model.

use memfit_ir::DType;
use memfit_plan::{Phase, Plan};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};

/// The output that a task is judged by, and the input that says what is true.
pub const LOGITS: &str = "logits";
pub const LABELS: &str = "y";

/// What logits and labels mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// A softmax over the last axis; an i32 label for each of the others: of an image, a pixel, a place in a text.
    Classes,
    /// A sigmoid for each element; f32 labels of the same shape, of which half and more is foreground.
    Masks,
}

impl Task {
    /// The task of a zoo model, or of one like them: as its labels say.
    pub fn of(plan: &Plan) -> Option<Task> {
        let graph = &plan.program(Phase::Eval)?.graph;
        let (labels, logits) = (graph.ty(graph.input(LABELS)?), graph.ty(graph.output(LOGITS)?));
        match labels.dtype {
            DType::I32 if labels.shape.rank() + 1 == logits.shape.rank() => Some(Task::Classes),
            DType::F32 if labels.shape == logits.shape => Some(Task::Masks),
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::U8 | DType::Bit => None,
        }
    }
}

/// What can be asked of [`Scores`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Loss,
    Accuracy,
    Top5,
    MeanIou,
    Perplexity,
}

impl Metric {
    pub const ALL: [Metric; 5] = [Metric::Loss, Metric::Accuracy, Metric::Top5, Metric::MeanIou, Metric::Perplexity];

    pub const fn name(self) -> &'static str {
        match self {
            Metric::Loss => "loss",
            Metric::Accuracy => "accuracy",
            Metric::Top5 => "top5",
            Metric::MeanIou => "mean_iou",
            Metric::Perplexity => "perplexity",
        }
    }

    /// Whether `new` is better than `old` by more than `by`. Nothing that is not a number is better than anything.
    pub fn improves(self, new: f64, old: f64, by: f64) -> bool {
        match self {
            Metric::Loss | Metric::Perplexity => new < old - by,
            Metric::Accuracy | Metric::Top5 | Metric::MeanIou => new > old + by,
        }
    }
}

/// Means over what was tallied. Shares are in 0…1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    pub task: Task,
    /// Labels: of images, of pixels, of places in a text.
    pub count: u64,
    #[serde(deserialize_with = "number_or_null")]
    pub loss: f64,
    pub accuracy: f64,
    /// Where there are more than five classes.
    pub top5: Option<f64>,
    /// Over the classes (of masks: foreground and background) that are among the labels or the predictions.
    pub mean_iou: f64,
}

impl Scores {
    pub fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Loss => Some(self.loss),
            Metric::Accuracy => Some(self.accuracy),
            Metric::Top5 => self.top5,
            Metric::MeanIou => Some(self.mean_iou),
            Metric::Perplexity => self.perplexity(),
        }
    }

    /// How many classes the model is undecided between, as it were.
    pub fn perplexity(&self) -> Option<f64> {
        (self.task == Task::Classes).then(|| self.loss.exp())
    }
}

/// JSON has no word for what is not finite, and writes null.
fn number_or_null<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Sums from which [`Scores`] are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    task: Task,
    count: u64,
    loss: f64,
    right: u64,
    in_top5: u64,
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
    /// `classes` is the extent of the last axis of the logits; masks have none.
    pub fn new(task: Task, classes: usize) -> Tally {
        let classes = if task == Task::Masks { 2 } else { classes };
        Tally { task, count: 0, loss: 0.0, right: 0, in_top5: 0, overlaps: vec![Overlap::default(); classes] }
    }

    /// Whether its scores have this one.
    pub fn has(&self, metric: Metric) -> bool {
        match metric {
            Metric::Loss | Metric::Accuracy | Metric::MeanIou => true,
            Metric::Top5 => self.overlaps.len() > 5,
            Metric::Perplexity => self.task == Task::Classes,
        }
    }

    /// Adds rows of logits with their labels, as many as there are of both.
    pub fn add_classes(&mut self, logits: &[f32], labels: &[i32]) -> Result<()> {
        let classes = self.overlaps.len().max(1);
        check_counts(logits.len(), labels.len() * classes)?;
        for (row, &label) in logits.chunks_exact(classes).zip(labels) {
            let known = usize::try_from(label).ok().filter(|label| *label < classes);
            let label = known.ok_or(TrainError::Label { label: i64::from(label), classes })?;
            let rank = rank(row, label);
            self.loss += log_sum_exp(row) - f64::from(row[label]);
            self.right += u64::from(rank == 0);
            self.in_top5 += u64::from(rank < 5);
            self.overlap(best(row), label);
        }
        Ok(())
    }

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
        Some(Scores {
            task: self.task,
            count: self.count,
            loss: self.loss / count,
            accuracy: self.right as f64 / count,
            top5: self.has(Metric::Top5).then_some(self.in_top5 as f64 / count),
            mean_iou: ious.iter().sum::<f64>() / ious.len() as f64,
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

    fn classes(width: usize, logits: &[f32], labels: &[i32]) -> Scores {
        let mut tally = Tally::new(Task::Classes, width);
        tally.add_classes(logits, labels).expect("they fit");
        tally.scores().expect("there are some")
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn classes_are_as_computed_by_hand() {
        // Probabilities 1/2, 1/4, 1/4 and 1/4, 1/4, 1/2 as logits.
        let (l, z) = (2f32.ln(), 0.0);
        let scores = classes(3, &[l, z, z, z, z, l], &[0, 1]);
        assert!((scores.loss - (2f64.ln() + 4f64.ln()) / 2.0).abs() < 1e-7, "{scores:?}");
        assert!((scores.perplexity().expect("of classes") - 8f64.sqrt()).abs() < 1e-6);
        // Class 0 is found once; 1 is missed; 2 is said once and never true.
        assert!(close(scores.mean_iou, 1.0 / 3.0) && close(scores.accuracy, 0.5), "{scores:?}");
        assert_eq!((scores.count, scores.top5), (2, None));
    }

    #[test]
    fn top_five_counts_the_five_largest() {
        let row: Vec<f32> = (0..7).map(|i| i as f32).collect();
        let all: Vec<f32> = row.repeat(7);
        let scores = classes(7, &all, &[0, 1, 2, 3, 4, 5, 6]);
        assert!(close(scores.top5.expect("seven classes"), 5.0 / 7.0) && close(scores.accuracy, 1.0 / 7.0));
    }

    #[test]
    fn masks_are_as_computed_by_hand() {
        let mut tally = Tally::new(Task::Masks, 0);
        tally.add_masks(&[2.0, -2.0], &[1.0, 1.0]).expect("they fit");
        tally.add_masks(&[3.0, -3.0], &[0.0, 0.0]).expect("they fit");
        let scores = tally.scores().expect("there are some");
        let softplus = |x: f64| x.exp().ln_1p();
        let loss = (softplus(-2.0) + softplus(2.0) + softplus(3.0) + softplus(-3.0)) / 4.0;
        // Foreground: one of three; background: one of three.
        assert!(close(scores.loss, loss) && close(scores.accuracy, 0.5) && close(scores.mean_iou, 1.0 / 3.0));
        assert_eq!((scores.top5, scores.perplexity(), scores.count), (None, None, 4));
        let mut right = Tally::new(Task::Masks, 0);
        right.add_masks(&[5.0, 1.0], &[1.0, 1.0]).expect("they fit");
        assert!(
            close(right.scores().expect("there are some").mean_iou, 1.0),
            "a class that nobody names does not count"
        );
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let logits: Vec<f32> = (0..60).map(|i| ((i * 29) % 23) as f32 / 3.0).collect();
        let labels: Vec<i32> = (0..10).map(|i| i % 6).collect();
        let mut parts = Tally::new(Task::Classes, 6);
        for (rows, labels) in logits.chunks(18).zip(labels.chunks(3)) {
            parts.add_classes(rows, labels).expect("they fit");
        }
        assert_eq!(parts.scores(), Some(classes(6, &logits, &labels)));
    }

    #[test]
    fn large_logits_do_not_overflow_and_broken_ones_are_never_right() {
        assert!(close(classes(2, &[3e38, 0.0], &[0]).loss, 0.0));
        let equal = classes(3, &[1.0; 6], &[0, 1]);
        assert!(close(equal.loss, 3f64.ln()) && close(equal.accuracy, 0.5), "a tie goes to the lower class");
        for row in [[f32::NAN, 0.0], [0.0, f32::NAN], [f32::NAN; 2]] {
            let scores = classes(2, &row, &[0]);
            assert!(scores.loss.is_nan() && scores.accuracy == 0.0, "{row:?}: {scores:?}");
        }
        assert!(!Metric::Loss.improves(f64::NAN, 1.0, 0.0) && !Metric::Accuracy.improves(f64::NAN, 0.0, 0.0));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut tally = Tally::new(Task::Classes, 3);
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
}
