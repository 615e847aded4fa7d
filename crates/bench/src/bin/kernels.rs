//! How near the kernels come to the machine: `kernels [--threads N] [--rounds N] [--each] [--only TEXT]` prints tables in Markdown. Each
//! measurement takes turns with a product of 2048×2048 matrices, so that ratios hold whatever else the machine does.

use memfit::Model;
use memfit::ir::Op;
use memfit::nn::zoo::Stem;
use memfit_bench::{Case, Failure, Timed, convolutions, median, sgemm};

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
    let resnet18 = Model::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(10)?;
    let mut reference = Timed::new(sgemm(2048).graph()?, settings.threads)?;
    println!("| convolutions of | forward | by the input | by the filter | all |");
    println!("|---|---|---|---|---|");
    for (name, model, batch) in
        [("resnet18_cifar b128", resnet18, 128), ("resnet50 b16", Model::from_name("resnet50")?, 16)]
    {
        let rates = family(&settings, &mut reference, &convolutions(&model, batch)?)?;
        println!("| {name} | {} |", rates.map(|r| format!("{:.0} %", 100.0 * r)).join(" | "));
    }
    Ok(())
}

/// Flop-weighted shares of the rate of the reference: forward, by the input, by the filter, all.
fn family(settings: &Settings, reference: &mut Timed, cases: &[Case]) -> Result<[f64; 4], Failure> {
    let mut ideal = [0.0; 4];
    let mut taken = [0.0; 4];
    for case in cases.iter().filter(|c| c.name().contains(&settings.only)) {
        let flops = case.work()?.flops * case.count as f64;
        let share = measure(settings, reference, case)?;
        let product = match case.op {
            Op::Conv(_) => 0,
            Op::ConvTranspose(_) => 1,
            _ => 2,
        };
        for i in [product, 3] {
            ideal[i] += flops;
            taken[i] += flops / share;
        }
        if settings.each {
            println!("{:5.1} % {:3} x {:6.2} GFLOP {}", 100.0 * share, case.count, flops * 1e-9, case.name());
        }
    }
    Ok(std::array::from_fn(|i| ideal[i] / taken[i]))
}

/// The rate of a case divided by the rate of the reference.
fn measure(settings: &Settings, reference: &mut Timed, case: &Case) -> Result<f64, Failure> {
    let (flops, reference_flops) = (case.work()?.flops, sgemm(2048).work()?.flops);
    let mut timed = Timed::new(case.graph()?, settings.threads)?;
    let mut shares = Vec::new();
    for _ in 0..settings.rounds {
        let before = reference.run()?;
        let spent = timed.run()?;
        shares.push((flops / spent) / (reference_flops / before));
    }
    Ok(median(shares))
}
