//! What was measured, as Markdown. Measures nothing itself.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Options;
use crate::process::Results;
use crate::{machine, median};

const HEAD: &str = "\
## Kernels

Made by `cargo xtask bench-kernels`.

Kernels in f32, one by one as a step has them, without the groups that steps make of them. Each takes turns with what it is
held against, a matrix product of 2048×2048 or a sum of two vectors of 64 MiB, both memfit's own; a share is the median of the
shares of the rounds, and a rate is work ÷ the median time. A row has all its kernels as often as a step has them, weighed by
their work.
";

const PRODUCTS: &str = "\
### Matrix products

Square ones of memfit and of MKL (PyTorch's), in turns, each in a process of its own.

| side | threads | memfit Gflop/s | MKL Gflop/s | memfit's time ÷ MKL's |
|---|---|---|---|---|
";

const CONTRACTIONS: &str = "\
### Convolutions and dense layers

Gflop/s, and the share of the matrix product's. A flop counts as the definition has it: a convolution of 3×3 taps by Winograd's
products makes fewer, and may so come to more than 100 %.

| | forward | by the input | by the filter | all |
|---|---|---|---|---|
";

const STREAMS: &str = "\
### What memory bounds

Bytes are what a kernel reads and writes, each once; tensors that caches hold may so come to more than 100 %. Kernels are those
of resnet50, mobilenet_v3_large, unet and gpt at the batches of the other parts.

| | GB/s | of the long sum |
|---|---|---|
";

const FORKS: &str = "\
### Handing out work

A fork of the thread pool with nothing to do, and its join; on one thread it is a call. Workers that had nothing to do for long
sleep, and have to be woken.

| threads | workers | median ns | 99 % are below ns |
|---|---|---|---|
";

const STEPS: &str = "\
How much of a training step its forks are: their number × the median above ÷ the time of the step, with all workers awake, and,
as the most that it can be, with all asleep.

| | forks in a step | ms a step | awake | asleep |
|---|---|---|---|---|
";

/// Times of square products by side, one for each alternation.
pub struct Products {
    pub threads: usize,
    ours: [Vec<f64>; SIDES.len()],
    theirs: [Vec<f64>; SIDES.len()],
}

const SIDES: [usize; 3] = [1024, 2048, 4096];

impl Products {
    pub fn new(threads: usize) -> Products {
        Products { threads, ours: Default::default(), theirs: Default::default() }
    }

    pub fn add(&mut self, ours: &Results, theirs: &Results) -> Result<(), String> {
        for (i, side) in SIDES.iter().enumerate() {
            let key = format!("product_{side}");
            let (our, their) = (ours.number(&key)?, theirs.number(&key)?);
            self.ours[i].push(our);
            self.theirs[i].push(their);
        }
        Ok(())
    }

    fn lines(&self) -> Option<String> {
        let mut text = String::new();
        for (i, &side) in SIDES.iter().enumerate() {
            let rate = |seconds: &[f64]| Some(2e-9 * (side as f64).powi(3) / median(seconds.to_vec())?);
            let ratio = median(self.ours[i].iter().zip(&self.theirs[i]).map(|(a, b)| a / b).collect())?;
            let (ours, theirs, threads) = (rate(&self.ours[i])?, rate(&self.theirs[i])?, self.threads);
            writeln!(text, "| {side} | {threads} | {ours:.0} | {theirs:.0} | {ratio:.2} |").ok();
        }
        Some(text)
    }
}

/// The whole part, from products and from the rows that the program gave.
pub fn part(threads: usize, options: &Options, products: &[Products], rows: &[Value]) -> Result<String> {
    let machine = machine::describe();
    let Options { rounds, alternations } = options;
    let mut text =
        format!("{HEAD}\n{threads} threads on {machine}; rounds: {rounds}, alternations: {alternations}.\n\n");
    text += PRODUCTS;
    for p in products {
        text += &p.lines().context("a product was not measured")?;
    }
    text += &format!("\n{CONTRACTIONS}{}\n", contractions(rows)?);
    text += &format!("{STREAMS}{}\n", streams(rows)?);
    text += &format!("{FORKS}{}\n", forks(rows)?);
    text += &format!("{STEPS}{}\n", steps(rows)?);
    Ok(text)
}

/// A line for each model, a column for each pass.
fn contractions(rows: &[Value]) -> Result<String> {
    let mut lines: Vec<(&str, [String; 4])> = Vec::new();
    for row in of(rows, "contractions") {
        let (model, pass) = (word(row, "model")?, word(row, "pass")?);
        let cell = format!("{:.0} ({:.0} %)", number(row, "gflops")?, 100.0 * number(row, "share")?);
        // The product itself has no passes.
        let Some(column) = ["forward", "by the input", "by the filter", "all"].iter().position(|p| *p == pass) else {
            lines.push((model, ["".into(), "".into(), "".into(), cell]));
            continue;
        };
        if lines.last().is_none_or(|(last, _)| *last != model) {
            lines.push((model, Default::default()));
        }
        if let Some((_, cells)) = lines.last_mut() {
            cells[column] = cell;
        }
    }
    Ok(lines.iter().map(|(model, cells)| format!("| {model} | {} |\n", cells.join(" | "))).collect())
}

fn streams(rows: &[Value]) -> Result<String> {
    let line = |row| {
        let (kernel, rate, share) = (word(row, "kernel")?, number(row, "gbytes")?, number(row, "share")?);
        Ok(format!("| {kernel} | {rate:.1} | {:.0} % |\n", 100.0 * share))
    };
    of(rows, "streams").map(line).collect()
}

fn forks(rows: &[Value]) -> Result<String> {
    let line = |row| {
        let (threads, workers) = (number(row, "threads")?, word(row, "workers")?);
        // The caller is the only one.
        let workers = if threads == 1.0 { "none" } else { workers };
        Ok(format!("| {threads} | {workers} | {:.0} | {:.0} |\n", number(row, "median_ns")?, number(row, "p99_ns")?))
    };
    of(rows, "forks").map(line).collect()
}

fn steps(rows: &[Value]) -> Result<String> {
    let line = |row| {
        let (workload, forks, ms) = (word(row, "workload")?, number(row, "forks")?, 1e3 * number(row, "seconds")?);
        let (awake, asleep) = (100.0 * number(row, "share_awake")?, 100.0 * number(row, "share_asleep")?);
        Ok(format!("| {workload} | {forks} | {ms:.0} | {awake:.3} % | {asleep:.2} % |\n"))
    };
    of(rows, "steps").map(line).collect()
}

fn of<'a>(rows: &'a [Value], part: &'a str) -> impl Iterator<Item = &'a Value> {
    rows.iter().filter(move |row| row["part"] == part)
}

fn word<'a>(row: &'a Value, key: &str) -> Result<&'a str> {
    row[key].as_str().with_context(|| format!("there is no \"{key}\" in {row}"))
}

