//! How a run went, as curves: read from its folder, whether it still goes on or not.

use std::path::Path;

use memfit::profile::Curve;
use memfit::train::history::{Row, RowKind, read};
use memfit::train::run_dir::HISTORY;

use crate::error::{Result, RunError};

/// Each curve, the kind of the rows that it is read from and their column.
const CURVES: [(&str, RowKind, &str); 12] = [
    ("loss", RowKind::Step, "loss"),
    ("epoch loss", RowKind::Epoch, "loss"),
    ("test loss", RowKind::Eval, "test_loss"),
    ("test accuracy", RowKind::Eval, "test_accuracy"),
    ("test top5", RowKind::Eval, "test_top5"),
    ("test mean IoU", RowKind::Eval, "test_mean_iou"),
    ("test perplexity", RowKind::Eval, "test_perplexity"),
    ("test mean absolute error", RowKind::Eval, "test_mean_absolute_error"),
    ("learning rate", RowKind::Step, "learning_rate"),
    ("samples/s", RowKind::Step, "samples_per_s"),
    ("live peak bytes", RowKind::Step, "live_peak_bytes"),
    ("process bytes", RowKind::Step, "process_bytes"),
];

/// The curves that a run's folder has; none for a run that never began, or was made before they were kept.
pub fn curves(folder: &Path) -> Result<Vec<Curve>> {
    let bad = |e: std::io::Error| RunError::BadFile { path: folder.join(HISTORY), problem: e.to_string() };
    let rows = read(folder).map_err(bad)?;
    let curve = |(name, kind, column): (&str, RowKind, &str)| {
        let value = |row: &Row| Some((u64::from(row.step), row.get(column).filter(|v| v.is_finite())?));
        Curve { name: name.into(), points: rows.iter().filter(|r| r.kind == kind).filter_map(value).collect() }
    };
    Ok(CURVES.into_iter().map(curve).filter(|c| !c.points.is_empty()).collect())
}
