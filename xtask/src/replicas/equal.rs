//! The same bytes, whoever trains: other numbers of replicas, in threads and in processes, with other memory and threads.

use std::fs;

use anyhow::{Context, Result, bail};

use super::folder::{Files, check_same, saved_step, tensors};
use super::{Bench, Rank, Seen, text};

const DIGITS: [&str; 4] = ["--steps", "12", "--lanes", "4"];

const GPT: &str = "\
[model]
name = \"gpt\"
layers = 2
width = 64
heads = 2
sequence = 32
[data]
kind = \"text\"
train = \"letters.txt\"
hold_out = 0.1
[train]
batch = 8
steps = 6
optimizer = \"adamw\"
clip_norm = 0.5
[replicas]
lanes = 4
";

/// Digits has batch norm and dropout, which see samples by lanes and draw by samples.
pub fn numbers(bench: &Bench) -> Seen {
    let expected = bench.trained_alone(&DIGITS)?;
    let one_lane = bench.trained_alone(&DIGITS[..2])?;
    if check_same(&one_lane, &expected).is_ok() {
        bail!("one lane and four round alike: this shows nothing");
    }
    for count in 1..=4 {
        same(bench, count, &DIGITS, &expected)?;
        let count = count.to_string();
        let threads = bench.trained_alone(&[&DIGITS[..], &["--replicas", &count]].concat())?;
        check_same(&threads, &expected).with_context(|| format!("{count} threads"))?;
    }
    for count in bench.some(&[2, 3, 4]) {
        let sharded = [&DIGITS[..], &["--shard", "optimizer"]].concat();
        same(bench, count, &sharded, &expected).context("with --shard optimizer")?;
    }
    Ok(format!("{} files alike for 1, 2, 3 and 4 processes and threads, and sharded", expected.len()))
}

pub fn clipping(bench: &Bench) -> Seen {
    let letters: String = (0..4000).map(|i: u32| format!("{} ", i * i % 977)).collect();
    bench.write("letters.txt", letters)?;
    let file = bench.write("gpt.toml", GPT)?;
    let expected = bench.trained_alone(&[&file])?;
    for count in bench.some(&[3, 2, 4]) {
        same(bench, count, &[&file], &expected)?;
        same(bench, count, &[&file, "--shard", "optimizer"], &expected).context("with --shard optimizer")?;
    }
    Ok("gpt ends alike, also sharded".into())
}

pub fn half(bench: &Bench) -> Seen {
    let arguments = [&DIGITS[..], &["--precision", "mixed-f16"]].concat();
    let expected = bench.trained_alone(&arguments)?;
    for count in bench.some(&[3, 2, 4]) {
        same(bench, count, &arguments, &expected)?;
        same(bench, count, &[&arguments[..], &["--shard", "optimizer"]].concat(), &expected).context("sharded")?;
    }
    Ok("digits ends alike, also sharded".into())
}

pub fn settings(bench: &Bench) -> Seen {
    let expected = bench.trained_alone(&DIGITS)?;
    let own: [&[&str]; 4] =
        [&["--threads", "1"], &["--budget", "1900KiB"], &["--threads", "3", "--budget", "4MiB"], &[]];
    let pieces: &[&str] = if bench.is_long() { &["4KiB", "100B", "1MiB"] } else { &["4KiB"] };
    for piece in pieces {
        for count in bench.some(&[3, 2, 4]) {
            let folder = bench.folder("settings")?;
            let run = folder.join("run");
            let common = Rank::new(&["train"]).and(&DIGITS).and(&["--piece", piece, "--out", &text(&run)]);
            let ranks: Vec<Rank> = own[..count].iter().map(|own| common.and(own)).collect();
            bench.run(&folder, &ranks)?.check_passed()?;
            check_same(&tensors(&run)?, &expected).with_context(|| format!("{count} processes, --piece {piece}"))?;
        }
    }
    Ok(format!("alike with other budgets and threads in each process, --piece {}", pieces.join(", ")))
}

pub fn one_lane(bench: &Bench) -> Seen {
    let expected = bench.trained_alone(&DIGITS[..2])?;
    same(bench, 1, &[&DIGITS[..2], &["--lanes", "1"]].concat(), &expected)?;
    Ok("one process with one lane ends as without a launcher".into())
}

/// 1438 samples are no multiple of 32, nor do three replicas divide either.
pub fn uneven(bench: &Bench) -> Seen {
    let mut steps = Vec::new();
    let mut files: Vec<Files> = Vec::new();
    for count in [1, 3] {
        let folder = bench.folder("uneven")?;
        let run = folder.join("run");
        let mut rank = Rank::new(&["train", "--epochs", "2", "--out", &text(&run)]);
        if count == 1 {
            rank = rank.and(&["--lanes", "4"]);
        }
        bench.run(&folder, &vec![rank; count])?.check_passed()?;
        steps.push(saved_step(&run).context("no checkpoint")?);
        files.push(tensors(&run)?);
        let lanes = fs::read_to_string(run.join("run.toml"))?;
        if !lanes.contains("lanes = 4") {
            bail!("{count} replicas do not begin with 4 lanes:\n{lanes}");
        }
    }
    if steps[0] != steps[1] {
        bail!("3 replicas make {} steps where one makes {}", steps[1], steps[0]);
    }
    check_same(&files[1], &files[0])?;
    Ok(format!("3 replicas make the same {} steps in 2 epochs as one", steps[0]))
}

pub fn two_models(bench: &Bench) -> Seen {
    let mut ends: Vec<[Files; 2]> = Vec::new();
    for count in [1, 2] {
        let folder = bench.folder("two")?;
        let mut files = Vec::new();
        for (name, seed) in [("a", 1), ("b", 2)] {
            let out = text(&folder.join(format!("run-{name}")));
            let run = format!("[train]\nsteps = 12\nseed = {seed}\nout = {out:?}\n[replicas]\nlanes = 2\n");
            let file = folder.join(format!("{name}.toml"));
            fs::write(&file, run)?;
            files.push(text(&file));
        }
        let rank = Rank::new(&["train", &files[0], &files[1]]);
        bench.run(&folder, &vec![rank; count])?.check_passed()?;
        ends.push([tensors(&folder.join("run-a"))?, tensors(&folder.join("run-b"))?]);
    }
    for (name, (two, one)) in ["a", "b"].iter().zip(ends[1].iter().zip(&ends[0])) {
        check_same(two, one).with_context(|| format!("run {name}"))?;
    }
    Ok("both end in two processes as in one".into())
}

fn same(bench: &Bench, count: usize, arguments: &[&str], expected: &Files) -> Result<()> {
    let trained = bench.trained(count, arguments).with_context(|| format!("{count} processes"))?;
    check_same(&trained, expected).with_context(|| format!("{count} processes"))
}

impl Bench {
    /// All of these numbers, or the first where time is short.
    fn some(&self, numbers: &[usize]) -> Vec<usize> {
        if self.is_long() { numbers.to_vec() } else { numbers[..1].to_vec() }
    }
}
