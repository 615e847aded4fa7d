//! Tables: whether the first line names the columns and which column is the label, as it is said, as the training set has it, or
//! as the first lines look. What was found out is written into the folder of a run, so that it holds from then on.

use std::path::Path;
use std::sync::Arc;

use memfit::data::sources::{Column, Csv, CsvLayout, FirstLine, FirstLines, Label};
use memfit::data::{BytePool, CsvProblem, DataError, OnBad};
use memfit::nn::Loss;

use super::{Columns, DataFacts, DataSurvey, KnownSource, Schema, SeenClasses};
use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::goal::{Goal, goal, value_loss};
use crate::train::skip_bad;

/// What the label is called where there are names, and nobody says which.
const LABEL: &str = "label";

/// A table, with the classes and columns of the training set where those are known.
pub(super) fn open(path: &Path, config: &RunConfig, schema: Option<&Schema>, pool: &BytePool) -> Result<KnownSource> {
    let columns = schema.and_then(|schema| schema.columns.as_ref());
    let separator = separator(path);
    let bare = CsvLayout { header: false, separator, ..CsvLayout::default() };
    let csv = Csv::open(path, bare.clone(), pool)?;
    let known = known_labels(config, schema);
    let names: Vec<&str> = if known.is_empty() { vec![LABEL] } else { known.iter().flat_map(|n| parts(n)).collect() };
    let seen = csv.first_lines(&names, pool)?;
    let header = has_header(path, config, schema, seen.first)?;
    let csv = csv.with_layout(CsvLayout { header, ..bare }, pool);
    let csv = csv.map_err(|error| or_header(error.into(), path, config, schema, seen.first))?;
    let known = split(known, csv.columns());
    let labels = labels(path, header, seen, config, schema, &known)?;
    let weight = weight_column(config, csv.columns(), schema);
    let goal = goal(config)?;
    let layout = CsvLayout { header, separator, label: Some(label_of(goal, labels.clone())), weight };
    let csv = arranged(csv, layout.clone(), columns.filter(|_| header), pool);
    let mut csv = csv.map_err(|error| or_header(error, path, config, schema, seen.first))?;
    if let Some((column, example)) = csv.word_feature(pool)? {
        return Err(DataError::Csv { path: path.into(), problem: CsvProblem::Words { column, example } }.into());
    }
    let found = if goal == Goal::Values { Found::Values } else { find_labels(&mut csv, goal, config, schema, pool)? };
    let mut facts = DataFacts::default();
    match found {
        Found::Classes(classes) => facts.classes = classes,
        Found::Values => {
            facts.values = Some(labels.len());
            if goal != Goal::Values {
                csv = csv.with_layout(CsvLayout { label: Some(label_of(Goal::Values, labels)), ..layout }, pool)?;
            }
            if skip_bad(config) == OnBad::Fail {
                csv.check_values(value_loss(config) == Loss::Poisson, pool)?;
            }
        }
    }
    if schema.is_none() && skip_bad(config) == OnBad::Fail {
        csv.check_weights(pool)?;
    }
    facts.sample = Some(vec![csv.feature_columns().count()]);
    let first_line = Some(seen.first).filter(|_| config.data.header.is_none() && config.resumed_folder().is_none());
    let survey =
        DataSurvey { classes: csv.class_counts().map(SeenClasses::of_samples), first_line, ..DataSurvey::default() };
    Ok(KnownSource { schema: schema_of(&csv, header), source: Arc::new(csv), facts, survey })
}

/// What a table fixes for others of its run.
fn schema_of(csv: &Csv, header: bool) -> Schema {
    let labels: Vec<String> = csv.label_columns().map(str::to_string).collect();
    let numbers = labels.iter().filter_map(|label| label.parse().ok().filter(|_| !header)).collect();
    let columns = header.then(|| Columns { labels, features: csv.feature_columns().map(str::to_string).collect() });
    Schema { classes: csv.classes().to_vec(), columns, labels: numbers, ..Schema::default() }
}

