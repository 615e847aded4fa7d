//! `bench-kernels`: how near kernels come to the machine, as a part of BENCHMARKS.md. The measuring is done by programs of
//! `memfit-bench` and, for the matrix products of MKL, by a script in `peers/`; this runs them and writes down what they say.

mod table;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::command::{output, shown};
use crate::page;
use crate::peers::{Memfit, Python};
use crate::process::Runner;
use table::Products;

/// Of the kernels; products of matrices are measured on one thread too.
const THREADS: usize = 2;
/// Of products that are timed in a process at least.
const STEPS: usize = 5;
/// Of one process with its products.
const TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, PartialEq)]
struct Options {
    rounds: usize,
    alternations: usize,
}

pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let start = Instant::now();
    let products = measure_products(options.alternations)?;
    println!("products of matrices after {:.0} s; now all kernels", start.elapsed().as_secs_f64());
    let rows = measure_kernels(options.rounds)?;
    let part = table::part(THREADS, &options, &products, &rows)?;
    print!("\n{part}");
    page::write("bench-kernels", &part)?;
    println!("all of it took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options { rounds: 5, alternations: 3 };
        for pair in words.chunks(2) {
            let [name, value] = *pair else { bail!("{} needs a value; see --help", pair[0]) };
            let number = match name {
                "--rounds" => &mut options.rounds,
                "--alternations" => &mut options.alternations,
                _ => bail!("\"{name}\" is not an option; see --help"),
            };
            *number = match value.parse() {
                Ok(n) if n > 0 => n,
                _ => bail!("{name} {value}: a number of at least 1 is needed"),
            };
        }
        Ok(options)
    }
}

/// Of memfit and of PyTorch, which has them from MKL, on one thread and on all.
fn measure_products(alternations: usize) -> Result<Vec<Products>> {
    let (torch, memfit) = (Python::install("torch")?, Memfit::build("steps")?);
    let runner = Runner::new(TIMEOUT)?;
    let run = |command: &mut Command| runner.run(command).map_err(|e| anyhow!("{}: {e}", shown(command)));
    let ours = |numbers: &[String]| run(memfit.command().arg("products").args(numbers));
    let theirs = |numbers: &[String]| run(torch.script("torch_limits.py").args(["-", "products"]).args(numbers));
    let mut all: Vec<Products> = (1..=THREADS).map(Products::new).collect();
    for round in 0..alternations {
        for products in &mut all {
            let numbers = [products.threads, STEPS].map(|n| n.to_string());
            // Every other round goes backwards, so that a machine that gets slower favours nobody.
            let early = if round % 2 == 1 { Some(theirs(&numbers)?) } else { None };
            let our = ours(&numbers)?;
            let their = early.map_or_else(|| theirs(&numbers), Ok)?;
            products.add(&our, &their).map_err(|e| anyhow!("products of matrices: {e}"))?;
        }
    }
    Ok(all)
}

/// The objects that the program prints.
fn measure_kernels(rounds: usize) -> Result<Vec<Value>> {
    let program = Memfit::build("kernels")?;
    let mut command = program.command();
    command.args(["--json", "--threads", &THREADS.to_string(), "--rounds", &rounds.to_string()]);
    let (text, ok) = output(&mut command)?;
    if !ok {
        bail!("{} failed", shown(&command));
    }
    let read = |line: &str| serde_json::from_str(line).with_context(|| format!("this is no row: {line}"));
    text.lines().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn check(words: &[&str], expected: Result<(usize, usize), &str>) {
        let given = Options::parse(words).map(|o| (o.rounds, o.alternations)).map_err(|e| e.to_string());
        assert_eq!(given.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e));
    }

    #[test]
    fn options_are_checked() {
        check(&[], Ok((5, 3)));
        check(&["--rounds", "2", "--alternations", "1"], Ok((2, 1)));
        check(&["--rounds", "0"], Err("--rounds 0: a number of at least 1 is needed"));
        check(&["--rounds"], Err("--rounds needs a value; see --help"));
        check(&["gpt", "1"], Err("\"gpt\" is not an option; see --help"));
    }
}
