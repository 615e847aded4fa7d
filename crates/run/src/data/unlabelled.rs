//! Data that a model is to say something of: read as the training set was, without their labels, which need not be there.

use std::path::Path;
use std::sync::Arc;

use memfit::data::sources::{Csv, CsvLayout, TfRecord};
use memfit::data::{BytePool, Source};
use memfit::nn::ZooModel;

use super::arrays::ArrayNames;
use super::{Kind, Schema, bad_path, input_feature, npz, table};
use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::text::count;

/// Rows with the one field `x`.
pub struct Unlabelled {
    pub kind: Kind,
    pub source: Arc<dyn Source>,
    /// The table that they stand in, whose rows can be written out again.
    pub table: Option<Arc<Csv>>,
}

/// Opens a table, arrays or records. `kind` is what they are, which need not be what the model was trained on, `inputs` how many
/// numbers it reads.
pub fn open_unlabelled(
    kind: Kind,
    path: &Path,
    config: &RunConfig,
    schema: &Schema,
    inputs: usize,
    pool: &BytePool,
) -> Result<Unlabelled> {
    let (source, table): (Arc<dyn Source>, _) = match kind {
        Kind::Csv => {
            let table = Arc::new(open_table(path, config, schema, inputs, pool)?);
            (table.clone(), Some(table))
        }
        Kind::Npz => {
            let mut usual = ArrayNames::usual(&config.data);
            if !path.is_file() || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npz")) {
                usual = usual.of_test(path, &config.data, pool)?;
            }
            let mut arrays = usual.open_features(path, pool)?;
            let task = ZooModel::from_name(config.model.name.as_deref().unwrap_or_default())?.task();
            npz::turn_channels(&mut arrays, &usual, task, config)?;
            (Arc::new(arrays), None)
        }
        Kind::TfRecord => {
            let records = TfRecord::glob(&path.to_string_lossy(), vec![input_feature(config)], pool)?;
            (Arc::new(records), None)
        }
        other => return Err(RunError::conflict(format!("{} are no rows", other.name()))),
    };
    Ok(Unlabelled { kind, source, table })
}

/// A table whose columns are found by the names of the training set's; without names it has the features alone, or also the
/// label where that stood.
fn open_table(path: &Path, config: &RunConfig, schema: &Schema, inputs: usize, pool: &BytePool) -> Result<Csv> {
    let separator = table::separator(path);
    let csv = Csv::open(path, CsvLayout { header: false, separator, ..CsvLayout::default() }, pool)?;
    if let Some(columns) = &schema.columns {
        let mut csv = csv.with_layout(CsvLayout { header: true, separator, ..CsvLayout::default() }, pool)?;
        csv.select(&columns.features, pool)?;
        return Ok(csv);
    }
    let seen = csv.first_lines(&[], pool)?;
    let header = config.data.header.filter(|_| config.is_overridden("data", "header"));
    let header = header.unwrap_or(seen.first.is_header());
    let mut csv = csv.with_layout(CsvLayout { header, separator, ..CsvLayout::default() }, pool)?;
    let labels: Vec<usize> = config.data.label.iter().filter_map(|label| label.parse().ok()).collect();
    let labels = if labels.is_empty() { vec![0] } else { labels };
    let weight = config.data.sample_weight.as_ref().and_then(|weight| weight.parse().ok());
    let (has, beside) = (csv.columns().len(), labels.len() + usize::from(weight.is_some()));
    let skipped: Vec<usize> = match has {
        _ if has == inputs => Vec::new(),
        _ if has == inputs + beside => labels.into_iter().chain(weight).collect(),
        _ => {
            let has = count(has, "column");
            return Err(bad_path(path, &format!("it has {has}, and the model reads {inputs}; leave out the others")));
        }
    };
    let columns = csv.columns().iter().enumerate().filter(|(i, _)| !skipped.contains(i));
    let features: Vec<String> = columns.map(|(_, name)| name.clone()).collect();
    csv.select(&features, pool)?;
    Ok(csv)
}