/// Labels as a goal takes them.
fn label_of(goal: Goal, columns: Vec<Column>) -> Label {
    match (goal, columns) {
        (Goal::Values, columns) => Label::Values(columns),
        (Goal::Usual | Goal::AsFound, columns) => Label::Class(columns.into_iter().next().unwrap_or(Column::Number(0))),
    }
}

/// The names that a text may mean: itself, or several between commas.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    std::iter::once(text).chain(text.split(',').map(str::trim).filter(move |part| *part != text))
}

/// A text that is no column, and between whose commas columns stand, names these.
fn split(labels: Vec<String>, columns: &[String]) -> Vec<String> {
    let is_column = |name: &str| columns.iter().any(|known| known == name) || name.parse::<usize>().is_ok();
    let of = |label: String| match parts(&label).skip(1).map(str::to_string).collect::<Vec<_>>() {
        several if several.len() > 1 && !is_column(&label) => several,
        _ => vec![label],
    };
    labels.into_iter().flat_map(of).collect()
}

/// The column with the weights; of other tables than the training set, where they have it: there it is only no feature.
fn weight_column(config: &RunConfig, columns: &[String], schema: Option<&Schema>) -> Option<Column> {
    let name = config.data.sample_weight.as_ref()?;
    let is_there = columns.contains(name) || name.parse::<usize>().is_ok_and(|number| number < columns.len());
    (schema.is_none() || is_there).then(|| Column::Name(name.clone()))
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

/// The labels of the run, unless they are said of this table.
fn known_labels(config: &RunConfig, schema: Option<&Schema>) -> Vec<String> {
    let said = &config.data.label;
    let known = schema.and_then(|schema| schema.columns.as_ref()).map_or(&[][..], |columns| &columns.labels);
    let [first, second] = if config.is_overridden("data", "label") { [&said[..], known] } else { [known, &said[..]] };
    if first.is_empty() { second.to_vec() } else { first.to_vec() }
}

/// Labels are where they were said to be; of other tables of the run, in the same columns. By itself the label is called so, or
/// it is the one column that has words, which could be nothing else, or the first.
fn labels(
    path: &Path,
    header: bool,
    seen: FirstLines,
    config: &RunConfig,
    schema: Option<&Schema>,
    known: &[String],
) -> Result<Vec<Column>> {
    // Of a table without names, the number of a column that the run knows by its name is not known.
    if let Some(label) = known.iter().find(|name| !header && name.parse::<usize>().is_err() && schema.is_some()) {
        return Err(RunError::LabelNumber { path: path.into(), label: label.clone() });
    }
    let numbers = schema.map_or(&[][..], |schema| &schema.labels);
    Ok(match known {
        [] if header => vec![Column::Name(LABEL.into())],
        [] if config.resumed_folder().is_some() => vec![Column::Number(0)],
        [] if !numbers.is_empty() => numbers.iter().copied().map(Column::Number).collect(),
        [] => vec![Column::Number(seen.word_column.unwrap_or(0))],
        known => known.iter().cloned().map(Column::Name).collect(),
    })
}

/// What the labels of a table are.
enum Found {
    /// With their number, where the model is to have it from here.
    Classes(Option<usize>),
    Values,
}

/// The classes of the training set, or those that it has settled; or numbers, where they are to be taken for what they look
/// like.
fn find_labels(
    csv: &mut Csv,
    goal: Goal,
    config: &RunConfig,
    schema: Option<&Schema>,
    pool: &BytePool,
) -> Result<Found> {
    if let Some(schema) = schema {
        csv.set_classes(&schema.classes, pool)?;
        if schema.classes.is_empty() {
            csv.count_numbers(pool)?;
        }
        return Ok(Found::Classes(None));
    }
    let count = match goal {
        Goal::AsFound => csv.find_classes_or_values(skip_bad(config), pool)?,
        Goal::Usual | Goal::Values => Some(csv.find_classes(skip_bad(config), pool)?),
    };
    let Some(count) = count else { return Ok(Found::Values) };
    // Numbers may well be fewer than the classes that were said.
    let said = config.model.classes.is_some() && csv.classes().is_empty();
    Ok(Found::Classes((!said).then_some(count)))
}
