//! Tables: whether the first line names the columns and which column is the label, as it is said, as the training set has it, or
//! as the first lines look. What was found out is written into the folder of a run, so that it holds from then on.

use std::path::Path;
use std::sync::Arc;

use memfit::data::sources::{Column, Csv, CsvLayout, FirstLine, FirstLines, Label};
use memfit::data::{BytePool, CsvProblem, DataError, OnBad};

use super::{Columns, DataFacts, DataSurvey, KnownSource, Schema, SeenClasses};
use crate::config::RunConfig;
use crate::error::{Result, RunError};

/// What the label is called where there are names, and nobody says which.
const LABEL: &str = "label";

/// A table, with the classes and columns of the training set where those are known.
pub(super) fn open(path: &Path, config: &RunConfig, schema: Option<&Schema>, pool: &BytePool) -> Result<KnownSource> {
    let columns = schema.and_then(|schema| schema.columns.as_ref());
    let separator = separator(path);
    let csv = Csv::open(path, CsvLayout { header: false, separator, label: None }, pool)?;
    let name = known_label(config, schema).map_or(LABEL, String::as_str);
    let seen = csv.first_lines(&[name], pool)?;
    let header = has_header(path, config, schema, seen.first)?;
    let label = Some(Label::Class(label(path, header, seen, config, schema)?));
    let layout = CsvLayout { header, separator, label };
    let csv = arranged(csv, layout, columns.filter(|_| header), pool);
    let mut csv = csv.map_err(|error| or_header(error, path, config, schema, seen.first))?;
    if let Some((column, example)) = csv.word_feature(pool)? {
        return Err(DataError::Csv { path: path.into(), problem: CsvProblem::Words { column, example } }.into());
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

/// What stands between cells.
pub(super) fn separator(path: &Path) -> u8 {
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv")) { b'\t' } else { b',' }
}

/// The table in a layout, with its features in the order of these columns.
fn arranged(csv: Csv, layout: CsvLayout, columns: Option<&Columns>, pool: &BytePool) -> Result<Csv> {
    let mut csv = csv.with_layout(layout, pool)?;
    if let Some(columns) = columns {
        csv.arrange(&columns.features, pool)?;
    }
    Ok(csv)
}

/// Whether the first line names the columns. All tables of a run are alike in that, unless it is said of one.
fn has_header(path: &Path, config: &RunConfig, schema: Option<&Schema>, seen: FirstLine) -> Result<bool> {
    if let Some(said) = config.data.header {
        // No row of numbers has words above it.
        let has_names = matches!(seen, FirstLine::Named | FirstLine::WordsAboveNumbers);
        return if !said && has_names && is_other_table(path, config, schema) {
            Err(RunError::HeaderDiffers { path: path.into(), has_header: true })
        } else {
            Ok(said)
        };
    }
    // Of the folder of a run that does not say it, nobody looked: it was taken for a header.
    if config.resumed_folder().is_some() {
        return Ok(true);
    }
    match schema.map(|schema| schema.columns.is_some()) {
        Some(has_header) if has_header != seen.is_header() => {
            Err(RunError::HeaderDiffers { path: path.into(), has_header: !has_header })
        }
        Some(_) | None => Ok(seen.is_header()),
    }
}

/// Whether a table is none that the run itself names, and nobody said of this one whether it has a header.
fn is_other_table(path: &Path, config: &RunConfig, schema: Option<&Schema>) -> bool {
    let is_of_run = config.data.test.as_deref() == Some(path) || config.data.train.as_deref() == Some(path);
    schema.is_some() && config.resumed_folder().is_some() && !is_of_run && !config.is_overridden("data", "header")
}

/// What is wrong with a table that was read with a header and seems to have none is that.
fn or_header(error: RunError, path: &Path, config: &RunConfig, schema: Option<&Schema>, seen: FirstLine) -> RunError {
    if config.data.header == Some(true) && !seen.is_header() && is_other_table(path, config, schema) {
        return RunError::HeaderDiffers { path: path.into(), has_header: false };
    }
    error
}

/// The label of the run, unless it is said of this table.
fn known_label<'a>(config: &'a RunConfig, schema: Option<&'a Schema>) -> Option<&'a String> {
    let said = config.data.label.as_ref();
    let known = schema.and_then(|schema| schema.columns.as_ref()).map(|columns| &columns.label);
    if config.is_overridden("data", "label") { said.or(known) } else { known.or(said) }
}

/// The label is where it was said to be; of other tables of the run, in the same column. By itself it is called so, or the
/// one column that has words, which could be nothing else, or the first.
fn label(path: &Path, header: bool, seen: FirstLines, config: &RunConfig, schema: Option<&Schema>) -> Result<Column> {
    let number = schema.and_then(|schema| schema.label);
    Ok(match known_label(config, schema) {
        // Of a table without names, the number of a column that the run knows by its name is not known.
        Some(name) if !header && name.parse::<usize>().is_err() && schema.is_some() => {
            return Err(RunError::LabelNumber { path: path.into(), label: name.clone() });
        }
        Some(name) => Column::Name(name.clone()),
        None if header => Column::Name(LABEL.into()),
        None if config.resumed_folder().is_some() => Column::Number(0),
        None => Column::Number(number.or(seen.word_column).unwrap_or(0)),
    })
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
