//! `memfit models`: what can be named, how large it is, and what can be chosen of it.

use anyhow::Result;
use memfit::nn::Mode;
use memfit::nn::zoo::{Choice, Task};
use memfit::{Model, ZooModel};
use memfit_run::config::{Key, find};
use memfit_run::task_words;
use serde_json::{Value, json};

use crate::args::ModelsArgs;
use crate::failure::usage;
use crate::output::outln;

pub fn models(args: &ModelsArgs, as_json: bool) -> Result<()> {
    if let Some(name) = &args.name {
        return explain(name, as_json);
    }
    if !as_json {
        outln!("{:<22} {:>12}  input", "model", "parameters");
    }
    for name in ZooModel::names() {
        let Sizes { parameters, input } = Sizes::of(&ZooModel::from_name(name)?)?;
        if as_json {
            outln!("{}", json!({ "event": "model", "model": name, "parameters": parameters, "input": input }));
        } else {
            outln!("{name:<22} {parameters:>12}  {input}");
        }
    }
    if !as_json {
        outln!("\n`memfit models NAME` explains one: what can be chosen of it, and how");
    }
    Ok(())
}

/// How large a model is.
struct Sizes {
    parameters: usize,
    /// With its type: "f32 224x224x3".
    input: String,
}

impl Sizes {
    fn of(model: &ZooModel) -> Result<Sizes> {
        let graph = model.build(1, Mode::Train)?.graph;
        let input = graph.input("x").map(|v| graph.ty(v).clone());
        let input = input.map_or(String::new(), |t| format!("{} {}", t.dtype, sizes(&t.shape[1..])));
        Ok(Sizes { parameters: graph.param_count(), input })
    }
}

/// A line of what can be chosen.
struct Row {
    key: &'static Key,
    choice: Choice,
}

impl Row {
    fn option(&self) -> &'static str {
        self.key.option.as_ref().map_or("", |option| option.name)
    }
}

fn explain(name: &str, as_json: bool) -> Result<()> {
    let model = ZooModel::from_name(name).map_err(usage)?;
    let (size, about) = (Sizes::of(&model)?, ZooModel::about(name).unwrap_or_default());
    let rows = rows(&model)?;
    let does = task_words(model.task());
    if as_json {
        let keys: Vec<Value> = rows.iter().map(event).collect();
        let event = json!({ "event": "model", "model": name, "about": about, "does": does, "parameters": size.parameters,
                            "input": size.input, "keys": keys, "example": example(name, &model, &rows) });
        outln!("{event}");
        return Ok(());
    }
    outln!("{name}: {about}");
    outln!("It {does}. By itself it reads {} and has {} parameters.\n", size.input, size.parameters);
    outln!("{:<12} {:<14} {:<14} {:<36} what it does", "[model]", "option", "default", "range");
    for row @ Row { choice, .. } in &rows {
        let (option, value) = (format!("--{}", row.option()), &choice.value);
        outln!("{:<12} {option:<14} {value:<14} {:<36} {}", choice.name, choice.range, choice.meaning);
    }
    outln!("\nBesides, as of every model: weights, freeze and trainable (--weights, --freeze, --trainable).");
    outln!("Example: {}", example(name, &model, &rows));
    Ok(())
}

/// Input and classes, and what the model says itself.
fn rows(model: &ZooModel) -> Result<Vec<Row>> {
    let input = sizes(&model.input()?);
    let pictures = model.input()?.len() == 3;
    let (range, meaning) = if pictures {
        ("height x width x channels", "shape of a sample; pictures are resized to it")
    } else {
        ("numbers", "numbers in a sample; the data say it")
    };
    let choice = |name, value: String, range, meaning| Choice { name, value, range, meaning };
    let classes =
        choice("classes", model.classes().to_string(), "1 and more", "width of what it gives; the data say it");
    let own = match model.task() {
        Task::Tokens => Vec::new(),
        _ => vec![choice("input", input, range, meaning), classes],
    };
    let all = own.into_iter().chain(model.choices());
    Ok(all.filter_map(|choice| Some(Row { key: find("model", choice.name)?, choice })).collect())
}

fn event(row: &Row) -> Value {
    let Choice { name, value, range, meaning } = &row.choice;
    json!({ "key": format!("model.{name}"), "option": format!("--{}", row.option()), "default": value, "range": range,
            "meaning": meaning })
}

/// What to type, with the first of its keys.
fn example(name: &str, model: &ZooModel, rows: &[Row]) -> String {
    let data = match (model.task(), model.input().map_or(0, |input| input.len())) {
        (Task::Tokens, _) => "book.txt",
        (Task::Masks | Task::PixelClasses, _) => "cells",
        (_, 1) => "table.csv",
        _ => "photos/train",
    };
    let first = rows.iter().find(|row| !["input", "classes"].contains(&row.choice.name));
    let key = first.map_or(String::new(), |row| format!(" --{} {}", row.option(), typed(row.key.example)));
    format!("memfit train --model {name} --data {data}{key}")
}

/// "64,32" of "[64, 32]".
fn typed(example: &str) -> String {
    example.chars().filter(|c| !"[]\" ".contains(*c)).collect()
}

fn sizes(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
