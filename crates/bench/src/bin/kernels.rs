//! How near the kernels come to the machine: `kernels [--threads N] [--rounds N] [--each] [--only TEXT]` prints tables in Markdown. Each
//! measurement takes turns with a product of 2048×2048 matrices, or with a sum of two long vectors where memory is the
//! limit, so that the shares hold whatever else the machine does.

use std::collections::BTreeMap;
use std::fmt;

use memfit::Model;
use memfit::ir::Op;
use memfit::ir::op::MatMul;
use memfit::nn::zoo::Stem;
use memfit_bench::{Case, Failure, Timed, Work, contractions, is_stream, kernels, median, sgemm, stream};

struct Settings {
    threads: usize,
    rounds: usize,
    each: bool,
    only: String,
}

fn main() -> Result<(), Failure> {
    let mut settings = Settings { threads: 2, rounds: 5, each: false, only: String::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let number = |text: Option<String>| text.and_then(|n| n.parse().ok()).ok_or(format!("{arg} needs a number"));
        match arg.as_str() {
            "--threads" => settings.threads = number(args.next())?,
            "--rounds" => settings.rounds = number(args.next())?,
            "--only" => settings.only = args.next().ok_or("--only needs a part of a name")?,
            "--each" => settings.each = true,
            other => return Err(format!("there is no option \"{other}\"").into()),
        }
    }
    products(&settings)?;
    println!();
    streams(&settings)
}

/// The products and convolutions of some models against a square product.
fn products(settings: &Settings) -> Result<(), Failure> {
    let resnet18 = Model::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(10)?;
    let mut reference = Reference::new(sgemm(2048), settings)?;
    println!("| contractions of | forward | by the input | by the filter | all |");
    println!("|---|---|---|---|---|");
    let zoo = Model::from_name;
    for (name, model, batch) in [
        ("mlp b256", zoo("mlp")?, 256),
        ("resnet18_cifar b128", resnet18, 128),
        ("resnet50 b16", zoo("resnet50")?, 16),
        ("unet b4", zoo("unet")?, 4),
        ("gpt b8", zoo("gpt")?, 8),
    ] {
        let [mut forward, mut input, mut filter, mut all] = [Shares::default(); 4];
        for case in contractions(&model, batch)? {
            let share = reference.share(settings, &case, |w| w.flops)?;
            let product = match case.op {
                Op::Conv(_) | Op::MatMul(MatMul { transpose_a: false, transpose_b: false }) => &mut forward,
                Op::ConvTranspose(_) | Op::MatMul(MatMul { transpose_a: false, transpose_b: true }) => &mut input,
                _ => &mut filter,
            };
            product.add(share);
            all.add(share);
        }
        println!("| {name} | {forward} | {input} | {filter} | {all} |");
    }
    Ok(())
}

/// Everything that is no contraction, by op, against the sum of two long vectors.
fn streams(settings: &Settings) -> Result<(), Failure> {
    let mut reference = Reference::new(stream(), settings)?;
    let mut by_op: BTreeMap<String, Shares> = BTreeMap::new();
    for (name, batch) in [("resnet50", 16), ("mobilenet_v3_large", 16), ("unet", 4), ("gpt", 8)] {
        for case in kernels(&Model::from_name(name)?, batch, is_stream)? {
            let share = reference.share(settings, &case, |w| w.bytes)?;
            by_op.entry(case.op.name().to_string()).or_default().add(share);
        }
    }
    println!("| kernel | of the bandwidth |");
    println!("|---|---|");
    for (name, shares) in by_op {
        println!("| {name} | {shares} |");
    }
    Ok(())
}

/// What the others are held against, in turns with each of them.
struct Reference {
    timed: Timed,
    work: Work,
}

/// A share of the reference's rate, of some work.
#[derive(Clone, Copy, Default)]
struct Shares {
    work: f64,
    spent: f64,
}

impl Shares {
    fn add(&mut self, other: Shares) {
        self.work += other.work;
        self.spent += other.spent;
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.work > 0.0 {
            true => write!(f, "{:.0} %", 100.0 * self.work / self.spent),
            false => write!(f, "-"),
        }
    }
}

impl Reference {
    fn new(case: Case, settings: &Settings) -> Result<Reference, Failure> {
        Ok(Reference { timed: Timed::new(case.graph()?, settings.threads)?, work: case.work()? })
    }

    /// The rate of a case divided by the rate of the reference; nothing where it was not asked for.
    fn share(&mut self, settings: &Settings, case: &Case, of: impl Fn(&Work) -> f64) -> Result<Shares, Failure> {
        if !case.name().contains(&settings.only) {
            return Ok(Shares::default());
        }
        let work = case.work()?;
        let mut timed = Timed::new(case.graph()?, settings.threads)?;
        let mut shares = Vec::new();
        for _ in 0..settings.rounds {
            let whole = of(&self.work) / self.timed.run()?;
            shares.push(of(&work) / timed.run()? / whole);
        }
        let (share, work) = (median(shares), of(&work) * case.count as f64);
        if settings.each {
            println!("{:5.1} % {:3} x {:7.3} G {}", 100.0 * share, case.count, work * 1e-9, case.name());
        }
        Ok(Shares { work, spent: work / share })
    }
}
