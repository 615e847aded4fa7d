//! Tables: whether the first line names the columns and which column is the label, as it is said, as the training set has it, or
//! as the first lines look. What was found out is written into the folder of a run, so that it holds from then on.

use std::path::Path;
use std::sync::Arc;

use memfit::data::sources::{Column, Csv, CsvLayout, FirstLine, FirstLines, Label};
use memfit::data::{BytePool, OnBad};

use super::{Columns, DataFacts, DataSurvey, KnownSource, Schema, SeenClasses, bad_path};
use crate::config::RunConfig;
use crate::error::Result;

/// What the label is called where there are names, and nobody says which.
const LABEL: &str = "label";

/// A table, with the classes and columns of the training set where those are known.
pub(super) fn open(path: &Path, config: &RunConfig, schema: Option<&Schema>, pool: &BytePool) -> Result<KnownSource> {
    let columns = schema.and_then(|schema| schema.columns.as_ref());
    let separator = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv")) { b'\t' } else { b',' };
    let csv = Csv::open(path, CsvLayout { header: false, separator, label: None }, pool)?;
    let name = columns.map(|columns| &columns.label).or(config.data.label.as_ref()).map_or(LABEL, String::as_str);
    let seen = csv.first_lines(&[name], pool)?;
    let header = has_header(path, config, schema, seen.first)?;
    let label = Some(Label::Class(label(header, seen, config, schema)));
    let mut csv = csv.with_layout(CsvLayout { header, separator, label }, pool)?;
    if let Some(columns) = columns {
        csv.arrange(&columns.features, pool)?;
    }
    let classes = find_classes(&mut csv, config, schema, pool)?;
    let facts = DataFacts { sample: Some(vec![csv.columns().len() - 1]), classes };
    let label = csv.label_column().unwrap_or_default().to_string();
    let number = label.parse().ok().filter(|_| !header);
    let columns = header.then(|| Columns { label, features: csv.feature_columns().map(str::to_string).collect() });
    let schema = Schema { classes: csv.classes().to_vec(), columns, label: number, ..Schema::default() };
    let first_line = Some(seen.first).filter(|_| config.data.header.is_none() && config.resumed_folder().is_none());
    let survey =
        DataSurvey { classes: csv.class_counts().map(SeenClasses::of_samples), first_line, ..DataSurvey::default() };
    Ok(KnownSource { source: Arc::new(csv), facts, schema, survey })
}

/// Whether the first line names the columns. All tables of a run are alike in that.
fn has_header(path: &Path, config: &RunConfig, schema: Option<&Schema>, seen: FirstLine) -> Result<bool> {
    if let Some(said) = config.data.header {
        return Ok(said);
    }
    // Of the folder of a run that does not say it, nobody looked: it was taken for a header.
    if config.resumed_folder().is_some() {
        return Ok(true);
    }
    match schema.map(|schema| schema.columns.is_some()) {
        Some(true) if !seen.is_header() => Err(bad_path(
            path,
            "its first line has no names of columns, as that of the training set has; add them, or say data.header",
        )),
        Some(false) if seen.is_header() => Err(bad_path(
            path,
            "its first line names the columns, which that of the training set does not; remove it, or say data.header",
        )),
        Some(_) | None => Ok(seen.is_header()),
    }
}

/// The label is where it was said to be; of other tables of the run, in the same column. By itself it is called so, or the
/// one column that has words, which could be nothing else, or the first.
fn label(header: bool, seen: FirstLines, config: &RunConfig, schema: Option<&Schema>) -> Column {
    let known = schema.and_then(|schema| schema.columns.as_ref()).map(|columns| &columns.label);
    let number = schema.and_then(|schema| schema.label);
    match known.or(config.data.label.as_ref()) {
        Some(name) => Column::Name(name.clone()),
        None if header => Column::Name(LABEL.into()),
        None if config.resumed_folder().is_some() => Column::Number(0),
        None => Column::Number(number.or(seen.word_column).unwrap_or(0)),
    }
}

/// The classes of the training set, or those that it has settled; their number, where the model is to have it from here.
fn find_classes(csv: &mut Csv, config: &RunConfig, schema: Option<&Schema>, pool: &BytePool) -> Result<Option<usize>> {
    if let Some(schema) = schema {
        csv.set_classes(&schema.classes, pool)?;
        if schema.classes.is_empty() {
            csv.count_numbers(pool)?;
        }
        return Ok(None);
    }
    let bad = if config.data.skip_bad == Some(true) { OnBad::Skip } else { OnBad::Fail };
    let count = csv.find_classes(bad, pool)?;
    // Numbers may well be fewer than the classes that were said.
    let said = config.model.classes.is_some() && csv.classes().is_empty();
    Ok((!said).then_some(count))
}
