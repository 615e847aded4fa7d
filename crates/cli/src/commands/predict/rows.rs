//! What a model says of each row of a table, of arrays or of records. Of a table that goes to a file, each row is written again
//! with the answer behind it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use memfit::data::sources::Csv;
use memfit::data::{BytePool, Example, LoadOptions, Loader};
use memfit::nn::HeadInfo;
use memfit::nn::zoo::Task;
use memfit::train::views;
use memfit_run::data::{self, Kind, Unlabelled, open_unlabelled, same_data};
use memfit_run::run_dir::Trained;
use memfit_run::task_words;
use memfit_run::text::count;
use memfit_run::train::skip_bad;
use serde_json::{Value, json};

use super::written::{Line, Written, cell};
use crate::args::PredictArgs;
use crate::failure::usage;
use crate::output::outln;
use crate::show::scores::significant;
use crate::wording::bad_sample;

pub fn predict(mut trained: Trained, args: &PredictArgs, kind: Kind, json: bool) -> Result<()> {
    let path = &args.files[0];
    check_kind(&trained, path)?;
    let pool = trained.run.pool.clone();
    let inputs = trained.run.model.input()?.iter().product();
    let schema = same_data::schema(&trained.folder)?;
    let Unlabelled { kind, source, table } = open_unlabelled(kind, path, &trained.run.config, &schema, inputs, &pool)?;
    let data = data::rows_alone(kind, source, &trained.run, trained.session.plan().batch)?;
    let bad = skip_bad(&trained.run.config);
    let options = LoadOptions { threads: trained.run.threads, bad, ..LoadOptions::new(pool.clone()) };
    let mut loader = Loader::new(&data, options)?;
    let given = Answers::new(&trained, args.top)?;
    let mut written = Written::new(args.out.as_deref(), json, true)?;
    // On the screen nobody wants the table again.
    let table = table.filter(|_| args.out.is_some());
    let table = table.map(|table| Table { table, pool });
    written.header(&match &table {
        Some(table) => format!("{}{}", table.head()?, given.columns()),
        None => format!("row,{}", given.columns()),
    })?;
    let mut predicted = 0;
    while let Some(batch) = loader.next()? {
        for (row, numbers) in answers(&mut trained, &batch)? {
            let again = table.as_ref().map(|table| table.row(row)).transpose()?;
            written.line(&Row { row, again, answer: given.of(&trained, &numbers) })?;
            predicted += 1;
        }
    }
    let left_out = loader.skipped();
    let out = written.end()?;
    if json {
        if out.is_some() || left_out.count > 0 {
            let out = out.map(|path| path.display().to_string());
            outln!(
                "{}",
                json!({ "event": "done", "predicted": predicted, "skipped_samples": left_out.count, "written": out })
            );
        }
    } else if let Some(path) = out {
        outln!("{} in {}", count(predicted, "prediction"), path.display());
        left_out.first.iter().for_each(|bad| outln!("left out {}", bad_sample(bad)));
    }
    Ok(())
}

/// Rows have one answer each.
fn check_kind(trained: &Trained, path: &Path) -> Result<()> {
    match trained.run.model.task() {
        Task::Classes | Task::Values => Ok(()),
        task => {
            let (name, path) = (&trained.run.name, path.display());
            Err(usage(format!("{name} {}; predict has no use for {path}: name pictures", task_words(task))))
        }
    }
}

/// A table that is written again.
struct Table {
    table: Arc<Csv>,
    pool: BytePool,
}

impl Table {
    /// The names of its columns; or, where it names none, their numbers.
    fn head(&self) -> Result<String> {
        let columns = self.table.columns().iter().map(|name| format!("{},", cell(name)));
        Ok(columns.collect())
    }

    /// A row, with commas between its cells.
    fn row(&self, row: usize) -> Result<String> {
        let text = self.table.row_text(Some(row), &self.pool)?;
        Ok(match self.table.layout().separator {
            b',' => text,
            other => text.replace(char::from(other), ","),
        })
    }
}

/// A row with what is predicted of it.
struct Row {
    row: usize,
    /// As it stood in its table.
    again: Option<String>,
    answer: Answer,
}

impl Line for Row {
    fn words(&self) -> String {
        self.csv()
    }

    fn csv(&self) -> String {
        let answer = self.answer.cells();
        match &self.again {
            Some(row) => format!("{row},{answer}"),
            None => format!("{},{answer}", self.row),
        }
    }

    fn json(&self) -> Value {
        let mut event = json!({ "event": "prediction", "row": self.row });
        self.answer.put_json(&mut event);
        event
    }
}

/// What the model says of each row of a batch, with the number of that row in its source.
pub fn answers(trained: &mut Trained, batch: &Example) -> Result<Vec<(usize, Vec<f32>)>> {
    let inputs: Vec<_> = views(batch).into_iter().filter(|(name, _)| *name != data::ROW).collect();
    let said = trained.session.predict(&inputs, "logits")?;
    let numbers = said.shape[1..].iter().product::<usize>().max(1);
    let rows = batch.get(data::ROW)?.bytes().as_chunks().0.iter().map(|b| i32::from_ne_bytes(*b) as usize);
    Ok(rows.zip(said.numbers.chunks(numbers).map(<[f32]>::to_vec)).collect())
}

/// What a model says of one sample.
pub enum Answer {
    /// The most likely classes.
    Classes(Vec<Class>),
    /// Numbers in the unit of their labels, by name.
    Values(Vec<(String, f64)>),
}