fn number(row: &Value, key: &str) -> Result<f64> {
    row[key].as_f64().with_context(|| format!("there is no number \"{key}\" in {row}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::process::results;

    #[test]
    fn products_are_rates_and_the_median_of_ratios() {
        let times =
            |a: f64| results(&format!("result product_1024 {a}\nresult product_2048 {a}\nresult product_4096 {a}"));
        let mut products = Products::new(1);
        for (ours, theirs) in [(0.5, 1.0), (1.0, 1.0), (2.0, 1.0)] {
            products.add(&times(ours), &times(theirs)).expect("all is there");
        }
        let lines = products.lines().expect("all is there");
        assert_eq!(lines.lines().next(), Some("| 1024 | 1 | 2 | 2 | 1.00 |"));
        assert_eq!(lines.lines().count(), 3);
        assert_eq!(Products::new(1).lines(), None);
        let missing = products.add(&times(1.0), &results("")).expect_err("nothing is there");
        assert_eq!(missing, "it says nothing about \"product_1024\"");
    }

    #[test]
    fn a_model_has_a_line_and_a_pass_its_column() {
        let row = |model: &str, pass: &str, gflops: f64| json!({"part": "contractions", "model": model, "pass": pass, "gflops": gflops, "share": gflops / 300.0});
        let rows =
            [row("mlp", "forward", 150.0), row("mlp", "all", 300.0), row("gpt", "all", 30.0), row("it", "2048", 300.0)];
        let expected = "\
| mlp | 150 (50 %) |  |  | 300 (100 %) |
| gpt |  |  |  | 30 (10 %) |
| it |  |  |  | 300 (100 %) |
";
        assert_eq!(contractions(&rows).expect("all is there"), expected);
    }

    #[test]
    fn other_rows_become_lines() {
        let rows = [
            json!({"part": "streams", "kernel": "layer norm", "gbytes": 12.34, "share": 0.5}),
            json!({"part": "forks", "threads": 1, "workers": "awake", "median_ns": 25.0, "p99_ns": 30.4}),
            json!({"part": "forks", "threads": 2, "workers": "asleep", "median_ns": 2500.0, "p99_ns": 3000.0}),
            json!({"part": "steps", "workload": "mlp", "forks": 20, "seconds": 0.032, "share_awake": 0.0002, "share_asleep": 0.01}),
        ];
        assert_eq!(streams(&rows).expect("all is there"), "| layer norm | 12.3 | 50 % |\n");
        assert_eq!(forks(&rows).expect("all is there"), "| 1 | none | 25 | 30 |\n| 2 | asleep | 2500 | 3000 |\n");
        assert_eq!(steps(&rows).expect("all is there"), "| mlp | 20 | 32 | 0.020 % | 1.00 % |\n");
        let wrong = streams(&[json!({"part": "streams", "kernel": "x"})]).expect_err("it lacks its rate");
        assert!(wrong.to_string().starts_with("there is no number \"gbytes\""), "{wrong}");
    }
}
