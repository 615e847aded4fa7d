//! How a run went, as curves: read from its folder, whether it still goes on or not.

use std::path::Path;

use memfit::ZooModel;
use memfit::nn::zoo::Task;
use memfit::profile::Curve;
use memfit::train::Metric;
use memfit::train::history::{Row, RowKind, is_kept, read};
use memfit::train::run_dir::HISTORY;

use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::goal::{Goal, goal};

/// Each curve, the kind of the rows that it is read from and their column.
const CURVES: [(&str, RowKind, &str); 14] = [
    ("loss", RowKind::Step, "loss"),
    ("epoch loss", RowKind::Epoch, "loss"),
    ("test loss", RowKind::Eval, "test_loss"),
    ("test accuracy", RowKind::Eval, "test_accuracy"),
    ("test top5", RowKind::Eval, "test_top5"),
    ("test mean IoU", RowKind::Eval, "test_mean_iou"),
    ("test perplexity", RowKind::Eval, "test_perplexity"),
    ("test MAE", RowKind::Eval, "test_mae"),
    ("test RMSE", RowKind::Eval, "test_rmse"),
    ("test R²", RowKind::Eval, "test_r2"),
    ("learning rate", RowKind::Step, "learning_rate"),
    ("samples/s", RowKind::Step, "samples_per_s"),
    ("live peak bytes", RowKind::Step, "live_peak_bytes"),
    ("process bytes", RowKind::Step, "process_bytes"),
];

/// The metrics that say something of a task, and the one that a run follows.
pub fn metrics(task: Task, monitor: Option<&str>) -> Vec<Metric> {
    let of_task: &[Metric] = match task {
        Task::Classes => &[Metric::Loss, Metric::Accuracy, Metric::Top5],
        Task::Tokens => &[Metric::Loss, Metric::Accuracy, Metric::Perplexity],
        Task::Masks | Task::PixelClasses => &[Metric::Loss, Metric::Accuracy, Metric::MeanIou],
        Task::Values => &[Metric::Loss, Metric::MeanAbsoluteError, Metric::RootMeanSquaredError, Metric::R2],
    };
    let followed = monitor.and_then(Metric::from_name);
    Metric::ALL.into_iter().filter(|metric| of_task.contains(metric) || followed == Some(*metric)).collect()
}

fn rows(folder: &Path) -> Result<Vec<Row>> {
    let bad = |e: std::io::Error| RunError::BadFile { path: folder.join(HISTORY), problem: e.to_string() };
    read(folder).map_err(bad)
}

/// The last step that the history of a run has, where it lacks later ones of its first so many steps.
pub fn lost_after(folder: &Path, steps: u32) -> Result<Option<u32>> {
    let Some(last) = (1..=steps).rev().find(|step| is_kept(*step)) else { return Ok(None) };
    let known = rows(folder)?.into_iter().filter(|row| row.kind == RowKind::Step && row.step <= steps);
    let ends = known.map(|row| row.step).max().unwrap_or(0);
    Ok((ends < last).then_some(ends))
}

/// The curves that a run's folder has; none for a run that never began, or was made before they were kept.
pub fn curves(folder: &Path) -> Result<Vec<Curve>> {
    let rows = rows(folder)?;
    // Of a folder that is not known any more, all that is there.
    let shown = RunConfig::resume(folder).ok().and_then(|config| {
        let task = match goal(&config) {
            Ok(Goal::Values) => Task::Values,
            _ => ZooModel::from_name(config.model.name.as_deref()?).ok()?.task(),
        };
        Some(metrics(task, config.train.monitor.as_deref()))
    });
    let is_shown = |column: &str| match (column.strip_prefix("test_"), &shown) {
        (Some(name), Some(shown)) => shown.iter().any(|metric| metric.name() == name),
        _ => true,
    };
    let curve = |(name, kind, column): (&str, RowKind, &str)| {
        let value = |row: &Row| Some((u64::from(row.step), row.get(column).filter(|v| v.is_finite())?));
        Curve { name: name.into(), points: rows.iter().filter(|r| r.kind == kind).filter_map(value).collect() }
    };
    Ok(CURVES
        .into_iter()
        .filter(|(_, _, column)| is_shown(column))
        .map(curve)
        .filter(|c| !c.points.is_empty())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_its_metrics_and_the_one_that_is_followed() {
        let names = |task, monitor| metrics(task, monitor).iter().map(|m| m.name()).collect::<Vec<_>>();
        assert_eq!(names(Task::Classes, None), ["loss", "accuracy", "top5"]);
        assert_eq!(names(Task::Tokens, None), ["loss", "accuracy", "perplexity"]);
        assert_eq!(names(Task::Masks, Some("mean_iou")), ["loss", "accuracy", "mean_iou"]);
        assert_eq!(names(Task::Values, Some("mae")), ["loss", "mae", "rmse", "r2"]);
        assert_eq!(names(Task::Classes, Some("mean_iou")), ["loss", "accuracy", "top5", "mean_iou"]);
    }
}