impl Answer {
    pub fn words(&self) -> String {
        let all: Vec<String> = match self {
            Answer::Classes(classes) => classes.iter().map(Class::words).collect(),
            Answer::Values(values) => {
                values.iter().map(|(name, value)| format!("{name} {}", significant(*value))).collect()
            }
        };
        all.join("  ")
    }

    /// As cells of a CSV.
    pub fn cells(&self) -> String {
        match self {
            Answer::Classes(classes) => Class::cells(classes),
            // No more digits than the model has.
            Answer::Values(values) => {
                values.iter().map(|(_, value)| (*value as f32).to_string()).collect::<Vec<_>>().join(",")
            }
        }
    }

    pub fn put_json(&self, event: &mut Value) {
        match self {
            Answer::Classes(classes) => Class::put_json(classes, event),
            Answer::Values(values) => {
                event["values"] = values.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
            }
        }
    }
}

/// Makes answers of what a model gives.
pub enum Answers {
    Classes(Ranked),
    Values { names: Vec<String>, head: HeadInfo },
}

impl Answers {
    pub fn new(trained: &Trained, top: Option<usize>) -> Result<Answers> {
        if trained.run.model.task() != Task::Values {
            return Ok(Answers::Classes(Ranked::new(trained, top)?));
        }
        let columns = same_data::schema(&trained.folder)?.columns;
        let names = columns.map_or_else(
            || (1..=trained.run.model.classes()).map(|n| n.to_string()).collect(),
            |columns| columns.labels,
        );
        match trained.run.heads()?.pop() {
            Some(head) => Ok(Answers::Values { names, head }),
            None => Err(usage("the model gives nothing")),
        }
    }

    /// As the header of a CSV.
    pub fn columns(&self) -> String {
        match self {
            Answers::Classes(ranked) => ranked.columns(),
            Answers::Values { names, .. } => {
                names.iter().map(|name| cell(&format!("predicted_{name}"))).collect::<Vec<_>>().join(",")
            }
        }
    }

    pub fn of(&self, trained: &Trained, outputs: &[f32]) -> Answer {
        match self {
            Answers::Classes(ranked) => Answer::Classes(ranked.classes(trained, outputs)),
            Answers::Values { names, head } => {
                let value = |(i, output): (usize, &f32)| {
                    let predicted = head.loss.prediction(f64::from(*output));
                    head.units.get(i).map_or(predicted, |unit| unit.original(predicted))
                };
                Answer::Values(names.iter().cloned().zip(outputs.iter().enumerate().map(value)).collect())
            }
        }
    }
}

/// A class that the model thinks of.
pub struct Class {
    name: String,
    index: usize,
    probability: f64,
}

impl Class {
    pub fn words(&self) -> String {
        format!("{}  {:.2} %", self.name, self.probability * 100.0)
    }

    /// Of all, the names and probabilities as cells of a CSV.
    pub fn cells(all: &[Class]) -> String {
        let cells: Vec<String> = all.iter().map(|c| format!("{},{:.6}", cell(&c.name), c.probability)).collect();
        cells.join(",")
    }

    /// The first as what is predicted; where more were asked for, all of them.
    pub fn put_json(all: &[Class], event: &mut Value) {
        let json = |c: &Class| json!({ "class": c.name, "index": c.index, "probability": c.probability });
        if let (Some(first), Some(event)) = (all.first(), event.as_object_mut()) {
            event.extend(json(first).as_object_mut().map(std::mem::take).into_iter().flatten());
        }
        if all.len() > 1 {
            event["top"] = all.iter().map(json).collect();
        }
    }
}

/// The most likely classes.
pub struct Ranked {
    top: usize,
}

impl Ranked {
    pub fn new(trained: &Trained, top: Option<usize>) -> Result<Ranked> {
        let classes = trained.run.model.classes();
        match top {
            Some(top) if top == 0 || top > classes => {
                Err(usage(format!("--top {top}: there are {}; give 1 to {classes}", count(classes, "class"))))
            }
            top => Ok(Ranked { top: top.unwrap_or(1) }),
        }
    }

    /// As the header of a CSV.
    pub fn columns(&self) -> String {
        let more = (2..=self.top).map(|n| format!(",class_{n},probability_{n}"));
        format!("class,probability{}", more.collect::<String>())
    }

    pub fn classes(&self, trained: &Trained, logits: &[f32]) -> Vec<Class> {
        let class = |(index, probability)| Class { name: trained.class(index), index, probability };
        most_likely(logits, self.top).into_iter().map(class).collect()
    }
}

/// The most likely classes with their probabilities; of those that are equally likely, the first.
fn most_likely(logits: &[f32], top: usize) -> Vec<(usize, f64)> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - most).exp()).sum();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    order.truncate(top);
    order.into_iter().map(|at| (at, f64::from(logits[at] - most).exp() / sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::most_likely;

    #[test]
    fn the_most_likely_classes_are_told_with_their_probabilities() {
        let likely = most_likely(&[0.0, (3f32).ln(), 0.0], 2);
        assert_eq!([likely[0].0, likely[1].0], [1, 0]);
        assert!((likely[0].1 - 0.6).abs() < 1e-6 && (likely[1].1 - 0.2).abs() < 1e-6);
        assert_eq!(most_likely(&[1000.0, 0.0], 1), [(0, 1.0)]);
    }
}
