//! Scores of an evaluation, and samples that were skipped.

use memfit::data::SkippedSamples;
use memfit::nn::zoo::Task;
use memfit::train::{Metric, Scores};
use memfit_run::text::count;
use serde_json::Value;

use crate::output::outln;
use crate::wording::bad_sample;

/// The scores that matter for a task, in words.
pub fn words(scores: &Scores, task: Task) -> String {
    if task == Task::Values {
        let errors = [Metric::MeanAbsoluteError, Metric::RootMeanSquaredError, Metric::R2];
        let errors = errors.into_iter().filter_map(|error| Some(format!(", {}", metric(error, scores.get(error)?))));
        return format!("test loss {:.4}{}", scores.loss, errors.collect::<String>());
    }
    let top5 = scores.top5.filter(|_| task == Task::Classes);
    let top5 = top5.map_or(String::new(), |t| format!(", top 5 {:.2} %", t * 100.0));
    format!("test loss {:.4}, {}{top5}", scores.loss, main_score(scores, task))
}

/// The one of them that is looked at first.
pub fn main_score(scores: &Scores, task: Task) -> String {
    match task {
        Task::Classes => format!("accuracy {:.2} %", scores.accuracy.unwrap_or(f64::NAN) * 100.0),
        Task::Tokens => format!("perplexity {:.2}", scores.perplexity().unwrap_or(f64::NAN)),
        Task::Values => metric(Metric::MeanAbsoluteError, scores.mean_absolute_error.unwrap_or(f64::NAN)),
        Task::Masks | Task::PixelClasses => format!("mean IoU {:.4}", scores.mean_iou.unwrap_or(f64::NAN)),
    }
}

/// A metric with its value.
pub fn metric(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Loss => format!("test loss {value:.4}"),
        Metric::Accuracy => format!("accuracy {:.2} %", value * 100.0),
        Metric::Top5 => format!("top 5 {:.2} %", value * 100.0),
        Metric::MeanIou => format!("mean IoU {value:.4}"),
        Metric::Perplexity => format!("perplexity {value:.2}"),
        Metric::MeanAbsoluteError => format!("MAE {}", significant(value)),
        Metric::RootMeanSquaredError => format!("RMSE {}", significant(value)),
        Metric::R2 => format!("R² {value:.4}"),
    }
}

/// With five digits that say something, whatever its unit is.
pub fn significant(value: f64) -> String {
    let before_point = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    format!("{value:.*}", (5 - before_point).clamp(0, 12) as usize)
}

pub fn scores(s: &Scores) -> Value {
    let mut all = serde_json::Map::new();
    for metric in Metric::ALL {
        if let Some(value) = s.get(metric) {
            all.insert(metric.name().into(), value.into());
        }
    }
    all.insert("count".into(), s.count.into());
    all.into()
}

pub fn print_skipped(left_out: &SkippedSamples, set: &str) {
    if left_out.count > 0 {
        outln!("left out {} of the {set} set that could not be read:", count(left_out.count, "sample"));
        left_out.first.iter().for_each(|bad| outln!("  {}", bad_sample(bad)));
    }
}
